"""Checkpoints of the BERT family: the network they were trained as, and how their files are read.

First the encoder, an embedding with a norm and blocks whose norm comes after the addition; then
what its config.json says, what each tensor is called in a checkpoint, and how these are found,
opened and put into the encoder.

Shape letters: B texts, T tokens, D model width.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_type_hints

import torch
from jaxtyping import Bool, Float, Int
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from headscope.attention import MultiHeadAttention
from headscope.attention.functional import Dropout
from headscope.errors import ConfigError, listed
from headscope.files import read_json, reading

# gelu_new is x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, near x Phi(x) (Hendrycks and Gimpel
# 2016, section 2).
MAKE_ACTIVATION: dict[str, Callable[[], nn.Module]] = {
    "gelu": nn.GELU,
    "gelu_new": lambda: nn.GELU(approximate="tanh"),
    "gelu_pytorch_tanh": lambda: nn.GELU(approximate="tanh"),
    "relu": nn.ReLU,
}


@dataclass(frozen=True)
class Architecture:
    """The sizes of an encoder and the few choices by which the families differ.

    Attributes:
        family: what config.json calls model_type.
        vocab_size: number of token ids.
        d_model: D, width of every token's vector.
        num_heads: attention heads in each layer.
        num_layers: encoder blocks.
        feedforward_size: width of the hidden layer of a block.
        max_positions: most tokens of a text.
        position_offset: rows of the checkpoint's table of places before that of the first token:
            RoBERTa counts on from the id of its padding token (Ott et al. 2019, fairseq, whose
            tables it took over).
        num_segments: rows of the table of token types; 0 where the family has none (Sanh et al.
            2019, DistilBERT).
        activation: between the two matrices of a block.
        norm_epsilon: added to the variance in every norm.
    """

    family: str
    vocab_size: int
    d_model: int
    num_heads: int
    num_layers: int
    feedforward_size: int
    max_positions: int
    position_offset: int
    num_segments: int
    activation: str
    norm_epsilon: float


class NormedEmbedding(nn.Module):
    """LayerNorm(token + place + token type), the input of BERT (Devlin et al. 2019, section 3, figure 2).

    A token's place is counted from the start of the text, whatever is padding: padding stands at
    the end, and a token that is hidden on purpose leaves the others where they are. What is looked
    up at padding is seen by nobody.

    Args:
        architecture: sizes.
        dropout: share of numbers dropped in training.
    """

    def __init__(self, architecture: Architecture, dropout: float) -> None:
        super().__init__()
        D = architecture.d_model
        self.token = nn.Embedding(architecture.vocab_size, D)
        self.position = nn.Parameter(torch.empty(architecture.max_positions, D))
        self.segment = (
            nn.Embedding(architecture.num_segments, D) if architecture.num_segments else None
        )
        self.norm = nn.LayerNorm(D, eps=architecture.norm_epsilon)
        self.dropout = Dropout(dropout)
        nn.init.normal_(self.position, std=0.02)

    def forward(
        self, token_ids: Int[Tensor, "B T"], segment_ids: Int[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T D"]:
        """Return one vector for each token.

        Args:
            token_ids: whatever stands at padding.
            segment_ids: 0 for tokens of the first text of a pair, 1 for the second. Without them
                all are of type 0, and so they are where the encoder knows but one type, as RoBERTa
                does.
        """
        vectors = self.token(token_ids) + self.position[: token_ids.shape[1]]
        if self.segment is not None:
            if segment_ids is None or self.segment.num_embeddings == 1:
                vectors = vectors + self.segment.weight[0]
            else:
                vectors = vectors + self.segment(segment_ids)
        return self.dropout(self.norm(vectors))  # type: ignore[no-any-return]


class PostNormBlock(nn.Module):
    """Attention between tokens, then a feed-forward network on each, a norm after each addition.

    x <- LayerNorm(x + MultiHeadAttention(x)), x <- LayerNorm(x + W_2 f(W_1 x + b_1) + b_2) (Vaswani
    et al. 2017, section 3.1). Dropout acts on the output of either branch.

    Args:
        architecture: sizes, the activation f, and the epsilon of the norms.
        dropout: on the output of either branch.
        attention_dropout: on the attention weights.
    """

    def __init__(
        self, architecture: Architecture, dropout: float = 0.0, attention_dropout: float = 0.0
    ) -> None:
        super().__init__()
        D, epsilon = architecture.d_model, architecture.norm_epsilon
        self.attention = MultiHeadAttention(
            D, architecture.num_heads, attention_dropout, batch_first=True
        )
        self.attention_norm = nn.LayerNorm(D, eps=epsilon)
        self.feedforward = nn.Sequential(
            nn.Linear(D, architecture.feedforward_size),
            MAKE_ACTIVATION[architecture.activation](),
            nn.Linear(architecture.feedforward_size, D),
        )
        self.feedforward_norm = nn.LayerNorm(D, eps=epsilon)
        self.dropout = Dropout(dropout)

    def forward(
        self, tokens: Float[Tensor, "B T D"], key_padding_mask: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T D"]:
        """Return the tokens' new vectors. key_padding_mask is True at padding."""
        attended, _ = self.attention(tokens, tokens, tokens, key_padding_mask, need_weights=False)
        tokens = self.attention_norm(tokens + self.dropout(attended))
        return self.feedforward_norm(tokens + self.dropout(self.feedforward(tokens)))  # type: ignore[no-any-return]


