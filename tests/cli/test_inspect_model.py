"""`headscope inspect model=...`: what it refuses, and what a user gets of a classifier that headscope did not train."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers

from foreign_classifiers import classifier, made_up
from headscope.cli.inspect_model import labelled, load_classifier
from headscope.ground.errors import ConfigError
from headscope.heads.integrations.sequence_classifier import SequenceClassifier
from headscope.settings.commands import InspectConfig, OtherDataConfig


def saved(folder: Path, model: Any = None, **options: Any) -> Path:
    made, tokenizer = classifier(**options)
    (model or made).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def refusal(path: Path | str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_classifier(str(path), 128)
    return str(caught.value)


def test_a_folder_that_holds_no_trained_classifier_is_rejected(tmp_path: Path) -> None:
    none = "model: expected a Hub id or a folder written by save_pretrained, got"
    assert refusal(tmp_path / "none") == f"{none} {tmp_path}/none, which does not exist"
    assert "expected model.safetensors, found none" in refusal(tmp_path)
    base, _ = classifier()
    folder = saved(tmp_path / "base", base.bert)
    random = "it was not fine-tuned: classifier.bias, classifier.weight would be random"
    assert random in refusal(folder)
    one = saved(tmp_path / "one", num_labels=1, id2label={0: "score"})
    assert "expected two classes or more" in refusal(one)


def test_no_code_of_a_model_is_run(tmp_path: Path) -> None:
    """Pickles and Hub ids: see tests/model/test_pretrained.py, whose function finds this one's files."""
    own = saved(tmp_path / "own")
    config = (own / "config.json").read_text(encoding="utf-8")
    code = '"model_type": "mine", "auto_map": {"AutoConfig": "mine.Mine", "AutoModelForSequenceClassification": "mine.Mine"}'
    (own / "config.json").write_text(config.replace('"model_type": "bert"', code), encoding="utf-8")
    (own / "mine.py").write_text("from pathlib import Path; Path('ran').touch()", encoding="utf-8")
    assert "model: expected a sequence classifier, got" in refusal(own)
    assert not Path("ran").exists()


NAMED = ["blame", "praise"]
UNNAMED = ["LABEL_0", "LABEL_1"]


@pytest.mark.parametrize(
    ("own", "given", "classes"),
    [
        (NAMED, ["praise", "blame"], [1, 0]),
        (NAMED, ["1", "0"], [1, 0]),
        (UNNAMED, ["1", "0"], [1, 0]),
        (UNNAMED, ["LABEL_1", "LABEL_0"], [1, 0]),
        (["ugly", "nice"], ["ugly", "nice"], [0, 1]),  # by classes=[ugly,nice]
    ],
)
def test_the_order_of_the_classes_is_known_or_said(
    own: list[str], given: list[str], classes: list[int], tmp_path: Path
) -> None:
    model, tokenizer = classifier(id2label=dict(enumerate(own)))
    (tmp_path / "a.csv").write_text(
        "text,label\n" + "".join(f"the film,{name}\n" for name in given)
    )
    data = OtherDataConfig(path=str(tmp_path / "a.csv"), cache_dir=str(tmp_path))
    config = InspectConfig(model="mine", data=data)
    found = SequenceClassifier(model, tokenizer)
    assert labelled(config, data, found)[1] == classes
    found.labels = ["good", "bad"]
    if "1" not in given:
        with pytest.raises(
            ConfigError, match=r"the model the classes good, bad; .* classes=\[...\]"
        ):
            labelled(config, data, found)


def test_of_two_classes_with_any_number_a_text_the_labels_are_zeros_and_ones(
    tmp_path: Path,
) -> None:
    model, tokenizer = classifier(problem_type="multi_label_classification")
    data = OtherDataConfig(path=str(tmp_path / "a.csv"), cache_dir=str(tmp_path))
    (tmp_path / "a.csv").write_text("text,label\na film,praise\na book,blame\n")
    found = SequenceClassifier(model, tokenizer)
    texts, labels = labelled(InspectConfig(model="mine", data=data), data, found)
    (batch,) = found.batches(texts, labels)
    assert batch.labels.tolist() == [[0, 1], [1, 0]]


@pytest.mark.slow
@pytest.mark.filterwarnings("default::UserWarning")
def test_its_heads_are_shown_and_ranked_as_a_user_would_ask_for_it(
    command: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    transformers.set_seed(0)
    saved(tmp_path / "mine")
    texts, labels = made_up(200)
    names = ["blame", "praise"]
    rows = [
        f"{text} {number},{names[label]}"
        for number, (text, label) in enumerate(zip(texts, labels, strict=True))
    ]
    (tmp_path / "texts.csv").write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    words = ["inspect", "model=mine", "data.path=texts.csv", "accelerator=cpu"]
    said = command(*words, "text=the film was not bad", "texts=60", "output=a.html")
    assert said.startswith("text: the film was not bad\n7 tokens; praise 0.")
    assert "words: " in said
    assert re.search("heads (help|alone|matter)|the same class", said)
    assert (tmp_path / "a.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    alone = command(*words, "texts=40")
    assert "outputs/inspect/mine_" in alone


@pytest.mark.filterwarnings("default::UserWarning")
def test_two_models_are_compared_on_the_same_texts(
    command: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    saved(tmp_path / "mine")
    other, _ = classifier()
    for weight in other.classifier.parameters():
        weight.data.neg_()  # of each text the other class, of each word the other sign
    saved(tmp_path / "other", other)
    texts, labels = made_up(30)
    rows = [f"{text},{label}" for text, label in zip(texts, labels, strict=True)]
    (tmp_path / "texts.csv").write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    words = ["inspect", "model=mine", "data.path=texts.csv", "accelerator=cpu"]
    said = command(*words, "against=other")
    assert re.search(r"percentage points above other: accuracy [-+]\d", said)
    assert re.search("^other: ", said, re.MULTILINE)
    named = re.search(r"words that add more here than in other: (.+)", said)
    assert named is not None
    assert {part.split()[0] for part in named[1].split("; ")} <= {*" ".join(texts).split()}
    saved(tmp_path / "three", num_labels=3, id2label={0: "a", 1: "b", 2: "c"})
    refused = command(*words, "against=three", code=2)
    assert "against: expected a classifier with 2 classes, got three with 3" in refused
