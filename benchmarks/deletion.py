"""Which tokens a prediction rests on: what hiding those that each method names does to it.

    python benchmarks/deletion.py outputs/first             # a run; about 2 minutes on one core
    python benchmarks/deletion.py outputs/first --texts 300

Prints a table of comprehensiveness and sufficiency (DeYoung et al. 2020, ERASER), means over the
shares 1, 5, 10, 20 and 50 % of a text's tokens and over test texts, with standard errors. Gradient
x input and integrated gradients (Sundararajan et al. 2017, 20 midpoints from zero) are of the
log-odds of the prediction against the runner-up, over all that the network reads of a token: its
embedding, and its n-grams.

Tokens are hidden by the key padding mask, not deleted as in the paper: the others keep their
places. Special tokens are neither ranked nor hidden. Shape letters: B texts, N texts in all, T
positions, S shares.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headscope.cli.evaluate import data_of
from headscope.data.batching import Batch, TextBatches
from headscope.heads.capture import eval_mode
from headscope.heads.contributions import decompose, likeliest_log_odds
from headscope.heads.study import draw_samples, special_tokens
from headscope.model.objective import ONE_CLASS, Objective
from headscope.run import load_run

STEPS = 20
BINS = (0.01, 0.05, 0.1, 0.2, 0.5)  # the bins of ERASER, section 4
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
            padding = batch.key_padding_mask
            if padding is None:
                padding = torch.zeros_like(batch.token_ids).bool()
            is_special = torch.isin(batch.token_ids, batch.token_ids.new_tensor(special_ids))
            choosable = ~padding & ~is_special  # [B, T]: may be hidden
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


@contextmanager
def scaled_inputs(model: nn.Module, factor: float) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """Scale what the network reads of each token; note (whole, leaf) of each kind."""
    read: list[tuple[Tensor, Tensor]] = []

    def scale(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
        leaf = (factor * output.detach()).requires_grad_()
        read.append((output.detach(), leaf))
        return leaf

    modules: list[Any] = [cast(Any, model).embedding.token, getattr(model, "evidence", None)]
    hooks = [module.register_forward_hook(scale) for module in modules if module is not None]
    try:
        yield read
    finally:
        for hook in hooks:
            hook.remove()


def along_path(steps: int, model: nn.Module, batch: Batch, objective: Objective) -> Tensor:
    """Return input x gradient, averaged over `steps` midpoints; with 1 at the input itself."""
    with torch.no_grad():
        likeliest = model(*batch.inputs).double()  # [B, C]
    ranked = torch.zeros_like(likeliest, requires_grad=True)
    with torch.enable_grad():
        log_odds = likeliest_log_odds(likeliest + ranked, objective).sum()
    (direction,) = torch.autograd.grad(log_odds, ranked)
    factors = [(step + 0.5) / steps for step in range(steps)] if steps > 1 else [1.0]
    scores = torch.zeros(batch.token_ids.shape)
    for factor in factors:
        with torch.enable_grad(), scaled_inputs(model, factor) as read:
            log_odds = (model(*batch.inputs).double() * direction).sum()
        gradients = torch.autograd.grad(log_odds, [leaf for _, leaf in read])
        for (whole, _), gradient in zip(read, gradients, strict=True):
            scores += (whole * gradient).sum(dim=-1) / len(factors)
    return scores


def by_chance(model: nn.Module, batch: Batch, objective: Objective) -> Tensor:
    """Return random scores, others at each call."""
    return torch.rand(batch.token_ids.shape)


def main() -> None:
    """Measure the methods on test texts, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", help="a run folder that is read out at [CLS]")
    parser.add_argument("--texts", type=int, default=300)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    run = load_run(options.run)
    data = data_of(run)
    texts = TextBatches(data.encoded["test"], data.labels("test"))
    (batches,) = draw_samples(texts, options.texts, 2048, 0)
    special = special_tokens(run.tokenizer).fixed
    methods: dict[str, tuple[Method, int]] = {  # and how often each is drawn
        "contributions": (contributed, 1),
        "gradient x input": (partial(along_path, 1), 1),
        "integrated gradients": (partial(along_path, STEPS), 1),
        "chance": (by_chance, NUM_RANDOM),
    }
    print("| tokens by | comprehensiveness (high) | sufficiency (low) |\n|---|---|---|")
    for name, (method, times) in methods.items():
        drawn = [[method(run.model, each, run.objective) for each in batches] for _ in range(times)]
        figures = []
        for measure in (comprehensiveness, sufficiency):
            found = [measure(run.model, batches, each, special, run.objective) for each in drawn]
            falls = torch.stack(found).mean(dim=0)
            figures.append(f"{falls.mean():.3f} ± {falls.std() / len(falls) ** 0.5:.3f}")
        print(f"| {name} | {' | '.join(figures)} |")


if __name__ == "__main__":
    main()
