"""Does this tree give the results of an earlier commit? Both train, and every bit is compared.

    python benchmarks/same_result.py 42bdf82                 # 3 minutes on one core; then 2 minutes
    python benchmarks/same_result.py 42bdf82 --only evidence bert

Each side trains the same small configurations on one thread, then evaluates, predicts and inspects.
Prints a table, artefact x configuration, and below it each key that differs. Exits with 1 if any
does. Only the command line and the files on disk are used, no name inside headscope. The base's
results stay in the user's cache, for this processor and these versions of the libraries.
"""

import argparse
import csv
import hashlib
import importlib
import importlib.metadata
import inspect
import multiprocessing
import os
import platform
import random
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
from fnmatch import fnmatch
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from filelock import FileLock
from platformdirs import user_cache_path

from run_differences import Results, Values, compare, read


class Allowed(NamedTuple):
    """A difference made on purpose; `inf` allows any change, also a key added or removed."""

    pattern: str  # of configuration/stage/file:key, with * for any part
    tolerance: float  # of the absolute difference
    reason: str


ALLOWED = [
    Allowed("*:*contributions/*", inf, "heads x tokens in full, against the runner-up"),
    Allowed("*:*nats*", inf, "five tokens of each head, against the mean of the classes"),
    Allowed("*:*verdicts/headline", inf, "the record has the Heads tab's first line as well"),
    Allowed("*/errors.csv:*", inf, "report.html has these texts"),
    Allowed("*data.sql", inf, "a query is run by examples/database.py"),
    Allowed("*.html:report.scored.confidence*", inf, "the curve is that of metrics.json"),
    *(
        Allowed(f"*.html:texts.*/{name}", inf, "a page has all arrays of the record")
        for name in ("check", "rounding", "shown")
    ),
]
# Clocks, and sizes that follow from other values.
IGNORED = ("*:seconds.*", "*:peak_memory_gib", "*:steps.*.time")
# Sentences for people: rewording them is no failure.
PROSE = ("*:title", "*:*notes.*", "*:*.answer", "*:answer", "*:*which heads matter")

MOST_SHOWN = 5  # keys of one file
ROOT = Path(__file__).parents[1]
VERSIONS = ("datasets", "lightning", "numpy", "scikit-learn", "tokenizers", "torch", "transformers")
IMPORTED_ONCE = ("datasets", "lightning", "sklearn.linear_model", "torchmetrics", "transformers")
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
TRAIN = (
    *("train", "outputs_dir=.", "name=trained", "seed=1", "data=files", "data.cache_dir=cache"),
    *("trainer.accelerator=cpu", "trainer.max_epochs=2", "trainer.progress=false"),
)
PAIRS = ("data.path=pairs.csv", "data.text_pair_column=other", "data.multi_label=true")
CONFIGURATIONS = {
    "evidence": ("data.path=texts.csv",),
    "pairs": (*PAIRS, "model.pooling=additive"),
    "bert": ("data.path=texts.csv", "data.limit=400", "model=pretrained", "model.path=checkpoint"),
}
SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprst" for vowel in "aeiou"]


def main() -> None:
    """Train with both sides, print what differs, and exit with 1 if anything does."""
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("base", help="the commit to compare with")
    parser.add_argument("--only", nargs="+", choices=CONFIGURATIONS, default=[*CONFIGURATIONS])
    options = parser.parse_args()
    os.environ.update(ENVIRONMENT)
    for library in IMPORTED_ONCE:  # each forked process then starts at once
        importlib.import_module(library)
    cells: dict[str, dict[str, str]] = {}  # file -> configuration -> what was found
    failures = []
    for name in options.only:
        for stage, (earlier, later) in results_of_both(options.base, name).items():
            for file in sorted({*earlier, *later}):
                place = f"{name}/{stage}/{file}"
                state, differences = judge(place, earlier.get(file, {}), later.get(file, {}))
                row = cells.setdefault(file, {})
                if "differs" not in row.setdefault(name, "equal") and state != "equal":
                    row[name] = f"{stage}: {state}"
                failures += differences[:MOST_SHOWN]
                failures += [f"{place}: {len(differences)} keys"] * (len(differences) > MOST_SHOWN)
    print(f"{'':<42}", *(f"{name:<26}" for name in options.only))
    for file, row in sorted(cells.items()):
        print(f"{file:<42}", *(f"{row.get(name, '-'):<26}" for name in options.only))
    print("\n".join(["", *failures]) if failures else f"\nequal to {options.base}")
    sys.exit(1 if failures else 0)


def judge(artefact: str, before: Values, after: Values) -> tuple[str, list[str]]:
    """Return a cell of the table, and a line for each difference that nobody allowed."""
    failures = []
    states = set()
    for key, largest, text in compare(before, after):
        place = f"{artefact}:{key}"
        if any(fnmatch(place, pattern) for pattern in IGNORED):
            continue
        if any(fnmatch(place, pattern) for pattern in PROSE):
            states.add("reworded")
        elif any(fnmatch(place, rule.pattern) and largest <= rule.tolerance for rule in ALLOWED):
            states.add("allowed")
        else:
            failures.append(f"{place}: {text}")
    if failures:
        return f"differs ({len(failures)})", failures
    return ", ".join(sorted(states)) or "equal", failures


def results_of_both(base: str, name: str) -> dict[str, tuple[Results, Results]]:
    """Return stage -> the results by the code of the base, and by the code of this tree."""
    earlier = results_of_base(base, name)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        train_and_use(ROOT, name, folder)
        return {
            "trained": (read(earlier / "trained"), read(folder / "trained")),
            "used": (read(earlier / "used"), read(folder / "used")),
        }


