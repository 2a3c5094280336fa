"""What the pages say of the code is so."""

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from headscope.commands.config import VerifyConfig
from headscope.commands.verify import verify

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/attention.md").read_text(encoding="utf-8")
SYMBOLS = re.findall(r"^\| .* \| [BTHDE3 ]+ \| (`.*`) \| (\w+\.py) \|$", PAGE, re.MULTILINE)
LINKS = [
    (page, link)
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
    for link in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8"))
    if "://" not in link
]


@pytest.mark.parametrize(("codes", "file"), SYMBOLS)
def test_the_line_of_each_symbol_stands_in_the_code(codes: str, file: str) -> None:
    source = (ROOT / "src/headscope/attention" / file).read_text(encoding="utf-8")
    for code in re.findall(r"`([^`]+)`", codes):
        assert code in source, f"{code} is not in {file}"


def test_the_page_goes_through_the_whole_formula() -> None:
    assert len(SYMBOLS) == 9


def test_the_table_of_claims_is_the_one_that_verify_prints() -> None:
    claims = verify(VerifyConfig(), Console(file=io.StringIO()))
    rows = re.findall(r"^\| (.+?) \| (.+?) \| \S+ \| \S+ \| \S+ \| pass \|$", PAGE, re.MULTILINE)
    assert rows == [(claim.name, claim.oracle) for claim in claims]


@pytest.mark.parametrize(("page", "link"), LINKS, ids=lambda value: getattr(value, "name", value))
def test_links_within_the_repository_lead_somewhere(page: Path, link: str) -> None:
    assert (page.parent / link).exists()
