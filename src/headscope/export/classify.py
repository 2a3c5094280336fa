"""Label texts with an exported model: numpy, onnxruntime and tokenizers are all that it needs.

    python classify.py texts.txt > labels.jsonl      a text a line; of pairs: text, a tab, text
    python classify.py texts.jsonl > labels.jsonl    objects with the columns of training
    cat texts.txt | python classify.py --min-confidence 0.9

    from classify import Classifier
    Classifier("model").predict(["a text", "another"], min_confidence=0.9)

A row of the output has the text, the prediction (a list, if texts have any number of labels) and
the probability of each class. With --min-confidence the prediction is empty where abstained has a
reason: confidence, the highest probability is below it; or unfamiliar, the text is unlike those of
training.
"""

import argparse
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b, sha256
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnxruntime
from tokenizers import Encoding, Tokenizer, normalizers

TEXTS_AT_ONCE = 1024
TOKENS_PER_BATCH = 2048  # padding included
MOST_WORDS = 200_000  # in memory
NO_KEY = np.uint64(0)
# By the tables of the tokenizer: Python's own follow its version of Unicode.
NORMAL_FORM = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
# Hiragana, Chinese characters and Hangul, of which three in a row are an n-gram.
CHARACTER = re.compile(
    "[\u3041-\u309f\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af"
    "\U00020000-\U0003ffff]"
)
UNESCAPED = re.compile("[\x7f-\x9f\u2028\u2029]")  # which JSON leaves as they are
Texts = Sequence[tuple[str, ...]]


class Word(NamedTuple):
    """The n-grams of a word: its key, and the numbers of the known among it and its characters."""

    key: np.uint64  # 0 for none, such as a special token
    is_character: bool
    ngrams: np.ndarray


