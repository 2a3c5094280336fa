"""One step of a record: model and texts in, arrays out that are named as in docs/record-format.md.

`run_probe` reads a text, `step_arrays` joins texts and numbers into a step, `record_best` writes
the best step anew with what is measured once. The recorder stores these arrays, a page embeds them.

Shape letters: L layers, H heads, K keys, T tokens, E head width, D model width, C classes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from tokenizers import Tokenizer
from torch import nn

from headscope.attention.functional import AttentionCall
from headscope.data.batching import Batch, TextBatches, encode_texts, moved
from headscope.data.evidence import KnownNgrams
from headscope.data.tokenizer import copied, shown_tokens, unknown_ids, word_units
from headscope.data.units import ReadText, read_texts
from headscope.ground.errors import listed, panics_as_errors
from headscope.heads.capture import (
    NotObservedError,
    ablate,
    device_of,
    eval_mode,
    headed_layers,
    logits_of,
    observe,
)
from headscope.heads.contributions import explain
from headscope.heads.effects import effect_arrays
from headscope.heads.measures import HeadStatistics, Summary, Tokens, role_arrays
from headscope.heads.study import Study
from headscope.model.objective import Reading
from headscope.record.explanation import CLASSES_KEPT, Explanation, signed
from headscope.record.reader import numbers_of
from headscope.record.schema import JOIN, Arrays, PageText, Text, stack_layers
from headscope.record.writer import HeadRecorder

ABLATED = ("loss_zeroed", "accuracy_zeroed")  # measures of a study that no other step has


class Probe(NamedTuple):
    """A text that is shown, and the same text as a batch of its own, without padding."""

    text: Text
    batch: Batch


@dataclass(frozen=True)
class ProbeOutput:
    """What a model makes of a probe.

    Attributes:
        text: with the tokens that the maps are of.
        layers: names of the attention layers that have heads, in the order in which they ran.
        probabilities: class -> probability.
        arrays: named as in docs/record-format.md, without text_t/; whole maps, as layer_l/weights.
        explanation: the log-odds as a sum, over the heads of these layers; None of a model that
            gives no logits.
        notes: what of the attention is not shown, and why.
    """

    text: Text
    layers: list[str]
    probabilities: dict[str, float]
    arrays: Arrays
    explanation: Explanation | None
    notes: dict[str, str] = field(default_factory=dict)

    @property
    def maps(self) -> list[Float[np.ndarray, "H T T"]]:
        """The weights of each layer."""
        return [self.arrays[f"layer_{number}/weights"] for number in range(len(self.layers))]

    def map_arrays(self) -> Arrays:
        """Return what passes from each key at each query, where contributions are known."""
        return {} if self.explanation is None else self.explanation.map_arrays()


def make_probe(
    tokenizer: Tokenizer,
    texts: tuple[str, ...],
    label: str | None,
    max_tokens: int | None,
    evidence: KnownNgrams | None = None,
    readout: int | None = None,
) -> Probe:
    """Encode a text or pair, cut as the tokenizer cuts and, unless it is None, to max_tokens."""
    if max_tokens is not None:
        limit = min(max_tokens, (tokenizer.truncation or {}).get("max_length", max_tokens))
        tokenizer = copied(tokenizer)
        tokenizer.enable_truncation(limit)
    with panics_as_errors():
        (read,) = read_texts(tokenizer, [texts], counts_rest=evidence is not None)
    text = text_of(read, unknown_ids(tokenizer), label, readout)
    return Probe(text, TextBatches(encode_texts(tokenizer, [texts], evidence))[[0]])


def text_of(
    read: ReadText,
    unknown: Sequence[int],
    label: str | None = None,
    readout: int | None = None,
) -> Text:
    """Return a text or pair with its tokens and words as people read them.

    `unknown` are the ids of unknown tokens. Those that carry a text's rest are not special.
    """
    whole = JOIN.join(read.parts)
    widths = [1 + (ord(character) > 0xFFFF) for character in whole]
    utf_16 = [0, *accumulate(widths)]  # units before each character
    firsts = {None: 0, 0: 0, 1: len(read.parts[0]) + len(JOIN)}
    places = [
        (utf_16[firsts[side] + start], utf_16[firsts[side] + end])
        for side, (start, end) in zip(read.sides, read.places, strict=True)
    ]
    own = slice(len(read.encoding) - read.carriers)
    return Text(
        name="text",
        tokens=shown_tokens(read),
        text=whole,
        label=label,
        segments=read.sides if len(read.parts) == 2 else None,
        special=np.flatnonzero(read.encoding.special_tokens_mask[own]).tolist(),
        readout=readout,
        words=[*word_units().words_of(read)],
        places=places,
        unknown=np.flatnonzero(np.isin(read.encoding.ids[own], unknown)).tolist() or None,
    )


def run_probe(
    model: nn.Module,
    probe: Probe,
    reading: Reading | None,
    with_ablations: bool = False,
) -> ProbeOutput:
    """Run the model in eval mode on one probe.

    Ablations take a forward pass for each head. Without a reading of logits there are maps alone;
    of a model whose attention cannot be observed there are none.
    """
    calls, explanation, notes = _read(model, probe, reading)
    shown, left_out = _maps_of_tokens(calls, len(probe.text.tokens), explanation)
    if left_out:
        notes["attention"] = f"not shown, since its maps are not of these tokens: {left_out}"
    arrays = _map_arrays(shown)
    if reading is None or explanation is None:
        return ProbeOutput(probe.text, list(shown), {}, arrays, None, notes)
    explanation = replace(explanation.of_layers(list(shown)), spans=probe.text.words)
    notes |= _unknown_heads(explanation)
    probabilities = torch.tensor([[*explanation.probabilities.values()]], dtype=torch.float64)
    predicted = reading.objective.predicted(probabilities)
    (answer,) = reading.objective.names(predicted, reading.classes)
    arrays["probabilities"] = probabilities[0].numpy().astype(np.float32)
    if not isinstance(answer, str):
        arrays["given"] = np.array([name in answer for name in reading.classes], dtype=np.uint8)
    arrays |= explanation.arrays()
    heads = headed_layers(model, probe.batch) if with_ablations and shown else {}
    if heads.keys() & shown.keys():
        known = {name: heads.get(name, 0) for name in shown}
        arrays |= ablate_each_head(model, probe, reading, known)
    output = (list(shown), explanation.probabilities, arrays, explanation, notes)
    return ProbeOutput(probe.text, *output)


def _read(
    model: nn.Module, probe: Probe, reading: Reading | None
) -> tuple[dict[str, AttentionCall], Explanation | None, dict[str, str]]:
    """Run the model; return its calls of attention, why its logits are these, and notes."""
    batch = moved(probe.batch, device_of(model))
    calls: dict[str, AttentionCall] = {}

    def keep(name: str, call: AttentionCall) -> None:
        if not call.is_pooling:
            calls[name] = call

    notes = {}
    try:
        with observe(model, keep), torch.no_grad(), eval_mode(model):
            model(*batch.inputs)
    except NotObservedError as error:
        if reading is None:
            raise
        calls = {}
        notes = {"attention": f"is not observed: {error}"}
    if reading is None:
        return calls, None, notes
    tokens = probe.text.tokens
    return calls, explain(model, batch, tokens, reading, num_classes=CLASSES_KEPT), notes


def _maps_of_tokens(
    calls: Mapping[str, AttentionCall], num_tokens: int, explanation: Explanation | None
) -> tuple[dict[str, AttentionCall], str]:
    """Return the calls that are of these tokens, in the order in which they ran; and the others."""
    order = list(calls) if explanation is None else list(explanation.layers)
    shown = {}
    others = []
    for name in order:
        shape = calls[name].shape
        if shape[0] == 1 and tuple(shape[2:]) == (num_tokens, num_tokens):
            shown[name] = calls[name]
        else:
            others.append(f"{name} {list(shape[1:])}")
    return shown, listed(others) if others else ""


def _map_arrays(calls: Mapping[str, AttentionCall]) -> Arrays:
    """Return the maps, and how far the heads' outputs are from these times the values."""
    difference = max((call.difference() for call in calls.values()), default=0.0)
    arrays: Arrays = {"check": np.array(difference, dtype=np.float32)}
    for number, call in enumerate(calls.values()):
        weights = call.weights()[0].detach().float().cpu().numpy()  # [H, T, T]
        arrays[f"layer_{number}/weights"] = weights
    return arrays


