"""From which confidence a run answers, and why it does not."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from headscope.ground.errors import ConfigError, RunError, UserWarningMessage
from headscope.runs.answering import why_abstained
from headscope.runs.folder import load_model, load_validation, model_name, save_model
from headscope.runs.rules import least_of
from headscope.runs.run import Run, load_run
from headscope.settings.checks import validate
from headscope.settings.commands import Abstains, EvaluateConfig
from headscope.settings.config import DataConfig
from untrained import untrained

TEXTS = ["the cat sat on the mat", "a very long film about other cats", "a lovely book"] * 3


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a run that keeps the logits of its validation texts: its own answers, one wrong."""
    folder = untrained(tmp_path_factory.mktemp("run"), TEXTS, DataConfig(max_length=16))
    setup, model, chosen = load_model(folder)
    logits = torch.tensor([[3.0, 0, 0], [2, 0, 0], [0, 3, 0], [0, 0, 4], [0, 0, 1]])
    labels = torch.tensor([0, 1, 1, 2, 2])
    save_model(folder, setup, model, chosen, (logits, labels))
    found = load_validation(folder)
    assert (found[0].tolist(), found[1].tolist()) == (logits.tolist(), labels.tolist())
    return load_run(folder)


def test_a_text_gets_no_answer_below_the_confidence_or_if_it_is_unfamiliar() -> None:
    confidence = np.array([0.9, 0.6, 0.8, 0.2])
    odd = np.array([False, False, True, True])
    assert why_abstained(confidence, odd, 0.7) == ["", "confidence", "unfamiliar", "unfamiliar"]
    # Another runtime's last digits change no answer.
    assert why_abstained(confidence[:1], odd[:1], 0.9 + 1e-7) == [""]
    assert why_abstained(confidence[:1], odd[:1], 0.9 + 1e-5) == ["confidence"]


def test_a_key_chooses_a_confidence_on_the_validation_texts_that_a_run_keeps(run: Run) -> None:
    assert least_of(Abstains(), run) is None
    assert least_of(Abstains(min_confidence=0.3), run) == 0.3
    surest = torch.tensor([3.0, 0, 0], dtype=torch.float64) / run.temperature
    assert least_of(Abstains(target_accuracy=1.0), run) == surest.softmax(0)[0].item()
    message = "all 5 validation texts are answered, 4 of them right, so the target is met without"
    with pytest.warns(UserWarningMessage, match=message):
        least_of(Abstains(target_accuracy=0.8), run)


def test_runs_that_cannot_choose_and_keys_that_exclude_each_other_are_named(
    run: Run, tmp_path: Path
) -> None:
    setup, model, chosen = load_model(run.folder)
    save_model(tmp_path / "older", setup, model, chosen)
    with pytest.raises(RunError, match="keeps no logits of its validation texts"):
        least_of(Abstains(target_accuracy=0.9), load_run(tmp_path / "older"))
    several = replace(setup, config=replace(setup.config, data=DataConfig(multi_label=True)))
    with pytest.raises(ConfigError, match="min_confidence: expected a run with one label a text"):
        least_of(Abstains(min_confidence=0.5), Run(tmp_path, several, model, chosen))
    both = {"run": str(run.folder), "min_confidence": 0.5, "target_accuracy": 0.9}
    with pytest.raises(ConfigError, match="target_accuracy: expected null with min_confidence"):
        validate(EvaluateConfig, both)
    digest, day = model_name(run.folder).split()
    assert len(digest) == 12
    assert day.count("-") == 2
