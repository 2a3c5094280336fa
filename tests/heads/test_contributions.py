"""Contributions sum to the logit, and are what is missing without their part."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from headscope.config import POOLINGS, ModelConfig
from headscope.data.batching import Batch
from headscope.heads.capture import headed_layers, intervene, intervene_layers
from headscope.heads.contributions import (
    ONLY_FIRST,
    IntegratedGradients,
    LogitContributions,
    class_pair,
    explain,
    has_contributions,
    integrated_gradients,
    log_odds_direction,
    logit_contributions,
)
from headscope.model.classifier import TextClassifier
from headscope.model.objective import ONE_CLASS, MultiLabel, Objective
from headscope.record.contributions import CLASSES_KEPT, Explanation, signed

B, T, H, L, C, VOCABULARY = 2, 11, 3, 5, 7, 53  # primes, all different: a swapped axis cannot pass
D, LENGTHS = 2 * 13 * H, (11, 7)  # rotary positions turn pairs
DEFAULTS: dict[str, Any] = {
    "d_model": D,
    "num_heads": H,
    "num_layers": L,
    "feedforward_size": 17,
    "pooling": "first",
    "attention_readout": False,
}
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}
KINDS: dict[str, dict[str, Any]] = {
    "rotary": {},
    "learned": {"positions": "learned"},
    "sinusoidal": {"positions": "sinusoidal"},
    "one layer": {"num_layers": 1},
    "grouped": {"num_kv_heads": 1},
    "shared": {"attention": "shared_projection"},
    "window": {"window": 2},
    "attention read-out": {"attention_readout": True},
    "attention read-out, one layer": {"attention_readout": True, "num_layers": 1},
}
Inputs = tuple[Tensor, Tensor | None, Tensor | None]


def classifier(
    dtype: torch.dtype = torch.float32, segments: int = 1, **options: Any
) -> TextClassifier:
    """Return a model whose every parameter, norms and biases too, is random."""
    torch.manual_seed(0)
    config = ModelConfig(**({"evidence": False} | DEFAULTS | options))
    model = TextClassifier(config, VOCABULARY, C, T, segments).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def inputs(padded: bool = True, pairs: bool = False) -> Inputs:
    lengths = torch.tensor(LENGTHS)[:, None]
    padding = torch.arange(T) >= lengths
    ids = torch.randint(5, VOCABULARY, (B, T), generator=torch.manual_seed(1))
    ids[:, 0] = 2
    segments = (torch.arange(T) >= lengths // 2).long() if pairs else None
    return (ids.masked_fill(padding, 0), padding, segments) if padded else (ids, None, segments)


def assert_sums(
    found: LogitContributions, model: nn.Module, given: Inputs, dtype: torch.dtype
) -> None:
    with torch.no_grad():
        logits = model.eval()(*given).double()
    torch.testing.assert_close(found.logits, logits, rtol=0, atol=TOLERANCE[dtype])
    torch.testing.assert_close(found.total(), logits, rtol=0, atol=TOLERANCE[dtype])
    assert found.tokens is not None
    torch.testing.assert_close(found.tokens.sum(dim=-2), found.heads, rtol=0, atol=TOLERANCE[dtype])
    is_readout = model.encoder.blocks[-1].feedforward is None  # type: ignore[union-attr,index]
    heads = found.heads[:, -1:] if is_readout else found.heads
    assert heads.abs().amax(dim=(0, 3)).min() > 1e-4, "every head says something"
    if is_readout:
        cells = found.tokens.sum(dim=(1, 2, 3)) + found.bias
        torch.testing.assert_close(cells, logits, rtol=0, atol=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_parts_sum_to_the_logit(kind: str, padded: bool, dtype: torch.dtype) -> None:
    model, given = classifier(dtype, **KINDS[kind]), inputs(padded)
    found = logit_contributions(model, *given)
    assert_sums(found, model, given, dtype)
    layers = KINDS[kind].get("num_layers", L)
    parts = (found.heads, found.tokens, found.feedforward, found.bias)
    shapes = tuple(part.shape for part in parts if part is not None)
    assert shapes == ((B, layers, H, C), (B, layers, H, T, C), (B, layers, C), (B, C))


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_so_they_do_for_pairs(dtype: torch.dtype) -> None:
    model, given = classifier(dtype, 2), inputs(pairs=True)
    assert_sums(logit_contributions(model, *given), model, given, dtype)


def test_padding_gives_nothing_and_a_text_of_a_batch_is_the_text_alone() -> None:
    model, (ids, padding, _) = classifier(torch.float64), inputs()
    found, short = logit_contributions(model, ids, padding), LENGTHS[1]
    alone = logit_contributions(model, ids[1:, :short])[0]
    assert not found[1].tokens[:, :, short:].any()  # type: ignore[index]
    torch.testing.assert_close(found[1].tokens[:, :, :short], alone.tokens)  # type: ignore[index]
    torch.testing.assert_close(found[1].heads, alone.heads)
    without = logit_contributions(model, ids, padding, by_key=False)
    assert without[0].tokens is None
    # Observed, the last block makes all vectors.
    torch.testing.assert_close(without.heads, found.heads)


def test_the_model_is_left_as_it_was() -> None:
    model, given = classifier(dropout=0.5).train(), inputs()
    before = torch.get_float32_matmul_precision()
    assert torch.equal(
        logit_contributions(model, *given).logits, logit_contributions(model, *given).logits
    )
    assert all(module.training for module in model.modules())
    assert all(block.attention.intervention is None for block in model.encoder.blocks)
    assert all(block.attention.observer is None for block in model.encoder.blocks)
    assert torch.get_float32_matmul_precision() == before


@contextmanager
def scale_of_last_norm(model: TextClassifier, held: list[tuple[Tensor, Tensor]]) -> Iterator[None]:
    """Note what the last norm is given at [CLS], and its scale."""

    def note(norm: Any, args: tuple[Tensor, ...]) -> None:
        x = args[0][:, 0]
        held.append((x, (x.var(dim=-1, correction=0) + norm.eps).sqrt()))

    handle = model.encoder.norm.register_forward_pre_hook(note)  # type: ignore[union-attr,operator]
    yield
    handle.remove()


@pytest.mark.parametrize("head", range(H))
def test_without_a_head_of_the_last_layer_exactly_its_contribution_is_missing(head: int) -> None:
    """Before the last norm, whose scale changes; no later block answers to the head here."""
    model, given = classifier(torch.float64).eval(), inputs()
    held: list[tuple[Tensor, Tensor]] = []
    with torch.no_grad(), scale_of_last_norm(model, held):
        model.encoder.blocks[-1].feedforward[-1].weight.zero_()  # type: ignore[union-attr,index]
        model(*given)
        with intervene(model, {(f"encoder.blocks.{L - 1}.attention", head): "zero"}):
            model(*given)
        (x, sigma), (other, _) = held
        toward = model.head.weight * model.encoder.norm.weight  # type: ignore[union-attr,operator]
        missing = (x - other) @ (toward - toward.mean(dim=-1, keepdim=True)).T / sigma[:, None]
    found = logit_contributions(model, *given).heads[:, -1, head]
    torch.testing.assert_close(missing, found, rtol=0, atol=1e-12)
    assert found.abs().min() > 1e-4


@pytest.mark.parametrize("change", ["zero", "mean"])
def test_an_ablated_head_contributes_its_output_from_no_key(change: str) -> None:
    model, given, layer = classifier(torch.float64), inputs(), "encoder.blocks.2.attention"
    means = {layer: torch.randn(H, D // H, dtype=torch.float64)}
    with intervene(model, {(layer, 1): change}, means):
        found = logit_contributions(model, *given)
        torch.testing.assert_close(found.total(), model.eval()(*given).detach())
    assert bool(found.heads[:, 2, 1].any()) == (change == "mean")
    assert not found.tokens[:, 2, 1].any()  # type: ignore[index]
    assert found.tokens[:, 2, 0].abs().max() > 1e-4  # type: ignore[index]


@pytest.mark.parametrize("pooling", [name for name in POOLINGS if name != "first"])
def test_another_read_out_is_told_and_never_split(pooling: str) -> None:
    model = classifier(pooling=pooling)
    assert not has_contributions(model)
    with pytest.raises(ValueError, match=ONLY_FIRST.replace("[", r"\[")):
        logit_contributions(model, *inputs())
    assert has_contributions(classifier())
    assert not has_contributions(nn.Linear(2, 3))


@pytest.mark.parametrize("wrong", ["scale", "centre", "constant", "a layer", "other head"])
def test_a_wrong_attribution_would_be_found_out(wrong: str) -> None:
    model, given = classifier(), inputs()
    found = logit_contributions(model, *given)
    held: list[tuple[Tensor, Tensor]] = []
    with torch.no_grad(), scale_of_last_norm(model, held):
        model.eval()(*given)
    (x, sigma), gamma = held[0], model.encoder.norm.weight  # type: ignore[union-attr]
    # What the centring takes away.
    mean = x.mean(dim=-1, keepdim=True) * (model.head.weight @ gamma) / sigma[:, None]
    mutants = {
        "scale": lambda: replace(found, heads=found.heads * sigma[:, None, None, None]),
        "centre": lambda: replace(found, bias=found.bias + mean.detach()),
        "constant": lambda: replace(found, bias=found.bias * 0),
        "a layer": lambda: replace(found, feedforward=found.feedforward[:, [0, 0, 2, 3, 4]]),
        "other head": lambda: replace(found, heads=found.heads[:, :, [1, 1, 2]]),
    }
    far = (mutants[wrong]().total() - found.logits).abs().max()
    assert far > 100 * TOLERANCE[torch.float32]


def test_the_likeliest_class_is_held_against_the_runner_up_or_its_absence() -> None:
    logits = torch.tensor([[1.0, 5.0, 2.0, 4.0], [3.0, 1.0, 1.5, 1.0]]).double()
    assert (log_odds_direction(logits, ONE_CLASS) * logits).sum(dim=-1).tolist() == [1, 1.5]
    assert (log_odds_direction(logits, MultiLabel()) * logits).sum(dim=-1).tolist() == [5, 3]
    shares = logits[0].softmax(dim=-1)
    assert class_pair(shares, ONE_CLASS) == (1, 3)
    assert class_pair(shares, ONE_CLASS, shown=2) == (2, 1)
    assert class_pair(shares, ONE_CLASS, against=0) == (1, 0)
    assert class_pair(shares, ONE_CLASS, against=1) == (1, 3)
    assert class_pair(shares, MultiLabel(), against=0) == (1, None)


def explained(model: nn.Module, objective: Objective = ONE_CLASS, **options: Any) -> Explanation:
    ids = inputs(padded=False)[0][:1]
    with torch.no_grad():
        logits = model.eval()(ids)[0]
    tokens = [f"token {number % 4}" for number in range(T)]
    found = explain(model, alone(ids), tokens, CLASSES, logits, objective, 1.7, **options)
    assert found is not None
    return found


CLASSES = [f"class {number}" for number in range(C)]


@pytest.mark.parametrize("label", [None, "class 4"])
@pytest.mark.parametrize("objective", [ONE_CLASS, MultiLabel()], ids=["one", "several"])
def test_the_parts_sum_to_the_log_odds_of_the_probabilities(
    objective: Objective, label: str | None
) -> None:
    found = explained(classifier(torch.float64), objective, label=label)
    shown = found.probabilities[found.label]
    other = 1 - shown if found.against is None else found.probabilities[found.against]
    assert found.label == label or label is None
    assert (found.against is None) == isinstance(objective, MultiLabel)
    assert found.log_odds == pytest.approx(np.log(shown / other), abs=1e-10)
    assert found.contributions.shape == (L, H, T, C)
    total = sum(nats for _, nats in found.words())
    rest = found.toward(found.feedforward).sum() + found.toward(found.bias)
    assert total + rest == pytest.approx(found.log_odds, abs=1e-10)
    assert total == pytest.approx(found.heads().sum(), abs=1e-10)
    assert sorted(word for word, _ in found.words()) == [f"token {number}" for number in range(4)]
    kept = found.arrays()
    assert kept["contributions/tokens"].shape == (L, H, T, min(C, CLASSES_KEPT))
    by_rank = [CLASSES[number] for number in kept["contributions/classes"]]
    assert by_rank == sorted(CLASSES, key=lambda name: -found.probabilities[name])


def test_of_many_classes_the_likeliest_the_shown_and_the_label_are_kept() -> None:
    names = [f"class {number}" for number in range(20)]
    shares = dict(zip(names, np.arange(20)[::-1] / 190, strict=True))
    bias = np.log(np.maximum([*shares.values()], 1e-3))
    found = Explanation(
        "class 15",
        "class 0",
        shares,
        ["a"],
        names,
        np.zeros((1, 1, 1, 20)),
        np.zeros((1, 20)),
        bias,
    )
    arrays = found.arrays("class 19")
    assert arrays["contributions/classes"].tolist() == [*range(CLASSES_KEPT), 15, 19]
    assert arrays["contributions/shown"].tolist() == [15, 0]


def test_an_explanation_is_printed_words_first() -> None:
    contributions = np.zeros((1, 2, 3, 2))
    contributions[0, :, :, 0] = [[0.1, 2.5, -0.3], [0.0, 0.4, 0.0]]
    shares = {"Copyleft": 0.9427, "Permissive": 0.0573}
    found = Explanation(
        "Copyleft", "Permissive", shares, ["[CLS]", "LGPL", "the"], [*shares], contributions,
        np.zeros((1, 2)), np.array([0.0, -0.1]),
    )  # fmt: skip
    assert str(found).splitlines() == [
        "Copyleft 0.9427 against Permissive 0.0573, in nats",
        "words: LGPL +2.9; the -0.30; [CLS] +0.10",
        "heads: layer 0 head 0 +2.3; layer 0 head 1 +0.40",
        "bias: +0.10",
        "sum of all: +2.8, the log-odds",
    ]


@pytest.mark.parametrize(
    ("value", "words"),
    [(3.14, "+3.1"), (-0.254, "-0.25"), (0.999, "+1.0"), (-0.001, "0.00"), (0.004, "0.00")],
)
def test_nats_have_a_sign_and_two_digits(value: float, words: str) -> None:
    assert signed(value) == words


# --- by gates, for any model ---


def alone(ids: Tensor) -> Batch:
    return Batch(ids, None, None, torch.tensor([-1]), torch.tensor([0]))


class Linear(nn.Module):
    """Two layers side by side, whose heads all reach the logits: a sum with a term for each."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.head = nn.Embedding(VOCABULARY, D), nn.Linear(D, C)
        self.first = nn.MultiheadAttention(D, H, batch_first=True)
        self.second = nn.MultiheadAttention(D, 2 * H, batch_first=True)

    def forward(self, ids: Tensor, *_: Tensor | None) -> Tensor:
        x = self.embedding(ids)
        return self.head((x + self.first(x, x, x)[0] + self.second(x, x, x)[0]).sum(dim=1))


