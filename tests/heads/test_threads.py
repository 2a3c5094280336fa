"""Several threads that use one model get the answers that each gets alone."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import headscope
from foreign_classifiers import classifier, made_up
from headscope.model.running import eval_mode
from headscope.settings.config import DataConfig
from untrained import untrained

pytestmark = pytest.mark.usefixtures("unchecked_shapes")


def assert_same_in_threads(ask: Callable[[Any], Any], items: Sequence[Any]) -> None:
    alone = list(map(ask, items))
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(ask, items))
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_a_run_is_asked_everything_at_once(tmp_path: Path) -> None:
    run = headscope.load(
        untrained(tmp_path, ["the cat sat on a mat"] * 3, DataConfig(max_length=12))
    )
    run.model.train()  # whoever restores it too early lets another thread drop out

    def ask(number: int) -> Any:
        text = f"the cat sat {'abcdef'[number % 6]} mat"
        if number % 4 == 0:
            return run.show(text).without_heads
        if number % 4 == 1:
            return run.explain(text).words
        if number % 4 == 2:
            return run.maps([text])[0]["encoder.blocks.0.attention"]
        return list(run.predict([text])[0].probabilities.values())

    with eval_mode(run.model):
        run.maps(["the cat"])
    assert run.model.training
    assert_same_in_threads(ask, range(16))
    assert run.predict(["the cat"])


def test_models_of_transformers_are_shown_at_once_and_left_as_they_were() -> None:
    before = ALL_ATTENTION_FUNCTIONS["sdpa"]
    known = [classifier(attn_implementation=kind) for kind in ("eager", "sdpa")]
    texts, _ = made_up(8)

    def ask(number: int) -> Any:
        model, tokenizer = known[number % 2]
        return headscope.show(model, tokenizer, texts[number]).without_heads

    assert_same_in_threads(ask, range(8))
    assert ALL_ATTENTION_FUNCTIONS["sdpa"] is before
