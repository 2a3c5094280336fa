"""The words' contributions as an ONNX graph: one pass forward, and one back with the gates fixed.

As in `headscope.heads.contributions`, for networks trained from scratch: of the leaves x, which are
the output of the embedding and the evidence added to the values of each block, token t contributes
sum of x_t . d log-odds / d x_t. torch's autograd is traced, so the graph has no gradient left.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode

from headscope.ground.errors import RunError
from headscope.heads.contributions import likeliest_log_odds
from headscope.heads.gate_rules import RULES
from headscope.model.classifier import TextClassifier
from headscope.runs.run import Run
from headscope.settings.extension import is_import_path

FIXED = ("softmax", "scaled_dot_product_attention", "layer_norm")


class TracedGates(TorchFunctionMode):
    """The rules of `headscope.heads.gate_rules` that look at no number, so can be traced."""

    def constant(self, constant: Tensor, like: Tensor) -> Tensor:
        """Return a bias, which is no leaf here."""
        return constant

    def attended(self, weights: Tensor, values: Tensor, head_outputs: Tensor) -> Tensor:
        """Return what heads have read."""
        return head_outputs

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Compute a function, with its gate fixed if it has one."""
        name = getattr(func, "__name__", "")
        if name == "gelu":  # f(0) = 0
            x = args[0].detach()
            return args[0] * (func(x, **(kwargs or {})) / x.masked_fill(x == 0, 1.0))
        if name in FIXED:
            return RULES[name](self, func, *args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def check_reasons(run: Run) -> None:
    """Raise a RunError for a network on a checkpoint, or with attention of the user's own."""
    is_own = isinstance(run.model, TextClassifier) and run.model.features is None
    if not is_own or is_import_path(run.config.model.attention):
        raise RunError(
            f"run={run.folder}: reasons: expected a network from scratch, with attention of "
            "headscope; export without reasons, and use headscope predict reasons=true"
        )


def words_graph(run: Run, call: Callable[..., Tensor], inputs: dict[str, Tensor]) -> GraphModule:
    """Return the graph from inputs of any size to the contribution of each token, [B, T].

    To the log-odds that `Run.explain` has by default. `call` gives the logits of `inputs`.
    """
    model: Any = run.model
    parts = [model.embedding, *(block.evidence for block in model.encoder.blocks)]

    def words(*given: Tensor) -> Float[Tensor, "B T"]:
        leaves: list[Tensor] = []

        def as_leaf(module: nn.Module, _: Any, output: Tensor) -> Tensor:
            leaves.append(output.detach().requires_grad_())
            return leaves[-1]

        with ExitStack() as stack:
            for part in filter(None, parts):
                stack.callback(part.register_forward_hook(as_leaf).remove)
            stack.enter_context(torch.enable_grad())
            with TracedGates():
                logits = run.reading.scaled(call(*given))
            total = likeliest_log_odds(logits, run.objective).sum()
            gradients = torch.autograd.grad(total, leaves, materialize_grads=True)
        pairs = zip(leaves, gradients, strict=True)
        products = [leaf * each for leaf, each in pairs]
        return torch.stack(products).sum(dim=(0, -1)).detach()

    with ExitStack() as stack:  # the model asks these for a form that can be traced
        for name in ("is_exporting", "is_compiling"):
            stack.enter_context(patch.object(torch.compiler, name, return_value=True))
        trace = make_fx(words, tracing_mode="symbolic", _allow_non_fake_inputs=True)
        graph: GraphModule = trace(*inputs.values())
        return graph
