"""While a text is explained, torch.utils.checkpoint calls its function, and nothing is recomputed.

In a backward pass it would compute the function anew, where gates are not held fixed.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

import torch.utils.checkpoint

OWN: Any = torch.utils.checkpoint  # by whatever name a module has imported the function
_own: list[Any] = []  # OWN's parts, while they are replaced
_count = 0  # of blocks in all threads
_changing = Lock()


class _Called:
    """In place of the reentrant way."""

    @staticmethod
    def apply(function: Callable[..., Any], preserve_rng_state: bool, *args: Any) -> Any:
        return function(*args)


def _nothing_around(*_: Any, **__: Any) -> Iterator[None]:
    """In place of what stands around the call of the other way."""
    yield


@contextmanager
def no_recomputation() -> Iterator[None]:
    """Let torch.utils.checkpoint.checkpoint only call its function, until the block is left."""
    global _count
    with _changing:
        _count += 1
        if _count == 1:
            _own[:] = (OWN.CheckpointFunction, OWN._checkpoint_without_reentrant_generator)
            OWN.CheckpointFunction = _Called
            OWN._checkpoint_without_reentrant_generator = _nothing_around
    try:
        yield
    finally:
        with _changing:
            _count -= 1
            if not _count:
                OWN.CheckpointFunction, OWN._checkpoint_without_reentrant_generator = _own
