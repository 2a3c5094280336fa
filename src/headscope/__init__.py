"""headscope trains Transformer text classifiers and shows what every attention head does.

    run = headscope.train({"data.path": "reviews.csv"})   keys of `headscope train`
    run = headscope.load("outputs/first")     a finished run: predict, explain, maps, show
    with headscope.capture(model) as maps:    attention weights of every head of a torch module
    with headscope.ablate(model, heads):      the module without some of its heads
    headscope.show(model, tokenizer, text)    every head of a transformers classifier, in a notebook
    headscope.abilities(model, tokenizer)     what can be done with a classifier of transformers
    headscope.RecordHeads(...)                Lightning's callback: heads at every validation

Public names are imported when they are first used, so that `import headscope` and `--help` are
quick. CONTRIBUTING.md has a map of the folders.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headscope.attention import HeadedAttention as HeadedAttention
    from headscope.attention import MultiHeadAttention as MultiHeadAttention
    from headscope.cli.from_python import train_with as train
    from headscope.ground.errors import ConfigError as ConfigError
    from headscope.ground.errors import DataError as DataError
    from headscope.ground.errors import RunError as RunError
    from headscope.ground.errors import UserError as UserError
    from headscope.heads.capture import ablate as ablate
    from headscope.heads.capture import capture as capture
    from headscope.heads.integrations.abilities import abilities as abilities
    from headscope.heads.integrations.lightning_callback import RecordHeads as RecordHeads
    from headscope.model.classifier import TextClassifier as TextClassifier
    from headscope.pages.show import HeadView as HeadView
    from headscope.pages.show import show as show
    from headscope.pages.shown_run import ShownRun as Run
    from headscope.pages.shown_run import load_shown as load
    from headscope.record.explanation import Explanation as Explanation
    from headscope.record.schema import Text as Text
    from headscope.record.writer import HeadRecorder as HeadRecorder
    from headscope.runs.run import Prediction as Prediction

__version__ = "1.0.0"

_MODULES = {
    "attention": ("HeadedAttention", "MultiHeadAttention"),
    "ground.errors": ("ConfigError", "DataError", "RunError", "UserError"),
    "heads.capture": ("ablate", "capture"),
    "record.schema": ("Text",),
    "record.writer": ("HeadRecorder",),
    "model.classifier": ("TextClassifier",),
    "record.explanation": ("Explanation",),
    "runs.run": ("Prediction",),
    "pages.shown_run": ("Run", "load"),
    "cli.from_python": ("train",),
    "heads.integrations.abilities": ("abilities",),
    "heads.integrations.lightning_callback": ("RecordHeads",),
    "pages.show": ("HeadView", "show"),
}
_CALLED_THERE = {"Run": "ShownRun", "load": "load_shown", "train": "train_with"}
_MODULE_OF = {name: f"headscope.{module}" for module, names in _MODULES.items() for name in names}

__all__ = [
    "ConfigError", "DataError", "Explanation", "HeadRecorder", "HeadView", "HeadedAttention",
    "MultiHeadAttention", "Prediction", "RecordHeads", "Run", "RunError",
    "Text", "TextClassifier", "UserError", "__version__", "abilities", "ablate", "capture",
    "load", "show", "train",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import a public name."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'headscope' has no attribute {name!r}")
    module = import_module(_MODULE_OF[name])
    globals()[name] = getattr(module, _CALLED_THERE.get(name, name))
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
