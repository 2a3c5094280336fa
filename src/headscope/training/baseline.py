"""What counting words would have reached on the same split: TF-IDF and logistic regression."""

import time
from collections.abc import Sequence

import numpy as np
import torch
from datasets import Dataset, DatasetDict
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline

from headscope.training.scoring import Scores, scores

WITHOUT_SPACES = 0.05  # texts with a smaller share of white space are read by characters


def baseline_scores(splits: DatasetDict) -> tuple[Scores, str, float]:
    """Fit on train, score on test: (scores, what was fitted, seconds).

    Words and pairs of words, or runs of 1 to 3 characters for text without spaces; terms in two texts or more,
    log term frequency; C = 10.
    """
    start = time.perf_counter()
    texts, labels = _texts(splits["train"]), np.asarray(splits["train"]["label"])
    by_characters = _white_space_share(texts) < WITHOUT_SPACES
    pipeline = _pipeline(by_characters).fit(texts, labels)
    probabilities = pipeline.predict_proba(_texts(splits["test"]))
    # A class that train lacks cannot be, since that is checked; but the columns must be in the order of the labels.
    logits = torch.from_numpy(np.log(np.clip(probabilities, 1e-12, 1.0))).float()
    name = f"TF-IDF ({'characters 1-3' if by_characters else 'words 1-2'}) + logistic regression"
    return scores(logits, torch.tensor(splits["test"]["label"])), name, time.perf_counter() - start


def _texts(split: Dataset) -> list[str]:
    if "text_pair" not in split.column_names:
        return list(split["text"])
    return [f"{text}\n{pair}" for text, pair in zip(split["text"], split["text_pair"], strict=True)]


def _white_space_share(texts: Sequence[str]) -> float:
    sample = "".join(texts[:1000])
    return sum(map(str.isspace, sample)) / max(1, len(sample))


def _pipeline(by_characters: bool) -> Pipeline:
    analyzer, ngrams = ("char", (1, 3)) if by_characters else ("word", (1, 2))
    vectorizer = TfidfVectorizer(analyzer=analyzer, ngram_range=ngrams, min_df=2, sublinear_tf=True)
    return make_pipeline(vectorizer, LogisticRegression(C=10, max_iter=1000))
