"""A run's network as an ONNX model: one file, for any number of texts of any length.

Inputs, of B texts padded to T tokens, are int64: input_ids, attention_mask and for pairs
token_type_ids [B, T], and with model.evidence ngram_ids and ngram_places [M], row T + position.
"""

import base64
import hashlib
import json
import logging
import shutil
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor, nn
from torch.fx import GraphModule

from headscope.data import ngrams
from headscope.data.tokenizer import unknown_ids
from headscope.export.reasons import check_reasons, words_graph
from headscope.ground import plain_rows
from headscope.ground.errors import RunError, first_line
from headscope.ground.files import replacing
from headscope.ground.mecab import calls_mecab
from headscope.ground.terminal import show_line, terminal
from headscope.runs import answering
from headscope.runs.answering import AnswerRule
from headscope.runs.folder import model_name
from headscope.runs.rules import rule_of
from headscope.runs.run import Run, load_run
from headscope.settings.commands import ExportConfig

NOISY = (
    "onnx_ir",
    "torch.onnx._internal.exporter._registration",
    "onnxscript.optimizer._constant_folding",
)
# Of the example that is traced: all different, or two sizes would be taken for one.
SHAPE = (5, 3)  # texts, tokens
NUM_NGRAMS = 7
SUMS = "SHA256SUMS"


class Graph(nn.Module):
    """The network, and what is computed from its logits."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.model = run.model
        self.run = run

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor | None = None,
        ngram_ids: Tensor | None = None,
        ngram_places: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Return the outputs by name."""
        inputs: list[Any] = [input_ids, attention_mask == 0, token_type_ids]
        if ngram_ids is not None:
            inputs.append((ngram_ids, ngram_places, input_ids[:, 0]))
        logits = self.model(*inputs)
        # In float64, as headscope predicts.
        probabilities = self.run.reading.probabilities(logits.double())
        predicted = self.run.objective.predicted(probabilities)
        return {"logits": logits, "probabilities": probabilities, "predicted": predicted}


def export(config: ExportConfig, console: Console | None = None) -> Path:
    """Write a finished run as a folder, whole or not at all.

    Raises:
        RunError: if ONNX cannot hold the run, or the folder cannot be written.
    """
    output = Path(config.output)
    run = load_run(config.run)
    if calls_mecab(run.tokenizer):
        raise RunError(
            f"run={config.run}: expected a tokenizer that classify.py can run, got one that calls "
            "MeCab; use headscope.load(run).predict(texts)"
        )
    if config.reasons:
        check_reasons(run)
    console = terminal(console)
    rule = None  # of several labels a text, each has its threshold
    if config.abstains_by() or not run.config.data.multi_label:
        rule = rule_of(config, run, console) or AnswerRule([0.0] * len(run.labels))
    try:
        with replacing(output) as folder:
            folder.mkdir()
            write_onnx(run, folder, rule, config.reasons)
            beside = [Path(str(module.__file__)) for module in (answering, ngrams, plain_rows)]
            for file in (Path(__file__).with_name("classify.py"), *beside):
                shutil.copyfile(file, folder / file.name)
            write_sums(folder)
    except OSError as error:
        raise RunError(f"output={output}: cannot be written: {error}") from error
    needs = "it needs onnxruntime, tokenizers, numpy"
    show_line(console, f"{len(run.labels)} classes, written to {output}; {needs}:")
    show_line(console, f"python {output / 'classify.py'} texts.csv > labels.jsonl")
    return output


def write_sums(folder: Path) -> None:
    """Write SHA256SUMS of a folder's files, as `sha256sum --check` and classify.py read it."""
    sums = {file.name: hashlib.sha256(file.read_bytes()) for file in sorted(folder.iterdir())}
    lines = [f"{found.hexdigest()}  {name}\n" for name, found in sums.items()]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")


def write_onnx(run: Run, folder: Path, rule: AnswerRule | None, reasons: bool) -> None:
    """Write model.onnx, with all that the front end needs in its metadata, and reasons.onnx.

    Raises:
        RunError: if the network has a part of the user's own that cannot be written.
    """
    inputs = {name: torch.ones(SHAPE, dtype=torch.long) for name in ("input_ids", "attention_mask")}
    if run.config.data.text_pair_column:
        inputs["token_type_ids"] = torch.zeros(SHAPE, dtype=torch.long)
    if run.evidence is not None:
        inputs["ngram_ids"] = torch.zeros(NUM_NGRAMS, dtype=torch.long)
        inputs["ngram_places"] = torch.arange(NUM_NGRAMS)
    graph = Graph(run).eval().requires_grad_(False)

    def logits(*tensors: Tensor) -> Tensor:
        outputs: dict[str, Tensor] = graph(**dict(zip(inputs, tensors, strict=True)))
        return outputs["logits"]

    for name in NOISY:  # no torchvision, and constants that are not folded
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        model = _exported(graph, inputs, [*graph(**inputs)])
        model.model.metadata_props.update(metadata(run, rule))
        model.save(folder / "model.onnx", external_data=False)
        if reasons:
            words = words_graph(run, logits, inputs)
            model = _exported(words, inputs, ["words"])
            model.save(folder / "reasons.onnx", external_data=False)
    except (OSError, RunError):
        raise
    except Exception as error:
        raise RunError(
            f"run={run.folder}: cannot be written as ONNX: {first_line(error)}"
        ) from error


def _exported(graph: nn.Module, inputs: dict[str, Tensor], outputs: list[str]) -> Any:
    """Return a module as a program of ONNX, for inputs of any size."""
    sizes: Any = {
        name: dict.fromkeys(range(tensor.dim()), torch.export.Dim.DYNAMIC)
        for name, tensor in inputs.items()
    }
    given: tuple[Any, ...] = ((), inputs)
    if isinstance(graph, GraphModule):  # a trace, which has lost the names
        sizes = tuple(sizes.values())
        given = (tuple(inputs.values()),)
    names: dict[str, Any] = {"input_names": [*inputs], "output_names": outputs}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*LeafSpec.* is deprecated", FutureWarning)
        program = torch.export.export(graph, *given, dynamic_shapes=sizes, strict=False)
        return torch.onnx.export(program, dynamo=True, verbose=False, **names)


def metadata(run: Run, rule: AnswerRule | None) -> dict[str, str]:
    """Return what the front end reads: settings, the tokenizer, and the keys of known n-grams."""
    data = run.config.data
    tokenizer = run.tokenizer
    settings = {
        "labels": run.labels,
        "multi_label": data.multi_label,
        "columns": [data.text_column, *[data.text_pair_column] * bool(data.text_pair_column)],
        "model": model_name(run.folder),
        "rule": None if rule is None else asdict(rule),
        "most_unknown": run.chosen.most_unknown,
        "ends": tokenizer.encode("").ids,
        "unknown": unknown_ids(tokenizer),
    }
    keys = b"" if run.evidence is None else run.evidence.keys.tobytes()
    return {
        "headscope": json.dumps(settings),
        "tokenizer": tokenizer.to_str(),
        "ngrams": base64.b64encode(keys).decode(),
    }
