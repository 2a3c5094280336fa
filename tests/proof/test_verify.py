"""The proof passes for our layer and finds out layers that are wrong."""

import io
import re
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor

from headscope.attention import MultiHeadAttention, reference
from headscope.ground.errors import ProofError
from headscope.heads import contributions, linear
from headscope.heads.fixed_parts import Parts
from headscope.heads.linear import FixedEmbedding
from headscope.model.classifier import TextClassifier
from headscope.model.encoder import EncoderBlock
from headscope.model.families import FAMILIES
from headscope.proof import claims, exact_sums
from headscope.proof import verify as module
from headscope.proof.claims import Precision
from headscope.proof.exact_sums import exact_sum_claims
from headscope.proof.language import translation
from headscope.proof.verify import GROUPS, verify
from headscope.settings.commands import VerifyConfig


class ScaledByModelWidth(MultiHeadAttention):
    """Divides the scores by sqrt(D) instead of sqrt(E)."""

    def attend_heads(self, query: Tensor, *others: object) -> tuple[Tensor, Tensor | None]:
        return super().attend_heads(query / self.num_heads**0.5, *others)


class InterleavedHeads(MultiHeadAttention):
    """Gives head h every H-th number instead of E numbers in a row."""

    def split_heads(self, tokens: Tensor) -> Tensor:
        return tokens.unflatten(-1, (self.head_dim, -1)).permute(0, 3, 1, 2)


class MaskedAfterSoftmax(MultiHeadAttention):
    """Sets hidden weights to zero after the softmax, so that the others no longer sum to 1."""

    def attend_heads(  # type: ignore[no-untyped-def]
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *others
    ) -> tuple[Tensor, Tensor | None]:
        # Shows the observer what it would have seen.
        super().attend_heads(query, key, value, mask, *others)
        weights = (query @ key.transpose(-2, -1) / self.head_dim**0.5).softmax(dim=-1)
        if mask is not None:
            shares = ~mask if mask.dtype == torch.bool else mask.exp()
            weights = weights * shares
        return (weights @ value).transpose(1, 2).flatten(2), weights


MUTANTS = [ScaledByModelWidth, InterleavedHeads, MaskedAfterSoftmax]


def console() -> Console:
    return Console(file=io.StringIO(), width=200)


@pytest.mark.usefixtures("unchecked_shapes")
def test_every_claim_holds_as_often_as_the_page_says_and_the_random_numbers_stay() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    shown = console()
    found = verify(VerifyConfig(lang="en"), shown)
    assert [claim.name for claim in found if not claim.holds] == []
    assert torch.equal(torch.get_rng_state(), before)
    printed = shown.file.getvalue()  # type: ignore[attr-defined]
    page = (Path(__file__).parents[2] / "docs/attention.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (.+?) \| (\d+) \| .+ \|$", page, re.MULTILINE))
    assert list(rows) == list(GROUPS)
    parts = [len(re.findall(r" pass *$", part, re.MULTILINE)) for part in printed.split("abs.")[1:]]
    assert list(map(int, rows.values())) == parts
    assert f"checks {len(found)} numerical properties" in page
    assert f"{len(found)} of {len(found)} properties hold: float64 on cpu" in printed
    say = translation("ja")
    parts = {part for claim in found for part in re.split(": |, ", claim.name)}
    texts = {say(text) for text in [*GROUPS, *parts, *(claim.reference for claim in found)]}
    names = "torch|nn|MultiheadAttention|headscope|float64|float32|kdim|vdim|Bahdanau|Luong|dot|general|"
    names += (
        "multi-query|concat|CLS|Linear|batch_first|False|i|j|TransformerEncoderLayer|transformers|"
    )
    names += "|".join(FAMILIES)
    assert [text for text in texts if re.search("[A-Za-z]", re.sub(names, "", text))] == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_claims_of_layers_hold_in_lower_precision(dtype: torch.dtype) -> None:
    groups: Any = (module.published_claims, module.torch_claims, module.layer_claims)
    groups += (exact_sum_claims,)
    for make in (*groups, module.block_claims, module.opened_claims):
        assert [claim.name for claim in make(Precision(dtype)) if not claim.holds] == []


