"""Checkpoints of the BERT family in our layers: hidden states, maps and gradients are those of `transformers`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from bert_family import FAMILIES, LAYERS, PLACES, VOCABULARY, WIDTH, peer, save
from headscope.config import ModelConfig
from headscope.errors import ConfigError
from headscope.heads.capture import capture
from headscope.model.classifier import TextClassifier
from headscope.model.pretrained import (
    find_checkpoint,
    load_weights,
    names_in_checkpoint,
)

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
DTYPES = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
LENGTHS = torch.tensor([5, 13, 1, 11])
FIRST_WORD = 5  # ids below are special ones in some family
Pair = tuple[Any, TextClassifier]  # theirs and ours, with the same weights
Texts = tuple[Tensor, Tensor | None, Tensor | None]  # ids, padding, token types


def ours_from(folder: Path, dtype: torch.dtype = torch.float32, **options: Any) -> TextClassifier:
    checkpoint = find_checkpoint(str(folder))
    config = ModelConfig(**{"dropout": 0.0, "pooling": "mean", **options})
    model = TextClassifier(config, 1, 2, 1, architecture=checkpoint.architecture).to(dtype).eval()
    load_weights(model, checkpoint)
    return model


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def pair(family: str, dtype: torch.dtype, tmp_path: Path) -> Pair:
    theirs = peer(family).to(dtype)
    return theirs, ours_from(save(theirs, tmp_path), dtype)


@pytest.fixture(params=["whole", "padded", "token types", "padded with token types"])
def texts(request: pytest.FixtureRequest, family: str) -> Texts:
    T = int(LENGTHS.max())
    ids = torch.randint(FIRST_WORD, VOCABULARY, (len(LENGTHS), T), generator=torch.manual_seed(1))
    padding = torch.arange(T) >= LENGTHS[:, None] if "padded" in request.param else None
    # As our batches have it, whatever the family's id is.
    ids = ids if padding is None else ids.masked_fill(padding, 0)
    types = (torch.arange(T) >= LENGTHS[:, None] // 2).long() if "types" in request.param else None
    return ids, padding, types


def run_theirs(
    model: Any, family: str, ids: Tensor, padding: Tensor | None, types: Tensor | None
) -> Any:
    pad_id = model.config.pad_token_id
    inputs = {"input_ids": ids if padding is None else ids.masked_fill(padding, pad_id)}
    if padding is not None:
        inputs["attention_mask"] = (~padding).long()
    if types is not None and family == "bert":  # the only one that knows types of tokens
        inputs["token_type_ids"] = types
    return model(**inputs, output_hidden_states=True, output_attentions=True)


def run_ours(
    model: TextClassifier, ids: Tensor, padding: Tensor | None, types: Tensor | None
) -> list[Tensor]:
    """Return the tokens' vectors after the embedding and after each block."""
    states = [model.embedding(ids, types)]
    for block in model.encoder.blocks:
        states.append(block(states[-1], padding))
    assert torch.equal(model.encoder(states[0], padding), states[-1])
    return states


def kept(padding: Tensor | None, ids: Tensor) -> Tensor:
    return torch.ones_like(ids, dtype=torch.bool) if padding is None else ~padding


@DTYPES
def test_hidden_states_are_those_of_transformers(
    pair: Pair, texts: Texts, family: str, dtype: torch.dtype
) -> None:
    theirs, ours = pair
    with torch.no_grad():
        expected = run_theirs(theirs, family, *texts).hidden_states
        found = run_ours(ours, *texts)
    here = kept(texts[1], texts[0])
    assert len(expected) == len(found) == LAYERS + 1
    for one, other in zip(found, expected, strict=True):
        assert other[here].std() > 0.1
        torch.testing.assert_close(one[here], other[here], rtol=0, atol=TOLERANCE[dtype])


@DTYPES
def test_maps_are_those_of_transformers(
    pair: Pair, texts: Texts, family: str, dtype: torch.dtype
) -> None:
    theirs, ours = pair
    with torch.no_grad(), capture(ours) as maps:
        ours(*texts)
        expected = run_theirs(theirs, family, *texts).attentions
    here = kept(texts[1], texts[0])
    assert list(maps) == [f"encoder.blocks.{number}.attention" for number in range(LAYERS)]
    for one, other in zip(maps.values(), expected, strict=True):
        queries = here[:, None, :].expand(-1, one.shape[1], -1)
        torch.testing.assert_close(one[queries], other[queries], rtol=0, atol=TOLERANCE[dtype])
        if texts[1] is not None:
            assert (one.transpose(2, 3)[~queries] == 0).all()  # nobody looks at padding


