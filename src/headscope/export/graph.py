"""A run's network as an ONNX model: one file, for any number of texts of any length.

Inputs, of B texts padded to T tokens, are int64: input_ids [B, T], attention_mask [B, T] (0 at
padding), for pairs token_type_ids [B, T], and with model.evidence ngram_ids [M] and ngram_places
[M], row T + position of each n-gram's token. Outputs are logits [B, C], probabilities [B, C] after
temperature or thresholds' sigmoid, predicted [B, C], and on request contributions [B, H, T, C] of
the last layer's heads by token, with bias [B, C], in nats: they sum to the logits, divided by the
temperature.
"""

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from headscope.data.tokenizer import max_characters
from headscope.errors import ConfigError, RunError, first_line
from headscope.heads.contributions import has_contributions, logit_contributions
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

    def __init__(self, run: Run, contributions: bool = False) -> None:
        super().__init__()
        self.model = run.model
        self.objective = run.objective
        self.temperature = run.temperature
        self.contributions = contributions

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
        by_token = {}
        if self.contributions:
            split = logit_contributions(self.model, *inputs)
            assert split.tokens is not None
            logits = split.logits.float()
            by_token["contributions"] = (split.tokens[:, -1] / self.temperature).float()
            by_token["bias"] = (split.bias / self.temperature).float()
        else:
            logits = self.model(*inputs)
        # In float64, as headscope predicts.
        probabilities = self.objective.probabilities(logits.double() / self.temperature)
        predicted = self.objective.predicted(probabilities)
        return {"logits": logits, "probabilities": probabilities, "predicted": predicted} | by_token


def check_installed() -> None:
    """Raise a ConfigError unless the packages are installed that write an ONNX model."""
    if missing := [name for name in PACKAGES if find_spec(name) is None]:
        raise ConfigError(
            f"format=onnx: {', '.join(missing)} not installed; pip install 'headscope[onnx]'"
        )


def write_onnx(
    run: Run, path: Path, contributions: bool = False, files: dict[str, str] | None = None
) -> None:
    """Write the model; `files` are the sha256 digests of what the front end reads beside it.

    Raises:
        ConfigError: for contributions that the network does not have.
        RunError: if the network has a part of the user's own that cannot be written.
    """
    if contributions and not (
        has_contributions(run.model) and run.config.model.has_attention_readout
    ):
        raise ConfigError(
            "contributions: expected a run with model.pooling=first and "
            f"model.attention_readout=true, got {run.folder}; export without"
        )
    data = run.config.data
    columns = [data.text_column, *[data.text_pair_column] * bool(data.text_pair_column)]
    assert run.tokenizer.truncation is not None
    settings = {
        "labels": run.labels,
        "multi_label": isinstance(run.objective, MultiLabel),
        "columns": columns,
        "max_characters": max_characters(run.tokenizer.truncation["max_length"]),
        "temperature": run.temperature,
        "familiar": None if run.familiarity is None else run.familiarity.content(),
        "sha256": files or {},
    }
    inputs = {"input_ids": torch.ones(SHAPE, dtype=torch.long)}
    inputs["attention_mask"] = torch.ones(SHAPE, dtype=torch.long)
    if data.text_pair_column:
        inputs["token_type_ids"] = torch.zeros(SHAPE, dtype=torch.long)
    if run.evidence is not None:
        inputs["ngram_ids"] = torch.zeros(NUM_NGRAMS, dtype=torch.long)
        inputs["ngram_places"] = torch.arange(NUM_NGRAMS)
    sizes = {
        name: dict.fromkeys(range(tensor.dim()), torch.export.Dim.DYNAMIC)
        for name, tensor in inputs.items()
    }
    graph = Graph(run, contributions).eval()
    try:
        with torch.no_grad(), _quiet():
            program = torch.export.export(graph, (), inputs, dynamic_shapes=sizes, strict=False)
            exported = torch.onnx.export(
                program,
                dynamo=True,
                input_names=[*inputs],
                output_names=[*graph(**inputs)],
                verbose=False,
            )
            assert exported is not None
            exported.model.metadata_props[PROPERTY] = json.dumps(settings)
            exported.save(path, external_data=False)
    except OSError:
        raise
    except Exception as error:
        raise RunError(
            f"run={run.folder}: cannot be written as ONNX: {first_line(error)}"
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide what the exporter says of itself: no torchvision, and an API of its own that is old."""
    loggers = [logging.getLogger(name) for name in NOISY]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*LeafSpec.* is deprecated", FutureWarning)
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
