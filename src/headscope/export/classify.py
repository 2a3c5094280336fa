"""Label texts with an exported model: needs numpy, onnxruntime, tokenizers and the files beside it.

    python classify.py texts.txt > labels.jsonl      a text a line; of pairs: text, a tab, text
    python classify.py texts.csv > labels.jsonl      the columns of training; also .tsv, .jsonl
    cat texts.txt | python classify.py

    from classify import Classifier
    Classifier("model").predict(["a text", "another"])

A row of the output has the row of the input, the prediction (a list, if texts have any number of
labels), the probability of each class, in `abstained` why there is no prediction (confidence or
unfamiliar), which model it was, and with reasons.onnx the words that decided.
"""

import argparse
import base64
import csv
import hashlib
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from answering import share_of_unknown, why_abstained
from ngrams import NO_KEY, context_keys, numbers_of, ranges, tokens_of_words, word_keys
from plain_rows import Row, as_text, format_of, renamed, rows_of
from tokenizers import Tokenizer
from units import ReadText, Units, Word, is_character, normal_form, read_texts

TOKENS_PER_BATCH = 2048  # padding included
MOST_KEPT = 64  # letters of a piece whose word is kept
WORDS_OF_REASON = 5
# What a terminal obeys, or that changes the direction: JSON leaves it as it is.
UNESCAPED = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class Classifier:
    """An exported model.onnx. OMP_NUM_THREADS says how many threads compute."""

    def __init__(self, folder: str | Path = ".") -> None:
        self.session = session_of(Path(folder, "model.onnx"))
        self.words: onnxruntime.InferenceSession | None = None
        if (graph := Path(folder, "reasons.onnx")).exists():
            self.words = session_of(graph)
            models = self.words.get_modelmeta().custom_metadata_map["budoux"]
            self.units = Units(json.loads(models))
        properties = self.session.get_modelmeta().custom_metadata_map
        self.settings: dict[str, Any] = json.loads(properties["headscope"])
        self.labels: list[str] = self.settings["labels"]
        self.model: str = self.settings["model"]  # digest and day of its training run
        self.least: float | None = self.settings["least_confidence"]
        self.tokenizer = Tokenizer.from_str(properties["tokenizer"])
        self.tokenizer.encode_special_tokens = True  # the letters "[SEP]" in a text are letters
        self.keys = np.frombuffer(base64.b64decode(properties["ngrams"]), np.uint64)
        self.inputs = [tensor.name for tensor in self.session.get_inputs()]

    def predict(self, texts: str | Sequence[str | tuple[str, str]]) -> list[dict[str, Any]]:
        """Return for each text, or for the only one, its prediction and probabilities."""
        texts = [texts] if isinstance(texts, str) else texts
        parts = [tuple(text) if isinstance(text, tuple | list) else (text,) for text in texts]
        columns = self.settings["columns"]
        for number, part in enumerate(parts):
            if len(part) != len(columns) or not all(isinstance(text, str) for text in part):
                raise ValueError(f"texts[{number}]: expected {' and '.join(columns)}, got {part}")
            "".join(part).encode()  # half a surrogate pair cannot be encoded
        read = read_texts(self.tokenizer, parts, counts_rest="ngram_ids" in self.inputs)
        rows: list[dict[str, Any]] = [{}] * len(parts)
        order = sorted(range(len(parts)), key=lambda row: -len(read[row].encoding))
        while order:  # batches of similar length
            count = max(1, TOKENS_PER_BATCH // len(read[order[0]].encoding))
            batch = order[:count]
            order = order[count:]
            for row, answer in zip(batch, self.answers([read[n] for n in batch]), strict=True):
                rows[row] = answer
        return rows

    def answers(self, texts: list[ReadText]) -> list[dict[str, Any]]:
        """Return the rows of a batch, the longest text first."""
        tensors = self.tensors(texts)
        shares, predicted = self.session.run(["probabilities", "predicted"], tensors)
        rows: list[dict[str, Any]] = []
        columns = [f"probability_{label}" for label in self.labels]
        for share, classes in zip(shares.round(6).tolist(), predicted, strict=True):
            numbers = classes.nonzero()[0]
            names = [self.labels[number] for number in numbers]
            probabilities = dict(zip(columns, share, strict=True))
            rows.append({"prediction": names} | probabilities)
        if self.least is not None:
            ids = np.concatenate([text.ids for text in texts])
            starts = np.cumsum([0, *(len(text.encoding) for text in texts)])
            kinds = (self.settings["ends"], self.settings["unknown"])
            unknown = share_of_unknown(ids, starts, *kinds)
            is_odd = unknown > self.settings["most_unknown"]
            whys = why_abstained(shares.max(axis=1), is_odd, self.least)
            for row, why in zip(rows, whys, strict=True):
                row |= {"prediction": "" if why else row["prediction"][0], "abstained": why}
        if self.words is not None:
            (words,) = self.words.run(["words"], tensors)
            for row, text, sums in zip(rows, texts, words, strict=True):
                row["reasons"] = reasons(self.units.words_of(text), sums)
        return [row | {"model": self.model} for row in rows]

    def tensors(self, texts: list[ReadText]) -> dict[str, np.ndarray]:
        """Return the inputs of the network for texts, the longest first."""
        shape = (len(texts), len(texts[0].encoding))
        names = ("input_ids", "attention_mask", "token_type_ids")
        tensors = {name: np.zeros(shape, np.int64) for name in names}
        for row, text in enumerate(texts):
            length = len(text.encoding)
            tensors["input_ids"][row, :length] = text.ids
            tensors["attention_mask"][row, :length] = 1
            tensors["token_type_ids"][row, :length] = text.encoding.type_ids
        if "ngram_ids" in self.inputs:
            tensors |= self.evidence(texts)
        return {name: tensors[name] for name in self.inputs}

    def evidence(self, texts: list[ReadText]) -> dict[str, np.ndarray]:
        """Return the known n-grams of a batch, and the place of each, counted row by row."""
        words = {"": 0}  # the distinct ones, and that of special tokens
        numbers = []  # of the word of each token
        for text in texts:
            for piece in text.pieces():
                word = (kept_word if len(piece or "") <= MOST_KEPT else word_of)(piece or "")
                numbers.append(words.setdefault(word, len(words)))
        read = np.array([len(text.encoding) for text in texts])
        counts = read + [len(text.rest) for text in texts]
        own = tokens_of_words(read, counts, np.array([text.carriers for text in texts]))
        at = np.repeat(np.arange(len(texts)) * read[0], counts) + own
        keys, starts = word_keys([*words])
        first = keys[starts[:-1]]
        first[0] = NO_KEY
        are_characters = np.array([is_character(word) for word in words])
        context = context_keys(first[numbers], are_characters[numbers])
        counts = np.diff(starts)[numbers]
        of_words = keys[ranges(starts[:-1][numbers], counts)]
        ids = numbers_of(np.concatenate([of_words, context.ravel()]), self.keys)
        where = np.concatenate([np.repeat(at, counts), np.repeat(at, 2)])
        is_known = ids >= 0
        return {"ngram_ids": ids[is_known].astype(np.int64), "ngram_places": where[is_known]}


def session_of(model: Path) -> onnxruntime.InferenceSession:
    """Return a graph, ready to run; ValueError unless it is what `headscope export` wrote."""
    content = model.read_bytes()
    line = f"{hashlib.sha256(content).hexdigest()}  {model.name}\n"
    if line.encode() not in model.with_name("SHA256SUMS").read_bytes():
        raise ValueError(f"{model}: is not what was exported: SHA256SUMS has another digest")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS", "0"))
    return onnxruntime.InferenceSession(content, options, ["CPUExecutionProvider"])


def reasons(words: Sequence[Word], sums: np.ndarray) -> str:
    """Return the words that add most, such as `proprietary +2.60; under -0.41`."""
    of_words: Counter[str] = Counter()
    for name, start, end in words:
        of_words[name] += sums[start:end].sum()
    largest = sorted(of_words.items(), key=lambda item: -abs(item[1]))[:WORDS_OF_REASON]
    shown = [(name, f"{value:+.2f}") for name, value in largest]
    return "; ".join(f"{name} {text if float(text) else text[1:]}" for name, text in shown)


def word_of(piece: str) -> str:
    """Return the word in a piece of text; "" where there is none."""
    return normal_form(piece).strip()  # type: ignore[no-any-return]


kept_word = lru_cache(32_768)(word_of)  # 30 MB at most


def read(path: str | None, columns: Sequence[str]) -> Iterator[tuple[Row, tuple[str, ...]]]:
    """Yield each row of a file, or of standard input, which has a text a line; and its texts."""
    form = format_of(Path(path or "lines.txt"))
    number = 0
    try:
        for row in rows_of(path or "-", form, columns[0]):
            parts = [row.get(column, 0) for column in columns]
            if form == "lines" and len(columns) == 2:
                parts = row[columns[0]].split("\t")
                row = dict(zip(columns, parts, strict=False))
            texts = [text for part in parts if (text := as_text(part)) is not None]
            if not len(texts) == len(parts) == len(columns):
                raise ValueError(f"expected {' and '.join(columns)}, got {[*row]}")
            yield row, tuple(texts)
            number += 1
    except (csv.Error, ValueError) as error:
        raise ValueError(f"row {number}: {error}") from error


def main(path: str | None) -> None:
    """Write a row of JSON for each row of a file or of standard input."""
    classifier = Classifier(Path(__file__).parent)
    columns = classifier.settings["columns"]
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    rows = read(path, columns)
    while window := list(islice(rows, 1024)):
        texts: Any = [texts for _, texts in window]
        answers = classifier.predict(texts)
        for (row, _), answer in zip(window, answers, strict=True):
            line = json.dumps(renamed(row, answer) | answer, ensure_ascii=False)
            print(UNESCAPED.sub(lambda sign: f"\\u{ord(sign[0]):04x}", line))


if __name__ == "__main__":
    raw = argparse.RawDescriptionHelpFormatter
    # The usage is in the description, and no second line of an error.
    parser = argparse.ArgumentParser(None, argparse.SUPPRESS, __doc__, formatter_class=raw)
    parser.add_argument("texts", nargs="?", help="a file; standard input without one")
    given = parser.parse_args()
    try:
        main(given.texts)
    except BrokenPipeError:  # of `| head`
        sys.stderr.close()
    except Exception as error:  # no such file, no UTF-8, a damaged model: one line says which
        line = (str(error) or type(error).__name__).splitlines()[0]
        signs = (sign if sign.isprintable() else f"\\u{ord(sign):04x}" for sign in line)
        sys.exit(f"error: {''.join(signs)}")
