"""What evaluate refuses, what it shows, and under which name it keeps scores."""

import contextlib
import io
import json
import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from headscope.cli.abstaining import show_abstaining
from headscope.cli.evaluate import evaluate
from headscope.data.splits import text_keys
from headscope.ground.errors import ConfigError, DataError, RunError, UserWarningMessage
from headscope.runs.folder import load_model, save_model
from headscope.runs.run import load_run
from headscope.runs.texts import own_corpus
from headscope.settings.checks import override
from headscope.settings.commands import EvaluateConfig, OtherDataConfig
from headscope.settings.config import DataConfig
from training_runs import Trained, write
from untrained import LABELS, untrained

pytestmark = pytest.mark.usefixtures("unchecked_shapes")


def score(folder: Path, data: OtherDataConfig | None = None) -> tuple[object, str]:
    output = io.StringIO()
    return evaluate(
        EvaluateConfig(str(folder), accelerator="cpu", data=data), Console(file=output)
    ), output.getvalue()


def test_scores_are_those_of_training(mistaken: Trained, tmp_path: Path) -> None:
    folder = mistaken.copy(tmp_path)
    kept, metrics = (
        folder / "evaluations/reviews-test.json",
        json.loads((folder / "metrics.json").read_text()),
    )
    assert score(folder)[0] == mistaken.report.test
    assert json.loads(kept.read_text())["classes"] == metrics["test"]["classes"]
    expected = {name: metrics["calibration"][name] for name in ("temperature", "test")}
    assert json.loads(kept.read_text())["calibration"] == expected
    assert score(folder)[1].count(f"at temperature {expected['temperature']:.3f}") == 1


@pytest.mark.filterwarnings("ignore:.*the target is met without abstaining:UserWarning")
def test_what_abstaining_does_to_each_class_is_shown_and_kept(
    plain: Trained, tmp_path: Path
) -> None:
    folder = plain.copy(tmp_path)
    output = io.StringIO()
    config = EvaluateConfig(str(folder), accelerator="cpu", target_accuracy=0.6)
    with pytest.warns(UserWarningMessage, match="the target is met without abstaining"):
        evaluate(config, Console(file=output, width=200))
    shown = output.getvalue()
    validation = own_corpus(load_run(folder), ["validation"]).splits["validation"]
    assert f"target_accuracy, on {len(validation)} validation texts, which chose" in shown
    kept = json.loads((folder / "evaluations/reviews-test.json").read_text())
    classes = kept["abstaining"]["classes"]
    assert kept["abstaining"]["all"] == [
        sum(counts) for counts in zip(*classes.values(), strict=True)
    ]
    assert {name: counts[0] for name, counts in classes.items()} == {
        name: scores["texts"] for name, scores in kept["classes"].items()
    }
    texts, answered, predicted, right = classes["good"]
    assert f"{answered} of {texts}" in shown
    assert f"{right} of {predicted}" in shown


def test_coverage_and_precision_of_each_class_are_counted(tmp_path: Path) -> None:
    texts = ["the cat sat", "a long film", "a lovely book"]
    run = load_run(untrained(tmp_path / "run", texts, DataConfig(max_length=16)))
    logits = 9 * torch.eye(3)[[0, 0, 1, 2, 2]]
    labels = torch.tensor([0, 1, 1, 2, 2])
    output = io.StringIO()
    is_odd = np.arange(5) == 4
    found = show_abstaining(Console(file=output, width=200), run, 0.5, logits, labels, is_odd)
    assert found["all"] == [5, 4, 4, 3]  # texts, answered, predicted, right
    counts = [[1, 1, 2, 1], [2, 2, 1, 1], [2, 1, 1, 1]]
    assert found["classes"] == dict(zip(LABELS, counts, strict=True))
    assert "1 of 2" in output.getvalue()
    assert "0.013 to 0.987" in output.getvalue()  # Clopper and Pearson: 1 of 2


