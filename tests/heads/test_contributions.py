"""Every network's logits are the sum of its words and biases; `headscope verify` proves the parts."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from heads.kinds import BERT, LLAMA, made
from headscope.data.batching import Batch
from headscope.foreign import fixed_gates
from headscope.foreign.gradients import _fixed_gates
from headscope.heads import contributions
from headscope.heads.capture import ablate, headed_layers
from headscope.heads.contributions import (
    Contributions,
    decompose,
    explain,
    likeliest_log_odds,
    share_among_heads,
)
from headscope.heads.words import mean_contributions
from headscope.model.architecture import architecture_from
from headscope.model.classifier import TextClassifier
from headscope.model.objective import ONE_CLASS, MultiLabel, Objective, Reading
from headscope.record.explanation import TABLE_WIDTH, Explanation, signed
from headscope.settings.config import ModelConfig

B, T, H, L, C, VOCABULARY = 2, 11, 5, 3, 7, 53  # primes, all different: a swapped axis cannot pass
LENGTHS = (11, 7)
KINDS: dict[str, dict[str, Any]] = {
    "rotary": {},
    "learned": {"positions": "learned"},
    "sinusoidal": {"positions": "sinusoidal"},
    "one layer": {"num_layers": 1},
    "grouped": {"num_kv_heads": 1},
    "shared": {"attention": "shared_projection"},
    "window": {"window": 2},
    "causal": {"causal": True, "pooling": "mean"},
    **{name: {"pooling": name} for name in ("mean", "max", "additive", "dot", "general", "concat")},
}
DISENTANGLED = BERT | {"pos_att_type": ["c2p", "p2c"], "relative_attention": True}
OTHERS: dict[str, dict[str, Any]] = {
    "Camembert": BERT,
    "MPNet": BERT,
    "DebertaV2": DISENTANGLED,
    "Deberta": DISENTANGLED,
    "Gemma": LLAMA | {"head_dim": 8},
}
FAMILIES = "Bert Roberta XLMRoberta GPTNeoX Electra Albert DistilBert ModernBert GPT2 Llama Mistral"
FAMILIES += " Qwen3 Camembert MPNet DebertaV2 Deberta Gemma"
IN_FLOAT32 = ("Deberta", "Llama", "Mistral", "Qwen3", "Gemma")  # their norms, in any type


def randomized(model: Any, seed: int = 0) -> Any:
    """Make every parameter random, those of norms and biases too."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model.eval()


def classifier(dtype: torch.dtype = torch.float64, **options: Any) -> Any:
    sizes = {"d_model": 6 * H, "num_heads": H, "num_layers": L, "feedforward_size": 17}
    config = ModelConfig(**({"evidence": False} | sizes | options))
    return randomized(TextClassifier(architecture_from(config, VOCABULARY, T), C).to(dtype))


