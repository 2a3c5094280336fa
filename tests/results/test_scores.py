"""Scores, temperature, thresholds and baseline: against scikit-learn, grids, known factors and counts by hand."""

import json
import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset, DatasetDict, Features, List, Value
from scipy.special import log_softmax
from sklearn.metrics import (
    accuracy_score,
    confusion_matrix,
    f1_score,
    log_loss,
    multilabel_confusion_matrix,
    precision_recall_fscore_support,
)
from torch import Tensor

from headscope.data.batching import BatchLoader, EncodedTexts, TextBatches, TokenBudgetSampler
from headscope.ground.errors import UserWarningMessage
from headscope.model.architecture import architecture_from
from headscope.model.classifier import TextClassifier
from headscope.model.objective import ONE_CLASS, MultiLabel, Objective
from headscope.results.baseline import (
    CHARACTERS_1_3,
    STRENGTHS,
    WORDS_AND_CHARACTERS,
    Compared,
    above,
    baseline_scores,
    chosen,
    differences,
    fitted,
    is_without_spaces,
)
from headscope.results.console import what_would_help
from headscope.results.scores import (
    LARGEST,
    Scores,
    ValidationScores,
    best_thresholds,
    chosen_temperature,
    fitted_temperature,
    scores,
)
from headscope.runs.prediction import split_logits
from headscope.runs.run import load_run
from headscope.settings.config import DataConfig, ModelConfig, TrainConfig
from training_runs import Trained

# --- scores ---


@pytest.mark.parametrize("is_multi", [False, True])
def test_scores_are_those_of_scikit_learn(is_multi: bool) -> None:
    torch.manual_seed(0)
    logits = torch.randn(997, 5)
    labels = torch.randint(0, 5, (997,))
    shares = logits.double().softmax(1)
    given = logits.argmax(1)
    objective: Objective = ONE_CLASS
    if is_multi:
        labels = torch.randint(0, 2, (997, 5), dtype=torch.int8)
        thresholds = torch.tensor([0.5, 0.2, 0.9, 0.4, 0.6], dtype=torch.float64)
        objective = MultiLabel(thresholds)
        shares = logits.double().sigmoid()
        given = shares >= thresholds
    found = scores(logits, labels, objective)
    assert found.accuracy == pytest.approx(accuracy_score(labels, given))
    assert found.macro_f1 == pytest.approx(f1_score(labels, given, average="macro"))
    expected = np.array(precision_recall_fscore_support(labels, given))
    np.testing.assert_allclose(found.by_class, expected)
    if not is_multi:
        assert found.loss == pytest.approx(log_loss(labels, shares), abs=1e-5)
        assert found.confusion == confusion_matrix(labels, given).tolist()
        assert "micro_f1" not in found.values()
        return
    losses = [log_loss(*column) for column in zip(labels.T.double(), shares.T, strict=True)]
    assert found.loss == pytest.approx(np.mean(losses), abs=1e-5)
    assert found.micro_f1 == pytest.approx(f1_score(labels, given, average="micro"))
    assert found.confusion == multilabel_confusion_matrix(labels, given).tolist()
    assert list(found.tables([*"abcde"]).items())[3] == (
        "confusion/d",
        (["not d", "d"], found.confusion[3]),
    )


def test_calibration_error_counted_by_hand() -> None:
    # 10 texts at confidence 0.9, of which 6 are right; 10 at 0.7, of which 7 are: (0.3 * 10 + 0 * 10) / 20.
    probabilities = torch.tensor([[0.9, 0.1]] * 10 + [[0.7, 0.3]] * 10)
    labels = torch.tensor([0] * 6 + [1] * 4 + [0] * 7 + [1] * 3)
    assert scores(probabilities.log(), labels).calibration_error == pytest.approx(0.15, abs=1e-6)


