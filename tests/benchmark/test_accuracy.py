"""The accuracy suite: every row on one split, chosen by validation alone, and nothing is run twice."""

import datetime
import io
import json
import random
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest
import torch
from datasets import Dataset
from headscope.commands.benchmark import benchmark
from rich.console import Console

from headscope.benchmark.accuracy import kept as kept_module
from headscope.benchmark.accuracy import one_run, plan, queue, suite
from headscope.benchmark.accuracy.choosing import best_of
from headscope.benchmark.accuracy.fast_text import lines
from headscope.benchmark.accuracy.kept import Kept, Record, code_of, fingerprint, key_of
from headscope.benchmark.accuracy.plan import Run, composed, planned
from headscope.benchmark.accuracy.queue import time_left
from headscope.benchmark.accuracy.result import Result
from headscope.benchmark.accuracy.rows import Row, chosen_rows
from headscope.benchmark.accuracy.tables import origins, percent
from headscope.benchmark.config import BenchmarkConfig
from headscope.benchmark.page import Table
from headscope.benchmark.process import Finished
from headscope.data.config import DataConfig
from headscope.data.corpus import Corpus, load_corpus
from headscope.errors import ConfigError
from headscope.settings import problems
from headscope.training.config import TrainConfig
from headscope.training.scoring import Scores

CPU = torch.device("cpu")
FILLER = ["the", "a", "film", "book", "day", "it", "was", "and", "very", "quite", "rather", "so", "in", "of", "with"]
TOLD_BY = {"good": ["lovely", "bright", "kind"], "bad": ["awful", "dark", "cruel"]}


def reviews(rows: int = 160) -> list[dict[str, str]]:
    """Return made-up reviews whose label is told by one word."""
    rng = random.Random(0)
    found = []
    for number in range(rows):
        label = ["bad", "good"][number % 2]
        words = [*rng.choices(FILLER, k=rng.randint(5, 15)), rng.choice(TOLD_BY[label])]
        found.append({"text": " ".join(rng.sample(words, len(words))), "label": label})
    return found


def write(path: Path, rows: Sequence[Mapping[str, str]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@dataclass
class Here:
    """Stands in for the processes: does in this one what they are asked for."""

    asked: list[dict[str, Any]] = field(default_factory=list)

    def __call__(self, arguments: Sequence[str], env: Mapping[str, str] | None = None) -> Finished:
        assert arguments[:2] == ["-m", "headscope.benchmark.accuracy.one_run"]
        assert int((env or {})["OMP_NUM_THREADS"]) >= 1
        self.asked.append(json.loads(arguments[2]))
        return Finished(2.0, 100.0, "a warning\n" + json.dumps(one_run.answer(self.asked[-1])) + "\n")


def config_in(folder: Path, **changes: Any) -> BenchmarkConfig:
    """Return a configuration whose trainings take about a second."""
    if not (folder / "reviews.jsonl").exists():
        write(folder / "reviews.jsonl", reviews())
    short = [
        "trainer.max_epochs=1",
        "tokenizer.vocab_size=300",
        "data.tokens_per_batch=512",
        f"data.cache_dir={folder}",
    ]
    usual = {"data_sets": [str(folder / "reviews.jsonl")], "seeds": 2, "kept": str(folder / "kept"), "train": short}
    return BenchmarkConfig(suite="accuracy", **(usual | changes))


def tables_of(config: BenchmarkConfig, told: list[str] | None = None) -> list[Table]:
    return suite.measure(config, CPU, (told if told is not None else []).append)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Here:
    """Let nothing start a process but for composing, and return what was asked for."""
    found = Here()
    monkeypatch.setattr(queue, "finished", found)
    return found


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BenchmarkConfig, Table, Here, list[str]]]:
    """The suite with every row that can be had here and one variant, run once for all tests."""
    folder, processes, told = tmp_path_factory.mktemp("accuracy"), Here(), []
    changes: dict[str, Any] = {"variants": {"smoothed": ["optimizer.label_smoothing=0.1"]}}
    if transformers_is_there():
        from bert_family import write_checkpoint

        (folder / "tiny-bert").mkdir()
        texts = [row["text"] for row in reviews()]
        changes["checkpoint"] = str(write_checkpoint(folder / "tiny-bert", "bert", texts))
    config = config_in(folder, **changes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queue, "finished", processes)
        patch.setattr(one_run, "EPOCHS", (25,))  # three of nine fits: each fills 800 MB with random numbers
        (table,) = tables_of(config, told)
    return config, table, processes, told


