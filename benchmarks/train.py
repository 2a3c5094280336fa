"""A training step of ours beside one of a Hugging Face BERT, and the attention layers alone.

    python benchmarks/train.py                                # about 4 minutes on one core; needs transformers
    python benchmarks/train.py --device cuda --size base
    python benchmarks/train.py --checkpoint MiniLM            # its folder: fine-tuned, 10 minutes

Prints two tables: milliseconds and memory of a step of two networks of equal size, in float32 and, where there are
instructions for it, bfloat16, without and with dropout on attention weights; and milliseconds of our attention layer
beside torch.nn.MultiheadAttention, forward and backward. With a checkpoint of BERT's family a step of it instead, opened
into our network and as transformers has it, of batches sorted by length.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headscope.attention import MultiHeadAttention
from headscope.model.architecture import architecture_from
from headscope.model.classifier import TextClassifier
from headscope.model.families import architecture_of
from headscope.model.opened import load_weights
from headscope.model.pooling import mean_pooling
from headscope.settings.config import ModelConfig
from side_by_side import (
    DROPOUT,
    SIZES,
    arguments,
    bert_config,
    in_turn,
    milliseconds,
    precisions,
    print_page,
    ratio,
    short,
    table,
    transformers,
)

VOCABULARY, CLASSES = 4000, 4
BATCHES = {
    "tiny": [(4, 12)],
    "small": [(32, 64), (51, 40)],
    "base": [(64, 512)],
}  # texts, tokens of the longest
SORTED = [(128, 16), (64, 32), (32, 64)]  # of 2,048 tokens, as data.tokens_per_batch has it
LAYERS = {"tiny": [(4, 12)], "small": [(32, 128), (8, 256), (128, 32)], "base": [(64, 512)]}
PASSES = 5  # of an attention layer in a round
Batch = tuple[Tensor, Tensor, Tensor]  # ids [B, T], padding [B, T], labels [B]


def main() -> None:
    """Measure, and print both tables."""
    parser = arguments(__doc__)
    parser.add_argument("--checkpoint", type=Path, help="the folder of one of BERT's family")
    options = parser.parse_args()
    device, sizes = torch.device(options.device), SIZES[options.size]
    torch.manual_seed(0)
    if options.checkpoint is not None:
        print_checkpoint(options.checkpoint, options.rounds, device)
        return
    steps = list(step_rows(sizes, BATCHES[options.size], options.rounds, device))
    layers = list(layer_rows(sizes, LAYERS[options.size], options.rounds, device))
    told = ", ".join(f"{texts} x {length}" for texts, length in BATCHES[options.size])
    print_page(
        "Training beside BERT",
        device,
        f"Width {sizes.d_model}, {sizes.num_layers} layers, {sizes.num_heads} heads, feed-forward "
        f"{sizes.feedforward_size}, dropout {DROPOUT}; batches of {told} tokens, texts half as long to as long. A "
        f"step: forward, backward, clipping, fused AdamW. Median of {options.rounds} rounds in turn; on a CPU one "
        "thread and its own time.",
        "## A training step",
        table(
            (
                "precision",
                "attention dropout",
                "headscope, ms",
                "BERT, ms",
                "ours / BERT's",
                "kept, MiB",
                "BERT's, MiB",
            ),
            steps,
        ),
        "Ours / BERT's: the median of the rounds' ratios, and the smallest and largest. Kept: what the forward pass of "
        "the first batch keeps for the backward one, weights among it.",
        "## The attention layer",
        table(
            ("B, T", "precision", "dropout", "headscope, ms", "torch, ms", "ours / torch's"), layers
        ),
        "Forward and backward, `need_weights=False`, every other text half as long.",
    )


def print_checkpoint(folder: Path, rounds: int, device: torch.device) -> None:
    """Print the table of a checkpoint that is fine-tuned."""
    told = ", ".join(f"{texts} x {length}" for texts, length in SORTED)
    print_page(
        f"Fine-tuning {folder.name}",
        device,
        f"The checkpoint opened into headscope's network, and transformers' own for {CLASSES} classes, dropout {DROPOUT}; "
        f"batches of {told} tokens, the shortest text four shorter. A step: forward, backward, clipping, fused AdamW. "
        f"Median of {rounds} rounds in turn; on a CPU one thread and its own time.",
        table(
            (
                "precision",
                "attention dropout",
                "headscope, ms",
                "transformers, ms",
                "ours / transformers'",
            ),
            checkpoint_rows(folder, rounds, device),
        ),
    )


def checkpoint_rows(folder: Path, rounds: int, device: torch.device) -> Iterator[tuple[str, ...]]:
    """Yield a row for each precision and each dropout of attention weights."""
    batches = [made_batch(*shape, device, shape[1] - 4) for shape in SORTED]
    for precision in precisions(device):
        for dropout in (0.0, DROPOUT):
            models = {
                "headscope": opened(folder, dropout).to(device),
                "transformers": Fetched(folder, dropout).to(device),
            }
            works = {name: training(each, batches, precision) for name, each in models.items()}
            taken = in_turn(works, rounds, device)
            ours, theirs = ([seconds / len(batches) for seconds in each] for each in taken.values())
            yield (
                short(precision), f"{dropout:g}", milliseconds(ours), milliseconds(theirs), ratio(ours, theirs),
            )  # fmt: skip


def opened(folder: Path, attention_dropout: float) -> TextClassifier:
    """Return a checkpoint as our network."""
    encoder = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config = ModelConfig(dropout=DROPOUT, attention_dropout=attention_dropout, evidence=False)
    network = TextClassifier(architecture_of(encoder, config), CLASSES)
    load_weights(network, encoder, folder)
    return network


class Fetched(nn.Module):
    """A checkpoint as transformers has it."""

    def __init__(self, folder: Path, attention_dropout: float) -> None:
        super().__init__()
        self.model = transformers().AutoModelForSequenceClassification.from_pretrained(
            folder,
            num_labels=CLASSES,
            hidden_dropout_prob=DROPOUT,
            attention_probs_dropout_prob=attention_dropout,
            local_files_only=True,
        )

    def forward(
        self, token_ids: Int[Tensor, "B T"], key_padding_mask: Bool[Tensor, "B T"]
    ) -> Float[Tensor, "B C"]:
        """Return the logits."""
        logits: Tensor = self.model(token_ids, (~key_padding_mask).long()).logits
        return logits


class Bert(nn.Module):
    """Hugging Face's BERT with the mean of its vectors and a linear layer behind it, as ours has them."""

    def __init__(self, sizes: ModelConfig, max_length: int) -> None:
        super().__init__()
        config = bert_config(sizes, VOCABULARY, CLASSES, max_length)
        self.bert = transformers().BertModel(config, add_pooling_layer=False)
        self.dropout, self.head = nn.Dropout(sizes.dropout), nn.Linear(sizes.d_model, CLASSES)

    def forward(
        self, token_ids: Int[Tensor, "B T"], key_padding_mask: Bool[Tensor, "B T"]
    ) -> Float[Tensor, "B C"]:
        """Return the logits."""
        tokens = self.bert(
            input_ids=token_ids, attention_mask=(~key_padding_mask).long()
        ).last_hidden_state
        logits: Tensor = self.head(self.dropout(mean_pooling(tokens, key_padding_mask)))
        return logits