def _unknown_heads(explanation: Explanation) -> dict[str, str]:
    """Return a note about layers whose heads are unknown, and about attention without a map."""
    notes = {}
    unknown = [
        name
        for name, heads in zip(explanation.layers, explanation.heads, strict=True)
        if np.isnan(heads).all()
    ]
    if unknown:
        notes["heads"] = f"what passes through those of {listed(unknown)} is unknown"
    unobserved = float(explanation.toward(explanation.unobserved_of))
    if unobserved:
        notes["unobserved"] = f"{signed(unobserved)} passes through attention that is not observed"
    return notes


def ablate_each_head(
    model: nn.Module, probe: Probe, reading: Reading, heads: Mapping[str, int] | None = None
) -> Arrays:
    """Return each class's probability with a head ablated to zero, in float32.

    `heads` is how many each layer has, by default those that it has. without/heads [L, H, C], NaN
    where a layer has fewer.
    """
    heads = headed_layers(model) if heads is None else heads

    def without(name: str, head: int) -> Float[np.ndarray, " C"]:
        with ablate(model, {(name, head): "zero"}):
            logits = logits_of(model, probe.batch).float().cpu()
        return reading.probabilities(logits)[0].numpy()

    with torch.no_grad(), eval_mode(model):
        num_classes = logits_of(model, probe.batch).shape[-1]
        layers = [
            np.array([without(name, head) for head in range(count)]).reshape(-1, num_classes)
            for name, count in heads.items()
        ]
    return {"without/heads": stack_layers(layers)}


