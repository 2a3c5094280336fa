"""page(config): write the page on which you type a text and see every head decide.

report(config): write what a run learned over many texts, and the same page beneath them.
"""

from dataclasses import replace
from pathlib import Path

from rich.console import Console

from headscope.data.corpus import Corpus
from headscope.ground.errors import LivePageError, RunError, UserError
from headscope.ground.files import check_links
from headscope.ground.terminal import Bar, show_line, terminal
from headscope.pages.examples import choose_examples
from headscope.pages.live import Example, live_html
from headscope.pages.pack import MB, check_supported
from headscope.pages.report import TextsReport, report_of, write_report
from headscope.pages.stored import Dtype, Storage, default_dtype, measured, seen_ids
from headscope.pages.tokenizer import page_tokenizer
from headscope.results.console import show_words
from headscope.runs.prediction import best_device
from headscope.runs.run import Run, load_run
from headscope.runs.texts import own_corpus, texts_and_labels, texts_of
from headscope.settings.commands import PageConfig, ReportConfig
from headscope.tab.html import write_page

MOST_CHANGED = 0.05  # of a probability, by a vocabulary that is cut


def page(config: PageConfig, console: Console | None = None) -> Path:
    """Write the page and return its path.

    Raises:
        RunError: if the run's network cannot run inside a page; the message says why.
    """
    console = terminal(console)
    run = load_run(config.run)
    dtype = config.dtype or default_dtype(run)
    examples: list[Example] = []
    storage = Storage(dtype)
    try:
        check_supported(run)  # before texts are read
        corpus = None
        if config.examples or run.setup.encoder is not None or dtype != "float32":
            corpus = _corpus(run, console)
        if corpus is not None and config.examples:
            with Bar(console, "choosing examples"):
                examples = choose_examples(run, corpus.splits["validation"], config.examples)
        if corpus is not None:
            with Bar(console, "measuring what its weights change"):
                storage = _storage(run, dtype, corpus)
        texts = examples[0].parts if examples else ()
        with Bar(console, "writing the page"):
            content = live_html(run, texts, storage, config.max_mb, examples)
    except LivePageError as error:
        raise RunError(
            f"run={run.folder}: cannot run inside a page: {error}; "
            f"`headscope inspect run={run.folder} text=...` shows a text"
        ) from None
    path = Path(config.output)
    write_page(path, content)
    show_line(console, f"page:       {path} ({len(content) / MB:.1f} MB): open it in a browser")
    return path


def _corpus(run: Run, console: Console) -> Corpus | None:
    """Return the texts of a run; None, with the reason, where they are gone or have changed."""
    try:
        return own_corpus(run)
    except UserError as error:
        show_line(console, f"no examples: {error}")
        return None


def _storage(run: Run, dtype: Dtype, corpus: Corpus) -> Storage:
    """Return how the page stores a network, and what that changes on validation texts.

    The vocabulary of a checkpoint is cut to what training saw, unless that alone changes an answer.
    """
    texts, _ = texts_and_labels(corpus.splits["validation"], run.objective, run.labels)
    whole = [*page_tokenizer(run.tokenizer, run.config.data.most_tokens)["ids"]]
    if run.setup.encoder is not None:
        learned, _ = texts_and_labels(corpus.splits["train"], run.objective, run.labels)
        storage = Storage(dtype, seen_ids(run, learned))
        ids = page_tokenizer(run.tokenizer, run.config.data.most_tokens, storage.kept)["ids"]
        change = measured(run, storage, ids, texts)
        if change is None or (change.most <= MOST_CHANGED and change.labels == 0):
            return replace(storage, change=change)
    storage = Storage(dtype)
    return replace(storage, change=measured(run, storage, whole, texts))


def report(config: ReportConfig, console: Console | None = None) -> TextsReport:
    """Write a report and its words beside it, and return what they hold."""
    console = terminal(console)
    run = load_run(config.run)
    if Path(config.output).parent.resolve() == run.folder.resolve():
        check_links(run.folder)
    with Bar(console, "reading texts"):
        dataset, split = texts_of(config, run)
    run.model.to(best_device(config.accelerator))
    show_line(console, f"{len(dataset)} {split} texts; words: up to {config.seconds:g} s")
    with Bar(console, "contributions of words"):
        texts = texts_and_labels(dataset, run.objective, run.labels)
        found = report_of(run, *texts, config.seconds)
        name = split if config.data is None else Path(config.data.path).stem
        path = Path(config.output)
        file = config.words
        size = write_report(run, found, name, path, file)
    show_words(console, found.summary())
    words = f"{file.name}: words of {len(found.parts)} of {len(dataset)} texts"
    show_line(console, f"report:     {config.output} ({size:.1f} MB), {words}")
    return found
