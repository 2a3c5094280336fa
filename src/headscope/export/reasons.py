"""The words' contributions as an ONNX graph: one pass forward, and one back with the gates fixed.

In it are the sums of `headscope.heads.contributions` for networks trained from scratch. With
attention weights, scales and gates held fixed a logit is linear in the leaves x: the output of the
embedding, and the evidence that is added to the values of each block. So token t contributes

    word_t = sum over leaves of x_t . d log-odds / d x_t

to the log-odds of the likeliest class against the runner-up, or against its absence where a text
may have any number of classes. torch's autograd is traced, so the graph has no gradient left.

Shape letters: B texts, T tokens, C classes, D width.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode

from headscope.ground.errors import RunError
from headscope.heads.gate_rules import RULES
from headscope.model.classifier import TextClassifier
from headscope.model.objective import MultiLabel
from headscope.runs.run import Run

FIXED = ("softmax", "scaled_dot_product_attention", "layer_norm")
MOST_MISSED = 1e-4
TRIED = 20  # words of the vocabulary
Call = Callable[..., Tensor]


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
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "gelu":  # f(0) = 0
            x = args[0].detach()
            return args[0] * (func(x, **kwargs) / x.masked_fill(x == 0, 1.0))
        if name in FIXED:
            return RULES[name](self, func, *args, **kwargs)
        return func(*args, **kwargs)


def word_sums(run: Run, call: Call) -> Call:
    """Return the function from the inputs of `call`, which gives logits, to the words [B, T].

    Raises:
        RunError: for a network that was not trained from scratch.
    """
    model = run.model
    if not isinstance(model, TextClassifier) or model.features is not None:
        raise RunError(
            f"run={run.folder}: reasons: expected a network trained from scratch, got one on a "
            "checkpoint; export without reasons, or headscope predict reasons=true"
        )
    observed: list[nn.Module] = [model.embedding]
    observed += [block.evidence for block in model.encoder.blocks if model.evidence is not None]  # type: ignore[misc]

    def words(*inputs: Tensor) -> Float[Tensor, "B T"]:
        leaves: list[Tensor] = []

        def as_leaf(module: nn.Module, given: Any, output: Tensor) -> Tensor:
            leaves.append(output.detach().requires_grad_())
            return leaves[-1]

        with ExitStack() as stack:
            for module in observed:
                stack.callback(module.register_forward_hook(as_leaf).remove)
            stack.enter_context(torch.enable_grad())
            with TracedGates():
                scaled = run.reading.scaled(call(*inputs))
            total = (scaled * toward(scaled.detach(), run)).sum()
            gradients = torch.autograd.grad(total, leaves, materialize_grads=True)
        pairs = zip(leaves, gradients, strict=True)
        return torch.stack([(leaf.detach() * of_leaf).sum(dim=-1) for leaf, of_leaf in pairs]).sum(
            0
        )

    return words


def toward(logits: Float[Tensor, "B C"], run: Run) -> Int[Tensor, "B C"]:
    """Return 1 at the likeliest class and -1 at the runner-up, if texts have one class."""
    C = logits.shape[1]
    if isinstance(run.objective, MultiLabel):
        return F.one_hot(logits.argmax(dim=1), C)
    first, second = F.one_hot(logits.topk(2, dim=1).indices, C).unbind(dim=1)
    return first - second


def traced_words(run: Run, call: Call, inputs: dict[str, Tensor]) -> GraphModule:
    """Return the graph of `word_sums`, for sizes that are free.

    Raises:
        RunError: if its sums are not those of `Run.explain`, as with a layer of the user's own.
    """
    words = word_sums(run, call)
    text = " ".join([*run.tokenizer.get_vocab()][:TRIED])
    parts = (text,) * (2 if run.config.data.text_pair_column else 1)
    ids, _, segments, *evidence = run.batch(parts).inputs
    given = [ids, torch.ones_like(ids), segments]
    given += [evidence[0].ids, evidence[0].places] if evidence else []
    found = words(*(tensor for tensor in given if tensor is not None))[0]
    missed = np.abs(found.numpy() - run.explain(parts if len(parts) > 1 else text).words).max()
    if not missed <= MOST_MISSED:
        raise RunError(f"run={run.folder}: reasons: the words' sums are off by {missed:.1e}")
    names = ("is_exporting", "is_compiling")  # without complex numbers, and branches on numbers
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(patch.object(torch.compiler, name, return_value=True))
        trace = make_fx(words, tracing_mode="symbolic", _allow_non_fake_inputs=True)
        return trace(*inputs.values())
