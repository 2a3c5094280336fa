"""A run folder, written by training and read by everything else, and what its model predicts.

    outputs/<name>/
        config.yaml          every setting, resolved
        tokenizer.json       the trained tokenizer, or the checkpoint's
        encoder.json         sizes of a pretrained encoder, with model.path
        labels.json          names of the classes, in the order of the logits
        data.json            a digest of each split, by which changed data are noticed
        evidence.safetensors the known n-grams, with model.evidence
        model.safetensors    the best weights by validation loss
        thresholds.json      with data.multi_label: the probability from which a class is predicted
        calibration.json     the temperature of the probabilities; 1 in older runs, which lack it
        manifest.json        digests of what decides an answer; older runs lack it
        metrics.json         scores, baseline, facts about data and training, seconds
        validations.json     the scores of each validation
        most_wrong.html      the misclassified test texts of the highest loss, with all heads
        checkpoints/         best.ckpt, and last.ckpt, from which training resumes
        heads/               the record of the attention heads, for TensorBoard's Heads tab
        events.out.tfevents… scalars, images and texts for TensorBoard

Nothing in it is unpickled to use the model. Free of lightning, so that predicting starts fast.
"""

import filecmp
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import torch
from jaxtyping import Float
from pydantic import Field, TypeAdapter
from safetensors.torch import load_file, load_model, save_model
from tokenizers import Tokenizer
from torch import Tensor, nn

from headscope.config import TrainConfig, absolute, read_config
from headscope.data.batching import TextBatches, encode_texts, moved
from headscope.data.evidence import FOLDS, EvidenceVocabulary, load_evidence
from headscope.data.tokenizer import as_json, load_tokenizer, shown_tokens
from headscope.errors import ConfigError, RunError, listed, warn
from headscope.extension import check_allowed
from headscope.files import MIB, check_is_file, read_json, reading, replacing, write_text
from headscope.heads.capture import capture, is_observed
from headscope.heads.contributions import ONLY_FIRST, explain, has_contributions
from headscope.manifest import MANIFEST, check_manifest, note_edits
from headscope.model.classifier import TextClassifier
from headscope.model.objective import ONE_CLASS, MultiLabel, Objective
from headscope.model.pretrained import Architecture, architecture_json, load_architecture
from headscope.prediction import available_memory, best_device, probabilities
from headscope.record.contributions import Explanation
from headscope.record.schema import label_text
from headscope.validation import to_yaml

if TYPE_CHECKING:
    from headscope.heads.show import HeadView

CONFIG = "config.yaml"
TOKENIZER = "tokenizer.json"
ENCODER = "encoder.json"
LABELS = "labels.json"
EVIDENCE = "evidence.safetensors"
WEIGHTS = "model.safetensors"
THRESHOLDS = "thresholds.json"
CALIBRATION = "calibration.json"
METRICS = "metrics.json"
VALIDATIONS = "validations.json"
MOST_WRONG = "most_wrong.html"
HEADS = "heads.json"
# Made from the weights:
DERIVED_FILES = (MANIFEST, CALIBRATION, MOST_WRONG, METRICS, HEADS, THRESHOLDS)

# On a CPU a hidden layer of 8192 positions no longer fits the cache.
TOKENS_PER_BATCH = {"cpu": 2048}
TextOrPair = str | tuple[str, str]


@dataclass(frozen=True)
class Prediction:
    """The classes of a text; with data.multi_label those that reach their thresholds.

    Attributes:
        labels: the predicted classes, by name: one, or with data.multi_label any number.
        probabilities: of each class, by name.
    """

    labels: list[str]
    probabilities: dict[str, float]

    @property
    def label(self) -> str:
        """The class; with data.multi_label the classes, joined by commas, or "none"."""
        return label_text(self.labels)