def test_logits_come_in_the_splits_own_order_and_padding_does_not_matter() -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(2, 30, 43)
    ids = rng.integers(1, 17, lengths.sum()).astype(np.int32)
    texts = EncodedTexts(ids, np.concatenate([[0], np.cumsum(lengths)]), None, 0)
    sizes = {"d_model": 6, "num_heads": 3, "num_layers": 1, "feedforward_size": 5}
    model = TextClassifier(
        architecture_from(ModelConfig(**sizes, evidence=False), 17, 30), 3
    ).eval()
    labels = rng.integers(0, 3, 43)
    loader = BatchLoader(TextBatches(texts, labels), TokenBudgetSampler(lengths, 64, seed=5))
    logits, targets = split_logits(model, loader, torch.device("cpu"))
    assert len(loader) > 5
    assert targets.tolist() == labels.tolist()
    for row, alone in enumerate(np.split(ids, texts.starts[1:-1])):
        torch.testing.assert_close(logits[row], model(torch.tensor(alone[None]).long())[0])


def test_classes_that_no_text_has_or_is_given_are_left_out_of_macro_f1() -> None:
    labels = torch.tensor([[1, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0]])
    given = torch.tensor([[1, 0, 0, 0], [0, 0, 0, 1], [0, 1, 0, 0]])
    found = scores((given * 2 - 1).double(), labels, MultiLabel()).macro_f1
    assert found == pytest.approx(f1_score(labels, given, average="macro", zero_division=np.nan))
    assert found == pytest.approx((2 / 3 + 1 + 0) / 3)
    assert (
        scores(-torch.ones(3, 4), torch.zeros(3, 4, dtype=torch.int8), MultiLabel()).macro_f1 == 0
    )


# --- temperature ---


