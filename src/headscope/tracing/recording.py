"""Recording torch operations while they run: shapes, memory and time are read off the tensors themselves."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Operation:
    """One torch operation, as it was seen.

    Attributes:
        name: of the function in torch.
        inputs: shapes of the tensors it took, parameters left out.
        sources: for each of these, the number of the operation that made it; -1 if none did.
        outputs: shapes of the tensors it made.
        parameters: shapes of the parameters it took.
        numbers: plain numbers with a fraction that it took, such as a divisor.
        new_bytes: memory of the results that is not memory of an input: 0 for a view.
        copied_bytes: memory of copies that torch made on the way and that are no result; watched on request.
        seconds: how long it took.
    """

    name: str
    inputs: tuple[Shape, ...]
    sources: tuple[int, ...]
    outputs: tuple[Shape, ...]
    parameters: tuple[Shape, ...]
    numbers: tuple[float, ...]
    new_bytes: int
    copied_bytes: int
    seconds: float


class Copies(TorchDispatchMode):
    """Note the copies that torch makes inside an operation: memory by place, so that a result can be told apart."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation of torch's core; called by torch."""
        result = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.clone.default:
            self.bytes[_place(result)] = result.untyped_storage().nbytes()
        return result


class Recorder(TorchFunctionMode):
    """Write down every torch operation that runs within `with Recorder(...) as recorder`.

    Args:
        device: where the operations run; a GPU is waited for, so that each gets its own time.
        watch_copies: look for copies inside operations too, which takes time of its own.
    """

    def __init__(self, device: torch.device, watch_copies: bool = False) -> None:
        super().__init__()
        self.device, self.watch_copies = device, watch_copies
        self.operations: list[Operation] = []
        self._makers = WeakIdKeyDictionary()  # tensor to the number of the operation that made it; holds no tensor

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation and keep what was seen; called by torch."""
        kwargs = kwargs or {}
        copies = Copies()
        started = now(self.device)
        if self.watch_copies:
            with copies:
                result = func(*args, **kwargs)
        else:
            result = func(*args, **kwargs)
        seconds = now(self.device) - started
        made = _tensors(result)
        if made:  # reading a shape is no operation
            self._keep(func.__name__, tree_leaves((args, kwargs)), made, copies, seconds)
        return result

    def _keep(self, name: str, taken: list[Any], made: list[Tensor], copies: Copies, seconds: float) -> None:
        inputs = [tensor for tensor in _tensors(taken) if not isinstance(tensor, nn.Parameter)]
        parameters = [tensor for tensor in taken if isinstance(tensor, nn.Parameter)]
        results = {_place(tensor): tensor.untyped_storage().nbytes() for tensor in made}
        known = {_place(tensor) for tensor in [*inputs, *parameters]}
        operation = Operation(
            name,
            inputs=_shapes(inputs),
            sources=tuple(self._makers.get(tensor, -1) for tensor in inputs),
            outputs=_shapes(made),
            parameters=_shapes(parameters),
            numbers=tuple(number for number in taken if isinstance(number, float)),
            new_bytes=sum(size for place, size in results.items() if place not in known),
            copied_bytes=sum(size for place, size in copies.bytes.items() if place not in results),
            seconds=seconds,
        )
        for tensor in made:
            self._makers[tensor] = len(self.operations)
        self.operations.append(operation)


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _shapes(tensors: Sequence[Tensor]) -> tuple[Shape, ...]:
    return tuple(tuple(tensor.shape) for tensor in tensors)


def _place(tensor: Tensor) -> int:
    """Return where a tensor's memory begins; views of one memory have one place."""
    return tensor.untyped_storage().data_ptr()


def now(device: torch.device) -> float:
    """Return seconds on a clock, once all that a GPU was asked for is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
