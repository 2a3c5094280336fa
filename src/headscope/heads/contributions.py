"""Why a text is given a class: each log-odds as an exact sum, for any network.

With attention weights, the scales of norms and the gates of activations held fixed at what this
text gave them, a network is linear in the vectors of its tokens and in its biases together
(`headscope.heads.linear`, or `headscope.foreign` for what is not ours), so a logit is a sum
(CP-LRP, Ali et al. 2022):

    logit_c = sum_t word_tc + sum_b bias_bc
    word_tc = sum of x . d logit_c / dx over the vectors x of token t: embedding, position, evidence

`headscope.heads.linear` splits these over the heads of all layers. For each layer apart, what
passes through a head at a key position is cheaper (one gradient):

    through_lhtc = sum_q a_lhqt v_lht . d logit_c / dz_lhq,   z_lhq = sum_t a_lhqt v_lht
    logit_c = sum_ht through_lhtc + what goes past layer l + the biases that are added above

From the second layer on a position's vector is mixed: what passes from position t is not the word
t's alone. None of these is the effect of removing a word: weights, scales and gates would change.

One unit everywhere: contributions are to the log-odds of a class against another, or against its
absence, of logits divided by the temperature. So they sum to the log-odds of the very probabilities
beside them; +1 nat multiplies the odds by e = 2.7.

Shape letters: B texts, L layers, H heads, Q queries, K keys, T tokens, E head
width, C classes, S sums that are split.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from headscope.data.batching import Batch, moved
from headscope.heads.capture import device_of, eval_mode, headed_layers
from headscope.heads.linear import FixedNetwork, Shares, Words, is_linear_here
from headscope.model.objective import MultiLabel, Objective, Reading
from headscope.model.others import others
from headscope.record.explanation import Explanation, KnownCells, Place

SumsOf = Callable[[Float[Tensor, "B C"]], Float[Tensor, "B S"]]  # linear, without a constant

# Of a batch that is split, padding included: every map is kept for it, in float32.
SPLIT_TOKENS = 2048
CHANGED = (
    "explanation: expected the model that explained the text, for its table of heads and words; "
    "its weights have changed: explain the text again"
)


@dataclass(frozen=True)
class Contributions:
    """The parts of S sums of the logits of B texts, layer by layer.

    Attributes:
        words: of each token; 0 at padding.
        heads: of each layer that is observed, what passes through each head from each position.
        biases: those that are added before the attention of each layer, and after the last.
        totals: the sums themselves: words and biases add up to them, but for what is missed.
        logits: of the model.
        unknown: the first module whose output is not the sum of its parts; "" if nothing is missed.
    """

    words: Float[Tensor, "B T S"]
    heads: list[Float[Tensor, "B _ _ S"]]  # [B, H, K, S] each
    biases: Float[Tensor, "B layers_and_1 S"]
    totals: Float[Tensor, "B S"]
    logits: Float[Tensor, "B C"]
    unknown: str = ""

    @property
    def missed(self) -> Float[Tensor, "B S"]:
        """What of the totals is in no part."""
        return self.totals - self.words.sum(dim=1) - self.biases.sum(dim=1)

    @property
    def past(self) -> Float[Tensor, "B L S"]:
        """What goes past each layer: the rest, since all parts sum to the total."""
        above = self.biases.flip(1).cumsum(dim=1).flip(1)[:, 1:]  # [B, L, S]
        if not self.heads:
            return above
        through = torch.stack([heads.sum(dim=(1, 2)) for heads in self.heads], dim=1)
        return (self.totals - self.missed)[:, None] - through - above


def decompose(
    model: nn.Module, inputs: Sequence[Any], num_tokens: int, sums_of: SumsOf
) -> Contributions:
    """Run the model in eval mode, and split sums of its logits into the parts of the network.

    One forward pass, and a gradient for each of the S sums. Products are exact float32, on a GPU
    too; the parts are float64 on the CPU.

    Args:
        model: any module that returns logits [B, C]; for several texts, one whose layers have the
            texts in their first dimension.
        inputs: what it is called with, token ids [B, T] first. The vectors of the tokens are what
            an embedding looks up for ids [B, T], and constants [T, D] that are added to them.
        num_tokens: T, padding included.
        sums_of: from the logits to the sums, such as `lambda logits: logits[:, :1]`.
    """
    if is_linear_here(model):
        with _exact(model):
            network = FixedNetwork.of(model, inputs)
            sums, directions = _directions(network, sums_of)
            return _of_linear(network, sums, network.words(directions))
    found: Contributions = others().gradients.decompose(model, inputs, num_tokens, sums_of)
    return found


@contextmanager
def _exact(model: nn.Module) -> Iterator[None]:
    """Run a model in eval mode, and multiply in full precision, without gradients."""
    with eval_mode(model), torch.autocast(device_of(model).type, enabled=False), _products():
        yield


@contextmanager
def _products() -> Iterator[None]:
    """Multiply in full precision what may still need a gradient: no inference mode."""
    with torch.inference_mode(False), torch.no_grad(), exact_products():
        yield


def _directions(
    network: FixedNetwork, sums_of: SumsOf
) -> tuple[Float[Tensor, "B S"], Float[Tensor, "S B C"]]:
    """Return the sums, and how much of each logit is in them."""
    with torch.inference_mode(False), torch.enable_grad():
        logits = network.logits.cpu().double().clone().requires_grad_()
        sums = sums_of(logits)
        found = [
            torch.autograd.grad(each.sum(), logits, retain_graph=True)[0]
            for each in sums.unbind(dim=1)
        ]
    return sums.detach(), torch.stack(found).to(network.logits)


def _of_linear(network: FixedNetwork, sums: Float[Tensor, "B S"], found: Words) -> Contributions:
    heads = []
    for block, rows in zip(network.blocks, found.heads, strict=True):
        at_values = block.attention.at_values(rows)  # [S, B, H, K, E]
        passing = (at_values * block.attention.values).sum(dim=-1)
        heads.append(passing.permute(1, 2, 3, 0).cpu().double())
    biases = [torch.as_tensor(each).expand(sums.T.shape) for each in found.biases]
    return Contributions(
        found.tokens.permute(1, 2, 0).cpu().double(),
        heads,
        torch.stack(biases).permute(2, 0, 1).cpu().double(),
        sums,
        network.logits.cpu(),
    )


def _shares_of_linear(network: FixedNetwork, directions: Float[Tensor, "S B C"]) -> Shares:
    every = [range(len(block.attention.value_weight)) for block in network.blocks]
    found = network.shares(directions, every)
    past, past_biases = _past_of_linear(network, directions)
    return Shares(
        [tokens.permute(2, 0, 3, 1) for tokens, _ in found],  # [B, H, T, S]
        [bias.permute(2, 0, 1) for _, bias in found],
        past,
        past_biases,
        torch.zeros_like(past_biases),
    )


def _past_of_linear(
    network: FixedNetwork, directions: Float[Tensor, "S B C"]
) -> tuple[Float[Tensor, "B T S"], Float[Tensor, "B S"]]:
    tokens, biases = network.past(directions)
    return tokens.permute(1, 2, 0).cpu().double(), biases.T.cpu().double()


def passing(call: Any, gradient: Tensor) -> Float[Tensor, "B H Q K"]:
    """Return what passes from each key at each query: a_qk v_k . g_q."""
    at_outputs = gradient.reshape(*call.weights.shape[:3], -1)  # [B, H, Q, E]
    amounts: Tensor = call.weights * (at_outputs @ call.values.transpose(-2, -1))
    return amounts


def share_among_heads(
    model: nn.Module, inputs: Sequence[Any], num_tokens: int, sums_of: SumsOf
) -> Shares:
    """Run the model, and let its heads share every token and bias. Arguments as in `decompose`."""
    if is_linear_here(model):
        with _exact(model):
            network = FixedNetwork.of(model, inputs)
            return _shares_of_linear(network, _directions(network, sums_of)[1])
    found: Shares = others().gradients.shares(model, inputs, num_tokens, sums_of)
    return found


@contextmanager
def exact_products() -> Iterator[None]:
    """Multiply matrices in full float32, not in TensorFloat-32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


