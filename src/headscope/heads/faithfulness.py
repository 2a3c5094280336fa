"""Whether the tokens that a head looks at are those that the prediction rests on.

A chooser ranks a text's tokens; the tokens it ranks highest are hidden, or all others are, and the probability of the
class that the model predicts of the whole text is read again (DeYoung et al. 2020, ERASER, section 4).

Tokens are hidden by the key padding mask, not deleted as in the paper: the others keep their places, so nothing but
the missing tokens can move the prediction, whatever the model makes of positions. Special tokens ([CLS], [SEP]) are
neither ranked nor hidden.

Shape letters: B texts, T positions, L layers, H heads of a layer, N heads of all layers, Q queries, C choosers,
S shares, R rankings, V variants of a text.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headscope.data.batching import Batch, moved
from headscope.heads.capture import HEADED, capture, device_of, eval_mode, headed_layers
from headscope.heads.measures import Maps, Padding, Summary, mean_and_error
from headscope.model.objective import ONE_CLASS, Objective

BINS = (0.01, 0.05, 0.1, 0.2, 0.5)  # the bins of ERASER, section 4
TOKENS_AT_ONCE = (
    2**13
)  # run through the model together: memory does not depend on heads, and a CPU's cache is met
QUANTITIES = ("comprehensiveness", "sufficiency")


@dataclass(frozen=True)
class Faithfulness:
    """What hiding tokens does to the predicted class's probability, for each chooser.

    Both measures are differences of probabilities, averaged over shares of the tokens, then over texts:
    comprehensiveness, p(whole) - p(without the chosen tokens), is high where they were needed; sufficiency,
    p(whole) - p(the chosen tokens alone), is near 0 where they suffice.
    """

    heads: Summary  # layer -> measure -> (mean of each head, standard error of each head)
    # "rollout", "gradient" or "chance" -> measure -> (mean, standard error)
    choosers: dict[str, dict[str, tuple[float, float]]]
    # Comprehensiveness of rollout less that of chance, text by text: mean and standard error
    rollout_less_chance: tuple[float, float]
    texts: int  # how many texts were measured


def faithfulness(
    model: nn.Module,
    batches: Iterable[Batch],
    special_ids: Sequence[int] = (),
    shares: Sequence[float] = BINS,
    embedding: nn.Module | None = None,
    rankings: int = 5,
    seed: int = 0,
    objective: Objective = ONE_CLASS,
) -> Faithfulness:
    """Measure every head as a chooser of tokens, beside rollout, gradient x input, and chance.

    A head ranks tokens by the mass that they receive from it, the mean over queries, and so does rollout, whatever the
    pooling; gradient x input by |sum_d e_d dlog p / de_d| at a token's embedding e, p being the probability of the
    predicted class, the likeliest one. Of n tokens ceil(share * n) are chosen, but never all. Means are over the
    shares; the paper divides by one more, for the bin of no tokens.

    Args:
        model: called with token ids, key padding mask and segment ids; returns logits.
        batches: texts, whose labels are not used; those with fewer than two tokens that are not special are passed
        over.
        special_ids: ids of the tokens that always stay.
        shares: of the tokens; (0.2,) is five times as fast.
        embedding: the module that gives a vector [B, T, D] for each token; by default the first nn.Embedding.
        rankings: random ones, drawn by `seed`, whose mean is chance.
        seed: see above.
        objective: what the labels are, which decides about probabilities.

    Raises:
        ValueError: if no text can be measured.
    """
    random, parts = torch.Generator().manual_seed(seed), []
    embedding = embedding or next(
        module for module in model.modules() if isinstance(module, nn.Embedding)
    )
    with eval_mode(model), torch.inference_mode(False):
        for batch in batches:
            inputs = _Inputs.of(model, batch, special_ids)
            chance = torch.rand(rankings, *inputs.padding.shape, generator=random).to(
                inputs.padding.device
            )
            scores = torch.cat([_scores(model, inputs, embedding, objective), chance])
            differences = _differences(model, inputs, scores, shares, objective)
            parts.append(differences[..., inputs.choosable.sum(-1) >= 2].cpu())
    values = torch.cat(parts, dim=-1) if parts else torch.empty(2, 0, 0)
    if not values.shape[-1]:
        raise ValueError("needs texts with at least two tokens that are not special")
    return _result(model, values)


@dataclass(frozen=True)
class _Inputs:
    """A batch on the model's device; `choosable` is True at tokens that may be hidden."""

    batch: Batch
    padding: Bool[Tensor, "B T"]
    choosable: Bool[Tensor, "B T"]

    @classmethod
    def of(cls, model: nn.Module, batch: Batch, special_ids: Sequence[int]) -> "_Inputs":
        batch = moved(batch, device_of(model))
        ids, mask = batch.token_ids, batch.key_padding_mask
        padding = torch.zeros_like(ids, dtype=torch.bool) if mask is None else mask
        return cls(batch, padding, ~padding & ~torch.isin(ids, ids.new_tensor(list(special_ids))))


