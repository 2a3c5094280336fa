"""A stand-in for the Hugging Face Hub on loopback, for `datasets.load_dataset`.

The real library runs against it unchanged, in a process with the variables of `Hub.environment`: it
reads its settings once, when it is imported.
"""

import hashlib
import json
import os
import re
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath
from typing import Any, Self
from urllib.parse import parse_qs, unquote

REPOSITORY = r"/(?P<repository>[^/]+/[^/]+)"
ROUTES = {
    "info": rf"/api/datasets{REPOSITORY}(?:/revision/(?P<revision>[^/]+))?",
    "tree": rf"/api/datasets{REPOSITORY}/tree/(?P<revision>[^/]+)(?:/(?P<path>.+))?",
    "paths": rf"/api/datasets{REPOSITORY}/paths-info/(?P<revision>[^/]+)",
    "file": rf"/datasets{REPOSITORY}/resolve/(?P<revision>[^/]+)/(?P<path>.+)",
}


def digest(content: bytes) -> str:
    """The id git gives a file of this content, which is the Hub's ETag."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Snapshot:
    """One revision, held in memory, so that no path that a client names leads out of it."""

    def __init__(self, folder: Path) -> None:
        paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        self.files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
        self.commit = digest(json.dumps([*self.files, *map(digest, self.files.values())]).encode())
        parents = {str(parent) for name in self.files for parent in PurePosixPath(name).parents}
        self.entries: dict[str, dict[str, Any]] = {
            name: {"type": "file", "path": name, "size": len(content), "oid": digest(content)}
            for name, content in self.files.items()
        }
        for name in sorted(parents - {"."}):
            self.entries[name] = {"type": "directory", "path": name, "size": 0, "oid": self.commit}


class Handler(BaseHTTPRequestHandler):
    """Answers one request: HTTP/1.0, the default here, closes the connection."""

    server: "Hub"

    def do_GET(self) -> None:
        """Note the request, then answer it, or say what is missing as the Hub does."""
        self.server.requests.append(self.path)
        path, _, query = self.path.partition("?")
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        fields = parse_qs(query or body)
        for kind, pattern in ROUTES.items():
            # A proxy is asked for a whole address, which no route matches.
            if match := re.fullmatch(pattern, path):
                # Unquoted only now: the client quotes the slashes of a revision and of a folder.
                parts = {name: unquote(part or "") for name, part in match.groupdict().items()}
                self.answer(kind, parts, fields)
                return
        self.missing("EntryNotFound", "Not a route of this server")

    do_HEAD = do_POST = do_CONNECT = do_GET  # noqa: N815

    def answer(self, kind: str, parts: dict[str, str], fields: dict[str, list[str]]) -> None:
        """Answer by its kind; the client picks its exception by the code of what is missing."""
        if parts["repository"] != self.server.name:
            self.missing("RepoNotFound", "Repository not found")
            return
        revision = parts["revision"] or "main"
        known = self.server.revisions
        by_name = known | {each.commit: each for each in known.values()}
        if revision not in by_name:
            self.missing("RevisionNotFound", "Invalid rev id")
            return
        snapshot = by_name[revision]
        path = parts.get("path", "")
        if kind == "info":
            siblings = [{"rfilename": name} for name in snapshot.files]
            self.reply({"id": self.server.name, "sha": snapshot.commit, "siblings": siblings})
        elif kind == "paths":  # the Hub passes over those that it does not have
            found = [each for each in fields.get("paths", []) if each in snapshot.entries]
            self.reply([snapshot.entries[each] for each in found])
        elif path and path not in snapshot.entries:
            # The client keeps its absence in its cache, under the commit named.
            self.missing("EntryNotFound", "Entry not found", {"X-Repo-Commit": snapshot.commit})
        elif kind == "tree":
            inside = f"{re.escape(path)}/" if path else ""
            wanted = inside + (".+" if fields.get("recursive") == ["true"] else "[^/]+")
            names = sorted(name for name in snapshot.entries if re.fullmatch(wanted, name))
            self.reply([snapshot.entries[name] for name in names])
        else:
            etag = f'"{digest(snapshot.files[path])}"'
            self.send(snapshot.files[path], {"X-Repo-Commit": snapshot.commit, "ETag": etag})

    def missing(self, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        named = {"X-Error-Code": code, "X-Error-Message": message, **(headers or {})}
        self.send(json.dumps({"error": message}).encode(), named, 404)

    def reply(self, value: object) -> None:
        self.send(json.dumps(value).encode(), {"Content-Type": "application/json"})

    def send(self, body: bytes, headers: Mapping[str, str], status: int = 200) -> None:
        """Answer; a HEAD gets all the headers of a GET, the length among them, but no body."""
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_request(self, *_: object) -> None:
        """Print nothing: `Hub.requests` is the log."""


class Hub(ThreadingHTTPServer):
    """A Hub with one repository of data, each revision a folder, until the block is left."""

    def __init__(self, name: str, revisions: Mapping[str, Path]) -> None:
        self.name = name
        self.revisions = {revision: Snapshot(folder) for revision, folder in revisions.items()}
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[str] = []

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def environment(self, hub_home: Path) -> dict[str, str]:
        """The variables for a process that reaches this Hub and nothing else."""
        # A developer's own caches, token and proxies must not decide what a test sees.
        foreign = re.compile(r"(HF|HUGGINGFACE|TRANSFORMERS)_.*|.*_PROXY", re.IGNORECASE)
        own = {name: value for name, value in os.environ.items() if not foreign.fullmatch(name)}
        url = f"http://127.0.0.1:{self.server_port}"
        return own | {
            "HF_HOME": str(hub_home),
            "HF_ENDPOINT": url,
            "HF_UPDATE_DOWNLOAD_COUNTS": "0",  # else each load is counted by a request to S3
            "HF_HUB_DISABLE_TELEMETRY": "1",  # else the client asks for a list of coding agents
            # `datasets` also asks datasets-server.<the endpoint's host>. As the proxy, this server
            # gets whatever is meant for another host: nothing leaves loopback.
            "ALL_PROXY": url,
            "NO_PROXY": "127.0.0.1",
        }
