"""The texts of a finished run, as its model was given them."""

from headscope.data.datamodule import TextDataModule
from headscope.training.folder import Run


def data_of(run: Run) -> TextDataModule:
    """Return the splits that a run was trained, chosen and tested on, with its tokenizer and the n-grams it knows.

    Raises:
        DataError: if the data are gone.
    """
    config = run.config
    return TextDataModule(config.data, config.tokenizer, config.seed, run.tokenizer, run.ngrams or False)
