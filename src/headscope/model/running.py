"""Running a model that other threads may run: one lock for each model, eval mode, counted runs.

Observers, interventions and the mode are kept in the modules, where every thread meets them. So
whoever sets them, or needs a model without them, holds its lock.
"""

import inspect
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from threading import Lock, RLock
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

_locks: Any = WeakIdKeyDictionary()
_making = Lock()


def lock_of(owner: Any) -> Any:
    """Return the lock of a model or tokenizer, which the thread that holds it may take again.

    That of a model belongs to its first parameter, so wrappers around a model have the same one.
    """
    if isinstance(owner, nn.Module):
        owner = next(owner.parameters(), owner)
    with _making:
        if owner not in _locks:
            _locks[owner] = RLock()
        return _locks[owner]


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Put the model into eval mode, and afterwards each of its modules back into its own.

    Until then other threads that need its mode wait.
    """
    with lock_of(model):
        modes = {module: module.training for module in model.modules()}
        model.eval()
        try:
            yield
        finally:
            for module, mode in modes.items():
                module.training = mode


def accepts(model: nn.Module, name: str) -> bool:
    """Return whether a model takes an argument: by its name, or as one of any that it passes on."""
    parameters = inspect.signature(model.forward).parameters
    kinds = {parameter.kind for parameter in parameters.values()}
    return name in parameters or inspect.Parameter.VAR_KEYWORD in kinds


def logits_in(output: Any) -> Any:
    """Return the logits in what a model returns: its `logits`, or itself; of a tuple the first.

    A model returns a tuple if its config says `return_dict=False`.
    """
    if isinstance(output, Mapping):
        return output.get("logits")
    if isinstance(output, tuple) and not hasattr(output, "logits"):
        return output[0] if output else None
    return getattr(output, "logits", output)


def are_probabilities(logits: Tensor) -> bool:
    """Return whether rows are no logits: none is below 0, and each sums to 1."""
    rows = logits.detach().float()
    is_share = (rows >= 0).all() and rows.shape[-1] > 1
    return bool(is_share and torch.allclose(rows.sum(dim=-1), torch.ones(len(rows)).to(rows)))


@contextmanager
def hooks_kept(model: nn.Module) -> Iterator[None]:
    """Remove the hooks that are added in the block, as transformers does to show hidden states.

    After an interrupt too; so the model can be pickled as before.
    """
    modules = [*model.modules()]
    before = [(set(module._forward_hooks), {*vars(module)}) for module in modules]
    try:
        yield
    finally:
        for module, (hooks, names) in zip(modules, before, strict=True):
            for key in set(module._forward_hooks) - hooks:
                del module._forward_hooks[key]
            for name in {*vars(module)} - names:  # such as a note that there are hooks
                delattr(module, name)


class Undrawn(TorchFunctionMode):
    """In the block `torch.nn.init` leaves tensors as they are: their values are loaded afterwards.

    With `shapes_only`, new tensors are on the device meta, without memory. `torch.device("meta")`
    would compute positions there too, in Python, which imports torch's compiler: 0.7 of a first
    answer's 2.9 CPU seconds.
    """

    def __init__(self, shapes_only: bool = False) -> None:
        super().__init__()
        self.device = {"device": "meta"} if shapes_only else {}

    def __torch_function__(
        self, function: Any, types: Any, arguments: Any = (), options: Any = None
    ) -> Any:
        """Call the function, unless it only fills a tensor."""
        options = options or {}
        if getattr(function, "__module__", "") == "torch.nn.init":
            return arguments[0] if arguments else options["tensor"]
        if function in (torch.empty, torch.ones, torch.zeros):
            options = options | self.device
        return function(*arguments, **options)


class Runs:
    """How often each layer has run in a forward pass: `layer`, then `layer#1`, `layer#2`.

    A pass begins where a part of the model is called and none is running.
    """

    def __init__(self, model: nn.Module) -> None:
        self._counts: Counter[str] = Counter()
        self._depth = 0
        parts = [module for module in model.modules() if next(module.children(), None) is not None]
        self._outer = parts or [model]

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count the runs in the block."""
        with ExitStack() as stack:
            for module in self._outer:
                stack.callback(module.register_forward_pre_hook(self._start).remove)
                handle = module.register_forward_hook(self._end, always_call=True)
                stack.callback(handle.remove)
            yield

    def name(self, layer: str) -> str:
        """Return the name of a layer's run, and count it."""
        run = self._counts[layer]
        self._counts[layer] += 1
        return f"{layer}#{run}" if run else layer

    def _start(self, *_: Any) -> None:
        if not self._depth:
            self._counts.clear()
        self._depth += 1

    def _end(self, *_: Any) -> None:
        self._depth -= 1
