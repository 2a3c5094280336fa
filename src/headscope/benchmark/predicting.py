"""From a file of texts to a file of labels: scripts/predict.py beside a Hugging Face pipeline of equal size."""

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np
import torch
from tokenizers import Tokenizer

from headscope.benchmark.config import BenchmarkConfig
from headscope.benchmark.machine import has_bfloat16
from headscope.benchmark.page import Table
from headscope.benchmark.peers import bert_config, our_config, transformers
from headscope.benchmark.process import Finished, finished
from headscope.benchmark.timing import Timing
from headscope.benchmark.workload import lognormal_lengths, sizes_of
from headscope.data.cache import cache_folder
from headscope.data.config import DataConfig
from headscope.data.licenses import load_licenses
from headscope.data.tokenizer import CLASS, PADDING, SEPARATOR, UNKNOWN, trained_tokenizer
from headscope.training.config import TrainConfig
from headscope.training.folder import build_model, save_config, save_vocabulary, save_weights

TEXTS = 5  # times config.texts
BATCH = 32  # texts of the pipeline's batch
WANTED = 4.0  # times as fast as the pipeline
PIPELINE, SORTED = f"pipeline, batch of {BATCH}", f"pipeline, texts sorted, batch of {BATCH}"
OURS, HALF = "headscope", "headscope, precision=bf16-mixed"
Command = Callable[[Path, Path], list[str]]  # from input and output to what this Python is started with
Tell = Callable[[str], object]


@dataclass(frozen=True)
class Round:
    """One way, run twice: on a single text, which is starting up, and on all of them."""

    single: Finished
    whole: Finished

    @property
    def labelling(self) -> float:
        """Seconds of all texts without those of a single one."""
        return max(self.whole.seconds - self.single.seconds, 1e-6)


def measure(config: BenchmarkConfig, device: torch.device, tell: Tell) -> list[Table]:
    """Time every way from texts to labels in a file, each in a process of its own, in turn.

    Raises:
        ConfigError: if peers are asked for and transformers is not installed.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tell("making texts, tokenizer and models")
        texts, tokenizer, labels = _default_texts(config)
        lengths = [len(encoding) for encoding in tokenizer.encode_batch_fast(texts)]
        _write(folder / "all.jsonl", texts)
        _write(folder / "single.jsonl", texts[:1])
        commands = _commands(config, device, folder, tokenizer, labels)
        rounds = _in_turn(commands, folder, config.rounds, tell)
    return [_table(rounds, np.asarray(lengths), config)]


def _default_texts(config: BenchmarkConfig) -> tuple[list[str], Tokenizer, list[str]]:
    """Return the made texts, the tokenizer for them, and the names of the classes."""
    corpus = load_licenses(cache_folder(None))
    training = config_of_training(config)
    tokenizer = trained_tokenizer(corpus["text"][:], training.tokenizer, config.max_length, cache_folder(None))
    lengths = lognormal_lengths(TEXTS * config.texts, longest=config.max_length)
    return made_texts(corpus["text"][:], lengths, tokenizer), tokenizer, corpus.features["label"].names


def made_texts(corpus: Sequence[str], lengths: np.ndarray, tokenizer: Tokenizer) -> list[str]:
    """Return texts of about these lengths in tokens: stretches of the words of all texts, end to end.

    A text has lengths / (tokens per word, on average over the texts) words, so that its own length in tokens strays.
    """
    words = " ".join(corpus).split()
    tokenizer = Tokenizer.from_str(tokenizer.to_str())
    tokenizer.no_truncation()
    sample = words[:20_000]
    per_word = len(tokenizer.encode(" ".join(sample), add_special_tokens=False)) / len(sample)
    counts = np.maximum(1, ((lengths - 2) / per_word).round().astype(np.int64))  # 2: [CLS] and [SEP]
    starts = np.random.default_rng(0).integers(0, max(1, len(words) - counts.max()), len(counts))
    return [" ".join(words[start : start + count]) for start, count in zip(starts, counts, strict=True)]


def config_of_training(config: BenchmarkConfig) -> TrainConfig:
    """Return the settings of a run of the benchmark's sizes."""
    data = DataConfig(max_length=config.max_length, tokens_per_batch=max(config.max_length, 2048))
    return TrainConfig(data=data, model=our_config(sizes_of(config)))


def _write(path: Path, texts: Sequence[str]) -> None:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")


def _commands(
    config: BenchmarkConfig, device: torch.device, folder: Path, tokenizer: Tokenizer, labels: list[str]
) -> dict[str, Command]:
    run, bert = folder / "run", folder / "bert"
    fixed = ["scripts/predict.py", f"run={run}", f"accelerator={'gpu' if device.type == 'cuda' else 'cpu'}"]

    def ours(precision: str) -> Command:
        return lambda source, target: [*fixed, f"input={source}", f"output={target}", f"precision={precision}"]

    def peer(order: str) -> Command:
        script = ["-m", "headscope.benchmark.hugging_face_predict", str(bert)]
        return lambda source, target: [*script, str(source), str(target), device.type, str(BATCH), order]

    _save_run(run, config, tokenizer, labels)
    found = {OURS: ours("32-true"), **({HALF: ours("bf16-mixed")} if has_bfloat16(device) else {})}
    if not config.peers:
        return found
    _save_bert(bert, config, tokenizer, labels)
    return {PIPELINE: peer("given"), SORTED: peer("sorted"), **found}


