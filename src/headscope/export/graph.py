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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from rich.console import Console
from torch import Tensor, nn

from headscope.data import ngrams, units
from headscope.data.tokenizer import unknown_ids, word_units
from headscope.ground import plain_rows
from headscope.ground.errors import RunError, first_line
from headscope.ground.files import replacing
from headscope.ground.mecab import calls_mecab
from headscope.ground.terminal import Bar, show_line, terminal
from headscope.heads.linear import FixedNetwork, is_linear_here
from headscope.model.objective import MultiLabel, Reading
from headscope.runs import answering
from headscope.runs.folder import model_name
from headscope.runs.rules import least_of
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
            folds = input_ids[:, 0]  # only training reads them
            inputs.append((ngram_ids, ngram_places, folds))
        return self.outputs(inputs)

    def outputs(self, inputs: Sequence[Any]) -> dict[str, Tensor]:
        """Return what is computed from a batch, by name."""
        logits = self.model(*inputs)
        # In float64, as headscope predicts.
        probabilities = self.run.reading.probabilities(logits.double())
        predicted = self.run.objective.predicted(probabilities)
        return {"logits": logits, "probabilities": probabilities, "predicted": predicted}


class WordsGraph(Graph):
    """The contribution of each token, [B, T], by `headscope.heads.linear`.

    To the log-odds that `Run.explain` has by default: of the likeliest class.
    """

    def outputs(self, inputs: Sequence[Any]) -> dict[str, Tensor]:
        """Return the one output by its name."""
        network = FixedNetwork.of(self.model, inputs)
        direction = likeliest_direction(network.logits, self.run.reading)
        return {"words": network.words(direction).tokens[0]}


def likeliest_direction(logits: Float[Tensor, "B C"], reading: Reading) -> Float[Tensor, "1 B C"]:
    """Return how much of each logit is in the log-odds of the likeliest class.

    Against the runner-up, or, where a text may have several labels, against its absence.
    """
    C = logits.shape[-1]
    number = 1 if isinstance(reading.objective, MultiLabel) else 2
    first, *rest = F.one_hot(logits.topk(number).indices, C).to(logits).unbind(dim=1)  # [B, C] each
    direction = first - rest[0] if rest else first
    return (direction / reading.temperature)[None]


def check_reasons(run: Run) -> None:
    """Raise a RunError for a network that is not ours, or with attention of the user's own."""
    if not is_linear_here(run.model):
        raise RunError(
            f"run={run.folder}: reasons: expected a network and attention of headscope; export "
            "without reasons, and use headscope predict reasons=true"
        )


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
    least = least_of(config, run)
    if least is None and not run.config.data.multi_label:  # else each class has its threshold
        least = 0.0
    try:
        with replacing(output) as folder:
            folder.mkdir()
            with Bar(console, "writing ONNX"):  # minutes, of several networks with reasons
                write_onnx(run, folder, least, config.reasons)
            shutil.copyfile(Path(__file__).with_name("classify.py"), folder / "classify.py")
            for module in (answering, ngrams, plain_rows, units):
                file = Path(str(module.__file__))
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


def write_onnx(run: Run, folder: Path, least: float | None, reasons: bool) -> None:
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
    for name in NOISY:  # no torchvision, and constants that are not folded
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        model = _exported(graph, inputs, [*graph(**inputs)])
        model.model.metadata_props.update(metadata(run, least))
        model.save(folder / "model.onnx", external_data=False)
        if reasons:
            model = _exported(WordsGraph(run).eval(), inputs, ["words"])
            model.model.metadata_props["budoux"] = json.dumps(word_units().models)
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
    names: dict[str, Any] = {"input_names": [*inputs], "output_names": outputs}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*LeafSpec.* is deprecated", FutureWarning)
        program = torch.export.export(graph, (), inputs, dynamic_shapes=sizes, strict=False)
        return torch.onnx.export(program, dynamo=True, verbose=False, **names)


def metadata(run: Run, least: float | None) -> dict[str, str]:
    """Return what the front end reads: settings, the tokenizer, and the keys of known n-grams."""
    data = run.config.data
    tokenizer = run.tokenizer
    settings = {
        "labels": run.labels,
        "multi_label": data.multi_label,
        "columns": [data.text_column, *[data.text_pair_column] * bool(data.text_pair_column)],
        "model": model_name(run.folder),
        "least_confidence": least,
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
