"""Running a model that other threads may run: one lock for each model, eval mode, counted runs.

Observers, interventions and the mode are kept in the modules, where every thread meets them. So
whoever sets them, or needs a model without them, holds its lock.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import Lock, RLock
from typing import Any

from torch import nn
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