def transformers_is_there() -> bool:
    try:
        import transformers  # noqa: F401
    except ImportError:
        return False
    return True


def fasttext_is_there() -> bool:
    try:
        import fasttext  # noqa: F401
    except ImportError:
        return False
    return True


def rows_had() -> list[str]:
    had = {"tfidf": True, "fasttext": fasttext_is_there(), "scratch": True, "pretrained": transformers_is_there()}
    return [name for name, is_had in had.items() if is_had]


Measured = tuple[BenchmarkConfig, Table, Here, list[str]]


def test_every_row_is_scored_over_its_seeds(measured: Measured) -> None:
    config, table, _, _ = measured
    names = {
        "tfidf": "TF-IDF + logistic regression",
        "fasttext": "fastText",
        "scratch": "headscope, from scratch",
        "pretrained": "headscope, tiny-bert fine-tuned",
    }
    assert [row[0] for row in table.rows] == [*(names[name] for name in rows_had()), "headscope, smoothed"]
    assert [row[5] for row in table.rows] == ["1", *["2"] * len(rows_had())]
    for row in table.rows:
        assert len(row) == len(table.columns)
        scores = [cell.split(" ± ") for cell in row[1:5]]
        assert all(len(parts) == (1 if row[5] == "1" else 2) for parts in scores)
        assert all(0 <= float(parts[0]) <= 100 for parts in scores)
    counted = {row[0]: float(row[1].split()[0]) for row in table.rows}
    assert counted["TF-IDF + logistic regression"] > 80
    assert table.title == "reviews: 128 / 16 / 16 texts of train / validation / test, 2 classes"
    assert config.checkpoint is None or str(Path(config.checkpoint).parent) not in "".join(table.notes)


@pytest.mark.skipif(not fasttext_is_there(), reason="pip install -e .[benchmark]")
def test_fasttext_learns_and_other_seeds_take_what_the_first_one_chose(measured: Measured) -> None:
    _, table, processes, _ = measured
    row = next(row for row in table.rows if row[0] == "fastText")
    assert float(row[1].split()[0]) > 80
    assert row[9].endswith(("learning rate 0.1", "learning rate 0.5", "learning rate 1"))
    asked = [work for work in processes.asked if work["kind"] == "fasttext"]
    assert [(work["config"]["seed"], work["chosen"]) for work in asked] == [(0, None), (1, row[9])]


def test_all_rows_have_one_split_and_record_no_heads(measured: Measured) -> None:
    _, _, processes, _ = measured
    settings = [work["config"] for work in processes.asked]
    assert len({json.dumps(each["data"], sort_keys=True) for each in settings}) == 1
    assert {each["inspection"]["enabled"] for each in settings} == {each["baseline"] for each in settings} == {False}
    smoothed = [each for each in settings if each["optimizer"]["label_smoothing"]]
    assert [each["optimizer"]["label_smoothing"] for each in smoothed] == [0.1, 0.1]


def test_first_seeds_run_first_and_the_time_left_is_told(measured: Measured) -> None:
    _, _table, processes, told = measured
    seeds = [work["config"]["seed"] for work in processes.asked]
    assert seeds == sorted(seeds)
    runs = len(seeds)
    assert told[1].endswith(f"0 of {runs} runs done, time left not known yet")
    assert told[-1].endswith(f"{runs - 1} of {runs} runs done, less than a minute left")


