"""The answers of a text without a head."""

from typing import Any

import numpy as np
import pytest
import torch

from headscope.data.batching import Batch
from headscope.heads.step import Probe, ablate_each_head
from headscope.model.classifier import TextClassifier
from headscope.model.objective import ONE_CLASS
from headscope.record.schema import Text
from headscope.settings.config import ModelConfig

T, H, E, L, C = 7, 3, 4, 2, 5
BATCH = Batch(torch.arange(2, 2 + T)[None], None, None, torch.tensor([-1]), torch.tensor([0]))
PROBE = Probe(Text("text", list("abcdefg"), "a b"), BATCH)


def classifier(**options: Any) -> TextClassifier:
    torch.manual_seed(0)
    sizes = {
        "d_model": H * E,
        "num_heads": H,
        "num_layers": L,
        "feedforward_size": 17,
        "evidence": False,
    }
    model = TextClassifier(ModelConfig(**(sizes | options)), 31, C, T).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()


@pytest.mark.parametrize("pooling", ["first", "mean"])
def test_without_a_head_or_a_layer_is_without_its_columns_of_the_output_projection(
    pooling: str,
) -> None:
    model = classifier(pooling=pooling)
    found = ablate_each_head(model, PROBE, ONE_CLASS, temperature=1.5)
    heads, layers = found["without/heads"], found["without/layers"]
    assert (heads.shape, layers.shape) == ((L, H, C), (L, C))

    def without(number: int, columns: slice) -> np.ndarray:
        weight = model.encoder.blocks[number].attention.output_projection.weight
        kept = weight.data.clone()
        weight.data[:, columns] = 0
        with torch.no_grad():
            found: np.ndarray = (model(BATCH.token_ids)[0] / 1.5).softmax(-1).numpy()
        weight.data.copy_(kept)
        return found

    for number in range(L):
        np.testing.assert_allclose(layers[number], without(number, slice(None)), atol=1e-6)
        for head in range(H):
            np.testing.assert_allclose(
                heads[number, head], without(number, slice(head * E, (head + 1) * E)), atol=1e-6
            )
    assert len(np.unique(heads.round(6).reshape(-1, C), axis=0)) == L * H
