"""Families of checkpoints that open into our own network: a row of names for each.

What a config.json says is read, never assumed: activation, eps, positions, token types, widths. A
checkpoint that our network cannot be gets one sentence that says why (`why_not_opened`).

Shape letters: D model width, F width of the feed-forward network, C classes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from headscope.ground.errors import ConfigError
from headscope.model.architecture import Activation, Architecture, Layer, Pooler
from headscope.settings.config import ModelConfig

Description = dict[str, Any]  # the content of a config.json of transformers
# Of one of our tensors: those of the checkpoint, joined row by row; {n} is the layer's number.
Names = dict[str, tuple[str, ...]]

MOST_LAYERS = 1000  # as of a network from scratch
MOST_TOKENS = 2**17
MOST_NUMBERS = 2**40  # of a table; beyond it a config.json is no model's
ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}


class NoModelError(ConfigError):
    """A value of config.json that no model has: transformers is not asked either."""


@dataclass(frozen=True)
class Family:
    """How a family's config.json and tensors are named.

    Attributes:
        prefix: of the encoder's tensors in a classifier; a plain encoder has none.
        keys: from our word to the key of config.json, where it is not BERT's.
        names: of the tensors of the encoder, without prefix.
        head: of the pooler and the classes; with the prefix where it says {prefix}.
        pooler: what stands between [CLS] and the classes, where config.json does not say.
        architecture: reads a config.json.
        first_position: from config.json, the row of the table of positions of the first token.
        rotates_halves: transformers rotates numbers j and j + E / 2 of a head, ours are neighbours.
    """

    prefix: str
    names: Names
    head: Names
    pooler: Pooler
    keys: Mapping[str, str]
    architecture: "Callable[[Description, Family], Architecture]"
    first_position: Callable[[Description], int] = lambda encoder: 0
    rotates_halves: bool = False


def _with_bias(ours: str, *theirs: str) -> Names:
    kinds = ("weight", "bias")
    return {f"{ours}.{kind}": tuple(f"{name}.{kind}" for name in theirs) for kind in kinds}


def _attention(*theirs: str) -> Names:
    """Return the names of Q, K and V, which are one matrix here."""
    layer = "encoder.blocks.{n}.attention.in_proj_"
    kinds = ("weight", "bias")
    return {f"{layer}{kind}": tuple(f"{name}.{kind}" for name in theirs) for kind in kinds}


BLOCK = "encoder.blocks.{n}"
BERT_NAMES: Names = {
    "embedding.token.weight": ("embeddings.word_embeddings.weight",),
    "embedding.position": ("embeddings.position_embeddings.weight",),
    "embedding.segment.weight": ("embeddings.token_type_embeddings.weight",),
    **_with_bias("embedding.norm", "embeddings.LayerNorm"),
    **_with_bias("embedding.projection", "embeddings_project"),
    **_attention(
        "encoder.layer.{n}.attention.self.query",
        "encoder.layer.{n}.attention.self.key",
        "encoder.layer.{n}.attention.self.value",
    ),
    **_with_bias(f"{BLOCK}.attention.out_proj", "encoder.layer.{n}.attention.output.dense"),
    **_with_bias(f"{BLOCK}.attention_norm", "encoder.layer.{n}.attention.output.LayerNorm"),
    **_with_bias(f"{BLOCK}.feedforward.0", "encoder.layer.{n}.intermediate.dense"),
    **_with_bias(f"{BLOCK}.feedforward.2", "encoder.layer.{n}.output.dense"),
    **_with_bias(f"{BLOCK}.feedforward_norm", "encoder.layer.{n}.output.LayerNorm"),
}
DISTILBERT_NAMES: Names = {
    "embedding.token.weight": ("embeddings.word_embeddings.weight",),
    "embedding.position": ("embeddings.position_embeddings.weight",),
    **_with_bias("embedding.norm", "embeddings.LayerNorm"),
    **_attention(
        "transformer.layer.{n}.attention.q_lin",
        "transformer.layer.{n}.attention.k_lin",
        "transformer.layer.{n}.attention.v_lin",
    ),
    **_with_bias(f"{BLOCK}.attention.out_proj", "transformer.layer.{n}.attention.out_lin"),
    **_with_bias(f"{BLOCK}.attention_norm", "transformer.layer.{n}.sa_layer_norm"),
    **_with_bias(f"{BLOCK}.feedforward.0", "transformer.layer.{n}.ffn.lin1"),
    **_with_bias(f"{BLOCK}.feedforward.2", "transformer.layer.{n}.ffn.lin2"),
    **_with_bias(f"{BLOCK}.feedforward_norm", "transformer.layer.{n}.output_layer_norm"),
}
MODERNBERT_NAMES: Names = {
    "embedding.token.weight": ("embeddings.tok_embeddings.weight",),
    **_with_bias("embedding.norm", "embeddings.norm"),
    **_attention("layers.{n}.attn.Wqkv"),
    **_with_bias(f"{BLOCK}.attention.out_proj", "layers.{n}.attn.Wo"),
    **_with_bias(f"{BLOCK}.attention_norm", "layers.{n}.attn_norm"),
    **_with_bias(f"{BLOCK}.feedforward.0", "layers.{n}.mlp.Wi"),
    **_with_bias(f"{BLOCK}.feedforward.2", "layers.{n}.mlp.Wo"),
    **_with_bias(f"{BLOCK}.feedforward_norm", "layers.{n}.mlp_norm"),
    **_with_bias("encoder.norm", "final_norm"),
}
# Our words, and BERT's keys
BERT_KEYS = {
    "d_model": "hidden_size",
    "num_heads": "num_attention_heads",
    "num_layers": "num_hidden_layers",
    "feedforward_size": "intermediate_size",
    "max_length": "max_position_embeddings",
    "activation": "hidden_act",
    "norm_eps": "layer_norm_eps",
    "token_types": "type_vocab_size",
}
ELECTRA_KEYS = {**BERT_KEYS, "embedding_width": "embedding_size"}
DISTILBERT_KEYS = {  # one token type; eps is not a setting
    "d_model": "dim",
    "num_heads": "n_heads",
    "num_layers": "n_layers",
    "feedforward_size": "hidden_dim",
    "max_length": "max_position_embeddings",
    "activation": "activation",
}
MODERNBERT_KEYS = {**BERT_KEYS, "activation": "hidden_activation", "norm_eps": "norm_eps"}
EPS = 1e-12  # of BERT's family, where it is not a setting
# What config.json leaves out has the value of transformers' class of that family.
DEFAULTS: dict[str, Any] = {
    "hidden_act": "gelu",
    "activation": "gelu",
    "hidden_activation": "gelu",
    "layer_norm_eps": 1e-12,
    "norm_eps": 1e-5,
    "type_vocab_size": 2,
    "embedding_size": 128,
    "vocab_size": None,
}
DENSE_HEAD: Names = {
    **_with_bias("pooler.dense", "classifier.dense"),
    **_with_bias("head", "classifier.out_proj"),
}


def family_of(encoder: Description) -> Family:
    """Return the family of a config.json; ConfigError for one that has no row here."""
    kind = encoder.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise ConfigError(f"model_type: expected one of {', '.join(FAMILIES)}, got {kind!r}")
    return FAMILIES[kind]


def why_not_opened(encoder: Description) -> str:
    """Return why a checkpoint cannot be our own network; "" if it can.

    NoModelError for a config.json that is no model's.
    """
    try:
        architecture_of(encoder)
    except NoModelError:
        raise
    except ConfigError as error:
        return str(error)
    return ""


def architecture_of(encoder: Description, config: ModelConfig | None = None) -> Architecture:
    """Return the architecture of a config.json, with the dropout and evidence of `config`.

    Raises:
        ConfigError: for a family that has no row here, or a setting of one that our network lacks.
    """
    family = family_of(encoder)
    made = replace(family.architecture(encoder, family), is_opened=True)
    if made.d_model % made.num_heads:
        raise NoModelError(
            f"{family.keys['num_heads']}: expected a divisor of {made.d_model}, "
            f"got {made.num_heads}"
        )
    if config is None:
        return made
    if (config.frozen_layers or 0) > len(made.layers):
        raise ConfigError(
            f"model.frozen_layers: expected at most {len(made.layers)}, the layers of model.path, "
            f"got {config.frozen_layers}"
        )
    return replace(
        made,
        dropout=config.dropout,
        attention_dropout=config.attention_dropout,
        evidence=config.has_evidence,
        evidence_dropout=config.evidence_dropout,
        frozen_layers=config.frozen_layers,
    )


def bert_like(encoder: Description, family: Family) -> Architecture:
    """Return the architecture of BERT, DistilBERT, RoBERTa or ELECTRA: norms after the branches."""
    keys = family.keys
    _expect(encoder, "position_embedding_type", "absolute")
    _expect(encoder, "is_decoder", False)
    _expect(encoder, "add_cross_attention", False)
    _expect(encoder, "chunk_size_feed_forward", 0)
    D = _size(encoder, keys["d_model"])
    width = _size(encoder, keys["embedding_width"]) if "embedding_width" in keys else D
    return Architecture(
        vocab_size=_size(encoder, "vocab_size"),
        max_length=_max_length(encoder, keys["max_length"]) - family.first_position(encoder),
        d_model=D,
        num_heads=_size(encoder, keys["num_heads"]),
        feedforward_size=_size(encoder, keys["feedforward_size"]),
        layers=(Layer(),) * _num_layers(encoder, keys["num_layers"]),
        token_types=_size(encoder, keys["token_types"], least=0) if "token_types" in keys else 0,
        positions="learned",
        norm="after",
        has_last_norm=False,
        norm_eps=_number(encoder, keys["norm_eps"]) if "norm_eps" in keys else EPS,
        activation=_activation(encoder, keys["activation"]),
        has_embedding_norm=True,
        embedding_width=None if width == D else width,
        pooling="first",
        pooler=family.pooler,
    )


def modernbert(encoder: Description, family: Family) -> Architecture:
    """Return ModernBERT's: norms before, rotary positions, GeGLU, windows in most layers.

    (Warner et al. 2024, Smarter, Better, Faster, Longer, section 2.1.)
    """
    keys = family.keys
    for name in ("attention_bias", "mlp_bias", "norm_bias"):
        _expect(encoder, name, False)
    number = _num_layers(encoder, keys["num_layers"])
    every = _size(encoder, "global_attn_every_n_layers") if "layer_types" not in encoder else 3
    kinds = encoder.get("layer_types") or [
        "sliding_attention" if place % every else "full_attention" for place in range(number)
    ]
    window = _size(encoder, "local_attention") // 2
    layers = tuple(
        Layer(
            window if kind == "sliding_attention" else None,
            _rotary_base(encoder, kind),
            has_attention_norm=place > 0,
        )
        for place, kind in enumerate(kinds[:number])
    )
    return Architecture(
        vocab_size=_size(encoder, "vocab_size"),
        max_length=_max_length(encoder, keys["max_length"]),
        d_model=_size(encoder, keys["d_model"]),
        num_heads=_size(encoder, keys["num_heads"]),
        feedforward_size=_size(encoder, keys["feedforward_size"]),
        layers=layers,
        token_types=0,
        positions="rotary",
        norm_eps=_number(encoder, keys["norm_eps"]),
        has_biases=False,
        activation=_activation(encoder, keys["activation"]),
        is_gated=True,
        has_embedding_norm=True,
        pooling="mean" if encoder.get("classifier_pooling") == "mean" else "first",
        pooler=Pooler(
            _activation(encoder, "classifier_activation"),
            has_bias=bool(encoder.get("classifier_bias", False)),
            has_norm=True,
        ),
    )


def _rotary_base(encoder: Description, kind: str) -> float:
    """Return the base of a layer's rotary positions, which config.json has in one of two forms."""
    given = (encoder.get("rope_parameters") or {}).get(kind)
    if given is not None:
        if given.get("rope_type", "default") != "default":
            raise ConfigError(f"rope_type: expected default, got {given['rope_type']!r}")
        return float(given["rope_theta"])
    if kind == "full_attention":
        return float(encoder.get("global_rope_theta", 160_000.0))
    local = encoder.get("local_rope_theta", 10_000.0)
    return float(encoder.get("global_rope_theta", 160_000.0) if local is None else local)


