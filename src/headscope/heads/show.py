"""What every head of a classifier does with one text, as an object with the numbers and as a page: `headscope.show`.

Shape letters: L layers, H heads, T tokens, C classes.
"""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from headscope.heads.ablation import gate_gradient, losses, losses_without
from headscope.heads.effects import ablation_effects, answer, rises_of, role, role_arrays
from headscope.heads.interventions import (
    device_of,
    eval_mode,
    headed_layers,
    intervene_layers,
    logits_of,
)
from headscope.heads.lightning_callback import beyond_the_usual, numbers_of
from headscope.heads.measures import HeadStatistics, Summary
from headscope.heads.report import Probe, ProbeOutput, run_probe
from headscope.heads.sequence_classifier import Given, SequenceClassifier
from headscope.heads.study import Study, measure_attention
from headscope.model.objective import Objective
from headscope.record.reader import nested
from headscope.record.schema import Arrays, Text, levels_of, notes_of, numbers_of_pair, quadrants
from headscope.tab.page import PageText, page, write_page

FIRST_SAMPLE = 100  # texts
EXACT = 2**16  # weights of all maps of a text, up to which a page has them in float32
# The frame may run the page's one script and save what it offers for saving. It cannot reach the notebook around it.
FRAME = (
    '<iframe title="Attention heads" sandbox="allow-scripts allow-downloads" srcdoc="{page}" '
    'style="width: 100%; height: 860px; border: 0; background: white"></iframe>'
)


@dataclass(frozen=True, eq=False)
class Shown:
    """What every head does with a text; in a notebook it is the page, and `print` says it in a few lines.

    Attributes:
        tokens: of the text, as a person reads them.
        maps: layer name -> weights [H, T, T]; each row sums to 1.
        probabilities: class -> probability.
        contributions: what each head put for the prediction [L, H], in nats: see `headscope.heads.contributions`;
            None for a model of headscope's that is not read at [CLS], where there is no such sum.
        without_heads: each class's probability with that head switched off [L, H, C].
        without_layers: the same with all heads of that layer switched off [L, C].
        numbers: layer name -> measure -> (of each head, its standard error), of this text alone.
        study: what depends on each head over the labelled texts; None if none were given.
        html: the page.
    """

    tokens: list[str]
    maps: dict[str, Float[np.ndarray, "H T T"]]
    probabilities: dict[str, float]
    contributions: Float[np.ndarray, "L H"] | None
    without_heads: Float[np.ndarray, "L H C"]
    without_layers: Float[np.ndarray, "L C"]
    numbers: Summary
    study: Study | None = None
    html: str = field(default="", repr=False)

    @property
    def prediction(self) -> str:
        """The likeliest class."""
        return max(self.probabilities, key=lambda name: self.probabilities[name])

    @property
    def roles(self) -> list[list[str]]:
        """What each head of each layer seems to do in this text, by rule: see `headscope.heads.effects`."""
        return [
            [
                role({name: means[head] for name, (means, _) in measures.items()})[0]
                for head in range(len(measures["self"][0]))
            ]
            for measures in self.numbers.values()
        ]

    def __str__(self) -> str:
        """Say what the model says, and which heads matter if that was measured."""
        said = ", ".join(f"{name} {share:.3f}" for name, share in self.probabilities.items())
        known = (
            "which heads matter is measured on labelled texts"
            if self.study is None
            else answer(self.study.verdicts)
        )
        return f"{len(self.tokens)} tokens; {said}; {known}"

    def save(self, path: str | Path) -> Path:
        """Write the page into one HTML file, which needs neither a server nor a network."""
        write_page(Path(path), self.html)
        return Path(path)

    def _repr_html_(self) -> str:
        """Return the page inside a frame, for Jupyter and Colab."""
        return FRAME.format(page=html.escape(self.html, quote=True))


