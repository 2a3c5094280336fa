"""What evaluate refuses, what it shows, and under which name it keeps scores."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from headscope.commands.evaluate import data_of, evaluate
from headscope.config import DataConfig, EvaluateConfig, TrainConfig
from headscope.errors import ConfigError, RunError
from headscope.training.folder import load_run
from headscope.training.run import train
from training_runs import Trained, write


def score(folder: Path, data: DataConfig | None = None) -> tuple[object, str]:
    output = io.StringIO()
    return evaluate(EvaluateConfig(str(folder), accelerator="cpu", data=data), Console(file=output)), output.getvalue()


def test_scores_are_those_of_training_and_an_old_run_has_a_temperature_of_1(mistaken: Trained, tmp_path: Path) -> None:
    folder = mistaken.copy(tmp_path)
    kept, metrics = folder / "evaluations/reviews-test.json", json.loads((folder / "metrics.json").read_text())
    assert score(folder)[0] == mistaken.report.test
    expected = {name: metrics["calibration"][name] for name in ("temperature", "test")}
    assert json.loads(kept.read_text())["calibration"] == expected
    (folder / "calibration.json").unlink()
    found, shown = score(folder)
    assert found == mistaken.report.test
    assert "at temperature 1.000" in shown
    without = json.loads(kept.read_text())["calibration"]
    assert without["temperature"] == 1
    assert without["test"]["loss"]["before"] == without["test"]["loss"]["after"] == mistaken.report.test.loss


def test_own_data_with_other_labels_are_refused(plain: Trained, tmp_path: Path) -> None:
    folder = plain.copy(tmp_path)
    source = Path(load_run(folder).config.data.path)
    source.write_text(source.read_text().replace(",bad", ",unfavourable"))
    with pytest.raises(RunError, match=r"was trained on the labels bad, good, and .*reviews\.csv now has good, unf"):
        score(folder)
    with pytest.raises(RunError, match="give it the data that it had"):
        data_of(load_run(folder))
    assert not (folder / "evaluations").exists()


def test_own_data_with_more_rows_are_refused_where_splits_are_cut_from_them(
    plain: Trained, small_config: Callable[..., TrainConfig], tmp_path: Path
) -> None:
    cut, config = plain.copy(tmp_path), small_config(max_steps=1)
    config.data.test_path = config.data.validation_path = write(
        tmp_path / "test.csv", [{"text": "why", "label": "good"}, {"text": "how", "label": "bad"}]
    )
    config.inspection.enabled = False
    given = train(config).folder
    for folder in (cut, given):
        with Path(load_run(folder).config.data.path).open("a") as file:
            file.writelines(f"{word} lovely,good\n{word} awful,bad\n" for word in ("red", "green", "blue"))
    with pytest.raises(RunError, match=r"has changed: its splits had train \d+, test \d+, validation \d+, and would"):
        score(cut)
    score(given)  # its test is a file of its own
    assert len(list((given / "evaluations").iterdir())) == 1


def test_pairs_and_single_texts_are_not_taken_for_each_other(plain: Trained, of_pairs: Trained, tmp_path: Path) -> None:
    path = write(tmp_path / "pairs.csv", [{"text": "why", "answer": "so", "label": "good"}])
    with pytest.raises(ConfigError, match="was trained on single texts; leave it out"):
        score(plain.folder, DataConfig(path=path, text_pair_column="answer"))
    with pytest.raises(ConfigError, match="was trained on pairs of texts; name the column with the second"):
        score(of_pairs.folder, DataConfig(path=path))


def test_scores_of_two_files_of_one_name_are_both_kept(plain: Trained, tmp_path: Path) -> None:
    folder = plain.copy(tmp_path)
    for month in ("jan", "feb", "jan"):
        (tmp_path / month).mkdir(exist_ok=True)
        rows = [{"text": "why", "label": "good"}, {"text": "how", "label": "bad"}]
        score(folder, DataConfig(path=write(tmp_path / month / "news.csv", rows)))
    found = [json.loads(path.read_text()) for path in (folder / "evaluations").iterdir()]
    assert sorted(Path(each["path"]).parent.name for each in found) == ["feb", "jan"]
    assert {each["step"] for each in found} == {plain.report.facts_of_training["kept step"]}