def test_scores_that_cannot_be_kept_are_shown_all_the_same(plain: Trained, tmp_path: Path) -> None:
    folder = plain.copy(tmp_path)
    (folder / "evaluations").touch()
    words = "these scores are not kept: .*(Not a directory|exists).*evaluations"
    with pytest.warns(UserWarningMessage, match=words):
        found, shown = score(folder)
    assert found == plain.report.test
    assert "macro-F1" in shown
    assert "kept in" not in shown


def test_a_run_finds_its_texts_from_any_folder(plain: Trained, tmp_path: Path) -> None:
    folder = plain.copy(tmp_path)
    setup, model, chosen = load_model(folder)
    path = Path(setup.config.data.path)
    setup = replace(setup, config=override(setup.config, {"data.path": path.name}))
    with contextlib.chdir(path.parent):
        save_model(folder, setup, model, chosen)
    assert load_run(folder).config.data.path == str(path)
    with contextlib.chdir("/"):
        assert score(folder)[0] == plain.report.test
        path.rename(path.with_name("moved.csv"))
        for use in (score, lambda folder: own_corpus(load_run(folder))):
            with pytest.raises(
                DataError,
                match=rf"reviews\.csv: is gone, .*: headscope train resume={folder} data\.path=",
            ):
                use(folder)


def test_own_data_that_have_changed_are_refused(plain: Trained, tmp_path: Path) -> None:
    folder = plain.copy(tmp_path)
    source = Path(load_run(folder).config.data.path)
    rows = source.read_text()
    more = "".join(f"{word} lovely,good\n{word} awful,bad\n" for word in ("red", "green"))
    for changed, words in (
        (rows + more, r"test \(rows, texts, labels\); it may have learned these texts"),
        (rows.replace(",bad", ",unfavourable"), "bad, good, and its data now have good, unf"),
    ):
        source.write_text(changed)
        with pytest.raises(RunError, match=words):
            score(folder)
    with pytest.raises(RunError, match="give it the data that it had"):
        own_corpus(load_run(folder))
    assert not (folder / "evaluations").exists()


def test_other_data_have_the_columns_of_the_runs_own_unless_told_otherwise(
    of_pairs: Trained, tmp_path: Path
) -> None:
    folder = of_pairs.copy(tmp_path)
    # As if trained with data.text_column=question data.label_column=same.
    setup, model, chosen = load_model(folder)
    columns = {"data.text_column": "question", "data.label_column": "same"}
    setup = replace(setup, config=override(setup.config, columns))
    save_model(folder, setup, model, chosen)
    path = write(
        tmp_path / "new.csv",
        [{"question": "a cat", "other": "my cat", "same": "True", "text": "", "label": ""}],
    )
    assert "new.csv, 1 texts" in score(folder, OtherDataConfig(path=path))[1]
    asked = write(tmp_path / "asked.csv", [{"asked": "a cat", "answer": "my cat", "is": "True"}])
    told = OtherDataConfig(
        path=asked, text_column="asked", text_pair_column="answer", label_column="is"
    )
    assert "asked.csv, 1 texts" in score(folder, told)[1]
    with pytest.raises(
        DataError, match=r"no column 'question' for data\.text_column; it has asked, answer, is"
    ):
        score(folder, OtherDataConfig(path=asked))
    with pytest.raises(
        ConfigError, match=r"data\.label_column: expected another column than data\.text_column"
    ):
        score(folder, OtherDataConfig(path=path, text_column="same"))


