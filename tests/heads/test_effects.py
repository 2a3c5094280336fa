"""Ablating heads of every kind of model: what is left, what cannot be done, effects beyond chance."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from transformers import BertConfig, BertModel, GPT2Config, GPT2Model

import headscope
from heads.planted import Planted, texts
from headscope.attention import MultiHeadAttention
from headscope.data.batching import Batch
from headscope.data.evidence import Ngrams
from headscope.heads.capture import Change, ablate, headed_layers, logits_of
from headscope.heads.effects import (
    INCONCLUSIVE,
    MATTERS,
    NO_EFFECT,
    AblatedRuns,
    ablation_effect,
    outcomes,
)
from headscope.heads.step import Probe, ablate_each_head
from headscope.model.architecture import architecture_from
from headscope.model.classifier import TextClassifier
from headscope.model.objective import ONE_CLASS, MultiLabel, Objective, Reading
from headscope.record.schema import Text
from headscope.settings.config import ModelConfig

B, T, D, H = 3, 6, 16, 4
E = D // H
PADDING = torch.arange(T) >= torch.tensor([6, 4, 5])[:, None]
IDS = torch.randint(1, 50, (B, T), generator=torch.manual_seed(0))
Run = Callable[[], torch.Tensor]


def ours(**options: Any) -> TextClassifier:
    sizes = {"d_model": D, "num_heads": H, "num_layers": 2, "feedforward_size": D}
    return TextClassifier(
        architecture_from(ModelConfig(**sizes, evidence=False, **options), 50, T), 3
    )


def made(kind: str) -> tuple[nn.Module, Run, list[nn.Module]]:
    """Return a random model, a function that runs it, and its output projections."""
    torch.manual_seed(0)
    model: Any
    given: Any = {"input_ids": IDS, "attention_mask": (~PADDING).long()}
    if kind == "GPT2":
        sizes = {"n_embd": D, "n_layer": 2, "n_head": H, "vocab_size": 50, "use_cache": False}
        model = GPT2Model(GPT2Config(**sizes))
        projections = [block.attn.c_proj for block in model.h]
    elif kind.startswith("Bert"):
        sizes = {"hidden_size": D, "num_hidden_layers": 2, "num_attention_heads": H}
        config = BertConfig(vocab_size=50, intermediate_size=D, **sizes)
        config._attn_implementation = kind.split()[1]
        model = BertModel(config)
        projections = [block.attention.output.dense for block in model.encoder.layer]
    elif kind == "torch":  # whose fast path packs padded texts
        layer = nn.TransformerEncoderLayer(D, H, D, batch_first=True)
        model = nn.TransformerEncoder(layer, 2)
        projections = [layer.self_attn.out_proj for layer in model.layers]
        given = {"src": torch.randn(B, T, D).double(), "src_key_padding_mask": PADDING}
    else:
        model = ours(pooling="mean")
        projections = [block.attention.output_projection for block in model.encoder.blocks]
        given = {"token_ids": IDS, "key_padding_mask": PADDING}
    model = model.double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)

    def run() -> torch.Tensor:
        output = model(**given)
        return output if isinstance(output, torch.Tensor) else output[0]

    return model, run, projections


@pytest.fixture(params=["ours", "torch", "Bert sdpa", "Bert eager", "GPT2"])
def case(request: pytest.FixtureRequest) -> tuple[nn.Module, Run, list[nn.Module]]:
    return made(request.param)


nested = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")


@nested
@pytest.mark.usefixtures("unchecked_shapes")
@torch.no_grad()
def test_without_a_head_is_without_its_columns_of_the_output_projection(case: Any) -> None:
    model, run, projections = case
    whole = run()
    found = []
    for name, projection in zip(headed_layers(model), projections, strict=True):
        weight = (
            projection.weight if isinstance(model, GPT2Model) else projection.weight.T
        )  # [D, D]
        for head in range(H):
            kept = weight.clone()
            weight[head * E : (head + 1) * E] = 0
            expected = run()
            weight.copy_(kept)
            with ablate(model, {(name, head): "zero"}):
                found.append(run())
            torch.testing.assert_close(found[-1], expected, rtol=0, atol=1e-12)
    assert all((each - whole).abs().max() > 1e-5 for each in found)
    assert torch.equal(run(), whole)


@nested
@pytest.mark.usefixtures("unchecked_shapes")
@torch.no_grad()
def test_a_uniform_head_looks_alike_at_all_keys_that_it_may_see(case: Any) -> None:
    model, run, _ = case
    whole = run()
    name = list(headed_layers(model))[-1]
    with headscope.capture(model) as plain:
        run()
    with (
        headscope.ablate(model, {(name, 2): "uniform"}),
        headscope.capture(model) as maps,
        headscope.ablate(model, {(name, 1): "uniform"}),
    ):
        changed = run()
    may_see = (~PADDING)[:, None].expand(B, T, T)
    if isinstance(model, GPT2Model):
        may_see = may_see & torch.ones(T, T).tril().bool()
    expected = (may_see.double() / may_see.sum(-1, keepdim=True))[:, None].expand(-1, 2, -1, -1)
    torch.testing.assert_close(maps[name][:, 1:3].double(), expected)
    assert torch.equal(maps[name][:, [0, 3]], plain[name][:, [0, 3]])
    assert (changed - whole).abs().max() > 1e-6
    assert torch.equal(run(), whole)


@torch.no_grad()
def test_layers_have_numbers_and_names() -> None:
    model, run, _ = made("Bert sdpa")
    name = list(headed_layers(model))[-1]
    found = []
    for layer in (name, 1):
        with headscope.ablate(model, {(layer, 1): "uniform", (layer, 0): "zero"}):
            found.append(run())
    assert all(torch.equal(each, found[0]) for each in found)
    assert (found[0] - run()).abs().max() > 1e-5


@pytest.mark.parametrize(
    ("heads", "message"),
    [
        ({(2, 0): "zero"}, "heads: expected one of a layer in .*, by name or number, got 0 of 2"),
        ({("elsewhere", 0): "zero"}, "got 0 of 'elsewhere'"),
        ({(0, 9): "zero"}, r"\['encoder.blocks.0.attention', .* got 9 of 0"),
        ({(0, 0): "mean"}, "heads: expected 'zero' or 'uniform', got 'mean'"),
    ],
)
@pytest.mark.usefixtures("unchecked_shapes")
def test_what_cannot_be_ablated_says_what_can(heads: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message), headscope.ablate(ours(), heads):
        pass


def test_a_text_has_its_probabilities_without_each_head() -> None:
    model, _, _ = made("ours")
    batch = Batch(IDS[:1], None, None, torch.tensor([-1]), torch.tensor([0]))
    probe = Probe(Text("text", [*"abcdef"], ""), batch)
    found = ablate_each_head(model, probe, Reading([*"ABC"], temperature=1.5))
    assert found["without/heads"].shape == (2, H, 3)
    for layer, name in enumerate(headed_layers(model)):
        for head, shares in enumerate(found["without/heads"][layer]):
            with ablate(model, {(name, head): "zero"}), torch.no_grad():
                logits = model(IDS[:1])[0] / 1.5
            np.testing.assert_allclose(shares, logits.softmax(-1), atol=1e-6)


# --- effects ---


@pytest.mark.parametrize("objective", [ONE_CLASS, MultiLabel()], ids=["one", "several"])
@pytest.mark.parametrize("change", ["zero", "uniform"])
def test_the_planted_head_alone_changes_loss_and_accuracy(
    objective: Objective, change: Change
) -> None:
    model = Planted({1: 9.0}, heads=3, looks=True)
    batches = texts()[0]
    if isinstance(objective, MultiLabel):  # the labels that the model gives the texts at 0.5
        batches = [each._replace(labels=(logits_of(model, each) >= 0).long()) for each in batches]
    runs = AblatedRuns(model, batches)
    whole = outcomes(runs, 1, objective, {})
    changes = [
        outcomes(runs, 1, objective, {("attention", head): change}) - whole for head in range(3)
    ]
    assert [bool(each.any()) for each in changes] == [False, True, False]
    loss, accuracy = changes[1].mean(dim=0)
    assert loss > 0
    assert accuracy < 0


# What is computed once for several sets of heads

KINDS: dict[str, dict[str, Any]] = {
    "as it comes": {},
    "one layer": {"num_layers": 1},
    "three layers": {"num_layers": 3},
    "all tokens": {"pooling": "additive", "causal": True},
    "window": {"window": 2},
    "two heads a key": {"num_kv_heads": 2, "positions": "learned"},
    "shared projections": {"attention": "shared_projection"},
    "own attention": {},
}


class Doubled(MultiHeadAttention):
    """A layer of the user's own, whose output is not its output projection."""

    def forward(self, *args: Any, **options: Any) -> Any:
        output, weights = super().forward(*args, **options)
        return 2 * output, weights


