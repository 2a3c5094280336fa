"""verify(config): check every numerical property of the attention and print the table; fails if one does not hold."""

import time
from itertools import chain

import torch
from rich import box
from rich.console import Console
from rich.table import Table

from headscope.attention import MultiHeadAttention
from headscope.errors import ConfigError, ProofError
from headscope.options import VerifyConfig
from headscope.proof import claims
from headscope.proof.claims import Claim, Precision
from headscope.proof.copy_weights import carry
from headscope.proof.published import PUBLISHED, published_example

GROUPS = {
    "A published example: width 4, two heads, seed 55": claims.published_claims,
    "Our layer and torch.nn.MultiheadAttention: output, weights, all gradients": claims.torch_claims,
    "Every form and every other, with the same weights: no mask, [Q, K], [B, Q, K], [B, 1, Q, K] and [B, H, Q, K]": (
        claims.form_claims
    ),
    "What the layer promises": claims.layer_claims,
    "Additive and multiplicative attention": claims.score_claims,
    "A classifier read out at [CLS]: nothing decides but its heads": claims.decided_claims,
}


def verify(
    config: VerifyConfig,
    console: Console | None = None,
    layer: type[MultiHeadAttention] = MultiHeadAttention,
) -> list[Claim]:
    """Print every property, what it is compared with, the largest difference, and whether it holds.

    Args:
        config: type, device and what is shown: every property, or the published example alone with its numbers.
        console: where to print; standard output by default.
        layer: the layer that is checked.

    Raises:
        ConfigError: if there is no such device.
        ProofError: if a property does not hold.
    """
    console, started = console or Console(), time.perf_counter()
    if config.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device: got cuda, but torch finds no CUDA GPU here; takes cpu")
    terms = Precision(getattr(torch, config.dtype), torch.device(config.device), layer)
    state = torch.get_rng_state()
    shown = [*GROUPS.items()][
        : 1 if config.show == "published" else None
    ]  # the published example comes first
    groups = {title: list(make(terms)) for title, make in shown}
    found = list(chain.from_iterable(groups.values()))
    torch.set_rng_state(state)
    if config.show == "published":
        console.print(_numbers_table(terms, config.style == "markdown"))
    for title, group in groups.items():
        console.print(_table(title, group, config.style == "markdown"))
    failed = [claim for claim in found if not claim.holds]
    seconds = time.perf_counter() - started
    where = f"{config.dtype} on {config.device}, torch {torch.__version__}, {seconds:.1f} s"
    console.print(
        f"{len(found) - len(failed)} of {len(found)} properties hold: {where}", highlight=False
    )
    if failed:
        raise ProofError(
            f"{len(failed)} of {len(found)} properties do not hold, the first: {failed[0].name}"
        )
    return found


def _numbers_table(terms: Precision, markdown: bool) -> Table:
    """Return each row of the published numbers beside our layer's, once it has the example's weights."""
    tokens, theirs = published_example()
    layer = terms.layer(4, 2, bias=False, batch_first=True).to(terms.device, terms.dtype)
    carry(theirs, layer)
    ours = claims.numbers_of(layer, terms.here(tokens))
    table = _empty_table(
        "The article's numbers and ours, token by token; a head's are its weights", markdown
    )
    for heading in ("row", "by", "numbers"):
        table.add_column(heading, no_wrap=True)
    table.add_column("abs.", justify="right", no_wrap=True)
    for name, rows in PUBLISHED.items():
        for place, (published, found) in enumerate(
            zip(rows, ours[name].double().tolist(), strict=True)
        ):
            texts = [
                " ".join(f"{number:7.4f}" for number in numbers) for numbers in (published, found)
            ]
            far = max(abs(one - other) for one, other in zip(published, found, strict=True))
            table.add_row(f"{name}, {place}", "article", texts[0])
            table.add_row("", "ours", texts[1], f"{far:.0e}")
    return table


def _empty_table(title: str, markdown: bool) -> Table:
    return Table(
        title=title, title_justify="left", box=box.MARKDOWN if markdown else box.SIMPLE_HEAD
    )


def _table(title: str, claims: list[Claim], markdown: bool) -> Table:
    table = _empty_table(title, markdown)
    table.add_column("property", overflow="fold")
    table.add_column("compared with", overflow="fold")
    for heading in ("abs.", "rel.", "at most"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for claim in claims:
        numbers = [
            f"{number:.0e}" if number else "0"
            for number in (claim.absolute, claim.relative, claim.tolerance)
        ]
        table.add_row(
            claim.name, claim.oracle, *numbers, "pass" if claim.holds else "[bold red]FAIL[/]"
        )
    return table
