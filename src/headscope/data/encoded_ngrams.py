"""N-grams of a split, counted once into arrays on disk, and the vocabulary of those of the training split."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from datasets import Dataset
from scipy.sparse import csr_matrix
from tokenizers import Tokenizer

from headscope.data.cache import content_key
from headscope.data.columns import row_texts, texts_among
from headscope.data.encoded import TEXTS_AT_ONCE, digests_of, encode
from headscope.data.ngram_rows import NgramRows
from headscope.data.ngrams import RECIPE, NgramVocabulary, known_ngrams, load_ngrams
from headscope.data.token_ids import EncodedTexts
from headscope.files import replacing_folder


def trained_ngrams(train: Dataset, cache: Path) -> NgramVocabulary:
    """Return the known n-grams of the training split, from the cache if they were counted before."""
    path = cache / "ngrams" / f"{_key(train)}.safetensors"
    if not path.exists():
        known_ngrams(row_texts(train)).save(path)
    return load_ngrams(path)


def encode_with_ngrams(
    tokenizer: Tokenizer, ngrams: NgramVocabulary | None, dataset: Dataset, cache: Path
) -> EncodedTexts:
    """Encode a split and, where n-grams are known, count those too."""
    texts = encode(tokenizer, dataset, cache)
    return texts if ngrams is None else replace(texts, ngrams=encode_ngrams(ngrams, dataset, cache))


def encode_ngrams(vocabulary: NgramVocabulary, dataset: Dataset, cache: Path) -> NgramRows:
    """Return the known n-grams of every text, or what an earlier call left in the cache."""
    folder = cache / "ngrams" / _key(dataset, vocabulary.key())
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            with replacing_folder(folder) as temporary:
                _write(vocabulary, dataset, temporary)
        except OSError:  # perhaps another run was first: its files are the same
            if not folder.exists():
                raise
    ids, values = (
        np.memmap(folder / name, kind, "r") if (folder / name).stat().st_size else np.zeros(0, kind)
        for name, kind in (("ids.bin", np.int32), ("values.bin", np.float32))
    )
    return NgramRows(ids, values, np.load(folder / "starts.npy"))


def _key(dataset: Dataset, *others: str) -> str:
    columns = texts_among(dataset.column_names)
    return content_key(["n-grams", RECIPE, *others, *columns, *digests_of(dataset, columns)])


def _write(vocabulary: NgramVocabulary, dataset: Dataset, folder: Path) -> None:
    lengths = [np.zeros(1, np.int64)]
    with (folder / "ids.bin").open("wb") as ids, (folder / "values.bin").open("wb") as values:
        for start in range(0, len(dataset), TEXTS_AT_ONCE):
            stop = min(start + TEXTS_AT_ONCE, len(dataset))
            found = vocabulary.rows(list(row_texts(dataset.select(range(start, stop)))))
            ids.write(found.ids.tobytes())
            values.write(found.values.tobytes())
            lengths.append(np.diff(found.starts))
    np.save(folder / "starts.npy", np.cumsum(np.concatenate(lengths)))


def texts_with(rows: NgramRows, classes: np.ndarray, num_ngrams: int) -> np.ndarray:
    """Return how many texts of each class have each n-gram, [num_ngrams, C].

    Args:
        rows: of N texts, read from disk in steps.
        classes: [N, C], which text has which class.
        num_ngrams: how many are known.
    """
    found = np.zeros((num_ngrams, classes.shape[1]))
    for first in range(0, len(classes), TEXTS_AT_ONCE):
        some = classes[first : first + TEXTS_AT_ONCE]
        starts = rows.starts[first : first + len(some) + 1]
        ids = rows.ids[starts[0] : starts[-1]]
        present = csr_matrix((np.ones(len(ids)), ids, starts - starts[0]), (len(some), num_ngrams))
        found += present.T @ csr_matrix(some.astype(float))
    return found
