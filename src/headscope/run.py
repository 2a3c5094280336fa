"""What a run folder holds, and how it is written and read. Free of lightning, so that predicting starts fast.

    outputs/<name>/
        config.yaml          every setting, resolved
        tokenizer.json       the trained tokenizer, or the checkpoint's
        encoder.json         what the encoder of a checkpoint looks like, where model.path named one
        labels.json          the classes' names, in the order of the logits
        data.json            a digest of each split, so that changed data are noticed
        evidence.safetensors with model.evidence: the known n-grams
        model.safetensors    the best weights by validation macro-F1
        thresholds.json      with data.multi_label: the probability from which on a text is given each class
        calibration.json     the temperature that probabilities are taken at; older runs have none, which is 1
        metrics.json         scores, baseline, facts about the data, seconds
        most_wrong.html      the test texts that the model is most wrong about, with all heads
        checkpoints/         best.ckpt; last.ckpt to go on from, and last.previous.ckpt, the one before
        events.out.tfevents… what TensorBoard shows

Nothing here has to be unpickled by who uses the model.
"""

import filecmp
import json
import math
import os
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from omegaconf import OmegaConf
from safetensors.torch import load_file, load_model, save_model
from tokenizers import Tokenizer
from torch import Tensor

from headscope.config import TrainConfig, absolute
from headscope.data.batching import TextBatches, encode_texts, moved
from headscope.data.evidence import FOLDS, EvidenceVocabulary, load_evidence
from headscope.data.tokenizer import as_json, load_tokenizer, shown_tokens
from headscope.errors import ConfigError, RunError, UserWarningMessage, listed
from headscope.extension import check_allowed
from headscope.files import (
    MIB,
    TRY_ANOTHER,
    check_is_file,
    read_json,
    reading,
    replacing,
    write_atomic,
)
from headscope.heads.contributions import class_direction, logit_contributions
from headscope.model.classifier import TextClassifier
from headscope.model.objective import ONE_CLASS, MultiLabel, Objective
from headscope.model.pretrained import Architecture, architecture_json, load_architecture
from headscope.record.contributions import Contributions
from headscope.record.schema import label_text
from headscope.settings import described, read_config, structured
from headscope.training.predict import probabilities

if TYPE_CHECKING:
    from headscope.heads.show import HeadView

CONFIG, TOKENIZER, LABELS, WEIGHTS = (
    "config.yaml",
    "tokenizer.json",
    "labels.json",
    "model.safetensors",
)
ENCODER, EVIDENCE, THRESHOLDS = "encoder.json", "evidence.safetensors", "thresholds.json"
CALIBRATION, MOST_WRONG, METRICS, HEADS = (
    "calibration.json",
    "most_wrong.html",
    "metrics.json",
    "heads.json",
)
VALIDATIONS = "validations.json"
DERIVED_FILES = (
    CALIBRATION,
    MOST_WRONG,
    METRICS,
    HEADS,
    THRESHOLDS,
)  # stale once the weights change

SHOWN_HEADS = 8  # of an explanation, when it is printed
# On a CPU a hidden layer of 8192 positions no longer fits the cache, and each batch waits for fresh pages.
TOKENS_PER_BATCH = {"cpu": 2048}
TextOrPair = str | tuple[str, str]


@dataclass(frozen=True)
class Prediction:
    """What a text is given.

    Attributes:
        labels: its class; with data.multi_label all that reach their thresholds, perhaps none.
        probabilities: of each class, by its name.
    """

    labels: list[str]
    probabilities: dict[str, float]

    @property
    def label(self) -> str:
        """The class, or, with data.multi_label, all of them with commas between them, or "none"."""
        return label_text(self.labels)


@dataclass(frozen=True, eq=False)
class Explanation:
    """What every head put for the likeliest class, in nats; `print` shows the heads that put most.

    Where a text has one of C classes, that is for the class against the mean of all; with data.multi_label, for the
    class against its absence. All parts sum to the class's logit, less that mean (`headscope.heads.contributions`).

    Attributes:
        label: the likeliest class.
        probabilities: of each class, by its name.
        tokens: of the text, as a person reads them.
        put: what each head of each layer put for the class, by the token that it read.
        spoken: heads, feed-forward blocks and constant, with the tokens that count most.
    """

    label: str
    probabilities: dict[str, float]
    tokens: list[str]
    put: Float[np.ndarray, "L H T"]
    spoken: Contributions

    def __str__(self) -> str:
        """Return the class, a sentence about it, and a line for each of the heads that put most."""
        order = np.argsort(-np.abs(self.spoken.heads), axis=None, kind="stable")[:SHOWN_HEADS]
        places = [divmod(int(place), self.spoken.heads.shape[1]) for place in order]
        lines = [
            f"layer {layer} head {head} {self.spoken.line(layer, head)}" for layer, head in places
        ]
        return "\n".join(
            [f"{self.label} {self.probabilities[self.label]:.4f}", self.spoken.sentence(), *lines]
        )