def inputs(padded: bool = True, pairs: bool = False) -> tuple[Tensor, ...]:
    lengths = torch.tensor(LENGTHS)[:, None]
    padding = torch.arange(T) >= lengths
    ids = torch.randint(5, VOCABULARY, (B, T), generator=torch.manual_seed(1))
    ids[:, 0] = 2
    segments = (torch.arange(T) >= lengths // 2).long() if pairs else None
    return (ids.masked_fill(padding, 0), padding, segments) if padded else (ids, None, segments)  # type: ignore[return-value]


def split(model: nn.Module, given: Sequence[Any]) -> Contributions:
    return decompose(model, given, T, lambda logits: logits)


def parts_of(found: Contributions) -> list[Tensor]:
    return [found.words, found.biases, *found.heads]


def assert_sums(found: Contributions, model: nn.Module, given: Any, tolerance: float) -> None:
    with torch.no_grad():
        logits = model(*given).double()
    torch.testing.assert_close(found.logits.double(), logits, rtol=0, atol=tolerance)
    sums = found.words.sum(dim=1) + found.biases.sum(dim=1)
    torch.testing.assert_close(sums, logits, rtol=0, atol=tolerance)
    assert found.words.abs().sum(dim=(1, 2)).min() > 1e-3, "words say something"
    for heads in found.heads:
        assert heads.abs().sum(dim=(0, 2, 3)).min() > 1e-6, "and so does every head"


def assert_shared(found: Contributions, model: nn.Module, given: Any, tolerance: float) -> None:
    """Check that heads, and what passes through none, sum to words and to biases."""
    shares = share_among_heads(model, given, T, lambda logits: logits)
    words = shares.past + sum(of_layer.sum(dim=1) for of_layer in shares.heads)
    torch.testing.assert_close(words, found.words, rtol=0, atol=tolerance)
    biases = shares.past_biases + sum(of_layer.sum(dim=1) for of_layer in shares.head_biases)
    torch.testing.assert_close(biases, found.biases.sum(dim=1), rtol=0, atol=tolerance)
    for heads in shares.heads:
        assert heads.abs().sum(dim=(0, 2, 3)).min() > 1e-6, "every head has a share"


@pytest.mark.parametrize("kind", KINDS)
def test_words_and_biases_sum_to_the_logits_of_our_networks(kind: str) -> None:
    options, given = KINDS[kind], inputs()
    model = classifier(**options)
    found = split(model, given)
    assert_sums(found, model, given, 1e-12)
    assert_shared(found, model, given, 1e-12)
    if kind in ("rotary", "mean"):
        single = classifier(torch.float32, **options)
        assert_sums(split(single, given), single, given, 2e-5)
    layers = options.get("num_layers", L)
    assert found.words.shape == (B, T, C)
    assert found.biases.shape == (B, layers + 1, C)
    assert [heads.shape for heads in found.heads] == [(B, H, T, C)] * layers
    assert not found.words[1, LENGTHS[1] :].any(), "padding adds nothing"
    alone = split(model, [None if it is None else it[1:] for it in given])
    for of_text, of_batch in zip(parts_of(alone), parts_of(found), strict=True):
        torch.testing.assert_close(of_text[0], of_batch[1], rtol=0, atol=1e-12)


def test_so_do_those_of_pairs_and_evidence() -> None:
    model = TextClassifier(
        architecture_from(
            ModelConfig(d_model=6 * H, num_heads=H, num_layers=2, feedforward_size=17),
            VOCABULARY,
            T,
            num_segments=2,
        ),
        C,
        num_ngrams=31,
    ).double()
    assert model.evidence is not None
    nn.init.normal_(model.evidence.ratio)
    randomized(model)
    places = torch.randint(1, 7, (40,)) + T * torch.arange(40).remainder(B)
    evidence = (torch.randint(31, (40,)), places, torch.full((B,), -1))
    given = (*inputs(pairs=True), evidence)
    found = split(model, given)
    assert_sums(found, model, given, 1e-12)
    assert_shared(found, model, given, 1e-12)


class Logits(nn.Module):
    """A model of transformers, which returns its logits alone."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, token_ids: Tensor) -> Tensor:
        mask = torch.ones_like(token_ids)
        return self.model(input_ids=token_ids, attention_mask=mask).logits  # type: ignore[no-any-return]


@pytest.mark.parametrize("family", FAMILIES.split())
def test_so_do_those_of_transformers(family: str) -> None:
    options = {"num_labels": C, "pad_token_id": 0} | OTHERS.get(family, {})
    model = made(family, "ForSequenceClassification", **options)
    called = randomized(Logits(model.double()))
    given = inputs(padded=False)[:1]
    found = split(called, given)
    tolerance = 3e-6 if family in IN_FLOAT32 else 1e-12
    assert_sums(found, called, given, tolerance)
    assert_shared(found, called, given, tolerance)
    assert [heads.shape for heads in found.heads] == [(B, 4, T, C)] * 2
    alone = split(called, (given[0][1:],))
    torch.testing.assert_close(alone.words[0], found.words[1], rtol=0, atol=1e-6)
    assert found.unknown == ""


class Plain(nn.Module):
    """torch's own encoder, with positions that are a parameter."""

    def __init__(self, activation: Any = "gelu", **options: Any) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 24)
        self.positions = nn.Parameter(torch.zeros(T, 24))
        layer = nn.TransformerEncoderLayer(24, 4, 40, activation=activation, **options)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.is_batch_first = options["batch_first"]
        self.head = nn.Linear(24, C)

    def forward(self, token_ids: Tensor, *_: Any) -> Tensor:
        vectors = self.embedding(token_ids) + self.positions
        if self.is_batch_first:
            return self.head(self.encoder(vectors).mean(dim=1))  # type: ignore[no-any-return]
        return self.head(self.encoder(vectors.transpose(0, 1)).mean(dim=0))  # type: ignore[no-any-return]


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
def test_so_do_those_of_torch(batch_first: bool, norm_first: bool) -> None:
    model = randomized(Plain(batch_first=batch_first, norm_first=norm_first).double())
    given = (inputs(padded=False)[0][:1],)
    found = split(model, given)
    assert_sums(found, model, given, 1e-12)
    assert_shared(found, model, given, 1e-12)
    assert [heads.shape for heads in found.heads] == [(1, 4, T, C)] * 2


