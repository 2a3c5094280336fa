"""Why a text is given a class: each log-odds as an exact sum, for any network.

With attention weights, the scales of norms and the gates of activations held fixed at what this
text gave them, a network is linear in the vectors of its tokens and in its biases together
(`headscope.heads.fixed_gates`), so a logit is a sum (CP-LRP, Ali et al. 2022):

    logit_c = sum_t word_tc + sum_b bias_bc
    word_tc = sum of x . d logit_c / dx over the vectors x of token t: embedding, position, evidence

`headscope.heads.shares` splits these over the heads of all layers. For each layer apart, what
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
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from headscope.data.batching import Batch, moved
from headscope.heads.capture import device_of, eval_mode, named_layers
from headscope.heads.fixed_gates import FixedGates, HeadOutputs, given
from headscope.heads.gate_rules import depends
from headscope.heads.integrations.recomputation import no_recomputation
from headscope.heads.integrations.transformers_models import NotObservedError
from headscope.heads.shares import Shares, shares_of
from headscope.model.objective import MultiLabel, Objective, Reading
from headscope.record.explanation import MOST_MISSED, Explanation

LEAST_PRECISE = 1e-4  # of a type whose rounding is no module's
SumsOf = Callable[[Float[Tensor, "B C"]], Float[Tensor, "B S"]]  # linear, without a constant

# Of a batch that is split, padding included: every map is kept for it, in float32.
SPLIT_TOKENS = 2048


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
    with _fixed_gates(model, inputs, num_tokens) as (gates, logits):
        found = _contributions(gates, logits, sums_of(logits.cpu().double()))
    return _with_unknown(found, model, inputs, num_tokens)


def _contributions(
    gates: FixedGates, logits: Float[Tensor, "B C"], sums: Float[Tensor, "B S"]
) -> Contributions:
    parts = [_parts(gates, of_texts) for of_texts in sums.unbind(dim=1)]
    words, heads, by_call = tree_map(lambda *of_sums: torch.stack(of_sums, dim=-1), *parts)
    ends = [0, *(number + 1 for number in gates.heads.values()), by_call.shape[1]]
    groups = [by_call[:, slice(*pair)].sum(dim=1) for pair in pairwise(ends)]
    biases = torch.stack(groups, dim=1)  # [B, layers_and_1, S]
    return Contributions(words, heads, biases, sums.detach().cpu(), logits.detach().cpu())


def _with_unknown(
    found: Contributions, model: nn.Module, inputs: Sequence[Any], num_tokens: int
) -> Contributions:
    """Name the module that is not the sum of its parts, if there is one."""
    if bool((found.missed.abs() <= MOST_MISSED).all()):  # NaN is none
        return found
    if torch.finfo(found.logits.dtype).eps > LEAST_PRECISE:
        name = str(found.logits.dtype).removeprefix("torch.")
        return replace(found, unknown=f"rounding in {name}")
    return replace(found, unknown=_unknown_module(model, inputs, num_tokens))


@contextmanager
def _fixed_gates(
    model: nn.Module, inputs: Sequence[Any], num_tokens: int
) -> Iterator[tuple[FixedGates, Float[Tensor, "B C"]]]:
    """Run the model with its gates held fixed; in the block gradients can be taken."""
    with (
        eval_mode(model),
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.autocast(device_of(model).type, enabled=False),
        _exact_products(),
        no_recomputation(),
    ):
        padding = inputs[1] if len(inputs) > 1 else None
        gates = FixedGates(len(inputs[0]), num_tokens)
        try:
            with named_layers(model), gates:
                logits = model(*given(inputs[:3], padding), *inputs[3:])
        except NotObservedError:  # found out at the end: words are explained without heads
            gates = FixedGates(len(inputs[0]), num_tokens)
            with gates:
                logits = model(*given(inputs[:3], padding), *inputs[3:])
        yield gates, logits


def _parts(gates: FixedGates, sums: Float[Tensor, " B"]) -> tuple[Tensor, list[Tensor], Tensor]:
    """Return words, heads and biases of a sum of each text: each leaf times its gradient."""
    leaves = gates.leaves
    calls = [gates.calls[number] for number in gates.heads.values()]
    gradients = _gradients(sums, [*leaves, *(call.head_outputs for call in calls)])
    words, biases = gates.of_leaves([each[None] for each in gradients[: len(leaves)]], 1)
    pairs = zip(calls, gradients[len(leaves) :], strict=True)
    return words[0], [_passing(*pair).sum(dim=2).cpu().double() for pair in pairs], biases[0]


def _passing(call: HeadOutputs, gradient: Tensor) -> Float[Tensor, "B H Q K"]:
    """Return what passes from each key at each query: a_qk v_k . g_q."""
    at_outputs = gradient.reshape(*call.weights.shape[:3], -1)  # [B, H, Q, E]
    return call.weights * (at_outputs @ call.values.transpose(-2, -1))


def _gradients(sums: Float[Tensor, " *B"], tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return d sum / d tensor for each tensor: 0 where it is not used."""
    if not sums.requires_grad or not tensors:
        return [torch.zeros_like(tensor) for tensor in tensors]
    return torch.autograd.grad(sums.sum(), tensors, retain_graph=True, materialize_grads=True)