def test_where_the_logits_are_a_sum_over_heads_and_tokens_gates_give_each_its_term() -> None:
    model, (ids, _, _) = Linear().double(), inputs(padded=False)
    found = integrated_gradients(model, alone(ids[:1]), [4, 2])
    with torch.no_grad():
        whole = model(ids[:1])[0, [4, 2]]
        for name, given in zip(headed_layers(model), found.tokens, strict=True):
            for head, of_head in enumerate(given.sum(dim=1)):
                with intervene(model, {(name, head): "zero"}):
                    missing = whole - model(ids[:1])[0, [4, 2]]
                torch.testing.assert_close(of_head, missing, rtol=0, atol=1e-6)
    # A token's term is its value by the weights of all queries, through the layer's projections.
    x = model.embedding(ids[:1])[0]
    layer = model.first
    value = (x @ layer.in_proj_weight[2 * D :].T + layer.in_proj_bias[2 * D :])[:, : D // H]
    _, weights = layer(x[None], x[None], x[None], average_attn_weights=False)
    summed = weights[0, 0].sum(dim=0)[:, None] * value  # [K, E]
    expected = summed @ (model.head.weight[[4, 2]] @ layer.out_proj.weight[:, : D // H]).T
    torch.testing.assert_close(found.tokens[0][0], expected.detach(), rtol=0, atol=1e-6)
    assert [tuple(given.shape) for given in found.tokens] == [(H, T, 2), (2 * H, T, 2)]
    torch.testing.assert_close(found.whole, whole)
    assert error_of(found) < 1e-5


def error_of(found: IntegratedGradients) -> float:
    total = sum(tokens.sum(dim=(0, 1)) for tokens in found.tokens)
    return float((total - (found.whole - found.none)).abs().max())


def test_where_they_are_none_gates_still_share_out_all_that_the_heads_change() -> None:
    model, (ids, _, _) = classifier(torch.float64, pooling="mean"), inputs(padded=False)
    found = integrated_gradients(model, alone(ids[:1]), range(C))
    none = dict.fromkeys(headed_layers(model), torch.zeros_like)
    with torch.no_grad(), intervene_layers(model.eval(), none):
        nothing = model(ids[:1])[0]
    torch.testing.assert_close(found.none, nothing)
    # A norm bends the path where the heads are almost closed.
    assert 0 < error_of(found) < 0.02 * float((found.whole - nothing).abs().max())
    assert min(of_layer.abs().min() for of_layer in found.tokens) > 0


def test_frozen_weights_are_left_frozen_and_the_error_of_the_gates_is_told() -> None:
    model = Linear().requires_grad_(False)
    found = explained(model)
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert found.classes == [found.label, found.against]
    assert found.error is not None
    odds = np.log(found.probabilities[found.label] / found.probabilities[found.classes[1]])
    assert abs(found.log_odds - odds) == pytest.approx(found.error, abs=1e-5)
    assert found.error < 1e-4
    assert "integrated gradients" in str(found)