def number_arrays(summary: Summary, names: Sequence[str] = ()) -> Arrays:
    """Return numbers/<measure>/mean and error [L, H] of some measures, by default of all.

    NaN where there is no such head.
    """
    arrays: Arrays = {}
    if not summary:
        return arrays
    for measure in names or list(next(iter(summary.values()))):
        both = [np.array(of_layer[measure]).T for of_layer in summary.values()]  # [H, 2] each
        stacked = stack_layers(both)  # [L, H, 2]
        arrays[f"numbers/{measure}/mean"] = stacked[..., 0]
        arrays[f"numbers/{measure}/error"] = stacked[..., 1]
    return arrays


def study_arrays(study: Study) -> Arrays:
    """Return what a study adds to the step whose weights it measured."""
    layers = list(study.numbers)
    order = [[layers.index(name), head] for name, head in study.sets.order]
    return {
        **number_arrays(study.numbers, ABLATED),
        **role_arrays(study.numbers),
        **effect_arrays(study.effects),
        "answer": np.array(study.answer),
        "answer/details": np.array(study.details),
        "sets/heads": np.array(order, dtype=np.int32),
        "sets/enough": np.array(study.sets.enough, dtype=np.int32),
        "sets/size": np.array(study.sets.sizes[study.sets.place], dtype=np.int32),
        "sets/accuracy": np.array([each.after for each in study.kept], dtype=np.float32),
        "sets/changes": np.array([[each.low, each.high] for each in study.kept], dtype=np.float32),
        "sets/texts": np.array(study.sets.correct.shape[1], dtype=np.int32),
    }


def text_summary(output: ProbeOutput) -> Summary:
    """Return the measures of every head over this one text; see `headscope.heads.measures`."""
    statistics = HeadStatistics()
    for name, weights in zip(output.layers, output.maps, strict=True):
        is_read_at_first = output.text.readout == 0 and name == output.layers[-1]
        rows = weights[:, :1] if is_read_at_first else weights
        statistics.update(name, torch.from_numpy(rows)[None], _tokens(output.text))  # [1, H, Q, T]
    return statistics.summary()


def _tokens(text: Text) -> Tokens:
    if text.segments is None:
        return Tokens()
    separators = torch.zeros(1, len(text.tokens), dtype=torch.bool)  # [B, T]
    separators[:, (text.special or [])[1:]] = True
    texts = [-1 if segment is None else segment for segment in text.segments]
    return Tokens(separators=separators, texts=torch.tensor([texts]))


def text_numbers(output: ProbeOutput, summary: Summary) -> Arrays:
    """Return numbers/<measure>/mean [L, H] of this one text, whose `text_summary` is given.

    Each head's contribution too, where there is one.
    """
    numbers = number_arrays(summary)
    means = {name: array for name, array in numbers.items() if name.endswith("/mean")}
    if output.explanation is not None and output.layers:
        means["numbers/contribution/mean"] = output.explanation.head_sums
    return means


def step_arrays(outputs: Sequence[ProbeOutput], summary: Summary | None = None) -> Arrays:
    """Return one step: the arrays of every text, and every head's numbers and role if given."""
    arrays = {
        f"text_{place}/{name}": array
        for place, output in enumerate(outputs)
        for name, array in output.arrays.items()
    }
    if summary is not None:
        arrays |= number_arrays(summary) | role_arrays(summary)
    return arrays


def record_best(
    recorder: HeadRecorder,
    step: int,
    model: nn.Module,
    probes: Sequence[Probe],
    reading: Reading,
    study: Study | None = None,
) -> None:
    """Write the best step anew, with the run's temperature, as all that reads the run has it.

    The other steps get the same temperature. With a study its numbers too, and the probabilities
    without each head.
    """
    is_studied = study is not None
    outputs = [run_probe(model, probe, reading, is_studied) for probe in probes]
    with_maps = [replace(it, arrays=it.arrays | it.map_arrays()) for it in outputs]
    arrays = step_arrays(with_maps)
    if study is not None:
        arrays |= study_arrays(study)
        recorder.index.best = step
        where = f"step {step}, the best checkpoint, on {study.texts} texts"
        recorder.index.notes["ablation"] = f"measured at {where}"
    if reading.temperature != 1:
        recorder.index.notes["temperature"] = (
            f"logits of every step are divided by {reading.temperature:.3f}, the run's temperature"
        )
    recorder.amend(step, arrays, reading.temperature)
    recorder.temper(reading.temperature)


def page_text(output: ProbeOutput, step: Arrays, notes: Mapping[str, str]) -> PageText:
    """Return what a page shows of a text: its arrays and those of its step, as in a record."""
    arrays = {
        name: array.astype(np.float16) if name.endswith("/weights") else array
        for name, array in (output.arrays | output.map_arrays()).items()
    }
    return PageText(output.text, arrays, numbers_of(step), {**notes, **output.notes})