def test_notes_say_what_was_done(measured: Measured) -> None:
    _, table, _, _ = measured
    notes = "\n".join(table.notes)
    assert "headscope, smoothed: optimizer.label_smoothing=0.1, trainer.max_epochs=1" in notes
    assert "TF-IDF + logistic regression: TF-IDF (words 1-2)" in notes
    assert "at commit" in notes
    assert ("fastText is not installed" in notes) != fasttext_is_there()


def test_a_second_call_runs_nothing_and_says_the_same(measured: Measured, here: Here) -> None:
    config, table, _, _ = measured
    (again,) = tables_of(config)
    assert again == table
    assert here.asked == []


def test_only_what_is_new_is_run(measured: Measured, here: Here) -> None:
    config, _, _, _ = measured
    tables_of(replace(config, rows=["tfidf"], variants={}, seeds=1))
    assert here.asked == []
    tables_of(replace(config, rows=["tfidf"], variants={"quick": ["optimizer.learning_rate=2e-3"]}, seeds=1))
    assert [work["config"]["optimizer"]["learning_rate"] for work in here.asked] == [2e-3]


def test_the_runs_lie_below_the_folder_without_their_checkpoints(measured: Measured) -> None:
    config, _, _, _ = measured
    folders = sorted(Path(config.kept, "runs").iterdir())
    assert [folder.name.rpartition("-")[0] for folder in folders if "scratch" in folder.name] == [
        "reviews-scratch-0",
        "reviews-scratch-1",
    ]
    for folder in folders:
        assert (folder / "model.safetensors").exists()
        assert not (folder / "checkpoints").exists()


def test_validation_is_scored_by_the_whole_network_that_was_kept(tmp_path: Path, here: Here) -> None:
    config = config_in(tmp_path, rows=["scratch"], seeds=1)
    tables_of(replace(config, train=[*config.train, "trainer.precision=32-true", "optimizer.learning_rate=1e-2"]))
    lines = Path(config.kept, "results.jsonl").read_text("utf-8").splitlines()
    (kept,) = [json.loads(line)["result"]["scores"]["validation"] for line in lines if line]
    (metrics,) = Path(config.kept, "runs").glob("reviews-scratch-*/metrics.json")
    training = json.loads(metrics.read_text("utf-8"))["training"]
    assert kept["macro_f1"] == pytest.approx(training["best validation macro-F1"])


def test_a_run_that_was_stopped_begins_anew(tmp_path: Path, here: Here) -> None:
    config = config_in(tmp_path, rows=["scratch"], seeds=1)
    (run,) = planned(config, chosen_rows(config)[0], CPU)
    half = tmp_path / "kept" / "runs" / f"reviews-scratch-0-{key_of(run)[:8]}"
    half.mkdir(parents=True)
    (half / "config.yaml").write_text("half")
    tables_of(config)
    assert (half / "metrics.json").exists()


def run_of(name: str = "scratch", seed: int = 0, **data: Any) -> Run:
    kind = name if name in ("tfidf", "fasttext") else "training"
    return Run("reviews", Row(name, name, kind), seed, TrainConfig(data=DataConfig(**data)))


def record_of(run: Run, wall: float = 60.0, choosing: float = 0.0) -> Record:
    scores = {"accuracy": 0.9, "macro_f1": 0.8}
    result = Result({"test": scores, "validation": scores}, 3.0, choosing, 10, "C = 1", "d", {}, 2)
    return Record(key_of(run), code_of(run.row.kind), run.data, run.row.name, run.seed, wall, "c", "d", "t", result)