def network(**options: Any) -> tuple[TextClassifier, list[Batch]]:
    """Return a random classifier of pairs that reads n-grams, and batches with padding."""
    sizes: dict[str, Any] = {"d_model": 6 * H, "num_heads": H, "feedforward_size": 13}
    model = TextClassifier(architecture_from(ModelConfig(**(sizes | options)), 50, T, 2), 3, 11)
    model = model.double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    assert model.evidence is not None
    nn.init.normal_(model.evidence.ratio)
    batches = []
    for rows in (torch.tensor([0, 1, 2]), torch.tensor([1])):
        grams = Ngrams(torch.arange(11), torch.arange(11) % (T * len(rows)), rows * 0 - 1)
        segments = (torch.arange(T) > 2).long().expand(len(rows), -1)
        given = (IDS[rows], PADDING[rows], segments, rows, rows)
        batches.append(Batch(*given, grams))
    return model, batches


@pytest.mark.parametrize("room", [0, 2000, 2**20])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("unchecked_shapes")
@torch.no_grad()
def test_runs_that_share_heads_give_what_runs_of_the_whole_model_give(
    kind: str, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headscope.heads.effects.MOST_KEPT", room)
    torch.manual_seed(0)
    model, batches = network(**({"num_layers": 2} | KINDS[kind]))
    layer = model.encoder.blocks[0].attention
    if kind == "own attention":
        layer.__class__ = Doubled
    heads = [(name, head) for name in headed_layers(model) for head in range(H)]
    random = np.random.default_rng(0)
    sets: list[Any] = [{}, dict.fromkeys(heads, "zero"), dict.fromkeys(heads[:3], "uniform")]
    for _ in range(5):
        chosen = random.permutation(len(heads))[: random.integers(1, len(heads))]
        sets.append({heads[at]: "zero" for at in chosen})
    calls: list[Any] = []
    with layer.register_forward_hook(lambda *_: calls.append(1)):
        runs = AblatedRuns(model, batches)
        found = [runs.logits(at, ablated) for at in (0, 1) for ablated in sets]
    if room == 2**20 and kind != "own attention":
        assert len(calls) == 2 * 2  # for each batch: once for all sets, once to attend uniformly
    own = [(at, ablated) for at in (0, 1) for ablated in sets]
    for (at, ablated), logits in zip(own, found, strict=True):
        with ablate(model, ablated):
            expected = logits_of(model, batches[at])
        torch.testing.assert_close(logits, expected, rtol=0, atol=1e-12)
    assert (found[0] - found[1]).abs().max() > 1e-3


RANDOM = np.random.default_rng(7)


def increases(mean: float, spread: float, texts: int) -> list[float]:
    values = RANDOM.normal(size=texts)
    return (mean + spread * (values - values.mean()) / values.std(ddof=1)).tolist()


@pytest.mark.parametrize(
    ("mean", "spread", "texts", "state"),
    [
        (0.4, 0.5, 101, MATTERS),
        (-0.4, 0.5, 101, MATTERS),  # it does harm
        (0.0, 0.03, 101, NO_EFFECT),
        (0.004, 0.02, 401, NO_EFFECT),  # surely above 0, and surely too small to count
        (0.02, 0.5, 101, INCONCLUSIVE),
        (0.011, 0.01, 101, INCONCLUSIVE),  # surely above 0, but perhaps below what counts
        (0.4, 0.0, 29, INCONCLUSIVE),  # the same for all texts, of which there are too few
    ],
)
def test_an_effect_has_one_of_three_states(
    mean: float, spread: float, texts: int, state: str
) -> None:
    assert ablation_effect(increases(mean, spread, texts)) == state


def test_more_tests_ask_for_more() -> None:
    values = increases(0.1, 0.4, 101)  # 2.26 errors beyond what counts
    assert ablation_effect(values) == MATTERS
    assert ablation_effect(values, num_tests=100) == INCONCLUSIVE


def test_chance_alone_rarely_makes_a_head_matter() -> None:
    alarms = 0
    for _ in range(200):
        draws = RANDOM.normal(0.01, 0.3, (8, 60))
        alarms += any(ablation_effect(each, 8) != INCONCLUSIVE for each in draws)
    assert alarms / 200 <= 0.08  # 0.05 is promised for a head that lies on the limit
