"""export(config): write a run as a folder that others load: as ONNX, or for `transformers`."""

import shutil
from hashlib import sha256
from pathlib import Path

import numpy as np
from rich.console import Console
from safetensors import SafetensorError

from headscope.command_settings import ExportConfig
from headscope.errors import ConfigError, RunError
from headscope.export import classify_path
from headscope.export.bert import write_bert
from headscope.export.graph import check_installed, write_onnx
from headscope.files import replacing_folder
from headscope.run import Run, load_run
from headscope.run_folder import save_tokenizer
from headscope.terminal import show_line, terminal


def export(config: ExportConfig, console: Console | None = None) -> Path:
    """Write a finished run as a folder, whole or not at all.

    Raises:
        ConfigError: if a package is missing, or the run has no contributions.
        RunError: if the format cannot hold the run, or the folder cannot be written.
    """
    output = Path(config.output)
    if config.format == "onnx":
        check_installed()
    elif config.contributions:
        raise ConfigError("contributions: expected format=onnx with it, got format=transformers")
    run = load_run(config.run)
    try:
        if config.format == "onnx":
            lines = write_front_end(run, output, config.contributions)
        else:
            lines = write_bert(run, output)
    except (OSError, SafetensorError) as error:
        raise RunError(f"output={output}: cannot be written: {error}") from error
    show_line(terminal(console), "\n".join(lines))
    return output


def write_front_end(run: Run, output: Path, contributions: bool) -> list[str]:
    """Write model.onnx and what labels texts with it, without torch; return notes."""
    if run.config.tokenizer.segmenter is not None:
        raise RunError(
            f"run={run.folder}: expected tokenizer.segmenter=null, got "
            f"{run.config.tokenizer.segmenter}, which tokenizer.json cannot hold; train with "
            "tokenizer=words, which reads Japanese by characters"
        )
    with replacing_folder(output.resolve()) as folder:
        save_tokenizer(folder, run.tokenizer)
        if run.evidence is not None:
            np.save(folder / "evidence.npy", run.evidence.keys, allow_pickle=False)
        digests = {
            path.name: sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())
        }
        write_onnx(run, folder / "model.onnx", contributions, digests)
        shutil.copyfile(classify_path(), folder / "classify.py")
    return [
        f"{len(run.labels)} classes, written to {output}; it needs onnxruntime, tokenizers, numpy:",
        f"python {output / 'classify.py'} texts.txt > labels.jsonl",
    ]
