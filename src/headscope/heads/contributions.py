"""Why a text is given a class: each log-odds as an exact sum, for any network.

With attention weights, the scales of norms and the gates of activations held fixed at what this
text gave them, a network is linear in the vectors of its tokens and in its biases together
(`headscope.heads.fixed_gates`), so a logit is a sum (CP-LRP, Ali et al. 2022):

    logit_c = sum_t word_tc + sum_b bias_bc
    word_tc = sum of x . d logit_c / dx over the vectors x of token t: embedding, position, evidence

And for every layer l of attention the same logit is what passes through its heads, what goes past
them in the residual stream, and the biases that are added above:

    logit_c = sum_ht head_lhtc + past_lc + sum of the biases above
    head_lhtc = sum_q a_lhqt v_lht . d logit_c / dz_lhq,   z_lhq = sum_t a_lhqt v_lht

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
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from headscope.data.batching import Batch, moved
from headscope.heads.capture import device_of, eval_mode
from headscope.heads.fixed_gates import FixedGates, depends
from headscope.model.objective import ONE_CLASS, MultiLabel, Objective
from headscope.model.places import NONE, start_ids
from headscope.record.explanation import MOST_MISSED, Explanation

SumsOf = Callable[[Float[Tensor, "B C"]], Float[Tensor, "B S"]]  # linear, without a constant


@dataclass(frozen=True)
class Contributions:
    """The parts of S sums of the logits of B texts, such as the log-odds of two classes.

    Attributes:
        words: of each token; 0 at padding.
        heads: of each layer, what passes through each head from each position.
        biases: those that are added before the attention of each layer, and after the last.
        totals: the sums themselves: words and biases add up to them, but for what is missed.
        logits: of the model.
        unknown: the first module whose output is not the sum of its parts; "" if nothing is missed.
    """

    words: Float[Tensor, "B T S"]
    heads: list[Float[Tensor, "B H K S"]]
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
        sums = sums_of(logits.double())  # [B, S]
        parts = [_parts(gates, of_texts) for of_texts in sums.unbind(dim=1)]
        words, heads, biases = tree_map(lambda *of_sums: torch.stack(of_sums, dim=-1), *parts)
        found = Contributions(words, heads, biases, sums.detach().cpu(), logits.detach().cpu())
    if bool((found.missed.abs() > MOST_MISSED).any()):
        found = replace(found, unknown=_unknown_module(model, inputs, num_tokens))
    return found


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
    ):
        ids = inputs[0] if inputs[0].shape[1:] == (num_tokens,) else None
        if ids is not None and len(inputs) > 1 and inputs[1] is not None:
            ids = ids.masked_fill(inputs[1], NONE)
        gates = FixedGates(len(inputs[0]), num_tokens, ids, start_ids(model))
        with gates:
            logits = model(*inputs)
        yield gates, logits


def _parts(gates: FixedGates, sums: Float[Tensor, " B"]) -> tuple[Tensor, list[Tensor], Tensor]:
    """Return words, heads and biases of a sum of each text: each leaf times its gradient."""
    B = len(sums)
    biases = torch.zeros(B, len(gates.calls) + 1, dtype=torch.float64)
    words = torch.zeros(B, gates.num_tokens, dtype=torch.float64)
    outputs = [call.head_outputs for call in gates.calls]
    leaves = gates.leaves
    gradients = _gradients(sums, [*leaves, *outputs])
    for number, (leaf, gradient) in enumerate(zip(gates.words, gradients, strict=False)):
        of_tokens, of_none = gates.of_tokens(number, leaf.detach() * gradient)
        words += of_tokens
        biases[:, 0] += of_none
    of_biases = zip(gates.biases, gradients[len(gates.words) :], strict=False)
    for (layer, leaf), gradient in of_biases:
        biases[:, layer] += (leaf.detach() * gradient).cpu().double().reshape(B, -1).sum(dim=-1)
    heads = []
    for call, gradient in zip(gates.calls, gradients[len(leaves) :], strict=True):
        at_outputs = gradient.reshape(*call.weights.shape[:3], -1)  # [B, H, Q, E]
        at_keys = call.weights.transpose(-2, -1) @ at_outputs  # [B, H, K, E]
        heads.append((at_keys * call.values).sum(dim=-1).cpu().double())
    return words, heads, biases


def _gradients(sums: Float[Tensor, " *B"], tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return d sum / d tensor for each tensor: 0 where it is not used."""
    if not sums.requires_grad:
        return [torch.zeros_like(tensor) for tensor in tensors]
    return torch.autograd.grad(sums.sum(), tensors, retain_graph=True, materialize_grads=True)


