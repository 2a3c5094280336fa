"""A checkpoint from the stand-in Hub, in a process of its own, as the client reads its settings when it is imported."""

import subprocess
import sys
from pathlib import Path

from bert_family import WIDTH, peer, save
from hub_server import HubServer

FIND = """
import sys
from headscope.errors import ConfigError
from headscope.model.pretrained.checkpoint import find_checkpoint

try:
    checkpoint = find_checkpoint(sys.argv[1])
    print(checkpoint.architecture.d_model, sorted(path.name for path in checkpoint.folder.iterdir()))
except ConfigError as error:
    print(error)
"""


def found(environment: dict[str, str], name: str) -> str:
    command = [sys.executable, "-c", FIND, name]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


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
        assert found(environment, "some-org/some-bert") == expected
        message = found(environment, "some-org/pickled")
        assert message.startswith("model.path=some-org/pickled: has no model.safetensors (perhaps pickled ones alone)")
        message = found(environment, "some-org/none")
        assert message.startswith(
            "model.path=some-org/none: there is no such folder, and it cannot be had from the Hub"
        )
        assert "\n" not in message
    assert found(environment, "some-org/some-bert") == expected  # the Hub is gone, the cache is there