@dataclass(frozen=True)
class Run:
    """A finished run, ready to be used.

    The model reads more than token ids; `predict` and `explain` give it all of its inputs.

    Attributes:
        folder: where it was loaded from.
        config: every setting.
        tokenizer: of the model's token ids.
        labels: the classes, in the order of the logits.
        model: in eval mode, on the CPU; `run.model.to("cuda")` moves it.
        objective: single-label, or multi-label with a threshold for each class.
        temperature: divides the logits before they become probabilities.
        evidence: the known n-grams.
    """

    folder: Path
    config: TrainConfig
    tokenizer: Tokenizer
    labels: list[str]
    model: TextClassifier
    objective: Objective = ONE_CLASS
    temperature: float = 1.0
    evidence: EvidenceVocabulary | None = None

    def __repr__(self) -> str:
        """Return where it was loaded from and its classes; a tokenizer may have no printed form."""
        return f"Run({str(self.folder)!r}, classes: {listed(self.labels)})"

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.model.head.weight.device

    def predict(
        self, texts: Sequence[TextOrPair], tokens_per_batch: int | None = None
    ) -> list[Prediction]:
        """Return the prediction for each text, as `headscope predict` writes it.

        A run on pairs takes pairs (text, text_pair). A batch has at most `tokens_per_batch`
        positions, padding included; by default 2048 on a CPU, else 65536.

        Raises:
            ValueError: for a text where a pair is expected, or a pair where a text is; or within
                `headscope.capture` of the model, whose maps would be those of the last batch.
        """
        if is_observed(self.model):
            raise ValueError(
                "predict: expected no capture of run.model around it: texts run in batches by "
                "length, so a map would belong to another text; call run.maps(texts)"
            )
        parts = self._parts(texts)
        if not parts:
            return []
        shares = probabilities(
            self.model,
            encode_texts(self.tokenizer, parts, self.evidence),
            tokens_per_batch or TOKENS_PER_BATCH.get(self.device.type, 65536),
            self.device,
            objective=self.objective,
            temperature=self.temperature,
        )
        answers = self.objective.names(self.objective.predicted(shares), self.labels)
        predictions = []
        for answer, row in zip(answers, shares.tolist(), strict=True):
            labels = [answer] if isinstance(answer, str) else answer
            predictions.append(Prediction(labels, dict(zip(self.labels, row, strict=True))))
        return predictions

    def maps(self, texts: Sequence[TextOrPair]) -> list[dict[str, Float[Tensor, "H Q K"]]]:
        """Return the attention weights of each text, in order: layer name -> [head, query, key].

        Each text runs alone, so there is no padding. Texts, pairs and errors are as in `predict`.
        """
        maps = []
        for part in self._parts(texts):
            batch = TextBatches(encode_texts(self.tokenizer, [part], self.evidence))[[0]]
            with torch.no_grad(), capture(self.model.eval()) as layers:
                self.model(*moved(batch, self.device).inputs)
            maps.append({name: weights[0].cpu() for name, weights in layers.items()})
        return maps

    def explain(self, text: TextOrPair, label: str | None = None) -> Explanation:
        """Return what each head adds from each token to the log-odds of a text's class.

            explanation = run.explain("a film that knows what it wants")
            explanation.words()  # the words over all heads, largest first

        By default of the likeliest class against the runner-up; `label` names another class.

        Raises:
            ValueError: as in `predict`; for a class that the run does not know; or if tokens bypass
                attention, as with model.pooling=mean.
        """
        (parts,) = self._parts([text])
        if label is not None and label not in self.labels:
            raise ValueError(f"label: expected one of {listed(self.labels)}, got {label!r}")
        if not has_contributions(self.model):
            raise ValueError(ONLY_FIRST)
        batch = TextBatches(encode_texts(self.tokenizer, [parts], self.evidence))[[0]]
        encoding = self.tokenizer.encode(parts[0], parts[1] if len(parts) == 2 else None)
        tokens = shown_tokens(self.tokenizer, encoding, parts)
        batch = moved(batch, self.device)
        with torch.no_grad():
            logits = self.model(*batch.inputs)[0].float().cpu()
        explanation = explain(
            self.model, batch, tokens, self.labels, logits, self.objective, self.temperature, label
        )
        assert explanation is not None
        return explanation

    def show(self, text: TextOrPair) -> "HeadView":
        """Show every head on a text: the last line of a notebook's cell displays the page."""
        # Imported here: predicting does without what they import.
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
        if isinstance(texts, str):
            raise ValueError("texts: expected a list of texts, got one text; write [text]")
        count = 2 if self.config.data.text_pair_column else 1
        parts = [(text,) if isinstance(text, str) else tuple(text) for text in texts]
        for number, part in enumerate(parts):
            if len(part) != count or not all(isinstance(text, str) for text in part):
                expected = "a pair (text, text_pair)" if count == 2 else "a text"
                raise ValueError(
                    f"texts[{number}]: expected {expected}, as {self.folder} was trained on, "
                    f"got {texts[number]!r}"
                )
        return parts


# Reading a run folder.