# The classes of a text


def likeliest_log_odds(logits: Float[Tensor, "B C"], objective: Objective) -> Float[Tensor, "B 1"]:
    """Return the log-odds of each text's likeliest class against the runner-up, or its absence."""
    if isinstance(objective, MultiLabel):
        return logits.amax(dim=-1, keepdim=True)
    best = logits.topk(2, dim=-1).values  # [B, 2]
    return best[:, :1] - best[:, 1:]


def split_likeliest(model: nn.Module, batch: Batch, reading: Reading) -> Contributions:
    """Split the log-odds of each text's likeliest class, see `likeliest_log_odds`."""
    read = batch._replace(features=None)  # through a frozen encoder, to the words
    return decompose(
        model,
        moved(read, device_of(model)).inputs,
        batch.token_ids.shape[1],
        lambda logits: likeliest_log_odds(reading.scaled(logits), reading.objective),
    )


def explain(
    model: nn.Module,
    batch: Batch,
    tokens: Sequence[str],
    reading: Reading,
    label: str | None = None,
    num_classes: int = 2,
) -> Explanation:
    """Return why a text, a batch of its own without padding, is given a class.

    `label` is the class that is explained, by default the likeliest; it is held against the
    likeliest other, or against its absence where a text may have any number of classes. The parts
    are those of the two, and of the likeliest ones up to `num_classes`.
    """
    classes = reading.classes
    pair = 1 if isinstance(reading.objective, MultiLabel) else 2

    def probabilities(logits: Float[Tensor, "1 C"]) -> Float[Tensor, " C"]:
        return reading.probabilities(logits[0].detach().double())

    def kept(logits: Float[Tensor, "1 C"]) -> list[int]:
        order: list[int] = probabilities(logits).argsort(descending=True, stable=True).tolist()
        if label is not None:
            order.sort(key=lambda number: classes[number] != label)
        return order[: max(num_classes, pair)]

    def sums(logits: Float[Tensor, "1 C"]) -> Float[Tensor, "1 S"]:
        scaled = reading.scaled(logits[:, kept(logits)])
        return scaled if pair == 1 else scaled[:, :-1] - scaled[:, -1:]  # S = K - 1

    inputs = moved(batch, device_of(model)).inputs
    parts, arrays = _arrays(model, inputs, len(tokens), sums, has_pair=pair == 2)
    names = [classes[number] for number in kept(parts.logits)]
    return Explanation(
        label=names[0],
        against=names[1] if pair == 2 else None,
        probabilities=dict(zip(classes, probabilities(parts.logits).tolist(), strict=True)),
        tokens=tokens,
        classes=names,
        unknown=parts.unknown,
        **arrays,
    )


