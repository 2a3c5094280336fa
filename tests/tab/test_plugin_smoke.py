"""The Heads tab inside the real `tensorboard` command, under each of its loaders."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from heads_server import starting_tensorboard

from headscope.record.schema import Text
from headscope.record.writer import HeadRecorder
from headscope.tab.summaries import write_marker
from pages import unpack
from records import step_arrays

LOADERS = ["false", "true"] if find_spec("tensorboard_data_server") else ["false"]


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logs")
    for run in (".", "deep/日本"):
        recorder = HeadRecorder(folder / run, [Text("probe", ["a", "b"], "a b", "x")], ["x", "y"])
        for step in (0, 4):
            maps = [[np.full((2, 2, 2), 0.5)]]
            recorder.write(step, step_arrays(maps, probabilities=[[1.0, 0.0]]))
        write_marker(folder / run)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("load_fast", LOADERS)
def test_tensorboard_shows_the_same_under_each_loader(logdir: Path, load_fast: str) -> None:
    with starting_tensorboard(logdir, f"--load_fast={load_fast}") as board:
        board.until("plugin/heads/runs", lambda answer: len(answer.json()["runs"]) == 2)
        found = board.get("plugin/heads/runs").json()
        assert [(run["run"], run["steps"], run["error"]) for run in found["runs"]] == [
            (".", 2, None),
            ("deep/日本", 2, None),
        ]
        assert found["logdir"] == str(logdir)
        for run in (".", "deep/日本"):
            steps = board.get("plugin/heads/index", run=run).json()["steps"]
            assert [step["step"] for step in steps] == [0, 4]
            maps = unpack(board.get("plugin/heads/maps", run=run, step=4, text=0).content)
            assert maps["layer_0/weights"].tolist() == np.full((2, 2, 2), 0.5).tolist()
        refused = board.get("plugin/heads/index", run="../" + logdir.name)
        assert (refused.status_code, list(refused.json())) == (404, ["error"])
        assert "render" in board.get("plugin/heads/static/index.js").text
        assert "./static/index.js" in board.get("plugin_entry.html", name="heads").text
