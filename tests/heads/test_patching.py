"""Heads' outputs put in place of others, by what the layers themselves give."""

import numpy as np
import pytest
import torch
from scipy import stats

import headscope
from headscope.heads.patching import head_outputs
from headscope.pages.shown_run import ShownRun, load_shown
from training_runs import Trained, reviews

pytestmark = pytest.mark.usefixtures("unchecked_shapes")
TEXTS = [f"{row['text']} film" for row in reviews(24)]
LABELS = [row["label"] for row in reviews(24)]


@pytest.fixture(scope="module")
def run(mistaken: Trained) -> ShownRun:
    return load_shown(mistaken.folder)


def logits(run: ShownRun, text: str) -> torch.Tensor:
    with torch.no_grad():
        return run.model(*run.inputs(text))[0]


def loss(run: ShownRun, text: str, label: str) -> float:
    return -logits(run, text).double().log_softmax(dim=0)[run.labels.index(label)].item()


def test_a_text_patched_with_itself_stays_and_all_heads_of_the_last_layer_make_it_the_other(
    run: ShownRun,
) -> None:
    text, other = TEXTS[0], TEXTS[1]
    every = {(layer, head): "source" for layer in (0, 1) for head in range(3)}
    whole = logits(run, text)
    with headscope.ablate(run.model, every, source=run.inputs(text)):
        torch.testing.assert_close(logits(run, text), whole)
        patched = logits(run, other)
    # All that a text read at [CLS] adds to what [CLS] has by itself comes through heads.
    torch.testing.assert_close(patched, whole)
    assert not torch.allclose(logits(run, other), patched)


def test_one_head_takes_its_output_from_the_source_and_the_others_keep_theirs(
    run: ShownRun,
) -> None:
    text, other = TEXTS[2], TEXTS[3]
    own, source = (head_outputs(run.model, run.inputs(each)) for each in (text, other))
    (first, *_), width = own, 4  # 3 heads of 4 numbers
    projection = dict(run.model.named_modules())[first].output_projection
    made: list[torch.Tensor] = []
    with (
        headscope.ablate(run.model, {(0, 1): "source"}, source=run.inputs(other)),
        torch.no_grad(),
    ):
        hook = projection.register_forward_hook(lambda *given: made.append(given[2]))
        run.model(*run.inputs(text))
        hook.remove()
    expected = own[first].clone()
    places = torch.arange(expected.shape[1]).clamp(max=source[first].shape[1] - 1)
    expected[..., width : 2 * width] = source[first][:, places, width : 2 * width]
    with torch.no_grad():
        torch.testing.assert_close(made[0], projection(expected))


def test_effects_are_those_of_each_text_by_itself(run: ShownRun) -> None:
    table = run.effects(TEXTS, LABELS, seed=3).set_index("head")
    assert table["n"].tolist() == [24] * 6
    assert table["mean"].is_monotonic_decreasing
    whole = np.array([loss(run, *pair) for pair in zip(TEXTS, LABELS, strict=True)])
    with headscope.ablate(run.model, {(1, 2): "zero"}):
        changes = np.array([loss(run, *pair) for pair in zip(TEXTS, LABELS, strict=True)]) - whole
    row = table.loc["layer 1 head 2"]
    assert row["zero"] == pytest.approx(changes.mean(), abs=1e-6)
    half = stats.t.ppf(0.975, 23) * changes.std(ddof=1) / 24**0.5
    assert [row["zero low"], row["zero high"]] == pytest.approx(
        [changes.mean() - half, changes.mean() + half], abs=1e-6
    )
    last = [*head_outputs(run.model, run.inputs(TEXTS[0]))][1]
    means = torch.cat([head_outputs(run.model, run.inputs(text))[last][0] for text in TEXTS]).mean(
        0
    )
    projection = dict(run.model.named_modules())[last].output_projection

    def put(_: object, given: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
        merged = given[0].clone()
        merged[..., 8:] = means[8:]
        return (merged,)

    hook = projection.register_forward_pre_hook(put)
    changes = np.array([loss(run, *pair) for pair in zip(TEXTS, LABELS, strict=True)]) - whole
    hook.remove()
    assert row["mean"] == pytest.approx(changes.mean(), abs=1e-6)
    assert table.equals(run.effects(TEXTS, LABELS, seed=3).set_index("head"))
    assert not np.allclose(
        table["resample"],
        run.effects(TEXTS, LABELS, seed=4).set_index("head").loc[table.index, "resample"],
    )


def test_resampled_outputs_are_another_texts(run: ShownRun) -> None:
    """Of two texts each gets the other's."""
    texts, labels = TEXTS[:2], LABELS[:2]
    table = run.effects(texts, labels).set_index("head")
    changes = []
    for text, other, label in zip(texts, reversed(texts), labels, strict=True):
        with headscope.ablate(run.model, {(0, 2): "source"}, source=run.inputs(other)):
            changes.append(loss(run, text, label))
        changes[-1] -= loss(run, text, label)
    assert table.loc["layer 0 head 2", "resample"] == pytest.approx(np.mean(changes), abs=1e-6)


def test_what_cannot_be_patched_is_refused(run: ShownRun) -> None:
    inputs = run.inputs(TEXTS[0])
    for heads, source in (({(0, 1): "source"}, None), ({(0, 1): "zero"}, inputs)):
        with (
            pytest.raises(ValueError, match="expected 'source' of a head, and source="),
            headscope.ablate(run.model, heads, source),
        ):
            pass
    with (
        pytest.raises(ValueError, match="heads: expected one of a layer in"),
        headscope.ablate(run.model, {(0, 9): "source"}, inputs),
    ):
        pass
    layer = torch.nn.MultiheadAttention(4, 2)
    with (
        pytest.raises(ValueError, match="expected layers of headscope, whose heads can be patched"),
        headscope.ablate(layer, {(0, 1): "source"}, (torch.zeros(3, 1, 4),) * 3),
    ):
        pass
    with pytest.raises(
        ValueError, match=r"labels: expected one of .* for each text, got \['none'\]"
    ):
        run.effects(TEXTS, ["none"] * len(TEXTS))


def test_the_source_is_read_by_the_model_as_it_was(run: ShownRun) -> None:
    text, other = TEXTS[4], TEXTS[5]
    with (
        headscope.ablate(run.model, {(1, 0): "source"}, source=run.inputs(other)),
        headscope.ablate(run.model, {(0, 1): "zero"}),
    ):
        expected = logits(run, text)
    both = {(0, 1): "zero", (1, 0): "source"}
    with headscope.ablate(run.model, both, source=run.inputs(other)):
        torch.testing.assert_close(logits(run, text), expected)