# Reading config.json


def _expect(encoder: Description, key: str, value: object) -> None:
    given = encoder.get(key, value)
    if given != value and not (given is None and not value):
        raise ConfigError(f"{key}: expected {value}, got {given!r}")


def _size(encoder: Description, key: str, least: int = 1) -> int:
    value = encoder.get(key, DEFAULTS.get(key))
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < MOST_NUMBERS:
        error = ConfigError if value is None else NoModelError  # transformers has a default
        raise error(f"{key}: expected a whole number from {least}, got {value!r}")
    return value


def _max_length(encoder: Description, key: str) -> int:
    """Return the most tokens of a text, of which tables may be computed that no file holds."""
    length = _size(encoder, key)
    if length > MOST_TOKENS:
        raise NoModelError(f"{key}: expected at most {MOST_TOKENS}, got {length}")
    return length


def _num_layers(encoder: Description, key: str) -> int:
    number = _size(encoder, key)
    if number > MOST_LAYERS:
        raise NoModelError(f"{key}: expected at most {MOST_LAYERS}, got {number}")
    return number


def _number(encoder: Description, key: str) -> float:
    value = encoder.get(key, DEFAULTS[key])
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise NoModelError(f"{key}: expected a number from 0 to 1, got {value!r}")
    return float(value)


