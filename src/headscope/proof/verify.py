"""verify(config): check every numerical property of the attention and print the table; fails if one does not hold."""

import time
from itertools import chain

import torch
from rich import box
from rich.console import Console
from rich.table import Table

from headscope.attention import MultiHeadAttention
from headscope.config import VerifyConfig
from headscope.errors import ConfigError, ProofError
from headscope.proof import claims
from headscope.proof.claims import Claim, Terms

GROUPS = {
    "A published example: width 4, two heads, seed 55": claims.published_claims,
    "Our layer and torch.nn.MultiheadAttention: output, weights, all gradients": claims.torch_claims,
    "Every form and every other, with the same weights: output and weights, masked and not": claims.form_claims,
    "What the layer promises": claims.layer_claims,
    "Additive and multiplicative attention": claims.score_claims,
    "A classifier read out at [CLS]: nothing decides but its heads": claims.decided_claims,
}


def verify(
    config: VerifyConfig, console: Console | None = None, layer: type[MultiHeadAttention] = MultiHeadAttention
) -> list[Claim]:
    """Print every property, what it is compared with, the largest difference, and whether it holds.

    Args:
        config: type and device.
        console: where to print; standard output by default.
        layer: the layer that is checked.

    Raises:
        ConfigError: if there is no such device.
        ProofError: if a property does not hold.
    """
    console, started = console or Console(), time.perf_counter()
    if config.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device: got cuda, but torch finds no CUDA GPU here; takes cpu")
    terms = Terms(getattr(torch, config.dtype), torch.device(config.device), layer)
    state = torch.get_rng_state()
    groups = {title: list(make(terms)) for title, make in GROUPS.items()}
    found = list(chain.from_iterable(groups.values()))
    torch.set_rng_state(state)
    for title, group in groups.items():
        console.print(_table(title, group, config.style == "markdown"))
    failed = [claim for claim in found if not claim.holds]
    seconds = time.perf_counter() - started
    where = f"{config.dtype} on {config.device}, torch {torch.__version__}, {seconds:.1f} s"
    console.print(f"{len(found) - len(failed)} of {len(found)} properties hold: {where}", highlight=False)
    if failed:
        raise ProofError(f"{len(failed)} of {len(found)} properties do not hold, the first: {failed[0].name}")
    return found


def _table(title: str, claims: list[Claim], markdown: bool) -> Table:
    table = Table(title=title, title_justify="left", box=box.MARKDOWN if markdown else box.SIMPLE_HEAD)
    table.add_column("property", overflow="fold")
    table.add_column("compared with", overflow="fold")
    for heading in ("abs.", "rel.", "at most"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for claim in claims:
        numbers = [f"{number:.0e}" if number else "0" for number in (claim.absolute, claim.relative, claim.tolerance)]
        table.add_row(claim.name, claim.oracle, *numbers, "pass" if claim.holds else "[bold red]FAIL[/]")
    return table