class Classifier:
    """An exported folder: model.onnx, tokenizer.json and, if the model reads n-grams, evidence.npy.

    `threads` is how many compute; None: OMP_NUM_THREADS, or as many as the machine has cores.
    """

    def __init__(self, folder: str | Path = ".", threads: int | None = None) -> None:
        folder = Path(folder)
        options = onnxruntime.SessionOptions()
        default = os.environ.get("OMP_NUM_THREADS", "")
        options.intra_op_num_threads = threads or (int(default) if default.isdecimal() else 0)
        model = folder / "model.onnx"
        model.stat()  # an error that names it, if it is missing
        providers = ["CPUExecutionProvider"]
        self.session = onnxruntime.InferenceSession(str(model), options, providers)
        properties = self.session.get_modelmeta().custom_metadata_map
        self.settings: dict[str, Any] = json.loads(properties["headscope"])
        self.labels: list[str] = self.settings["labels"]
        for name, digest in self.settings["sha256"].items():
            if sha256((folder / name).read_bytes()).hexdigest() != digest:
                raise ValueError(f"{folder / name}: is not of this model.onnx; export again")
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.encode_special_tokens = True  # the letters "[SEP]" in a text are letters
        self.inputs = [each.name for each in self.session.get_inputs()]
        self.outputs = [each.name for each in self.session.get_outputs()]
        self.keys = np.zeros(0, np.uint64)
        if "ngram_ids" in self.inputs:
            self.keys = np.load(folder / "evidence.npy", allow_pickle=False)
        self.words: dict[str, Word] = {}
        # Of each token; 0 of unknown ones, -1 of special ones.
        self.characters = np.array((self.settings["familiar"] or {}).get("characters", []))

    def predict(
        self, texts: Sequence[str | tuple[str, str]], min_confidence: float | None = None
    ) -> list[dict[str, Any]]:
        """Return for each text its prediction and probabilities."""
        if min_confidence is not None:
            self.check_confidence(min_confidence)
        parts = [(text,) if isinstance(text, str) else tuple(text) for text in texts]
        columns = self.settings["columns"]
        if any(len(each) != len(columns) for each in parts):
            raise ValueError(f"texts: expected {' and '.join(columns)} of each")
        encodings = self.tokenizer.encode_batch([self.beginnings(each) for each in parts])
        rows: list[dict[str, Any]] = [{}] * len(parts)
        order = sorted(range(len(parts)), key=lambda row: -len(encodings[row]))
        while order:  # batches of similar length
            count = max(1, TOKENS_PER_BATCH // len(encodings[order[0]]))
            batch = order[:count]
            order = order[count:]
            some = [encodings[row] for row in batch], [parts[row] for row in batch]
            answers = self.run(*some, min_confidence)
            for row, answer in zip(batch, answers, strict=True):
                rows[row] = answer
        return rows

    def beginnings(self, parts: tuple[str, ...]) -> Any:
        """Return a text or pair, a very long text cut after a word (if it has spaces)."""
        most = self.settings["max_characters"]
        cut = []
        for text in parts:
            words = text[:most].rsplit(maxsplit=1) if len(text) > most else []
            is_after_word = len(words) == 2 and len(words[0]) > most // 2
            cut.append(words[0] if is_after_word else text[:most])
        return tuple(cut) if len(cut) == 2 else cut[0]

    def check_confidence(self, least: float) -> None:
        """Raise a ValueError if the model cannot abstain below this probability."""
        if not 0 <= least <= 1:
            raise ValueError(f"min-confidence: expected a probability from 0 to 1, got {least}")
        if self.settings["multi_label"]:
            raise ValueError("min-confidence: expected one label a text; this model has several")

    def run(
        self, encodings: list[Encoding], texts: Texts, least: float | None
    ) -> Iterator[dict[str, Any]]:
        """Yield the row of each text of a batch, whose first is the longest."""
        shape = (len(encodings), len(encodings[0]))
        names = ("input_ids", "attention_mask", "token_type_ids")
        tensors = {name: np.zeros(shape, np.int64) for name in names}
        for row, encoding in enumerate(encodings):
            tensors["input_ids"][row, : len(encoding)] = encoding.ids
            tensors["attention_mask"][row, : len(encoding)] = 1
            tensors["token_type_ids"][row, : len(encoding)] = encoding.type_ids
        if "ngram_ids" in self.inputs:
            tensors |= self.evidence(encodings, texts)
        given = {name: tensors[name] for name in self.inputs}
        outputs = dict(zip(self.outputs, self.session.run(None, given), strict=True))
        classes = outputs["predicted"]
        is_unfamiliar = np.zeros(len(encodings), bool)
        if least is not None and self.settings["familiar"] is not None:  # older runs have no limits
            is_unfamiliar = self.is_unfamiliar(tensors["input_ids"], tensors["attention_mask"])
        for row, shares in enumerate(outputs["probabilities"]):
            names_of_row = [self.labels[number] for number in classes[row].nonzero()[0]]
            is_multi = self.settings["multi_label"]
            answer: dict[str, Any] = {"prediction": names_of_row if is_multi else names_of_row[0]}
            for label, share in zip(self.labels, shares.round(6).tolist(), strict=True):
                answer[f"probability_{label}"] = share
            if least is not None:
                reason = "" if shares.max() >= least else "confidence"
                answer["abstained"] = "unfamiliar" if is_unfamiliar[row] else reason
                if answer["abstained"]:
                    answer["prediction"] = ""
            yield answer

    def is_unfamiliar(self, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Return which texts have more unknown tokens, or shorter ones, than those of training."""
        limits = self.settings["familiar"]
        characters = self.characters[ids]
        is_word = (characters >= 0) & (mask == 1)
        counts = is_word.sum(axis=1)
        tokens = np.maximum(counts, 1)
        unknown = np.where(counts > 0, (is_word & (characters == 0)).sum(axis=1) / tokens, 1.0)
        mean = (characters * is_word).sum(axis=1) / tokens
        too_short = mean < limits["characters_per_token"]
        answer: np.ndarray = (unknown > limits["unknown_tokens"]) | too_short
        return answer

    def pieces(self, encoding: Encoding, parts: tuple[str, ...]) -> list[str]:
        """Return the piece of text that each token was made from; "" for special tokens."""
        tokens = zip(encoding.offsets, encoding.sequence_ids, strict=True)
        return ["" if part is None else parts[part][a:b] for (a, b), part in tokens]

    def evidence(self, encodings: list[Encoding], texts: Texts) -> dict[str, np.ndarray]:
        """Return the known n-grams of a batch, and the place of each, counted row by row."""
        words: list[Word] = []
        lengths = [len(encoding) for encoding in encodings]
        for encoding, parts in zip(encodings, texts, strict=True):
            words += map(self.word, self.pieces(encoding, parts))
        starts = np.arange(len(encodings)) * lengths[0]
        places = np.concatenate(
            [np.arange(start, start + n) for start, n in zip(starts, lengths, strict=True)]
        )
        keys = np.array([word.key for word in words])
        is_word = keys != NO_KEY
        is_sign = np.array([word.is_character for word in words])
        # Of two words, and of three characters, that end at a token; none reaches across a gap.
        pairs = joint_key(keys[:-1], keys[1:])
        threes = joint_key(pairs[:-1], keys[2:])
        context = np.full((len(keys), 2), NO_KEY)
        context[1:, 0] = np.where(is_word[1:] & is_word[:-1], pairs, NO_KEY)
        context[2:, 1] = np.where(is_sign[2:] & is_sign[1:-1] & is_sign[:-2], threes, NO_KEY)
        numbers, is_known = self.find(context)
        counts = [len(word.ngrams) for word in words]
        of_context = np.repeat(places, 2)[is_known.ravel()]
        return {
            "ngram_ids": np.concatenate([*(word.ngrams for word in words), numbers[is_known]]),
            "ngram_places": np.concatenate([np.repeat(places, counts), of_context]),
        }

    def word(self, piece: str) -> Word:
        """Return the word in a piece of text: NFKC, lower case, stripped; its ends are < and >."""
        known = self.words.get(piece)
        if known is not None:
            return known
        word = NORMAL_FORM.normalize_str(piece).strip()
        marked = f"<{word}>"
        runs = {marked[at : at + n] for n in (3, 4) for at in range(len(marked) - n + 1)}
        names = [f"word {word}", *(f"run {run}" for run in runs - {marked})] if word else []
        keys = np.array([key_of(name) for name in names], np.uint64)
        numbers, is_known = self.find(keys)
        is_character = CHARACTER.fullmatch(word) is not None
        new = Word(keys[0] if word else NO_KEY, is_character, numbers[is_known])
        if len(self.words) >= MOST_WORDS:
            self.words = {}
        self.words[piece] = new
        return new

    def find(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of each key among the known ones, and whether it is known."""
        numbers = np.searchsorted(self.keys, keys)
        return numbers, np.append(self.keys, ~NO_KEY)[numbers] == keys


def key_of(text: str) -> int:
    """Return a hash of 64 bits."""
    content = text.encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "little")


def joint_key(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return a key for two n-grams in this order."""
    mixed = (first ^ (first >> np.uint64(29))) * np.uint64(0x9E3779B97F4A7C15) + second
    mixed = mixed ^ (mixed >> np.uint64(32))
    key: np.ndarray = mixed * np.uint64(0xD6E8FEB86659FD93)
    return key


def read(lines: Iterable[str], columns: Sequence[str], is_json: bool) -> Iterator[tuple[str, ...]]:
    """Yield the text, or pair of texts, of each line."""
    for number, line in enumerate(lines, 1):
        text = line.rstrip("\r\n")
        if is_json and not text.strip():
            continue
        parts: list[Any] = text.split("\t") if len(columns) == 2 else [text]
        if is_json:
            row = json.loads(text)
            parts = [row.get(column) for column in columns] if isinstance(row, dict) else []
        if len(parts) != len(columns) or not all(isinstance(part, str) for part in parts):
            raise ValueError(f"line {number}: expected {' and '.join(columns)}, got {text[:60]!r}")
        "".join(parts).encode()  # half a surrogate pair is JSON, and cannot be encoded
        yield tuple(parts)


def main(arguments: Sequence[str]) -> None:
    """Write a row of JSON for each line of a file or of standard input."""
    parser = argparse.ArgumentParser(
        usage=argparse.SUPPRESS,  # it is in the description, and no second line of an error
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("texts", nargs="?", help="a file; standard input without one")
    parser.add_argument("--min-confidence", type=float, help="abstain below this probability")
    given = parser.parse_args(arguments)
    try:
        classifier = Classifier(Path(__file__).parent)
        if given.min_confidence is not None:
            classifier.check_confidence(given.min_confidence)
        columns = classifier.settings["columns"]
        sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
        path: Any = given.texts or 0
        with open(path, encoding="utf-8-sig", newline="") as source:  # noqa: PTH123
            texts = read(source, columns, str(path).endswith(".jsonl"))
            while window := list(islice(texts, TEXTS_AT_ONCE)):
                answers = classifier.predict(window, given.min_confidence)  # type: ignore[arg-type]
                for parts, answer in zip(window, answers, strict=True):
                    row = dict(zip(columns, parts, strict=True)) | answer
                    line = json.dumps(row, ensure_ascii=False)
                    print(UNESCAPED.sub(lambda sign: f"\\u{ord(sign[0]):04x}", line))
    except BrokenPipeError:  # of `| head`
        sys.stderr.close()
    except OSError as error:
        sys.exit(f"error: {error.filename}: {error.strerror}")
    except Exception as error:  # no UTF-8, a damaged model: one line says which
        sys.exit(f"error: {str(error).splitlines()[0]}")


if __name__ == "__main__":
    main(sys.argv[1:])
