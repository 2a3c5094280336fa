"""What every head of a classifier does with one text: an object with numbers and a page.

Shape letters: L layers, H heads, T tokens, C classes.
"""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import nn

from headscope.heads.measures import Summary, role_arrays
from headscope.heads.report import ProbeOutput, page_text, study_arrays, text_numbers, text_summary
from headscope.heads.sequence_classifier import SequenceClassifier, TextOrPair, study_texts
from headscope.heads.study import Study
from headscope.record.contributions import Explanation
from headscope.record.schema import Arrays
from headscope.tab.page import page, write_page
from headscope.terminal import Bar, terminal

# The frame may run the page's one script and save what it offers for saving. It cannot reach the
# notebook around it.
FRAME = (
    '<iframe title="Attention heads" sandbox="allow-scripts allow-downloads" srcdoc="{page}" '
    'style="width: 100%; height: 860px; border: 0; background: white"></iframe>'
)


@dataclass(frozen=True, eq=False)
class HeadView:
    """What every head does with a text: in a notebook the page, by `print` a summary of a line.

    Attributes:
        tokens: of the text, as a person reads them.
        maps: layer name -> weights [H, T, T]; each row sums to 1.
        probabilities: class -> probability.
        explanation: what each head adds from each token to the log-odds of the prediction, see
            `headscope.heads.contributions`. None for a model of headscope's that does not read out
            at [CLS], whose logits are no such sum.
        without_heads: each class's probability with that head ablated [L, H, C]; None where heads
            cannot be changed.
        without_layers: the same with all heads of that layer ablated [L, C].
        numbers: layer name -> measure -> (of each head, its standard error), of this text alone.
        study: what depends on each head over the labelled texts; None if none were given.
        html: the page.
    """

    tokens: list[str]
    maps: dict[str, Float[np.ndarray, "H T T"]]
    probabilities: dict[str, float]
    explanation: Explanation | None
    without_heads: Float[np.ndarray, "L H C"] | None
    without_layers: Float[np.ndarray, "L C"] | None
    numbers: Summary
    study: Study | None = None
    html: str = field(default="", repr=False)

    @property
    def prediction(self) -> str:
        """The likeliest class."""
        return max(self.probabilities, key=lambda name: self.probabilities[name])

    @property
    def roles(self) -> list[list[str]]:
        """The role of each head of each layer in this text: see `headscope.heads.measures`."""
        roles = role_arrays(self.numbers)["roles"].tolist()
        return [[role for role in of_layer if role] for of_layer in roles]

    def __str__(self) -> str:
        """Return the probabilities and, if that was measured, which heads matter."""
        shares = ", ".join(f"{name} {share:.3f}" for name, share in self.probabilities.items())
        matter = "give labelled texts to measure which heads matter"
        if self.study is not None:
            matter = self.study.answer
        return f"{len(self.tokens)} tokens; {shares}; {matter}"

    def save(self, path: str | Path) -> Path:
        """Write the page into one HTML file, which needs neither a server nor a network."""
        write_page(Path(path), self.html)
        return Path(path)

    def _repr_html_(self) -> str:
        """Return the page inside a frame, for Jupyter and Colab."""
        return FRAME.format(page=html.escape(self.html, quote=True))


Shown = HeadView  # its name until version 0.1


def show(
    model: nn.Module,
    tokenizer: Any,
    text: str,
    text_pair: str | None = None,
    texts: Sequence[TextOrPair] | None = None,
    labels: Sequence[Any] | None = None,
    max_tokens: int = 128,
) -> HeadView:
    """Show what every head of a transformers sequence classifier does with a text.

        headscope.show(model, tokenizer, "a film that knows what it wants")
        headscope.show(model, tokenizer, text, texts=some_texts, labels=their_classes)

    Last in a notebook's cell, it is the page. With labelled texts it says which heads matter, too.
    Nothing is fetched, and the model is left as it was. For a run that headscope trained:
    `run.show(text)`.

    Args:
        model: such as BertForSequenceClassification, with two classes or more.
        tokenizer: the model's own.
        text: what is shown.
        text_pair: the second text, for a model of pairs.
        texts: labelled texts, or pairs (text, text_pair), over which every head is ablated in turn.
            That takes a forward pass over all of them for each head; 300 are enough for a first
            answer.
        labels: the class of each of them, a name or a number; a list of them where a text may have
            several.
        max_tokens: a longer text is cut, for the model too, and the page says so. The page grows
            with the square of this: 12 x 12 heads take 3 MiB at 128 tokens, 12 at 256.

    Raises:
        ValueError: if the model is no sequence classifier, or texts come without labels.
        DataError: for a label that the model does not know.
    """
    classifier = SequenceClassifier(model, tokenizer, max_tokens)
    study = None
    if texts is not None and labels is not None:
        with Bar(terminal(), f"measuring every head on {len(texts)} texts"):
            study = study_texts(classifier, texts, labels)
    elif texts is not None or labels is not None:
        raise ValueError("texts, labels: expected both or neither, got one")
    shown = text if text_pair is None else (text, text_pair)
    notes = {"model": f"{type(model).__name__} {getattr(model, 'name_or_path', '')}".strip()}
    output = classifier.output(classifier.probe(shown))
    if classifier.is_cut(shown):
        count = len(output.text.tokens)
        notes["shown"] = f"the first {count} tokens, which are all that the model was given"
    return head_view(output, study, notes)


def head_view(
    output: ProbeOutput,
    study: Study | None,
    notes: Mapping[str, str],
    effects: Arrays | None = None,
) -> HeadView:
    """Return the view of a text, whose output has the probabilities without each head.

    The page has the effects of ablation from a study, or as a record has them.
    """
    summary = text_summary(output)
    step = text_numbers(output, summary) | role_arrays(summary) | (effects or {})
    if study is not None:
        step |= study_arrays(study)
    layers = [f"layer {number}" for number in range(len(output.layers))]
    text = page_text(output, step, notes)
    return HeadView(
        tokens=output.text.tokens,
        maps=dict(zip(output.layers, output.maps, strict=True)),
        probabilities=output.probabilities,
        explanation=output.explanation,
        without_heads=output.arrays.get("without/heads"),
        without_layers=output.arrays.get("without/layers"),
        numbers=summary,
        study=study,
        html=page("Attention heads", layers, list(output.probabilities), [text]),
    )