def _scores(
    model: nn.Module, inputs: _Inputs, embedding: nn.Module, objective: Objective
) -> Float[Tensor, "C B T"]:
    """Return how each head, rollout and gradient x input rank the tokens."""
    with torch.enable_grad(), _leaf(embedding) as leaves, capture(model, kind=HEADED) as maps:
        logits = model(*inputs.batch._replace(key_padding_mask=inputs.padding).inputs)
        likeliest = objective.log_probabilities(logits).amax(dim=-1).sum()
    gradient = torch.autograd.grad(likeliest, leaves[0])[0]
    saliency = (gradient * leaves[0].detach()).sum(dim=-1).abs()  # [B, T]
    heads = torch.cat(
        [received(maps[name], inputs.padding) for name in headed_layers(model)], dim=1
    )  # [B, N, T]
    rolled = received(
        rollout(list(maps.values()), inputs.padding)[:, None], inputs.padding
    )  # [B, 1, T]
    return torch.cat([heads.transpose(0, 1), rolled.transpose(0, 1), saliency[None]])


@contextmanager
def _leaf(embedding: nn.Module) -> Iterator[list[Tensor]]:
    """Make what the module gives a leaf of the graph, so that it alone gets a gradient."""
    leaves: list[Tensor] = []

    def cut(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
        leaves.append(output.detach().requires_grad_())
        return leaves[-1]

    handle = embedding.register_forward_hook(cut)
    try:
        yield leaves
    finally:
        handle.remove()


def rollout(maps: Sequence[Maps], padding: Padding = None) -> Float[Tensor, "B T T"]:
    """Return R = M_L ... M_2 M_1 with M_l = (A_l + I) / 2, and A_l the mean over the heads of layer l; rows sum to 1.

    R_ij is the share of the last layer's token i that comes from token j of the text, if attention alone moved
    anything: half of each layer's output comes along the residual connection (Abnar and Zuidema 2020, Quantifying
    Attention Flow in Transformers, section 3). Maps are in the order of the layers; rows and columns of padding are 0.
    """
    identity = torch.eye(maps[0].shape[-1], dtype=maps[0].dtype, device=maps[0].device)
    product = identity.expand(len(maps[0]), -1, -1)  # [B, T, T]
    for weights in maps:
        product = (weights.mean(dim=1) + identity) / 2 @ product
    if padding is None:
        return product
    return product.masked_fill(padding[:, :, None] | padding[:, None], 0.0)


def received(maps: Maps, padding: Padding = None) -> Float[Tensor, "B H T"]:
    """Return r_j = mean_i a_ij over the queries that are tokens: the mass that each key gets, summing to 1."""
    if padding is None:
        return maps.mean(dim=-2)
    tokens = (~padding).to(maps.dtype)[:, None, :, None]  # [B, 1, Q, 1]
    return (maps * tokens).sum(dim=-2) / tokens.sum(dim=-2).clamp(min=1)


@torch.no_grad()
def _differences(
    model: nn.Module,
    inputs: _Inputs,
    scores: Float[Tensor, "C B T"],
    shares: Sequence[float],
    objective: Objective,
) -> Float[Tensor, "2 C B"]:
    """Return comprehensiveness and sufficiency of each chooser and text, means over the shares."""
    whole = _probabilities(model, inputs, inputs.padding[None], objective)[0]  # [B, classes]
    predicted = whole.argmax(dim=-1)  # [B]
    # Short texts have one number for several shares: it is tried once.
    counts, share_of = _counts(inputs.choosable, shares).unique(dim=0, return_inverse=True)
    chosen = _ranks(scores, inputs.choosable)[:, None] < counts[:, :, None]  # [C, S, B, T]
    others = inputs.choosable & ~chosen
    hidden = torch.stack([chosen, others]) | inputs.padding  # [2, C, S, B, T]
    found = _probabilities(model, inputs, hidden.flatten(0, 2), objective)  # [2 C S, B, classes]
    likely = found.gather(-1, predicted[None, :, None].expand(len(found), -1, 1))[..., 0]
    change: Tensor = whole.gather(-1, predicted[:, None])[:, 0] - likely.unflatten(
        0, hidden.shape[:3]
    )  # [2, C, S, B]
    return change[:, :, share_of].mean(dim=2)


def _counts(choosable: Bool[Tensor, "B T"], shares: Sequence[float]) -> Int[Tensor, "S B"]:
    """Return how many tokens each share of a text is: ceil(share * n), at least one and never all."""
    n = choosable.sum(dim=-1)  # [B]
    wanted = torch.tensor(shares, dtype=torch.float64, device=n.device)[:, None] * n
    return torch.minimum(
        (wanted - 1e-9).ceil().clamp(min=1), n - 1
    ).long()  # 0.2 * 15 is a little more than 3


def _ranks(scores: Float[Tensor, "C B T"], choosable: Bool[Tensor, "B T"]) -> Int[Tensor, "C B T"]:
    """Return each token's place, 0 for the highest; those that may not be chosen come last, as T."""
    scores = scores.masked_fill(~choosable, -torch.inf)
    order = scores.argsort(dim=-1, descending=True, stable=True)
    places = torch.arange(scores.shape[-1], device=scores.device).expand_as(order)
    return (
        torch.empty_like(order)
        .scatter_(-1, order, places)
        .masked_fill(~choosable, scores.shape[-1])
    )


def _probabilities(
    model: nn.Module, inputs: _Inputs, hidden: Bool[Tensor, "V B T"], objective: Objective
) -> Float[Tensor, "V B classes"]:
    """Return what the model predicts of each text, with what is hidden in each variant."""
    token_ids, _, segment_ids, *_ = inputs.batch
    B, T = token_ids.shape
    found = []
    for part in hidden.split(max(1, TOKENS_AT_ONCE // (B * T))):
        times = len(part)
        segments = None if segment_ids is None else segment_ids.repeat(times, 1)
        evidence = (
            () if inputs.batch.evidence is None else (inputs.batch.evidence.repeated(times, T),)
        )
        logits = model(token_ids.repeat(times, 1), part.flatten(0, 1), segments, *evidence)
        found.append(objective.probabilities(logits.double().unflatten(0, (times, B))))
    return torch.cat(found)


def _result(model: nn.Module, values: Float[Tensor, "2 C N"]) -> Faithfulness:
    """Give the choosers their names: the heads, layer by layer, rollout, gradient, and the rest are chance."""
    sizes = [layer.num_heads for layer in headed_layers(model).values()]
    *layers, rolled, gradient, chance = values.split(
        [*sizes, 1, 1, values.shape[1] - sum(sizes) - 2], dim=1
    )
    heads = {
        name: {measure: mean_and_error(layer[row].T) for row, measure in enumerate(QUANTITIES)}
        for name, layer in zip(headed_layers(model), layers, strict=True)
    }
    choosers: dict[str, dict[str, tuple[float, float]]] = {}
    for name, value in (
        ("rollout", rolled),
        ("gradient", gradient),
        ("chance", chance.mean(dim=1, keepdim=True)),
    ):
        for row, measure in enumerate(QUANTITIES):
            (mean,), (error,) = mean_and_error(value[row].T)
            choosers.setdefault(name, {})[measure] = mean, error
    (mean,), (error,) = mean_and_error((rolled - chance.mean(dim=1, keepdim=True))[0].T)
    return Faithfulness(heads, choosers, (mean, error), values.shape[-1])