class PostNormEncoder(nn.Module):
    """A stack of such blocks, without a last norm: each block ends with one.

    Args:
        architecture: sizes.
        dropout: on the output of each branch.
        attention_dropout: on the attention weights.
    """

    def __init__(
        self, architecture: Architecture, dropout: float = 0.0, attention_dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            PostNormBlock(architecture, dropout, attention_dropout)
            for _ in range(architecture.num_layers)
        )

    def forward(
        self, tokens: Float[Tensor, "B T D"], key_padding_mask: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T D"]:
        """Return each token's vector after the last block. key_padding_mask is True at padding."""
        for block in self.blocks:
            tokens = block(tokens, key_padding_mask)
        return tokens


# What the config.json of a checkpoint says.

FAMILIES = ("bert", "distilbert", "roberta", "xlm-roberta")
# What DistilBERT calls otherwise than the rest of the family.
DISTILBERT_NAMES = {
    "hidden_size": "dim",
    "num_attention_heads": "n_heads",
    "num_hidden_layers": "n_layers",
    "intermediate_size": "hidden_dim",
    "hidden_act": "activation",
}
# Keys of config.json that would make another network than the one that is built here, and the value
# that would not.
PLAIN = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "pruned_heads": {},
    "quantization_config": None,
}


def read_architecture(path: Path) -> Architecture:
    """Read a checkpoint's config.json.

    Raises:
        ConfigError: if it cannot be read, or describes a network that is not supported; the message
            names what.
    """
    if not path.exists():
        found = sorted([*path.parent.glob("*/config.json"), *path.parent.glob("*/*/config.json")])
        hint = f"; there is one in {found[0].parent}" if found else ""
        raise ConfigError(
            f"model.path: {path.parent} has no config.json; takes the folder of a checkpoint, with config.json, "
            f"model.safetensors and tokenizer.json or vocab.txt{hint}"
        )
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"model.path: {path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"model.path: {path} is not the config.json of a model")
    family = content.get("model_type")
    if family not in FAMILIES:
        raise ConfigError(
            f"model.path: {path} describes a model of type {family!r}; takes {', '.join(FAMILIES)}"
        )
    for key, plain in PLAIN.items():
        if content.get(key, plain) not in (plain, None):
            raise ConfigError(
                f"model.path: {path} has {key}={content[key]!r}, which is not supported; takes {plain!r}"
            )
    if family == "distilbert":
        kept = {
            key: content[key] for key in ("vocab_size", "max_position_embeddings") if key in content
        }
        content = {
            usual: content[own] for usual, own in DISTILBERT_NAMES.items() if own in content
        } | kept
        content["type_vocab_size"] = 0
    activation = content.get("hidden_act", "gelu")
    if activation not in MAKE_ACTIVATION:
        raise ConfigError(
            f"model.path: {path} has the activation {activation!r}; takes {', '.join(MAKE_ACTIVATION)}"
        )
    try:
        # Where a checkpoint leaves these out, `transformers` takes padding_idx = 1 for RoBERTa and
        # 2 types for BERT.
        offset = int(content.get("pad_token_id", 1)) + 1 if "roberta" in family else 0
        return Architecture(
            family=family,
            vocab_size=int(content["vocab_size"]),
            d_model=int(content["hidden_size"]),
            num_heads=int(content["num_attention_heads"]),
            num_layers=int(content["num_hidden_layers"]),
            feedforward_size=int(content["intermediate_size"]),
            max_positions=int(content["max_position_embeddings"]) - offset,
            position_offset=offset,
            num_segments=int(content.get("type_vocab_size", 2)),
            activation=activation,
            norm_epsilon=float(content.get("layer_norm_eps", 1e-12)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"model.path: {path} lacks a size, or it is no number: {error}"
        ) from error


def architecture_json(architecture: Architecture) -> dict[str, Any]:
    """Return what a run folder's encoder.json holds, from which `load_architecture` makes the same again."""
    return asdict(architecture)


def load_architecture(path: Path) -> Architecture:
    """Read a run folder's encoder.json; RunError if it does not describe an encoder."""
    content = read_json(path, dict)
    with reading(path):
        kinds = get_type_hints(Architecture)
        if wrong := sorted(
            name for name in {*kinds, *content} if type(content.get(name)) is not kinds.get(name)
        ):
            raise ValueError(f"does not describe an encoder: {listed(wrong)}")
        found = Architecture(**content)
        sizes = (
            found.vocab_size,
            found.d_model,
            found.num_heads,
            found.num_layers,
            found.feedforward_size,
        )
        if (
            min(*sizes, found.max_positions) < 1
            or min(found.position_offset, found.num_segments) < 0
        ):
            raise ValueError("takes sizes above 0")
        if (
            found.d_model % found.num_heads
            or found.activation not in MAKE_ACTIVATION
            or found.family not in FAMILIES
        ):
            raise ValueError("does not describe an encoder of a known family")
    return found


# What each of our tensors is called in a checkpoint of each family.

# Our name -> the checkpoint's; both stand before ".weight" and ".bias".
BERT_BLOCK = {
    "attention.out_proj": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "feedforward.0": "intermediate.dense",
    "feedforward.2": "output.dense",
    "feedforward_norm": "output.LayerNorm",
}
DISTILBERT_BLOCK = {
    "attention.out_proj": "attention.out_lin",
    "attention_norm": "sa_layer_norm",
    "feedforward.0": "ffn.lin1",
    "feedforward.2": "ffn.lin2",
    "feedforward_norm": "output_layer_norm",
}
BERT_HEADS = ("attention.self.query", "attention.self.key", "attention.self.value")
DISTILBERT_HEADS = ("attention.q_lin", "attention.k_lin", "attention.v_lin")
TOKENS = "embeddings.word_embeddings.weight"  # every family has it: what stands before it in a file is the prefix
POSITIONS = "embeddings.position_embeddings.weight"
SEGMENTS = "embeddings.token_type_embeddings.weight"


def names_in_checkpoint(architecture: Architecture) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield (our name, the checkpoint's names) for every tensor of the encoder.

    Where there are several names, ours is those tensors one below the other: `in_proj_weight` [3D,
    D] holds the matrices of queries, keys and values. Names are without the prefix that a model
    with a head has, such as "bert.".
    """
    yield "embedding.token.weight", (TOKENS,)
    yield "embedding.position", (POSITIONS,)
    if architecture.num_segments:
        yield "embedding.segment.weight", (SEGMENTS,)
    for kind in ("weight", "bias"):
        yield f"embedding.norm.{kind}", (f"embeddings.LayerNorm.{kind}",)
    folder, single, heads = _block_names(architecture)
    for number in range(architecture.num_layers):
        ours, theirs = f"encoder.blocks.{number}", f"{folder}{number}"
        for kind in ("weight", "bias"):
            yield (
                f"{ours}.attention.in_proj_{kind}",
                tuple(f"{theirs}.{name}.{kind}" for name in heads),
            )
            for name, other in single.items():
                yield f"{ours}.{name}.{kind}", (f"{theirs}.{other}.{kind}",)


def _block_names(architecture: Architecture) -> tuple[str, dict[str, str], tuple[str, ...]]:
    """Return what the names of the blocks' tensors begin with, and what stands behind the block's number."""
    if architecture.family == "distilbert":
        return "transformer.layer.", DISTILBERT_BLOCK, DISTILBERT_HEADS
    return "encoder.layer.", BERT_BLOCK, BERT_HEADS


def names_of_pooler() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield (our name, the checkpoint's name) for the tensors of BERT's pooler, which not every checkpoint has."""
    for kind in ("weight", "bias"):
        yield f"pool.dense.{kind}", (f"pooler.dense.{kind}",)


WEIGHTS = "model.safetensors"
INDEX = (
    f"{WEIGHTS}.index.json"  # says which of several files, model-*.safetensors, has which tensor
)
# The names that the first BERT had, in TensorFlow; its checkpoints keep them to this day.
OLD_NAMES = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}


class Tensors:
    """The tensors of open files, each read when it is asked for.

    Args:
        path: of the file that has them or, where there are several, of their index; for messages.
        files: the open file of each tensor, by the name under which it is stored.

    Attributes:
        stored: the name under which a tensor is stored, by today's name without the prefix that a
            model with a head has, such as "bert.".
    """

    def __init__(self, path: Path, files: Mapping[str, Any]) -> None:
        self.path, self._files = path, files

        def today(name: str) -> str:
            for old, new in OLD_NAMES.items():
                name = re.sub(rf"{re.escape(old)}$", new, name)
            return name

        prefix = next((name.removesuffix(TOKENS) for name in files if name.endswith(TOKENS)), "")
        self.stored = {
            today(name.removeprefix(prefix)): name for name in files if name.startswith(prefix)
        }

    def joined(self, names: tuple[str, ...]) -> Tensor:
        """Return the tensors of these names, one below the other.

        Raises:
            ConfigError: if one is missing or holds no floating-point numbers.
        """
        return (
            torch.cat([self._tensor(name) for name in names])
            if len(names) > 1
            else self._tensor(names[0])
        )

    def _tensor(self, name: str) -> Tensor:
        if name not in self.stored:
            raise ConfigError(f"model.path: {self.path} has no tensor {name}")
        stored = self.stored[name]
        try:
            tensor: Tensor = self._files[stored].get_tensor(stored)
        except SafetensorError as error:
            raise ConfigError(
                f"model.path: {self.path}: {stored} cannot be read: {error}"
            ) from error
        if not tensor.is_floating_point():
            raise ConfigError(
                f"model.path: {self.path}: {name} holds {tensor.dtype}; takes floating-point weights"
            )
        return tensor


@contextmanager
def open_tensors(folder: Path) -> Iterator[Tensors]:
    """Give the tensors of a checkpoint's folder, whose files are open within the block.

    Raises:
        ConfigError: if a file cannot be read; the message names it.
    """
    path = folder / WEIGHTS if (folder / WEIGHTS).is_file() else folder / INDEX
    with ExitStack() as opened:
        try:
            if path.name == WEIGHTS:
                file = opened.enter_context(safe_open(path, framework="pt"))
                files = dict.fromkeys(file.keys(), file)
            else:
                named = dict(json.loads(path.read_text(encoding="utf-8"))["weight_map"])
                for name in named.values():  # none that leads out of the folder
                    if Path(name).name != name or Path(name).suffix != ".safetensors":
                        raise ValueError(
                            f"it names {name!r}, which is no .safetensors file beside it"
                        )
                by_name = {}
                for name in sorted(set(named.values())):
                    path = folder / name
                    by_name[name] = opened.enter_context(safe_open(path, framework="pt"))
                path = folder / INDEX
                files = {tensor: by_name[name] for tensor, name in named.items()}
        except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"model.path: {path} cannot be read: {error}") from error
        yield Tensors(path, files)


TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt")
FILES = (
    "config.json",
    WEIGHTS,
    INDEX,
    "model-*.safetensors",
    *TOKENIZER_FILES,
)  # all that is ever read


@dataclass(frozen=True)
class Checkpoint:
    """A folder with config.json and weights in safetensors, in one file or in several, and what the former says."""

    folder: Path
    architecture: Architecture


def find_checkpoint(path: str, revision: str | None = None) -> Checkpoint:
    """Return the checkpoint in a folder or, if there is no such folder, of that id on the Hub.

    Args:
        path: folder or Hub id.
        revision: branch, tag or commit on the Hub; None for its main branch.

    Raises:
        ConfigError: if it cannot be had, its network is not supported, or its weights are pickled
            alone; or if a revision is asked of a folder.
    """
    folder = Path(path).expanduser()
    if not folder.is_dir():
        import huggingface_hub

        try:
            folder = Path(
                huggingface_hub.snapshot_download(
                    path, revision=revision, allow_patterns=list(FILES)
                )
            )
        except Exception as error:  # a dozen classes, of HTTP, of the cache and of the Hub; each means it cannot be had
            reason = (str(error).strip() or type(error).__name__).split("\n")[0]
            asked = f"model.path={path}" + (f" model.revision={revision}" if revision else "")
            raise ConfigError(
                f"{asked}: there is no such folder, and it cannot be had from the Hub: {reason}"
            ) from error
    elif revision is not None:
        raise ConfigError(
            f"model.revision: got {revision!r}, but model.path={path} is a folder, which has no revisions; leave it out"
        )
    architecture = read_architecture(folder / "config.json")
    if not any((folder / name).is_file() for name in (WEIGHTS, INDEX)):
        pickled = ", ".join(sorted(file.name for file in folder.glob("*.bin")))
        raise ConfigError(
            f"model.path={path}: has no {WEIGHTS} ({f'only {pickled}' if pickled else 'perhaps pickled ones alone'}). "
            "Pickled weights are not read, since reading them can run any code. Where you trust them, convert them "
            'once: python -c "from transformers import AutoModel, AutoTokenizer; '
            f"[kind.from_pretrained('{path}').save_pretrained('converted') for kind in (AutoModel, AutoTokenizer)]\", "
            "then model.path=converted"
        )
    return Checkpoint(folder, architecture)


