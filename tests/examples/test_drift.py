"""examples/drift.py names what has changed between two files that predict wrote, and nothing else."""

from collections.abc import Callable
from pathlib import Path

import pytest

from headscope.cli.predict import predict
from headscope.runs.folder import load_model, save_model
from headscope.runs.run import load_run
from headscope.settings.checks import override
from headscope.settings.commands import PredictConfig
from headscope.settings.config import DataConfig
from training_runs import reviews, write
from untrained import untrained

pytestmark = pytest.mark.usefixtures("unchecked_shapes")


@pytest.fixture
def predicted(tmp_path: Path) -> Callable[[str, list[str]], str]:
    """Return a function that writes what a run predicts of texts, and returns the file's path."""
    known = [str(row["text"]) for row in reviews(120)]
    folder = untrained(tmp_path / "run", known, DataConfig(max_length=24))
    setup, model, chosen = load_model(folder)
    save_model(folder, setup, model, override(chosen, {"most_unknown": 0.3}))

    def label(name: str, texts: list[str]) -> str:
        source = write(tmp_path / f"{name}.texts.csv", [{"text": text} for text in texts])
        output = str(tmp_path / f"{name}.csv")
        predict(PredictConfig(str(folder), source, output, accelerator="cpu", min_confidence=0))
        return output

    return label


def test_a_new_word_a_class_and_unfamiliar_texts_are_found(
    predicted: Callable[[str, list[str]], str], recipe: Callable[..., str], tmp_path: Path
) -> None:
    texts = [str(row["text"]) for row in reviews(400)]
    # Of the new ones a fifth is in another script, a fifth names a product.
    new = [*("日本語です" if at % 5 == 0 else texts[at] for at in range(200, 400))]
    new = [f"{text}, NAGOYA" if at % 5 == 1 else text for at, text in enumerate(new)]
    old_path, new_path = predicted("old", texts[:200]), predicted("new", new)
    lines = recipe("drift.py", old_path, new_path).splitlines()
    assert {lines[at].split()[-4] for at in (2, 3, 4)} == {"unfamiliar", "日本語です", "nagoya"}
    found = {" ".join(line.split()[:-3]): [*map(float, line.split()[-3:])] for line in lines[2:]}
    assert found["word nagoya"] == [0, 0.2, 0]
    predictions = load_run(tmp_path / "run").predict(new)
    odd = sum(each.is_unfamiliar for each in predictions) / 200
    assert found["unfamiliar"] == [0, odd, 0]
    assert odd >= 0.2
    labels = [each.label for each in predictions]
    for label in {*labels}:  # also where it abstains
        assert found[f"class {label}"][1] == pytest.approx(labels.count(label) / 200)


def test_texts_of_one_kind_have_not_changed(
    predicted: Callable[[str, list[str]], str], recipe: Callable[..., str]
) -> None:
    texts = [str(row["text"]) for row in reviews(400)]
    printed = recipe("drift.py", predicted("old", texts[:200]), predicted("new", texts[200:]))
    lines = printed.splitlines()[2:]
    assert {line.split()[0] for line in lines} <= {"class", "unfamiliar"}
    assert all(float(line.split()[-1]) > 0.05 for line in lines)
