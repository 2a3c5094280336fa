"""A run's network as an ONNX model: one file, for any number of texts of any length.

Inputs, of B texts padded to T tokens, are int64: input_ids [B, T], attention_mask [B, T] (0 at
padding), for pairs token_type_ids [B, T], and with model.evidence ngram_ids [M] and ngram_places
[M], row T + position of each n-gram's token. Outputs are logits [B, C], probabilities [B, C] after
temperature or thresholds' sigmoid, and predicted [B, C].
"""

import json
import logging
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from headscope.data.tokenizer import max_characters
from headscope.errors import ConfigError, RunError, first_line
from headscope.model.objective import MultiLabel
from headscope.run import Run

PROPERTY = "headscope"  # of the model's metadata: what the front end needs to know
PACKAGES = ("onnx", "onnxscript")
NOISY = ("torch.onnx._internal.exporter._registration", "onnxscript.optimizer._constant_folding")
# Of the example that is traced: all different, or two sizes would be taken for one.
SHAPE = (5, 3)  # texts, tokens
NUM_NGRAMS = 7


class Graph(nn.Module):
    """The network, and what is computed from its logits."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.model = run.model
        self.objective = run.objective
        self.temperature = run.temperature

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
        probabilities = self.objective.probabilities(logits.double() / self.temperature)
        predicted = self.objective.predicted(probabilities)
        return {"logits": logits, "probabilities": probabilities, "predicted": predicted}


def check_installed() -> None:
    """Raise a ConfigError unless the packages are installed that write an ONNX model."""
    if missing := [name for name in PACKAGES if find_spec(name) is None]:
        raise ConfigError(
            f"export: {', '.join(missing)} not installed; pip install 'headscope[onnx]'"
        )


def write_onnx(run: Run, path: Path, files: dict[str, str]) -> None:
    """Write the model; `files` are the sha256 digests of what the front end reads beside it.

    Raises:
        RunError: if the network has a part of the user's own that cannot be written.
    """
    inputs = {"input_ids": torch.ones(SHAPE, dtype=torch.long)}
    inputs["attention_mask"] = torch.ones(SHAPE, dtype=torch.long)
    if run.config.data.text_pair_column:
        inputs["token_type_ids"] = torch.zeros(SHAPE, dtype=torch.long)
    if run.evidence is not None:
        inputs["ngram_ids"] = torch.zeros(NUM_NGRAMS, dtype=torch.long)
        inputs["ngram_places"] = torch.arange(NUM_NGRAMS)
    sizes = {
        name: dict.fromkeys(range(tensor.dim()), torch.export.Dim.DYNAMIC)
        for name, tensor in inputs.items()
    }
    graph = Graph(run).eval()
    for name in NOISY:  # no torchvision, and constants that are not folded
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*LeafSpec.* is deprecated", FutureWarning)
            program = torch.export.export(graph, (), inputs, dynamic_shapes=sizes, strict=False)
            exported = torch.onnx.export(
                program,
                dynamo=True,
                input_names=[*inputs],
                output_names=[*graph(**inputs)],
                verbose=False,
            )
            assert exported is not None
            exported.model.metadata_props[PROPERTY] = json.dumps(_settings(run, files))
            exported.save(path, external_data=False)
    except OSError:
        raise
    except Exception as error:
        raise RunError(
            f"run={run.folder}: cannot be written as ONNX: {first_line(error)}"
        ) from error


def _settings(run: Run, files: dict[str, str]) -> dict[str, Any]:
    """Return what the front end reads from the model's metadata."""
    data = run.config.data
    assert run.tokenizer.truncation is not None
    return {
        "labels": run.labels,
        "multi_label": isinstance(run.objective, MultiLabel),
        "columns": [data.text_column, *[data.text_pair_column] * bool(data.text_pair_column)],
        "max_characters": max_characters(run.tokenizer.truncation["max_length"]),
        "familiar": None if run.familiarity is None else run.familiarity.content(),
        "sha256": files,
    }