def show(
    model: nn.Module,
    tokenizer: Any,
    text: str,
    text_pair: str | None = None,
    texts: Sequence[Given] | None = None,
    labels: Sequence[Any] | None = None,
    max_tokens: int = 128,
) -> Shown:
    """Show what every head of a transformers sequence classifier does with a text; last in a notebook's cell, its page.

        headscope.show(model, tokenizer, "a film that knows what it wants")
        headscope.show(model, tokenizer, text, texts=some_texts, labels=their_classes)  # which heads matter, too

    Nothing is fetched, and the model is left as it was. For a run that headscope trained: `run.show(text)`.

    Args:
        model: such as BertForSequenceClassification, with two classes or more.
        tokenizer: the model's own.
        text: what is shown.
        text_pair: the second text, for a model of pairs.
        texts: labelled texts, or pairs (text, text_pair), over which every head is switched off in turn. That takes a
            forward pass over all of them for each head; 300 are enough for a first answer.
        labels: the class of each of them, a name or a number; a list of them where a text may have several.
        max_tokens: a longer text is cut, for the model too, and the page says so. It grows with the square of this:
            12 x 12 heads take 3 MiB at 128 tokens, 12 at 256.

    Raises:
        ValueError: if the model is no sequence classifier, or texts come without labels.
        DataError: for a label that the model does not know.
    """
    if not text.strip():
        raise ValueError("text: is empty; takes a text")
    if (texts is None) != (labels is None):
        raise ValueError("texts and labels go together: takes both, or neither")
    classifier = SequenceClassifier(model, tokenizer, max_tokens)
    given = text if text_pair is None else (text, text_pair)
    probe, study = classifier.probe(given), None
    if texts is not None and labels is not None:
        study = which_matter(classifier, texts, labels)
    notes = {"model": f"{type(model).__name__} {getattr(model, 'name_or_path', '')}".strip()}
    if classifier.is_cut(given):
        notes["shown"] = (
            f"the first {len(probe.tokens)} tokens, which are all that the model was given"
        )
    return shown(classifier, probe, classifier.labels, classifier.objective, study, notes)


def which_matter(
    classifier: SequenceClassifier, texts: Sequence[Given], labels: Sequence[Any]
) -> Study:
    """Return which heads matter, over labelled texts: patterns, ablation with verdicts, gates and likeness.

    Every head is switched off on FIRST_LOOK of the texts, drawn always the same; those of which it cannot be said yet
    whether they matter on further ones, as long as there are any. What takes much longer is left out: `causes` has it.
    """
    classifier.batches(
        texts, labels
    )  # what is wrong with any of them is said before anything is measured
    order = np.random.default_rng(0).permutation(len(texts))
    ends = [0, FIRST_SAMPLE]
    while ends[-1] < len(texts):
        ends.append(2 * ends[-1])
    first, *more = (
        classifier.batches([texts[row] for row in rows], [labels[row] for row in rows])
        for rows in (order[begin:end] for begin, end in pairwise(ends))
    )
    objective = classifier.objective
    numbers, likeness = measure_attention(classifier, first, classifier.special)
    heads = [
        (name, head)
        for name, layer in headed_layers(classifier).items()
        for head in range(layer.num_heads)
    ]
    whole = losses(classifier, first, objective)
    rises = {head: losses_without(classifier, first, head, objective) - whole for head in heads}
    verdicts = ablation_effects(classifier, rises, more, objective)
    rise, gates = rises_of(verdicts), gate_gradient(classifier, first, objective)
    numbers = {name: measures | rise[name] | gates[name] for name, measures in numbers.items()}
    return Study(numbers, None, likeness, max(found.texts for found in verdicts.values()), verdicts)


def shown(
    model: nn.Module,
    probe: Probe,
    labels: list[str],
    objective: Objective,
    study: Study | None = None,
    notes: Mapping[str, str] | None = None,
    temperature: float = 1.0,
) -> Shown:
    """Show what every head of a model, called as headscope's are, does with a text: see `show`."""
    reading = run_probe(model, probe, labels, device_of(model), objective, temperature)
    numbers = reading_numbers(reading)
    layers = [f"layer {number}" for number in range(len(reading.maps))]
    on_the_page = page_text(
        "text", probe, reading, head_numbers(numbers, reading, probe.segments), dict(notes or {})
    )
    off = ablate_each_head(model, probe, objective, temperature)
    measured = numbers if study is None else study.numbers
    extra = role_arrays(measured) | ({} if study is None else study.extra())
    effects = {} if study is None else numbers_of(beyond_the_usual(study))
    on_the_page = replace(
        on_the_page,
        arrays=on_the_page.arrays | off,
        numbers={
            **on_the_page.numbers,
            **{name: nested(mean) for name, (mean, _) in effects.items()},
        },
        errors={name: nested(error) for name, (_, error) in effects.items()},
        extra={name: nested(array) for name, array in extra.items()},
    )
    content = page("Attention heads", layers, labels, [on_the_page])
    contributions = None if reading.spoken is None else reading.spoken.heads
    return Shown(
        probe.tokens, reading.maps, reading.probabilities, contributions,
        off["without/heads"], off["without/layers"], numbers, study, content,
    )  # fmt: skip


