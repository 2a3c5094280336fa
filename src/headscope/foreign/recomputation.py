"""While a text is explained, torch.utils.checkpoint calls its function, and recomputes nothing.

In a backward pass it would compute the function anew, where gates are not held fixed.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

import torch.utils.checkpoint

MODULE: Any = torch.utils.checkpoint
_own: list[Any] = []  # what is replaced, once for each block that is entered
_changing = Lock()


class _Called:
    """In place of the reentrant way: whoever imported `checkpoint` has this behind it, too."""

    @staticmethod
    def apply(function: Callable[..., Any], preserve_rng_state: bool, *args: Any) -> Any:
        return function(*args)


def _around(*_: Any, **__: Any) -> Iterator[None]:
    """In place of what the other way does before the call and after it."""
    yield


@contextmanager
def no_recomputation() -> Iterator[None]:
    """Let torch.utils.checkpoint.checkpoint call its function alone, until the block is left."""
    with _changing:
        _own.append((MODULE.CheckpointFunction, MODULE._checkpoint_without_reentrant_generator))
        MODULE.CheckpointFunction = _Called
        MODULE._checkpoint_without_reentrant_generator = _around
    try:
        yield
    finally:
        with _changing:  # threads leave in any order: the last one takes the first that was kept
            own = _own.pop()
            if not _own:
                MODULE.CheckpointFunction, MODULE._checkpoint_without_reentrant_generator = own