def load_run(folder: str | Path, allow_code: bool = False) -> Run:
    """Load a run folder's model, in eval mode and on the CPU.

    The modules that its settings name, such as model.attention=my_package.MyAttention, are imported
    with `allow_code` or HEADSCOPE_ALLOW_CODE=1 alone: that runs any code in them.

    Raises:
        RunError: if a file is missing, damaged or another run's, or names code that is not allowed.
        ConfigError: if that code cannot be imported.
    """
    folder = Path(folder)
    config = load_config(folder, allow_code)
    needed = [TOKENIZER, LABELS, WEIGHTS]
    needed += [ENCODER] * bool(config.model.path) + [EVIDENCE] * bool(config.model.evidence)
    if missing := [name for name in needed if not (folder / name).exists()]:
        raise RunError(
            f"run={folder}: has no {', '.join(missing)}, so it did not finish; "
            f"resume it: headscope train resume={folder}"
        )
    manifest = check_manifest(folder, config)
    labels = load_labels(folder)
    tokenizer, architecture, evidence = load_vocabulary(folder, config)
    parts = (tokenizer, labels, architecture, evidence)
    with reading(folder / CONFIG):
        check_memory(config, *parts, run=folder)
        model = build_model(config, *parts).eval()
    _load_weights(model, folder / WEIGHTS)
    objective = load_objective(folder, config, labels)
    temperature = load_temperature(folder)
    note_edits(folder, manifest, labels, objective, temperature)
    return Run(folder, config, tokenizer, labels, model, objective, temperature, evidence)


def load_config(folder: Path, allow_code: bool = False) -> TrainConfig:
    """Read config.yaml and check its keys, types and values; for `allow_code` see `load_run`.

    Raises:
        RunError: if it is missing, does not fit this version, or names code that is not allowed.
    """
    config = read_config(folder / CONFIG)
    check_allowed(config, folder, allow_code)
    return config


def load_labels(folder: Path) -> list[str]:
    """Read labels.json."""
    labels: list[str] = read_json(folder / LABELS, list[str])
    with reading(folder / LABELS):
        if not labels or len({*labels}) < len(labels):
            raise ValueError("expected names of classes, all different")
    return labels


def load_vocabulary(
    folder: Path, config: TrainConfig
) -> tuple[Tokenizer, Architecture | None, EvidenceVocabulary | None]:
    """Read tokenizer.json and, where the run has them, encoder.json and evidence.safetensors."""
    architecture = load_encoder(folder, config)
    path = folder / TOKENIZER
    max_length = config.data.max_length
    with reading(path):
        check_is_file(path, 1024 * MIB)
        tokenizer = load_tokenizer(path, config.tokenizer.segmenter)
        truncation = tokenizer.truncation
        if truncation is not None and not 0 < truncation["max_length"] <= max_length:
            raise ValueError(f"does not truncate texts to data.max_length={max_length} tokens")
        tokenizer.enable_truncation(max_length)
        vocab_size = architecture.vocab_size if architecture else tokenizer.get_vocab_size()
        ids = [*tokenizer.get_vocab().values(), *tokenizer.encode("a", "b").ids]
        if max(ids + tokenizer.encode("a").ids) >= vocab_size:
            raise ValueError(f"has ids beyond the network's {vocab_size} tokens")
    evidence = load_evidence(folder / EVIDENCE) if config.model.evidence else None
    return tokenizer, architecture, evidence


def load_encoder(folder: Path, config: TrainConfig) -> Architecture | None:
    """Read encoder.json; None for a run from scratch, which has none."""
    return None if config.model.path is None else load_architecture(folder / ENCODER)


def build_model(
    config: TrainConfig,
    tokenizer: Tokenizer,
    labels: Sequence[str],
    architecture: Architecture | None = None,
    evidence: EvidenceVocabulary | None = None,
) -> TextClassifier:
    """Return the untrained network for a configuration, its tokens, classes and n-grams."""
    return TextClassifier(
        config.model,
        tokenizer.get_vocab_size(),
        len(labels),
        config.data.max_length,
        2 if config.data.text_pair_column else 1,
        architecture,
        0 if evidence is None else len(evidence),
    )


def check_memory(config: TrainConfig, *parts: Any, run: Path | None = None) -> None:
    """Raise a RunError (ConfigError without `run`) for a network beyond this machine's memory.

    Training on a CPU also holds gradients, AdamW's two moments and the n-grams' ratios by fold.
    """
    try:
        with torch.device("meta"):
            model = build_model(config, *parts)
    except (ConfigError, RuntimeError, NotImplementedError):  # a layer of the user's own
        return
    num_weights = sum(weight.numel() for weight in model.parameters())
    num_values = num_weights + sum(buffer.numel() for buffer in model.buffers())
    if run is None and best_device(config.trainer.accelerator).type == "cpu":
        num_values += 3 * num_weights
    if run is None and model.evidence is not None:
        num_values += FOLDS * model.evidence.ratio.numel()
    needed = 4 * num_values / 2**30
    available = available_memory() / 2**30
    if needed <= available:
        return
    problem = (
        f"{num_weights:,} weights need at least {needed:,.0f} GiB of memory, "
        f"and this machine has {available:,.0f}"
    )
    if run is not None:
        raise RunError(f"run={run}: its {problem}")
    sizes = "model.d_model, model.num_layers, model.feedforward_size or tokenizer.vocab_size"
    raise ConfigError(f"model: {problem}; lower {sizes}, or set model.evidence=false")


