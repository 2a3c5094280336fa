"""export(config): write a run as ONNX, with a front end that needs no torch."""

import shutil
from pathlib import Path

from rich.console import Console

from headscope.export import graph
from headscope.ground.errors import RunError
from headscope.ground.files import replacing
from headscope.ground.terminal import show_line, terminal
from headscope.runs.run import load_run
from headscope.settings.commands import ExportConfig


def export(config: ExportConfig, console: Console | None = None) -> Path:
    """Write a finished run as a folder, whole or not at all.

    Raises:
        RunError: if ONNX cannot hold the run, or the folder cannot be written.
    """
    output = Path(config.output)
    run = load_run(config.run)
    front_end = Path(graph.__file__).with_name("classify.py")
    try:
        with replacing(output) as folder:
            folder.mkdir()
            graph.write_onnx(run, folder / "model.onnx")
            shutil.copyfile(front_end, folder / "classify.py")
    except OSError as error:
        raise RunError(f"output={output}: cannot be written: {error}") from error
    needs = "it needs onnxruntime, tokenizers, numpy"
    console = terminal(console)
    show_line(console, f"{len(run.labels)} classes, written to {output}; {needs}:")
    show_line(console, f"python {output / 'classify.py'} texts.csv > labels.jsonl")
    return output
