"""export(config): write a run as ONNX, with a front end that needs no torch."""

import shutil
from pathlib import Path

from rich.console import Console

from headscope.ground.errors import RunError
from headscope.ground.files import replacing
from headscope.ground.terminal import show_line, terminal
from headscope.runs.run import Run, load_run
from headscope.settings.commands import ExportConfig


def export(config: ExportConfig, console: Console | None = None) -> Path:
    """Write a finished run as a folder, whole or not at all.

    Raises:
        ConfigError: if a package is missing.
        RunError: if ONNX cannot hold the run, or the folder cannot be written.
    """
    output = Path(config.output)
    run = load_run(config.run)
    try:
        lines = write_front_end(run, output)
    except OSError as error:
        raise RunError(f"output={output}: cannot be written: {error}") from error
    show_line(terminal(console), "\n".join(lines))
    return output


def write_front_end(run: Run, output: Path) -> list[str]:
    """Write model.onnx and what labels texts with it, without torch; return notes."""
    from headscope.export import graph  # here: it asks for packages, once the run has been read

    with replacing(output) as folder:
        folder.mkdir()
        graph.write_onnx(run, folder / "model.onnx")
        shutil.copyfile(Path(graph.__file__).with_name("classify.py"), folder / "classify.py")
    return [
        f"{len(run.labels)} classes, written to {output}; it needs onnxruntime, tokenizers, numpy:",
        f"python {output / 'classify.py'} texts.csv > labels.jsonl",
    ]
