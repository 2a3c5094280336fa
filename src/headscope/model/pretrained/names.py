"""What each of our tensors is called in a checkpoint of each family."""

from collections.abc import Iterator

from headscope.model.pretrained.architecture import Architecture

# Our name -> the checkpoint's, where one tensor is one tensor. Both stand before ".weight" and ".bias".
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

    Where there are several names, ours is those tensors one below the other: `in_proj_weight` [3D, D] holds the
    matrices of queries, keys and values. Names are without the prefix that a model with a head has, such as "bert.".
    """
    yield "embedding.token.weight", (TOKENS,)
    yield "embedding.position", (POSITIONS,)
    if architecture.num_segments:
        yield "embedding.segment.weight", (SEGMENTS,)
    for kind in ("weight", "bias"):
        yield f"embedding.norm.{kind}", (f"embeddings.LayerNorm.{kind}",)
    for number in range(architecture.num_layers):
        yield from _names_of_block(architecture.family == "distilbert", number)


def _names_of_block(is_distilbert: bool, number: int) -> Iterator[tuple[str, tuple[str, ...]]]:
    ours = f"encoder.blocks.{number}"
    theirs = f"{block_folder(is_distilbert)}{number}"
    single, heads = (DISTILBERT_BLOCK, DISTILBERT_HEADS) if is_distilbert else (BERT_BLOCK, BERT_HEADS)
    for kind in ("weight", "bias"):
        yield f"{ours}.attention.in_proj_{kind}", tuple(f"{theirs}.{name}.{kind}" for name in heads)
        for name, other in single.items():
            yield f"{ours}.{name}.{kind}", (f"{theirs}.{other}.{kind}",)


def names_of_pooler() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield (our name, the checkpoint's name) for the tensors of BERT's pooler, which not every checkpoint has."""
    for kind in ("weight", "bias"):
        yield f"pool.dense.{kind}", (f"pooler.dense.{kind}",)


def block_folder(is_distilbert: bool) -> str:
    """Return what the names of the blocks' tensors begin with."""
    return "transformer.layer." if is_distilbert else "encoder.layer."