def gelu_written_out(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3))))


@pytest.mark.parametrize(
    "activation",
    [
        gelu_written_out,
        lambda x: x * torch.sigmoid(1.702 * x),
        lambda x: x * torch.tanh(nn.functional.softplus(x)),
        lambda x: x * 0.5 * (1 + torch.erf(x / math.sqrt(2))),
        lambda x: torch.relu(x) ** 2,
        nn.functional.softplus,
        torch.sigmoid,
    ],
)
def test_so_do_those_with_an_activation_written_out(activation: Any) -> None:
    model = randomized(Plain(activation, batch_first=True).double())
    given = (inputs(padded=False)[0][:1],)
    assert_sums(split(model, given), model, given, 1e-12)


class Squared(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * x.roll(1, dims=-1)  # a product that no rule covers


def test_what_no_rule_covers_is_missed_and_its_module_named() -> None:
    model = randomized(Plain(Squared(), batch_first=True).double())
    found = split(model, (inputs(padded=False)[0][:1],))
    assert found.missed.abs().max() > 1e-2
    assert found.unknown == "encoder.layers.0.activation (Squared)"
    text = Batch(inputs(padded=False)[0][:1], None, None, torch.tensor([-1]), torch.tensor([0]))
    words = str(explain(model, text, [*"abcdefghijk"], Reading([*"ABCDEFG"])))
    assert "not attributed: " in words
    assert "by encoder.layers.0.activation (Squared)" in words


class Tripled(torch.autograd.Function):
    """A function of a module's own, of whose gradients several cannot be taken at once."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return 3 * x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return torch.from_numpy(3 * gradients[0].numpy())


def test_heads_share_where_gradients_are_taken_one_by_one() -> None:
    model = randomized(Plain(Tripled.apply, batch_first=True).double())
    given = (inputs(padded=False)[0][:1],)
    with pytest.raises(RuntimeError), _fixed_gates(model, given, T) as (gates, logits):
        rows = torch.eye(C).double()
        torch.autograd.grad(logits.sum(dim=0), gates.leaves, rows, is_grads_batched=True)
    found = split(model, given)
    assert_sums(found, model, given, 1e-12)
    assert_shared(found, model, given, 1e-12)


def test_the_heads_of_one_layer_share_what_passes_through_them_at_each_position() -> None:
    model, given = classifier(num_layers=1), inputs()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
    shares = share_among_heads(model, given, T, lambda logits: logits)
    (through,) = split(model, given).heads
    torch.testing.assert_close(shares.heads[0], through, rtol=0, atol=1e-12)
    assert not shares.past[:, 1:].any(), "where [CLS] is read"


def test_an_ablated_head_has_no_share() -> None:
    model, given = classifier(), inputs()
    name = [*headed_layers(model)][1]
    with ablate(model, {(name, 2): "zero"}):
        shares = share_among_heads(model, given, T, lambda logits: logits)
    assert not shares.heads[1][:, 2].any()
    assert not shares.head_biases[1][:, 2].any()


@pytest.mark.parametrize("rule", ["softmax", "scaled_dot_product_attention", "layer_norm", "gelu"])
def test_a_gate_that_is_not_held_would_be_found_out(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(fixed_gates.RULES, rule)
    monkeypatch.setattr(contributions, "is_linear_here", lambda model: False)
    model = classifier(num_layers=2, pooling="additive")
    assert split(model, inputs()).missed.abs().max() > 1e-3


@pytest.mark.parametrize(
    "activation", [nn.functional.gelu, nn.functional.silu, torch.relu, torch.tanh, torch.sigmoid]
)
def test_the_gate_of_an_activation_is_its_output_less_that_of_0_as_a_share(activation: Any) -> None:
    vectors = torch.linspace(-3, 3, 8).double().requires_grad_()
    with fixed_gates.FixedGates(1, 8):
        output = activation(vectors)
    (gate,) = torch.autograd.grad(output.sum(), vectors)
    torch.testing.assert_close(output, activation(vectors))
    zero = activation(torch.zeros(1, dtype=torch.float64))
    torch.testing.assert_close(gate, ((output - zero) / vectors).detach())


@pytest.mark.parametrize("change", ["zero", "uniform"])
def test_with_a_head_ablated_the_parts_are_those_of_that_network(change: Any) -> None:
    model, given = classifier(), inputs()
    name = [*headed_layers(model)][2]
    with ablate(model, {(name, 1): change}):
        found = split(model, given)
        assert_sums_of = model.eval()(*given).double()
    sums = found.words.sum(dim=1) + found.biases.sum(dim=1)
    torch.testing.assert_close(sums, assert_sums_of, rtol=0, atol=1e-12)
    assert bool(found.heads[2][:, 1].any()) == (change == "uniform")


@pytest.mark.parametrize("objective", [ONE_CLASS, MultiLabel()], ids=["one", "any number"])
def test_the_likeliest_class_is_held_against_the_runner_up_or_its_absence(
    objective: Objective,
) -> None:
    logits = torch.tensor([[0.5, -1.0, 2.0], [3.0, 2.5, -4.0]])
    against = [0.0, 0.0] if isinstance(objective, MultiLabel) else [0.5, 2.5]
    expected = torch.tensor([[2.0 - against[0]], [3.0 - against[1]]])
    torch.testing.assert_close(likeliest_log_odds(logits, objective), expected)


def explained(objective: Objective = ONE_CLASS, **options: Any) -> Explanation:
    model, ids = classifier(num_layers=2), inputs(padded=False)[0][:1]
    batch = Batch(ids, None, None, torch.tensor([-1]), torch.tensor([0]))
    reading = Reading([*"ABCDEFG"], objective, 1.7)
    found = explain(model, batch, [*"abcdefghija"], reading, **options)
    shares = objective.probabilities(model(ids)[0].detach() / 1.7).tolist()
    assert [*found.probabilities.values()] == pytest.approx(shares, abs=1e-9)
    return found


@pytest.mark.parametrize("objective", [ONE_CLASS, MultiLabel()], ids=["one", "any number"])
@pytest.mark.parametrize("label", [None, "D"])
def test_the_parts_sum_to_the_log_odds_of_the_probabilities(
    objective: Objective, label: str | None
) -> None:
    found = explained(objective, label=label)
    assert found.label == (label or max(found.probabilities, key=found.probabilities.__getitem__))
    share = found.probabilities[found.label]
    other = 1 - share if found.against is None else found.probabilities[found.against]
    log_odds = math.log(share / other)
    assert found.log_odds == pytest.approx(log_odds, abs=1e-9)
    assert found.words.sum() + found.biases == pytest.approx(log_odds, abs=1e-9)
    assert abs(found.miss) < 1e-9
    np.testing.assert_allclose(found.heads.sum(axis=(0, 1)) + found.past, found.words, atol=1e-12)
    assert found.head_biases.sum() + found.past_biases == pytest.approx(found.biases, abs=1e-12)
    rest = found.past.sum() + found.past_biases
    assert found.head_sums.sum() + rest == pytest.approx(log_odds, abs=1e-9)
    assert found.map(1, 2).shape == (T, T)
    np.testing.assert_allclose(found.maps.sum(axis=(2, 3)), found.through, atol=1e-12)


def test_of_many_classes_the_two_and_the_likeliest_are_kept() -> None:
    found = explained(label="B", num_classes=4)
    assert found.classes[:2] == ["B", found.against]
    assert len(found.classes) == 4
    arrays = found.arrays()
    assert arrays["contributions/shown"].tolist() == [1, "ABCDEFG".index(found.against)]
    assert arrays["contributions/heads"].shape == (2, H, T, 4)
    sums = arrays["contributions/words"].sum(axis=0) + arrays["contributions/biases"]
    np.testing.assert_allclose(sums, arrays["contributions/log_odds"], atol=1e-5)


def test_an_explanation_is_printed_words_first() -> None:
    found = replace(explained(), empty=-0.25)
    words = found.ranked_words()
    assert len(words) == T - 1, "equal words are one"
    assert dict(words)["a"] == pytest.approx(found.words[0] + found.words[-1])
    lines = str(found).splitlines()
    assert lines[0].endswith(f"log-odds {signed(found.log_odds)}")
    assert lines[1].startswith(f"words: {words[0][0]} {signed(words[0][1])}; ")
    size = abs(found.biases / found.log_odds)
    assert lines[2] == (
        f"biases: {signed(found.biases)} ({size:.2f} of the log-odds in size; "
        "an empty text has log-odds of -0.25)"
    )
    assert lines[3].split()[-3:] == ["others", "biases", "sum"]
    layer, head = divmod(int(np.abs(found.head_sums).argmax()), H)
    assert lines[4].split()[:4] == ["layer", str(layer), "head", str(head)]
    assert lines[4].split()[-1] == signed(found.head_sums[layer, head])
    assert lines[-2].startswith("past every head ")
    assert lines[-1].split()[0] == "all"
    total = signed(float(found.words.sum()) + found.biases)
    assert lines[-1].split()[-2:] == [signed(found.biases), total]
    assert {len(line) for line in lines[3:]} == {len(lines[3])}
    assert len(lines[3]) <= TABLE_WIDTH


def test_words_are_sums_of_their_pieces_and_the_start_and_end_of_the_text_are_no_words() -> None:
    spans = [("warm", 1, 3), (",", 3, 4), ("film", 4, 6), ("ref", 6, 7), ("warm", 7, 9)]
    found = replace(explained(), spans=spans)  # [0], [9], [10] are in no word
    words = dict(found.ranked_words())
    sums = {"warm": found.words[[1, 2, 7, 8]].sum(), ",": found.words[3]}
    sums |= {"film": found.words[4:6].sum(), "ref": found.words[6]}
    assert words == pytest.approx(sums, abs=1e-12)
    ends = found.words[[0, 9, 10]].sum()
    total = sum(words.values()) + ends + found.biases + found.miss
    assert total == pytest.approx(found.log_odds, abs=1e-12)
    lines = str(found).splitlines()
    assert lines[1].endswith(f"; all {signed(sum(words.values()))}")
    assert lines[2] == f"start and end of the text: {signed(ends)}"
    assert lines[3].startswith("biases: ")
    assert lines[4].split()[-4:] == ["others", "ends", "biases", "sum"]
    assert lines[-1].split()[-3] == signed(ends)
    assert str(replace(found, spans=[])).splitlines()[1] == "words: all 0.00"


def test_mean_contributions_are_those_of_each_text() -> None:
    model, (ids, padding, _) = classifier(num_layers=2), inputs()
    batch = Batch(ids, padding, None, torch.tensor([-1, -1]), torch.tensor([0, 1]))
    found = mean_contributions(model, [batch, batch], Reading([*"ABCDEFG"], temperature=2.0))
    assert (found.texts, found.against) == (2 * B, "the runner-up")
    mean = likeliest_log_odds(model(ids, padding) / 2, ONE_CLASS).mean().item()
    last = sum(found.heads[1]) + found.past[1] + found.biases[2]
    assert last == pytest.approx(mean, abs=1e-9)


@pytest.mark.parametrize(
    ("value", "words"), [(3.14159, "+3.14"), (-0.251, "-0.25"), (0.001, "0.00"), (-0.001, "0.00")]
)
def test_a_contribution_has_a_sign_and_two_digits(value: float, words: str) -> None:
    assert signed(value) == words
