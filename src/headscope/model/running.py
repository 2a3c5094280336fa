"""Running a model that other threads may run: one lock for each model, and eval mode.

Observers, interventions and the mode are kept in the modules, where every thread meets them. So
whoever sets them, or needs a model without them, holds its lock.
"""

from collections.abc import Iterator
from contextlib import contextmanager
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
