"""A run predicts in a forked child, where torch's pool of threads is not: multiprocessing, gunicorn --preload."""

import subprocess
import sys
from pathlib import Path

import pytest

from headscope.settings.config import DataConfig
from untrained import untrained

CHILD = """
import os, sys, torch, headscope
torch.set_num_threads(2)
run = headscope.load(sys.argv[1])
texts = [f"the cat sat on the mat {number}" for number in range(200)]
before = [each.label for each in run.predict(texts)]
child = os.fork()
if child == 0:
    os._exit(0 if [each.label for each in run.predict(texts)] == before else 3)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="Windows has no fork")
def test_a_forked_child_predicts_as_its_parent(tmp_path: Path, unchecked_shapes: None) -> None:
    folder = untrained(tmp_path / "run", ["the cat sat", "on the mat"] * 3, DataConfig())
    done = subprocess.run([sys.executable, "-c", CHILD, folder], timeout=120)
    assert done.returncode == 0
