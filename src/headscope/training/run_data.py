"""The texts of a finished run, as its model was given them."""

from headscope.data.corpus import Corpus
from headscope.data.datamodule import TextDataModule
from headscope.errors import RunError, listed
from headscope.training.folder import Run


def data_of(run: Run) -> TextDataModule:
    """Return the splits that a run was trained, chosen and tested on, with its tokenizer and the n-grams it knows.

    Raises:
        DataError: if the data are gone.
        RunError: if they have other labels now.
    """
    config = run.config
    data = TextDataModule(config.data, config.tokenizer, config.seed, run.tokenizer, run.ngrams or False)
    check_own(data.corpus, run)
    return data


def check_own(corpus: Corpus, run: Run) -> None:
    """Raise a RunError if a run's own data no longer have the labels of its logits: the file has changed since."""
    if corpus.labels != run.labels:
        raise RunError(
            f"run={run.folder}: was trained on the labels {listed(run.labels)}, and {run.config.data.path} now has "
            f"{listed(corpus.labels)}; give it the data that it had"
        )
