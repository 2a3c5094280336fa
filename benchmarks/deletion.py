"""Which tokens a prediction rests on: what hiding those that each method names does to it.

    python benchmarks/deletion.py outputs/first             # a run; about 2 minutes on one core
    python benchmarks/deletion.py outputs/first --texts 300

Prints a table of comprehensiveness and sufficiency (DeYoung et al. 2020, ERASER), means over the
shares 1, 5, 10, 20 and 50 % of a text's tokens and over test texts, with standard errors. Gradient
x input and integrated gradients (Sundararajan et al. 2017, 20 midpoints from zero) are of the
log-odds of the prediction against the runner-up, over all that the network reads of a token: its
embedding, and its n-grams.
"""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from headscope.cli.evaluate import data_of
from headscope.data.batching import Batch, TextBatches
from headscope.heads.contributions import log_odds_direction
from headscope.heads.faithfulness import faithfulness
from headscope.heads.study import draw_samples, special_tokens
from headscope.model.objective import Objective
from headscope.run import load_run

STEPS = 20


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
        direction = log_odds_direction(model(*batch.inputs).double(), objective)
    factors = [(step + 0.5) / steps for step in range(steps)] if steps > 1 else [1.0]
    scores = torch.zeros(batch.token_ids.shape)
    for factor in factors:
        with torch.enable_grad(), scaled_inputs(model, factor) as read:
            log_odds = (model(*batch.inputs).double() * direction).sum()
        gradients = torch.autograd.grad(log_odds, [leaf for _, leaf in read])
        for (whole, _), gradient in zip(read, gradients, strict=True):
            scores += (whole * gradient).sum(dim=-1) / len(factors)
    return scores


def main() -> None:
    """Measure the methods on test texts, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", help="a run folder that is read out at [CLS]")
    parser.add_argument("--texts", type=int, default=300)
    options = parser.parse_args()
    torch.set_num_threads(1)
    run = load_run(options.run)
    data = data_of(run)
    texts = TextBatches(data.encoded["test"], data.labels("test"))
    batches = draw_samples(texts, options.texts, 2048, 0, 1)[0]
    methods = {
        "gradient x input": partial(along_path, 1),
        "integrated gradients": partial(along_path, STEPS),
    }
    special = special_tokens(run.tokenizer).fixed
    found = faithfulness(run.model, batches, special, objective=run.objective, more=methods)
    assert found is not None
    print("| tokens by | comprehensiveness (high) | sufficiency (low) |\n|---|---|---|")
    for name in ("contributions", *methods, "rollout", "chance"):
        figures = [f"{mean:.3f} ± {error:.3f}" for mean, error in found.choosers[name].values()]
        print(f"| {name} | {' | '.join(figures)} |")


if __name__ == "__main__":
    main()
