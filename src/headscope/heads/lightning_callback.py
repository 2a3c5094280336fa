"""Lightning callbacks that record every head while a model trains: any model's maps, and all that is known of ours.

`AtValidation` says when. `RecordHeads` is for any LightningModule, `HeadLogger` for headscope's own runs, whose
validation `HeadStatsHook` watches; below them is what they write, which the callback for transformers.Trainer writes too.
Shape letters: B texts, L layers, H heads, Q queries, K keys, T tokens.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Int
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn
from torch.utils.tensorboard import SummaryWriter

from headscope.attention.functional import AttentionCall
from headscope.attention.variants import ScoredAttention
from headscope.config import InspectionConfig
from headscope.data.batching import Batch, TextBatches
from headscope.data.datamodule import TextDataModule
from headscope.heads.capture import ATTENTION, HEADED, Kind, capture, now, observe
from headscope.heads.effects import role_arrays
from headscope.heads.interventions import device_of, eval_mode
from headscope.heads.measures import (
    MEASURES,
    PAIR_MEASURES,
    POOLING_MEASURES,
    TOKEN_MEASURES,
    Examples,
    HeadStatistics,
    Summary,
    TopTexts,
)
from headscope.heads.report import Probe, ProbeOutput, run_probe, shortened
from headscope.heads.study import SpecialTokens, Study, sample
from headscope.model.objective import ONE_CLASS, Objective
from headscope.record.schema import Arrays, Text, encodable
from headscope.record.writer import HeadRecorder
from headscope.tab.pictures import add_picture, head_grid
from headscope.tab.summaries import add_summary, marker_summary, probe_markdown, write_marker

NUMBERS_AT_ONCE = 2**22  # 16 MiB: a batch of long texts under many heads must not fill the memory
Occasion = Literal["start", "validation", "between"]
MIB, LONGEST_EXAMPLE = 2**20, 160  # bytes; characters of an example's text that are kept


class AtValidation(Callback):
    """Record at step 0, at every validation but the sanity check, and every n steps if that is asked for."""

    def __init__(self, every_n_steps: int | None = None) -> None:
        self.every_n_steps = every_n_steps
        self._last_step = -1

    def record(self, trainer: Trainer, pl_module: LightningModule, at: Occasion) -> None:
        """Record the model as it is now."""
        raise NotImplementedError

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Record step 0, which a resumed run has already."""
        if trainer.global_step == 0:
            self.record(trainer, pl_module, "start")
        self._last_step = trainer.global_step

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Record what validation saw."""
        if not trainer.sanity_checking:
            self._last_step = trainer.global_step
            self.record(trainer, pl_module, "validation")

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Record between validations, if it is asked for."""
        every, step = self.every_n_steps, trainer.global_step
        if every is not None and step % every == 0 and step != self._last_step:
            self._last_step = step
            self.record(trainer, pl_module, "between")


