"""Before training: the run folder, the settings as they are used, the texts and the network."""

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from torch import nn

from headscope.data.columns import class_counts
from headscope.data.datamodule import Phase, TextDataModule, usual_length
from headscope.ground.errors import ConfigError, RunError, listed, warn
from headscope.ground.files import new_folder
from headscope.heads.lightning_callback import HeadLogger
from headscope.model.checkpoint import Checkpoint, read_checkpoint
from headscope.model.families import Description, architecture_of, why_not_opened
from headscope.model.opened import has_head
from headscope.model.running import eval_mode
from headscope.results.baseline import averages_in_place_of_attention
from headscope.runs.folder import COPIES, DERIVED_FILES, save_copies
from headscope.runs.prediction import best_device
from headscope.runs.setup import Setup
from headscope.runs.texts import check_data
from headscope.settings.checks import override
from headscope.settings.config import ROLES, ModelConfig, TrainConfig, is_run
from headscope.training.distributed import all_reduce_max, is_rank_zero, is_shared, rank_zero_first
from headscope.training.module import ClassifierModule, build_module, has_bfloat16, keep_measured
from headscope.training.recording import build_head_logger
from headscope.training.resume import Resumed, check_resumed, load_last

MOST_CUT = 0.1  # of the training texts; beyond it is said
FEW_TEXTS = 2_000  # of fewer: several networks on model.features; up to it: contrastive loss
CLASSES_OF_STEPS = 6  # 50 classes in eight times the steps of two: 70.5 % for 65.5
CONTRASTIVE_PASSES = 2  # an epoch at least; in one pass each, 20 classes had 65.5 % for 68.3
# Of a batch, or as many as there are classes. Two long e-mails a batch gave 91.3 % of validation,
# 16 of them 99.3; 6 texts of 50 classes 69.0, 23 of them 74.0.
CONTRASTIVE_TEXTS = 16
CONTRASTIVE_GROWTH = 4  # times tokens_per_batch at most, for memory
FEW_OF_A_CLASS = 120  # texts; 2,000 of 20 classes: 78.5 % by the contrastive loss, else 69.8
MEMBERS = 5
MANY_CLASSES = 10  # from here on texts of rare ones are drawn more often: of fewer, F1 did not rise
LAYER = 3
LAYERS = [3, 4, 6]


@dataclass(frozen=True)
class Prepared:
    """What is trained, on what.

    Attributes:
        setup: what the weights depend on; `setup.config` are the settings as they are used.
        data: the encoded texts of all splits.
        module: the network, its loss and its optimizer.
        resumed: the checkpoint that training resumes from; None for a new run.
        head_logger: records maps and measures of the heads; None with inspection=off.
        start: when the run began, by time.perf_counter.
        seconds: that each part has taken until now.
    """

    setup: Setup
    data: TextDataModule
    module: ClassifierModule
    resumed: Resumed | None
    head_logger: HeadLogger | None
    start: float = field(default_factory=time.perf_counter)
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Note how long a part takes, also one that fails."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[part] = time.perf_counter() - start


def run_folder(config: TrainConfig) -> Path:
    """Return the run folder; RunError for one that has a run. Without a name it is a new one."""
    if config.resume is not None:
        return Path(config.resume)
    if config.name is None:
        stem = f"{Path(config.data.path).stem}_{time.strftime('%Y-%m-%d_%H-%M-%S')}"
        return new_folder(Path(config.outputs_dir) / stem)
    folder = Path(config.outputs_dir) / config.name
    if is_run(folder):
        raise RunError(
            f"name={config.name}: {folder} has a run already; choose another name, or resume it: "
            f"resume={folder}"
        )
    if os.path.lexists(folder) and not folder.is_dir():
        raise RunError(f"name={config.name}: {folder} is not a directory; choose another name")
    if taken := [file for file in (*DERIVED_FILES, *COPIES) if (folder / file).exists()]:
        raise RunError(
            f"name={config.name}: {folder} has files that a run would replace: {listed(taken)}; "
            "choose another name"
        )
    return folder


def prepare(
    config: TrainConfig, folder: Path, phase: Phase, show: Callable[[dict[str, Any]], None]
) -> Prepared:
    """Return the texts, and the network to train on them; `show` is given the facts of the texts.

    Raises:
        ConfigError: for settings that do not fit one another, the data or a resumed run.
        DataError: for texts or labels that cannot be used.
        RunError: for a run that cannot be resumed, or whose data have changed.
    """
    if config.control is not None and is_shared():
        raise ConfigError("control: expected null under torchrun; run it again in one process")
    start = time.perf_counter()
    resumed = _checkpoint_to_resume(config, folder)
    keep_measured(resumed)
    _set_up_process(config)
    config, checkpoint = resolved(config, resumed)
    with rank_zero_first():
        data, setup = _texts(config, folder, checkpoint, resumed, phase)
        if is_rank_zero():
            save_copies(folder, setup)  # not before the texts are read, which may be wrong
    show(data.facts())
    warn_of_cut(data, checkpoint)
    with phase("preparing the network"):
        module = build_module(setup, data, checkpoint, resumed)
        if config.control is not None:
            averages_in_place_of_attention(module.model)  # raises where it cannot
    _add_features(config, module.model, data, phase)
    head_logger = None
    if config.inspection.enabled and is_rank_zero():
        head_logger = build_head_logger(setup, folder, data, module)
    all_reduce_max(0)  # rank 0 waits for the others to prepare
    seconds = {"preparing": time.perf_counter() - start}
    return Prepared(setup, data, module, resumed, head_logger, start, seconds)