@dataclass(frozen=True)
class Run:
    """A finished run, ready to be used.

    The model takes more than token ids: `predict` and `explain` give it all that it was trained with.

    Attributes:
        folder: that it was loaded from.
        config: every setting.
        tokenizer: whose ids the model reads.
        labels: the classes, in the order of the logits.
        model: in eval mode, on the CPU; `run.model.to("cuda")` moves it.
        objective: what labels are: one of the classes, or any number of them with their thresholds.
        temperature: by which logits are divided before they become probabilities.
        evidence: the n-grams that its tokens may have.
    """

    folder: Path
    config: TrainConfig
    tokenizer: Tokenizer
    labels: list[str]
    model: TextClassifier
    objective: Objective = ONE_CLASS
    temperature: float = 1.0
    evidence: EvidenceVocabulary | None = None

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.model.head.weight.device

    def predict(
        self, texts: Sequence[TextOrPair], tokens_per_batch: int | None = None
    ) -> list[Prediction]:
        """Return what each text is given, with the probabilities that `headscope predict` writes.

        Args:
            texts: a list of texts, or of pairs (text, text_pair) if the run was trained on pairs.
            tokens_per_batch: positions of a batch, padding included; 2048 on a CPU, else 65536.

        Raises:
            ValueError: for a text where a pair is needed, or the other way round.
        """
        parts = self._parts(texts)
        if not parts:
            return []
        encoded = encode_texts(self.tokenizer, parts, self.evidence)
        positions = tokens_per_batch or TOKENS_PER_BATCH.get(self.device.type, 65536)
        shares = probabilities(
            self.model,
            encoded,
            positions,
            self.device,
            objective=self.objective,
            temperature=self.temperature,
        )
        answers = self.objective.names(self.objective.predicted(shares), self.labels)
        return [
            Prediction(
                [answer] if isinstance(answer, str) else answer,
                dict(zip(self.labels, row, strict=True)),
            )
            for answer, row in zip(answers, shares.tolist(), strict=True)
        ]

    def explain(self, text: TextOrPair) -> Explanation:
        """Return what every head put for the likeliest class of a text, and from which tokens.

        Raises:
            ValueError: for a text where a pair is needed, or the other way round, or if the model is not read out at
                [CLS], so that tokens reach the logits past the heads.
        """
        (parts,) = self._parts([text])
        encoded = encode_texts(self.tokenizer, [parts], self.evidence)
        found = logit_contributions(
            self.model, *moved(TextBatches(encoded)[[0]], self.device).inputs
        )[0]
        label, weights = (
            self.labels[int(found.logits.argmax())],
            class_direction(found.logits, self.objective),
        )
        encoding = self.tokenizer.encode(parts[0], parts[1] if len(parts) == 2 else None)
        tokens = shown_tokens(self.tokenizer, encoding, parts)
        assert found.tokens is not None
        put = (found.tokens @ weights).numpy()  # [L, H, T, C] @ [C]
        (prediction,) = self.predict([text])
        return Explanation(
            label, prediction.probabilities, tokens, put, found.along(weights, label, tokens)
        )

    def show(self, text: TextOrPair) -> "HeadView":
        """Show what every head does with a text; last in a notebook's cell, its page. Errors as in `predict`."""
        # They bring what predicting does without.
        from headscope.heads.report import make_probe, readout_position, run_probe
        from headscope.heads.show import head_view

        (parts,) = self._parts([text])
        length, readout = self.config.data.max_length, readout_position(self.model)
        probe = make_probe(self.tokenizer, parts, None, length, self.evidence, readout)
        output = run_probe(
            self.model, probe, self.labels, self.objective, self.temperature, with_ablations=True
        )
        return head_view(output, None, {"run": str(self.folder)})

    def _parts(self, texts: Sequence[TextOrPair]) -> list[tuple[str, ...]]:
        count = 2 if self.config.data.text_pair_column else 1
        if isinstance(texts, str):
            raise ValueError("takes a list of texts, got one text; write [text]")
        parts = [(text,) if isinstance(text, str) else tuple(text) for text in texts]
        for number, part in enumerate(parts):
            if len(part) != count or not all(isinstance(text, str) for text in part):
                takes = "pairs (text, text_pair)" if count == 2 else "single texts"
                raise ValueError(
                    f"text {number}: {self.folder} was trained on {takes}, got {texts[number]!r}"
                )
        return parts


