"""What the pages say of the code is so."""

import ast
import pkgutil
import re
from importlib import import_module
from pathlib import Path

import pytest

from headscope.record.reader import read_index

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/attention.md").read_text(encoding="utf-8")
SYMBOLS = re.findall(r"^\| .* \| [BTHDE3 ]+ \| (`.*`) \| (\w+\.py) \|$", PAGE, re.MULTILINE)
LINKS = [
    (page, link)
    for page in [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *sorted((ROOT / "docs").glob("*.md")),
    ]
    for link in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8"))
    if "://" not in link
]


def test_the_line_of_each_symbol_of_the_formula_stands_in_the_code() -> None:
    assert len(SYMBOLS) == 9
    for codes, file in SYMBOLS:
        source = (ROOT / "src/headscope/attention" / file).read_text(encoding="utf-8")
        for code in re.findall(r"`([^`]+)`", codes):
            assert code in source, f"{code} is not in {file}"


def test_each_benchmark_says_its_command_its_minutes_and_what_it_prints() -> None:
    helpers = {"label_file", "run_differences", "side_by_side"}
    for path in (ROOT / "benchmarks").glob("*.py"):
        if path.stem in helpers:
            continue
        head = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        assert f"python benchmarks/{path.name}" in head
        assert re.search(r"\d+ minutes", head), path
        assert re.search("Prints (a table|two tables)", head), path


def test_links_within_the_repository_lead_somewhere() -> None:
    assert LINKS
    assert [(page.name, link) for page, link in LINKS if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("path", sorted({page for page, _ in LINKS}), ids=lambda path: path.name)
def test_what_the_code_of_a_page_imports_is_there(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("headscope"):
                module = import_module(str(node.module))
                assert [name.name for name in node.names if not hasattr(module, name.name)] == []
            elif isinstance(node, ast.Import):
                for name in node.names:
                    if name.name.startswith("headscope"):
                        import_module(name.name)
    for name in re.findall(r"`headscope\.([\w.]+?)(?:\(.*?)?`", text):
        assert pkgutil.resolve_name(f"headscope.{name}") is not None


def code_of(page: str) -> list[str]:
    """Return the blocks of Python of a page."""
    return re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.DOTALL
    )


def test_the_code_for_models_of_hugging_face_prints_what_it_says(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, ablation, *_ = code_of("any-model.md")
    (said,) = re.findall(r"# (encoder\S+ \([\d, ]+\))", code)
    names: dict[str, object] = {}
    exec(compile(code, "any-model.md", "exec"), names)
    assert capsys.readouterr().out.splitlines()[0] == said
    exec(compile(ablation, "any-model.md", "exec"), names)
    assert capsys.readouterr().out == "tensor(True)\n"


def test_your_own_classifier_is_the_one_of_the_japanese_page() -> None:
    (japanese, _) = re.findall(
        r"```python\n(.*?)```", (ROOT / "README.ja.md").read_text(encoding="utf-8"), re.DOTALL
    )
    without_comments = re.sub("  # .*", "", japanese)
    assert code_of("any-model.md")[2] in without_comments


def test_the_code_for_any_model_records_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    *_, code = code_of("any-model.md")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "any-model.md", "exec"), {})
    folder = tmp_path / "outputs/any_model"
    index = read_index(folder / "heads")
    assert [step.step for step in index.steps] == [0, 10, 20]
    assert (index.layers, index.heads) == (["1.layers.0.self_attn", "1.layers.1.self_attn"], [4, 4])
    assert index.texts[0].tokens == ["[CLS]", "the", "cat", "sat"]
    assert list(folder.glob("events.out.tfevents.*"))