def test_what_is_kept_is_found_by_what_was_run(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.add(record_of(run_of()))
    with (tmp_path / "results.jsonl").open("a") as file:
        file.write('\n{"key": "a line that was cut o')
    kept.add(record_of(run_of(seed=1)))
    again = Kept(tmp_path)
    assert again.find(run_of()) == record_of(run_of())
    assert again.find(run_of(seed=1)) == record_of(run_of(seed=1))
    assert again.find(run_of(seed=2)) is None
    assert again.find(run_of(limit=7)) is None
    assert again.find(run_of("tfidf")) is None


def test_other_code_makes_a_result_of_no_use_unless_any_will_do(tmp_path: Path) -> None:
    Kept(tmp_path).add(replace(record_of(run_of()), code="other"))
    assert Kept(tmp_path).find(run_of()) is None
    found = Kept(tmp_path, same_code=False).find(run_of())
    assert found is not None
    assert found.code == "other"


def test_counting_words_does_not_depend_on_the_network() -> None:
    for name, is_same in (("tfidf", True), ("fasttext", True), ("scratch", False)):
        keys = {key_of(run_of(name, max_length=length)) for length in (32, 64)}
        assert (len(keys) == 1) == is_same
    assert code_of("tfidf") != code_of("training")


@pytest.mark.parametrize(
    ("file", "kinds"),
    [
        ("benchmark/accuracy/one_run.py", {"tfidf", "fasttext", "training"}),
        ("data/splits.py", {"tfidf", "fasttext", "training"}),
        ("benchmark/accuracy/fast_text.py", {"fasttext"}),
        ("attention/heads.py", {"training"}),
        ("tensorboard/text.py", set()),
    ],
)
def test_code_that_changed_is_other_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, kinds: set[str]
) -> None:
    names = ("tfidf", "fasttext", "training")
    shutil.copytree(kept_module.SOURCE, tmp_path / "source")
    monkeypatch.setattr(kept_module, "SOURCE", tmp_path / "source")
    code_of.cache_clear()
    before = {name: code_of(name) for name in names}
    with (tmp_path / "source" / file).open("a") as source:
        source.write("# changed\n")
    code_of.cache_clear()
    assert {name for name in names if code_of(name) != before[name]} == kinds
    code_of.cache_clear()


def test_how_a_kept_result_was_measured_is_told_whatever_is_asked_today() -> None:
    alone, beside = record_of(run_of()), replace(record_of(run_of(seed=1)), jobs=4, threads=2)
    told = origins({run_of(): alone, run_of(seed=1): beside})
    assert told == (
        "Runs: 1 at commit c on d, t; 1 at commit c on d, t, threads 2, 4 runs at a time, which slow each other down."
    )


def test_texts_with_any_number_of_labels_are_refused() -> None:
    config = BenchmarkConfig(suite="accuracy", data_sets=["go_emotions"], rows=["tfidf"])
    with pytest.raises(ConfigError, match=r"go_emotions has data\.multi_label; takes sets of one label a text"):
        planned(config, chosen_rows(config)[0], torch.device("cpu"))


def test_data_are_known_by_what_is_in_them(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "train.jsonl", reviews(4))
    write(tmp_path / "other.jsonl", reviews(5))
    one, same, other = (fingerprint(str(tmp_path / name)) for name in ("a", "b", "other.jsonl"))
    assert one == same != other
    assert fingerprint("licenses") == "licenses"
    assert fingerprint("some/hub-id") == "some/hub-id"


class Fixed:
    """A classifier whose validation accuracy is given, and which notes what it scores."""

    parameters, name = 1, "fixed"

    def __init__(self, accuracy: float, scored: list[tuple[float, int]]) -> None:
        self.accuracy, self.scored = accuracy, scored

    def scores(self, split: Dataset) -> Scores:
        self.scored.append((self.accuracy, len(split)))
        accuracy = self.accuracy / (2 if len(split) == 3 else 1)  # on the test split
        return Scores(accuracy, 1 - accuracy, 0.0, 0.0, [])  # macro-F1 would choose otherwise