def load_run(folder: str | Path, allow_code: bool = False) -> Run:
    """Load a run folder's model, in eval mode and on the CPU.

    Args:
        folder: that `headscope train` has written.
        allow_code: import the modules that the run's settings name, such as model.attention=my_package.MyAttention.
            That runs whatever is in them, so it is refused unless allowed, here or by HEADSCOPE_ALLOW_CODE=1.

    Raises:
        RunError: if a file is missing or broken, or the run names code that is not allowed; the message names it.
        ConfigError: if that code cannot be imported.
    """
    folder = Path(folder)
    config = load_config(folder, allow_code)
    needed = [TOKENIZER, LABELS, WEIGHTS]
    needed += [ENCODER] * bool(config.model.path) + [EVIDENCE] * bool(config.model.evidence)
    missing = [name for name in needed if not (folder / name).exists()]
    if missing:
        raise RunError(
            f"run={folder}: {', '.join(missing)} missing, so it did not finish; "
            f"go on with: headscope train resume={folder}"
        )
    labels, architecture = kept_labels(folder), kept_architecture(folder, config)
    tokenizer, evidence = (
        kept_tokenizer(folder, config, architecture),
        kept_evidence(folder, config),
    )
    check_memory(config, tokenizer, labels, architecture, evidence, folder)
    with reading(folder / CONFIG):
        model = build_model(config, tokenizer, labels, architecture, evidence)
    _load_weights(model, folder / WEIGHTS)
    objective, temperature = kept_objective(folder, config, labels), load_temperature(folder)
    return Run(folder, config, tokenizer, labels, model.eval(), objective, temperature, evidence)


def _load_weights(model: TextClassifier, path: Path) -> None:
    """Put the weights of a run into its network; RunError if they are another's, or are no numbers."""
    with reading(path):
        check_is_file(path)
        kept, wanted = load_file(path), model.state_dict()
        for name, tensor in kept.items():
            if name in wanted and (
                tensor.dtype != wanted[name].dtype or not tensor.isfinite().all()
            ):
                raise ValueError(
                    f"holds {name} with values that are no numbers of type {wanted[name].dtype}"
                )
        shapes = {
            name: (list(tensor.shape), list(wanted[name].shape))
            for name, tensor in kept.items()
            if name in wanted
        }
        others = [
            f"{name} is {there}, not {here}"
            for name, (there, here) in shapes.items()
            if there != here
        ]
        if not others:
            missing, unknown = load_model(model, path, strict=False)
            others = [f"it lacks {name}" for name in missing] + [
                f"it has {name}" for name in unknown
            ]
    if others:
        more = f", and {len(others) - 1} more such" if len(others) > 1 else ""
        raise RunError(
            f"run={path.parent}: {path.name} does not go with {CONFIG}, {TOKENIZER} and {LABELS}: {others[0]}{more}; "
            f"{TRY_ANOTHER}"
        )


def load_config(folder: Path, allow_code: bool = False) -> TrainConfig:
    """Read config.yaml, checking its keys and types; for `allow_code` see `load_run`.

    Raises:
        RunError: if there is none, it does not fit this version, or it names code that is not allowed.
    """
    config: TrainConfig = read_config(folder / CONFIG, TrainConfig)
    check_allowed(config, folder, allow_code)
    return config


def build_model(
    config: TrainConfig,
    tokenizer: Tokenizer,
    labels: list[str],
    architecture: Architecture | None = None,
    evidence: EvidenceVocabulary | None = None,
) -> TextClassifier:
    """Return the untrained network that a configuration, its tokens, classes and n-grams ask for."""
    sizes = (
        tokenizer.get_vocab_size(),
        len(labels),
        config.data.max_length,
        2 if config.data.text_pair_column else 1,
    )
    return TextClassifier(
        config.model, *sizes, architecture, 0 if evidence is None else len(evidence)
    )


