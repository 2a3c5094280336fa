"""What evaluate refuses, and under which name it keeps scores."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from headscope.commands.config import EvaluateConfig
from headscope.commands.evaluate import evaluate
from headscope.data.config import DataConfig
from headscope.errors import ConfigError, RunError
from headscope.training.config import TrainConfig
from headscope.training.folder import load_run
from headscope.training.run import train
from headscope.training.run_data import data_of


def score(folder: Path, data: DataConfig | None = None) -> None:
    evaluate(EvaluateConfig(str(folder), accelerator="cpu", data=data), Console(file=io.StringIO()))


def test_own_data_with_other_labels_are_refused(small_config: Callable[..., TrainConfig]) -> None:
    config = small_config(max_epochs=1)
    folder, source = train(config).folder, Path(config.data.path)
    source.write_text(source.read_text().replace(",bad", ",unfavourable"))
    with pytest.raises(RunError, match=r"was trained on the labels bad, good, and .*reviews\.csv now has good, unf"):
        score(folder)
    with pytest.raises(RunError, match="give it the data that it had"):
        data_of(load_run(folder))
    assert not (folder / "evaluations").exists()


def test_own_data_with_more_rows_are_refused_where_splits_are_cut_from_them(
    small_config: Callable[..., TrainConfig], tmp_path: Path
) -> None:
    config = small_config(max_epochs=1)
    source = Path(config.data.path)
    (tmp_path / "test.csv").write_text("text,label\nwhy,good\nhow,bad\n")
    cut = train(config).folder
    config.name, config.data.test_path, config.data.validation_path = "given", *[str(tmp_path / "test.csv")] * 2
    given = train(config).folder
    score(cut)
    with source.open("a") as file:
        file.writelines(f"{word} lovely,good\n{word} awful,bad\n" for word in ("red", "green", "blue"))
    with pytest.raises(RunError, match=r"has changed: its splits had train \d+, test \d+, validation \d+, and would"):
        score(cut)
    score(given)  # its test is a file of its own
    assert len(list((given / "evaluations").iterdir())) == 1


def test_pairs_and_single_texts_are_not_taken_for_each_other(
    small_config: Callable[..., TrainConfig], tmp_path: Path
) -> None:
    other = tmp_path / "pairs.csv"
    other.write_text("text,answer,label\nwhy,so,good\nhow,thus,bad\n")
    with pytest.raises(ConfigError, match="was trained on single texts; leave it out"):
        score(train(small_config(max_epochs=1)).folder, DataConfig(path=str(other), text_pair_column="answer"))
    config = small_config("pairs", max_epochs=1)
    lines = Path(config.data.path).read_text().splitlines()
    (tmp_path / "both.csv").write_text(
        "\n".join([f"{lines[0]},answer", *(f"{line},a{n}" for n, line in enumerate(lines[1:]))])
    )
    config.data.path, config.data.text_pair_column = str(tmp_path / "both.csv"), "answer"
    with pytest.raises(ConfigError, match="was trained on pairs of texts; name the column with the second"):
        score(train(config).folder, DataConfig(path=str(other)))


def test_scores_of_two_files_of_one_name_are_both_kept(
    small_config: Callable[..., TrainConfig], tmp_path: Path
) -> None:
    report = train(small_config(max_epochs=1))
    for month in ("jan", "feb", "jan"):
        path = tmp_path / month / "news.csv"
        path.parent.mkdir(exist_ok=True)
        path.write_text("text,label\nwhy,good\nhow,bad\n")
        score(report.folder, DataConfig(path=str(path)))
    found = [json.loads(path.read_text()) for path in (report.folder / "evaluations").iterdir()]
    assert sorted(Path(each["path"]).parent.name for each in found) == ["feb", "jan"]
    assert {each["step"] for each in found} == {report.facts_of_training["kept step"]}