def calibrated_logits(texts: int, classes: int = 4, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return logits, and labels drawn by the probabilities that they stand for: a calibrated model."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(texts, classes, generator=generator, dtype=torch.float64)
    return logits, torch.multinomial(logits.softmax(dim=-1), 1, generator=generator)[:, 0]


def losses_of(logits: Tensor, labels: Tensor, temperatures: np.ndarray) -> np.ndarray:
    found = log_softmax(logits.numpy() / temperatures[:, None, None], axis=-1)
    return -found[:, range(len(labels)), labels].mean(axis=1)


@pytest.mark.parametrize("factor", [0.3, 1.0, 4.0])
def test_no_temperature_of_a_grid_is_better(factor: float) -> None:
    logits, labels = calibrated_logits(200)
    found = fitted_temperature(factor * logits, labels)
    temperatures = np.geomspace(1 / LARGEST, LARGEST, 4001)
    losses = losses_of(factor * logits, labels, temperatures)
    best = int(losses.argmin())
    assert temperatures[best - 1] < found < temperatures[best + 1]
    assert losses_of(factor * logits, labels, np.array([found]))[0] <= losses[best]


def test_a_temperature_stays_within_its_bounds() -> None:
    generator = torch.Generator().manual_seed(0)
    noise = 1000 * torch.randn(300, 3, generator=generator)
    labels = torch.randint(3, (300,), generator=generator)
    assert fitted_temperature(noise, labels) == pytest.approx(LARGEST, rel=1e-3)
    # Hardly sure at all, and right but for one text.
    almost = 1e-3 * torch.nn.functional.one_hot(labels, 3).float()
    almost[0] = -almost[0]
    assert 1 / LARGEST <= fitted_temperature(almost, labels) < 0.051


@pytest.mark.parametrize("scale", [0.0, 0.01, 100.0])
def test_it_is_1_where_the_texts_say_nothing(scale: float) -> None:
    labels = torch.arange(60) % 3
    logits = scale * torch.nn.functional.one_hot(labels, 3).float()  # all right, or at 0 all alike
    assert fitted_temperature(logits, labels) == 1.0


def test_training_keeps_a_temperature_and_shows_what_it_does(mistaken: Trained) -> None:
    report = mistaken.report
    metrics = json.loads((report.folder / "metrics.json").read_text())
    kept = metrics["calibration"]
    tempered = scores(report.logits.double() / kept["temperature"], report.targets)
    assert kept["temperature"] == report.temperature
    assert kept["validation"]["loss"]["after"] <= kept["validation"]["loss"]["before"]
    assert kept["test"] == {
        name: {"before": getattr(report.test, name), "after": getattr(tempered, name)}
        for name in ("calibration_error", "loss")
    }
    words = f"at temperature {report.temperature:.3f}"
    if report.temperature == 1:  # too few texts to tell that another helps
        words = "temperature: 1; no other lowers the loss of held-out validation texts"
    assert words in mistaken.screen
    assert load_run(report.folder).temperature == kept["temperature"]
    run = load_run(report.folder)
    _, texts, right = metrics["accuracy_by_confidence"][-1]
    assert right / texts == pytest.approx(report.validation.accuracy, abs=1e-6)
    assert run.chosen.most_unknown == metrics["most_unknown"]
    assert [
        each.is_unfamiliar for each in run.predict(["это другой язык", "これは日本語です"])
    ] == [True, True]


@pytest.mark.parametrize(("factor", "wanted"), [(1.0, False), (0.3, True), (3.0, True)])
def test_a_temperature_is_kept_where_it_helps_texts_that_did_not_choose_it(
    factor: float, wanted: bool
) -> None:
    chosen = []
    for seed in range(10):
        logits, labels = calibrated_logits(200, seed=seed)
        found = chosen_temperature(factor * logits, labels)
        assert found in (1, fitted_temperature(factor * logits, labels))
        chosen.append(found != 1)
    assert all(chosen) if wanted else sum(chosen) <= 5


# --- differences ---


def test_differences_have_the_interval_of_pairs() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(3, (400,), generator=generator)
    noise = torch.rand(2, 400, generator=generator)
    ours = torch.where(noise[0] < 0.2, (labels + 1) % 3, labels)
    theirs = torch.where(noise[1] < 0.3, (labels + 1) % 3, labels)
    classes = [ONE_CLASS.has(numbers, 3) for numbers in (ours, theirs, labels)]
    found = differences(*classes)
    pairs = ((ours == labels).double() - (theirs == labels).double()).numpy()
    error = pairs.std(ddof=1) / 20
    mean, low, high = found["accuracy"]
    assert mean == pytest.approx(pairs.mean())
    assert (low, high) == pytest.approx((mean - 1.96 * error, mean + 1.96 * error), abs=0.1 * error)
    macro = [f1_score(labels, numbers, average="macro") for numbers in (ours, theirs)]
    mean, low, high = found["macro_f1"]
    assert mean == pytest.approx(macro[0] - macro[1])
    assert low < mean < high
    signs = {"accuracy": (-0.012, -0.03, 0.0001), "macro_f1": (0.02, 0.0, 0.04)}
    compared = Compared("others", Scores(0.5, 0.5, 1.0, 0.1, []), classes[1], signs)
    assert above(compared.name, compared.differences).endswith(
        "accuracy −1.2 (95 % interval −3.0 to 0.0), macro-F1 +2.0 (95 % interval 0.0 to +4.0)"
    )
    assert differences(*classes) == found
    # A class that the other never learned has no column there.
    short = differences(classes[0], classes[1][:, :2], classes[2])
    assert short["accuracy"][0] >= found["accuracy"][0]


# --- thresholds ---


def labelled_logits(texts: int = 120, classes: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(0)
    labels = (
        torch.rand(texts, classes, generator=random) < torch.tensor([0.5, 0.3, 0.1, 0.03])
    ).to(torch.int8)
    logits = (
        torch.randn(texts, classes, generator=random)
        + 1.5 * labels
        - torch.tensor([0.0, 1.0, 4.0, 6.0])
    )
    return logits, labels


def test_no_threshold_has_a_higher_f1() -> None:
    logits, labels = labelled_logits()
    probabilities, found = logits.double().sigmoid().numpy(), best_thresholds(logits, labels)
    for number, threshold in enumerate(found.tolist()):
        column, truth = probabilities[:, number], labels[:, number].numpy().astype(bool)
        reached = f1_score(truth, column >= threshold)
        given = column >= column[:, None]  # [threshold, text]: at the probability of each text
        assert reached == pytest.approx(
            (2 * (given & truth).sum(axis=1) / (given.sum(axis=1) + truth.sum())).max()
        )
        # None lies so near that rounding would decide.
        assert np.abs(column - threshold).min() > 1e-9
        assert f1_score(truth, column >= 0.5, zero_division=0.0) <= reached


def test_a_class_that_no_text_has_keeps_a_half_and_one_that_all_have_is_given_to_all() -> None:
    logits = torch.tensor([[-3.0, -9.0, 1.0], [-2.0, -8.0, -1.0]])
    found = best_thresholds(logits, torch.tensor([[0, 1, 1], [0, 1, 0]]))
    assert found[0] == 0.5
    given = MultiLabel(found).predicted(logits.sigmoid())
    assert given.tolist() == [[False, True, True], [False, True, False]]


def test_validation_is_scored_at_its_own_best_thresholds_whatever_the_batches() -> None:
    logits, labels = labelled_logits()
    given = MultiLabel(best_thresholds(logits, labels)).predicted(logits.double().sigmoid())
    for size in (7, 120):
        metric = ValidationScores(MultiLabel())
        for rows in torch.arange(120).split(size):
            metric.update(logits[rows], labels[rows])
        assert metric.compute()["validation/accuracy"].item() == pytest.approx(
            accuracy_score(labels, given)
        )
        assert metric.compute()["validation/macro_f1"].item() == pytest.approx(
            f1_score(labels, given, average="macro")
        )
        metric.reset()
        assert metric.logits == []


# --- baseline ---

WORDS = ["lion", "bear", "wolf"]


def splits() -> DatasetDict:
    def table(rows: int) -> Dataset:
        texts = [f"the {WORDS[row % 3]} number {row % 7} of {row % 5}" for row in range(rows)]
        return Dataset.from_dict({"text": texts, "label": [row % 3 for row in range(rows)]})

    return DatasetDict({"train": table(60), "validation": table(30), "test": table(30)})


def of(texts: list[str], labels: list[int]) -> Compared:
    rows = Dataset.from_dict({"text": texts, "label": labels})
    found = baseline_scores(DatasetDict({"train": rows, "validation": rows, "test": rows}))
    assert found is not None
    return found


def test_words_that_tell_the_classes_apart_are_found_in_all_texts_or_a_sample(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for most, end in ((60, "regression"), (30, "regression on 30 of 60 training texts")):
        monkeypatch.setattr("headscope.results.baseline.MOST_TEXTS", most)
        found = baseline_scores(splits())
        assert found is not None
        assert found.scores.accuracy == 1
        assert re.fullmatch(rf"TF-IDF \(words 1-2.*\) \+ logistic {end}", found.name)
        assert sum(map(sum, found.scores.confusion)) == 30  # every test text is scored
    monkeypatch.setattr("headscope.results.baseline.MOST_WEIGHTS", 10)
    words = r"no baseline: 3 classes times \d+ terms are more than 10"
    with pytest.warns(UserWarningMessage, match=words):
        assert baseline_scores(splits()) is None


def test_terms_and_c_are_those_of_the_lowest_validation_loss() -> None:
    """Endings tell the classes of words that are in no training text, which words cannot."""
    stems = [
        f"{first}{second}{third}" for first in "bdgkm" for second in "aeiou" for third in "lnrst"
    ]

    def table(some: list[str]) -> Dataset:
        texts = [f"{stem}{ending}" for stem in some for ending in ("ology", "esque")]
        return Dataset.from_dict({"text": texts * 2, "label": [0, 1] * 2 * len(some)})

    parts = {
        "train": table(stems[:80]),
        "validation": table(stems[80:100]),
        "test": table(stems[100:]),
    }
    found = baseline_scores(DatasetDict(parts))
    assert found is not None
    assert found.scores.accuracy == 1
    assert "characters 2-4" in found.name
    best = chosen(parts["train"], parts["validation"])
    tried = {
        C: scores(*fitted(parts["train"], WORDS_AND_CHARACTERS, C).logits(parts["validation"])).loss
        for C in STRENGTHS
    }
    assert min(tried, key=lambda C: tried[C]) == best.pipeline[-1].C


def test_a_class_that_no_text_has_keeps_its_column() -> None:
    """A ClassLabel may have names that no text is of."""
    texts = [f"the {WORDS[row % 2]} of {row % 7}" for row in range(40)]
    found = of(texts, [row % 2 * 2 for row in range(40)]).scores
    assert (found.accuracy, found.confusion) == (1, [[20, 0, 0], [0, 0, 0], [0, 0, 20]])


def test_texts_without_spaces_between_words_are_read_by_characters() -> None:
    for texts in (
        ["吾輩は猫である", "我是一只狗"],
        ["新しい GNU の Emacs を 使う", "これは X の ゲームです"],
    ):
        rows = Dataset.from_dict({"text": texts * 10, "label": [0, 1] * 10})
        assert is_without_spaces(rows)
        assert "characters" in of(texts * 10, [0, 1] * 10).name


def test_of_any_number_of_labels_there_is_a_regression_for_each_class() -> None:
    def table(rows: int) -> Dataset:
        labels = [[row >> number & 1 for number in range(3)] + [0] for row in range(rows)]
        texts = [
            " ".join(["the", *(WORDS[number] for number in range(3) if has[number]), str(row % 5)])
            for row, has in enumerate(labels)
        ]
        features = Features({"text": Value("string"), "label": List(Value("int8"), length=4)})
        return Dataset.from_dict({"text": texts, "label": labels}, features)

    parts = {"train": table(96), "validation": table(32), "test": table(40)}
    compared = baseline_scores(DatasetDict(parts))
    assert compared is not None
    found = compared.scores
    assert (found.accuracy, found.macro_f1, found.micro_f1) == (1, 1, 1)
    assert np.array(found.confusion).sum() == 4 * 40


@pytest.mark.parametrize(
    "texts",
    [
        ["\U0001f600", "\U0001f622"],
        ["a", "b"],
        [f"unique{chr(97 + n)} wordone{chr(97 + n)}" for n in range(8)],
    ],
)
def test_texts_without_a_common_term_have_no_baseline(texts: list[str]) -> None:
    rows = Dataset.from_dict({"text": texts, "label": [n % 2 for n in range(len(texts))]})
    parts = DatasetDict({"train": rows, "validation": rows, "test": rows})
    with pytest.warns(UserWarningMessage, match="no baseline: no term is in two training texts"):
        assert baseline_scores(parts) is None


REVIEWS = DataConfig(path="my reviews.csv", text_column="review", max_length=256)


@pytest.mark.parametrize(
    ("high", "unread", "features", "said"),
    [
        (0.001, 0.5, None, ""),
        (-0.001, 0.0, "some/encoder", "more texts may help"),
        (-0.001, 0.0, None, "a pretrained encoder, more texts may help: headscope train -m sweep=choose data=files 'data.path=my reviews.csv' data.text_column=review"),
        (-0.001, 0.2, "some/encoder", "longer texts, more texts may help: headscope train -m sweep=choose data=files 'data.path=my reviews.csv' data.text_column=review data.max_length=auto,512"),
    ],
)  # fmt: skip
def test_where_tf_idf_is_better_by_more_than_its_interval_the_run_says_what_may_help(
    high: float, unread: float, features: str | None, said: str
) -> None:
    differences = {"accuracy": (-0.02, -0.04, high)}
    model = ModelConfig(features=features)
    results: Any = SimpleNamespace(
        compared={"baseline": SimpleNamespace(differences=differences)},
        config=TrainConfig(model=model, data=REVIEWS),
        facts_of_data={"share of tokens not read": unread, "sizes": {"train": 2_000}},
    )
    found = what_would_help(results)
    assert said in found
    assert bool(found) == bool(said)
    results.compared = {}
    assert what_would_help(results) == ""


def test_few_training_texts_are_told_the_command_that_is_likely_to_be_better() -> None:
    results: Any = SimpleNamespace(
        compared={},
        config=TrainConfig(data=REVIEWS),
        facts_of_data={"sizes": {"train": 1_999}},
    )
    command = "headscope train experiment=pretrained data=files 'data.path=my reviews.csv' data.te"
    assert f"1999 training texts are few; if they are English, a pretrained encoder is likely to be better: {command}" in what_would_help(results)  # fmt: skip
    results.compared = {"baseline": SimpleNamespace(name=f"TF-IDF of {CHARACTERS_1_3}")}
    assert "a pretrained encoder of their language may be better" in what_would_help(results)
