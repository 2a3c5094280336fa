"""README commands and Python run as a reader would type them, in both languages; runs are made short."""

import re
import shlex
import shutil
import subprocess
import tomllib
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

import headscope
from hard.forked import Case, Server

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "README.ja.md")
SHORT = [
    *(
        "data.limit=400",
        "trainer.max_epochs=1",
        "trainer.epoch_steps=1",
        "trainer.accelerator=cpu",
        "baseline=false",
    ),
    *("model.d_model=16", "model.num_heads=2", "model.num_layers=1", "model.feedforward_size=16"),
]
# A classifier of transformers with random weights, in the place of the one on the Hub.
CLASSIFIER = """
from transformers import BertConfig, BertForSequenceClassification, BertTokenizer
words = "[PAD] [UNK] [CLS] [SEP] [MASK] a film that knows what it wants".split()
BertTokenizer(vocab={word: number for number, word in enumerate(words)}).save_pretrained("model")
sizes = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
config = BertConfig(vocab_size=len(words), num_labels=2, **sizes)
BertForSequenceClassification(config).save_pretrained("model")
"""


def blocks(page: str, language: str) -> list[str]:
    """Return the page's blocks of code in a language."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def commands(page: str) -> list[list[str]]:
    """Return the words after `headscope` of each command in the page, of its blocks and table."""
    text = (ROOT / page).read_text(encoding="utf-8")
    lines = [line for block in blocks(page, "bash") for line in block.splitlines()]
    data = re.search(r"^headscope train (.+) name=reviews$", text, re.MULTILINE)
    for line, dots in re.findall(r"`(headscope [^`]+?)( \.\.\.)?`", text):
        if "experiment=" not in line:  # needs an encoder
            lines.append(f"{line} {data[1]}" if dots and data else line)
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("headscope ")]


def shortened(words: list[str]) -> list[str]:
    """Make a run one of seconds, and a sweep one of two jobs; other commands stay as they are."""
    if words[0] != "train" or "--help" in words:
        return words
    swept = {word.split("=")[0] for word in words if "," in word}
    shorter = {"range(3)": "range(2)", "num_layers=1,2": "num_layers=1"}
    for long, short in shorter.items():
        words = [word.replace(long, short) for word in words]
    return words + [word for word in SHORT if word.split("=")[0] not in swept]


@pytest.fixture
def run_python(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    unchecked_shapes: None,
) -> Callable[[str], str]:
    """Return a function that runs code in tmp_path and returns what it prints."""
    monkeypatch.chdir(tmp_path)

    def run(code: str) -> str:
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            exec(code, {})
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize(("page", "lines"), [("README.md", 90), ("README.ja.md", 160)])
def test_the_page_is_short_and_names_every_command(page: str, lines: int) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert len(text.splitlines()) <= lines
    named = {words[0] for words in commands(page)}
    asked = "train predict evaluate labels inspect page report export verify trace"
    assert named == set(asked.split())
    assert [line for line in text.splitlines() if len(line) > 120] == []
    assert "`make train`" in text
    assert "`make test`" in text


def test_japanese_has_the_english_commands_and_one_of_its_own() -> None:
    own = [["verify", "show=published"]]
    english, japanese = map(commands, PAGES)
    assert [words for words in japanese if words not in own] == english
    first, second = (blocks(page, "python")[1].splitlines()[:2] for page in PAGES)
    assert first == second


def test_japanese_has_the_english_figures() -> None:
    figures = []
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        text = re.sub(r"\(docs[^)]*\)|```.*?```", "", text, flags=re.DOTALL)
        figures.append(text)
    tables, others = zip(
        *(
            (re.findall(r"\d\d\.\d / \d\d\.\d", text), set(re.findall(r"\d[\d,.]*\d", text)))
            for text in figures
        ),
        strict=True,
    )
    assert tables[0] == tables[1]
    assert others[0] <= others[1]
    assert others[1] - others[0] <= {"55"}, "the article's seed"


def test_what_cites_it_has_its_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == headscope.__version__
    assert {"cff-version", "message", "title", "authors", "license"} <= set(citation)
    for page in PAGES:
        assert f"version = {{{headscope.__version__}}}" in (ROOT / page).read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == headscope.__version__
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## {headscope.__version__}, ", changes, re.MULTILINE)


@pytest.mark.parametrize(
    ("programs", "expected"),
    [([], "--index-url https://download.pytorch.org/whl/cpu torch"), (["nvidia-smi"], None)]
    + [(["uv", *more], "--torch-backend=auto torch") for more in ([], ["nvidia-smi"])],
)
def test_make_install_takes_the_torch_of_this_machine(
    programs: list[str], expected: str | None, tmp_path: Path
) -> None:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    for name in programs:
        program = tmp_path / name
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    make = shutil.which("make") or "make"
    printed = subprocess.check_output(
        [make, "-n", "install"], cwd=tmp_path, text=True, env={"PATH": str(tmp_path)}
    )
    first = [line for line in printed.splitlines() if " torch " in line]
    assert first == [] if expected is None else f"{expected} ||" in first[0]
    assert '--editable ".[demo]"' in printed


def test_make_train_makes_the_run_that_the_pages_name(tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)

    def trained(arguments: str = "") -> list[str]:
        command = ["make", "-n", "--no-print-directory", "train", f"ARGS={arguments}"]
        printed = subprocess.check_output(command, cwd=tmp_path, text=True)
        last = printed.splitlines()[-1]
        return last.split()[1:]

    assert trained() == ["train", "name=first"]
    assert trained("data.name=split") == ["train", "name=first", "data.name=split"]
    assert trained("name=second") == ["train", "name=second"]
    (tmp_path / "outputs/first").mkdir(parents=True)
    assert trained() == ["train"]


@pytest.mark.slow
def test_its_commands_and_its_python_run(
    tmp_path: Path, server: Server, run_python: Callable[[str], str]
) -> None:
    begins = ("sun", "moon", "star", "sea", "snow", "fire", "wind", "leaf")
    nouns = [begin + letter for begin in begins for letter in "abcdefgh"]
    pairs = [(word, noun) for noun in nouns for word in ("nice", "poor")]
    rows = [f"{word} film about {noun},{word == 'nice':d}" for word, noun in pairs]
    (tmp_path / "reviews.csv").write_text("review,stars\n" + "\n".join(rows) + "\n")
    (tmp_path / "october.csv").write_text("review,stars\n" + "\n".join(rows) + "\n")
    (tmp_path / "new.csv").write_text("review\nnice film\npoor film\n")
    for words in commands("README.md"):
        outcome = server.run(Case(shortened(words), str(tmp_path)))
        assert outcome.code == 0, f"{words}\n{outcome.stdout}\n{outcome.stderr}"
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 3
    assert (tmp_path / "outputs/sizes/sweep.csv").is_file()
    assert list(tmp_path.glob("outputs/reviews/inspect/*.html"))
    use_run = "import headscope\n" + blocks("README.md", "python")[1]
    assert "log-odds" in run_python(use_run)


@pytest.mark.slow
def test_its_first_python_shows_a_classifier_of_transformers(
    tmp_path: Path, run_python: Callable[[str], str]
) -> None:
    run_python(CLASSIFIER)
    (code, _) = blocks("README.md", "python")
    show, count = re.subn('^name = ".+"$', 'name = "model"', code, flags=re.MULTILINE)
    assert count == 1
    run_python(show)
    assert "Attention heads" in (tmp_path / "heads.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_japanese_page_opens_with_what_its_commands_print(
    tmp_path: Path, command: Callable[..., str], run_python: Callable[[str], str]
) -> None:
    printed = command("verify", "show=published", "lang=ja").splitlines()
    (promised,) = blocks("README.ja.md", "text")
    *lines, last = promised.splitlines()
    assert [line for line in lines if line not in [*map(str.rstrip, printed)]] == []
    assert last.split("、")[0] == printed[-1].split("、")[0]
    assert printed[-1].endswith(" 秒")
    own_encoder, _ = blocks("README.ja.md", "python")
    assert run_python(own_encoder) == "(4, 9, 9)\n"
    assert "Attention heads" in (tmp_path / "heads.html").read_text(encoding="utf-8")
