"""`headscope.show`: numbers are the model's own, which stays as it was, and the page is safe."""

import re
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import numpy as np
import pandas
import pytest
import torch
import transformers
from torch import Tensor, nn

import headscope
from foreign_classifiers import classifier, made_up
from headscope.data.rows import as_list
from headscope.foreign.sequence_classifier import SequenceClassifier
from headscope.ground.errors import DataError, UserWarningMessage
from headscope.heads.study import warn_below_chance

pytestmark = pytest.mark.usefixtures("unchecked_shapes")
TEXT = "the film was not bad"


def logits_of(model: Any, tokenizer: Any, text: str) -> Any:
    with torch.no_grad():
        return model(**tokenizer(text, return_tensors="pt"), output_attentions=True)


def test_maps_and_probabilities_are_the_models_own() -> None:
    model, tokenizer = classifier()
    shown = headscope.show(model, tokenizer, TEXT)
    own = logits_of(model, tokenizer, TEXT)
    assert shown.tokens == ["[CLS]", "the", "film", "was", "not", "bad", "[SEP]"]
    for found, weights in zip(shown.maps.values(), own.attentions, strict=True):
        np.testing.assert_allclose(found, weights[0], atol=1e-6)
    assert list(shown.probabilities) == ["blame", "praise"]
    shares = list(shown.probabilities.values())
    np.testing.assert_allclose(shares, own.logits[0].softmax(0), atol=1e-6)
    assert shown.without_heads is not None
    assert shown.without_heads.shape == (3, 3, 2)
    assert shown.explanation is not None
    assert shown.explanation.heads.shape == (3, 3, len(shown.tokens))
    assert [len(roles) for roles in shown.roles] == [3] * 3
    with headscope.capture(model) as maps, torch.no_grad():
        model(**tokenizer(TEXT, return_tensors="pt"))
    assert list(shown.maps) == list(maps)
    assert shown.maps[0] is shown.maps[next(iter(maps))]
    with pytest.raises(KeyError, match="layer: expected one of"):
        shown.maps["layer 0"]


def test_with_labelled_texts_it_is_known_what_the_loss_rises_by_without_each_head() -> None:
    model, tokenizer = classifier()
    texts, labels = made_up(20)
    shown = headscope.show(model, tokenizer, TEXT, texts=texts, labels=labels)
    assert shown.study is not None
    assert shown.study.texts == 20
    found = shown.study.loss_increases()
    assert len(found) == 9
    right = sum(shown.study.sure[:, 1])
    assert f'"curve":[[{shown.study.sure[:, 0].max()}' in shown.html
    assert f",20,{right:.0f}]]" in shown.html  # of all texts

    def losses() -> Tensor:
        each = [logits_of(model, tokenizer, text).logits for text in texts]
        return nn.functional.cross_entropy(torch.cat(each), torch.tensor(labels), reduction="none")

    whole = losses()
    model.bert.encoder.layer[1].attention.output.dense.weight.data[:, :8] = 0
    differences = losses() - whole
    expected = (float(differences.mean()), float(differences.std() / 20**0.5))
    assert found["layer 1 head 0"] == pytest.approx(expected, abs=1e-6)


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_in_a_notebook_it_is_one_frame_that_cannot_reach_what_is_around_it(tmp_path: Path) -> None:
    model, tokenizer = classifier()
    with pytest.warns(UserWarning, match="are unknown to the tokenizer"):
        shown = headscope.show(
            model, tokenizer, "\"'><script>alert(1)</script> was </iframe> & bad"
        )
    tags = Tags()
    tags.feed(shown._repr_html_())
    ((tag, attributes),) = tags.found
    assert (tag, attributes["sandbox"]) == ("iframe", "allow-scripts allow-downloads")
    assert attributes["srcdoc"] == shown.html
    assert shown.save(tmp_path / "page.html").read_text(encoding="utf-8") == shown.html