def test_a_run_is_compared_with_another_on_the_same_texts(plain: Trained, tmp_path: Path) -> None:
    folder = plain.copy(tmp_path)
    truth = ["good", "bad"] * 4
    rows = [
        {"text": "a lovely day" if label == "good" else "a sad day", "label": label}
        for label in truth
    ]
    data = OtherDataConfig(path=write(tmp_path / "new.csv", rows))
    answers = ["good"] * 7 + [""]
    other = [{**row, "prediction": answer} for row, answer in zip(rows, answers, strict=True)]
    mine = write(tmp_path / "mine.csv", other)

    def against(path: str) -> str:
        output = io.StringIO()
        config = EvaluateConfig(str(folder), against=path, accelerator="cpu", data=data)
        evaluate(config, Console(file=output, width=100))
        return output.getvalue()

    shown = against(mine)
    kept = json.loads((folder / "evaluations/new.json").read_text())
    assert (kept["accuracy"], kept["against"]["accuracy"]) == (1.0, 0.5)
    mean, low, high = kept["against"]["differences"]["accuracy"]
    assert mean == 0.5
    assert low < 0.5 < high
    assert kept["against"]["only this run is right"] == 4
    assert f"only this run is right: 4 texts; only {mine}: 0" in shown
    assert f"{data.path}, 8 texts" in shown
    against(str(folder))  # the scores against another one stay
    kept = json.loads((folder / "evaluations/new_2.json").read_text())
    score = 1.959964**2
    width = score / (8 + score)
    assert kept["against"]["differences"] == {"accuracy": pytest.approx([0, -width, width])}
    for wrong, message in (
        (other[:2], "expected a row for each of 8 texts, got 2"),
        ([{"text": "a"}], "expected a column 'prediction', got text"),
        (other[::-1], "row 0: has another text: a sad day"),
    ):
        with pytest.raises(DataError, match=message):
            against(write(tmp_path / "wrong.csv", wrong))
    gap = [*other[:7], {"text": other[7]["text"]}]  # a row without the column abstains
    shown = against(write(tmp_path / "gap.jsonl", gap))
    assert "only this run is right: 4 texts" in shown
    assert "of its texts have no prediction; these count as wrong" in shown


def test_scores_of_two_files_of_one_name_are_both_kept(plain: Trained, tmp_path: Path) -> None:
    folder = plain.copy(tmp_path)
    (folder / "evaluations").mkdir(exist_ok=True)
    (folder / "evaluations/news.json").write_text("{")  # a damaged file is left as it is
    for month in ("jan", "feb", "jan"):
        (tmp_path / month).mkdir(exist_ok=True)
        rows = [{"text": "why", "label": "good"}, {"text": "how", "label": "bad"}]
        score(folder, OtherDataConfig(path=write(tmp_path / month / "news.csv", rows)))
    kept = [path.read_text() for path in (folder / "evaluations").iterdir()]
    found = [json.loads(text) for text in kept if text != "{"]
    assert sorted(Path(each["path"]).parent.name for each in found) == ["feb", "jan"]
    assert {each["step"] for each in found} == {plain.report.facts_of_training["best_step"]}


def test_texts_that_a_run_has_learned_are_counted_and_left_out_beside(
    plain: Trained, tmp_path: Path
) -> None:
    folder = plain.copy(tmp_path)
    train = own_corpus(load_run(folder)).splits["train"]
    texts = [*train["text"]][:6]
    learned = [{"text": f"  {text.upper()}", "label": "good"} for text in texts]
    new = [{"text": f"{word} and lovely", "label": "good"} for word in ("red", "green", "blue")]
    data = OtherDataConfig(path=write(tmp_path / "learned.csv", learned))
    _, shown = score(folder, data)
    assert f"6 of 6 texts are in what {folder} was trained or chosen on" in " ".join(shown.split())
    kept = json.loads((folder / "evaluations/learned.json").read_text())
    assert kept["learned"] == {"texts": 6, "without": None}
    data = OtherDataConfig(path=write(tmp_path / "mixed.csv", learned + new))
    _, shown = score(folder, data)
    kept = json.loads((folder / "evaluations/mixed.json").read_text())
    assert kept["learned"]["texts"] == 6
    assert kept["learned"]["without"]["accuracy"] == 1.0
    assert "without them, on 3 texts: accuracy 1.0000" in " ".join(shown.split())
    score(folder)  # the test texts that it was cut from
    assert json.loads((folder / "evaluations/reviews-test.json").read_text())["learned"] is None
    config = EvaluateConfig(str(folder), "validation", "cpu", against=str(folder))
    with pytest.warns(UserWarningMessage, match="trained or chosen on"):
        evaluate(config, Console(file=io.StringIO()))
    kept = json.loads((folder / "evaluations/reviews-validation.json").read_text())
    assert kept["learned"] is None
    assert "without learned texts" not in kept["against"]


