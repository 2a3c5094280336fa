"""What a checkpoint knows of the optimizer, taken up by a run that may go on with other settings."""

from collections.abc import Callable
from itertools import chain
from typing import Any

import torch
from torch import nn

from headscope.training.layers import grouped


def take_up(
    checkpoint: dict[str, Any], model: nn.Module, optimizer: torch.optim.Optimizer, share: Callable[[int], float]
) -> None:
    """Rewrite a checkpoint's optimizer and schedule as ones of this run, so that its settings hold from here on.

    What AdamW remembers of each weight stays. Learning rates, decays and betas are those of `optimizer`: torch would
    put the checkpoint's in their place without a word, or, where optimizer.layer_decay has made other groups of the
    parameters, refuse it.

    Args:
        checkpoint: as Lightning writes it; changed. One of weights alone is left as it is.
        model: whose parameters they are.
        optimizer: made for this run, and without a step so far.
        share: of the peak learning rate at a step.
    """
    if "optimizer_states" not in checkpoint:
        return
    (saved,), (schedule,) = checkpoint["optimizer_states"], checkpoint["lr_schedulers"]
    # Parameters are numbered group by group: first all matrices, then the rest, or so for every layer.
    by_layer = len(saved["param_groups"]) > len(grouped(model, by_layer=False))
    before = chain(*grouped(model, by_layer).values())
    memory = {id(weight): saved["state"][number] for number, weight in enumerate(before) if number in saved["state"]}
    after = chain(*(group["params"] for group in optimizer.param_groups))
    state = {number: memory[id(weight)] for number, weight in enumerate(after) if id(weight) in memory}
    groups = optimizer.state_dict()["param_groups"]
    rates = [group["lr"] for group in groups]
    for group, rate in zip(groups, rates, strict=True):
        group.update(initial_lr=rate, lr=rate * share(schedule["last_epoch"]))
    checkpoint["optimizer_states"] = [{"state": state, "param_groups": groups}]
    schedule.update(base_lrs=rates, lr_lambdas=[None] * len(groups))
