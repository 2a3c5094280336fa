"""page(config): write the page on which you type a text and see every head decide.

report(config): write what a run learned over many texts, and the same page beneath them.
"""

from pathlib import Path

from rich.console import Console

from headscope.ground.errors import LivePageError, RunError, UserError
from headscope.ground.files import check_links
from headscope.ground.terminal import Bar, show_line, terminal
from headscope.pages.examples import choose_examples
from headscope.pages.live import MB, Example, live_html
from headscope.pages.pack import check_supported
from headscope.pages.report import TextsReport, report_of, write_report
from headscope.results.console import show_words
from headscope.runs.prediction import best_device
from headscope.runs.run import Run, load_run
from headscope.runs.texts import own_corpus, texts_and_labels, texts_of
from headscope.settings.commands import PageConfig, ReportConfig
from headscope.tab.html import write_page


def page(config: PageConfig, console: Console | None = None) -> Path:
    """Write the page and return its path.

    Raises:
        RunError: if the run's network cannot run inside a page; the message says why.
    """
    console = terminal(console)
    run = load_run(config.run)
    examples: list[Example] = []
    try:
        check_supported(run)  # before examples are chosen
        if config.examples:
            with Bar(console, "choosing examples"):
                examples = _examples(run, config.examples, console)
        texts = examples[0].parts if examples else ()
        with Bar(console, "writing the page"):
            content = live_html(run, texts, config.dtype, config.max_mb, examples)
    except LivePageError as error:
        raise RunError(f"run={run.folder}: cannot run inside a page: {error}") from None
    path = Path(config.output)
    write_page(path, content)
    show_line(console, f"page:       {path} ({len(content) / MB:.1f} MB): open it in a browser")
    return path


def _examples(run: Run, count: int, console: Console) -> list[Example]:
    """Return validation texts; none, with the reason, where they are gone or have changed."""
    try:
        return choose_examples(run, own_corpus(run).splits["validation"], count)
    except UserError as error:
        show_line(console, f"no examples: {error}")
        return []


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