def ablate_each_head(
    model: nn.Module, probe: Probe, objective: Objective, temperature: float = 1.0
) -> Arrays:
    """Return each class's probability with a head or a layer switched off, in float32 and by the record's names.

    without/heads [L, H, C]: with one head off, NaN where a layer has fewer heads. without/layers [L, C]: with all heads
    of one layer off.
    """

    def without(name: str, heads: slice) -> Float[np.ndarray, " C"]:
        def zero(sums: Float[Tensor, "B H Q E"]) -> Float[Tensor, "B H Q E"]:
            left = sums.clone()
            left[:, heads] = 0
            return left

        with intervene_layers(model, {name: zero}):
            logits = logits_of(model, probe.batch).float().cpu()
        return objective.probabilities(logits / temperature)[0].numpy()

    with torch.no_grad(), eval_mode(model):
        layers = headed_layers(model)
        whole = [without(name, slice(None)) for name in layers]
        H = max(layer.num_heads for layer in layers.values())
        heads = np.full((len(layers), H, len(whole[0])), np.nan, dtype=np.float32)
        for place, (name, layer) in enumerate(layers.items()):
            for head in range(layer.num_heads):
                heads[place, head] = without(name, slice(head, head + 1))
    return {"without/heads": heads, "without/layers": np.stack(whole)}


def reading_numbers(reading: ProbeOutput) -> Summary:
    """Return the numbers of every head over this one text."""
    statistics = HeadStatistics()
    for layer, maps in reading.maps.items():
        statistics.update(layer, torch.from_numpy(maps)[None])  # [1, H, T, T]
    return statistics.summary()


def head_numbers(
    summary: Summary, reading: ProbeOutput, segments: list[int | None] | None
) -> list[list[dict[str, float]]]:
    """Return each measure's mean, layer by layer and head by head.

    Of a pair, whose segments say which text each token is of, also what goes from one text to the other; and, where it
    can be said, what the head put for the answer in nats.
    """
    numbers = []
    for layer, (measures, maps) in enumerate(
        zip(summary.values(), reading.maps.values(), strict=True)
    ):
        heads = zip(*(means for means, _ in measures.values()), strict=True)
        numbers.append([
            dict(zip(measures, values, strict=True))
            | numbers_of_pair(maps[head], segments)
            | ({} if reading.spoken is None else {"nats": float(reading.spoken.heads[layer, head])})
            for head, values in enumerate(heads)
        ])  # fmt: skip
    return numbers


def page_text(
    name: str,
    probe: Probe,
    reading: ProbeOutput,
    numbers: list[list[dict[str, float]]],
    notes: dict[str, str],
    shares: list[np.ndarray] | None = None,
) -> PageText:
    """Return what a page shows of a text, with the numbers of its heads and notes on where all this comes from.

    Weights are exact in float32 where they are few; else they are kept as the record keeps them, in one byte. Of a
    reading that is cut, `shares` say layer by layer how a pair's texts divide each head's whole map [H, 2, 2].
    """
    arrays: Arrays = {
        "probabilities": np.array(list(reading.probabilities.values()), dtype=np.float32)
    }
    norms = list(reading.norms.values())
    is_exact = sum(maps.size for maps in reading.maps.values()) <= EXACT
    for number, maps in enumerate(reading.maps.values()):
        if is_exact:
            arrays[f"layer_{number}/weights"] = maps.astype(np.float32)
        else:
            arrays[f"layer_{number}/levels"], arrays[f"layer_{number}/scales"] = levels_of(maps)
        if number < len(norms):
            arrays[f"layer_{number}/value_norms"] = norms[number].astype(np.float32)
        if probe.segments is not None:
            whole = quadrants(maps, probe.segments) if shares is None else shares[number]
            arrays[f"layer_{number}/quadrants"] = whole.astype(np.float32)
    if reading.pooling is not None:
        arrays["pooling"] = reading.pooling.astype(np.float32)
    if not isinstance(reading.answer, str):
        arrays["given"] = np.array(
            [name in reading.answer for name in reading.probabilities], dtype=np.uint8
        )
    said = reading.spoken
    arrays |= {} if said is None else said.arrays()
    measures = {
        measure: [[head.get(measure) for head in heads] for heads in numbers]
        for measure in numbers[0][0]
    }
    text = Text(
        name, probe.tokens, probe.text, probe.label, probe.segments, probe.special, probe.readout
    )
    return PageText(
        text, arrays, measures, notes_of(said) | notes, None if said is None else said.answer
    )
