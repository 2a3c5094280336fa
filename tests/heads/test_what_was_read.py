"""Vectors belong to the token whose id was read, and calls of attention to their module and run."""

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from heads.kinds import made
from headscope.data.batching import Batch
from headscope.foreign.show import show
from headscope.heads.capture import ablate, capture, headed_layers
from headscope.heads.contributions import decompose, explain
from headscope.heads.step import Probe, run_probe
from headscope.model.objective import Reading
from headscope.record.explanation import Explanation
from headscope.record.schema import Text

T, D, H, WORDS = 5, 16, 2, 31
TOKENS = [*"abcde"]
IDS = torch.tensor([[4, 9, 11, 17, 2]])
ENDS = {"bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1}


class Called(nn.Module):
    """A model of transformers, which is called with ids and gives logits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, padding: Tensor | None = None, *_: Any) -> Tensor:
        mask = torch.ones_like(ids) if padding is None else (~padding).long()
        return self.model(input_ids=ids, attention_mask=mask).logits  # type: ignore[no-any-return]


def explained(model: nn.Module, ids: Tensor = IDS) -> Explanation:
    batch = Batch(ids, None, None, torch.tensor([-1]), torch.tensor([0]))
    found = explain(model, batch, TOKENS[: ids.shape[1]], Reading(["x", "y"]))
    assert abs(found.miss) < 1e-6
    return found


def randomized(model: nn.Module, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.double().eval()


# --- by where ids come from, not by what they are ---


@pytest.mark.parametrize("kind", ["Bart", "T5", "MBart"])
def test_a_decoder_reads_a_token_one_place_later(kind: str) -> None:
    """Every id but one has a vector of zeros, and cross attention is silent."""
    sizes = {"vocab_size": WORDS, "d_model": 32, "max_position_embeddings": 64}
    both = {f"{side}_{name}": value for side in ("encoder", "decoder")
            for name, value in {"layers": 1, "attention_heads": 4, "ffn_dim": 37}.items()}  # fmt: skip
    options = ENDS | ({"decoder_start_token_id": 0} if kind == "T5" else {})
    if kind == "MBart":
        options |= sizes | both
    model = Called(made(kind, "ForSequenceClassification", num_labels=2, **options).double())
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "encoder_attn.out_proj" in name or "EncDecAttention.o" in name:
                weight.zero_()  # so the decoder alone is read
            if "embed_positions" in name:
                weight.zero_()
            if "shared" in name or "embed_tokens" in name:
                weight[[number for number in range(len(weight)) if number != 9]] = 0
    found = explained(model)
    assert abs(found.words[1]) > 1e-3
    others = np.delete(found.words, 1)
    np.testing.assert_allclose(others, 0, atol=1e-12)


class Encoder(nn.Module):
    """torch's own encoder in both layouts, with positions as in PyTorch's tutorial."""

    def __init__(self, batch_first: bool, **options: Any) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, D)
        self.positions = nn.Parameter(torch.randn(T, 1, D))
        layer = nn.TransformerEncoderLayer(D, H, 20, batch_first=batch_first, **options)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(D, 2)
        self.is_batch_first = batch_first

    def forward(self, ids: Tensor, *_: Any) -> Tensor:
        if self.is_batch_first:
            vectors = self.embedding(ids) + self.positions.transpose(0, 1)
            return self.head(self.encoder(vectors).mean(dim=1))  # type: ignore[no-any-return]
        vectors = self.embedding(ids.T) + self.positions
        return self.head(self.encoder(vectors).mean(dim=0))  # type: ignore[no-any-return]


def test_positions_belong_to_their_words_in_both_layouts() -> None:
    first = randomized(Encoder(True))
    other = Encoder(False).double().eval()
    other.load_state_dict(first.state_dict())
    one, two = explained(first), explained(other)
    np.testing.assert_allclose(one.words, two.words, atol=1e-12)
    assert one.biases == pytest.approx(two.biases, abs=1e-12)


class Siamese(nn.Module):
    """One encoder reads two texts."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, D)
        self.encoder = nn.TransformerEncoderLayer(D, H, 20, batch_first=True)
        self.head = nn.Linear(2 * D, 2)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        texts = [self.encoder(self.embedding(ids)).mean(dim=1) for ids in (first, second)]
        return self.head(torch.cat(texts, dim=-1))  # type: ignore[no-any-return]


def test_words_of_two_texts_through_one_encoder_are_their_own() -> None:
    model = randomized(Siamese())
    a, b = IDS, torch.tensor([[7, 8, 6]])
    view = show(model, [*"abcdefgh"], (a, b))
    with torch.no_grad():
        model.embedding.weight[[7, 8, 6]] = 0
    silent = show(model, [*"abcdefgh"], (a, b))
    assert (
        np.abs(silent.explanation.words[5:]).max()
        < 1e-12
        < np.abs(view.explanation.words[5:]).min()
    )
    np.testing.assert_allclose(view.explanation.words.sum() + view.explanation.biases,
                               view.explanation.log_odds, atol=1e-9)  # fmt: skip
    for second in (b, torch.tensor([[7, 8, 6, 3, 1]])):
        with pytest.raises(ValueError, match="expected those of all texts that the module reads"):
            show(model, TOKENS, (a, second))


class Repeated(nn.Module):
    """A Universal Transformer: one layer, three times; or three layers that are copies of it."""

    def __init__(self, layers: list[nn.Module], times: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, D)
        self.layers = nn.ModuleList(layers)
        self.times = times
        self.head = nn.Linear(D, 2)

    def forward(self, ids: Tensor, *_: Any) -> Tensor:
        vectors = self.embedding(ids)
        for _ in range(self.times):
            for layer in self.layers:
                vectors = layer(vectors)
        return self.head(vectors[:, 0])  # type: ignore[no-any-return]


def test_a_layer_that_runs_three_times_is_three_layers() -> None:
    layer = nn.TransformerEncoderLayer(D, H, 20, batch_first=True)
    looped = randomized(Repeated([layer], 3))
    unrolled = Repeated(
        [nn.TransformerEncoderLayer(D, H, 20, batch_first=True) for _ in range(3)], 1
    )
    unrolled.double().eval().load_state_dict(
        {name: value for name, value in looped.state_dict().items() if "layers" not in name}
        | {f"layers.{number}.{name}": value
           for number in range(3) for name, value in layer.state_dict().items()}
    )  # fmt: skip
    probe = Probe(
        Text("text", TOKENS, "a"), Batch(IDS, None, None, torch.tensor([-1]), torch.tensor([0]))
    )
    one, two = [
        run_probe(model, probe, Reading(["x", "y"]), with_ablations=True)
        for model in (looped, unrolled)
    ]
    name = "layers.0.self_attn"
    assert one.layers == [name, f"{name}#1", f"{name}#2"]
    assert list(headed_layers(looped)) == one.layers
    assert one.arrays.keys() == two.arrays.keys()
    for key, array in one.arrays.items():
        np.testing.assert_allclose(array, two.arrays[key], atol=1e-6, err_msg=key)
    with capture(looped) as maps, torch.no_grad():
        looped(IDS)
        looped(IDS)
    assert list(maps) == one.layers, "of the last forward pass"
    with ablate(looped, {(f"{name}#2", 1): "zero"}), torch.no_grad():
        changed = looped(IDS)
    with ablate(unrolled, {("layers.2.self_attn", 1): "zero"}), torch.no_grad():
        torch.testing.assert_close(changed, unrolled(IDS))
    assert looped.layers[0].self_attn._forward_hooks == {}


class ByHand(nn.Module):
    """Attention that is written by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(D, 3 * D)

    def forward(self, vectors: Tensor) -> Tensor:
        q, k, v = self.project(vectors).unflatten(-1, (3, H, D // H)).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-2, -1)).softmax(dim=-1)
        return vectors + (weights @ v).transpose(1, 2).flatten(2)


class Above(nn.Module):
    """An encoder on top of another part, or of its output."""

    def __init__(self, below: nn.Module, above: nn.Module, encoder: Encoder) -> None:
        super().__init__()
        self.below = below
        self.above = above
        self.encoder = encoder

    def forward(self, ids: Tensor, *_: Any) -> Tensor:
        vectors = self.below(self.encoder.embedding(ids))
        vectors = self.above(self.encoder.encoder(vectors))
        return self.encoder.head(vectors.mean(dim=1))  # type: ignore[no-any-return]


@pytest.mark.parametrize("place", ["below", "above"])
def test_attention_that_is_not_observed_is_named_and_moves_no_layer(place: str) -> None:
    parts = {"below": nn.Identity(), "above": nn.Identity()} | {place: ByHand()}
    model = randomized(Above(**parts, encoder=Encoder(True)))
    found = explained(model)
    assert found.layers == [f"encoder.encoder.layers.{number}.self_attn" for number in (0, 1)]
    assert found.heads.shape == (2, H, T)
    total = np.nansum(found.heads, axis=(0, 1)) + found.past
    np.testing.assert_allclose(total, found.words, atol=1e-12)
    assert abs(found.toward(found.unobserved_of)) > 1e-3
    assert "attention that is not observed: " in str(found)
    if place == "below":  # what the layers are given is what they would be given without it

        class Fed(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.encoder = model.encoder

            def forward(self, vectors: Tensor) -> Tensor:
                return self.encoder.head(self.encoder.encoder(vectors).mean(dim=1))  # type: ignore[no-any-return]

        with torch.no_grad():
            vectors = model.below(model.encoder.embedding(IDS))
        fed = show(Fed(), TOKENS, vectors).explanation
        np.testing.assert_allclose(found.through, fed.through, atol=1e-9)


def test_heads_are_known_where_a_sink_has_a_column() -> None:
    model = Called(made("GptOss", "ForSequenceClassification", num_labels=2, pad_token_id=0))
    found = explained(model)
    assert found.heads.shape == (2, 4, T)
    assert np.abs(found.heads).sum(axis=(0, 2)).min() > 0


@pytest.mark.parametrize("change", ["einsum", "nan_to_num", "squeeze", "transpose", "expand"])
def test_the_role_of_weights_travels(change: str) -> None:
    def attend(weights: Tensor, values: Tensor) -> Tensor:
        if change == "einsum":
            return torch.einsum("bnij,bjnd->bnid", weights, values.transpose(1, 2))
        moved = {
            "nan_to_num": lambda: weights.nan_to_num(),
            "squeeze": lambda: weights.unsqueeze(-1).squeeze(-1),
            "transpose": lambda: weights.transpose(-2, -1).contiguous().mT,
            "expand": lambda: weights.expand(weights.shape),
        }
        return moved[change]() @ values

    model = randomized(Above(ByHand(), nn.Identity(), Encoder(True)))
    usual = explained(model).toward(explained(model).unobserved_of)
    by_hand = model.below

    def forward(vectors: Tensor) -> Tensor:
        q, k, v = by_hand.project(vectors).unflatten(-1, (3, H, D // H)).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-2, -1)).softmax(dim=-1)
        return vectors + attend(weights, v).transpose(1, 2).flatten(2)

    by_hand.forward = forward
    found = explained(model)
    assert found.toward(found.unobserved_of) == pytest.approx(usual, abs=1e-12)
    assert abs(usual) > 1e-3


# --- read-outs and activations ---


@pytest.mark.parametrize(
    "read",
    [
        lambda vectors: nn.functional.max_pool1d(vectors.mT, T).squeeze(-1),
        lambda vectors: nn.AdaptiveMaxPool1d(1)(vectors.mT).squeeze(-1),
        lambda vectors: nn.functional.adaptive_max_pool1d(vectors.mT, 1).squeeze(-1),
        lambda vectors: nn.functional.avg_pool1d(vectors.mT, T).squeeze(-1),
        lambda vectors: vectors.amax(dim=1),
        lambda vectors: torch.max(vectors, dim=1).values,
    ],
)
def test_read_outs_that_pool_are_exact(read: Any) -> None:
    model = randomized(Encoder(True))

    def forward(ids: Tensor, *_: Any) -> Any:
        vectors = model.embedding(ids) + model.positions.transpose(0, 1)
        return model.head(read(model.encoder(vectors)))

    model.forward = forward
    found = explained(model)
    assert np.abs(found.words).max() > 1e-3


ACTIVATIONS = (
    "gelu_new quick_gelu gelu_fast gelu_python gelu_10 gelu_accurate prelu xielu relu2 mish"
)


@pytest.mark.parametrize("activation", ACTIVATIONS.split())
def test_gated_blocks_are_exact_with_any_activation(activation: str) -> None:
    options = {"num_labels": 2, "pad_token_id": 0, "hidden_act": activation}
    explained(Called(made("Llama", "ForSequenceClassification", **options).double()))


def test_so_is_flan_t5s() -> None:
    options = {"num_labels": 2, "decoder_start_token_id": 0, "feed_forward_proj": "gated-gelu"}
    found = explained(Called(made("T5", "ForSequenceClassification", **options, **ENDS).double()))
    assert abs(found.miss) < 1e-12


def test_a_batch_of_decoders_is_credited_text_by_text() -> None:
    options = {"num_labels": 2, "decoder_start_token_id": 0, "eos_token_id": 2, "pad_token_id": 0}
    model = Called(made("T5", "ForSequenceClassification", **options).double())
    ids = torch.tensor([[4, 9, 11, 17, 2], [8, 7, 2, 0, 0]])
    both = decompose(model, (ids, ids == 0), T, lambda logits: logits)
    alone = decompose(model, (ids[1:, :3], None), 3, lambda logits: logits)
    torch.testing.assert_close(both.words[1, :3], alone.words[0], rtol=0, atol=1e-9)
    assert not both.words[1, 3:].any()


def test_a_model_can_be_pickled_after_it_is_shown() -> None:
    model = made("Bert", "ForSequenceClassification", num_labels=2)
    view = show(model, TOKENS, IDS)
    assert view.maps
    pickle.dumps(model)
