"""What a run learned over many texts: `run.report`, and its files report.html and words.csv."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from headscope.data.batching import TextBatches
from headscope.ground.errors import LivePageError, RunError
from headscope.ground.files import read_json, replacing
from headscope.ground.tables import csv_cell
from headscope.heads.contributions import SPLIT_TOKENS
from headscope.heads.step import JOIN
from headscope.heads.words import TextParts, split_texts, word_table, words_of
from headscope.model.objective import Answer
from headscope.pages.live import MB, live_html, page_index
from headscope.record.schema import label_text
from headscope.record.words import listed_words
from headscope.runs.folder import METRICS
from headscope.runs.prediction import by_length
from headscope.tab.html import live_page, write_page

if TYPE_CHECKING:
    from headscope.runs.run import Prediction, Run

PRINTED = 5
MOST_MB = 20.0
EXAMPLE = 200  # characters of a text in words.csv


@dataclass(frozen=True)
class TextsReport:
    """What a run makes of N texts.

    Attributes:
        texts: each one text, or the two of a pair.
        given: the class or classes of each by name; None where they are unknown.
        predictions: what the run predicts of each.
        parts: what the log-odds of texts consist of, of those that the time was enough for.
        words: what each word adds to each class, as `headscope.heads.words.word_table` has it.
        heads: the names of the heads, columns of `words`.
    """

    texts: Sequence[tuple[str, ...]]
    given: Sequence[Answer | None]
    predictions: "Sequence[Prediction]"
    parts: Sequence[TextParts]
    words: pd.DataFrame
    heads: Sequence[str]

    def most(
        self, label: str, column: str = "sum", count: int = PRINTED, against: bool = False
    ) -> pd.DataFrame:
        """Return the words that add most to a class, or against it; `column` may name a head."""
        own = self.words[self.words["class"] == label].sort_values(column, ascending=against)
        return own[(own[column] < 0) == against].head(count)

    def summary(self) -> dict[str, dict[str, float]]:
        """Return the five words that add most to each class, and their sums; no signs, no [CLS]."""
        named = self.words[self.words["word"].str.match(r"\w") & (self.words["sum"] > 0)]
        return {
            label: dict(zip(own["word"][:PRINTED], own["sum"][:PRINTED].tolist(), strict=True))
            for label, own in named.groupby("class", sort=False)
        }

    def save_words(self, path: Path) -> None:
        """Write words.csv: the table of words, with an example for each."""
        examples = [JOIN.join(self.texts[row])[:EXAMPLE] for row in self.words["example"]]
        table = self.words.assign(example=examples).map(csv_cell)
        with replacing(path) as temporary:
            table.to_csv(temporary, index=False, float_format="%.4f")


def report_of(
    run: "Run", texts: Sequence[tuple[str, ...]], labels: Sequence[Answer] | None, seconds: float
) -> TextsReport:
    """Predict texts, and split their log-odds in batches drawn at random; see `Run.report`."""
    budget = run.config.data.tokens_per_batch
    encoded = run.encode(texts)
    predictions = run.label(encoded, budget)
    rows = [*by_length(encoded.lengths, min(SPLIT_TOKENS, budget))]
    batches = TextBatches(encoded)
    drawn = (batches[rows[at]] for at in np.random.default_rng(0).permutation(len(rows)))
    parts = [*split_texts(run.model, drawn, run.reading, seconds)]
    layers = enumerate(parts[0].heads)
    heads = [f"layer {at} head {head}" for at, count in layers for head in range(count)]
    words = []
    for text in parts:
        own = texts[text.row]
        encoding = run.tokenizer.encode(*own)  # type: ignore[arg-type]
        words.append(words_of(encoding, own, run.config.tokenizer.lowercase))
    table = word_table(parts, words, heads)
    table["class"] = [run.labels[number] for number in table["class"]]
    return TextsReport(texts, labels or [None] * len(texts), predictions, parts, table, heads)


def write_report(run: "Run", report: TextsReport, name: str, path: Path) -> float:
    """Write a report's page, and words.csv beside it; return the size of the page in MB.

    `name` is that of the texts, such as "test". A click on a text puts it into the network; where
    JavaScript cannot compute that, or it has no room, the page is without it and says why.
    """
    content = report_content(run, report, name)
    first = content["texts"][int(np.argmin(content["confidence"]))].split(JOIN)
    try:
        page = live_html(run, first, "float16", MOST_MB, report=content)
    except LivePageError as error:
        title = f"Run {run.folder.resolve().name}: {name}"
        page = live_page(title, page_index(run), [], report=content | {"without": str(error)})
    write_page(path, page)
    report.save_words(path.with_name("words.csv"))
    return len(page) / MB


def report_content(run: "Run", report: TextsReport, name: str) -> dict[str, Any]:
    """Return what the page shows of a report."""
    places = {label: at for at, label in enumerate(run.labels)}

    def place(answer: Answer | None) -> int:
        return -1 if answer is None else places.setdefault(label_text(answer), len(places))

    content: dict[str, Any] = {
        "name": name,
        "texts": [JOIN.join(parts) for parts in report.texts],
        "given": [*map(place, report.given)],
        "predicted": [place(prediction.label) for prediction in report.predictions],
        "answers": [*places],
        "confidence": [round(max(each.probabilities.values()), 5) for each in report.predictions],
        "unfamiliar": [each.is_unfamiliar for each in report.predictions],
        "heads": [None] * len(report.texts),
        "names": report.heads,
        "words": listed_words(report.words),
    }
    for text in report.parts:
        content["heads"][text.row] = text.tokens[:, 1:].sum(axis=0).round(3).tolist()
    with suppress(RunError):
        if name == "test":
            content["baseline"] = read_json(run.folder / METRICS)["baseline"]
    return content
