"""The moving average of the weights, and a look at it between validations."""

from collections.abc import Iterator
from contextlib import contextmanager

from lightning.pytorch import LightningModule
from lightning.pytorch.callbacks import EMAWeightAveraging


class AveragedWeights(EMAWeightAveraging):
    """Keep an exponential moving average of the weights, which validation uses and the run keeps.

    (Polyak and Juditsky 1992; the exponential form as in Tarvainen and Valpola 2017, Mean Teachers.) Lightning puts
    the average in the place of the weights for each validation.

    Args:
        decay: share of the average that a step leaves as it was.
    """

    @contextmanager
    def in_place(self, pl_module: LightningModule) -> Iterator[None]:
        """Put the average in the place of the weights until the block is left."""
        if self._average_model is None:  # nothing has been trained yet
            yield
            return
        self._swap_models(pl_module)
        try:
            yield
        finally:
            self._swap_models(pl_module)
