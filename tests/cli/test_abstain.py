"""Abstaining: confidence thresholds, and texts unlike those of training."""

import json
from pathlib import Path

import numpy as np
import pytest

from headscope.abstaining import accuracy_curve, aurc, chosen_confidence, reasons_to_abstain
from headscope.errors import ConfigError, RunError

CONFIDENCE = np.array([0.9, 0.6, 0.8, 0.7, 0.8])
IS_RIGHT = np.array([True, False, True, False, True])


def folder_with(tmp_path: Path, **content: object) -> Path:
    (tmp_path / "metrics.json").write_text(json.dumps(content))
    return tmp_path


def test_the_curve_counts_texts_of_one_confidence_together() -> None:
    assert accuracy_curve(CONFIDENCE, IS_RIGHT) == [
        (0.9, 1, 1),
        (0.8, 3, 3),
        (0.7, 4, 3),
        (0.6, 5, 3),
    ]
    assert aurc(CONFIDENCE, IS_RIGHT) == pytest.approx((0 + 0 + 0 + 1 / 4 + 2 / 5) / 5)


def test_a_target_takes_the_lowest_threshold_that_reaches_it(tmp_path: Path) -> None:
    curve = accuracy_curve(CONFIDENCE, IS_RIGHT)
    folder = folder_with(tmp_path, selective={"validation": curve})
    # Clopper and Pearson: 3 of 3 have the lower end 0.025 ** (1 / 3).
    with pytest.warns(UserWarning, match=r"3 of 5 .* \(95 % interval 29.2 to 100.0\)"):
        assert chosen_confidence(folder, 1.0) == 0.8
    with pytest.warns(UserWarning, match="4 of 5"):
        assert chosen_confidence(folder, 0.75) == 0.7


def test_an_impossible_target_names_the_best(tmp_path: Path) -> None:
    curve = accuracy_curve(CONFIDENCE, ~IS_RIGHT)
    folder = folder_with(tmp_path, selective={"validation": curve})
    with pytest.raises(ConfigError, match=r"at most 0\.4000, which 5 of 5 .* got 0\.9"):
        chosen_confidence(folder, 0.9)
    with pytest.raises(RunError, match="older runs"):
        chosen_confidence(folder_with(tmp_path), 0.9)


def test_an_unfamiliar_text_gets_no_label_however_confident() -> None:
    reasons = reasons_to_abstain(np.array([0.9, 0.9, 0.1]), np.array([True, False, False]), 0.5)
    assert reasons == ["unfamiliar", "", "confidence"]