def _load_weights(model: TextClassifier, path: Path) -> None:
    """Load model.safetensors; RunError if a name, shape, type or value does not fit the network."""
    with reading(path):
        check_is_file(path)
        tensors = load_file(path)
        check_shapes(tensors, model.state_dict())
        if not all(tensor.isfinite().all() for tensor in tensors.values()):
            raise ValueError("has values that are not finite")
        missing, _ = load_model(model, path, strict=False)  # which knows tensors that share memory
        if missing:
            raise ValueError(f"lacks {listed([*missing])}")


def check_shapes(tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Raise a ValueError unless each tensor is expected, in its shape and type."""
    for name, tensor in tensors.items():
        if name not in expected:
            raise ValueError(f"{name}: the network of {CONFIG} and {LABELS} has no such tensor")
        wanted = expected[name]
        if (tensor.dtype, tensor.shape) != (wanted.dtype, wanted.shape):
            raise ValueError(
                f"{name}: expected {wanted.dtype} {[*wanted.shape]} by {CONFIG} and {LABELS}, "
                f"got {tensor.dtype} {[*tensor.shape]}"
            )


def objective_of(config: TrainConfig) -> Objective:
    """Return the objective: one class for each text, or any number of them."""
    return MultiLabel() if config.data.multi_label else ONE_CLASS


def load_objective(folder: Path, config: TrainConfig, labels: list[str]) -> Objective:
    """Return the objective, with data.multi_label with the thresholds of thresholds.json."""
    path = folder / THRESHOLDS
    if not config.data.multi_label or not path.exists():
        if config.data.multi_label and (folder / METRICS).exists():  # a finished run had them
            warn(f"{folder} has no {THRESHOLDS}: every class has the threshold 0.5")
        return objective_of(config)
    thresholds = read_json(path, dict[str, Annotated[float, Field(ge=0, le=1)]])
    with reading(path):
        if thresholds.keys() != {*labels}:
            raise ValueError(f"expected a number from 0 to 1 for each of {listed(labels)}")
    return MultiLabel(torch.tensor([thresholds[label] for label in labels], dtype=torch.float64))


def load_temperature(folder: Path) -> float:
    """Read the temperature from calibration.json, else from metrics.json; 1 if neither has it."""
    path = folder / CALIBRATION
    content: Any = {"temperature": 1.0}
    if path.exists():
        content = read_json(path)
    elif (path := folder / METRICS).exists():
        content = read_json(path, dict).get("calibration") or content
    with reading(path):
        bounds = Annotated[float, Field(ge=1e-6, le=1e6)]
        return float(TypeAdapter(bounds).validate_python(content["temperature"], strict=True))


def read_metric(folder: Path, name: str) -> Any:
    """Return one of the facts about training in metrics.json; None before the run has finished."""
    path = folder / METRICS
    if not path.exists():
        return None
    content = read_json(path, dict)
    with reading(path):
        return content["training"].get(name)


# Writing a run folder.


def save_json(path: Path, content: Any) -> None:
    """Write JSON, whole or not at all."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def save_config(folder: Path, config: TrainConfig) -> None:
    """Write config.yaml, with absolute paths, so that the run finds its texts from any folder."""

    def with_absolute(group: Any, *keys: str) -> Any:
        paths = {key: getattr(group, key) for key in keys}
        return replace(group, **{key: path and absolute(path) for key, path in paths.items()})

    config = replace(
        config,
        data=with_absolute(config.data, "path", "validation_path", "test_path", "cache_dir"),
        model=with_absolute(config.model, "path"),
        inspection=with_absolute(config.inspection, "font"),
    )
    write_text(folder / CONFIG, to_yaml(config))


def save_tokenizer(folder: Path, tokenizer: Tokenizer) -> None:
    """Write tokenizer.json."""
    # Its own `save` hides that the disk is full.
    write_text(folder / TOKENIZER, as_json(tokenizer, pretty=True))


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


def save_weights(folder: Path, model: nn.Module) -> None:
    """Write model.safetensors; if the weights changed, remove what was made from the old ones."""
    path = folder / WEIGHTS
    with replacing(path) as temporary:
        save_model(model, str(temporary))
        if not (path.is_file() and filecmp.cmp(path, temporary, shallow=False)):
            for name in DERIVED_FILES:  # first: old scores never stand beside new weights
                (folder / name).unlink(missing_ok=True)
