"""A stand-in for the Hugging Face Hub on loopback, for `datasets.load_dataset` and `snapshot_download`.

The real libraries run against it unchanged, in a process with the variables of `HubServer.environment`: both read their
settings once, when they are imported.
"""

import hashlib
import json
import os
import re
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath
from typing import Self
from urllib.parse import parse_qs, unquote


def git_blob_id(content: bytes) -> str:
    """The id git gives a file of this content, which is the Hub's ETag for a file of ordinary size."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class HubError(Exception):
    """A 404 of the Hub: the client picks its exception type by the code, such as RevisionNotFound."""

    def __init__(self, code: str, message: str, **headers: str) -> None:
        super().__init__(message)
        self.headers = {"X-Error-Code": code, "X-Error-Message": message, **headers}


class Snapshot:
    """One revision of a repository, held in memory, so that no path that a client names leads out of it."""

    def __init__(self, folder: Path) -> None:
        paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        self.files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
        parents = {
            parent.as_posix() for name in self.files for parent in PurePosixPath(name).parents
        }
        self.folders = sorted(parents - {"."})
        listing = json.dumps([(name, git_blob_id(content)) for name, content in self.files.items()])
        self.commit = hashlib.sha1(listing.encode()).hexdigest()

    def entries(self) -> dict[str, dict[str, str | int]]:
        described: dict[str, dict[str, str | int]] = {}
        for name, content in self.files.items():
            blob_id = git_blob_id(content)
            described[name] = {"type": "file", "path": name, "size": len(content), "oid": blob_id}
        for name in self.folders:
            # the client wants an id here but makes no use of it, so the commit's will do
            described[name] = {"type": "directory", "path": name, "size": 0, "oid": self.commit}
        return described


class HubRequestHandler(BaseHTTPRequestHandler):
    """Answers one request: HTTP/1.0, the default here, closes the connection, so none outlives the server."""

    server: "HubServer"
    repository = r"/(?P<repository>[^/]+/[^/]+)"
    routes = (
        (rf"/api/(?:datasets|models){repository}(?:/revision/(?P<revision>[^/]+))?", "answer_info"),
        (
            rf"/api/(?:datasets|models){repository}/tree/(?P<revision>[^/]+)(?:/(?P<path>.+))?",
            "answer_tree",
        ),
        (rf"/api/datasets{repository}/paths-info/(?P<revision>[^/]+)", "answer_paths_info"),
        (rf"(?:/datasets)?{repository}/resolve/(?P<revision>[^/]+)/(?P<path>.+)", "answer_file"),
    )

    def do_GET(self) -> None:
        """Record the request, then answer it, or say what is missing as the Hub does."""
        self.server.requests.append((self.command, self.path))
        path, _, query = self.path.partition("?")
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        self.fields = parse_qs(query or body)
        try:
            self.answer(path)
        except HubError as error:
            self.reply(json.dumps({"error": str(error)}).encode(), error.headers, status=404)

    do_HEAD = do_POST = do_CONNECT = do_GET  # noqa: N815

    def answer(self, path: str) -> None:
        """Hand the request to its route. What a proxy is asked is a whole address, which no route matches."""
        for pattern, method in self.routes:
            if match := re.fullmatch(pattern, path):
                # unquoted only now: the client quotes the slashes of a revision and of a folder
                self.parts = {name: unquote(part or "") for name, part in match.groupdict().items()}
                revision = self.parts["revision"] or "main"
                self.snapshot = self.server.find_snapshot(self.parts["repository"], revision)
                getattr(self, method)()
                return
        raise HubError("EntryNotFound", "Not a route of this server")

    def answer_info(self) -> None:
        siblings = [{"rfilename": name} for name in self.snapshot.files]
        self.reply_json(
            {"id": self.parts["repository"], "sha": self.snapshot.commit, "siblings": siblings}
        )

    def answer_tree(self) -> None:
        folder = self.parts["path"]
        if folder and folder not in self.snapshot.folders:
            raise self.entry_not_found()
        inside = f"{re.escape(folder)}/" if folder else ""
        wanted = inside + (".+" if self.fields.get("recursive") == ["true"] else "[^/]+")
        entries = self.snapshot.entries()
        self.reply_json([entries[path] for path in sorted(entries) if re.fullmatch(wanted, path)])

    def answer_paths_info(self) -> None:
        """The entries of the paths in a form; the Hub passes over those that it does not have."""
        entries = self.snapshot.entries()
        self.reply_json([entries[path] for path in self.fields.get("paths", []) if path in entries])

    def answer_file(self) -> None:
        content = self.snapshot.files.get(self.parts["path"])
        if content is None:
            raise self.entry_not_found()
        headers = {"X-Repo-Commit": self.snapshot.commit, "ETag": f'"{git_blob_id(content)}"'}
        self.reply(content, headers)

    def entry_not_found(self) -> HubError:
        """The error for a missing file: the client keeps its absence in its cache, under the commit named."""
        return HubError(
            "EntryNotFound", "Entry not found", **{"X-Repo-Commit": self.snapshot.commit}
        )

    def reply_json(self, value: object) -> None:
        self.reply(json.dumps(value).encode(), {"Content-Type": "application/json"})

    def reply(self, body: bytes, headers: Mapping[str, str], status: int = 200) -> None:
        """Answer; a HEAD gets all the headers of a GET, the length among them, but no body."""
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_request(self, *_: object) -> None:
        pass  # `HubServer.requests` is the log


class HubServer(ThreadingHTTPServer):
    """A Hub with repositories of data sets or models, each a folder (revision `main`) or {revision: folder}."""

    def __init__(self, repositories: Mapping[str, Path | Mapping[str, Path]]) -> None:
        self.repositories: dict[str, dict[str, Snapshot]] = {}
        for name, folders in repositories.items():
            revisions = {"main": folders} if isinstance(folders, Path) else folders
            self.repositories[name] = {
                revision: Snapshot(folder) for revision, folder in revisions.items()
            }
        super().__init__(("127.0.0.1", 0), HubRequestHandler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.requests: list[tuple[str, str]] = []

    def __enter__(self) -> Self:
        self.thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.thread.join()
        self.server_close()

    def find_snapshot(self, repository: str, revision: str) -> Snapshot:
        """A revision, by its name or its commit."""
        if repository not in self.repositories:
            raise HubError("RepoNotFound", "Repository not found")
        for name, snapshot in self.repositories[repository].items():
            if revision in (name, snapshot.commit):
                return snapshot
        raise HubError("RevisionNotFound", "Invalid rev id")

    def environment(self, hub_home: Path) -> dict[str, str]:
        """The variables for a process that reaches this Hub and nothing else, its caches in `hub_home`."""
        # a developer's own caches, token, offline mode and proxies must not decide what a test sees
        foreign = re.compile(r"(HF|HUGGINGFACE|TRANSFORMERS)_.*|.*_PROXY", re.IGNORECASE)
        own = {name: value for name, value in os.environ.items() if not foreign.fullmatch(name)}
        return (
            own
            | {
                "HF_HOME": str(hub_home),
                "HF_ENDPOINT": self.url,
                "HF_UPDATE_DOWNLOAD_COUNTS": "0",  # else each load is counted by a request to S3
                "HF_HUB_DISABLE_TELEMETRY": "1",  # else the client asks for a list of coding agents to report
                # `datasets` also asks datasets-server.<the endpoint's host> and has no switch for that. As the
                # proxy, this server gets whatever is meant for another host: nothing leaves loopback, not even
                # the look-up of a name; the answer is a prompt 404; and `requests` shows what was asked.
                "ALL_PROXY": self.url,
                "NO_PROXY": "127.0.0.1",
            }
        )
