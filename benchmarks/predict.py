"""From a file of texts to a file of labels: headscope, ONNX and what others use.

    python benchmarks/predict.py                    # about 5 minutes on one core
    python benchmarks/predict.py --size default     # the network that headscope trains by default

Needs transformers and headscope[onnx]. Prints a table: texts a second of the processor's time on
one thread, from the start of a process to its end; the most memory that it held; the time to the
first answer; what it reads from the disk. The Hugging Face pipeline has a BERT of the same width,
layers and heads. The texts are the embedded licence texts; the weights of networks are random,
since labels cost the same, right or wrong. fastText and TF-IDF learn from the same texts.
"""

import importlib.util
import json
import os
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from datasets import Dataset
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from tokenizers import Tokenizer

from headscope.data.batching import encode_texts
from headscope.data.evidence import KnownNgrams, known_ngrams
from headscope.data.licenses import load_licenses
from headscope.data.tokenizer import CLASS, PADDING, SEPARATOR, UNKNOWN, trained_tokenizer
from headscope.export.graph import export
from headscope.ground.files import cache_folder
from headscope.runs.folder import save_model
from headscope.runs.setup import Chosen, Setup
from headscope.settings.commands import ExportConfig
from headscope.settings.config import DataConfig, ModelConfig, TokenizerConfig, TrainConfig
from side_by_side import (
    SIZES,
    bert_config,
    count,
    parser_of,
    print_page,
    ratio,
    table,
    transformers,
)

LENGTH = 256  # tokens of the longest text
BATCH = 32  # texts of the pipeline's batch
PIPELINE = f"Hugging Face pipeline, batch of {BATCH}"
# From a process that holds little: a child's most memory is counted from its parent's.
MEASURE = """
import json, resource, subprocess, sys
code = subprocess.call(sys.argv[2:])
used = resource.getrusage(resource.RUSAGE_CHILDREN)
with open(sys.argv[1], "w") as file:
    json.dump([used.ru_utime + used.ru_stime, used.ru_maxrss * 1024], file)
sys.exit(code)
"""
Command = Callable[[Path, Path], list[str]]  # from the files of texts and labels


class Peer(NamedTuple):
    """What labels a file: its command, and what it reads."""

    command: Command
    files: Path


class Use(NamedTuple):
    """What a process used: seconds of the processor and on the wall, and bytes at its most."""

    processor: float
    wall: float
    memory: float


def main() -> None:
    """Measure, and print the table."""
    parser = parser_of(__doc__)
    sizes = SIZES | {"default": ModelConfig()}
    parser.add_argument("--size", choices=sizes, default="small", help="%(default)s by default")
    parser.add_argument("--rounds", type=count, default=3, help="%(default)s by default")
    parser.add_argument("--texts", type=count, default=1000, help="%(default)s by default")
    options = parser.parse_args()
    corpus = load_licenses(cache_folder(None))
    texts = corpus.shuffle(seed=0).select(range(min(options.texts, len(corpus))))["text"][:]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        many = written(folder / "texts.jsonl", texts)
        one = written(folder / "one.jsonl", texts[:1])
        size = sizes[options.size]
        peers = dict(made(folder, size, corpus))
        used: dict[str, list[Use]] = {peer: [] for peer in peers}
        first: dict[str, list[float]] = {peer: [] for peer in peers}
        for number in range(options.rounds):
            print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
            for peer, (command, _) in peers.items():
                used[peer].append(measured(command(many, folder / "labels"), len(texts)))
                first[peer].append(measured(command(one, folder / "label"), 1).wall)
        rows = []
        pipeline = [use.processor for use in used[PIPELINE]]
        for peer, uses in used.items():
            seconds = [use.processor for use in uses]
            rows.append(
                (
                    peer,
                    f"{len(texts) / statistics.median(seconds):.0f}",
                    ratio(pipeline, seconds),
                    f"{max(use.memory for use in uses) / 2**20:.0f}",
                    f"{statistics.median(first[peer]):.2f}",
                    f"{disk(peers[peer].files) / 1e6:.1f}",
                )
            )
    print_page(
        "Prediction from file to file",
        torch.device("cpu"),
        f"{len(texts):,} licence texts; width {size.d_model}, {size.num_layers} layers, "
        f"{size.num_heads} heads, feed-forward {size.feedforward_size}, float32; "
        f"median of {options.rounds} rounds in turn, one thread.",
        table(
            ("", "texts a second", "times the pipeline", "MiB", "first answer, s", "MB on disk"),
            rows,
        ),
    )


def written(path: Path, texts: list[str]) -> Path:
    """Write texts as lines of JSON."""
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    return path


def disk(path: Path) -> int:
    """Return the bytes of a file or a folder's files."""
    files = [path] if path.is_file() else path.rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file())