def step_rows(
    sizes: ModelConfig, shapes: list[tuple[int, int]], rounds: int, device: torch.device
) -> Iterator[tuple[str, ...]]:
    """Yield a row for each precision and each dropout of attention weights."""
    batches = [made_batch(*shape, device) for shape in shapes]
    longest = max(length for _, length in shapes)
    for precision in precisions(device):
        for dropout in (0.0, DROPOUT):
            config = replace(sizes, attention_dropout=dropout)
            models = {
                "headscope": TextClassifier(
                    architecture_from(config, VOCABULARY, longest), CLASSES
                ).to(device),
                "BERT": Bert(config, longest).to(device),
            }
            kept = [f"{kept_mib(model, batches[0], precision):.3g}" for model in models.values()]
            taken = in_turn(
                {name: training(each, batches, precision) for name, each in models.items()},
                rounds,
                device,
            )
            ours, theirs = ([seconds / len(batches) for seconds in each] for each in taken.values())
            yield (
                short(precision), f"{dropout:g}", milliseconds(ours), milliseconds(theirs), ratio(ours, theirs), *kept,
            )  # fmt: skip


def made_batch(texts: int, length: int, device: torch.device, shortest: int | None = None) -> Batch:
    """Return texts of random ids, by default half as long to as long, with random labels."""
    ids = torch.randint(5, VOCABULARY, (texts, length))
    lengths = torch.linspace(shortest or length // 2, length, texts).long()
    padding = torch.arange(length) >= lengths[:, None]
    labels = torch.randint(CLASSES, (texts,))
    return ids.masked_fill(padding, 0).to(device), padding.to(device), labels.to(device)


def training(model: nn.Module, batches: list[Batch], precision: torch.dtype) -> Callable[[], None]:
    """Return what trains on each batch once."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def steps() -> None:
        for batch in batches:
            loss_of(model, batch, precision).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()

    model.train()
    return steps


def loss_of(model: nn.Module, batch: Batch, precision: torch.dtype) -> Tensor:
    """Return the cross-entropy of a batch."""
    ids, padding, labels = batch
    halved = precision == torch.bfloat16
    with torch.autocast(ids.device.type, torch.bfloat16) if halved else nullcontext():
        return F.cross_entropy(model(ids, padding).float(), labels)


def kept_mib(model: nn.Module, batch: Batch, precision: torch.dtype) -> float:
    """Return the MiB that a forward pass keeps for the backward one, each piece of memory counted once."""
    kept: dict[int, int] = {}

    def count(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        loss = loss_of(model.train(), batch, precision)
    del loss  # which holds what was counted until here, so that no memory was used twice
    return sum(kept.values()) / 2**20


def layer_rows(
    sizes: ModelConfig, shapes: list[tuple[int, int]], rounds: int, device: torch.device
) -> Iterator[tuple[str, ...]]:
    """Yield a row for each shape, precision and dropout of the attention layer; both have the same weights."""
    for texts, length in shapes:
        lengths = torch.where(torch.arange(texts) % 2 == 0, length, length // 2)
        padding = (torch.arange(length) >= lengths[:, None]).to(device)
        for precision in precisions(device):
            for dropout in (0.0, DROPOUT):
                common: Any = {"batch_first": True, "device": device, "dtype": precision}
                theirs = nn.MultiheadAttention(sizes.d_model, sizes.num_heads, dropout, **common)
                ours = MultiHeadAttention(sizes.d_model, sizes.num_heads, dropout, **common)
                ours.load_state_dict(theirs.state_dict())
                tokens = (
                    torch.randn(texts, length, sizes.d_model).to(device, precision).requires_grad_()
                )
                works = {
                    "our layer": both_ways(ours, tokens, padding),
                    "torch's": both_ways(theirs, tokens, padding),
                }
                mine, other = in_turn(works, rounds, device, PASSES).values()
                yield (
                    f"{texts}, {length}", short(precision), f"{dropout:g}", milliseconds(mine), milliseconds(other),
                    ratio(mine, other),
                )  # fmt: skip


def both_ways(layer: nn.Module, tokens: Tensor, padding: Tensor) -> Callable[[], None]:
    """Return what runs a layer forward and backward."""

    def run() -> None:
        output, _ = layer(tokens, tokens, tokens, key_padding_mask=padding, need_weights=False)
        output.sum().backward()

    return run


if __name__ == "__main__":
    main()