def _unknown_module(model: nn.Module, inputs: Sequence[Any], num_tokens: int) -> str:
    """Return the first module, in the order in which they are done, that misses something."""
    outputs: list[tuple[str, Tensor]] = []

    def keep(name: str, module: nn.Module, _: Any, output: Any) -> None:
        title = f"{name} ({type(module).__name__})"
        outputs.extend((title, each) for each in tree_leaves(output) if depends(each))

    with ExitStack() as stack:
        stack.enter_context(eval_mode(model))  # no other thread runs it meanwhile
        for name, module in model.named_modules():
            stack.callback(module.register_forward_hook(partial(keep, name)).remove)
        gates, _ = stack.enter_context(_fixed_gates(model, inputs, num_tokens))
        for title, output in outputs:
            signs = torch.linspace(-1, 1, output.numel()).to(output).view(output.shape)
            total = (output * signs).sum()
            gradients = _gradients(total, gates.leaves)
            parts = zip(gates.leaves, gradients, strict=True)
            found = sum((leaf * gradient).sum().item() for leaf, gradient in parts)
            if abs(found - total.item()) > MOST_MISSED * (output * signs).abs().sum().item():
                return title
    return type(model).__name__


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


def split_likeliest(
    model: nn.Module, batch: Batch, objective: Objective, temperature: float = 1.0
) -> Contributions:
    """Split the log-odds of each text's likeliest class, see `likeliest_log_odds`."""
    read = batch._replace(features=None)  # through a frozen encoder, to the words
    return decompose(
        model,
        moved(read, device_of(model)).inputs,
        batch.token_ids.shape[1],
        lambda logits: likeliest_log_odds(logits / temperature, objective),
    )


def mean_contributions(
    model: nn.Module, batches: Iterable[Batch], objective: Objective, temperature: float = 1.0
) -> dict[str, object]:
    """Return the means over texts of what `split_likeliest` finds, as metrics.json has them."""
    found = []
    for batch in batches:
        parts = split_likeliest(model, batch, objective, temperature)
        heads = torch.stack([of_layer.sum(dim=(2, 3)) for of_layer in parts.heads], 1)  # [B, L, H]
        found.append((heads, parts.past[..., 0], parts.biases[..., 0]))
    heads, past, biases = (torch.cat(part) for part in zip(*found, strict=True))
    return {
        "against": "its absence" if isinstance(objective, MultiLabel) else "the runner-up",
        "texts": len(heads),
        "heads": heads.mean(dim=0).tolist(),
        "past": past.mean(dim=0).tolist(),
        "biases": biases.mean(dim=0).tolist(),
    }


def explain(
    model: nn.Module,
    batch: Batch,
    tokens: Sequence[str],
    classes: Sequence[str],
    objective: Objective = ONE_CLASS,
    temperature: float = 1.0,
    label: str | None = None,
    num_classes: int = 2,
) -> Explanation:
    """Return why a text, a batch of its own without padding, is given a class.

    `label` is the class that is explained, by default the likeliest; it is held against the
    likeliest other, or against its absence where a text may have any number of classes. The parts
    are those of the two, and of the likeliest ones up to `num_classes`.
    """
    pair = 1 if isinstance(objective, MultiLabel) else 2

    def shares(logits: Float[Tensor, "1 C"]) -> Float[Tensor, " C"]:
        return objective.probabilities(logits[0].detach().double() / temperature)

    def kept(logits: Float[Tensor, "1 C"]) -> list[int]:
        order: list[int] = shares(logits).argsort(descending=True, stable=True).tolist()
        if label is not None:
            order.sort(key=lambda number: classes[number] != label)
        return order[: max(num_classes, pair)]

    def sums(logits: Float[Tensor, "1 C"]) -> Float[Tensor, "1 S"]:
        return logits[:, kept(logits)] / temperature

    parts = decompose(model, moved(batch, device_of(model)).inputs, len(tokens), sums)
    names = [classes[number] for number in kept(parts.logits)]
    return Explanation(
        label=names[0],
        against=names[1] if pair == 2 else None,
        probabilities=dict(zip(classes, shares(parts.logits).tolist(), strict=True)),
        tokens=tokens,
        classes=names,
        words_of=parts.words[0].numpy(),
        heads_of=_by_layer(parts.heads, len(tokens), len(names)),
        past_of=parts.past[0].numpy(),
        biases_of=parts.biases[0].numpy(),
        log_odds_of=parts.totals[0].numpy(),
        unknown=parts.unknown,
    )


def _by_layer(
    heads: Sequence[Float[Tensor, "1 H K S"]], num_tokens: int, num_sums: int
) -> Float[np.ndarray, "L H T S"]:
    """Return one text's heads: NaN where a layer has fewer, or attends to something else."""
    most = max((of_layer.shape[1] for of_layer in heads), default=0)
    table = np.full((len(heads), most, num_tokens, num_sums), np.nan)
    for layer, of_layer in enumerate(heads):
        if of_layer.shape[2] == num_tokens:
            table[layer, : of_layer.shape[1]] = of_layer[0].numpy()
    return table
