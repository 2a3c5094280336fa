"""A finished run that also shows what it does: `headscope.load("outputs/first")`."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from headscope.data.batching import TextBatches, by_length
from headscope.ground.files import home
from headscope.model.objective import Answer, as_labels
from headscope.pages.stored import Dtype
from headscope.runs.checkpoint import is_checkpoint, open_checkpoint
from headscope.runs.folder import load_model
from headscope.runs.run import Run, TextOrPair

if TYPE_CHECKING:
    import pandas as pd

    from headscope.pages.head_view import HeadView
    from headscope.pages.report import TextsReport

MOST_MB_CELL = 3.0  # of a page in a notebook: Jupyter drops a larger output


@dataclass(frozen=True, repr=False)
class ShownRun(Run):
    """A `headscope.runs.run.Run`, with the pages of its texts.

    `predict`, `explain` and `maps` are those of the run.
    """

    def show(self, text: TextOrPair) -> "HeadView":
        """Show every head on a text: the last line of a notebook's cell displays the page.

        Where the network fits into a cell (3 MB, in float16: Jupyter drops more), you can type
        another text on it. `view.save(path)` writes what is displayed; for a page in which a
        larger network runs: `headscope page`.
        """
        from headscope.pages.live import text_view  # here: scipy.stats takes a second to import

        (parts,) = self._parts([text])
        dtype: Dtype = "int8" if self.setup.encoder is not None else "float16"
        return text_view(self, parts, None, dtype, MOST_MB_CELL)[0]

    def report(
        self,
        texts: Sequence[TextOrPair],
        labels: Sequence[Answer] | None = None,
        seconds: float = 20.0,
    ) -> "TextsReport":
        """Return what the run makes of many texts: the words that add most to each class.

            report = run.report(texts, labels)
            report.most("positive")  # words, their sum and mean over the texts, and an example

        Every text is predicted; within `seconds` as many as possible, drawn at random, are split
        into words and heads. `labels` are the given ones, by name.

        Raises:
            ValueError: as in `predict`; without texts; or for another number of labels.
        """
        from headscope.pages.report import report_of  # here: pandas takes time to import

        parts = self._parts(texts)
        if not parts or (labels and len(labels) != len(parts)):
            raise ValueError(f"texts: expected one for each label, got {len(parts)}")
        return report_of(self, parts, labels, seconds)

    def effects(
        self, texts: Sequence[TextOrPair], labels: Sequence[Answer], seed: int = 0
    ) -> "pd.DataFrame":
        """Return what each head is worth, by zero, mean and resample ablation.

            run.effects(texts, labels).to_csv("effects.csv")

        Of each the mean that replacing the head's output adds to the loss, in nats, and the ends of
        its 95 % interval, the largest mean first; see `headscope.heads.patching.effect_table`.

        Raises:
            ValueError: as in `predict`; for a class that the run does not know; or for a model
                whose heads cannot be patched.
        """
        parts = self._parts(texts)
        unknown = sorted({*chain.from_iterable(map(as_labels, labels))} - {*self.labels})
        if not parts or len(labels) != len(parts) or unknown:
            raise ValueError(f"labels: expected one of {self.labels} for each text, got {unknown}")
        truth = torch.tensor([[name in as_labels(own) for name in self.labels] for own in labels])
        targets = truth.long() if self.config.data.multi_label else truth.long().argmax(dim=1)
        texts_of = TextBatches(self.encode(parts), targets.numpy())
        rows = by_length(texts_of.texts.lengths, self.config.data.tokens_per_batch)
        batches = [texts_of[own] for own in rows]
        from headscope.heads.patching import effect_table  # here: it imports scipy.stats

        return effect_table(self.model, batches, self.objective, seed)


def load_shown(folder: str | Path, allow_code: bool = False) -> ShownRun:
    """Load a run, or a classifier of transformers that opens, in eval mode and on the CPU.

    The modules that its settings name, such as model.attention=my_package:MyAttention, are imported
    with `allow_code` or HEADSCOPE_ALLOW_CODE=1 alone: that runs any code in them.

    Raises:
        RunError: if its file is missing or damaged, or names code that is not allowed.
        ConfigError: if that code cannot be imported.
    """
    folder = home(folder)
    if is_checkpoint(folder):
        return ShownRun(folder, *open_checkpoint(folder))
    return ShownRun(folder, *load_model(folder, allow_code))