class RecordHeads(AtValidation):
    """Record every head's maps of the same texts while any LightningModule trains, for TensorBoard's Heads tab.

        trainer = Trainer(callbacks=[RecordHeads([Text("cat", ["the", "cat", "sat"], "the cat sat")], [token_ids])])

    The module may hold headscope's attention layers or torch.nn.MultiheadAttention (`capture` finds them), and is
    called as `module(*inputs)`, in eval mode, at step 0 and at every validation but the sanity check.

    Args:
        texts: whose maps are recorded, with their tokens. Of a batch's row the first tokens are the text's; what comes
            behind them is padding and left out.
        inputs: what the module is called with: tensors, or tuples of them, whose first axis is the texts'.
        every_n_steps: record every n steps too; None for no such records.
        folder: of the record; that of the trainer's logger if None, where TensorBoard finds it.
        layers: which kinds of layer; all that `capture` knows by default.

    Attributes:
        recorder: where the maps are kept; made when training begins, in the first process alone.
    """

    def __init__(
        self,
        texts: Sequence[Text],
        inputs: Sequence[Any],
        every_n_steps: int | None = None,
        folder: str | Path | None = None,
        layers: Kind = ATTENTION,
    ) -> None:
        super().__init__(every_n_steps)
        self.texts, self.inputs, self.folder, self.layers = (
            list(texts),
            tuple(inputs),
            folder,
            layers,
        )
        self.recorder: HeadRecorder

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Tell TensorBoard that this run has a record, which the Heads tab shows."""
        folder = (
            self.folder or trainer.log_dir or trainer.default_root_dir
        )  # log_dir is asked for by all processes
        if trainer.is_global_zero:
            self.recorder = HeadRecorder(folder, self.texts)
            write_marker(folder)

    def record(self, trainer: Trainer, pl_module: LightningModule, at: Occasion) -> None:
        """Keep the maps of the texts as the model reads them now."""
        if not trainer.is_global_zero:
            return
        with torch.no_grad(), eval_mode(pl_module), capture(pl_module, kind=self.layers) as maps:
            pl_module(*trainer.strategy.batch_to_device(self.inputs))
        if not maps:
            raise ValueError(
                "RecordHeads: the module called no attention layer that can be recorded"
            )
        if rows := {
            name: len(found) for name, found in maps.items() if len(found) != len(self.texts)
        }:
            raise ValueError(
                f"RecordHeads: {len(self.texts)} texts, but inputs of another number of rows: {rows}"
            )
        self.recorder.record(
            trainer.global_step,
            [
                {
                    name: found[row, :, :length, :length].cpu().numpy()
                    for name, found in maps.items()
                }
                for row, length in enumerate(len(text.tokens) for text in self.texts)
            ],
        )


@dataclass(frozen=True)
class ProbeSet:
    """What is looked at: `probes`, whose maps are shown; names of classes; `text_of` a row of the validation split."""

    probes: list[Probe]
    labels: list[str]
    special: SpecialTokens
    text_of: Callable[[int], str]
    objective: Objective = ONE_CLASS


class HeadLogger(AtValidation):
    """Record at step 0 and at every validation, whose own forward passes give the numbers.

    The numbers are those of the same validation texts at every record, `config.texts` of them, drawn by the run's seed:
    over more, recording would take a noticeable part of training. Before step 0 these texts are passed through the
    model for the record alone. Stands before weight averaging in the list of callbacks, so that it reads the averaged
    weights, as the scores do; between validations `averaged` puts the average in the place of the weights, where there
    is one. `seconds` is the time spent on recording.
    """

    def __init__(
        self,
        subjects: ProbeSet,
        config: InspectionConfig,
        recorder: HeadRecorder,
        averaged: Callable[[LightningModule], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        super().__init__(config.every)
        self.subjects, self.config, self.recorder, self.averaged = (
            subjects,
            config,
            recorder,
            averaged,
        )
        self.seconds = 0.0
        self._watch: HeadStatsHook | None = None
        self._texts: Tensor | None = None  # rows of the texts that are measured; None for all

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Tell TensorBoard that this run has a record, which the Heads tab shows."""
        add_summary(_writer(trainer), marker_summary(), 0)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Draw the texts that are measured, and record step 0, which a resumed run has already."""
        start = now(pl_module.device)
        self._sample = self._draw(trainer.datamodule)  # type: ignore[attr-defined]
        self.seconds += now(pl_module.device) - start
        super().on_train_start(trainer, pl_module)

    def record(self, trainer: Trainer, pl_module: LightningModule, at: Occasion) -> None:
        """Write what validation saw; before training what it would see; between validations the maps alone."""
        start = now(pl_module.device)
        if at == "between":  # of the averaged weights if there are any
            with self.averaged(pl_module):
                record_probes(self.recorder, trainer.global_step, pl_module.model, self.subjects)  # type: ignore[arg-type]
        else:
            is_own_pass = at == "start" or trainer.world_size > 1
            if is_own_pass:
                self._look(trainer, pl_module)
            self._write(trainer, pl_module)
            self.seconds += 0 if is_own_pass or self._watch is None else self._watch.seconds
        self.seconds += now(pl_module.device) - start

    def _look(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Pass the texts that are measured through the model, as validation would."""
        self._begin(pl_module)
        if self._watch is not None:
            with torch.no_grad(), eval_mode(pl_module), trainer.precision_plugin.val_step_context():
                for batch in map(trainer.strategy.batch_to_device, self._sample):
                    self._watch.set_batch(batch)
                    pl_module(batch)

    def _draw(self, data: TextDataModule) -> Iterable[Batch]:
        """Choose the texts that are measured, note that in the record, and return batches of them."""
        wanted, total = self.config.texts, len(data.encoded["validation"].lengths)
        is_all, notes = wanted is None or wanted >= total, self.recorder.index.notes
        if self.config.numbers:
            number = f"all {total}" if is_all else f"{wanted} of {total}"
            notes["numbers"] = f"over {number} validation texts" + (
                "" if is_all else ", drawn at random"
            )
        if wanted is None or is_all:
            return data.loader("validation")
        texts = TextBatches(data.encoded["validation"], data.labels("validation"))
        batches = sample(texts, wanted, data.config.tokens_per_batch, data.seed)
        self._texts = torch.cat([batch.rows for batch in batches])
        return batches

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin to watch the attention layers; Lightning's sanity check may see but a part of the split.

        Of several processes each sees a part of it. Then the one that records passes the texts through itself.
        """
        if not trainer.sanity_checking and trainer.world_size == 1:
            self._begin(pl_module)

    def _begin(self, pl_module: LightningModule) -> None:
        if self.config.numbers:
            before = None if self._watch is None else self._watch.examples
            self._watch = HeadStatsHook(pl_module, self.subjects.special, self._texts, before)

    def on_validation_batch_start(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        batch: Batch,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Note which texts are looked at."""
        if self._watch is not None:
            self._watch.set_batch(batch)

    def _write(self, trainer: Trainer, pl_module: LightningModule) -> None:
        writer, step, model = _writer(trainer), trainer.global_step, pl_module.model
        if self._watch is not None:
            self._watch.close()
            write_numbers(writer, self._watch.statistics.summary(), step)
            for name, ((mean,), _) in chain(
                *(found.items() for found in self._watch.pooling.summary().values())
            ):
                writer.add_scalar(f"pooling/{name}", mean, step)
        readings = record_probes(self.recorder, step, model, self.subjects, self._watch)  # type: ignore[arg-type]
        for number, (probe, reading) in enumerate(zip(self.subjects.probes, readings, strict=True)):
            shown = shortened(probe, reading, self.config.max_tokens)
            write_reading(writer, f"probe_{number}", *shown, step, self.config.font)

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Let go of the layers."""
        if self._watch is not None:
            self._watch.close()

    def state_dict(self) -> dict[str, Any]:
        """Keep the time spent across a resume."""
        return {"seconds": self.seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the time up again."""
        self.seconds = state_dict["seconds"]