def _activation(encoder: Description, key: str) -> Activation:
    name = encoder.get(key, DEFAULTS.get(key, "gelu"))
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise ConfigError(f"{key}: expected one of {', '.join(ACTIVATIONS)}, got {name!r}")
    return ACTIVATIONS[name]


# The rows: a new family is one of these, and tests/model/test_opened.py tries it.

_bert = Family(
    "bert.",
    BERT_NAMES,
    _with_bias("pooler.dense", "{prefix}pooler.dense") | _with_bias("head", "classifier"),
    Pooler("tanh"),
    BERT_KEYS,
    bert_like,
)
_roberta = Family(
    "roberta.",
    BERT_NAMES,
    DENSE_HEAD,
    Pooler("tanh"),
    BERT_KEYS,
    bert_like,
    lambda encoder: int(encoder.get("pad_token_id", 1)) + 1,
)
FAMILIES: dict[str, Family] = {
    "bert": _bert,
    "roberta": _roberta,
    "xlm-roberta": _roberta,
    "camembert": _roberta,
    "electra": Family("electra.", BERT_NAMES, DENSE_HEAD, Pooler("gelu"), ELECTRA_KEYS, bert_like),
    "distilbert": Family(
        "distilbert.",
        DISTILBERT_NAMES,
        _with_bias("pooler.dense", "pre_classifier") | _with_bias("head", "classifier"),
        Pooler("relu"),
        DISTILBERT_KEYS,
        bert_like,
    ),
    "modernbert": Family(
        "model.",
        MODERNBERT_NAMES,
        {
            **_with_bias("pooler.dense", "head.dense"),
            **_with_bias("pooler.norm", "head.norm"),
            **_with_bias("head", "classifier"),
        },
        Pooler("gelu", has_bias=False, has_norm=True),
        MODERNBERT_KEYS,
        modernbert,
        rotates_halves=True,
    ),
}