class Split(NamedTuple):
    """One text's sums in all of their parts.

    Attributes:
        parts: words, biases and what passes through each head.
        past: of tokens, then of the biases, what passes through no head.
        unobserved: of these together what passes through attention that is not observed.
        totals: what each head of each known layer shares of all tokens and biases.
        cells: returns this by tokens and biases for some heads [known layer, head].
        maps: what passes from each key at each query, to the log-odds of the first class.
        layers: names of the layers that are observed.
        known: those of which the heads are known, as `parts` has them.
    """

    parts: Contributions
    past: Float[Tensor, "T_and_1 S"]
    unobserved: Float[Tensor, " S"]
    totals: list[Float[Tensor, "H S"]]
    cells: Callable[[Sequence[Place]], Float[Tensor, "N T_and_1 S"]]
    maps: list[Float[Tensor, "1 H Q K"]]
    layers: list[str]
    known: list[str]


def _split(
    model: nn.Module, inputs: Sequence[Any], num_tokens: int, sums_of: SumsOf, has_pair: bool
) -> Split:
    """Return one text's parts; of a network that is not written out here by torch's gradients."""
    if is_linear_here(model):
        with _exact(model):
            return _split_of_linear(model, inputs, sums_of, has_pair)
    parts, shares, maps, names, known = others().gradients.split(
        model, inputs, num_tokens, sums_of, lambda sums: _first(sums, has_pair)
    )
    heads = [
        torch.cat([of_layer[0], biases[0, :, None]], dim=1)  # [H, T + 1, S]
        for of_layer, biases in zip(shares.heads, shares.head_biases, strict=True)
    ]

    def cells(asked: Sequence[Place]) -> Float[Tensor, "N T_and_1 S"]:
        return torch.stack([heads[layer][head] for layer, head in asked])

    past = torch.cat([shares.past[0], shares.past_biases])
    totals = [of_layer.sum(dim=1) for of_layer in heads]
    of_all = (parts, past, shares.unobserved[0], totals, cells)
    return Split(*of_all, _all_queries(maps), names, known)