def test_a_long_text_is_cut_and_the_page_says_so() -> None:
    model, tokenizer = classifier()
    shown = headscope.show(model, tokenizer, "good " * 50, max_tokens=12)
    assert len(shown.tokens) == 12
    assert "the first 12 tokens" in shown.html
    # The model has no more places.
    assert len(headscope.show(model, tokenizer, "good " * 50).tokens) == 31
    cut = re.compile(r"first \d+ tokens, which are all that the model was given")
    assert cut.search(headscope.show(model, tokenizer, "good " * 50).html)
    assert not cut.search(headscope.show(model, tokenizer, TEXT).html)
    roberta, its = classifier("roberta", vocab_size=300)
    assert len(headscope.show(roberta, its, "good " * 50).tokens) == 31


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_a_padded_text_gets_the_logits_that_it_gets_alone(family: str) -> None:
    model, tokenizer = classifier(family, **({"vocab_size": 300} if family == "roberta" else {}))
    wrapped, texts = SequenceClassifier(model, tokenizer), ["good", TEXT, "the book was bad"]
    (batch,) = wrapped.batches(texts, ["praise", 1, 0])
    assert batch.key_padding_mask is not None
    with torch.no_grad():
        found = wrapped(*batch.inputs)
    for row, logits in zip(batch.rows.tolist(), found, strict=True):
        torch.testing.assert_close(
            logits, logits_of(model, tokenizer, texts[row]).logits[0], rtol=0, atol=1e-5
        )
    assert batch.labels[batch.rows.argsort()].tolist() == [1, 1, 0]


def test_pairs_are_read_with_their_segments() -> None:
    model, tokenizer = classifier()
    shown = headscope.show(model, tokenizer, "good", "the film was bad")
    encoded = tokenizer("good", "the film was bad", return_tensors="pt")
    own = model(**encoded).logits[0].softmax(0).tolist()
    assert list(shown.probabilities.values()) == pytest.approx(own, abs=1e-6)
    probe = SequenceClassifier(model, tokenizer).probe(("good", "the film was bad"))
    assert probe.text.segments == [None, 0, None, 1, 1, 1, 1, None]
    assert (probe.text.special, probe.text.readout) == ([0, 2, 7], 0)


def test_where_the_answer_is_read_from_is_found() -> None:
    _, tokenizer = classifier()
    options = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    config = transformers.GPT2Config(n_embd=24, n_head=3, n_layer=2, vocab_size=120, **options)
    wrapped = SequenceClassifier(transformers.GPT2ForSequenceClassification(config), tokenizer)
    assert wrapped.probe(TEXT).text.readout == 6  # the last of seven tokens
    # It knows no padding.
    assert [len(batch.rows) for batch in wrapped.batches([TEXT, TEXT], [0, 1])] == [1, 1]


def test_where_a_text_may_have_several_classes_each_has_its_own_probability() -> None:
    model, tokenizer = classifier(problem_type="multi_label_classification")
    wrapped = SequenceClassifier(model, tokenizer)
    for labels in (
        [["praise", 0], []],
        [[1.0, 1.0], [0.0, 0.0]],
        [*torch.tensor([[1, 1], [0, 0]])],
    ):
        (batch,) = wrapped.batches([TEXT, TEXT], labels)
        assert batch.labels.tolist() == [[1, 1], [0, 0]]
    with pytest.raises(ValueError, match=r"such as \[1, 0\] may be 0 or 1 for each class, or both"):
        wrapped.batches([TEXT, TEXT], [[1, 0], [0, 1]])
    with pytest.raises(DataError, match=r"labels\[0\]: expected a class once, got \[1, 1, 0\]"):
        wrapped.batches([TEXT, TEXT], [[1, 1, 0], [1, 0, 0]])
    probabilities = headscope.show(model, tokenizer, TEXT).probabilities.values()
    own = logits_of(model, tokenizer, TEXT).logits[0].sigmoid().tolist()
    assert list(probabilities) == pytest.approx(own, abs=1e-6)


BOTH = [TEXT, TEXT]


