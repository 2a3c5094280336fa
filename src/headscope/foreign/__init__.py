"""Models that are not ours, explained and trained: any module, and families that do not open.

`headscope.model.others` looks these modules up when such a model is met.
"""

from headscope.foreign import (
    fixed_gates,
    gradients,
    pretrained,
    transformers_files,
    transformers_models,
)

__all__ = [
    "fixed_gates",
    "gradients",
    "pretrained",
    "transformers_files",
    "transformers_models",
]
