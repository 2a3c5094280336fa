"""Which tokens a prediction rests on: what hiding those that each method names does to it.

    python benchmarks/deletion.py outputs/first             # a run; 2 to 5 minutes on one core
    python benchmarks/deletion.py outputs/first --texts 100
    python benchmarks/deletion.py outputs/first --heads     # heads, not tokens: 1 to 10 minutes

Prints a table: comprehensiveness and sufficiency (DeYoung et al. 2020, ERASER), means over the
shares 1, 5, 10, 20 and 50 % of a text's tokens and over test texts, with standard errors; seconds
of the processor for all texts; and how the scores of a text's tokens correlate with what leaving
out one token at a time does, the mean over texts.

All methods are of the log-odds of the prediction against the runner-up:

    gates fixed            the contributions that headscope shows (CP-LRP, Ali et al. 2022)
    halved products        the same, but half of each product of attention is its weights'
                           (AttnLRP, Achtibat et al. 2024, equation 14, by their own way: gradients
                           divided by 4 at queries and keys, by 2 at values)
    integrated gradients   Sundararajan et al. 2017, captum's, 20 midpoints from zero, over all that
                           the network reads of a token: its embedding, and its n-grams
    gradient x input       captum's, of the same vectors
    attention rollout      Abnar and Zuidema 2020
    leaving one out        one token hidden at a time

With --heads: how each head's share of the log-odds, and all that passes through it, correlate with
what the log-odds lose when the head, or two at once, are ablated to zero: over the heads of all
texts, and over heads, each the mean of the texts.

Tokens are hidden by the key padding mask, not deleted as in the paper: the others keep their
places. Special tokens are neither ranked nor hidden. Shape letters: B texts, N texts in all, T
positions, S shares, C classes, D width.
"""

import argparse
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import combinations
from typing import Any
from unittest.mock import patch

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headscope.data.batching import Batch
from headscope.data.datamodule import TextDataModule
from headscope.foreign.fixed_gates import FixedGates, given
from headscope.foreign.gate_rules import RULES
from headscope.foreign.pretrained import PretrainedClassifier
from headscope.heads.capture import ablate, capture, eval_mode, headed_layers, readout_position
from headscope.heads.contributions import decompose, likeliest_log_odds, share_among_heads
from headscope.heads.study import draw_samples, special_tokens
from headscope.model.objective import ONE_CLASS, Objective
from headscope.runs.run import load_run
from side_by_side import table

STEPS = 20
BINS = (0.01, 0.05, 0.1, 0.2, 0.5)  # the bins of ERASER, section 4
NUM_PAIRS = 60  # of heads that are ablated at once, at most
NUM_RANDOM = 5  # random rankings, whose mean is chance
Method = Callable[[nn.Module, Batch, Objective], Float[Tensor, "B T"]]


def comprehensiveness(
    model: nn.Module,
    batches: Sequence[Batch],
    scores: Sequence[Float[Tensor, "B T"]],
    special_ids: Sequence[int] = (),
    objective: Objective = ONE_CLASS,
) -> Float[Tensor, " N"]:
    """Return p(whole) - p(without the tokens of the highest scores): high where they were needed.

    p is the probability of the class that the model predicts of the whole text; the mean is over
    BINS. Texts of fewer than two tokens that are not special are left out.
    """
    return _falls(model, batches, scores, special_ids, objective, keeps=False)


def sufficiency(
    model: nn.Module,
    batches: Sequence[Batch],
    scores: Sequence[Float[Tensor, "B T"]],
    special_ids: Sequence[int] = (),
    objective: Objective = ONE_CLASS,
) -> Float[Tensor, " N"]:
    """Return p(whole) - p(the tokens of the highest scores alone): near 0 where they suffice."""
    return _falls(model, batches, scores, special_ids, objective, keeps=True)


def _falls(
    model: nn.Module,
    batches: Sequence[Batch],
    scores: Sequence[Float[Tensor, "B T"]],
    special_ids: Sequence[int],
    objective: Objective,
    keeps: bool,
) -> Float[Tensor, " N"]:
    parts = []
    with eval_mode(model), torch.no_grad():
        for batch, of_tokens in zip(batches, scores, strict=True):
            padding = padding_of(batch)
            choosable = choosable_of(batch, special_ids)
            chosen = _highest(of_tokens, choosable)  # [S, B, T]
            hidden = (choosable & ~chosen if keeps else chosen) | padding
            variants = torch.cat([padding[None], hidden])  # [1 + S, B, T]
            repeated = repeat_batch(batch, len(variants))
            logits = model(*repeated._replace(key_padding_mask=variants.flatten(0, 1)).inputs)
            likely = objective.probabilities(logits.double()).unflatten(0, variants.shape[:2])
            predicted = likely[:1].argmax(dim=-1, keepdim=True).expand(len(likely), -1, 1)
            whole, *others = likely.gather(-1, predicted)[..., 0]  # [B] each
            fall = whole - torch.stack(others).mean(dim=0)
            parts.append(fall[choosable.sum(dim=-1) >= 2].cpu())
    return torch.cat(parts)