def check_memory(
    config: TrainConfig,
    tokenizer: Tokenizer,
    labels: list[str],
    architecture: Architecture | None = None,
    evidence: EvidenceVocabulary | None = None,
    run: Path | None = None,
) -> None:
    """Refuse a network whose largest matrices and tables alone do not fit into this machine's memory.

    Raises:
        RunError: for the network of a `run`.
        ConfigError: for one that is to be trained, on a CPU with its gradient and the two averages of AdamW.
    """
    sizes, is_plain = architecture or config.model, config.model.attention == "multi_head"
    D, of_block = (
        sizes.d_model,
        2 * sizes.feedforward_size + 2 * sizes.d_model * is_plain,
    )  # columns of D weights
    weights = D * (_vocabulary_size(tokenizer, architecture) + sizes.num_layers * of_block)
    told = (
        0 if evidence is None else len(evidence) * len(labels)
    )  # what each n-gram says about each class
    copies = 4 if run is None and best_device(config.trainer.accelerator).type == "cpu" else 1
    tables = (
        FOLDS + 5 if run is None else 1
    )  # in training also without each fold, and what they are counted from
    needed, there = 4 * (copies * weights + tables * told) / 2**30, _memory() / 2**30
    if needed > there:
        has = f"at least {weights + told:,} weights, which take {needed:,.0f} GiB, and this machine has {there:,.0f}"
        if run is not None:
            raise RunError(f"run={run}: its network has {has}")
        lower = (
            "lower model.d_model, model.num_layers, model.feedforward_size or tokenizer.vocab_size"
        )
        without = f"set model.evidence=false: {len(labels):,} classes are many for it"
        raise ConfigError(
            f"model: has {has}; {without if tables * told > copies * weights else lower}"
        )


def _memory() -> float:
    """Return the bytes of memory that this process may take: the machine's, or its container's."""
    found = [math.inf]
    with suppress(AttributeError, ValueError, OSError):  # unknown on Windows
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with suppress(ValueError, OSError):  # "max" where a container has no limit
        found.append(int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="utf-8")))
    return float(min(found))


def best_device(accelerator: str = "auto", key: str = "accelerator") -> torch.device:
    """Return the device for auto, cpu, gpu or mps; ConfigError, which names the key, if there is none of that kind."""
    if accelerator in ("auto", "gpu") and torch.cuda.is_available():
        return torch.device("cuda")
    if accelerator in ("auto", "gpu", "mps") and torch.backends.mps.is_available():
        return torch.device("mps")
    if accelerator not in ("auto", "cpu"):
        raise ConfigError(
            f"{key}: got {accelerator!r}, and torch finds none on this machine; takes auto or cpu here"
        )
    return torch.device("cpu")


def kept_labels(folder: Path) -> list[str]:
    """Read labels.json."""
    path = folder / LABELS
    labels: list[str] = read_json(path, list)
    with reading(path):
        if (
            not labels
            or not all(isinstance(label, str) for label in labels)
            or len({*labels}) < len(labels)
        ):
            raise ValueError("takes the names of classes, each once")
    return labels


def kept_tokenizer(
    folder: Path, config: TrainConfig, architecture: Architecture | None = None
) -> Tokenizer:
    """Read tokenizer.json, whose tokens must fit the network."""
    path = folder / TOKENIZER
    with reading(path):
        check_is_file(path, 1024 * MIB)
        tokenizer = load_tokenizer(path, config.tokenizer.segmenter)
        cut = tokenizer.truncation
        if cut is not None and not 0 < cut["max_length"] <= config.data.max_length:
            raise ValueError(
                f"does not cut texts to data.max_length={config.data.max_length} tokens"
            )
        tokenizer.enable_truncation(config.data.max_length)
        size = _vocabulary_size(tokenizer, architecture)
        for tried in (tokenizer.encode("a"), tokenizer.encode("a", "b")):
            lengths = {len(tried.ids), len(tried.tokens), len(tried.offsets)}
            if max(*tokenizer.get_vocab().values(), *tried.ids) >= size or len(lengths) > 1:
                raise ValueError(f"has tokens other than the {size} that the network knows")
    return tokenizer


def _vocabulary_size(tokenizer: Tokenizer, architecture: Architecture | None) -> int:
    size: int = tokenizer.get_vocab_size() if architecture is None else architecture.vocab_size
    return size


def kept_architecture(folder: Path, config: TrainConfig) -> Architecture | None:
    """Read encoder.json; None for a run from scratch, which has none."""
    return None if config.model.path is None else load_architecture(folder / ENCODER)


def kept_evidence(folder: Path, config: TrainConfig) -> EvidenceVocabulary | None:
    """Read evidence.safetensors; None for a run whose tokens carry no evidence."""
    return load_evidence(folder / EVIDENCE) if config.model.evidence else None


def objective_of(config: TrainConfig) -> Objective:
    """Return what the configuration says that labels are."""
    return MultiLabel() if config.data.multi_label else ONE_CLASS