def _checkpoint_to_resume(config: TrainConfig, folder: Path) -> Resumed | None:
    """Return the checkpoint that a run resumes from, if the settings fit it."""
    if config.resume is None:
        return None
    resumed = load_last(folder, config.import_paths.values())
    if resumed is None:
        warn(f"resume={folder}: has no checkpoint yet, so it starts anew")
    else:
        check_resumed(config, resumed)
    return resumed


def _set_up_process(config: TrainConfig) -> None:
    """Seed the process, and keep it from printing what nobody needs."""
    pl.seed_everything(config.seed, verbose=False)
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)  # devices that there are not, and tips
    torch.set_float32_matmul_precision("high")  # TensorFloat-32 on a GPU


def resolved(
    config: TrainConfig, resumed: Resumed | None = None
) -> tuple[TrainConfig, Checkpoint | None]:
    """Return the settings as they are used, and the pretrained checkpoint that a run starts from.

    No checkpoint without model.path or model.features, or for a run that resumes. Texts are cut
    where a checkpoint reads no further. ConfigError for one that cannot be used.
    """
    key, path = config.model.checkpoint
    if path is None or resumed is not None:
        return config, None
    checkpoint = read_checkpoint(key, path, config.model.revision)
    if config.model.path is not None:
        _check_checkpoint(config.model, checkpoint.encoder)
    max_length = min(config.data.most_tokens, checkpoint.max_tokens)
    checkpoint.tokenizer.enable_truncation(max_length)
    if config.data.max_length == "auto":  # the texts decide, within what the tokenizer reads
        return config, checkpoint
    return override(config, {"data.max_length": max_length}), checkpoint


def _check_checkpoint(config: ModelConfig, encoder: Description) -> None:
    """Raise a ConfigError for a setting that needs our own network, where transformers computes."""
    if not why_not_opened(encoder):
        architecture_of(encoder, config)
        return
    kind = encoder.get("model_type")
    if config.has_evidence:
        raise ConfigError(f"model.evidence: expected false for {kind}, which does not open")
    if config.frozen_layers is not None:
        raise ConfigError(f"model.frozen_layers: expected null for {kind}, which does not open")


