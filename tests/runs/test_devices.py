"""What runs on a device has no float64, which Apple's MPS lacks."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from bert_family import write_checkpoint
from headscope.data.batching import BatchLoader, TextBatches, TokenBudgetSampler
from headscope.foreign.pretrained import build_pretrained
from headscope.model.checkpoint import read_checkpoint
from headscope.runs.prediction import split_logits
from headscope.runs.run import load_run
from headscope.settings.config import DataConfig, ModelConfig
from untrained import untrained

TEXTS = ["the cat sat on the mat", "a very long film about cats", "a dog"] * 4


class WithoutFloat64(TorchDispatchMode):
    """Raise the error of MPS for every tensor in float64."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for each in tree_leaves(made):
            if isinstance(each, torch.Tensor) and each.dtype == torch.float64:
                raise TypeError("Cannot convert a MPS Tensor to float64 dtype")
        return made


@pytest.mark.parametrize("multi_label", [False, True])
def test_training_and_prediction_compute_without_float64(
    multi_label: bool, tmp_path: Path, unchecked_shapes: None
) -> None:
    data = DataConfig(max_length=16, multi_label=multi_label)
    run = load_run(untrained(tmp_path / "run", TEXTS, data))
    labels = torch.eye(3, dtype=torch.int8).repeat(4, 1) if multi_label else torch.arange(12) % 3
    texts = TextBatches(run.encode([(text,) for text in TEXTS]), labels.numpy())
    batches = BatchLoader(texts, TokenBudgetSampler(texts.texts.lengths, 64))
    objective = run.objective  # its thresholds are on the CPU
    with WithoutFloat64():
        logits, _ = split_logits(run.model, batches, torch.device("cpu"))
        batch = texts[[0, 1, 2]]
        loss = objective.loss(run.model(*batch.inputs), batch.labels)
        loss.backward()
    assert logits.dtype == torch.float32
    assert run.model.head.weight.grad is not None
    with pytest.raises(TypeError), WithoutFloat64():
        logits.double()


@pytest.mark.filterwarnings("ignore:.*transformers computes it:UserWarning")
def test_the_position_that_is_read_is_known_without_float64(
    tmp_path: Path, unchecked_shapes: None
) -> None:
    path = write_checkpoint(tmp_path / "checkpoint", "deberta", TEXTS)
    checkpoint = read_checkpoint("model.path", str(path), None)
    config = ModelConfig(path=str(path), evidence=False)
    model = build_pretrained(checkpoint.encoder, config, ["a", "b"], checkpoint.folder)
    tokens = torch.tensor([[2, 5, 6, 3]])
    assert model.position_read(tokens) == 0
    with WithoutFloat64():
        assert model.position_read(tokens) == 0
