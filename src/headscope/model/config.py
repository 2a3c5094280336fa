"""The settings of the network."""

from collections.abc import Iterator
from dataclasses import dataclass

from headscope.extension import OrImportPath, missing_package
from headscope.settings import setting

POSITIONS = ("learned", "sinusoidal", "rotary")
ATTENTIONS = ("multi_head", "shared_projection")
POOLINGS = ("first", "mean", "max", "pooler", "additive", "dot", "general", "concat")


@dataclass
class ModelConfig:
    """A Transformer encoder with a classification head: pre-norm from scratch, or that of a checkpoint."""

    d_model: int = setting(128, "width of every token's vector", minimum=1)
    num_heads: int = setting(4, "attention heads in each layer; must divide d_model", minimum=1)
    num_layers: int = setting(2, "encoder blocks", minimum=1)
    feedforward_size: int = setting(512, "width of the hidden layer between two attention layers", minimum=1)
    attention: str = setting(
        "multi_head",
        "multi_head; shared_projection: the embedding is cut into heads, which share one projection; or an import path",
        choices=OrImportPath(ATTENTIONS),
    )
    num_kv_heads: int | None = setting(
        None,
        "heads of keys and values; fewer than num_heads share them: grouped-query attention, 1 for multi-query",
        minimum=1,
    )
    causal: bool = setting(False, "let no token look at a later one")
    window: int | None = setting(None, "let a token look at so many tokens on either side alone", minimum=1)
    positions: str = setting("rotary", "how a token's place enters", choices=POSITIONS)
    pooling: str = setting(
        "first",
        "which vector is the text's; first: that of [CLS], which tokens reach through heads alone; with any other but "
        "pooler, BERT's layer behind it, tokens pass the heads by: mean, max, a learned query from additive on, or an "
        "import path",
        choices=OrImportPath(POOLINGS),
    )
    dropout: float = setting(
        0.1, "dropout on embeddings, on each block's branches and before the head", minimum=0, below=1
    )
    attention_dropout: float = setting(
        0.0,
        "dropout on attention weights; above 0 it turns the fused kernel off on a CPU",
        minimum=0,
        below=1,
    )
    evidence: bool = setting(
        True,
        "each token carries what its word, its pair with the word before and its letters say about the classes, "
        "counted in the training texts",
    )
    evidence_dropout: float = setting(
        0.3, "share of the n-grams that are left out at each training step", minimum=0, below=1
    )
    path: str | None = setting(
        None, "checkpoint of BERT's family: a folder or a Hub id, which decides about all sizes; null: from scratch"
    )
    revision: str | None = setting(None, "with path: branch, tag or commit of a Hub id; null for its main branch")
    frozen_layers: int | None = setting(
        None, "with path: embeddings and so many of the first blocks do not learn; null: all learn", minimum=0
    )

    def conflicts(self) -> Iterator[tuple[str, str]]:
        """Yield what no single key can say."""
        yield from missing_package("attention", self.attention)
        yield from missing_package("pooling", self.pooling)
        if self.path is not None:
            yield from self._conflicts_with_checkpoint()
            return
        if self.frozen_layers is not None:
            yield "frozen_layers", f"got {self.frozen_layers}, takes null without model.path: nothing is trained yet"
        if self.revision is not None:
            yield "revision", f"got {self.revision!r}, takes null without model.path: nothing is loaded"
        if self.causal and self.pooling in ("first", "pooler"):
            yield "causal", f"got true with model.pooling={self.pooling}: [CLS] stands first and would see no token"
        if self.num_heads < 1 or self.d_model < 1:
            return
        if self.d_model % self.num_heads:
            yield "num_heads", f"got {self.num_heads}, takes a divisor of model.d_model={self.d_model}"
        elif self.positions == "rotary" and (self.d_model // self.num_heads) % 2:
            width = self.d_model // self.num_heads
            yield "positions", f"rotary turns pairs of numbers: d_model / num_heads must be even, and it is {width}"
        if self.num_kv_heads is not None and self.attention == "shared_projection":
            yield "num_kv_heads", "the heads of model.attention=shared_projection share their projections already"
        elif self.num_kv_heads is not None and self.num_kv_heads >= 1 and self.num_heads % self.num_kv_heads:
            yield "num_kv_heads", f"got {self.num_kv_heads}, takes a divisor of model.num_heads={self.num_heads}"
        if self.positions == "sinusoidal" and self.d_model % 2:
            yield "positions", f"sinusoidal needs an even model.d_model, got {self.d_model}"

    def _conflicts_with_checkpoint(self) -> Iterator[tuple[str, str]]:
        """Yield what a checkpoint does not go with. Its sizes are known only when it is read."""
        if not self.path:
            yield (
                "path",
                "is missing; give it as model.path=... (a folder, or a Hub id such as google-bert/bert-base-uncased)",
            )
        plain = {"attention": "multi_head", "num_kv_heads": None, "causal": False, "window": None, "evidence": False}
        for key, value in plain.items():
            if getattr(self, key) != value:
                yield key, f"got {getattr(self, key)!r}, but model.path was trained with {value!r}; leave it out"
