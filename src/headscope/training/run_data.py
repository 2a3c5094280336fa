"""The texts of a finished run, as its model was given them."""

from collections.abc import Mapping

from headscope.data.corpus import Corpus
from headscope.data.datamodule import TextDataModule
from headscope.errors import RunError, listed
from headscope.training.folder import Run
from headscope.training.kept import facts_of_data


def data_of(run: Run) -> TextDataModule:
    """Return the splits that a run was trained, chosen and tested on, with its tokenizer and n-grams.

    Raises:
        DataError: if the data are gone.
        RunError: if they have other labels now.
    """
    config = run.config
    data = TextDataModule(config.data, config.tokenizer, config.seed, run.tokenizer, run.evidence or False)
    check_own(data.corpus, run)
    return data


def check_own(corpus: Corpus, run: Run) -> None:
    """Raise a RunError if a run's own data are others now: of other labels, or cut into splits of other sizes.

    A cut of other texts is another cut: what the model learned may be in its test split now.
    """
    if corpus.labels != run.labels:
        raise RunError(
            f"run={run.folder}: was trained on the labels {listed(run.labels)}, and {run.config.data.path} now has "
            f"{listed(corpus.labels)}; give it the data that it had"
        )
    facts = facts_of_data(run.folder)
    was, now = facts.get("sizes"), {role: len(split) for role, split in corpus.splits.items()}
    if was is not None and was != now and any(name.endswith("cut from train") for name in facts):
        raise RunError(
            f"run={run.folder}: {run.config.data.path} has changed: its splits had {_sizes(was)}, and would now be "
            f"{_sizes(now)}, with texts among the test that the model may have learned; give it the data that it had, "
            "or score a file of other texts: data.path=..."
        )


def _sizes(splits: Mapping[str, int]) -> str:
    return ", ".join(f"{role} {size}" for role, size in splits.items())
