"""The real `datasets` loads from the stand-in Hub, in processes of its own as it reads settings at import."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from hub_server import HubServer

NAME = "some-org/some-name"

CARD = """---
configs:
- config_name: reviews
  data_files:
  - {split: train, path: reviews/train-*}
  - {split: test, path: reviews/test-*}
- config_name: news
  data_files:
  - {split: train, path: news/train-*}
---
# A data set of two configurations
"""

# prints the rows of every split, or a list of the one message with which `datasets` says what it cannot find
LOAD = """
import json, sys
from datasets import load_dataset
from datasets.exceptions import DatasetNotFoundError

try:
    splits = load_dataset(**json.loads(sys.argv[1]))
    print(json.dumps({split: list(rows) for split, rows in splits.items()}))
except DatasetNotFoundError as error:
    print(json.dumps([str(error)]))
"""


def load(environment: dict[str, str], **arguments: str) -> Any:
    command = [sys.executable, "-c", LOAD, json.dumps(arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def write_repository(folder: Path, mark: str) -> Path:
    for split in ("reviews/train", "reviews/test", "news/train"):
        path = folder / f"{split}-00000-of-00001.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(pyarrow.table({"text": [f"{mark} {split}"], "label": [1]}), path)
    (folder / "README.md").write_text(CARD, encoding="utf-8")
    return folder


def write_bare_files(folder: Path) -> Path:
    (folder / "outer" / "inner").mkdir(parents=True)
    (folder / "train.csv").write_text("text,label\none,1\n", encoding="utf-8")
    (folder / "outer" / "inner" / "test.csv").write_text("text,label\ntwo,2\n", encoding="utf-8")
    return folder


def reviews(mark: str) -> dict[str, list[dict[str, Any]]]:
    return {split: [{"text": f"{mark} reviews/{split}", "label": 1}] for split in ("train", "test")}


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubServer]:
    old, new = (write_repository(tmp_path / mark, mark) for mark in ("old", "new"))
    with HubServer({NAME: {"main": new, "releases/1.0": old}}) as server:
        yield server


def ask(hub: HubServer, path: str, body: str | None = None, **headers: str) -> tuple[HTTPResponse, bytes]:
    with closing(HTTPConnection("127.0.0.1", hub.server_port, timeout=5)) as connection:
        # unlike most clients, this one sends a path as it is, dots and all
        connection.request("GET" if body is None else "POST", path, body, headers)
        response = connection.getresponse()
        return response, response.read()


def test_a_configuration_of_the_card_is_loaded_by_its_name(hub: HubServer, tmp_path: Path) -> None:
    environment = hub.environment(tmp_path / "home")
    assert load(environment, path=NAME, name="reviews") == reviews("new")
    assert load(environment, path=NAME, name="news") == {"train": [{"text": "new news/train", "label": 1}]}


def test_only_the_dataset_viewer_is_asked_besides_the_hub(hub: HubServer, tmp_path: Path) -> None:
    load(hub.environment(tmp_path / "home"), path=NAME, name="news")
    assert ("HEAD", f"/datasets/{NAME}/resolve/main/README.md") in hub.requests
    # a request to another host is seen here because the server is also the proxy
    elsewhere = [path for _, path in hub.requests if not path.startswith("/")]
    assert elsewhere == [f"http://datasets-server.127.0.0.1:{hub.server_port}/info?dataset={NAME}"]


def test_a_revision_is_chosen_by_its_name_or_its_commit(hub: HubServer, tmp_path: Path) -> None:
    environment = hub.environment(tmp_path / "home")
    commit = hub.find_snapshot(NAME, "main").commit
    assert load(environment, path=NAME, name="reviews", revision="releases/1.0") == reviews("old")
    assert load(environment, path=NAME, name="reviews", revision=commit) == reviews("new")


def test_what_was_loaded_once_is_there_without_the_hub(tmp_path: Path) -> None:
    with HubServer({NAME: write_repository(tmp_path / "new", "new")}) as hub:
        environment = hub.environment(tmp_path / "home")
        online = load(environment, path=NAME, name="reviews")
    assert load(environment | {"HF_HUB_OFFLINE": "1"}, path=NAME, name="reviews") == online == reviews("new")


def test_files_without_a_card_are_found_by_their_names(tmp_path: Path) -> None:
    with HubServer({NAME: write_bare_files(tmp_path / "bare")}) as hub:
        splits = load(hub.environment(tmp_path / "home"), path=NAME)
    assert splits == {"train": [{"text": "one", "label": 1}], "test": [{"text": "two", "label": 2}]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"path": "some-org/other-name"}, "Dataset 'some-org/other-name' doesn't exist on the Hub"),
        ({"path": NAME, "revision": "2.0"}, f"Revision '2.0' doesn't exist for dataset '{NAME}' on the Hub"),
    ],
)
def test_an_unknown_repository_or_revision_is_not_found(
    hub: HubServer, tmp_path: Path, arguments: dict[str, str], message: str
) -> None:
    (said,) = load(hub.environment(tmp_path / "home"), name="reviews", **arguments)
    assert said.startswith(message)


@pytest.mark.parametrize(
    ("asked", "status", "part"),
    [
        ("bytes=4-10", 206, slice(4, 11)),
        ("bytes=20-", 206, slice(20, None)),
        ("bytes=20-99999", 206, slice(20, None)),
        ("bytes=99999-", 200, slice(None)),
    ],
)
def test_a_range_is_answered_with_that_part(hub: HubServer, asked: str, status: int, part: slice) -> None:
    response, content = ask(hub, f"/datasets/{NAME}/resolve/main/README.md", Range=asked)
    assert (response.status, content) == (status, CARD.encode()[part])


@pytest.mark.parametrize(
    ("asked", "paths"),
    [
        ("?recursive=false", ["outer", "train.csv"]),
        ("/outer?recursive=false", ["outer/inner"]),
        ("/outer?recursive=true", ["outer/inner", "outer/inner/test.csv"]),
    ],
)
def test_a_folder_is_listed_alone_or_with_all_below_it(tmp_path: Path, asked: str, paths: list[str]) -> None:
    with HubServer({NAME: write_bare_files(tmp_path / "bare")}) as hub:
        _, answer = ask(hub, f"/api/datasets/{NAME}/tree/main{asked}")
    assert [entry["path"] for entry in json.loads(answer)] == paths


def test_paths_are_described_and_unknown_ones_passed_over(hub: HubServer) -> None:
    form = "paths=README.md&paths=news&paths=missing&expand=false"
    _, answer = ask(hub, f"/api/datasets/{NAME}/paths-info/releases%2F1.0", form)
    assert [(entry["type"], entry["size"]) for entry in json.loads(answer)] == [
        ("file", len(CARD)),
        ("directory", 0),
    ]


@pytest.mark.parametrize(
    "path", ["../secret.txt", "%2e%2e%2Fsecret.txt", "link.txt", "links/secret.txt", "inside/../README.md"]
)
def test_nothing_outside_of_the_folder_is_served(tmp_path: Path, path: str) -> None:
    folder = write_repository(tmp_path / "new", "new")
    (tmp_path / "secret.txt").write_text("secret", encoding="utf-8")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "links").symlink_to(tmp_path)
    with HubServer({NAME: folder}) as hub:
        response, _ = ask(hub, f"/datasets/{NAME}/resolve/main/{path}")
        assert (response.status, response.headers["X-Error-Code"]) == (404, "EntryNotFound")
