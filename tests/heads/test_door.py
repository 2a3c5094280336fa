"""What is asked of a model is what its caller asks of it; what it cannot do is one sentence."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers.processors import TemplateProcessing
from torch import Tensor, nn

import foreign_classifiers
import headscope
from headscope.data.batching import Batch
from headscope.foreign.abilities import abilities
from headscope.foreign.pretrained import PretrainedClassifier
from headscope.foreign.sequence_classifier import SequenceClassifier
from headscope.foreign.transformers_files import read_tokenizer
from headscope.ground.errors import DataError, RunError
from headscope.heads.capture import NotObservedError, capture, device_of, is_observed
from headscope.heads.contributions import explain
from headscope.model.objective import Reading
from headscope.runs.run import load_run

TEXT = "the film was not good"


class AnyKeywords(nn.Module):
    """Passes on whatever it is called with, as PEFT and torch.compile do."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.config = model.config

    def forward(self, **options: Any) -> Any:
        return self.model(**options)


def test_the_segments_of_a_pair_reach_a_model_behind_a_wrapper() -> None:
    model, tokenizer = foreign_classifiers.classifier("bert")
    with torch.no_grad():
        model.bert.embeddings.token_type_embeddings.weight.mul_(20)
    plain = model(**tokenizer(TEXT, "the day was bad", return_tensors="pt")).logits.softmax(dim=-1)
    view = headscope.show(AnyKeywords(model), tokenizer, TEXT, "the day was bad")
    np.testing.assert_allclose(list(view.probabilities.values()), plain[0].detach(), atol=1e-6)


class Forgetful(AnyKeywords):
    def forward(self, input_ids: Tensor, attention_mask: Tensor, **options: Any) -> Any:
        position_ids = torch.zeros_like(input_ids) if len(options) == 0 else None
        return self.model(
            input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids
        )


def test_logits_that_are_not_those_of_a_plain_call_are_said() -> None:
    model, tokenizer = foreign_classifiers.classifier("bert")
    with pytest.warns(UserWarning, match="the logits that are explained differ by"):
        headscope.show(Forgetful(model), tokenizer, TEXT)