def padding_of(batch: Batch) -> Bool[Tensor, "B T"]:
    """Return the key padding mask, also where there is no padding."""
    mask = batch.key_padding_mask
    return torch.zeros_like(batch.token_ids).bool() if mask is None else mask


def choosable_of(batch: Batch, special_ids: Sequence[int]) -> Bool[Tensor, "B T"]:
    """Return which tokens may be hidden."""
    is_special = torch.isin(batch.token_ids, batch.token_ids.new_tensor(special_ids))
    return ~padding_of(batch) & ~is_special


def repeat_batch(batch: Batch, times: int) -> Batch:
    """Repeat what the model is called with, all texts one time after another."""
    segments = batch.segment_ids
    evidence = batch.evidence
    return batch._replace(
        token_ids=batch.token_ids.repeat(times, 1),
        segment_ids=None if segments is None else segments.repeat(times, 1),
        evidence=None if evidence is None else evidence.repeated(times, batch.token_ids.shape[1]),
    )


def _highest(scores: Float[Tensor, "B T"], choosable: Bool[Tensor, "B T"]) -> Bool[Tensor, "S B T"]:
    """Return the tokens of the highest scores: ceil(share * n) of n, never all, for each share."""
    n: Int[Tensor, " B"] = choosable.sum(dim=-1)
    wanted = torch.tensor(BINS, dtype=torch.float64)[:, None] * n
    # 0.2 * 15 is a little more than 3
    counts = torch.minimum((wanted - 1e-9).ceil().clamp(min=1), n - 1)  # [S, B]
    order = scores.masked_fill(~choosable, -torch.inf).argsort(dim=-1, descending=True, stable=True)
    return choosable & (order.argsort(dim=-1) < counts[..., None])


def contributed(model: nn.Module, batch: Batch, objective: Objective) -> Float[Tensor, "B T"]:
    """Return the contribution of each token to the log-odds of the likeliest class."""

    def log_odds(logits: Float[Tensor, "B C"]) -> Float[Tensor, "B 1"]:
        return likeliest_log_odds(logits, objective)

    parts = decompose(model, batch.inputs, batch.token_ids.shape[1], log_odds)
    return parts.words[..., 0].float()


def halved(model: nn.Module, batch: Batch, objective: Objective) -> Float[Tensor, "B T"]:
    """Return the tokens' relevance by AttnLRP: gradients pass through softmax, products halved."""
    gates = FixedGates(*batch.token_ids.shape)
    with patch.dict(RULES, scaled_dot_product_attention=_halved), eval_mode(model):
        with gates:
            logits = model(*given(batch.inputs[:3], batch.inputs[1]), *batch.inputs[3:])
        log_odds = likeliest_log_odds(logits.double(), objective).sum()
    gradients = torch.autograd.grad(log_odds, gates.words)
    parts = zip(gates.words, gradients, strict=True)
    return torch.stack([(leaf * gradient).flatten(2).sum(dim=-1) for leaf, gradient in parts]).sum(
        dim=0
    )


def _halved(
    mode: FixedGates,
    func: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *rest: Any,
    **options: Any,
) -> Any:
    """softmax(Q K^T) V: half of its relevance is V's, and of the other half half is Q's."""
    parts = _divided(query, 4), _divided(key, 4), _divided(value, 2)
    return func(*parts, *rest, **options)


def _divided(tensor: Tensor, divisor: int) -> Tensor:
    """Return the same tensor, whose gradient is divided."""
    share = tensor / divisor
    return share + (tensor - share).detach()


def direction(model: nn.Module, batch: Batch, objective: Objective) -> Float[Tensor, "B C"]:
    """Return what times the logits is the log-odds of the likeliest class of the whole text."""
    with torch.no_grad():
        logits = model(*batch.inputs).double()
    logits.requires_grad_()
    gradient: Tensor
    (gradient,) = torch.autograd.grad(likeliest_log_odds(logits, objective).sum(), logits)
    return gradient


def read_modules(model: nn.Module) -> list[nn.Module]:
    """Return the modules that give the network all it reads of a token."""
    if isinstance(model, PretrainedClassifier):
        encoder: Any = model.model
        return [encoder.get_input_embeddings()]
    own: Any = model
    return [own.embedding.token, *([] if own.evidence is None else [own.evidence])]