def _texts(
    config: TrainConfig,
    folder: Path,
    checkpoint: Checkpoint | None,
    resumed: Resumed | None,
    phase: Phase,
) -> tuple[TextDataModule, Setup]:
    """Return the texts, and what the weights depend on, which a resumed run keeps.

    RunError if the data are not those of a resumed run.
    """
    before = None if resumed is None else resumed.setup
    known = before or checkpoint
    tokenizer = None if known is None else known.tokenizer
    encoder = None if known is None else known.encoder
    evidence = config.model.has_evidence if before is None else before.evidence or False
    data = TextDataModule(config.data, config.tokenizer, config.seed, tokenizer, evidence, phase)
    config = replace(config, data=data.config)  # with the length that auto chose
    data.shares = _shares(config, data.labels("train"))
    labels = data.corpus.labels
    digests = data.corpus.digests()
    if before is not None:
        check_data(folder, before, labels, digests, "or train a new run on these: name=...")
    else:
        config = _on_features(config, len(data.encoded["train"].lengths), encoder)
        config = _on_few_texts(config, data, checkpoint)
    passes = 1
    least = config.trainer.epoch_steps * max(1, len(labels) // CLASSES_OF_STEPS)
    if config.optimizer.contrastive:
        passes = CONTRASTIVE_PASSES
        least = config.trainer.epoch_steps
        data.config = replace(data.config, tokens_per_batch=_contrastive_tokens(data))
    steps_of_pass = -(-len(data.sampler("train")) // config.trainer.accumulate)
    data.passes = max(passes, -(-least // steps_of_pass))
    learned = torch.from_numpy(data.corpus.learned())
    return data, Setup(config, labels, data.tokenizer, digests, encoder, data.evidence, learned)


def _contrastive_tokens(data: TextDataModule) -> int:
    """Return the tokens of a batch: half of tokens_per_batch, or more, so that it has enough texts.

    A text learns from those of its class in its batch.
    """
    usual = data.config.tokens_per_batch
    texts = max(CONTRASTIVE_TEXTS, len(data.corpus.labels))
    wanted = max(usual // 2, texts * _mean_length(data))
    return max(data.config.most_tokens, min(wanted, CONTRASTIVE_GROWTH * usual))


def _mean_length(data: TextDataModule) -> int:
    """Return the mean tokens of the training texts as they are read, rounded up."""
    return int(np.ceil(data.encoded["train"].lengths.mean()))


def _shares(config: TrainConfig, labels: np.ndarray) -> np.ndarray | None:
    """Return n_c^-1/2 for each text of a class with n_c texts; None: each comes once in a pass."""
    is_auto = config.optimizer.class_weights == "auto" and not config.data.multi_label
    if not is_auto or labels.max() + 1 < MANY_CLASSES:
        return None
    shares: np.ndarray = class_counts(labels, labels.max() + 1)[labels] ** -0.5
    return shares


def warn_of_cut(data: TextDataModule, checkpoint: Checkpoint | None) -> None:
    """Tell what is not read if more than a tenth of the training texts are cut, and what to do."""
    length = data.config.most_tokens
    share = (data.whole_lengths > length).mean()
    if share <= MOST_CUT:
        return
    wanted = usual_length(data.whole_lengths)
    remedy = f"data.max_length={wanted} reads nine in ten whole, in more time"
    if wanted > data.config.tokens_per_batch:
        remedy += f" (with data.tokens_per_batch={wanted})"
    if checkpoint is not None and wanted > checkpoint.max_tokens:
        remedy = f"the checkpoint reads at most {checkpoint.max_tokens}"
    what = "not read but counted" if data.rest_counts else "not read"
    warn(
        f"{share:.0%} of the training texts are cut at {length} tokens, and {data.unread:.0%} of "
        f"all tokens are {what}; {remedy}"
    )


def _on_features(config: TrainConfig, num_texts: int, encoder: Description | None) -> TrainConfig:
    """Choose the layers read and how many networks read them, where the settings leave it open."""
    if config.model.features is None or encoder is None:
        return config
    chosen: dict[str, Any] = {"members": 1, "features_layer": LAYER}
    if num_texts < FEW_TEXTS:
        number = len(architecture_of(encoder).layers)
        layers = [layer for layer in LAYERS if layer <= number]
        chosen = {"members": MEMBERS, "features_layer": layers or LAYER}
    is_open = [name for name in chosen if getattr(config.model, name) is None]
    return override(config, {f"model.{name}": chosen[name] for name in is_open})


def _on_few_texts(
    config: TrainConfig, data: TextDataModule, checkpoint: Checkpoint | None
) -> TrainConfig:
    """Choose the contrastive loss where the settings leave it open and the texts are few.

    Of 2,000 texts of two classes it has 79.6 %, cross-entropy 76.8.

    ConfigError where it is asked for and cannot be.
    """
    asked = config.optimizer.contrastive
    if asked is False:
        return config
    why_not = _why_not_contrastive(config, data, checkpoint)
    if asked and why_not:
        raise ConfigError(f"optimizer.contrastive: expected false {why_not}")
    if asked is None and not why_not and checkpoint is not None:
        num_classes = len(data.corpus.labels)
        most = max(FEW_TEXTS, FEW_OF_A_CLASS * num_classes)
        known = (checkpoint.encoder, checkpoint.folder, num_classes)
        asked = len(data.labels("train")) <= most and not has_head(*known)
    changed: dict[str, Any] = {"optimizer.contrastive": bool(asked)}
    if asked and config.model.frozen_layers is None:
        changed["model.frozen_layers"] = 1
    return override(config, changed)


def _why_not_contrastive(
    config: TrainConfig, data: TextDataModule, checkpoint: Checkpoint | None
) -> str:
    """Return where the contrastive loss cannot be, or ""."""
    if config.model.path is None or checkpoint is None or why_not_opened(checkpoint.encoder):
        return "without a model.path that opens"
    if config.model.has_evidence:
        return "with model.evidence, whose weights it does not learn"
    if config.data.multi_label:
        return "with data.multi_label"
    if config.optimizer.class_weights == "balanced":
        return "with optimizer.class_weights=balanced"
    if is_shared():
        return "in several processes"
    if class_counts(data.labels("train"), len(data.corpus.labels)).min() < 2:
        return "where a class has fewer than two training texts"
    length = _mean_length(data)
    if CONTRASTIVE_TEXTS * length > CONTRASTIVE_GROWTH * data.config.tokens_per_batch:
        return (
            f"with texts of {length} tokens, of which a batch has fewer than {CONTRASTIVE_TEXTS}; "
            "raise data.tokens_per_batch"
        )
    return ""


def _add_features(
    config: TrainConfig, model: nn.Module, data: TextDataModule, phase: Phase
) -> None:
    """Compute the hidden states of frozen layers, once for all epochs, seeds and sweeps."""
    frozen = getattr(model, "frozen", None)
    if frozen is None:
        return
    # The heads of frozen layers are studied, on test texts too, so their states are not kept.
    roles = ROLES if frozen is getattr(model, "features", None) else ("train", "validation")
    encoder: Callable[..., Any] = frozen
    settings = f"{frozen.digest()} {[*frozen.layers]}"
    device = best_device(config.trainer.accelerator, "trainer.accelerator")
    if config.trainer.precision == "auto" and has_bfloat16(device):
        settings += " bfloat16"
        encoder = torch.autocast(device.type, torch.bfloat16)(encoder)
    frozen.to(device)
    with rank_zero_first(), eval_mode(model), phase("hidden states of frozen layers") as bar:
        data.add_features(encoder, frozen.width, settings, device, bar.update, roles)
