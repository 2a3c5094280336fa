"""What looking at the attention of a Hugging Face model costs: a BERT's forward pass, with `capture` and without.

    python benchmarks/capture.py                            # about 2 minutes on one core
    python benchmarks/capture.py --size base --rounds 3

Prints a table of milliseconds: the pass with fused attention (sdpa), the same under `capture` of one text's maps and of
all texts', and the pass with the library's slow attention (eager) that returns all maps; each timed in turn. The first
column says whether the texts fill the batch of 16 x 256 tokens, or are padded to it.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from headscope.heads.capture import capture
from headscope.settings.config import ModelConfig
from side_by_side import (
    SIZES,
    arguments,
    bert_config,
    in_turn,
    milliseconds,
    print_page,
    ratio,
    table,
    transformers,
)

VOCABULARY, BATCH, TOKENS = 8000, 16, 256


def main() -> None:
    """Time the four in turn, for full batches and padded ones, and print the table."""
    options = arguments(__doc__).parse_args()
    device = torch.device(options.device)
    torch.set_num_threads(1)
    sizes = replace(
        SIZES[options.size], num_heads=max(1, SIZES[options.size].d_model // 64)
    )  # as wide as BERT's heads
    with torch.no_grad():
        works = works_of(sizes, device)
        rows = []
        for title, shortest in (("full", TOKENS), ("padded", TOKENS // 2)):
            lengths = torch.linspace(TOKENS, shortest, BATCH, device=device).long()
            mask = (torch.arange(TOKENS, device=device) < lengths[:, None]).long()
            taken = in_turn(
                {name: partial(work, mask) for name, work in works.items()}, options.rounds, device
            )
            plain, one, every, slow = taken.values()
            rows.append((
                title, *map(milliseconds, (plain, one, every, slow)), ratio(one, plain), ratio(every, slow)
            ))  # fmt: skip
    columns = ("batch", *works, "one text / plain", "all texts / eager")
    print_page(
        "Capturing attention",
        device,
        f"A BERT of width {sizes.d_model}, {sizes.num_layers} layers, {sizes.num_heads} heads; {BATCH} x {TOKENS} "
        f"tokens; median of {options.rounds} rounds, on a CPU of the processor's time on one thread.",
        table(columns, rows),
    )


def works_of(sizes: ModelConfig, device: torch.device) -> dict[str, Callable[[Tensor], object]]:
    """Return what is timed, by its column's name; each takes the mask of the padding."""
    fused, eager = (
        transformers().BertModel(bert_config(sizes, VOCABULARY, 2, TOKENS)).eval().to(device)
        for _ in range(2)
    )
    eager.set_attn_implementation("eager")
    ids = torch.randint(1, VOCABULARY, (BATCH, TOKENS), device=device)

    def captured(mask: Tensor, rows: slice | list[int]) -> None:
        with capture(fused, rows):
            fused(ids, attention_mask=mask)

    return {
        "plain": lambda mask: fused(ids, attention_mask=mask),
        "one text": lambda mask: captured(mask, [0]),
        "all texts": lambda mask: captured(mask, slice(None)),
        "eager": lambda mask: eager(ids, attention_mask=mask, output_attentions=True),
    }


if __name__ == "__main__":
    main()
