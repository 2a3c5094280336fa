"""Whether the tokens that a head attends to are those that the prediction rests on.

A chooser ranks a text's tokens; the tokens it ranks highest are hidden, or all others are, and the
probability of the class that the model predicts of the whole text is read again (DeYoung et al.
2020, ERASER, section 4).

Tokens are hidden by the key padding mask, not deleted as in the paper: the others keep their
places, so nothing but the missing tokens can move the prediction, whatever the model makes of
positions. Special tokens ([CLS], [SEP]) are neither ranked nor hidden.

Shape letters: B texts, N texts in all, T positions, L layers, H heads of a layer, A heads of all
layers, Q queries, C choosers, S shares, V variants of a text.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headscope.data.batching import Batch, moved
from headscope.heads.capture import (
    HEADED,
    capture,
    device_of,
    eval_mode,
    headed_layers,
    read_at_first,
    repeat_batch,
)
from headscope.heads.contributions import (
    has_contributions,
    log_odds_direction,
    logit_contributions,
)
from headscope.heads.measures import Maps, Padding, Summary, mean_and_error
from headscope.model.objective import ONE_CLASS, Objective

BINS = (0.01, 0.05, 0.1, 0.2, 0.5)  # the bins of ERASER, section 4
NUM_RANDOM = 5  # random rankings, whose mean is chance
SEED = 0  # of the random rankings
# Run through the model together: memory does not depend on heads, and a CPU's cache is met.
TOKENS_AT_ONCE = 2**13
QUANTITIES = ("comprehensiveness", "sufficiency")
# From a model and texts, padded, to a score of each token [B, T]
Chooser = Callable[[nn.Module, Batch, Objective], Tensor]


@dataclass(frozen=True)
class Faithfulness:
    """What hiding tokens does to the predicted class's probability, for each chooser.

    Both measures are differences of probabilities, averaged over shares of the tokens, then over
    texts: comprehensiveness, p(whole) - p(without the chosen tokens), is high where they were
    needed; sufficiency, p(whole) - p(the chosen tokens alone), is near 0 where they suffice.
    """

    heads: Summary  # layer -> measure -> (mean of each head, standard error of each head)
    # "rollout", "gradient", "contributions" where known, "chance"
    # -> measure -> (mean, standard error)
    choosers: dict[str, dict[str, tuple[float, float]]]
    # Comprehensiveness of rollout less that of chance, text by text: mean and standard error
    rollout_less_chance: tuple[float, float]


def faithfulness(
    model: nn.Module,
    batches: Iterable[Batch],
    special_ids: Sequence[int] = (),
    shares: Sequence[float] = BINS,
    objective: Objective = ONE_CLASS,
    more: Mapping[str, Chooser] | None = None,
) -> Faithfulness | None:
    """Measure every head as a chooser of tokens, beside rollout, gradient x input, and chance.

    Where contributions are exact, so are the tokens that contribute most over all heads; `more`
    has further choosers by name.

    A head ranks tokens by the mass that they receive from it, the mean over queries, of [CLS] alone
    where no other is read, and so does rollout; gradient x input by |sum_d e_d dlog p / de_d| at a
    token's embedding e, what the first nn.Embedding gives, p being the probability of the predicted
    class, the likeliest one. Of n tokens ceil(share * n) are chosen, but never all. Means are over
    the shares; the paper divides by one more, for the bin of no tokens.

    Texts with fewer than two tokens that are not special are left out; None if no text is left.
    Labels are not used. Fewer shares are faster: (0.2,) five times.
    """
    choosers = dict(more or {})
    if has_contributions(model):
        choosers = {"contributions": contributed} | choosers
    random = torch.Generator().manual_seed(SEED)
    parts = []
    with eval_mode(model), torch.inference_mode(False):
        for batch in batches:
            batch = moved(batch, device_of(model))
            padding = batch.key_padding_mask
            if padding is None:
                padding = torch.zeros_like(batch.token_ids).bool()
            batch = batch._replace(key_padding_mask=padding)
            is_special = torch.isin(batch.token_ids, batch.token_ids.new_tensor(special_ids))
            choosable = ~padding & ~is_special  # [B, T]: may be hidden
            chance = torch.rand(NUM_RANDOM, *padding.shape, generator=random).to(padding.device)
            named = [choose(model, batch, objective)[None] for choose in choosers.values()]
            scores = torch.cat([_scores(model, batch, objective), *named, chance])
            differences = _differences(model, batch, choosable, scores, shares, objective)
            parts.append(differences[..., choosable.sum(-1) >= 2].cpu())
    values = torch.cat(parts, dim=-1)
    return _by_chooser(model, values, [*choosers]) if values.shape[-1] else None


def contributed(model: nn.Module, batch: Batch, objective: Objective) -> Float[Tensor, "B T"]:
    """Return what each token adds through all heads to the log-odds of the likeliest class."""
    assert has_contributions(model)
    split = logit_contributions(model, *batch.inputs)
    assert split.tokens is not None
    direction = log_odds_direction(split.logits, objective)
    scores = torch.einsum("blhtc,bc->bt", split.tokens, direction)
    return scores.float().to(batch.token_ids.device)


def _scores(model: nn.Module, batch: Batch, objective: Objective) -> Float[Tensor, "C B T"]:
    """Return how each head, rollout and gradient x input rank the tokens."""
    padding = batch.key_padding_mask
    with torch.enable_grad(), _token_vectors(model) as vectors, capture(model, kind=HEADED) as maps:
        logits = model(*batch.inputs)
        likeliest = objective.log_probabilities(logits).amax(dim=-1).sum()
    (gradient,) = torch.autograd.grad(likeliest, vectors[0])
    saliency = (gradient * vectors[0].detach()).sum(dim=-1).abs()  # [B, T]
    rolled = rollout(list(maps.values()), padding)[:, None]  # [B, 1, T, T]
    read_at = read_at_first(model)
    choosers = [maps[name][:, :, : 1 if name in read_at else None] for name in headed_layers(model)]
    choosers.append(rolled[:, :, : 1 if read_at else None])
    masses = torch.cat([received(weights, padding) for weights in choosers], dim=1)  # [B, A + 1, T]
    return torch.cat([masses.transpose(0, 1), saliency[None]])


@contextmanager
def _token_vectors(model: nn.Module) -> Iterator[list[Tensor]]:
    """Make the output of the first nn.Embedding a leaf, so that it alone gets a gradient."""
    embedding = next(module for module in model.modules() if isinstance(module, nn.Embedding))
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
    """Return R = M_L ... M_1 with M_l = (A_l + I) / 2, and A_l the mean over heads; rows sum to 1.

    R_ij is the share of the last layer's token i that comes from token j of the text, if attention
    alone moved anything: half of each layer's output comes along the residual connection (Abnar and
    Zuidema 2020, Quantifying Attention Flow in Transformers, section 3). Maps are in the order of
    the layers; rows and columns of padding are 0.
    """
    identity = torch.eye(maps[0].shape[-1], dtype=maps[0].dtype, device=maps[0].device)
    product = identity.expand(len(maps[0]), -1, -1)  # [B, T, T]
    for weights in maps:
        product = (weights.mean(dim=1) + identity) / 2 @ product
    if padding is None:
        return product
    return product.masked_fill(padding[:, :, None] | padding[:, None], 0.0)


def received(maps: Maps, padding: Padding = None) -> Float[Tensor, "B H T"]:
    """Return r_j = mean_i a_ij over the queries that are tokens: the mass on each key."""
    if padding is None:
        return maps.mean(dim=-2)
    tokens = (~padding[:, : maps.shape[-2]]).to(maps.dtype)[:, None, :, None]  # [B, 1, Q, 1]
    return (maps * tokens).sum(dim=-2) / tokens.sum(dim=-2).clamp(min=1)


@torch.no_grad()
def _differences(
    model: nn.Module,
    batch: Batch,
    choosable: Bool[Tensor, "B T"],
    scores: Float[Tensor, "C B T"],
    shares: Sequence[float],
    objective: Objective,
) -> Float[Tensor, "2 C B"]:
    """Return comprehensiveness and sufficiency of each chooser and text, means over the shares."""
    padding = batch.key_padding_mask
    assert padding is not None
    whole = _probabilities(model, batch, padding[None], objective)[0]  # [B, classes]
    predicted = whole.argmax(dim=-1)  # [B]
    # Short texts have one number for several shares: it is tried once.
    counts, share_of = _counts(choosable, shares).unique(dim=0, return_inverse=True)
    order = scores.masked_fill(~choosable, -torch.inf).argsort(dim=-1, descending=True, stable=True)
    ranks = order.argsort(dim=-1)  # [C, B, T]: 0 for the highest
    chosen = choosable & (ranks[:, None] < counts[:, :, None])  # [C, S, B, T]
    others = choosable & ~chosen
    hidden = torch.stack([chosen, others]) | padding  # [2, C, S, B, T]
    hiding = _probabilities(model, batch, hidden.flatten(0, 2), objective)  # [2 C S, B, classes]
    likely = hiding.gather(-1, predicted[None, :, None].expand(len(hiding), -1, 1))[..., 0]
    before = whole.gather(-1, predicted[:, None])[:, 0]  # [B]
    change: Tensor = before - likely.unflatten(0, hidden.shape[:3])  # [2, C, S, B]
    return change[:, :, share_of].mean(dim=2)


def _counts(choosable: Bool[Tensor, "B T"], shares: Sequence[float]) -> Int[Tensor, "S B"]:
    """Return the number of tokens in each share of n: ceil(share * n), from 1 to n - 1."""
    n = choosable.sum(dim=-1)  # [B]
    wanted = torch.tensor(shares, dtype=torch.float64, device=n.device)[:, None] * n
    at_least_one = (wanted - 1e-9).ceil().clamp(min=1)  # 0.2 * 15 is a little more than 3
    return torch.minimum(at_least_one, n - 1).long()


def _probabilities(
    model: nn.Module, batch: Batch, hidden: Bool[Tensor, "V B T"], objective: Objective
) -> Float[Tensor, "V B classes"]:
    """Return what the model predicts of each text, with what is hidden in each variant."""
    B, T = batch.token_ids.shape
    parts = []
    for variants in hidden.split(max(1, TOKENS_AT_ONCE // (B * T))):
        repeated = repeat_batch(batch, len(variants))
        logits = model(*repeated._replace(key_padding_mask=variants.flatten(0, 1)).inputs)
        logits = logits.double().unflatten(0, (len(variants), B))
        parts.append(objective.probabilities(logits))
    return torch.cat(parts)


def _by_chooser(
    model: nn.Module, values: Float[Tensor, "2 C N"], more: Sequence[str]
) -> Faithfulness:
    """Give the choosers their names: heads by layer, rollout, gradient, further ones, chance."""
    layers = headed_layers(model)
    sizes = [*(layer.num_heads for layer in layers.values()), 1, 1, len(more), NUM_RANDOM]
    *of_layers, rolled, gradient, others, random = values.split(sizes, dim=1)
    chance = random.mean(dim=1, keepdim=True)
    heads = {
        name: {
            measure: mean_and_error(rows.T) for measure, rows in zip(QUANTITIES, both, strict=True)
        }
        for name, both in zip(layers, of_layers, strict=True)
    }
    single = {"rollout": rolled, "gradient": gradient}
    single |= {name: others[:, place, None] for place, name in enumerate(more)}
    choosers = {
        name: {measure: _single(rows) for measure, rows in zip(QUANTITIES, both, strict=True)}
        for name, both in (single | {"chance": chance}).items()
    }
    return Faithfulness(heads, choosers, _single((rolled - chance)[0]))


def _single(values: Float[Tensor, "1 N"]) -> tuple[float, float]:
    """Return the mean and the standard error of one chooser."""
    (mean,), (error,) = mean_and_error(values.T)
    return mean, error
