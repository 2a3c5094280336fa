"""A classifier of transformers that was fine-tuned elsewhere: measured as a run, unchanged."""

import json
from pathlib import Path

import pytest
import torch
import transformers

import headscope
from bert_family import HEADS, LAYERS, write_checkpoint
from headscope.ground.errors import RunError

TEXTS = ["a film that knows what it wants", "it was cruel", "good and bad"]
CLASSES = {"10": "ten", "2": "two", "0": "none", **{str(n): f"n{n}" for n in (1, *range(3, 10))}}


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_it_answers_as_transformers_and_its_heads_are_measured(tmp_path: Path, family: str) -> None:
    folder = write_checkpoint(tmp_path, family, TEXTS, "ForSequenceClassification", num_labels=11)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"id2label": CLASSES}))
    run = headscope.load(folder)
    assert run.labels == ["none", "n1", "two", *(f"n{n}" for n in range(3, 10)), "ten"]
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        expected = theirs(run.inputs(TEXTS[0])[0]).logits.double().softmax(dim=-1)[0]
    (found,) = run.predict(TEXTS[:1])
    assert [*found.probabilities.values()] == pytest.approx(expected.tolist(), abs=1e-5)
    effects = run.effects(TEXTS, ["two"] * 3)
    assert len(effects) == LAYERS * HEADS
    assert effects["zero"].abs().max() > 1e-5
    source = run.inputs(TEXTS[1])
    with headscope.ablate(run.model, {(0, 0): "source"}, source=source):
        assert run.predict(TEXTS[:1])[0].probabilities != found.probabilities
    first, second = (run.predict(TEXTS[:1])[0].probabilities for _ in range(2))
    assert first == second == found.probabilities


@pytest.mark.parametrize(
    ("family", "head", "why"),
    [
        ("bert", "Model", "it has no head for 2 classes"),
        ("deberta", "ForSequenceClassification", "model_type: expected one of bert"),
    ],
)
def test_what_cannot_be_a_run_is_said(tmp_path: Path, family: str, head: str, why: str) -> None:
    folder = write_checkpoint(tmp_path, family, TEXTS, head)
    with pytest.raises(RunError, match=f"a classifier of transformers that opens, but {why}"):
        headscope.load(folder)


def test_it_stands_beside_a_run_in_a_comparison(tmp_path: Path) -> None:
    own = [
        write_checkpoint(tmp_path / name, "bert", TEXTS, "ForSequenceClassification", **sizes)
        for name, sizes in (("a", {}), ("b", {"num_hidden_layers": 1}))
    ]
    found = headscope.compare(*own, TEXTS, ["LABEL_0", "LABEL_1", "LABEL_1"])
    assert found.scores["accuracy"][0] in (0, 1 / 3, 2 / 3, 1)
    assert found.save(tmp_path / "compared.html").exists()
