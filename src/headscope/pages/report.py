"""What a run learned over many texts: `run.report`, and its files report.html and words.csv."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from headscope.data.batching import TextBatches, by_length
from headscope.ground.errors import LivePageError, RunError
from headscope.ground.files import home, read_json
from headscope.ground.tables import write_frame
from headscope.heads.capture import headed_layers
from headscope.heads.contributions import SPLIT_TOKENS
from headscope.heads.words import TextParts, split_texts, word_table
from headscope.model.objective import Answer
from headscope.pages.live import live_html, page_index
from headscope.pages.pack import MB
from headscope.pages.stored import Storage
from headscope.record.explanation import head_names
from headscope.record.schema import JOIN, label_text
from headscope.record.words import Listed, listed_words, ranked
from headscope.runs.folder import METRICS
from headscope.settings.commands import words_file
from headscope.tab.html import inert_json, live_page, write_page

if TYPE_CHECKING:
    from headscope.runs.run import Prediction, Run

PRINTED = 5
MOST_MB = 20.0
LISTED_MB = 8.0  # of these for the texts of the list
MOST_SCORED = 100_000
EXAMPLE = 200  # characters of a text in words.csv
Summary = dict[str, dict[str, list[Any]]]  # class -> word -> numbers
FACTS = 40  # bytes of what else is listed of a text


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
        self, label: str, column: str = "mean", count: int = PRINTED, against: bool = False
    ) -> pd.DataFrame:
        """Return the words that add most to a class, or against it; `column` may name a head.

        Words in fewer than 3 texts are left out, if any has as many, and so are those whose
        interval has 0 in it.
        """
        own = ranked(self.words[self.words["class"] == label], column)
        return own[own[column] < 0 if against else own[column] > 0].head(count)

    def summary(self) -> Summary:
        """Return of each class the five words that add most: [mean, interval, n texts]."""
        found: Summary = {}
        for label in dict.fromkeys(self.words["class"]):
            words = self.most(label)
            numbers = words[["mean", "interval", "n"]].astype(object)
            rows = numbers.where(numbers.notna(), None).values.tolist()
            found[label] = dict(zip(words["word"], rows, strict=True))
        return found

    def save_words(self, path: Path) -> None:
        """Write words.csv: the table of words, with an example for each."""
        examples = [JOIN.join(self.texts[row])[:EXAMPLE] for row in self.words["example"]]
        write_frame(home(path), self.words.assign(example=examples).round(4))


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
    layers = [*headed_layers(run.model)]
    if len(layers) != len(parts[0].heads):  # attention that is written by hand has no heads
        layers = [f"layer {number}" for number in range(len(parts[0].heads))]
    heads = head_names(layers, parts[0].heads)
    words = []
    for text in parts:
        own = texts[text.row]
        found = run.words_of(own)
        if run.config.tokenizer.lowercase:
            found = [word._replace(name=word.name.lower()) for word in found]
        words.append(found)
    table = word_table(parts, words, heads)
    table["class"] = [run.labels[number] for number in table["class"]]
    return TextsReport(texts, labels or [None] * len(texts), predictions, parts, table, heads)


def write_report(
    run: "Run", report: TextsReport, name: str, path: Path, words: Path | None = None
) -> float:
    """Write a report's page, and its words in a csv; return the size of the page in MB.

    `name` is that of the texts, such as "test"; `words` the csv, by default beside the page under
    its name, such as october.words.csv of october.html. A click on a text puts it into the network;
    where JavaScript cannot compute that, or it has no room, the page is without it and says why.
    """
    content = report_content(run, report, name)
    try:
        first = content["texts"][0]
        storage = Storage("int8" if run.setup.encoder is not None else "float16")
        page = live_html(run, first, storage, MOST_MB, report=content)
    except LivePageError as error:
        title = f"Run {run.folder.resolve().name} on {content['size']:,} texts: {name}"
        page = live_page(title, page_index(run), [], report=content | {"without": str(error)})
    write_page(path, page)
    report.save_words(words or words_file(path))
    return len(page) / MB


def report_content(run: "Run", report: TextsReport, name: str) -> dict[str, Any]:
    """Return what the page shows of a report.

    Of many texts scores are those of 100,000 drawn at random, and as many are listed as 8 MB hold:
    first examples of words, then wrong ones, the surest first, then others drawn at random.
    """
    places = {label: at for at, label in enumerate(run.labels)}

    def place(answer: Answer | None) -> int:
        return -1 if answer is None else places.setdefault(label_text(answer), len(places))

    words = listed_words(report.words)
    drawn = np.random.default_rng(0).permutation(len(report.texts))[:MOST_SCORED].tolist()
    scored = {
        "given": [place(report.given[row]) for row in drawn],
        "predicted": [place(report.predictions[row].label) for row in drawn],
        "unfamiliar": [report.predictions[row].is_unfamiliar for row in drawn],
    }
    heads = _through_heads(report)
    rows = _listed_rows(report, words, drawn, heads)
    content: dict[str, Any] = {
        "name": name,
        "size": len(report.texts),
        "split": len(report.parts),
        "scored": scored,
        "rows": rows,
        "texts": [[*report.texts[row]] for row in rows],
        "given": [place(report.given[row]) for row in rows],
        "predicted": [place(report.predictions[row].label) for row in rows],
        "answers": [*places],
        "confidence": [_confidence(report.predictions[row]) for row in rows],
        "unfamiliar": [report.predictions[row].is_unfamiliar for row in rows],
        "heads": [*map(heads.get, rows)],
        "names": report.heads,
        "words": words,
    }
    with suppress(RunError):
        if name == "test":
            content["baseline"] = read_json(run.folder / METRICS)["baseline"]
    return content


def _confidence(prediction: "Prediction") -> float:
    return round(max(prediction.probabilities.values()), 5)


def _through_heads(report: TextsReport) -> dict[int, list[float]]:
    """Return what passes through each head, of the texts whose log-odds are split, by row."""
    return {text.row: text.tokens[:, 1:].sum(axis=0).round(3).tolist() for text in report.parts}


def _listed_rows(
    report: TextsReport, words: Listed, drawn: Sequence[int], heads: dict[int, list[float]]
) -> list[int]:
    """Return the rows of the texts that the page lists; see `report_content`."""
    shown = {row for sides in words["mean"].values() for side in sides for *_, row in side}
    given = zip(report.given, report.predictions, strict=True)
    wrong = [row for row, (label, own) in enumerate(given) if label not in (None, own.label)]
    wrong.sort(key=lambda row: -_confidence(report.predictions[row]))
    first = wrong[:1]  # the text that the page opens with
    order = dict.fromkeys([*first, *sorted(shown), *wrong, *drawn])
    rows: list[int] = []
    room = LISTED_MB * MB
    for row in order:
        room -= len(inert_json([report.texts[row], heads.get(row)])) + FACTS
        if room < 0 and rows:
            break
        rows.append(row)
    return rows