def test_test_is_scored_once_by_what_validation_chose(tmp_path: Path) -> None:
    corpus: Corpus = load_corpus(DataConfig(path=str(write(tmp_path / "reviews.jsonl", reviews(100)))))
    corpus.splits["test"] = corpus.splits["test"].select(range(3))
    scored: list[tuple[float, int]] = []
    candidates = {str(share): lambda share=share: Fixed(share, scored) for share in (0.5, 0.9, 0.9000001, 0.9000001)}
    found = best_of(candidates, None, corpus, 100.0)
    assert found.chosen == "0.9000001"
    assert [pair for pair in scored if pair[1] == 3] == [(0.9000001, 3)]
    assert found.scores["validation"]["accuracy"] == 0.9000001
    assert found.scores["test"]["accuracy"] == 0.9000001 / 2
    assert found.seconds > 100
    assert found.choosing_seconds > 0
    scored.clear()
    assert best_of(candidates, "0.5", corpus, 0.0).choosing_seconds == 0
    assert {share for share, _ in scored} == {0.5}


def test_texts_are_lines_of_words_or_of_characters() -> None:
    texts = ["Good,\nbad: __label__1 </s>", "好 吃！"]
    split = Dataset.from_dict({"text": texts, "label": [0, 1]})
    assert list(lines(split, by_characters=False)) == ["good , bad : label1 < / s >", "好 吃 ！"]
    assert list(lines(split, by_characters=True))[1] == "好 吃 ！"
    assert next(iter(lines(split, by_characters=True))).startswith("g o o d , b a d")


def test_a_missing_fasttext_is_left_out_with_a_note_or_refused_if_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fasttext", None)
    rows, notes = chosen_rows(BenchmarkConfig(suite="accuracy"))
    assert [row.name for row in rows] == ["tfidf", "scratch"]
    assert "fastText is not installed" in notes[0]
    with pytest.raises(ConfigError, match=r"^rows: fastText is not installed.*\.\[benchmark\].*rows=\[tfidf,scratch\]"):
        chosen_rows(BenchmarkConfig(suite="accuracy", rows=["fasttext"]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": ["tfidf", "svm"]}, "rows: got svm, takes a list of tfidf, fasttext, scratch, pretrained"),
        ({"rows": ["pretrained"]}, "checkpoint: is missing, for the row pretrained; give a folder or a Hub id"),
        ({"rows": []}, "rows: is empty, and there are no variants; takes at least one row"),
        ({"data_sets": []}, "data_sets: is empty; takes at least one"),
        ({"variants": {"a b": []}}, "variants: got the name 'a b', takes letters, digits, _ and -, and no row's name"),
        ({"page_name": "../x"}, "page_name: got '../x', takes the name of a file in docs/benchmarks, without its"),
        ({"jobs": 0}, "jobs: got 0, takes at least 1"),
    ],
)
def test_mistakes_are_named(changes: dict[str, Any], message: str) -> None:
    (found,) = problems(BenchmarkConfig(suite="accuracy", **changes))
    assert found.startswith(message)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": ["trainer.max_epoch=3"]}, "data_sets, train: trainer.max_epoch: unknown key; did you mean"),
        ({"train": ["trainer.max_epochs=0"]}, "data_sets, train: trainer.max_epochs: got 0, takes at least 1"),
        ({"data_sets": ["/nowhere.csv"]}, "data_sets, train: data.path: got '/nowhere.csv', takes a file"),
        ({"variants": {"x": ["model.dropout=2"]}}, "variants.x: model.dropout: got 2.0"),
        ({"variants": {"x": ["data.limit=9"]}}, "variants.x: changes data.limit; every row takes the same split"),
        ({"data_sets": ["a/b.csv", "b"]}, "data_sets: two have one name: b, b"),
    ],
)
def test_mistakes_in_overrides_are_named_before_anything_runs(
    changes: dict[str, Any], message: str, tmp_path: Path, here: Here
) -> None:
    with pytest.raises(ConfigError) as refusal:
        tables_of(config_in(tmp_path, rows=["scratch"], **changes))
    assert str(refusal.value).startswith(message)
    assert here.asked == []