def _split_of_linear(
    model: nn.Module, inputs: Sequence[Any], sums_of: SumsOf, has_pair: bool
) -> Split:
    """Return one text's parts; cells are computed when they are asked for, by the same weights."""
    network = FixedNetwork.of(model, inputs)
    sums, directions = _directions(network, sums_of)
    words = network.words(directions)
    of_tokens, of_biases = _past_of_linear(network, directions)
    past = torch.cat([of_tokens[0], of_biases])
    maps = [
        passing(block.attention, _first(rows.unbind(), has_pair))
        for block, rows in zip(network.blocks, words.heads, strict=True)
    ]
    weights = [each for each in model.parameters() if not each.is_inference()]
    versions = [each._version for each in weights]

    def cells(asked: Sequence[Place]) -> Float[Tensor, "N T_and_1 S"]:
        if versions != [each._version for each in weights]:
            raise RuntimeError(CHANGED)
        with _products():
            return _cells_of_linear(network, directions, asked)

    totals = [of_layer[:, 0].T.cpu().double() for of_layer in network.totals(directions)]
    of_all = (_of_linear(network, sums, words), past, torch.zeros_like(past[0]), totals, cells)
    names = [*headed_layers(model)]
    return Split(*of_all, _all_queries(maps), names, names)


def _cells_of_linear(
    network: FixedNetwork, directions: Float[Tensor, "S 1 C"], asked: Sequence[Place]
) -> Float[Tensor, "N T_and_1 S"]:
    chosen: list[list[int]] = [[] for _ in network.blocks]
    for layer, head in asked:
        chosen[layer].append(head)
    found: dict[Place, Tensor] = {}
    for layer, (tokens, bias) in enumerate(network.shares(directions, chosen)):
        both = torch.cat([tokens, bias[..., None]], dim=-1)[:, :, 0]  # [H, S, T + 1]
        found |= {(layer, head): both[at].T for at, head in enumerate(chosen[layer])}
    return torch.stack([found[place] for place in asked])


def _first(sums: Sequence[Tensor], has_pair: bool) -> Tensor:
    """Return the first class's sum, less that of the second, where the last class's is 0."""
    if has_pair and len(sums) > 1:
        return sums[0] - sums[1]
    return sums[0]


def _arrays(
    model: nn.Module, inputs: Sequence[Any], num_tokens: int, sums_of: SumsOf, has_pair: bool
) -> tuple[Contributions, dict[str, Any]]:
    """Return one text's parts, and as an `Explanation` has them: a column of 0 for the last class.

    Without a pair every sum is a class's against its absence, and no column is added.
    """
    split = _split(model, inputs, num_tokens, sums_of, has_pair)
    parts = split.parts
    places = [split.layers.index(name) for name in split.known]
    of_text = partial(_of_text, places, len(split.layers))
    through = [of_layer[0].sum(dim=1) for of_layer in parts.heads]  # [H, S]
    K = parts.totals.shape[1] + has_pair

    def columns(of_sums: Tensor) -> Float[np.ndarray, "..."]:
        return F.pad(of_sums, (0, int(has_pair))).numpy()

    def cells(asked: Sequence[Place]) -> Float[np.ndarray, "N T_and_1 K"]:
        return columns(split.cells([(places.index(layer), head) for layer, head in asked]))

    return parts, {
        "words_of": columns(parts.words[0]),
        "biases_of": columns(parts.biases[0].sum(dim=0)),
        "totals_of": of_text(map(columns, split.totals), K),
        "cells_of": KnownCells(cells),
        "past_of": columns(split.past[:-1]),
        "past_biases_of": columns(split.past[-1]),
        "through_of": of_text(map(columns, through), K),
        "maps": of_text([of_layer[0].numpy() for of_layer in split.maps], num_tokens, num_tokens),
        "log_odds_of": columns(parts.totals[0]),
        "layers": split.layers,
        "unobserved_of": columns(split.unobserved),
    }


def _all_queries(maps: Sequence[Tensor]) -> list[Float[Tensor, "B H Q K"]]:
    """Return maps of all queries: where [CLS] alone is read, it is the first."""
    found = []
    for of_layer in maps:
        passing = of_layer.cpu().double()
        if passing.shape[2] == 1:
            passing = F.pad(passing, (0, 0, 0, passing.shape[3] - 1))
        found.append(passing)
    return found


def _of_text(
    places: Sequence[int], num_layers: int, heads: Iterable[Float[np.ndarray, "_ ..."]], *shape: int
) -> Float[np.ndarray, "..."]:
    """Return one text's heads, those of each layer at its place.

    NaN where a layer has fewer, attends to something else, or is not among them.
    """
    found = [*heads]
    most = max(map(len, found), default=0)
    table = np.full((num_layers, most, *shape), np.nan)
    for place, of_layer in zip(places, found, strict=True):
        if of_layer.shape[1:] == shape:
            table[place, : len(of_layer)] = of_layer
    return table
