"""headscope trains Transformer text classifiers and shows what every attention head does.

    run = headscope.train({"data.path": "reviews.csv"})   keys of `headscope train`
    run = headscope.load("outputs/first")     a finished run: predict, explain, maps, show
    with headscope.capture(model) as maps:    attention weights of every head of a torch module
    with headscope.ablate(model, heads):      the module without some of its heads
    headscope.show(model, tokenizer, text)    every head of a transformers classifier, in a notebook
    headscope.compare(a, b, texts, labels)    two runs side by side over texts
    headscope.abilities(model, tokenizer)     what can be done with a classifier of transformers
    headscope.RecordHeads(...)                Lightning's callback: heads at every validation

Public names are imported when they are first used, so that `import headscope` and `--help` are
quick. CONTRIBUTING.md has a map of the folders.
"""

from pkgutil import resolve_name
from typing import Any

__version__ = "1.0.0"

# Of each public name where it stands.
_PLACES = {
    "ConfigError": "ground.errors:ConfigError",
    "DataError": "ground.errors:DataError",
    "Explanation": "record.explanation:Explanation",
    "HeadRecorder": "record.writer:HeadRecorder",
    "HeadView": "pages.head_view:HeadView",
    "HeadedAttention": "attention:HeadedAttention",
    "MultiHeadAttention": "attention:MultiHeadAttention",
    "Prediction": "runs.run:Prediction",
    "RecordHeads": "heads.lightning_callback:RecordHeads",
    "Run": "pages.shown_run:ShownRun",
    "RunError": "ground.errors:RunError",
    "Text": "record.schema:Text",
    "TextClassifier": "model.classifier:TextClassifier",
    "UserError": "ground.errors:UserError",
    "abilities": "foreign.abilities:abilities",
    "ablate": "heads.patching:ablate",
    "capture": "heads.capture:capture",
    "compare": "cli.compare:compare",
    "load": "pages.shown_run:load_shown",
    "show": "foreign.show:show",
    "train": "cli.from_python:train_with",
}
__all__ = ["__version__", *_PLACES]


def __getattr__(name: str) -> Any:
    """Import a public name."""
    if name not in _PLACES:
        raise AttributeError(f"module 'headscope' has no attribute {name!r}")
    globals()[name] = resolve_name(f"headscope.{_PLACES[name]}")
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
