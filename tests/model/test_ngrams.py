"""The bag of n-grams adds what the formula says, and its share is what it says."""

import math

import pytest
import torch
from torch import nn

from headscope.model.classifier import TextClassifier
from headscope.model.config import ModelConfig
from headscope.model.ngrams import NgramBag, log_count_ratios, share_of_bag
from headscope.training.config import OptimizerConfig
from headscope.training.layers import parameter_groups

SIZES = {"d_model": 6, "num_heads": 3, "num_layers": 2, "feedforward_size": 5}
IDS, VALUES, STARTS = torch.tensor([4, 0, 2, 2, 1]), torch.rand(5), torch.tensor([0, 2, 2])  # the second has none


def test_logits_are_the_values_times_the_weights() -> None:
    bag = NgramBag(5, 3)
    nn.init.normal_(bag.weight)
    nn.init.normal_(bag.ratio)
    wanted = torch.zeros(3, 3)
    for text, (start, end) in enumerate([(0, 2), (2, 2), (2, 5)]):
        for place in range(start, end):
            wanted[text] += VALUES[place] * bag.ratio[IDS[place]] * bag.weight[IDS[place]]
    torch.testing.assert_close(bag((IDS, VALUES, STARTS)), wanted)


def test_weights_are_told_as_the_logits_see_them() -> None:
    bag = NgramBag(5, 3)
    nn.init.normal_(bag.weight)
    nn.init.normal_(bag.ratio)
    for number in range(5):
        alone = bag((torch.tensor([number]), torch.ones(1), torch.tensor([0])))
        torch.testing.assert_close(bag.weights_of(torch.tensor([number])), alone)


def test_ratios_are_those_of_naive_bayes() -> None:
    with_class, of_all = torch.tensor([[3.0, 0], [1, 4], [0, 0]]), torch.tensor([3.0, 6, 2])  # of a third class too
    found = log_count_ratios(with_class, of_all)
    for label in range(2):
        inside = [1 + float(with_class[row, label]) for row in range(3)]
        outside = [1 + float(of_all[row] - with_class[row, label]) for row in range(3)]
        for row in range(3):
            wanted = math.log(inside[row] / sum(inside)) - math.log(outside[row] / sum(outside))
            assert float(found[row, label]) == pytest.approx(wanted, rel=1e-5)


def test_an_ngram_that_all_classes_have_alike_says_nothing() -> None:
    found = log_count_ratios(torch.tensor([[5.0, 5.0], [9.0, 9.0]]), torch.tensor([10.0, 18.0]))
    torch.testing.assert_close(found, torch.zeros(2, 2))


def test_the_classifier_adds_them_to_the_encoders() -> None:
    model = TextClassifier(ModelConfig(**SIZES, ngrams=True), 11, 3, 7, num_ngrams=5).eval()
    assert model.bag is not None
    tokens = torch.randint(1, 11, (3, 7))
    torch.testing.assert_close(model(tokens, ngrams=(IDS, VALUES, STARTS)), model(tokens))  # weights begin at zero
    nn.init.normal_(model.bag.weight)
    alone, both = model(tokens), model(tokens, ngrams=(IDS, VALUES, STARTS))
    torch.testing.assert_close(both - alone, model.bag((IDS, VALUES, STARTS)))
    assert (both - alone)[1].abs().max() == 0


def test_without_the_option_there_is_no_bag() -> None:
    assert TextClassifier(ModelConfig(**SIZES), 11, 3, 7, num_ngrams=5).bag is None


@pytest.mark.parametrize("layer_decay", [1.0, 0.5])
def test_the_bag_learns_faster_and_is_not_decayed(layer_decay: float) -> None:
    model = TextClassifier(ModelConfig(**SIZES, ngrams=True), 11, 3, 7, num_ngrams=5)
    config = OptimizerConfig(learning_rate=0.1, ngram_rate=7.0, weight_decay=0.3, layer_decay=layer_decay)
    groups = parameter_groups(model, config)
    (own,) = [group for group in groups if any(weight is model.bag.weight for weight in group["params"])]
    assert len(own["params"]) == 1
    assert (own["lr"], own["weight_decay"]) == (pytest.approx(0.7), 0.0)
    assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))
    assert max(group["lr"] for group in groups if group is not own) == pytest.approx(0.1)


def test_the_share_is_of_what_sets_the_likeliest_class_apart() -> None:
    bag, rest = torch.tensor([[3.0, 0, 0], [0, 3, 0], [0, 0, 3]]), torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 1]])
    assert share_of_bag(bag + rest, bag) == pytest.approx(0.75)
    assert share_of_bag(bag + rest, torch.zeros(3, 3)) == 0
    assert share_of_bag(bag + rest, bag + rest) == 1


def test_what_one_part_adds_everywhere_and_the_other_takes_away_decides_nothing() -> None:
    bag, rest = torch.randn(17, 5), torch.randn(17, 5)
    constant = torch.randn(5)
    assert share_of_bag(bag + rest, bag + constant) == pytest.approx(share_of_bag(bag + rest, bag), abs=1e-4)
