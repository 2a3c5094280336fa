"""benchmarks/deletion.py, by a model of which one token decides."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from headscope.data.batching import Batch
from headscope.heads.capture import ablate
from headscope.model.architecture import architecture_from
from headscope.model.classifier import TextClassifier
from headscope.model.objective import ONE_CLASS, MultiLabel, Objective
from headscope.settings.config import ModelConfig

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from deletion import (
    comprehensiveness,
    correlations,
    head_scores,
    left_out,
    lost_without,
    sufficiency,
)

CLASS, SEPARATOR, DECIDES = 2, 3, 7
SPECIAL = (CLASS, SEPARATOR)
TEXT = [CLASS, 5, 8, 8, 9, 8, 8, 9, 9, DECIDES, 8, SEPARATOR]  # ten tokens that are not special
CERTAIN = torch.tensor(5.0, dtype=torch.float64).tanh().item()  # with the token less without it


class Bag(nn.Module):
    """Class 1 if a token 7 is there."""

    def forward(
        self, token_ids: torch.Tensor, padding: torch.Tensor, _: object = None
    ) -> torch.Tensor:
        score = 20.0 * ((token_ids == DECIDES) & ~padding).sum(1) - 10
        return torch.stack([torch.zeros_like(score), score], dim=1)


def batch(texts: list[list[int]]) -> Batch:
    longest = max(map(len, texts))
    ids = torch.tensor([text + [0] * (longest - len(text)) for text in texts])
    padding = torch.arange(longest) >= torch.tensor([len(text) for text in texts])[:, None]
    rows = torch.arange(len(texts))
    return Batch(ids, padding if padding.any() else None, None, torch.full_like(rows, -1), rows)


@pytest.mark.parametrize("objective", [ONE_CLASS, MultiLabel()], ids=["one", "several"])
def test_scores_that_name_the_token_are_told_from_those_that_do_not(objective: Objective) -> None:
    """Of several labels too: without token 7 class 0, at a half, would be the likelier one."""
    texts = batch([TEXT, TEXT[:1] + TEXT[2:]])
    names = (texts.token_ids == DECIDES).float()
    for scores, falls in ((names, [CERTAIN, 0]), (-names, [0, CERTAIN])):
        for measure, fall in zip((comprehensiveness, sufficiency), falls, strict=True):
            found = measure(Bag(), [texts], [scores], SPECIAL, objective)
            assert found.tolist() == pytest.approx([fall] * 2, abs=1e-9)


def test_special_tokens_are_neither_ranked_nor_hidden_and_short_texts_are_left_out() -> None:
    """Were 7 special, nothing that is hidden could matter."""
    texts = batch([TEXT, [CLASS, DECIDES, SEPARATOR]])
    scores = torch.arange(texts.token_ids.numel()).reshape(texts.token_ids.shape).float()
    for measure in (comprehensiveness, sufficiency):
        found = measure(Bag(), [texts], [scores], (*SPECIAL, DECIDES))
        assert found.tolist() == pytest.approx([0], abs=1e-9)


def test_leaving_a_token_out_names_the_one_that_decides_and_correlates_with_itself() -> None:
    texts = batch([TEXT, TEXT[:1] + TEXT[2:]])
    scores = left_out(Bag(), texts, ONE_CLASS)
    assert (scores != 0).tolist() == (texts.token_ids == DECIDES).tolist()
    ranked = scores + torch.arange(len(TEXT))
    for sign in (1, -1):
        found = correlations([texts], [sign * ranked], [ranked], SPECIAL)
        torch.testing.assert_close(found, torch.full((2, 2), float(sign)).double())


def test_what_is_lost_without_all_heads_is_all_that_tells_texts_apart() -> None:
    """Read at [CLS]: without heads every text has the same logits."""
    config = ModelConfig(d_model=12, num_heads=2, num_layers=2, evidence=False)
    torch.manual_seed(0)
    model = TextClassifier(architecture_from(config, 11, len(TEXT)), 3).double().eval()
    texts = batch([TEXT, TEXT[:1] + TEXT[3:]])
    scores = head_scores(model, texts, ONE_CLASS)
    for of_heads in scores.values():
        assert of_heads.shape == (2, 4)
        assert of_heads.abs().min() > 1e-9
    every = [(layer, head) for layer in range(2) for head in range(2)]
    lost = lost_without(model, texts, ONE_CLASS, every)
    whole = model(*texts.inputs).topk(2).indices  # [B, 2]
    with ablate(model, dict.fromkeys(every, "zero")):
        left = model(*texts.inputs).gather(1, whole)  # [B, 2]
    now = model(*texts.inputs).gather(1, whole)
    difference = (now - left)[:, 0] - (now - left)[:, 1]
    torch.testing.assert_close(lost, difference.detach(), rtol=0, atol=1e-12)
    assert not lost_without(model, texts, ONE_CLASS, []).any()
