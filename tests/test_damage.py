"""One bit of a file is another: a message, or the same answers, never others."""

import os
import random
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from headscope.export.graph import export
from headscope.ground.errors import UserError
from headscope.ground.files import cached
from headscope.record.reader import read_step
from headscope.record.schema import RecordError
from headscope.runs.folder import load_validation
from headscope.runs.run import load_run
from headscope.settings.commands import ExportConfig
from headscope.training.resume import LAST, load_last
from training_runs import Trained

pytestmark = pytest.mark.usefixtures("unchecked_shapes")
FLIPS = 100 if os.environ.get("HARD") == "full" else 12  # of each file
TEXTS = ["the film was lovely", "dark", "quite a day"]


def model(folder: Path) -> object:
    run = load_run(folder)
    return run.predict(TEXTS), run.labels, run.config


def validation(folder: Path) -> object:
    learned = load_run(folder).setup.learned
    assert learned is not None
    return [tensor.tolist() for tensor in (*load_validation(folder), learned)]


def checkpoint(folder: Path) -> object:
    assert load_last(folder) is not None
    with zipfile.ZipFile(folder / LAST) as archive:
        return [archive.read(name) for name in archive.namelist()]


def step(folder: Path) -> object:
    path = min(folder.glob("heads/*.npz"))
    return {name: (array.dtype, array.tobytes()) for name, array in read_step(path).items()}


FILES: dict[str, Callable[[Path], object]] = {
    "model.safetensors": model,
    "private.safetensors": validation,
    "checkpoints/last.ckpt": checkpoint,
    "heads/step_*.npz": step,
}


@contextmanager
def one_bit(path: Path, number: int) -> Iterator[None]:
    """Change one bit of a file, any, and then back."""
    content = path.read_bytes()
    bits = random.Random(number)
    changed = bytearray(content)
    changed[bits.randrange(len(content))] ^= 1 << bits.randrange(8)
    path.write_bytes(changed)
    yield
    path.write_bytes(content)


@pytest.mark.parametrize("name", FILES)
def test_a_bit_of_a_run(plain: Trained, tmp_path: Path, name: str) -> None:
    folder = plain.copy(tmp_path)
    path = min(folder.glob(name))
    read = FILES[name]
    expected = read(folder)
    messages = 0
    for number in range(FLIPS):
        with one_bit(path, number):
            try:
                found = read(folder)
            except (UserError, RecordError) as error:
                message = str(error)
            else:
                assert found == expected, number
                continue
        assert path.name in message
        messages += 1
    assert messages > FLIPS / 2


def test_a_bit_of_the_cache(tmp_path: Path) -> None:
    content = np.random.default_rng(0).bytes(10_000)
    for number in range(FLIPS):
        path = cached(tmp_path / "name.bin", lambda file: file.write_bytes(content))
        with one_bit(path, number):
            found = cached(tmp_path / "name.bin", lambda file: file.write_bytes(content))
            assert found.read_bytes() == content


ANSWERS = """
import random, sys
from pathlib import Path
folder, path, number, *texts = sys.argv[1:]
sys.path.insert(0, folder)
from classify import Classifier

def answer():
    try:
        return str(Classifier(folder).predict(texts))
    except ValueError as error:
        return f"error: {error}"

content = Path(path).read_bytes()
print(answer())
for flip in range(int(number)):
    bits = random.Random(flip)
    changed = bytearray(content)
    changed[bits.randrange(len(content))] ^= 1 << bits.randrange(8)
    Path(path).write_bytes(changed)
    print(answer())
"""


@pytest.mark.parametrize("name", ["model.onnx", "SHA256SUMS"])
def test_a_bit_of_an_exported_model(plain: Trained, tmp_path: Path, name: str) -> None:
    output = export(ExportConfig(run=str(plain.folder), output=str(tmp_path / "model")))
    words = [sys.executable, "-c", ANSWERS, str(output), str(output / name), str(FLIPS), *TEXTS]
    shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    expected, *found = shown.splitlines()
    messages = [answer for answer in found if answer != expected]
    assert all("model.onnx: is not what was exported" in message for message in messages)
    assert len(found) == FLIPS
    assert name == "SHA256SUMS" or len(messages) == FLIPS