@pytest.mark.parametrize(
    ("texts", "labels", "message"),
    [
        (BOTH, None, "expected both or neither"),
        (None, [0], "expected both or neither"),
        *((BOTH, [0, label], "labels: expected blame, praise, or a number from 0 on, got")
          for label in ("paise", 2, -1, 0.5, None)),
        (BOTH, [0], "expected one for each of 2 texts, got 1"),
        ([TEXT, (TEXT, TEXT)], [0, 1], "texts: expected single texts or pairs, got both"),
        ([TEXT, np.nan], [0, 1], r"texts\[1\]: expected a text or a pair, got nan"),
        ([], [], "texts: expected 2 or more, got 0"),
        (TEXT, [0], r"texts: expected a list of texts, got one text; write \[text\]"),
        (pandas.DataFrame({"text": [TEXT]}), [0], "expected a list or one column, got a DataFrame"),
    ],
)  # fmt: skip
def test_texts_and_labels_that_do_not_fit_are_refused(
    texts: Any, labels: Any, message: str
) -> None:
    with pytest.raises((DataError, ValueError), match=message):
        headscope.show(*classifier(), TEXT, texts=texts, labels=labels)


def test_a_model_without_classes_is_refused() -> None:
    model, tokenizer = classifier()
    with pytest.raises(ValueError, match="expected two classes or more, as Bert"):
        headscope.show(model.bert, tokenizer, TEXT)


def test_columns_of_any_library_are_read_as_lists() -> None:
    texts, labels = made_up(4)
    columns = datasets.Dataset.from_dict({"text": texts, "label": labels})
    for column in (pandas.Series(texts), np.array(texts), columns["text"], tuple(texts)):
        assert as_list(column, "texts") == texts
    for column in (pandas.Series(labels), np.array(labels), columns["label"], torch.tensor(labels)):
        assert as_list(column, "labels") == labels


NUMBERED = {str(number): f"c{number}" for number in range(11)}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (NUMBERED, [f"c{number}" for number in range(11)]),  # as json.load gives it
        ({1: "b", 0: "a"}, ["a", "b"]),
        (["b", "a"], ["b", "a"]),
        ({0: "a", 2: "b"}, "id2label: expected numbers from 0 on without gaps, got 0, 2"),
        ({0: "a", "0": "b"}, "without gaps, got 0, 0"),
        ({0: "a", 1: "a"}, "id2label: expected a name of its own for each class, got a, a"),
        ("ab", "expected a list of id2label, got one text"),
    ],
)
def test_class_names_are_in_the_order_of_the_logits(names: Any, expected: Any) -> None:
    model, tokenizer = classifier()
    model.config = SimpleNamespace(id2label=names)  # all that docs/any-model.md asks for
    if isinstance(expected, str):
        with pytest.raises(ValueError, match=expected):
            SequenceClassifier(model, tokenizer)
    else:
        assert SequenceClassifier(model, tokenizer).labels == expected


def test_accuracy_below_chance_is_a_warning_with_the_order_of_the_classes() -> None:
    with pytest.warns(UserWarningMessage, match="20 of 100 .*, 50 would be .* than 0 = a, 1 = b"):
        warn_below_chance(20, 100, ["a", "b"])
    warn_below_chance(40, 100, ["a", "b"])


class Encoder(nn.Module):
    """A classifier of somebody else's, from torch's own encoder."""

    def __init__(self, num_classes: int = 3) -> None:
        super().__init__()
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(12, 3, 16, batch_first=True)
        self.embedding = nn.Embedding(50, 12)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(12, num_classes)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.encoder(self.embedding(ids))[:, 0])  # type: ignore[no-any-return]


