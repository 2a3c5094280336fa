"""What comes of the text is no constant of the network: it is of a word, or not attributed.

The right values are those of networks that are linear in the vectors of words, where a word's
contribution is what the log-odds lose, in float64, with the zero vector in its place (id 0).
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import headscope
from foreign_classifiers import classifier
from headscope.ground.errors import UserWarningMessage
from headscope.record.explanation import Explanation

D, V = 6, 12
IDS = torch.tensor([[5, 6, 7, 8, 9]])
Part = Callable[[Any, Tensor], Tensor]  # from a network and ids [1, S] to [1, D]


def counted(net: Any, ids: Tensor) -> Tensor:
    counts = torch.zeros(1, V, dtype=torch.float64)
    return counts.scatter_add(1, ids, torch.ones_like(ids, dtype=torch.float64)) @ net.weight


def unlearned(mode: Any) -> Part:
    def part(net: Any, ids: Tensor) -> Tensor:
        with mode():
            vectors = net.table(ids)
        return vectors.mean(dim=1)

    return part


def written(net: Any, ids: Tensor) -> Tensor:
    later = torch.zeros_like(ids)
    later.narrow(1, 0, 1).copy_(ids[:, :1])
    later[:, 1:] = ids[:, 1:].clone()
    return net.table(later).sum(dim=1)


def shifted(net: Any, ids: Tensor) -> Tensor:
    before = ids.new_zeros(ids.shape)  # as a decoder reads them
    before[:, 1:] = ids[:, :-1]
    return net.table(F.pad(before, (0, 2))).sum(dim=1)


PARTS: dict[str, Part] = {
    "looked up": lambda net, ids: net.table(ids).mean(dim=1),
    "of one dimension": lambda net, ids: torch.embedding(net.weight, ids[0]).sum(dim=0)[None],
    "rows": lambda net, ids: net.weight[ids].sum(dim=1),
    "one by one": lambda net, ids: torch.stack([net.weight[each] for each in ids[0]]).sum(0)[None],
    "selected": lambda net, ids: net.weight.index_select(0, ids.flatten()).sum(dim=0)[None],
    "bag": lambda net, ids: net.bag(ids),
    "bag from offsets": lambda net, ids: F.embedding_bag(ids[0], net.weight, torch.tensor([0])),
    "one-hot": lambda net, ids: (F.one_hot(ids, V).double() @ net.weight).mean(dim=1),
    "one-hot, summed": lambda net, ids: F.one_hot(ids, V).double().sum(dim=1) @ net.weight,
    "identity": lambda net, ids: torch.eye(V, dtype=torch.float64)[ids].sum(dim=1) @ net.weight,
    "counted": counted,
    "detached": lambda net, ids: net.table(ids).detach().mean(dim=1),
    "data": lambda net, ids: net.table(ids).data.sum(dim=1),
    "no_grad": unlearned(torch.no_grad),
    "inference_mode": unlearned(torch.inference_mode),
    "dropout": lambda net, ids: F.dropout(net.table(ids), 0.5, net.training).mean(dim=1),
    "attended": lambda net, ids: net.attention(*[net.table(ids)] * 3)[0].mean(dim=1),
    "checkpoint": lambda net, ids: checkpoint(net.layer, net.table(ids), use_reentrant=False).sum(1),
    "padded": lambda net, ids: net.table(F.pad(ids, (1, 2))).sum(dim=1),
    "turned": lambda net, ids: net.table(ids.flip(1).T).mean(dim=0),
    "stacked": lambda net, ids: torch.stack([net.table(each) for each in ids.unbind(1)]).sum(0),
    "joined": lambda net, ids: net.table(torch.cat([ids[:, 1:], ids[:, :1]], dim=1)).mean(dim=1),
    "of bytes": lambda net, ids: net.table(ids.where(ids > 0, 0).to(torch.int32)).sum(dim=1),
}  # fmt: skip
LOST: dict[str, Part] = {  # of no word alone
    "pairs": lambda net, ids: net.pairs(ids.roll(1, 1) * V + ids).sum(dim=1),
    "counted in integers": lambda net, ids: (
        ids[0].bincount(minlength=V).double()[None] @ net.weight
    ),
    "length": lambda net, ids: ids.ne(0).sum(dim=1, keepdim=True).double() @ net.weight[1:2],
    "by number": lambda net, ids: net.weight[int(ids[0, 0])][None],
    "written to a view": written,
    "in the order of ids": lambda net, ids: net.table(ids.sort().values[:, :1]).sum(dim=1),
}


class Drawn(nn.Module):
    """The sum of parts, of each chunk of each text with a factor of its own."""

    def __init__(self, parts: list[Part], chunk: int = 99, has_positions: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(V, D, padding_idx=0)
        self.bag = nn.EmbeddingBag(V, D, mode="sum", _weight=self.table.weight)
        self.pairs = nn.Embedding(V * V, D)
        self.positions = nn.Embedding(V, D)
        self.attention = nn.MultiheadAttention(D, 2, batch_first=True)
        nn.init.zeros_(self.attention.in_proj_weight[: 2 * D])  # each looks at all alike
        self.layer = nn.Linear(D, D, bias=False)
        self.head = nn.Linear(D, 2)
        self.parts = parts
        self.chunk = chunk
        self.has_positions = has_positions
        self.double().eval()

    @property
    def weight(self) -> Tensor:
        return self.table.weight

    def forward(self, *texts: Tensor) -> Tensor:
        total = torch.zeros(1, D, dtype=torch.float64)
        factor = 1.0
        for text in texts:
            for ids in text.split(self.chunk, dim=1):
                for part in self.parts:
                    total = total + factor * part(self, ids)
                    factor += 1
            if self.has_positions:
                places = torch.arange(text.shape[1])[None]
                total = total + (self.table(text) + self.positions(places)).sum(dim=1)
        return self.head(total)  # type: ignore[no-any-return]


def log_odds(net: nn.Module, texts: list[Tensor], found: Explanation) -> float:
    with torch.no_grad():
        logits = net(*texts)[0]
    return float(logits[0] - logits[1]) * (1 if found.label == "class 0" else -1)


def without(texts: list[Tensor], place: int) -> list[Tensor]:
    joined = torch.cat(texts, dim=1)
    joined[0, place] = 0
    return [*joined.split([text.shape[1] for text in texts], dim=1)]


def shown(net: nn.Module, texts: list[Tensor]) -> Explanation:
    tokens = [str(number) for number in range(sum(text.shape[1] for text in texts))]
    found = headscope.show(net, tokens, tuple(texts)).explanation
    assert found is not None
    assert found.log_odds == pytest.approx(log_odds(net, texts, found), abs=1e-9)
    return found


def right(net: nn.Module, texts: list[Tensor], found: Explanation) -> list[float]:
    """Return what the log-odds lose without each word."""
    whole = log_odds(net, texts, found)
    places = range(sum(text.shape[1] for text in texts))
    return [whole - log_odds(net, without(texts, place), found) for place in places]


LISTS = st.lists(st.integers(1, V - 1), min_size=2, max_size=5)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    names=st.lists(st.sampled_from([*PARTS]), min_size=1, max_size=3),
    lost=st.lists(st.sampled_from([*LOST]), max_size=1),
    rows=st.lists(LISTS | st.just([1, 2, 3, 4]) | st.just([3, 3, 3]), min_size=1, max_size=2),
    chunk=st.integers(1, 5),
    has_positions=st.booleans(),
    place=st.integers(0, 9),
)
@example(["looked up"], [], [[5, 6, 7, 8, 9], [7, 8]], 9, False, 6)  # a part of the other text
@example(["looked up"], [], [[5, 6, 7], [5, 6, 7]], 9, False, 4)
@example(["looked up"], [], [[5, 6, 5, 6]], 2, False, 3)
@example(["looked up"], [], [[1, 2, 3, 4, 5]], 9, True, 1)  # ids as those of positions
def test_a_word_moves_exactly_when_its_own_vector_is_changed(
    names: list[str], lost: list[str], rows: Any, chunk: int, has_positions: bool, place: int
) -> None:
    texts = [torch.tensor([row]) for row in rows]
    net = Drawn([PARTS[name] for name in names], chunk, has_positions)
    found = shown(net, texts)
    assert abs(found.miss) < 1e-9
    own = right(net, texts, found)
    if has_positions:  # a position's vector belongs to its word; that of no word is taken off
        pair = [found.classes.index(found.label), found.classes.index(found.against)]
        numbers = [int(name.split()[1]) for name in (found.classes[at] for at in pair)]
        rule = (net.head.weight[numbers[0]] - net.head.weight[numbers[1]]).detach()
        places = torch.cat([torch.arange(text.shape[1]) for text in texts])
        own = own + (net.positions.weight[places].detach() @ rule).numpy()
    np.testing.assert_allclose(found.words, own, atol=1e-9)
    assert found.words.sum() + found.biases == pytest.approx(found.log_odds, abs=1e-9)
    at = place % len(found.words)
    changed = shown(net, without(texts, at))
    sign = 1 if changed.label == found.label else -1
    moved = np.abs(sign * changed.words - found.words) > 1e-9
    assert moved.tolist() == [each == at for each in range(len(moved))]
    if lost:  # is no bias
        more = Drawn([*net.parts, lambda net, ids: LOST[lost[0]](net, ids)], chunk, has_positions)
        with torch.no_grad():
            more.head.bias.copy_(net.head.bias)
        sums = shown(more, texts)
        total = sums.words.sum() + sums.biases + sums.miss
        assert total == pytest.approx(sums.log_odds, abs=1e-9)
        sign = 1 if sums.label == found.label else -1
        assert sums.biases == pytest.approx(sign * found.biases, abs=1e-9)


@pytest.mark.parametrize("name", PARTS)
def test_each_way_to_read_a_word_is_its_own(name: str) -> None:
    net = Drawn([PARTS[name]])
    found = shown(net, [IDS])
    np.testing.assert_allclose(found.words, right(net, [IDS], found), atol=1e-12)
    assert np.abs(found.words).min() > 1e-3
    assert abs(found.miss) < 1e-12


@pytest.mark.parametrize("name", LOST)
def test_what_is_of_no_word_alone_is_not_attributed(name: str) -> None:
    net = Drawn([PARTS["looked up"], LOST[name]])
    found = shown(net, [IDS])
    alone = Drawn([PARTS["looked up"]])
    usual = shown(alone, [IDS])
    sign = 1 if usual.label == found.label else -1
    np.testing.assert_allclose(found.words, sign * usual.words, atol=1e-12)
    assert found.biases == pytest.approx(sign * usual.biases, abs=1e-12)
    assert abs(found.miss) > 1e-3
    assert "not attributed: " in str(found)
    assert found.unknown == "model.head (Linear)"


def test_a_decoder_that_reads_one_place_later_has_each_word_once() -> None:
    net = Drawn([shifted])
    found = shown(net, [IDS])
    np.testing.assert_allclose(found.words, right(net, [IDS], found), atol=1e-12)
    assert found.words[-1] == pytest.approx(0.0, abs=1e-12)


def test_the_largest_of_a_bag_belong_to_the_words_that_have_them() -> None:
    net = Drawn([lambda net, ids: F.embedding_bag(ids, net.weight, mode="max")])
    same = Drawn([lambda net, ids: net.table(ids).amax(dim=1)])
    np.testing.assert_allclose(shown(net, [IDS]).words, shown(same, [IDS]).words, atol=1e-12)


def test_bags_leave_out_padding_and_weigh_their_words() -> None:
    ids = torch.tensor([[5, 3, 7, 5]])
    weights = torch.tensor([[0.5, 9.0, -2.0, 1.0]]).double()

    def bag(net: Any, ids: Tensor) -> Tensor:
        options = {"per_sample_weights": weights, "padding_idx": 3, "mode": "sum"}
        mean = F.embedding_bag(ids, net.weight, padding_idx=3)
        return F.embedding_bag(ids, net.weight, **options) + mean

    net = Drawn([bag])
    found = shown(net, [ids])
    with torch.no_grad():
        factors = (weights[0] + 1 / 3) * torch.tensor([1.0, 0.0, 1.0, 1.0])
        each = (net.weight[ids[0]] * factors[:, None]) @ net.head.weight.T
    own = (each[:, 0] - each[:, 1]).numpy() * (1 if found.label == "class 0" else -1)
    np.testing.assert_allclose(found.words, own, atol=1e-12)


@pytest.mark.parametrize("back", [torch.tensor, torch.as_tensor, np.array])
def test_ids_that_python_had_are_the_texts(back: Any) -> None:
    def part(net: Any, ids: Tensor) -> Tensor:
        made = back(ids.tolist())
        return net.table(torch.from_numpy(made) if back is np.array else made).mean(dim=1)

    net = Drawn([part])
    found = shown(net, [IDS])
    np.testing.assert_allclose(found.words, right(net, [IDS], found), atol=1e-12)


def test_features_beside_the_words_are_not_attributed() -> None:
    class Beside(Drawn):
        def forward(self, ids: Tensor, features: Tensor) -> Tensor:
            return self.head(self.table(ids).mean(dim=1) + features)  # type: ignore[no-any-return]

    net = Beside([])
    features = torch.ones(1, D).double()
    found = headscope.show(net, [*"abcde"], (IDS, features)).explanation
    usual = headscope.show(net, [*"abcde"], (IDS, 0 * features)).explanation
    sign = 1 if usual.label == found.label else -1
    np.testing.assert_allclose(found.words, sign * usual.words, atol=1e-12)
    assert found.biases == pytest.approx(sign * usual.biases, abs=1e-12)
    assert abs(found.miss) > 1e-3


def test_vectors_of_two_texts_have_places_of_their_own() -> None:
    class OfVectors(Drawn):
        def forward(self, first: Tensor, second: Tensor) -> Tensor:
            return self.head(first.mean(dim=1) - second.mean(dim=1))  # type: ignore[no-any-return]

    net = OfVectors([])
    texts = [torch.randn(1, 3, D).double(), torch.randn(1, 2, D).double()]
    found = shown(net, texts)
    np.testing.assert_allclose(found.words, right(net, texts, found), atol=1e-12)


def test_what_gates_say_is_no_constant_but_what_they_choose_among_is() -> None:
    def said(net: Any, ids: Tensor) -> Tensor:
        return net.table(ids).mean(dim=1).softmax(dim=-1)

    def chosen(net: Any, ids: Tensor) -> Tensor:
        return net.positions(net.table(ids).mean(dim=1).argmax(dim=-1))  # as the bias of an expert

    usual = shown(Drawn([PARTS["looked up"]]), [IDS])
    for part, is_missed in ((said, True), (chosen, False)):
        found = shown(Drawn([PARTS["looked up"], part]), [IDS])
        sign = 1 if usual.label == found.label else -1
        np.testing.assert_allclose(found.words, sign * usual.words, atol=1e-12)
        assert (abs(found.miss) > 1e-3) == is_missed


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_checkpoints_are_left_as_they_were() -> None:
    before = [*torch.utils.checkpoint.__dict__.items()]
    net = Drawn([lambda net, ids: checkpoint(net.layer, net.table(ids), use_reentrant=True).sum(1)])
    found = shown(net, [IDS])
    np.testing.assert_allclose(found.words, right(net, [IDS], found), atol=1e-12)
    after = torch.utils.checkpoint.__dict__
    assert all(after[name] is value for name, value in before)


# --- models of others ---


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_heads_are_known_in_types_that_round(dtype: torch.dtype) -> None:
    model, tokenizer = classifier("bert", attn_implementation="sdpa")
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.mul_(30 if "query" in name or "key" in name else 1)
    view = headscope.show(model.to(dtype), tokenizer, "the film was not bad")
    assert view.contributions.shape == (3, 3)
    assert "heads" not in view.text.notes
    whole = headscope.show(model.float(), tokenizer, "the film was not bad")
    sign = 1 if whole.prediction == view.prediction else -1
    np.testing.assert_allclose(view.contributions, sign * whole.contributions, atol=0.02)


@pytest.mark.filterwarnings("ignore:torch")
def test_a_quantized_model_has_the_words_of_its_weights() -> None:
    model, tokenizer = classifier("bert")
    usual = headscope.show(model, tokenizer, "the film was not bad").explanation
    model = torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
    found = headscope.show(model, tokenizer, "the film was not bad").explanation
    sign = 1 if usual.label == found.label else -1
    np.testing.assert_allclose(found.words, sign * usual.words, atol=0.01)
    assert found.biases == pytest.approx(sign * usual.biases, abs=0.01)


def test_dropout_that_is_left_on_is_noted_and_named() -> None:
    net = Drawn([lambda net, ids: F.dropout(net.table(ids), 0.5).mean(dim=1)])
    with pytest.warns(UserWarningMessage, match=r"from one pass to the next.* F\.dropout"):
        view = headscope.show(net, [*"abcde"], IDS)
    assert "dropout" in view.text.notes["logits"]
    model, tokenizer = classifier("bert")
    model.dropout.forward = lambda vectors: F.dropout(vectors, 0.5)
    with torch.no_grad():
        model.classifier.weight.mul_(30)
    with pytest.warns(UserWarningMessage, match=r"from one pass to the next.* F\.dropout"):
        view = headscope.show(model, tokenizer, "the film was not bad")
    assert "dropout" in view.text.notes["logits"]


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        ("a d@@ og don't .", [("a", 1, 2), ("dog", 2, 4), ("don't", 4, 5), (".", 5, 6)]),
        ("d og</w> runs</w> .</w>", [("dog", 1, 3), ("runs", 3, 4), (".", 4, 5)]),
        ("d ##og ##s .", [("dogs", 1, 4), (".", 4, 5)]),
        ("▁d og s . ▁ ▁it", [("dogs", 1, 4), (".", 4, 5), ("it", 5, 7)]),
        ("a _ d o g .", [("a", 1, 2), ("dog", 2, 6), (".", 6, 7)]),
        ("@@ ## x", [("@@", 1, 2), ("##", 2, 3), ("x", 3, 4)]),
    ],
)  # fmt: skip
def test_pieces_are_joined_by_the_marks_of_any_family(tokens: str, words: Any) -> None:
    from headscope.foreign.pieces import read_pieces

    row = ["<s>", *tokens.replace("_", "\0").split(), "</s>"]
    row = [" " if token == "\0" else token for token in row]
    shown_tokens, found = read_pieces(row, [1, *[0] * (len(row) - 2), 1])
    assert [tuple(word) for word in found] == words
    assert (shown_tokens[0], shown_tokens[-1]) == ("<s>", "</s>")
    assert not any(mark in token for token in shown_tokens[1:-1] for mark in ("▁", "</w>"))


def test_words_of_a_tokenizer_in_python_are_whole(tmp_path: Any) -> None:
    (tmp_path / "vocab.txt").write_text("d@@ 3\nog 3\nruns 3\n", encoding="utf-8")
    (tmp_path / "bpe.codes").write_text("o g</w> 9\nr u 8\nru n 7\nrun s</w> 6\n", encoding="utf-8")
    tokenizer = transformers.PhobertTokenizer(
        *map(str, [tmp_path / "vocab.txt", tmp_path / "bpe.codes"])
    )
    model, _ = classifier("bert", vocab_size=len(tokenizer))
    view = headscope.show(model, tokenizer, "dog runs")
    assert [word for word, _ in view.explanation.ranked_words()] in (
        ["dog", "runs"],
        ["runs", "dog"],
    )
    assert view.tokens == ["<s>", "d", "og", "runs", "</s>"]