@torch.no_grad()
def load_weights(model: nn.Module, checkpoint: Checkpoint) -> None:
    """Fill `embedding` and `encoder` of a model with a checkpoint's weights, in the model's own type.

    So is a `Pooler`, where the checkpoint has its weights. What else the model has, such as its
    head, stays as it is; what else the checkpoint has is passed over, but not blocks, or parts of
    blocks, that the model lacks.

    Raises:
        ConfigError: if a file or a tensor is missing, of another shape or no floating-point one, or
            a block has more of them.
    """
    architecture = checkpoint.architecture
    wanted, pooler = dict(names_in_checkpoint(architecture)), dict(names_of_pooler())
    known = {name for names in wanted.values() for name in names}
    parameters: Mapping[str, Tensor] = dict(model.named_parameters())
    with open_tensors(checkpoint.folder) as tensors:
        of_blocks = [
            name for name in tensors.stored if name.startswith(_block_names(architecture)[0])
        ]
        if others := sorted(set(of_blocks) - known):
            raise ConfigError(
                f"model.path: {tensors.path} has {others[0]}, which its config.json does not speak of"
            )
        if pooler.keys() <= parameters.keys() and any(
            name in tensors.stored for (name,) in pooler.values()
        ):
            wanted |= pooler
        for ours, theirs in wanted.items():
            tensor = tensors.joined(theirs)
            if theirs == (POSITIONS,):
                tensor = tensor[architecture.position_offset :]
            if tensor.shape != parameters[ours].shape:
                shapes = f"{list(tensor.shape)}, not {list(parameters[ours].shape)} as its config.json says"
                raise ConfigError(f"model.path: {tensors.path}: {theirs[0]} is {shapes}")
            parameters[ours].copy_(tensor)