@pytest.mark.parametrize("mutant", MUTANTS)
def test_wrong_layers_are_found_out(
    mutant: type[MultiHeadAttention], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The classifiers have our own layer.
    slow = (claims.classifier_claims, exact_sum_claims, module.opened_claims)
    groups = {title: make for title, make in GROUPS.items() if make not in slow}
    monkeypatch.setattr(module, "GROUPS", groups)
    shown = console()
    with pytest.raises(ProofError, match="do not hold") as failure:
        verify(VerifyConfig(dtype="float32"), shown, layer=mutant)
    assert failure.value.exit_code == 1
    assert "FAIL" in shown.file.getvalue()  # type: ignore[attr-defined]


def test_the_published_numbers_stand_beside_ours() -> None:
    shown = console()
    found = verify(VerifyConfig(show="published", lang="en"), shown)
    assert len(found) == 9
    printed = [tuple(row) for rows in module.printed_numbers().values() for row in rows.tolist()]
    lines = [re.findall(r"-?\d\.\d{4}\b", line) for line in shown.file.getvalue().splitlines()]  # type: ignore[attr-defined]
    rows = Counter(tuple(map(float, line)) for line in lines if line)
    assert rows == {tuple(round(number, 4) for number in row): 2 for row in printed}


@pytest.mark.parametrize(
    "make",
    [module.published_claims, module.torch_claims, module.form_claims, module.block_claims],
)
def test_each_group_finds_interleaved_heads_by_itself(make: Any) -> None:
    assert any(not claim.holds for claim in make(Precision(layer=InterleavedHeads)))


def test_textbook_forms_that_give_every_head_the_first_heads_mask_are_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = reference.mask_of_heads
    monkeypatch.setattr(
        reference, "mask_of_heads", lambda *given: right(*given)[:, :1].expand(given[1:])
    )
    failed = {claim.name for claim in module.form_claims(Precision()) if not claim.holds}
    # What they have in common, ours and torch's do not.
    assert {"our layer", "torch's layer"} <= failed


def test_a_mask_after_the_softmax_fails_where_there_are_masks_alone() -> None:
    failed = {
        claim.name
        for claim in module.torch_claims(Precision(layer=MaskedAfterSoftmax))
        if not claim.holds
    }
    assert {"padding", "causal", "boolean"} <= failed
    assert "no mask" not in failed


def test_a_norm_in_another_place_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    right = EncoderBlock.add

    def add(block: Any, tokens: Tensor, attended: Tensor) -> Tensor:
        if not block.norm_after:
            return right(block, tokens, attended)
        tokens = block.attention_norm(tokens + attended)
        return tokens + block.feedforward(block.feedforward_norm(tokens))  # type: ignore[no-any-return]

    monkeypatch.setattr(EncoderBlock, "add", add)
    failed = [claim.name for claim in module.block_claims(Precision()) if not claim.holds]
    assert len(failed) == 4
    assert all(name.startswith("norm after the branch") for name in failed)


def test_a_family_whose_positions_start_elsewhere_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrong = replace(FAMILIES["roberta"], first_position=lambda encoder: 0)
    monkeypatch.setitem(FAMILIES, "roberta", wrong)
    failed = [claim.name for claim in module.opened_claims(Precision()) if not claim.holds]
    assert len(failed) == 4
    assert {name.split(":")[0] for name in failed} == {"roberta"}


def test_without_transformers_it_says_what_is_not_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    groups = {title: make for title, make in GROUPS.items() if make is module.opened_claims}
    monkeypatch.setattr(module, "GROUPS", groups)
    shown = console()
    assert verify(VerifyConfig(lang="en"), shown) == []
    assert "not compared, since transformers is not installed" in shown.file.getvalue()  # type: ignore[attr-defined]


class PastTheHeads(TextClassifier):
    """Lets words reach the logits beside the heads."""

    def forward(self, token_ids: Tensor, *others: object) -> Tensor:
        beside: Tensor = 1e-9 * self.embedding(token_ids).sum(dim=1)
        return super().forward(token_ids, *others) + self.head(beside)


def test_a_classifier_whose_words_bypass_attention_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(claims, "TextClassifier", PastTheHeads)
    failed = [claim.name for claim in claims.classifier_claims(Precision()) if not claim.holds]
    assert len(failed) == len(claims.CLASSIFIERS)
    assert all("without heads" in name for name in failed)


def test_parts_that_do_not_sum_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    right = FixedEmbedding.back

    def doubled(embedding: FixedEmbedding, rows: Tensor) -> Parts:
        found = right(embedding, rows)
        return found._replace(tokens=2 * found.tokens)

    monkeypatch.setattr(FixedEmbedding, "back", doubled)
    first = next(exact_sum_claims(Precision()))
    assert "words and biases" in first.name
    assert not first.holds


def first_failure() -> str:
    return next(claim.name for claim in exact_sum_claims(Precision()) if not claim.holds)


def test_shares_that_do_not_sum_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "gauss_legendre", lambda num_layers: [(0.5, 1.0)])
    title = "heads and what passes through none sum to words, and to biases"
    assert first_failure() == f"3 layers: {title}", "one point is enough for two layers"
    monkeypatch.undo()
    monkeypatch.setattr(linear, "gauss_legendre", lambda num_layers: [(0.5, 0.9)])
    assert first_failure() == f"1 layer: {title}"