class HeadStatsHook:
    """Watch a model's attention until closed: numbers of heads and of pooling, texts that stand out, seconds spent.

    Numbers are taken of the rows `texts` of the validation split, None for all. Change is measured against the
    examples of the previous record, `before`.
    """

    def __init__(
        self,
        model: nn.Module,
        special: SpecialTokens,
        texts: Int[Tensor, " N"] | None = None,
        before: Examples | None = None,
    ) -> None:
        self.special, self.texts, self.seconds = special, texts, 0.0
        self.statistics, self.pooling = HeadStatistics(), HeadStatistics(POOLING_MEASURES)
        self.examples = Examples(before=before)
        self._stack = ExitStack()
        self._stack.enter_context(observe(model, self._count, HEADED))
        self._stack.enter_context(observe(model, self._count_pooling, ScoredAttention))

    def set_batch(self, batch: Batch) -> None:
        """Note which texts the next forward pass is of."""
        self._rows = batch.rows.cpu()
        self._tokens = self.special.tokens_of(batch.token_ids, batch.segment_ids is not None)
        is_wanted = (
            torch.ones_like(self._rows)
            if self.texts is None
            else torch.isin(self._rows, self.texts)
        )
        self._wanted: list[int] = is_wanted.nonzero()[:, 0].tolist()

    def close(self) -> None:
        """Let go of the layers."""
        self._stack.close()

    def _count(self, layer: str, seen: AttentionCall) -> None:
        start, padding = now(seen.like.device), seen.key_padding_mask
        B, H, Q, K = seen.shape
        lengths = torch.full((B,), K) if padding is None else (~padding).sum(dim=-1).cpu()
        # A few texts at a time, so that memory does not depend on the batch.
        texts = max(1, NUMBERS_AT_ONCE // (H * Q * K))
        for first in range(0, len(self._wanted), texts):
            rows = self._wanted[first : first + texts]
            hidden = None if padding is None else padding[rows]
            values = self.statistics.update(
                layer, seen.weights(rows), hidden, self._tokens.rows(rows)
            )
            self.examples.update(layer, self._rows[rows], values, lengths[rows])
        self.seconds += now(seen.like.device) - start

    def _count_pooling(self, layer: str, seen: AttentionCall) -> None:
        start = now(seen.like.device)
        if self._wanted:
            self.pooling.update(layer, seen.weights(self._wanted))
        self.seconds += now(seen.like.device) - start


def _writer(trainer: Trainer) -> SummaryWriter:
    return trainer.logger.experiment  # type: ignore[union-attr,no-any-return]


def write_numbers(writer: SummaryWriter, summary: Summary, step: int) -> None:
    """Write each number as a scalar, heads/layer_0/head_3/entropy."""
    for number, measures in enumerate(summary.values()):
        for name, (means, _) in measures.items():
            for head, mean in enumerate(means):
                writer.add_scalar(f"heads/layer_{number}/head_{head}/{name}", mean, step)


def write_reading(
    writer: SummaryWriter,
    name: str,
    probe: Probe,
    reading: ProbeOutput,
    step: int,
    font: str | None = None,
) -> None:
    """Write a probe's grid of maps and its text."""
    picture = head_grid(list(reading.maps.values()), font, reading.pooling)
    add_picture(writer, f"attention/{name}", picture, step)
    text = probe_markdown(
        probe.text, probe.tokens, probe.label, reading.prediction, reading.probabilities
    )
    writer.add_text(name, text, step)


def new_recorder(
    folder: Path,
    probes: Sequence[Probe],
    labels: Sequence[str],
    config: InspectionConfig,
    notes: Mapping[str, str],
) -> HeadRecorder:
    """Return the recorder of a run, or go on with the one that a resumed run had."""
    texts = [
        Text(
            f"probe_{number}",
            probe.tokens,
            probe.text,
            probe.label,
            probe.segments,
            probe.special,
            probe.readout,
        )
        for number, probe in enumerate(probes)
    ]
    is_exact = config.precision == "float16"
    return HeadRecorder(
        folder, texts, labels, config.budget * MIB, config.max_tokens, is_exact, notes
    )


def record_probes(
    recorder: HeadRecorder,
    step: int,
    model: nn.Module,
    subjects: ProbeSet,
    watch: HeadStatsHook | None = None,
) -> list[ProbeOutput]:
    """Record the probes' maps as the model reads them now, and the numbers and examples that a watch saw, if any."""
    device = device_of(model)
    readings = [
        run_probe(model, probe, subjects.labels, device, subjects.objective)
        for probe in subjects.probes
    ]
    if readings:
        summary = {} if watch is None else watch.statistics.summary()
        extra = {} if watch is None else examples_of(watch.examples, subjects.text_of)
        keep_readings(recorder, step, readings, summary, extra)
    return readings


def record_study(
    recorder: HeadRecorder, step: int, study: Study, without: Sequence[Arrays] = ()
) -> bool:
    """Add what a study found beyond the usual to the step whose weights were kept; False if that was thinned out.

    `without` are the probabilities of each recorded text without a head or a layer: see `ablate_each_head`.
    """
    off = {
        f"text_{place}/{name}": values
        for place, found in enumerate(without)
        for name, values in found.items()
    }
    recorder.index.kept = step
    recorder.index.notes["causes"] = (
        f"measured at step {step}, whose weights were kept, on {study.texts} texts"
    )
    return recorder.amend(step, numbers_of(beyond_the_usual(study)), study.extra() | off)


def beyond_the_usual(study: Study) -> Summary:
    """Return a study's numbers without those that every record has."""
    usual = {*MEASURES, *TOKEN_MEASURES, *PAIR_MEASURES}
    return {
        layer: {name: values for name, values in measures.items() if name not in usual}
        for layer, measures in study.numbers.items()
    }


def keep_readings(
    recorder: HeadRecorder,
    step: int,
    readings: Sequence[ProbeOutput],
    summary: Summary | None = None,
    extra: Mapping[str, np.ndarray] | None = None,
) -> None:
    """Record the maps of every probe, and the numbers of every head if there are any.

    text_t/given are the classes that a text is given, of any number; text_t/nats what every head put for the likeliest.
    """
    members = dict(extra or {})
    for place, reading in enumerate(readings):
        for number, layer in enumerate(reading.maps):
            if layer in reading.norms:
                members[f"text_{place}/layer_{number}/value_norms"] = reading.norms[layer].astype(
                    np.float32
                )
        classes = list(reading.probabilities)
        if not isinstance(reading.answer, str):
            given = [name in reading.answer for name in classes]
            members[f"text_{place}/given"] = np.array(given, dtype=np.uint8)
        if reading.spoken is not None:
            members |= {
                f"text_{place}/{name}": values for name, values in reading.spoken.arrays().items()
            }
            likeliest = classes.index(reading.spoken.answer)
            members[f"text_{place}/nats/class"] = np.array(likeliest, dtype=np.int32)
    recorder.record(
        step,
        [
            {f"layer {number}": weights for number, weights in enumerate(reading.maps.values())}
            for reading in readings
        ],
        numbers_of(summary or {}),
        [reading.pooling for reading in readings],
        [np.array(list(reading.probabilities.values())) for reading in readings],
        [reading.difference for reading in readings],
        role_arrays(summary or {}) | members,
    )


def numbers_of(summary: Summary) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Turn layer -> measure around: measure -> (means [L, H], errors [L, H]), NaN where a layer has fewer heads."""
    layers = list(summary.values())
    heads = max((len(means) for layer in layers for means, _ in layer.values()), default=0)
    numbers = {}
    for measure in dict.fromkeys(name for layer in layers for name in layer):
        both = np.full((2, len(layers), heads), np.nan)
        for number, layer in enumerate(layers):
            for part, values in enumerate(layer.get(measure, ())):
                both[part, number, : len(values)] = values
        numbers[measure] = (both[0], both[1])
    return numbers


def examples_of(examples: Examples, text_of: Callable[[int], str]) -> dict[str, np.ndarray]:
    """Return the texts that stand out as arrays: their rows and scores [L, H, n], and the texts by row."""
    arrays: dict[str, np.ndarray] = {}
    for kind, layers in (("focused", examples.focused), ("changed", examples.changed)):
        if layers:
            arrays[f"examples/{kind}/rows"], arrays[f"examples/{kind}/scores"] = _ranked(
                list(layers.values())
            )
    named = [found.ravel() for name, found in arrays.items() if name.endswith("rows")]
    rows = np.unique(np.concatenate([np.zeros(0, dtype=np.int32), *named]))
    rows = rows[rows >= 0]
    texts = [encodable(text_of(int(row))[:LONGEST_EXAMPLE]) for row in rows]
    return arrays | {
        "examples/rows": rows,
        "examples/texts": np.array(texts, dtype=f"<U{LONGEST_EXAMPLE}"),
    }


def _ranked(layers: Sequence[TopTexts]) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and scores [L, H, n]; where there are fewer texts, -1 and NaN."""
    best = [layer.best() for layer in layers]
    heads, most = (
        max(map(len, best)),
        max((len(texts) for layer in best for texts in layer), default=0),
    )
    shape = len(best), heads, most
    rows, scores = np.full(shape, -1, dtype=np.int32), np.full(shape, np.nan, dtype=np.float32)
    for number, layer in enumerate(best):
        for head, texts in enumerate(layer):
            for place, found in enumerate(texts):
                rows[number, head, place], scores[number, head, place] = found
    return rows, scores