def gradients(model: torch.nn.Module, state: Tensor, here: Tensor) -> dict[str, Tensor]:
    direction = torch.randn(state.shape, generator=torch.manual_seed(2)).to(state.dtype)
    (state * direction)[here].sum().div(here.sum()).backward()
    return {
        name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None
    }


@DTYPES
def test_gradients_are_those_of_transformers(
    pair: Pair, texts: Texts, family: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    theirs, ours = pair
    architecture = find_checkpoint(str(tmp_path)).architecture
    here = kept(texts[1], texts[0])
    expected = gradients(theirs, run_theirs(theirs, family, *texts).last_hidden_state, here)
    found = gradients(ours, run_ours(ours, *texts)[-1], here)
    names = names_in_checkpoint(architecture)
    assert (
        set(names)
        == set(found)
        == {name for name, _ in ours.named_parameters() if name[:4] != "head"}
    )
    for name, others in names.items():
        other = torch.cat([expected[part] for part in others])
        other = other[architecture.position_offset :] if name == "embedding.position" else other
        assert found[name].any() or "in_proj_bias" in name
        # A gradient is a sum over all tokens: its rounding grows with its size.
        torch.testing.assert_close(found[name], other, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def test_the_longest_text_fits(family: str, tmp_path: Path) -> None:
    model = ours_from(save(peer(family), tmp_path))
    assert find_checkpoint(str(tmp_path)).architecture.max_positions == PLACES
    assert model(torch.full((1, PLACES), FIRST_WORD)).shape == (1, 2)


@pytest.mark.parametrize("activation", ["relu", "gelu_new"])
def test_other_activations_are_those_of_transformers(activation: str, tmp_path: Path) -> None:
    theirs = peer("bert", hidden_act=activation).double()
    ours = ours_from(save(theirs, tmp_path), torch.float64)
    ids = torch.arange(FIRST_WORD, FIRST_WORD + 11)[None]
    torch.testing.assert_close(
        run_ours(ours, ids, None, None)[-1], theirs(ids).last_hidden_state, rtol=0, atol=1e-10
    )


@pytest.mark.parametrize("head", ["ForMaskedLM", "ForSequenceClassification"])
def test_the_encoder_is_found_within_a_model_with_a_head(
    family: str, head: str, tmp_path: Path
) -> None:
    theirs = peer(family, head)
    ours = ours_from(save(theirs, tmp_path))
    ids = torch.arange(FIRST_WORD, FIRST_WORD + 11)[None]
    expected = theirs(ids, output_hidden_states=True).hidden_states[-1]
    torch.testing.assert_close(run_ours(ours, ids, None, None)[-1], expected, rtol=0, atol=1e-5)


def test_names_of_the_first_bert_and_half_precision_are_read(tmp_path: Path) -> None:
    theirs = peer("bert")
    path = save(theirs, tmp_path) / "model.safetensors"
    old = {".weight": ".gamma", ".bias": ".beta"}
    tensors = {}
    for name, tensor in load_file(path).items():
        kind = name[name.rindex(".") :]
        name = name.replace(kind, old[kind]) if "LayerNorm" in name else name
        tensors[f"bert.{name}"] = tensor.half()
    save_file(tensors, path)
    ours, ids = ours_from(tmp_path), torch.arange(FIRST_WORD, FIRST_WORD + 11)[None]
    assert ours.embedding.token.weight.dtype == torch.float32
    expected = theirs.half().float()(ids).last_hidden_state
    torch.testing.assert_close(run_ours(ours, ids, None, None)[-1], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model_type": "gpt2"}, "expected bert, distilbert, roberta, xlm-roberta, got 'gpt2'"),
        ({"position_embedding_type": "relative"}, "expected absolute, got 'relative'"),
        ({"is_decoder": True}, "is_decoder: expected False, got True"),
        ({"hidden_act": "silu"}, "hidden_act: Input should be 'gelu', 'gelu_new'"),
        ({"hidden_size": None}, "hidden_size: Input should be a valid integer"),
        ({"num_attention_heads": 5}, "5 heads do not divide a width of 33"),
        ({"max_position_embeddings": None}, "a size is not a number"),
        ({"num_hidden_layers": 2}, "encoder.layer.2.attention.output.LayerNorm.bias, which its"),
        ({"num_hidden_layers": 4}, "has no tensor encoder.layer.3"),
        (
            {"vocab_size": 54},
            "word_embeddings.weight: expected [54, 33] as in config.json, got [53",
        ),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_what_is_not_supported_raises_an_error_that_names_it(
    change: dict[str, Any], words: str, tmp_path: Path
) -> None:
    path = save(peer("bert"), tmp_path) / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ConfigError) as error:
        ours_from(tmp_path)
    assert words in str(error.value)
    assert str(tmp_path) in str(error.value)


def test_pickled_weights_and_an_empty_folder_raise_an_error_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no config\.json; expected the folder of a checkpoint"):
        find_checkpoint(str(tmp_path))
    save(peer("bert"), tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "pytorch_model.bin").touch()
    with pytest.raises(ConfigError, match=r"Pickled weights are not read.*model\.path=converted"):
        find_checkpoint(str(tmp_path))


@pytest.mark.parametrize("broken", ["config.json", "model.safetensors"])
def test_a_broken_file_is_named(broken: str, tmp_path: Path) -> None:
    (save(peer("bert"), tmp_path) / broken).write_text("no such format")
    with pytest.raises(ConfigError, match=f"{broken} cannot be read"):
        ours_from(tmp_path)


def test_quantized_weights_raise_an_error(tmp_path: Path) -> None:
    path = save(peer("bert"), tmp_path) / "model.safetensors"
    tensors = {name: (100 * tensor).to(torch.int8) for name, tensor in load_file(path).items()}
    save_file(tensors, path)
    with pytest.raises(ConfigError, match=r"expected floating-point weights, got torch\.int8"):
        ours_from(tmp_path)


def test_weights_in_several_files_are_read(tmp_path: Path) -> None:
    several = tmp_path / "several"
    peer("bert").save_pretrained(several, max_shard_size="20KB")
    files = sorted(several.glob("*.safetensors"))
    assert len(files) > 2
    sharded = ours_from(several).state_dict()
    for name, weight in ours_from(save(peer("bert"), tmp_path / "one")).state_dict().items():
        assert torch.equal(weight, sharded[name]) or name.startswith("head")
    files[0].unlink()
    with pytest.raises(ConfigError, match=r"several has no tensor "):
        ours_from(several)


def pooled(model: TextClassifier, ids: Tensor, padding: Tensor | None = None) -> Tensor:
    return model.pool(model.encoder(model.embedding(ids), padding), padding)


@pytest.mark.parametrize("head", ["Model", "ForSequenceClassification", "ForPreTraining"])
def test_berts_pooler_is_that_of_transformers(head: str, tmp_path: Path) -> None:
    theirs = peer("bert", head)
    ours, ids = (
        ours_from(save(theirs, tmp_path), pooling="pooler"),
        torch.arange(FIRST_WORD, FIRST_WORD + 11)[None],
    )
    expected = getattr(theirs, "bert", theirs)(ids).pooler_output
    assert expected.std() > 0.1
    torch.testing.assert_close(pooled(ours, ids), expected, rtol=0, atol=1e-5)


def test_where_the_first_token_is_read_the_last_block_computes_no_other(tmp_path: Path) -> None:
    ours = ours_from(save(peer("bert"), tmp_path), torch.float64, pooling="first")
    ids = torch.arange(FIRST_WORD, FIRST_WORD + 12).view(2, 6)
    padding = torch.arange(6) >= torch.tensor([[6], [4]])
    assert ours.encoder(ours.embedding(ids), padding).shape == (2, 1, WIDTH)
    with capture(ours):  # all of them
        assert ours.encoder(ours.embedding(ids), padding).shape == (2, 6, WIDTH)
        expected = ours(ids, padding)
    torch.testing.assert_close(ours(ids, padding), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("family", ["distilbert", "roberta"])
def test_a_pooler_is_drawn_where_the_checkpoint_has_none(family: str, tmp_path: Path) -> None:
    theirs = peer(family, "ForMaskedLM")
    torch.manual_seed(7)
    one = ours_from(save(theirs, tmp_path), pooling="pooler")
    torch.manual_seed(8)
    other = ours_from(tmp_path, pooling="pooler")
    assert 0.01 < one.pool.dense.weight.std() < 1
    assert not torch.equal(one.pool.dense.weight, other.pool.dense.weight)
    assert torch.equal(one.embedding.token.weight, other.embedding.token.weight)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda tensors: tensors.pop("pooler.dense.bias"), "has no tensor pooler.dense.bias"),
        (
            lambda tensors: tensors.update({"pooler.dense.bias": torch.zeros(3)}),
            "pooler.dense.bias: expected [33] as in config.json, got [3]",
        ),
    ],
    ids=["half", "another width"],
)
def test_a_pooler_that_does_not_fit_raises_an_error(
    spoil: Callable[[Any], Any], words: str, tmp_path: Path
) -> None:
    path = save(peer("bert"), tmp_path) / "model.safetensors"
    tensors = load_file(path)
    spoil(tensors)
    save_file(tensors, path)
    with pytest.raises(ConfigError) as refusal:
        ours_from(tmp_path, pooling="pooler")
    assert words in str(refusal.value)
    ours_from(tmp_path)  # without a pooler it is not looked at
