"""Several networks on one frozen encoder, and a mix of its layers: their logits, losses and sums."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from bert_family import VOCABULARY, WIDTH, peer
from headscope.heads.capture import capture, read_at_first
from headscope.heads.contributions import decompose, share_among_heads
from headscope.model.architecture import architecture_from
from headscope.model.classifier import Ensemble, TextClassifier
from headscope.model.frozen import FrozenLayers
from headscope.model.opened import frozen_layers, translated
from headscope.record.explanation import layer_titles
from headscope.settings.config import ModelConfig

MEMBERS, CLASSES, HEADS = 3, 2, 2
IDS = torch.tensor([[5, 6, 7, 8, 9], [5, 9, 8, 7, 0]])
PADDING = IDS == 0


def frozen(layers: tuple[int, ...]) -> FrozenLayers:
    model = peer("bert")
    encoder = model.config.to_dict()
    made = frozen_layers(encoder, [*layers])
    weights = model.state_dict()
    shapes = {name: [*weight.shape] for name, weight in weights.items()}
    made.load_state_dict(translated(made, encoder, shapes, weights.__getitem__))
    return made


def ensemble(members: int = MEMBERS, layers: tuple[int, ...] = (1, 2)) -> Any:
    """Return untrained networks on a tiny BERT, in float64."""
    features = frozen(layers)
    config = ModelConfig(
        d_model=8, num_heads=HEADS, num_layers=1, feedforward_size=12, evidence=False, dropout=0.0
    )
    torch.manual_seed(0)
    made = [
        TextClassifier(architecture_from(config, VOCABULARY, 16), CLASSES, features=features)
        for _ in range(members)
    ]
    for member in made:
        torch.nn.init.normal_(member.embedding.start)
        torch.nn.init.normal_(member.embedding.mix)  # type: ignore[arg-type]
    return Ensemble(made, features).double().eval()


def test_the_mean_of_the_members_logits_answers() -> None:
    model = ensemble()
    states = model.features(IDS, PADDING)
    each = [member(IDS, PADDING, None, None, states) for member in model.members]
    torch.testing.assert_close(model(IDS, PADDING), torch.stack(each).mean(dim=0))
    torch.testing.assert_close(model(IDS, PADDING, None, None, states), model(IDS, PADDING))
    assert not any(name.startswith("members.0.features") for name in model.state_dict())


def test_layers_are_mixed_by_the_softmax_of_a_learned_vector() -> None:
    member = ensemble(1).members[0]
    first, second = torch.randn(2, 1, 4, WIDTH, dtype=torch.float64)
    shares = member.embedding.mix.softmax(dim=0)
    mixed = F.linear(shares[0] * first + shares[1] * second, member.embedding.token.weight)
    found = member.embedding(IDS[:1, :4], features=torch.cat([first, second], dim=-1))
    torch.testing.assert_close(found[:, 1:], mixed[:, 1:])


def test_hidden_states_are_those_of_the_layers_side_by_side() -> None:
    states = ensemble(1).features(IDS, PADDING)
    found = peer("bert").double()(IDS, ~PADDING, output_hidden_states=True).hidden_states
    expected = torch.cat([found[1], found[2]], dim=-1)
    torch.testing.assert_close(states[~PADDING], expected[~PADDING])


def test_each_member_learns_by_itself_from_all_but_its_fold() -> None:
    model = ensemble().train()
    labels = torch.tensor([0, 1])
    rows = torch.tensor([2, 3])
    assert model.folds(rows).tolist() == [0, 2]
    logits, learned = model.learned(model(IDS, PADDING), labels, rows)
    assert learned.tolist() == [1, 0, 1, 0], "row 2 is not member 0's, row 3 not member 2's"
    loss = F.cross_entropy(logits, learned, reduction="sum")
    weight = model.members[2].head.weight
    (together,) = torch.autograd.grad(loss, weight)
    states = model.features(IDS, PADDING)
    alone = model.members[2](IDS, PADDING, None, None, states)[:1]
    (by_itself,) = torch.autograd.grad(F.cross_entropy(alone, labels[:1]), weight)
    torch.testing.assert_close(together, by_itself)


def test_every_member_learns_most_texts_of_a_class_that_comes_every_third_row() -> None:
    folds = ensemble().folds(torch.arange(300))
    for start in range(MEMBERS):
        counts = folds[start::MEMBERS].bincount(minlength=MEMBERS)
        assert counts.sum() == 100
        assert counts.max() - counts.min() <= 4


def test_sums_through_members_and_layers_are_exact() -> None:
    model = ensemble()
    parts = decompose(model, (IDS, PADDING), 5, lambda logits: logits)
    assert len(parts.heads) == MEMBERS
    assert parts.missed.abs().max() < 1e-12
    shares = share_among_heads(model, (IDS, PADDING), 5, lambda logits: logits)
    words = sum(of_layer.sum(dim=1) for of_layer in shares.heads) + shares.past
    torch.testing.assert_close(words, parts.words, rtol=0, atol=1e-12)
    assert shares.past[:, 1:].abs().max() < 1e-12, "words reach the answer through heads alone"


def test_heads_are_named_by_their_network() -> None:
    model = ensemble()
    with torch.no_grad(), capture(model) as maps:
        model(IDS, PADDING)
    names = [f"members.{number}.encoder.blocks.0.attention" for number in range(MEMBERS)]
    assert [*maps] == names
    assert read_at_first(model) == {*names}
    assert layer_titles(names) == ["network 0", "network 1", "network 2"]
    assert layer_titles(["encoder.blocks.0.attention"]) == ["layer 0"]


def test_members_need_a_frozen_encoder() -> None:
    with pytest.raises(ValueError, match=r"members\n.*should be null without model\.features"):
        ModelConfig(members=2)
