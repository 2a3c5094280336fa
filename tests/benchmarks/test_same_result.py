"""The judge of a rebuilding reports a planted difference in each kind of file, and nothing else."""

import base64
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from safetensors.numpy import save_file
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

WEIGHTS = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture(scope="module")
def judge() -> Iterator[ModuleType]:
    """Yield the module; benchmarks/ is no package, and its names are common ones."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
    import same_result

    yield same_result
    del sys.path[0]
    for name in ("same_result", "run_differences"):
        del sys.modules[name]


def write_results(folder: Path, weights: np.ndarray = WEIGHTS, text: str = "a") -> Path:
    """Write one file of each kind, as a run folder has them."""
    folder.mkdir()
    score = float(weights[1, 2])
    save_file({"layer.weight": weights}, folder / "model.safetensors")
    np.savez(folder / "step.npz", **{"text_0/layer_0/weights": weights})
    scores = {"test": {"loss": score}, "seconds": {"all": np.random.default_rng().random()}}
    scores |= {"labels": [text, "b"], "which heads matter": text}
    (folder / "metrics.json").write_text(json.dumps(scores))
    (folder / "config.yaml").write_text(f"data: {{path: {folder}/texts.csv, limit: {score}}}")
    (folder / "predictions.csv").write_text(f"prediction,p\n{text},{score}\n")
    header = json.dumps([{"name": "weights", "type": "float32", "shape": [2, 3], "offset": 0}])
    header += " " * (-(4 + len(header)) % 8)
    bundle = len(header).to_bytes(4, "little") + header.encode() + weights.tobytes()
    page = {"title": text, "texts": [{"maps": base64.b64encode(bundle).decode(), "mean": score}]}
    (folder / "page.html").write_text(
        f'<script id="data" type="application/json">{json.dumps(page)}</script>'
    )
    events = EventFileWriter(str(folder))
    events.add_event(Event(step=1, summary=Summary(value=[{"tag": "loss", "simple_value": score}])))
    events.close()
    return folder


def failures(judge: ModuleType, before: Path, after: Path) -> dict[str, list[str]]:
    """Return file -> the keys that differ, without the words for how."""
    earlier, later = judge.read(before), judge.read(after)
    found = {}
    for file in {*earlier, *later}:
        _, lines = judge.judge(f"evidence/used/{file}", earlier.get(file, {}), later.get(file, {}))
        found[file] = [line.split(": ")[0].partition(":")[2] for line in lines]
    return {file: keys for file, keys in found.items() if keys}


def test_clocks_and_folders_do_not_count(judge: ModuleType, tmp_path: Path) -> None:
    before, after = write_results(tmp_path / "a"), write_results(tmp_path / "b")
    assert len(judge.read(before)) == 7
    assert failures(judge, before, after) == {}


def test_the_last_bit_of_a_number_counts_in_each_kind_of_file(
    judge: ModuleType, tmp_path: Path
) -> None:
    changed = WEIGHTS.copy()
    changed[1, 2] = np.nextafter(changed[1, 2], np.float32(9))
    before = write_results(tmp_path / "a")
    assert failures(judge, before, write_results(tmp_path / "b", changed)) == {
        "model.safetensors": ["layer.weight"],
        "step.npz": ["text_0/layer_0/weights"],
        "metrics.json": ["test.loss"],
        "config.yaml": ["data.limit"],
        "predictions.csv": ["p"],
        "page.html": ["texts.0.mean", "texts.0/weights"],
        "events": ["loss"],
    }