def kept_objective(folder: Path, config: TrainConfig, labels: list[str]) -> Objective:
    """Return what labels are; where a text has any number of them, with the thresholds of thresholds.json."""
    path = folder / THRESHOLDS
    if not config.data.multi_label:
        return objective_of(config)
    if not path.exists():
        if (folder / METRICS).exists():  # the run has ended, and had thresholds
            said = f"{folder} has no {THRESHOLDS}: a class is given from a probability of 0.5 on"
            warnings.warn(UserWarningMessage(said), stacklevel=2)
        return objective_of(config)
    kept = read_json(path, dict)
    with reading(path):
        if kept.keys() != {*labels} or not all(
            _is_number(value, 0.0, 1.0) for value in kept.values()
        ):
            raise ValueError(f"takes a number from 0 to 1 for each of {listed(labels)}")
        return MultiLabel(torch.tensor([kept[label] for label in labels], dtype=torch.float64))


def load_temperature(folder: Path) -> float:
    """Read the temperature in calibration.json, or else in metrics.json; 1 where neither has one."""
    path, content = folder / CALIBRATION, None
    if path.exists():
        content = read_json(path, dict)
    elif (folder / METRICS).exists():
        path = folder / METRICS
        content = read_json(path, dict).get("calibration")
    if content is None:
        return 1.0
    with reading(path):
        temperature = content.get("temperature")
        if not _is_number(temperature, 1e-6, 1e6):
            raise ValueError(f"its temperature is {temperature!r}, takes a number above 0")
    return float(temperature)


def _is_number(value: object, least: float, most: float) -> bool:
    return type(value) in (int, float) and least <= value <= most  # type: ignore[operator]


def read_metric(folder: Path, name: str) -> Any:
    """Return one of the facts of training in metrics.json; None before the run's end."""
    path = folder / METRICS
    if not path.exists():
        return None
    content = read_json(path, dict)
    with reading(path):
        return content["training"].get(name)


def save_json(path: Path, content: Any) -> None:
    """Write JSON, whole or not at all."""
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    write_atomic(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def save_config(folder: Path, config: TrainConfig, put: Callable[..., Path] = write_atomic) -> None:
    """Write config.yaml by `put`: `create_whole` raises FileExistsError where another run has written one.

    Paths in it are absolute, so that the run finds its texts from any folder.
    """

    def anywhere(group: Any, *keys: str) -> Any:
        return replace(
            group, **{key: absolute(path) for key in keys if (path := getattr(group, key))}
        )

    kept = replace(
        config,
        data=anywhere(config.data, "path", "validation_path", "test_path", "cache_dir"),
        model=anywhere(config.model, "path"),
        inspection=anywhere(config.inspection, "font"),
    )
    put(folder / CONFIG, lambda path: OmegaConf.save(structured(kept), path))


def save_tokenizer(folder: Path, tokenizer: Tokenizer) -> None:
    """Write tokenizer.json."""
    text = as_json(
        tokenizer, pretty=True
    )  # its own `save` raises no OSError where the disk is full
    write_atomic(folder / TOKENIZER, lambda path: path.write_text(text, encoding="utf-8"))


def save_vocabulary(
    folder: Path,
    tokenizer: Tokenizer,
    labels: list[str],
    evidence: EvidenceVocabulary | None = None,
) -> None:
    """Write tokenizer.json, labels.json and, where n-grams are known, evidence.safetensors."""
    if evidence is not None:
        evidence.save(folder / EVIDENCE)
    save_tokenizer(folder, tokenizer)
    save_json(folder / LABELS, labels)


def save_architecture(folder: Path, architecture: Architecture) -> None:
    """Write encoder.json."""
    save_json(folder / ENCODER, architecture_json(architecture))


def save_thresholds(folder: Path, labels: list[str], thresholds: Float[Tensor, " C"]) -> None:
    """Write thresholds.json."""
    save_json(folder / THRESHOLDS, dict(zip(labels, thresholds.tolist(), strict=True)))


def save_weights(folder: Path, model: TextClassifier) -> None:
    """Write model.safetensors; where the weights differ from those that it held, remove what was derived from them."""
    path = folder / WEIGHTS
    with replacing(path) as temporary:
        save_model(model, str(temporary))
        if not (path.is_file() and filecmp.cmp(path, temporary, shallow=False)):
            for name in DERIVED_FILES:  # first: older numbers must never stand beside new weights
                (folder / name).unlink(missing_ok=True)


def flat(config: TrainConfig) -> dict[str, Any]:
    """Return the settings as one plain dictionary with dotted keys, for the HParams tab."""
    kinds = (bool, int, float, str)
    return {
        key: value if isinstance(value, kinds) else str(value)
        for key, value, _ in described(config)
    }
