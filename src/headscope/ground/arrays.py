"""Arrays in files of the cache."""

import errno
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from headscope.ground.files import cached


def cached_arrays(
    path: Path, make: Callable[[], Mapping[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """Return named arrays, mapped into memory from a safetensors file; see `cached`."""

    def write(temporary: Path) -> None:
        try:
            save_file({name: torch.from_numpy(each) for name, each in make().items()}, temporary)
        except SafetensorError as error:  # such as of a full disk
            raise OSError(errno.EIO, str(error)) from error

    with safe_open(cached(path, write), "pt") as file:
        return {name: file.get_tensor(name).numpy() for name in file.keys()}  # noqa: SIM118