def results_of_base(base: str, name: str) -> Path:
    """Return the folder with the results of a commit; they are made where they are not cached."""
    git = ["git", "-C", str(ROOT)]
    command = [*git, "rev-parse", "--short=12", f"{base}^{{commit}}"]
    commit = subprocess.check_output(command, text=True).strip()
    steps: tuple[Any, ...] = (train_and_use, use, write_data, write_checkpoint)
    recipe = [inspect.getsource(step) for step in steps]
    versions = map(importlib.metadata.version, VERSIONS)
    circumstances = [*recipe, *versions, processor(), *TRAIN, *CONFIGURATIONS[name]]
    key = hashlib.sha256("\n".join(circumstances).encode()).hexdigest()[:12]
    folder = user_cache_path("headscope") / "same_result" / f"{name}-{commit}-{key}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_suffix(".lock")), tempfile.TemporaryDirectory() as temporary:
        if not (folder / "complete").exists():
            tree = f"{temporary}/base"
            subprocess.check_call([*git, "worktree", "add", "--quiet", "--detach", tree, commit])
            try:
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                train_and_use(Path(tree), name, folder)
                (folder / "complete").touch()
            finally:
                subprocess.check_call([*git, "worktree", "remove", "--force", tree])
    return folder


def processor() -> str:
    """Return the model of the processor, on which the last digits depend."""
    facts = Path("/proc/cpuinfo")
    model = re.search(r"model name.*", facts.read_text()) if facts.exists() else None
    return model[0] if model else platform.processor()


def train_and_use(tree: Path, name: str, folder: Path) -> None:
    """Train a configuration with the code of a tree, then use a copy of its run."""
    write_data(folder)
    if name == "bert":
        write_checkpoint(folder / "checkpoint")
    headscope(tree, folder, *TRAIN, *CONFIGURATIONS[name])
    use(tree, folder / "trained", folder)


def use(tree: Path, trained: Path, folder: Path) -> None:
    """Evaluate, predict and inspect with a copy of a run, which has the results then."""
    shutil.copytree(trained, folder / "used")
    data = yaml.safe_load((trained / "config.yaml").read_text())["data"]
    run = ("run=used", "accelerator=cpu")
    pair = () if data["text_pair_column"] is None else ("text_pair=do mi",)
    headscope(tree, folder, "evaluate", *run)
    headscope(tree, folder, "predict", *run, f"input={data['path']}", "output=used/predictions.csv")
    headscope(tree, folder, "inspect", *run, "text=ba de fa gi", *pair, "output=used/page.html")


def headscope(tree: Path, folder: Path, *words: str) -> None:
    """Run `python -m headscope` with the code of a tree, in a forked process."""
    process = multiprocessing.get_context("fork").Process(target=run, args=(tree, folder, words))
    process.start()
    process.join()
    if process.exitcode:
        log = (folder / "log.txt").read_text(errors="replace")[-4000:]
        sys.exit(f"{log}\n{tree}: headscope {' '.join(words)} ended with {process.exitcode}")


def run(tree: Path, folder: Path, words: tuple[str, ...]) -> None:
    """Be `python -m headscope`, with what it prints in folder/log.txt."""
    os.chdir(folder)
    log = os.open("log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.path[0] = os.environ["PYTHONPATH"] = str(tree / "src")
    sys.argv = ["headscope", *words]
    runpy.run_module("headscope", run_name="__main__", alter_sys=True)


def write_data(folder: Path) -> None:
    """Write texts.csv and pairs.csv: made-up words, of which some are likelier in one class."""
    rng = random.Random(0)
    words = ["".join(rng.choices(SYLLABLES, k=rng.randint(1, 3))) for _ in range(600)]
    telling = {label: rng.sample(words, 60) for label in "ABCD"}

    def text(labels: list[str]) -> str:
        chosen = [*rng.choices(words, k=rng.randint(5, 25))]
        for label in labels:
            chosen += rng.choices(telling[label], k=2)
        rng.shuffle(chosen)
        return " ".join(chosen)

    labels = rng.choices("ABCD", [4, 3, 2, 1], k=1000)
    several = [rng.sample("ABCD", rng.randint(0, 3)) for _ in range(600)]
    tables: dict[str, list[tuple[str, ...]]] = {
        "texts.csv": [("text", "label"), *((text([label]), label) for label in labels)],
        "pairs.csv": [
            ("text", "other", "label"),
            *((text(some[:1]), text(some[1:]), ";".join(some)) for some in several),
        ],
    }
    for name, rows in tables.items():
        with (folder / name).open("w", newline="") as file:
            csv.writer(file).writerows(rows)


def write_checkpoint(folder: Path) -> None:
    """Write a BERT of 2 layers with random weights, and a tokenizer of syllables for it."""
    import torch
    import transformers
    from tokenizers import BertWordPieceTokenizer

    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *SYLLABLES]
    pieces += [f"##{syllable}" for syllable in SYLLABLES]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    sizes = {"hidden_size": 48, "num_attention_heads": 3, "num_hidden_layers": 2}
    config = transformers.BertConfig(vocab_size=len(pieces), intermediate_size=96, **sizes)
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(0)
    transformers.BertModel(config).save_pretrained(folder)
    BertWordPieceTokenizer(vocabulary).save(str(folder / "tokenizer.json"))


if __name__ == "__main__":
    main()