@contextmanager
def outputs_by(modules: Sequence[nn.Module], hook: Callable[..., Tensor]) -> Iterator[None]:
    """Replace what modules return by what `hook(number, module, inputs, output)` does."""
    with ExitStack() as stack:
        for number, module in enumerate(modules):
            stack.callback(module.register_forward_hook(partial(hook, number)).remove)
        yield


def by_captum(method: str, model: nn.Module, batch: Batch, objective: Objective) -> Tensor:
    """Return the scores of captum's InputXGradient or IntegratedGradients."""
    try:
        import captum.attr
    except ImportError:
        raise SystemExit(
            "error: captum is not installed: pip install -c constraints.txt -e .[benchmark]"
        ) from None
    modules = read_modules(model)
    toward = direction(model, batch, objective)
    read = [torch.empty(0)] * len(modules)

    def keep(number: int, module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        read[number] = output.detach().requires_grad_()
        return output

    with torch.no_grad(), outputs_by(modules, keep):
        model(*batch.inputs)

    def log_odds(*vectors: Float[Tensor, "B T D"]) -> Float[Tensor, " B"]:
        with outputs_by(modules, lambda number, *_: vectors[number]):
            return (model(*batch.inputs).double() * toward).sum(dim=-1)  # type: ignore[no-any-return]

    options: dict[str, Any] = {}
    if method == "IntegratedGradients":
        options = {
            "n_steps": STEPS,
            "method": "riemann_middle",
            "internal_batch_size": len(batch.token_ids),  # a point at a time
        }
    found = getattr(captum.attr, method)(log_odds).attribute(tuple(read), **options)
    return torch.stack([part.detach().sum(dim=-1) for part in found]).sum(dim=0)


def rolled_out(model: nn.Module, batch: Batch, objective: Objective) -> Float[Tensor, "B T"]:
    """Return the product of (A + I) / 2 over layers, A the mean over heads, where it is read."""
    with torch.no_grad(), capture(model, poolings=False) as maps:
        model(*batch.inputs)
    rollout = torch.eye(batch.token_ids.shape[1])
    for weights in maps.values():  # [B, H, T, T]
        rollout = (weights.mean(dim=1) + torch.eye(weights.shape[-1])) / 2 @ rollout
    position = readout_position(model)
    return rollout.mean(dim=1) if position is None else rollout[:, position]


def left_out(model: nn.Module, batch: Batch, objective: Objective) -> Float[Tensor, "B T"]:
    """Return how much of the log-odds is lost without each token."""
    toward = direction(model, batch, objective)
    padding = padding_of(batch)
    scores = torch.zeros(padding.shape)
    with torch.no_grad():
        whole = (model(*batch.inputs).double() * toward).sum(dim=-1)
        for position in range(padding.shape[1]):
            hidden = padding.clone()
            hidden[:, position] = True
            logits = model(*batch._replace(key_padding_mask=hidden).inputs).double()
            scores[:, position] = whole - (logits * toward).sum(dim=-1)
    return scores


def by_chance(model: nn.Module, batch: Batch, objective: Objective) -> Tensor:
    """Return random scores, others at each call."""
    return torch.rand(batch.token_ids.shape)


METHODS: dict[str, Method] = {
    "leaving one out": left_out,
    "gates fixed": contributed,
    "halved products": halved,
    "integrated gradients": partial(by_captum, "IntegratedGradients"),
    "gradient x input": partial(by_captum, "InputXGradient"),
    "attention rollout": rolled_out,
    "chance": by_chance,
}


def correlations(
    batches: Sequence[Batch],
    scores: Sequence[Float[Tensor, "B T"]],
    others: Sequence[Float[Tensor, "B T"]],
    special_ids: Sequence[int],
) -> Float[Tensor, "N 2"]:
    """Return Spearman's and Pearson's correlation over each text's tokens, of three or more."""
    found = []
    for batch, of_tokens, other in zip(batches, scores, others, strict=True):
        for text, is_chosen in enumerate(choosable_of(batch, special_ids)):
            pair = torch.stack([of_tokens[text, is_chosen], other[text, is_chosen]]).double()
            if pair.shape[1] >= 3:
                ranks = pair.argsort(dim=-1).argsort(dim=-1).double()
                found.append(torch.stack([ranks.corrcoef()[0, 1], pair.corrcoef()[0, 1]]))
    return torch.stack(found)


def head_scores(
    model: nn.Module, batch: Batch, objective: Objective
) -> dict[str, Float[Tensor, "B A"]]:
    """Return two scores of each of the A heads of all layers: shares, and what passes through."""

    def log_odds(logits: Float[Tensor, "B C"]) -> Float[Tensor, "B 1"]:
        return likeliest_log_odds(logits, objective)

    own = (model, batch.inputs, batch.token_ids.shape[1], log_odds)
    shares = share_among_heads(*own)
    pairs = zip(shares.heads, shares.head_biases, strict=True)
    through = [of_layer.sum(dim=2) for of_layer in decompose(*own).heads]
    layers = {
        "shared alike": [of_layer.sum(dim=2) + biases for of_layer, biases in pairs],
        "all that passes through": through,
    }
    return {name: torch.cat(each, dim=1)[..., 0] for name, each in layers.items()}


def lost_without(
    model: nn.Module, batch: Batch, objective: Objective, heads: Sequence[tuple[int, int]]
) -> Float[Tensor, " B"]:
    """Return what the log-odds of each text lose with some heads ablated to zero."""
    toward = direction(model, batch, objective)
    with torch.no_grad():
        whole = model(*batch.inputs).double()
        with ablate(model, dict.fromkeys(heads, "zero")):
            without = model(*batch.inputs).double()
    return ((whole - without) * toward).sum(dim=-1)  # type: ignore[no-any-return]


def compare_heads(model: nn.Module, batches: Sequence[Batch], objective: Objective) -> None:
    """Print how scores of heads correlate with ablation of one, and of two at once."""
    counts = list(headed_layers(model).values())
    heads = [(layer, head) for layer, count in enumerate(counts) for head in range(count)]
    single = [(number,) for number in range(len(heads))]
    double = [*combinations(range(len(heads)), 2)]
    double = random.Random(0).sample(double, min(len(double), NUM_PAIRS))
    scores = [head_scores(model, batch, objective) for batch in batches]
    rows = []
    for title, sets in (("one", single), ("two", double)):
        losses = [
            torch.stack(
                [lost_without(model, each, objective, [heads[at] for at in own]) for own in sets], 1
            )
            for each in batches
        ]
        lost = torch.cat(losses)  # [N, sets]
        for name in scores[0]:
            of_heads = torch.cat([each[name] for each in scores])  # [N, A]
            found = torch.stack([of_heads[:, list(own)].sum(dim=1) for own in sets], dim=1)
            figures = []
            for pair in (torch.stack([found, lost]), torch.stack([found, lost]).mean(dim=1)):
                flat = pair.flatten(1)  # [2, heads of all texts]
                ranks = flat.argsort(dim=-1).argsort(dim=-1).double()
                both = (ranks.corrcoef()[0, 1], flat.corrcoef()[0, 1])
                figures.append(" / ".join(f"{each:.2f}" for each in both))
            rows.append([f"{title}, {name}", *figures])
    columns = ["ablated heads, score", "Spearman / Pearson, heads of all texts", "means over texts"]
    print(table(columns, rows))


def main() -> None:
    """Measure the methods on test texts, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", help="a run folder")
    parser.add_argument("--texts", type=int, default=300)
    parser.add_argument("--heads", action="store_true", help="heads instead of tokens")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    run = load_run(options.run)
    known = run.evidence or False
    data = TextDataModule(
        run.config.data, run.config.tokenizer, run.config.seed, run.tokenizer, known
    )
    texts = data.batches("test")
    (batches,) = draw_samples(texts, options.texts, 2048, 0)
    if options.heads:
        with eval_mode(run.model):
            compare_heads(run.model, batches, run.objective)
        return
    special = special_tokens(run.tokenizer).fixed
    removed: list[Tensor] = []
    rows = []
    for name, method in METHODS.items():
        times = NUM_RANDOM if method is by_chance else 1
        start = time.process_time()
        drawn = [[method(run.model, each, run.objective) for each in batches] for _ in range(times)]
        seconds = time.process_time() - start
        removed = removed or drawn[0]
        figures = []
        for measure in (comprehensiveness, sufficiency):
            found = [measure(run.model, batches, each, special, run.objective) for each in drawn]
            falls = torch.stack(found).mean(dim=0)
            figures.append(f"{falls.mean():.3f} ± {falls.std() / len(falls) ** 0.5:.3f}")
        agreed = torch.stack([correlations(batches, each, removed, special) for each in drawn])
        spearman, pearson = agreed.nanmean(dim=(0, 1)).tolist()
        rows.append([name, *figures, f"{spearman:.2f} / {pearson:.2f}", f"{seconds / times:.1f}"])
    columns = ["tokens by", "comprehensiveness (high)", "sufficiency (low)"]
    print(table([*columns, "Spearman / Pearson with leaving one out", "CPU seconds"], rows))


if __name__ == "__main__":
    main()