@pytest.mark.parametrize("give", [tuple, dict])
def test_logits_in_a_tuple_or_a_dictionary_are_found(give: Any) -> None:
    model, tokenizer = foreign_classifiers.classifier("bert")
    usual = headscope.show(model, tokenizer, TEXT).explanation
    if give is tuple:
        model.config.return_dict = False
        found = headscope.show(model, tokenizer, TEXT).explanation
    else:
        ids = tokenizer(TEXT, return_tensors="pt")["input_ids"]

        class Mapped(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.model = model

            def forward(self, ids: Tensor) -> dict[str, Tensor]:
                return {"logits": self.model(ids).logits}

        found = headscope.show(Mapped(), [str(token) for token in ids[0].tolist()], ids).explanation
    np.testing.assert_allclose(found.words, usual.words, atol=1e-5)


def test_words_that_the_tokenizer_does_not_know_are_said() -> None:
    model, tokenizer = foreign_classifiers.classifier("bert")
    with pytest.warns(UserWarning, match="are unknown to the tokenizer"):
        view = headscope.show(model, tokenizer, "Ω film Ω was")
    assert "unknown" in view.text.notes


def test_a_folder_without_tokenizer_files_is_an_error(tmp_path: Path) -> None:
    model, tokenizer = foreign_classifiers.classifier("bert")
    model.save_pretrained(tmp_path)
    with pytest.raises(
        ValueError, match=r"expected the tokenizer's files \(tokenizer.json, vocab.txt\)"
    ):
        read_tokenizer(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert read_tokenizer(tmp_path)(TEXT)["input_ids"] == tokenizer(TEXT)["input_ids"]


def test_a_folder_of_transformers_is_no_damaged_run(tmp_path: Path) -> None:
    model, _ = foreign_classifiers.classifier("bert")
    model.save_pretrained(tmp_path)
    with pytest.raises(RunError, match="got a model of transformers; look at it by head"):
        load_run(tmp_path)


class ReadsTheLast(nn.Module):
    """Gives the logits of the last place, as XLNet does, and as of a mask knows nothing."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.config = model.config
        self.head = nn.Linear(24, 2)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Any:
        states = self.model.bert(input_ids, attention_mask=attention_mask).last_hidden_state
        return {"logits": self.head(states[:, -1])}


def test_texts_are_read_one_by_one_where_padding_would_be_read() -> None:
    model, tokenizer = foreign_classifiers.classifier("bert")
    assert not SequenceClassifier(model, tokenizer).reads_padding
    classifier = SequenceClassifier(ReadsTheLast(model).eval(), tokenizer)
    assert classifier.reads_padding
    texts = [TEXT, "good", "the day was bad"]
    assert [len(batch.rows) for batch in classifier.batches(texts, [0, 1, 0])] == [1, 1, 1]
    called = PretrainedClassifier(ReadsTheLast(model).eval())
    called.model.head = classifier.model.head
    ids = [torch.tensor(tokenizer(text)["input_ids"]) for text in texts]
    batch = nn.utils.rnn.pad_sequence(ids, batch_first=True)
    padding = torch.arange(batch.shape[1]) >= torch.tensor([[len(row)] for row in ids])
    alone = torch.cat([called(row[None]) for row in ids])
    torch.testing.assert_close(called(batch, padding), alone)


def test_the_end_that_is_read_is_named() -> None:
    model, tokenizer = foreign_classifiers.classifier("bert")
    tokenizer.truncation_side = "left"
    view = headscope.show(model, tokenizer, TEXT, max_tokens=5)
    assert view.text.notes["shown"].startswith("the last 5 tokens")


@pytest.mark.parametrize("text", [None, ["a", "b"], 7])
def test_what_is_no_text_is_said(text: Any) -> None:
    model, tokenizer = foreign_classifiers.classifier("bert")
    with pytest.raises(DataError, match="text: expected a text, got"):
        headscope.show(model, tokenizer, text)


@pytest.mark.parametrize("family", ["GPT2", "Llama"])
def test_a_text_of_which_a_decoder_reads_no_token_is_said(family: str) -> None:
    _, tokenizer = foreign_classifiers.classifier("bert")
    tokenizer.model_input_names = ["input_ids", "attention_mask"]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="$A", pair="$A $B", special_tokens=[]
    )
    config = getattr(transformers, f"{family}Config")(
        vocab_size=len(tokenizer),
        hidden_size=12,
        num_attention_heads=2,
        num_hidden_layers=1,
        intermediate_size=12,
        pad_token_id=0,
    )
    model = getattr(transformers, f"{family}ForSequenceClassification")(config).eval()
    assert SequenceClassifier(model, tokenizer).probe(TEXT).text.special == []
    headscope.show(model, tokenizer, TEXT)
    with pytest.raises(DataError, match="text: expected one with a token, got ''"):
        headscope.show(model, tokenizer, "")


def test_a_model_of_choices_is_no_sequence_classifier() -> None:
    model, tokenizer = foreign_classifiers.classifier("bert")
    choices = transformers.BertForMultipleChoice(model.config).eval()
    with pytest.raises(ValueError, match="BertForMultipleChoice: expected a sequence classifier"):
        headscope.show(choices, tokenizer, TEXT)


def test_of_a_network_without_attention_no_remedy_is_named() -> None:
    _, tokenizer = foreign_classifiers.classifier("bert")
    config = transformers.FNetConfig(
        vocab_size=len(tokenizer), hidden_size=12, num_hidden_layers=1, intermediate_size=12
    )
    found = abilities(transformers.FNetForSequenceClassification(config).eval(), tokenizer, TEXT)
    assert found.explained == ""
    assert found.observed == found.ablated
    assert found.observed.endswith("so there are no attention maps and no heads to ablate")


def test_a_model_that_ends_in_a_softmax_is_told() -> None:
    model, tokenizer = foreign_classifiers.classifier("bert")
    ids = tokenizer(TEXT, return_tensors="pt")["input_ids"]

    class Shares(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, ids: Tensor) -> Tensor:
            return self.model(ids).logits.softmax(dim=-1)

    with pytest.raises(ValueError, match="expected logits, got rows that sum to 1"):
        headscope.show(Shares(), [*"abcdefg"], ids)


def test_a_data_parallel_model_is_told() -> None:
    model, tokenizer = foreign_classifiers.classifier("bert")
    with pytest.raises(ValueError, match=r"give model\.module"):
        headscope.show(nn.DataParallel(model), tokenizer, TEXT)


def test_a_negative_id_for_padding_is_none() -> None:
    model, tokenizer = foreign_classifiers.classifier("bert")
    model.config.pad_token_id = -1
    assert SequenceClassifier(model, tokenizer).pad_id is None
    view = headscope.show(
        model, tokenizer, TEXT, texts=[TEXT, "good", "bad", "the day"], labels=[0, 1, 0, 1]
    )
    assert view.study is not None


def test_bfloat16_as_default_is_no_error() -> None:
    model, tokenizer = foreign_classifiers.classifier("bert")
    torch.set_default_dtype(torch.bfloat16)
    try:
        assert headscope.show(model, tokenizer, TEXT).maps
    finally:
        torch.set_default_dtype(torch.float32)


def test_what_is_missed_in_bfloat16_is_rounding() -> None:
    model, tokenizer = foreign_classifiers.classifier("bert")
    with torch.no_grad():
        model.classifier.weight.mul_(100)
    found = headscope.show(model.bfloat16(), tokenizer, TEXT).explanation
    assert found.unknown in ("", "rounding in bfloat16")


def test_offloaded_weights_are_brought_to_their_device() -> None:
    model = nn.Linear(2, 2, device="meta")
    model._hf_hook = type("Hook", (), {"execution_device": "cpu"})()
    assert device_of(model) == torch.device("cpu")


def test_a_model_of_transformers_that_is_observed_says_so() -> None:
    model, _ = foreign_classifiers.classifier("bert")
    assert not is_observed(model)
    with capture(model):
        assert is_observed(nn.Sequential(model))
    assert not is_observed(model)


def test_abilities_are_a_look_before_anything_runs() -> None:
    model, tokenizer = foreign_classifiers.classifier("bert")
    before = pickle.dumps(model)
    found = abilities(model, tokenizer, TEXT)
    assert (found.observed, found.ablated, found.explained, found.trained) == ("", "", "", "")
    assert (found.opened, found.exported) == ("", "")
    assert abs(found.missed) < 1e-5
    assert str(found).splitlines()[0] == "observed: yes"
    assert pickle.dumps(model) == before
    outside, tokenizer = foreign_classifiers.classifier("deberta")
    found = abilities(outside, tokenizer, TEXT)
    assert found.observed == found.explained == ""
    assert "AttentionInterface" in found.ablated
    assert "expected one of bert, " in found.opened
    assert "transformers computes" in found.exported
    with pytest.raises(NotObservedError, match="cannot be ablated"):
        headscope.show(outside, tokenizer, TEXT, texts=[TEXT, "good"], labels=[0, 1])


# --- any network ---


class Network(nn.Module):
    """A small network of a drawn layout, depth, read-out and wrapper."""

    def __init__(self, shape: dict[str, Any]) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(11, 8)
        self.positions = nn.Parameter(torch.randn(5, 8))
        options = {"batch_first": shape["batch_first"], "norm_first": shape["norm_first"]}
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(8, 2, 12, **options) for _ in range(shape["layers"])
        )
        self.by_hand = nn.Linear(8, 24)
        self.head = nn.Linear(8, 2)

    def hand_written(self, vectors: Tensor) -> Tensor:
        q, k, v = self.by_hand(vectors).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        return vectors + ((q @ k.mT).softmax(dim=-1) @ v).transpose(1, 2).flatten(2)

    def forward(self, ids: Tensor, *_: Any) -> Tensor:
        vectors = self.embedding(ids) + self.positions
        if self.shape["by_hand"]:
            vectors = self.hand_written(vectors)
        if not self.shape["batch_first"]:
            vectors = vectors.transpose(0, 1)
        for _ in range(self.shape["repeats"]):
            for layer in self.layers:
                vectors = layer(vectors)
        places = 1 if self.shape["batch_first"] else 0
        read = {
            "first": lambda: vectors.select(places, 0),
            "mean": lambda: vectors.mean(dim=places),
            "max": lambda: vectors.amax(dim=places),
        }[self.shape["read"]]
        return self.head(read())  # type: ignore[no-any-return]


class Wrapped(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *given: Any, **options: Any) -> Any:
        return self.inner(*given, **options)


SHAPES = st.fixed_dictionaries(
    {
        "batch_first": st.booleans(),
        "norm_first": st.booleans(),
        "layers": st.integers(1, 2),
        "repeats": st.integers(1, 3),
        "by_hand": st.booleans(),
        "read": st.sampled_from(["first", "mean", "max"]),
        "wrapped": st.booleans(),
        "token": st.integers(0, 4),
    }
)


def state_of(model: nn.Module) -> list[Any]:
    return [
        (
            name,
            module.training,
            {*module._forward_hooks},
            {*module._forward_pre_hooks},
            {*vars(module)},
        )
        for name, module in model.named_modules()
    ] + [(name, weight.dtype, weight.grad) for name, weight in model.named_parameters()]


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(shape=SHAPES)
def test_in_any_network_a_words_vector_goes_to_its_word_and_the_sum_is_exact(
    shape: dict[str, Any],
) -> None:
    torch.manual_seed(0)
    network = Network(shape).double().eval()
    ids = torch.tensor([[3, 5, 7, 9, 1]])
    with torch.no_grad():
        network.positions.zero_()
        network.embedding.weight.zero_()
        network.embedding.weight[ids[0, shape["token"]]] = torch.randn(8).double()
    model = Wrapped(network) if shape["wrapped"] else network
    before = state_of(model)
    batch = Batch(ids, None, None, torch.tensor([-1]), torch.tensor([0]))
    found = explain(model, batch, [*"abcde"], Reading(["x", "y"]))
    logits = model(ids)[0].detach()
    assert abs(found.log_odds) == pytest.approx(abs(float(logits[0] - logits[1])), abs=1e-9)
    assert abs(found.miss) < 1e-9
    others = np.delete(found.words, shape["token"])
    np.testing.assert_allclose(others, 0, atol=1e-9)
    assert len(found.layers) == shape["layers"] * shape["repeats"]
    rest = np.nansum(found.heads, axis=(0, 1)) + found.past
    np.testing.assert_allclose(rest, found.words, atol=1e-9)
    assert state_of(model) == before
    pickle.dumps(model)
