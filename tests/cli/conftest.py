"""A run on the default data, and a sweep."""

from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import jaxtyping
import pytest

from headscope.cli.main import run
from training_runs import once

# A training of a few seconds: on a few hundred texts, in one pass, by a small model.
QUICK = ["trainer.max_epochs=1", "trainer.epoch_steps=1", "trainer.accelerator=cpu"]
QUICK += ["model.d_model=32", "model.feedforward_size=32", "inspection.ablation_texts=24"]


def on_the_default_data(folder: Path) -> Path:
    """Train by a command line, and return the run folder."""
    output = StringIO()
    jaxtyping.config.update("jaxtyping_disable", True)
    with redirect_stdout(output):
        run("train", ["data.limit=300", f"outputs_dir={folder}", "name=first", *QUICK])
    jaxtyping.config.update("jaxtyping_disable", False)
    assert f"tensorboard --logdir {folder}" in output.getvalue().splitlines()[-1]
    return folder / "first"


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run on the default data, trained once for all workers."""
    return once(tmp_path_factory, "default", on_the_default_data)


@pytest.fixture
def sweep(tmp_path: Path) -> list[str]:
    """Return the words of a sweep named sweep, on 240 texts of three classes that nothing tells apart."""
    names = [chr(97 + number % 26) + chr(97 + number // 26) for number in range(240)]
    rows = [f"the {name} soup was had,{number % 3}" for number, name in enumerate(names)]
    path = tmp_path / "soups.csv"
    path.write_text("\n".join(["text,label", *rows]))
    place = ["data=files", f"data.path={path}", f"outputs_dir={tmp_path}", "name=sweep"]
    return [*place, *QUICK, "inspection=off", "baseline=false"]
