"""What every head of a classifier does with one text, as an object with numbers and a page.

Shape letters: L layers, H heads, T tokens, C classes.
"""

import html
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from headscope.ground.files import home
from headscope.heads.measures import Summary, role_arrays
from headscope.heads.step import ProbeOutput, page_text, study_arrays, text_numbers, text_summary
from headscope.heads.study import Study
from headscope.record.explanation import Explanation, layer_titles
from headscope.record.schema import Arrays, PageText
from headscope.runs.abstaining import accuracy_curve
from headscope.tab.html import texts_page, write_page

MOST_CLASSES = 5  # in a summary
# The frame may run the page's one script and save what it offers for saving. It cannot reach the
# notebook around it.
FRAME = (
    '<iframe title="Attention heads" sandbox="allow-scripts allow-downloads" srcdoc="{page}" '
    'style="width: 100%; height: 860px; border: 0; background: white"></iframe>'
)


class ByLayer(dict[str, Any]):
    """Values by the layer's name as `headscope.capture` has it; its number serves as well."""

    def __missing__(self, name: Any) -> Any:
        """Return the value of a layer's number."""
        if isinstance(name, int):
            return list(self.values())[name]
        raise KeyError(f"layer: expected one of {list(self)}, got {name!r}")


@dataclass(frozen=True, eq=False, repr=False)
class HeadView:
    """What every head does with a text: in a notebook the page, by `print` a summary of a line.

    Attributes:
        tokens: of the text, as a person reads them.
        maps: layer name, as `headscope.capture` has it, or number -> weights [H, T, T]; each row
            sums to 1.
        probabilities: class -> probability.
        explanation: the log-odds of the prediction as a sum, see `headscope.heads.contributions`.
            None for a module that gives no logits.
        without_heads: each class's probability with that head ablated [L, H, C]; None where heads
            cannot be changed.
        numbers: layer name -> measure -> (of each head, its standard error), of this text alone.
        study: what depends on each head over the labelled texts; None if none were given.
        html: the page.
        text: the text as the page has it.
    """

    tokens: list[str]
    maps: dict[str, Float[np.ndarray, "H T T"]]
    probabilities: dict[str, float]
    explanation: Explanation | None
    without_heads: Float[np.ndarray, "L H C"] | None
    numbers: Summary
    study: Study | None = None
    html: str = field(default="", repr=False)
    text: PageText | None = None

    @property
    def prediction(self) -> str:
        """The likeliest class; "" for a module that gives no logits."""
        return max(self.probabilities, key=lambda name: self.probabilities[name], default="")

    @property
    def contributions(self) -> Float[np.ndarray, "L H"] | None:
        """Each head's share of the log-odds of the prediction; None if unknown."""
        return None if self.explanation is None else self.explanation.head_sums

    @property
    def roles(self) -> list[list[str]]:
        """The role of each head of each layer in this text: see `headscope.heads.measures`."""
        roles = role_arrays(self.numbers)["roles"].tolist() if self.numbers else []
        return [[role for role in of_layer if role] for of_layer in roles]

    def __repr__(self) -> str:
        """Return the prediction and the sizes in one line."""
        heads = sum(map(len, self.maps.values()))
        known = f", prediction {self.prediction!r}" if self.probabilities else ""
        return f"HeadView({len(self.tokens)} tokens, {heads} heads{known})"

    def __str__(self) -> str:
        """Return the likeliest classes, the words that decided, and which heads matter if known."""
        likeliest = sorted(self.probabilities.items(), key=lambda item: -item[1])[:MOST_CLASSES]
        shares = ", ".join(f"{name} {share:.3f}" for name, share in likeliest)
        lines = ["; ".join(filter(None, [f"{len(self.tokens)} tokens", shares]))]
        if self.explanation is not None:
            lines.append(str(self.explanation))
        if self.study is not None:
            lines.append(self.study.answer)
        return "\n".join(lines)

    def save(self, path: str | Path) -> Path:
        """Write the page into one HTML file, which needs neither a server nor a network."""
        write_page(home(path), self.html)
        return home(path)

    def _repr_html_(self) -> str:
        """Return the page inside a frame, for Jupyter and Colab."""
        return FRAME.format(page=html.escape(self.html, quote=True))


def head_view(
    output: ProbeOutput,
    study: Study | None,
    notes: Mapping[str, str],
    effects: Arrays | None = None,
) -> HeadView:
    """Return the view of a text without its page; the probabilities are with each head ablated.

    The effects of ablation are those of a study, or as a record has them.
    """
    summary = text_summary(output)
    step = text_numbers(output, summary) | role_arrays(summary) | (effects or {})
    if study is not None:
        step |= study_arrays(study)
    return HeadView(
        tokens=output.text.tokens,
        maps=ByLayer(zip(output.layers, output.maps, strict=True)),
        probabilities=output.probabilities,
        explanation=output.explanation,
        without_heads=output.arrays.get("without/heads"),
        numbers=ByLayer(summary),
        study=study,
        text=page_text(output, step, notes),
    )


def with_page(view: HeadView) -> HeadView:
    """Return a view with the page of this one text."""
    assert view.text is not None, "head_view gives it"
    layers = layer_titles([*view.maps])
    sure = None
    if view.study is not None:
        confidence, is_right = view.study.sure.T
        sure = {"curve": accuracy_curve(confidence, is_right == 1)}
    html = texts_page("Attention heads", layers, list(view.probabilities), [view.text], sure)
    return replace(view, html=html)
