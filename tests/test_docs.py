"""What the pages say of the code is so."""

import ast
import pkgutil
import re
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest
import torch

from foreign_classifiers import classifier, made_up
from headscope.attention.reference import PackedAttention
from headscope.proof.trace import steps
from headscope.record.reader import read_index

ROOT = Path(__file__).parents[1]
LESSONS = ("attention.md", "attention.ja.md")
# A block of the lesson, and what it prints.
LESSON = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", re.DOTALL)
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


def test_every_block_of_the_lesson_prints_what_stands_below_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    unchecked_shapes: None,
) -> None:
    monkeypatch.chdir(tmp_path)
    english, japanese = (
        LESSON.findall((ROOT / "docs" / name).read_text(encoding="utf-8")) for name in LESSONS
    )
    assert english == japanese
    names: dict[str, object] = {}
    try:
        for code, printed in english:
            exec(compile(code, "attention.md", "exec"), names)
            assert capsys.readouterr().out == printed, code
    finally:
        torch.set_grad_enabled(True)
        torch.set_printoptions(profile="default")
    with torch.device("meta"):  # counts, and computes nothing
        counted = steps(PackedAttention(768, 8), torch.empty(32, 100, 768))
    costs: dict[str, int] = names["cost"]  # type: ignore[assignment]
    assert [it.multiply_adds for it in counted if it.multiply_adds] == [*costs.values()]
    assert (tmp_path / "map.png").is_file()
    assert read_index(tmp_path / "outputs/lesson/heads").texts[0].tokens[0] == "[CLS]"


def test_the_lesson_in_japanese_has_each_number_of_the_english_one() -> None:
    numbers = []
    for name in LESSONS:
        text = LESSON.sub("", (ROOT / "docs" / name).read_text(encoding="utf-8"))
        tables = "\n".join(line for line in text.splitlines() if line.startswith("|"))
        numbers.append(Counter(re.findall(r"\d[\d.e-]+", tables)))
        assert len(re.findall(r"^\d\. ", text, re.MULTILINE)) == 6, "sources"
    assert numbers[0] == numbers[1]


def test_each_benchmark_says_its_command_its_minutes_and_what_it_prints() -> None:
    helpers = {"run_differences", "side_by_side"}
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


def test_the_command_for_the_hub_publishes_nothing_private() -> None:
    page = (ROOT / "docs/python.md").read_text(encoding="utf-8")
    assert re.findall(r"^hf upload \S+ (\S+)", page, re.M) == ["outputs/first/model.safetensors"]


def code_of(page: str) -> list[str]:
    """Return the blocks of Python of a page."""
    return re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.DOTALL
    )


def test_the_code_for_models_of_hugging_face_prints_what_it_says(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, _, ablation, *_ = code_of("any-model.md")
    (said,) = re.findall(r"# (encoder\S+ \([\d, ]+\))", code)
    names: dict[str, object] = {}
    exec(compile(code, "any-model.md", "exec"), names)
    assert capsys.readouterr().out.splitlines()[0] == said
    exec(compile(ablation, "any-model.md", "exec"), names)
    assert capsys.readouterr().out == "tensor(True)\n"


@pytest.mark.filterwarnings("default::UserWarning")
def test_two_folders_of_transformers_are_shown_and_their_heads_ranked_by_a_csv(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model, tokenizer = classifier()
    for folder in ("mine", "other"):
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    rows = [
        f"{text},{['blame', 'praise'][label]}" for text, label in zip(*made_up(40), strict=True)
    ]
    Path("labelled.csv").write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    exec(compile(code_of("any-model.md")[1], "any-model.md", "exec"), {})
    printed = capsys.readouterr().out
    assert re.search(r"^other \d+ tokens; (blame|praise) 0\.", printed, re.MULTILINE)
    assert len(re.findall("heads (?:help|alone|matter)|the same class|single head", printed)) == 2
    assert Path("mine.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_your_own_classifier_is_the_one_of_the_japanese_page() -> None:
    (japanese, _) = re.findall(
        r"```python\n(.*?)```", (ROOT / "README.ja.md").read_text(encoding="utf-8"), re.DOTALL
    )
    without_comments = re.sub("  # .*", "", japanese)
    assert code_of("any-model.md")[3] in without_comments


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


AVOIDED = {
    r"第\s*\d+\s*層": "層 0, counted as everywhere",
    "(?<!計算)精度": "正解率",
    "学習データ|訓練する": "訓練データ; 学習する",
    "注意マップ|注意行列|注意の強さ": "アテンションマップ; アテンション重み",
    "貢献": "寄与",
    "キャリブレーション": "較正",
    "隠した|見えないキー": "マスクする",
    "割り当てのない": "未割り当て",
}


@pytest.mark.parametrize("pattern", AVOIDED)
def test_japanese_is_written_in_the_words_of_the_glossary(pattern: str) -> None:
    pages = [ROOT / "README.ja.md", *(ROOT / "docs").glob("*.ja.*")]
    pages += (ROOT / "src/headscope").rglob("ja.json")
    assert len(pages) == 5
    found = [
        f"{page.name}: {line.strip()}"
        for page in pages
        for line in page.read_text(encoding="utf-8").splitlines()
        if re.search(pattern, line)
    ]
    assert found == [], f"write {AVOIDED[pattern]}"


def test_each_promise_has_a_test_that_exists() -> None:
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    promised, _, _ = page.partition("## What is not promised")
    tests = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", promised)
    assert len(tests) > 20
    for path, name in tests:
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), name
    lines = [line for line in promised.splitlines() if line.startswith("| ")][1:]
    assert [line for line in lines if "::" not in line and not line.startswith("| **A ")] == []