def test_texts_that_either_run_has_learned_are_left_out_of_a_comparison(
    plain: Trained, tmp_path: Path
) -> None:
    folder = plain.copy(tmp_path)
    other = plain.copy(tmp_path / "other")
    setup, model, chosen = load_model(other)
    texts = ["a sad day", "a lovely day", "a cold day"]
    keys = torch.from_numpy(np.unique(text_keys([(text,) for text in texts[:2]])[:, 0]))
    save_model(other, replace(setup, learned=keys), model, chosen)
    data = OtherDataConfig(
        path=write(tmp_path / "new.csv", [{"text": text, "label": "bad"} for text in texts])
    )
    config = EvaluateConfig(str(folder), against=str(other), accelerator="cpu", data=data)
    with pytest.warns(UserWarningMessage, match=r"2 of 3 texts are in what .*other"):
        evaluate(config, Console(file=io.StringIO()))
    kept = json.loads((folder / "evaluations/new.json").read_text())
    assert kept["learned"] is None
    assert kept["against"]["without learned texts"]["accuracy"] in (0, 1)


def test_runs_and_files_are_compared_by_the_names_of_their_classes(
    plain: Trained, tmp_path: Path
) -> None:
    folder = plain.copy(tmp_path)
    setup, model, chosen = load_model(folder)
    texts = ["a lovely day", "a sad day", "a lovely cat", "a sad cat", "awful", "lovely"]
    rows = [{"text": text, "label": "good" if "lovely" in text else "bad"} for text in texts]
    data = OtherDataConfig(path=write(tmp_path / "new.csv", rows))

    def against(path: Path, message: str | None = None) -> dict[str, object]:
        config = EvaluateConfig(str(folder), against=str(path), accelerator="cpu", data=data)
        expected = nullcontext() if message is None else pytest.warns(match=message)
        with expected:
            evaluate(config, Console(file=io.StringIO()))
        (kept,) = (folder / "evaluations").glob("*.json")
        found: dict[str, object] = json.loads(kept.read_text())["against"]
        kept.unlink()
        return found

    # The same network, its classes in the other order.
    head = model.state_dict()
    last = [name for name, weight in head.items() if weight.shape[:1] == (2,)][-2:]
    turned = {name: head[name].flip(0) if name in last else head[name] for name in head}
    assert setup.labels == ["bad", "good"]
    model.load_state_dict(turned)
    other = tmp_path / "turned"
    shutil.copytree(folder, other)
    save_model(other, replace(setup, labels=["good", "bad"]), model, chosen)
    assert against(other)["differences"]["accuracy"][0] == 0  # type: ignore[index]
    save_model(other, replace(setup, labels=["fine", "bad"]), model, chosen)
    found = against(other, "it has other classes, good missing, fine besides; texts of these count")
    assert found["only the other is right"] == 0
    path = tmp_path / "answers.csv"
    answers = [{**row, "prediction": row["label"] if at else "fine"} for at, row in enumerate(rows)]
    write(path, answers)
    assert against(path, "fine are no classes of")["accuracy"] == pytest.approx(5 / 6)
    write(path, [{"prediction": row["label"]} for row in rows])
    found = against(path, "has no column 'text', so its rows are taken in their order")
    assert found["accuracy"] == 1