def _save_run(folder: Path, config: BenchmarkConfig, tokenizer: Tokenizer, labels: list[str]) -> None:
    """Write the folder of a run that was never trained: labels cost the same, right or wrong."""
    training = config_of_training(config)
    folder.mkdir()
    save_config(folder, training)
    save_vocabulary(folder, tokenizer, labels)
    save_weights(folder, build_model(training, tokenizer, labels))


def _save_bert(folder: Path, config: BenchmarkConfig, tokenizer: Tokenizer, labels: list[str]) -> None:
    theirs = transformers()
    sizes = replace(sizes_of(config), vocab_size=tokenizer.get_vocab_size(), num_classes=len(labels))
    architecture = bert_config(sizes, config.max_length)
    architecture.id2label = dict(enumerate(labels))
    architecture.label2id = {label: number for number, label in enumerate(labels)}
    theirs.BertForSequenceClassification(architecture).save_pretrained(folder)
    names = {"pad_token": PADDING, "unk_token": UNKNOWN, "cls_token": CLASS, "sep_token": SEPARATOR}
    fast = theirs.PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=config.max_length, **names)
    fast.save_pretrained(folder)


def _in_turn(commands: Mapping[str, Command], folder: Path, rounds: int, tell: Tell) -> dict[str, list[Round]]:
    """Run every way once unseen on a single text, then all of them in turn, round by round."""
    single, whole = folder / "single.jsonl", folder / "all.jsonl"

    def run(name: str, source: Path) -> Finished:
        return finished(commands[name](source, folder / "labels.jsonl"), {"HF_HUB_OFFLINE": "1"})

    for name in commands:
        tell(f"{name}, warming up")
        run(name, single)
    taken: dict[str, list[Round]] = {name: [] for name in commands}
    for number in range(rounds):
        for name in commands:
            tell(f"{name}, round {number + 1} of {rounds}")
            taken[name].append(Round(run(name, single), run(name, whole)))
    return taken


def _table(taken: Mapping[str, Sequence[Round]], lengths: np.ndarray, config: BenchmarkConfig) -> Table:
    whole = {name: Timing(tuple(one.whole.seconds for one in rounds)) for name, rounds in taken.items()}
    labelling = {name: Timing(tuple(one.labelling for one in rounds)) for name, rounds in taken.items()}
    first = next(iter(taken))  # the pipeline, or we ourselves without it
    rows = [
        (
            name,
            f"{whole[name].median:.3g}",
            f"{whole[name].spread:.0%}",
            f"{whole[first].ratio_to(whole[name]):.2f}",
            f"{labelling[name].median:.3g}",
            f"{len(lengths) / labelling[name].median:,.0f}",
            f"{lengths.sum() / labelling[name].median:,.0f}",
            f"{labelling[first].ratio_to(labelling[name]):.2f}",
            f"{median(one.whole.peak_mib for one in rounds):,.0f}",
        )
        for name, rounds in taken.items()
    ]
    columns = (
        "texts to labels in a file", "seconds", "spread", "ratio", "seconds without starting up", "texts/s", "tokens/s",
        "ratio without starting up", "peak MiB",
    )  # fmt: skip
    return Table("From a file of texts to a file of labels", columns, rows, _notes(whole, lengths, config))


def _notes(whole: Mapping[str, Timing], lengths: np.ndarray, config: BenchmarkConfig) -> tuple[str, ...]:
    sizes = (
        f"{len(lengths):,} texts of the embedded licences' words, {lengths.sum():,} tokens, lognormal: median "
        f"{np.median(lengths):.0f}, longest {lengths.max()}. Every way reads them from a jsonl file, cuts them by the "
        "same tokenizer and writes one row for each, in a process of its own. Networks: random weights, float32 where "
        f"nothing else is said, no n-grams, "
        f"d_model {config.d_model}, {config.num_heads} heads, {config.num_layers} layers, feed-forward "
        f"{4 * config.d_model}."
    )
    meaning = (
        "Seconds: from the start of the process to its end. Starting up was measured with a file of one text, in the "
        "same round, and taken off; rates are of what is left. Padding is no token. Ratio: the median, over rounds, of "
        "the first row's seconds / the row's."
    )
    if PIPELINE not in whole:
        return sizes, meaning
    ratio = whole[PIPELINE].ratio_to(whole[OURS])
    verdict = f"{ratio:.2f} times as fast as the pipeline with a batch of {BATCH}, wanted at least {WANTED:g}"
    return sizes, meaning, f"Target {'met' if ratio >= WANTED else 'MISSED'}: {verdict}."