def test_what_a_run_cannot_do_is_one_message_and_what_was_done_is_kept(tmp_path: Path, here: Here) -> None:
    rows = write(tmp_path / "broken.jsonl", [*reviews(60), {"text": "", "label": "good"}])
    config = config_in(tmp_path, rows=["tfidf"], seeds=1)
    with pytest.raises(ConfigError, match=r"^broken: TF-IDF \+ logistic regression, seed 0: .*broken\.jsonl"):
        tables_of(replace(config, data_sets=[*config.data_sets, str(rows)]))
    assert len(here.asked) == 2
    tables_of(config)
    assert len(here.asked) == 2


def test_several_data_sets_are_shown_beside_each_other_first(tmp_path: Path, here: Here) -> None:
    more = write(tmp_path / "more.jsonl", reviews(100))
    config = config_in(tmp_path, rows=["tfidf"], jobs=2)
    tables = tables_of(replace(config, data_sets=[*config.data_sets, str(more)]))
    assert [table.title.split(":")[0] for table in tables] == [
        "Validation, all data sets", "Test, all data sets", "reviews", "more",
    ]  # fmt: skip
    overview = tables[1]
    assert overview.columns == ("", "reviews", "more", "mean of data sets")
    each = [float(table.rows[0][1]) for table in tables[2:]]
    shown = [float(cell.split(" / ")[0]) for cell in overview.rows[0][1:]]
    assert shown == pytest.approx([*each, fmean(each)], abs=0.11)
    assert "2 runs at a time" in "\n".join(tables[-1].notes)


def test_a_run_is_a_process_of_its_own(tmp_path: Path) -> None:
    config = config_in(tmp_path, rows=["tfidf"])
    (table,) = tables_of(config)
    assert float(table.rows[0][1]) > 80
    assert table.rows[0][9].startswith("C = ")


def test_spread_is_that_of_a_sample() -> None:
    assert percent([0.5]) == "50.0"
    assert percent([0.4, 0.6, 0.8]) == f"60.0 ± {100 * stdev([0.4, 0.6, 0.8]):.1f}" == "60.0 ± 20.0"


def test_the_time_left_goes_by_runs_of_the_same_row_and_data() -> None:
    known = {run_of("fasttext"): record_of(run_of("fasttext"), wall=605.0, choosing=600.0)}
    assert time_left([run_of("fasttext", 1)] * 60, known, 1) == "about 8 min left"  # 605 - 600 + 3 s each
    assert time_left([run_of("scratch")] * 2, known, 2) == "about 10 min left"
    assert time_left([], known, 1) == "less than a minute left"
    assert time_left([run_of()], {}, 1) == "time left not known yet"


def test_settings_are_composed_as_train_composes_them() -> None:
    found = composed(["experiment=minilm", 'model.path="some/hub-id"', "data.limit=5"], "train")
    assert (found.model.path, found.trainer.max_epochs, found.data.limit) == ("some/hub-id", 3, 5)
    assert plan.split_settings(found)["limit"] == 5


def test_the_page_has_one_name_or_the_one_that_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        suite, "measure", lambda config, device, tell: [Table("reviews", ("", "x"), [("fastText", "9")])]
    )
    config = BenchmarkConfig(suite="accuracy", device="cpu", folder=str(tmp_path))
    today = str(datetime.datetime.now(datetime.UTC).date())
    benchmark(config, Console(file=io.StringIO()))
    text = (tmp_path / "accuracy.md").read_text(encoding="utf-8")
    assert text.startswith(f"# accuracy, cpu, {today}\n\n`python scripts/benchmark.py")
    assert all(part in text for part in ("torch 2.", "scikit-learn 1.", "commit ", "| fastText | 9 |"))
    benchmark(replace(config, page_name="smoothing", title="Label smoothing"), Console(file=io.StringIO()))
    assert (tmp_path / "smoothing.md").read_text(encoding="utf-8").startswith(f"# Label smoothing, {today}\n")
    benchmark(replace(config, page=False, page_name="none"), Console(file=io.StringIO()))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["accuracy.md", "smoothing.md"]
