"""A checkpoint from the stand-in Hub, in a process of its own, as the client reads its settings when it is imported."""

import subprocess
import sys
from pathlib import Path

import pytest

from bert_family import WIDTH, peer, save
from hub_server import HubServer

FIND = """
import sys
from headscope.errors import ConfigError
from headscope.model.pretrained import find_checkpoint

for asked in sys.argv[1:]:
    try:
        checkpoint = find_checkpoint(*asked.split("@"))
        print(checkpoint.architecture.d_model, sorted(path.name for path in checkpoint.folder.iterdir()))
    except ConfigError as error:
        print(error)
"""


def found(environment: dict[str, str], *asked: str) -> list[str]:
    """Return a line for each id or id@revision."""
    command = [sys.executable, "-c", FIND, *asked]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(asked)
    return lines


@pytest.mark.slow
def test_the_few_files_that_are_read_are_loaded_and_kept(tmp_path: Path) -> None:
    folder = save(peer("bert"), tmp_path / "model")
    for name in ("pytorch_model.bin", "README.md"):
        (folder / name).write_text("is not asked for")
    (tmp_path / "pickled").mkdir()
    (tmp_path / "pickled/config.json").write_bytes((folder / "config.json").read_bytes())
    (tmp_path / "pickled/pytorch_model.bin").touch()
    expected = f"{WIDTH} ['config.json', 'model.safetensors']"
    with HubServer({"some-org/some-bert": folder, "some-org/pickled": tmp_path / "pickled"}) as hub:
        environment = hub.environment(tmp_path / "hub")
        whole, pickled, none = found(
            environment, "some-org/some-bert", "some-org/pickled", "some-org/none"
        )
    assert whole == expected
    assert pickled.startswith("model.path=some-org/pickled: has no model.safetensors. Pickled")
    assert none.startswith(
        "model.path=some-org/none: no such folder, and it cannot be downloaded from the Hub"
    )
    # The Hub is gone, the cache is there.
    assert found(environment, "some-org/some-bert") == [expected]


def test_a_revision_and_weights_in_several_files_are_loaded(tmp_path: Path) -> None:
    wide, narrow = peer("bert"), peer("bert", hidden_size=WIDTH - 3)
    wide.save_pretrained(tmp_path / "main", max_shard_size="20KB")
    save(narrow, tmp_path / "older")
    with HubServer(
        {"some-org/some-bert": {"main": tmp_path / "main", "v1": tmp_path / "older"}}
    ) as hub:
        environment = hub.environment(tmp_path / "hub")
        asked = (
            "some-org/some-bert",
            "some-org/some-bert@v1",
            "some-org/some-bert@v2",
            f"{tmp_path / 'main'}@v1",
        )
        newest, older, none, folder = found(environment, *asked)
    width, names = newest.split(" ", 1)
    assert int(width) == WIDTH
    assert "'model-00002-of-" in names
    assert older == f"{WIDTH - 3} ['config.json', 'model.safetensors']"
    assert none.startswith(
        "model.path=some-org/some-bert model.revision=v2: no such folder, and it cannot"
    )
    assert folder.startswith(
        f"model.revision: got 'v1', but model.path={tmp_path / 'main'} is a folder"
    )