def share_among_heads(
    model: nn.Module, inputs: Sequence[Any], num_tokens: int, sums_of: SumsOf
) -> Shares:
    """Run the model, and let its heads share every token and bias. Arguments as in `decompose`."""
    with _fixed_gates(model, inputs, num_tokens) as (gates, logits):
        return shares_of(gates, sums_of(logits.cpu().double()))


def _unknown_module(model: nn.Module, inputs: Sequence[Any], num_tokens: int) -> str:
    """Return the first module, in the order in which they are done, that misses something."""
    outputs: list[tuple[str, Tensor]] = []

    def keep(name: str, module: nn.Module, _: Any, output: Any) -> None:
        title = f"{name} ({type(module).__name__})"
        outputs.extend((title, each) for each in tree_leaves(output) if depends(each))

    with ExitStack() as stack:
        stack.enter_context(eval_mode(model))  # no other thread runs it meanwhile
        for name, module in model.named_modules():
            if not isinstance(module, torch.jit.ScriptModule):  # which cannot be looked into
                stack.callback(module.register_forward_hook(partial(keep, name)).remove)
        gates, _ = stack.enter_context(_fixed_gates(model, inputs, num_tokens))
        for title, output in outputs:
            signs = torch.linspace(-1, 1, output.numel()).to(output).view(output.shape)
            total = (output * signs).sum()
            gradients = _gradients(total, gates.leaves)
            parts = zip(gates.leaves, gradients, strict=True)
            found = sum((leaf * gradient).sum().item() for leaf, gradient in parts)
            if not abs(found - total.item()) <= MOST_MISSED * (output * signs).abs().sum().item():
                return title
    return type(getattr(model, "model", model)).__name__  # not our wrapper's


@contextmanager
def _exact_products() -> Iterator[None]:
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


def _arrays(
    model: nn.Module, inputs: Sequence[Any], num_tokens: int, sums_of: SumsOf, has_pair: bool
) -> tuple[Contributions, dict[str, Any]]:
    """Return one text's parts, and as an `Explanation` has them: a column of 0 for the last class.

    Without a pair every sum is a class's against its absence, and no column is added.
    """
    with _fixed_gates(model, inputs, num_tokens) as (gates, logits):
        sums = sums_of(logits.cpu().double())
        parts = _contributions(gates, logits, sums)
        shares = shares_of(gates, sums)
        first, *others = F.pad(sums, (0, 1)).unbind(dim=1)
        maps = _maps(gates, first - others[0] if has_pair else first)
        layers = gates.layers
        of_text = partial(_of_text, [layers.index(name) for name in gates.heads], len(layers))
    parts = _with_unknown(parts, model, inputs, num_tokens)
    through = [of_layer.sum(dim=2) for of_layer in parts.heads]
    K = sums.shape[1] + has_pair

    def columns(of_sums: Tensor) -> Tensor:
        return F.pad(of_sums, (0, int(has_pair)))

    return parts, {
        "words_of": columns(parts.words[0]).numpy(),
        "heads_of": of_text(map(columns, shares.heads), num_tokens, K),
        "head_biases_of": of_text(map(columns, shares.head_biases), K),
        "past_of": columns(shares.past[0]).numpy(),
        "past_biases_of": columns(shares.past_biases[0]).numpy(),
        "through_of": of_text(map(columns, through), K),
        "maps": of_text(maps, num_tokens, num_tokens),
        "log_odds_of": columns(parts.totals[0]).numpy(),
        "layers": layers,
        "unobserved_of": columns(shares.unobserved[0]).numpy(),
    }


def _maps(gates: FixedGates, sums: Float[Tensor, " B"]) -> list[Float[Tensor, "B H Q K"]]:
    """Return what passes from each key at each query of each head to a sum of each text."""
    calls = [gates.calls[number] for number in gates.heads.values()]
    gradients = _gradients(sums, [call.head_outputs for call in calls])
    maps = []
    for call, gradient in zip(calls, gradients, strict=True):
        passing = _passing(call, gradient).cpu().double()
        if passing.shape[2] == 1:  # the one query that is read, where [CLS] is: the first
            passing = F.pad(passing, (0, 0, 0, passing.shape[3] - 1))
        maps.append(passing)
    return maps


def _of_text(
    places: Sequence[int], num_layers: int, heads: Iterable[Float[Tensor, "1 _ ..."]], *shape: int
) -> Float[np.ndarray, "..."]:
    """Return one text's heads, those of each layer at its place.

    NaN where a layer has fewer, attends to something else, or is not among them.
    """
    found = [of_layer[0].numpy() for of_layer in heads]
    most = max(map(len, found), default=0)
    table = np.full((num_layers, most, *shape), np.nan)
    for place, of_layer in zip(places, found, strict=True):
        if of_layer.shape[1:] == shape:
            table[place, : len(of_layer)] = of_layer
    return table