def measured(command: list[str], num_texts: int) -> Use:
    """Run a process to its end; SystemExit if it fails or labels another number of texts."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    output = Path(command[-1])
    usage = output.with_suffix(".json")
    start = time.perf_counter()
    with output.open("w", encoding="utf-8") as file:
        measure = [sys.executable, "-c", MEASURE, str(usage), *command[:-1]]
        code = subprocess.run(measure, env=environment, stdout=file).returncode
    wall = time.perf_counter() - start
    num_labels = output.read_text(encoding="utf-8").count("\n")
    if code or num_labels != num_texts:
        raise SystemExit(f"error: {command}: code {code}, {num_labels} labels")
    processor, memory = json.loads(usage.read_text(encoding="utf-8"))
    return Use(processor, wall, memory)


def made(folder: Path, size: ModelConfig, corpus: Dataset) -> Iterator[tuple[str, Peer]]:
    """Write what each peer needs, and yield it."""
    torch.manual_seed(0)
    texts = corpus["text"][:]
    labels = corpus.features["label"].names if hasattr(corpus.features["label"], "names") else None
    names = labels or sorted({*corpus["label"]})
    classes = [names[label] if isinstance(label, int) else label for label in corpus["label"]]
    cache = cache_folder(None)
    tokenizer = trained_tokenizer(texts, TokenizerConfig(), LENGTH, cache)
    run = run_folder(folder / "run", size, tokenizer, texts, names)
    export(ExportConfig(str(run), str(folder / "onnx")))
    pipeline_folder(folder / "pipeline", size, tokenizer, names)
    tfidf = make_pipeline(TfidfVectorizer(sublinear_tf=True), LogisticRegression(max_iter=200))
    (folder / "tfidf.pickle").write_bytes(pickle.dumps(tfidf.fit(texts, classes)))

    def worker(kind: str, files: Path) -> Peer:
        start = [sys.executable, str(Path(__file__).with_name("label_file.py")), kind, str(files)]
        return Peer(lambda source, output: [*start, str(source), str(output)], files)

    yield PIPELINE, worker("pipeline", folder / "pipeline")
    yield f"{PIPELINE}, longest first", worker("sorted", folder / "pipeline")
    command = [sys.executable, "-m", "headscope", "predict", f"run={run}"]
    yield (
        "headscope predict",
        Peer(lambda source, output: [*command, f"input={source}", str(output)], run),
    )
    front = [sys.executable, str(folder / "onnx" / "classify.py")]
    yield (
        "classify.py, ONNX",
        Peer(lambda source, output: [*front, str(source), str(output)], folder / "onnx"),
    )
    if importlib.util.find_spec("fasttext") is not None:
        yield (
            "fastText, words and pairs",
            worker("fasttext", fasttext_model(folder, texts, classes)),
        )
    yield "TF-IDF and logistic regression", worker("tfidf", folder / "tfidf.pickle")


def run_folder(
    folder: Path, size: ModelConfig, tokenizer: Tokenizer, texts: list[str], names: list[str]
) -> Path:
    """Write a run with random weights, and with the n-grams of the texts if it reads evidence."""
    config = TrainConfig(model=replace(size), data=DataConfig(max_length=LENGTH))
    known = None
    if size.evidence:
        none = KnownNgrams(np.zeros(0, np.uint64))
        words = encode_texts(tokenizer, [(text,) for text in texts], none).words
        assert words is not None
        known = known_ngrams(words)
    setup = Setup(config, names, tokenizer, {}, evidence=known)
    save_model(folder, setup, setup.build(), Chosen())
    return folder


def pipeline_folder(
    folder: Path, size: ModelConfig, tokenizer: Tokenizer, names: list[str]
) -> None:
    """Write a BERT of the same size with random weights."""
    theirs = transformers()
    special = {
        "pad_token": PADDING,
        "unk_token": UNKNOWN,
        "cls_token": CLASS,
        "sep_token": SEPARATOR,
    }
    copy = Tokenizer.from_str(tokenizer.to_str())  # which the pipeline tells to pad
    fast = theirs.PreTrainedTokenizerFast(tokenizer_object=copy, model_max_length=LENGTH, **special)
    architecture = bert_config(size, tokenizer.get_vocab_size(), len(names), LENGTH)
    fast.save_pretrained(folder)
    theirs.BertForSequenceClassification(architecture).save_pretrained(folder)


def fasttext_model(folder: Path, texts: list[str], classes: list[str]) -> Path:
    """Train fastText for an epoch, and write it."""
    import fasttext

    lines = [
        f"__label__{label.replace(' ', '_')} {' '.join(text.split())}\n"
        for text, label in zip(texts, classes, strict=True)
    ]
    (folder / "fasttext.txt").write_text("".join(lines), encoding="utf-8")
    path = folder / "fasttext.bin"
    model = fasttext.train_supervised(
        str(folder / "fasttext.txt"), epoch=1, wordNgrams=2, thread=1, verbose=0
    )
    model.save_model(str(path))
    return path


if __name__ == "__main__":
    main()
