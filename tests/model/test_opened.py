"""Checkpoints of BERT's family in our own network: logits, states and weights are those of transformers."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from bert_family import LAYERS, VOCABULARY, peer
from headscope.ground.errors import ConfigError
from headscope.model.checkpoint import read_checkpoint
from headscope.model.classifier import TextClassifier
from headscope.model.families import architecture_of, why_not_opened
from headscope.model.opened import as_transformers, frozen_layers, load_weights
from headscope.settings.config import ModelConfig

CLASSES = 3
# ModernBERT's rotations are computed in float32 by transformers.
FAMILIES = {
    "bert": 1e-12,
    "electra": 1e-12,
    "distilbert": 1e-12,
    "roberta": 1e-12,
    "xlm-roberta": 1e-12,
    "camembert": 1e-12,
    "modernbert": 1e-7,
}
OPTIONS: dict[str, dict[str, Any]] = {
    "bert": {"layer_norm_eps": 1e-3, "hidden_act": "gelu_new"},
    "electra": {"embedding_size": 20, "hidden_act": "relu"},
    "distilbert": {"activation": "relu"},
    "roberta": {"pad_token_id": 3, "max_position_embeddings": 35, "hidden_act": "silu"},
    "modernbert": {"local_attention": 6, "norm_eps": 1e-3, "classifier_pooling": "mean"},
}
LENGTHS = torch.tensor([[17], [11], [1]])
PADDING = torch.arange(17) >= LENGTHS


def written(
    folder: Path, family: str, head: str = "ForSequenceClassification", **options: Any
) -> Any:
    """Write a random checkpoint; return the model of transformers, in float64."""
    sizes = {"num_labels": CLASSES} if head != "Model" else {}
    model = peer(family, head, **sizes, **options)
    model.save_pretrained(folder)
    return model.double()


def description(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return found


def opened(folder: Path, classes: int = CLASSES, **config: Any) -> TextClassifier:
    encoder = description(folder)
    settings = ModelConfig(path=str(folder), **config)
    torch.manual_seed(0)
    model = TextClassifier(architecture_of(encoder, settings), classes)
    load_weights(model, encoder, folder)
    return model.double().eval()


def token_ids() -> torch.Tensor:
    return torch.randint(5, VOCABULARY, PADDING.shape, generator=torch.manual_seed(1))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("has_options", [False, True], ids=["as it is", "other settings"])
def test_logits_are_those_of_transformers(family: str, has_options: bool, tmp_path: Path) -> None:
    options = OPTIONS.get(family, {}) if has_options else {}
    theirs = written(tmp_path, family, **options)
    ids = token_ids()
    pad = theirs.config.pad_token_id
    expected = theirs(ids.masked_fill(PADDING, pad), attention_mask=(~PADDING).long()).logits
    found = opened(tmp_path)(ids.masked_fill(PADDING, 0), PADDING)
    torch.testing.assert_close(found, expected, rtol=0, atol=FAMILIES[family])


@pytest.mark.parametrize("family", ["bert", "electra", "roberta", "distilbert"])
def test_token_types_are_read_where_there_are_two(family: str, tmp_path: Path) -> None:
    theirs = written(tmp_path, family)
    model = opened(tmp_path)
    ids = token_ids()[:1]
    types = (torch.arange(17) > 8).long()[None]
    has_types = family in ("bert", "electra")
    expected = theirs(ids, **({"token_type_ids": types} if has_types else {})).logits
    torch.testing.assert_close(model(ids, None, types), expected, rtol=0, atol=1e-12)
    assert torch.equal(model(ids, None, types), model(ids)) is not has_types


@pytest.mark.parametrize("family", FAMILIES)
def test_states_of_a_layer_are_the_same_read_alone_or_with_others(
    family: str, tmp_path: Path
) -> None:
    theirs = written(tmp_path, family, "Model")
    encoder = description(tmp_path)
    ids = token_ids()
    pad = theirs.config.pad_token_id
    mask = (~PADDING).long()
    states = theirs(ids.masked_fill(PADDING, pad), mask, output_hidden_states=True).hidden_states

    def ours(layer: int | list[int]) -> torch.Tensor:
        frozen = frozen_layers(encoder, layer)
        load_weights(frozen, encoder, tmp_path)
        return frozen.double()(ids.masked_fill(PADDING, 0), PADDING)[~PADDING]

    layers = [*range(1, LAYERS + 1)]
    together = ours(layers).chunk(LAYERS, dim=-1)
    for layer, found in zip(layers, together, strict=True):
        torch.testing.assert_close(found, ours(layer), rtol=0, atol=1e-14)
        expected = states[layer][~PADDING]
        torch.testing.assert_close(found, expected, rtol=0, atol=max(1e-11, FAMILIES[family]))


@pytest.mark.parametrize("family", FAMILIES)
def test_what_was_opened_goes_back_to_transformers(family: str, tmp_path: Path) -> None:
    theirs = written(tmp_path, family)
    back = as_transformers(opened(tmp_path), description(tmp_path))
    kept = theirs.state_dict()
    assert back.keys() == kept.keys() - {"roberta.embeddings.position_ids"}
    for name, weight in back.items():
        if not name.endswith("position_embeddings.weight"):  # the rows before the first token's
            assert torch.equal(weight, kept[name]), name
    theirs.load_state_dict(back)
    ids = token_ids()[:1]
    tolerance = FAMILIES[family]
    torch.testing.assert_close(opened(tmp_path)(ids), theirs(ids).logits, rtol=0, atol=tolerance)


def test_names_of_old_files_are_read(tmp_path: Path) -> None:
    theirs = written(tmp_path, "bert")
    path = tmp_path / "model.safetensors"
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): tensor
        for name, tensor in load_file(path).items()
    }
    assert "bert.embeddings.LayerNorm.gamma" in old
    save_file(old, path)
    ids = token_ids()[:1]
    torch.testing.assert_close(opened(tmp_path)(ids), theirs(ids).logits, rtol=0, atol=1e-12)


def test_a_head_for_as_many_classes_is_kept_and_another_or_a_missing_pooler_is_drawn(
    tmp_path: Path,
) -> None:
    theirs = written(tmp_path, "bert")
    pooler = theirs.bert.pooler.dense.weight
    kept = opened(tmp_path)
    assert torch.equal(kept.head.weight, theirs.classifier.weight)
    assert torch.equal(kept.pooler.dense.weight, pooler)  # type: ignore[union-attr]
    other = opened(tmp_path, classes=5)
    assert other.head.weight.shape == (5, kept.head.weight.shape[1])
    assert torch.equal(other.pooler.dense.weight, pooler)  # type: ignore[union-attr]
    path = tmp_path / "model.safetensors"
    save_file({k: v for k, v in load_file(path).items() if "pooler" not in k}, path)
    drawn = opened(tmp_path)
    assert not torch.equal(drawn.pooler.dense.weight, pooler)  # type: ignore[union-attr]
    assert torch.equal(drawn.head.weight, theirs.classifier.weight)


@pytest.mark.parametrize("frozen", [0, 2])
def test_frozen_layers_do_not_learn_and_their_states_are_where_the_others_start(
    frozen: int, tmp_path: Path
) -> None:
    written(tmp_path, "bert")
    model = opened(tmp_path, frozen_layers=frozen, evidence=False, dropout=0.5).train()
    ids = token_ids()
    model(ids, PADDING).sum().backward()
    parts = [model.embedding, *model.encoder.blocks]
    learns = [any(p.grad is not None for p in part.parameters()) for part in parts]
    assert learns == [False] * (frozen + 1) + [True] * (LAYERS - frozen)
    if not frozen:
        assert model.frozen is None
        return
    assert model.frozen is not None
    states = model.frozen(ids, PADDING)
    assert torch.equal(states, model.frozen(ids, PADDING)), "without dropout"
    model.eval()
    torch.testing.assert_close(model(ids, PADDING, features=states), model(ids, PADDING))


def test_evidence_enters_the_layers_that_learn(tmp_path: Path) -> None:
    written(tmp_path, "bert")

    def has_evidence(**config: Any) -> list[bool]:
        model = opened(tmp_path, **config)
        return [part.evidence is not None for part in (model.embedding, *model.encoder.blocks)]

    assert has_evidence() == [False] * (LAYERS + 1)
    assert has_evidence(evidence=True) == [True] * (LAYERS + 1)
    assert has_evidence(evidence=True, frozen_layers=2) == [False] * 3 + [True]


WHY = [
    ({"model_type": "deberta-v2"}, r"model_type: expected one of bert, .* got 'deberta-v2'"),
    ({"position_embedding_type": "relative_key"}, "position_embedding_type: expected absolute"),
    ({"is_decoder": True}, "is_decoder: expected False, got True"),
    ({"hidden_act": "mish"}, "hidden_act: expected one of gelu, .* got 'mish'"),
    ({"hidden_act": ["gelu"]}, "hidden_act: expected one of gelu"),
    ({"hidden_size": None}, "hidden_size: expected a whole number from 1, got None"),
]
NO_MODEL = [
    ({"hidden_size": "wide"}, "hidden_size: expected a whole number from 1, got 'wide'"),
    ({"num_hidden_layers": 0}, "num_hidden_layers: expected a whole number from 1, got 0"),
    ({"num_attention_heads": -12}, "num_attention_heads: expected a whole number from 1, got -12"),
    ({"layer_norm_eps": math.nan}, "layer_norm_eps: expected a number from 0 to 1, got nan"),
    ({"num_attention_heads": 7}, "num_attention_heads: expected a divisor of 36, got 7"),
    ({"num_hidden_layers": 10**6}, "num_hidden_layers: expected at most 1000"),
    ({"max_position_embeddings": 10**9}, "max_position_embeddings: expected at most 131072"),
    ({"layer_norm_eps": -1.0}, "layer_norm_eps: expected a number from 0 to 1"),
]


@pytest.mark.parametrize(("values", "words"), WHY)
def test_what_does_not_fit_says_why_in_one_sentence(
    values: Any, words: str, tmp_path: Path
) -> None:
    peer("bert").save_pretrained(tmp_path)
    encoder = description(tmp_path)
    assert why_not_opened(encoder) == ""
    with pytest.raises(ConfigError, match=words):
        architecture_of(encoder | values)
    assert "\n" not in why_not_opened(encoder | values)


@pytest.mark.parametrize(("values", "words"), NO_MODEL)
def test_a_config_that_is_no_models_is_one_message_and_not_asked_of_transformers(
    values: Any, words: str, tmp_path: Path
) -> None:
    peer("bert").save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(description(tmp_path) | values))
    with pytest.raises(
        ConfigError, match=f"model.path={re.escape(str(tmp_path))}: config.json: {words}"
    ):
        read_checkpoint("model.path", str(tmp_path))