def test_any_module_is_shown_with_its_tokens(tmp_path: Path) -> None:
    model, tokens = Encoder().eval(), ["a", "film", "that", "knows"]
    ids = torch.tensor([[3, 14, 15, 9]])
    shown = headscope.show(model, tokens, ids, labels=["bad", "fine", "good"])
    with headscope.capture(model) as maps, torch.no_grad():
        logits = model(ids)[0]
    for name, weights in maps.items():
        np.testing.assert_allclose(shown.maps[name], weights[0], atol=1e-6)
    shares = list(shown.probabilities.values())
    np.testing.assert_allclose(shares, logits.softmax(dim=0), atol=1e-6)
    found = shown.explanation
    assert found is not None
    assert found.against is not None
    odds = np.log(shown.probabilities[found.label] / shown.probabilities[found.against])
    assert found.log_odds == pytest.approx(odds, abs=1e-5)
    assert abs(found.miss) < 1e-5
    assert found.heads.shape == (2, 3, 4)
    page = shown.save(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "knows" in page
    assert repr(shown) == f"HeadView(4 tokens, 6 heads, prediction {shown.prediction!r})"
    assert "words: " in str(shown)


def test_the_heads_of_any_module_are_measured_on_what_it_is_called_with() -> None:
    model, tokens = Encoder().eval(), ["a", "film"]
    texts = [torch.randint(50, (1, length)) for length in range(3, 13)]
    with torch.no_grad():
        labels = [int(model(ids).argmax()) for ids in texts]
    shown = headscope.show(model, tokens, torch.tensor([[3, 14]]), texts=texts, labels=labels)
    assert shown.study is not None
    assert (shown.study.texts, shown.study.right) == (10, 10)
    assert len(shown.study.loss_increases()) == 6


def test_a_module_without_logits_shows_its_maps_alone() -> None:
    layer = nn.TransformerEncoderLayer(12, 3, 16, batch_first=True)
    shown = headscope.show(layer, ["a", "b"], {"src": torch.randn(1, 2, 12)})
    assert [weights.shape for weights in shown.maps.values()] == [(3, 2, 2)]
    assert shown.explanation is None
    assert repr(shown) == "HeadView(2 tokens, 3 heads)"


def test_a_module_without_attention_or_logits_is_told_what_is_expected() -> None:
    module = nn.Sequential(nn.Embedding(5, 3))  # [1, T, 3]: logits of each token
    message = r"^Sequential: expected attention layers, or logits \[1, C\] of two classes or more"
    with pytest.raises(ValueError, match=message):
        headscope.show(module, ["a", "b"], torch.tensor([[1, 2]]))


@pytest.mark.parametrize(
    ("tokens", "ids", "labels", "message"),
    [
        (["a"], torch.tensor([[1, 2]]), None, "expected one text of 1 tokens, got a map"),
        (["a", "b"], torch.tensor([[1, 2]]), ["x"], "labels: expected 3 names, got 1"),
    ],
)
def test_tokens_and_names_that_do_not_fit_are_told(
    tokens: list[str], ids: Tensor, labels: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        headscope.show(Encoder(), tokens, ids, labels=labels)
    with pytest.raises(
        DataError, match="labels: expected a number from 0 to 2 for each of 2 texts"
    ):
        headscope.show(Encoder(), ["a"], ids[:, :1], texts=ids.T, labels=[0, 3])


def test_of_a_model_whose_heads_cannot_be_changed_the_maps_are_shown() -> None:
    config = transformers.DebertaV2Config(
        vocab_size=60, hidden_size=12, num_hidden_layers=2, num_attention_heads=3,
        intermediate_size=16, num_labels=2,
    )  # fmt: skip
    model = transformers.DebertaV2ForSequenceClassification(config).eval()
    _, tokenizer = classifier()
    shown = headscope.show(model, tokenizer, TEXT)
    assert [weights.shape for weights in shown.maps.values()] == [(3, 7, 7)] * 2
    assert shown.without_heads is None
    assert shown.explanation is not None
    assert abs(shown.explanation.miss) < 1e-5
    with pytest.raises(ValueError, match=r"heads of DebertaV2\w+ cannot be ablated"):
        headscope.show(model, tokenizer, TEXT, texts=[TEXT, TEXT], labels=[0, 1])
