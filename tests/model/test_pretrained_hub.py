"""A checkpoint from the stand-in Hub, in a process of its own, as the client reads its settings when it is imported."""

import subprocess
import sys
from pathlib import Path

import pytest

from bert_family import WIDTH, write_checkpoint
from hub_server import HubServer

FIND = """
import sys
from headscope.errors import ConfigError
from headscope.model.pretrained import read_checkpoint

for asked in sys.argv[1:]:
    try:
        checkpoint = read_checkpoint(*asked.split("@"))
        names = sorted(path.name for path in checkpoint.folder.iterdir())
        print(checkpoint.encoder["hidden_size"], "model.safetensors" in names, "README.md" in names)
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
    texts = ["a lovely film", "a dark day"] * 9
    folder = write_checkpoint(tmp_path / "model", "bert", texts)
    older = write_checkpoint(tmp_path / "older", "bert", texts, hidden_size=WIDTH - 3)
    for name in ("pytorch_model.bin", "README.md"):
        (folder / name).write_text("is not asked for")
    with HubServer({"some-org/some-bert": {"main": folder, "v1": older}}) as hub:
        environment = hub.environment(tmp_path / "hub")
        newest, first, none = found(
            environment, "some-org/some-bert", "some-org/some-bert@v1", "some-org/none"
        )
    assert (newest, first) == (f"{WIDTH} True False", f"{WIDTH - 3} True False")
    assert none.startswith("model.path=some-org/none: no such folder, and it cannot be downloaded")
    # The Hub is gone, the cache is there.
    assert found(environment, "some-org/some-bert") == [newest]
