"""What the page's network says of a text, held against what Python says of it."""

from typing import Any

import numpy as np
import torch

from headscope.heads.capture import ablate, headed_layers, readout_position
from headscope.heads.step import make_probe, run_probe
from headscope.runs.run import Run

OPEN = "async it => (window.classifier = await modules.classifier.Classifier.open(it))"
READ = """([parts, ablations]) => {
  const { finished } = modules.classifier;
  const { text, logits, maps } = finished(
    classifier.steps(parts, { ablations: new Map(ablations) }));
  const arrays = [...maps.arrays].map(([name, { shape, values }]) => {
    return [name, shape ?? [values.length], [...values]];
  });
  const { tokens, segments, words, special } = text;
  return { tokens, segments, words, special, logits: [...logits], arrays };
}"""
SUMS = (
    "words",
    "heads",
    "head_biases",
    "past",
    "past_biases",
    "biases",
    "through",
    "log_odds",
)


def same_answer(
    run: Run,
    row: tuple[str, ...],
    heads: list[list[str]],
    found: dict[str, Any],
    atol: float = 1e-4,
) -> None:
    """Hold tokens, logits, maps and sums of the page against Python's."""
    names = list(headed_layers(run.model))
    readout = readout_position(run.model)
    probe = make_probe(run.tokenizer, row, None, run.config.data.max_length, run.evidence, readout)
    assert found["tokens"] == probe.text.tokens
    assert found["segments"] == probe.text.segments
    assert found["special"] == probe.text.special
    assert found["words"] == [[*word] for word in probe.text.words or []]
    arrays = {
        name: np.array(values, np.float32).reshape(shape) for name, shape, values in found["arrays"]
    }
    ablated: Any = {(names[int(key[0])], int(key[2])): kind for key, kind in heads}
    with ablate(run.model, ablated):
        with torch.no_grad():
            (logits,) = run.model(*probe.batch.inputs)
        output = run_probe(run.model, probe, run.reading)
    assert output.explanation is not None
    np.testing.assert_allclose(found["logits"], logits, atol=atol)
    pair = output.arrays["contributions/shown"]
    np.testing.assert_array_equal(arrays["contributions/shown"], pair)
    for name in SUMS:
        own = np.subtract(*np.moveaxis(arrays[f"contributions/{name}"], -1, 0)[:2])
        expected = output.explanation.toward(output.arrays[f"contributions/{name}"])
        np.testing.assert_allclose(own, expected, atol=atol, err_msg=name)
    maps = arrays["contributions/maps"]
    np.testing.assert_allclose(maps, output.explanation.maps, atol=atol)
    for name in output.arrays if not heads else ():
        if name.endswith("/weights"):
            own = arrays[name]  # [H, Q, T], of a last layer the row of [CLS] alone
            np.testing.assert_allclose(own, output.arrays[name][:, : own.shape[1]], atol=atol)
