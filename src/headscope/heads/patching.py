"""A head's output put in place of another: patching, and effects by zero, mean and resample.

What a head gives at each position, before the output projection, is replaced:

    zero       by 0
    mean       by its mean over all positions of all texts
    resample   by what it gives for another of the texts, drawn by one permutation with a seed

(Zhang and Nanda 2023, Towards best practices of activation patching; Chan et al. 2022, causal
scrubbing.) Where the other text is shorter, its last position stands for those that it lacks.
Shape letters: N texts, A heads of all layers, E width of a head, Q positions (1 where [CLS] alone
is read).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import product
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from scipy.stats import t as student_t
from torch import Tensor, nn

from headscope.data.batching import Batch, moved
from headscope.ground.terminal import Bar, terminal
from headscope.heads import capture
from headscope.heads.capture import (
    Change,
    device_of,
    eval_mode,
    every_head,
    headed_layers,
    logits_of,
)
from headscope.model.objective import Objective
from headscope.record.explanation import head_names

Outputs = dict[str, Float[Tensor, "B Q D"]]  # of all heads side by side, by layer
KINDS = ("zero", "mean", "resample")
CONFIDENCE = 0.95


@contextmanager
def ablate(
    model: nn.Module,
    heads: Mapping[tuple[Any, int], Change | Literal["source"]],
    source: Sequence[Any] | None = None,
) -> Iterator[None]:
    """Ablate some heads of any model that `capture` knows, until the block is left.

        with headscope.ablate(model, {(0, 1): "zero", (0, 2): "uniform"}):
            logits = model(token_ids, key_padding_mask)
        with headscope.ablate(run.model, {(0, 1): "source"}, source=run.inputs("another text")):
            run.predict(["a text"])

    The other heads' outputs stay equal to the last digit; the output projection and its bias act as
    before. Heads that are ablated already stay so.

    Args:
        model: any module with attention layers of headscope, torch or transformers in it.
        heads: from (layer, head) to "zero", the head's output is 0; "uniform", its weights are the
            same for all keys that its mask lets it see, which keeps what it reads but not where it
            looks; or "source", its output is what it gives for `source`, position by position. A
            layer is its number, from 0, or its name, as in `capture` and `show`.
        source: what the model is called with for another text: its outputs are taken. Layers of
            headscope alone can be patched, a run's and those of an opened checkpoint.

    Raises:
        ValueError: if there is no such layer, head or ablation; or "source" without `source`.
    """
    layers = headed_layers(model)
    places = [place for place, change in heads.items() if change == "source"]
    taken = [(capture.layer_of(layers, *place), place[1]) for place in places]
    if bool(taken) != (source is not None):
        raise ValueError("heads: expected 'source' of a head, and source=, both or neither")
    rest: Any = {place: change for place, change in heads.items() if change != "source"}
    outputs = {} if source is None else head_outputs(model, source)  # of the model as it was
    with capture.ablate(model, rest), ExitStack() as stack:
        if source is not None:
            stack.enter_context(patched(model, taken, outputs))
        yield


def projections(model: nn.Module) -> dict[str, nn.Module]:
    """Return the output projection of each layer; ValueError without one."""
    layers = dict(model.named_modules())
    found: dict[str, nn.Module] = {}
    foreign = []
    for name in headed_layers(model):
        projection = getattr(layers.get(name), "output_projection", None)
        if projection is None:
            foreign.append(name)
        else:
            found[name] = projection
    if foreign or not found:
        raise ValueError(
            f"model: expected layers of headscope, whose heads can be patched, got {foreign}"
        )
    return found


def head_outputs(model: nn.Module, inputs: Sequence[Any]) -> Outputs:
    """Return what the heads of each layer give for the inputs of a model."""
    found: Outputs = {}

    def keep(name: str) -> Any:
        return lambda _, given: found.update({name: given[0].detach()})

    with ExitStack() as stack, eval_mode(model), torch.no_grad():
        for name, projection in projections(model).items():
            stack.callback(projection.register_forward_pre_hook(keep(name)).remove)
        model(*inputs)
    return found


@contextmanager
def patched(model: nn.Module, heads: Sequence[tuple[str, int]], outputs: Outputs) -> Iterator[None]:
    """Have some heads give these outputs, whatever the text, until the block is left."""
    num_heads = headed_layers(model)

    def put(name: str, own: Sequence[int]) -> Any:
        def replace(_: nn.Module, given: tuple[Tensor]) -> tuple[Tensor]:
            merged = given[0].clone()  # [B, Q, D]
            other = outputs[name].to(merged)
            last = other.shape[1] - 1
            other = other[:, torch.arange(merged.shape[1]).clamp(max=last)]
            width = merged.shape[2] // num_heads[name]
            for head in own:
                columns = slice(head * width, (head + 1) * width)
                merged[..., columns] = other[..., columns]
            return (merged,)

        return replace

    with ExitStack() as stack:
        for name, projection in projections(model).items():
            own = [head for layer, head in heads if layer == name]
            if own:
                stack.callback(projection.register_forward_pre_hook(put(name, own)).remove)
        yield


def effect_table(
    model: nn.Module, batches: Sequence[Batch], objective: Objective, seed: int = 0
) -> pd.DataFrame:
    """Return what replacing each head's output adds to the loss, in nats, the largest mean first.

    Returns:
        One row a head: `head`; for each of zero, mean and resample the mean over the texts, and the
        ends of its 95 % interval (Student's t) as `zero low`, `zero high`; and `n` texts.
    """
    layers = headed_layers(model)
    heads = every_head(model)
    others = _others(model, batches, seed)
    columns: dict[str, Any] = {"head": head_names([*layers], [*layers.values()])}
    whole = _losses(model, batches, objective, (), [{} for _ in batches])
    n = len(whole)
    losses = []
    with Bar(terminal(), "effects of heads", len(KINDS) * len(heads)) as bar:
        for done, (kind, head) in enumerate(product(KINDS, heads), start=1):
            losses.append(_losses(model, batches, objective, (head,), others[kind]))
            bar.update(done)
    of_kinds = np.split(np.stack(losses) - whole, len(KINDS))  # [3A, N] -> [A, N] each
    for kind, changes in zip(KINDS, of_kinds, strict=True):
        error = np.full(len(heads), np.inf)  # of one text nothing is known
        if n > 1:
            error = changes.std(axis=1, ddof=1) / n**0.5
        half = student_t.ppf((1 + CONFIDENCE) / 2, max(1, n - 1)) * error
        mean = changes.mean(axis=1)
        columns |= {kind: mean, f"{kind} low": mean - half, f"{kind} high": mean + half}
    table = pd.DataFrame(columns).assign(n=n)
    return table.sort_values("mean", ascending=False, ignore_index=True)


def _others(model: nn.Module, batches: Sequence[Batch], seed: int) -> dict[str, list[Outputs]]:
    """Return what stands in place of the heads' outputs, of each kind for each batch."""
    own = [head_outputs(model, moved(batch, device_of(model)).inputs) for batch in batches]
    texts: list[Outputs] = []  # of each text, without its padding
    for batch, outputs in zip(batches, own, strict=True):
        padding = batch.key_padding_mask
        for row in range(len(batch.rows)):
            length = None if padding is None else int((~padding[row]).sum())
            texts.append({name: of[row, :length] for name, of in outputs.items()})
    order = np.random.default_rng(seed).permutation(len(texts))
    other = dict(zip(order.tolist(), np.roll(order, 1).tolist(), strict=True))  # never itself
    drawn = [texts[other[at]] for at in range(len(texts))]
    means = {name: torch.cat([text[name] for text in texts]).mean(dim=0) for name in texts[0]}
    found: dict[str, list[Outputs]] = {kind: [] for kind in KINDS}
    start = 0
    for outputs in own:
        end = start + len(next(iter(outputs.values())))
        rows = drawn[start:end]
        found["zero"].append({name: torch.zeros_like(of[:, :1]) for name, of in outputs.items()})
        found["mean"].append({name: means[name].expand(end - start, 1, -1) for name in outputs})
        found["resample"].append({name: _padded([row[name] for row in rows]) for name in outputs})
        start = end
    return found


def _padded(outputs: Sequence[Float[Tensor, "_ D"]]) -> Float[Tensor, "B Q D"]:
    """Return texts of several lengths as one tensor; the last position fills the shorter ones."""
    longest = max(map(len, outputs))
    places = [torch.arange(longest).clamp(max=len(own) - 1) for own in outputs]
    return torch.stack([own[at] for own, at in zip(outputs, places, strict=True)])


def _losses(
    model: nn.Module,
    batches: Sequence[Batch],
    objective: Objective,
    heads: Sequence[tuple[str, int]],
    others: Sequence[Mapping[str, Tensor]],
) -> Float[np.ndarray, " N"]:
    """Return the loss of each text with some heads' outputs replaced."""
    parts = []
    with eval_mode(model), torch.no_grad():
        for batch, outputs in zip(batches, others, strict=True):
            with patched(model, heads, dict(outputs)):
                logits = logits_of(model, batch).cpu().double()
            parts.append(objective.losses(logits, batch.labels))
    return torch.cat(parts).numpy()