def test_shares_that_sum_and_are_those_of_other_heads_are_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = contributions.share_among_heads

    def swapped(*given: Any) -> linear.Shares:
        found = right(*given)
        return found._replace(heads=[of_layer.flip(1) for of_layer in found.heads])

    monkeypatch.setattr(exact_sums, "share_among_heads", swapped)
    claims = {claim.name: claim.holds for claim in exact_sums._written_out_claims(Precision())}
    failed = [name for name, holds in claims.items() if not holds]
    layers = ("1 layer", "2 layers", "3 layers", "4 layers")
    assert {f"{each}: the heads of each path share it alike" for each in layers} <= {*failed}
    assert "2 layers: shares are Shapley values of words and biases" in failed


def test_a_claim_speaks_for_the_pair_that_is_worst_off() -> None:
    terms, right, wrong = Precision(), torch.zeros(3), torch.tensor([0.0, 0.0, 0.5])
    claim = terms.claim("name", "oracle", [right, wrong, right], [right] * 3)
    assert (claim.absolute, claim.relative, claim.tolerance) == (0.5, 0.5, 1e-12)
    assert not claim.holds
    thousand = [torch.tensor([1000.0])]
    large = terms.claim("name", "oracle", [thousand[0].double() + 1e-10], thousand)
    assert not large.holds, "in float64 the bound does not grow with the numbers"
    single = Precision(torch.float32).claim("name", "oracle", [thousand[0] + 1e-3], thousand)
    assert single.holds
    assert single.tolerance == pytest.approx(1e-2)
    assert single.relative == pytest.approx(1e-6, rel=0.1)


def test_nan_fails_and_shapes_that_differ_are_an_error_and_not_broadcast() -> None:
    nan, zero = torch.tensor([float("nan")]), torch.zeros(1)
    assert not Precision().claim("name", "oracle", [zero, nan], [zero, zero]).holds
    with pytest.raises(ValueError, match=r"expected \[3, 3\], got \[1, 3\]"):
        Precision().claim("name", "oracle", [torch.zeros(1, 3)], [torch.zeros(3, 3)])
