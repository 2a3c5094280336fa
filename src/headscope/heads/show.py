"""What every head of a classifier does with one text: an object with numbers and a page.

Shape letters: L layers, H heads, T tokens, C classes.
"""

import html
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from headscope.data.batching import Batch
from headscope.data.rows import as_list
from headscope.ground.terminal import Bar, terminal
from headscope.heads.capture import (
    capture,
    device_of,
    eval_mode,
    headed_layers,
    logits_of,
)
from headscope.heads.fixed_gates import token_vectors
from headscope.heads.integrations.sequence_classifier import (
    SequenceClassifier,
    named_as_captured,
    ordered_names,
    study_texts,
)
from headscope.heads.measures import Summary, role_arrays
from headscope.heads.step import (
    Probe,
    ProbeOutput,
    page_text,
    run_probe,
    study_arrays,
    text_numbers,
    text_summary,
)
from headscope.heads.study import Study
from headscope.record.explanation import Explanation
from headscope.record.schema import Arrays, PageText, Text
from headscope.tab.page import page, write_page

# The frame may run the page's one script and save what it offers for saving. It cannot reach the
# notebook around it.
FRAME = (
    '<iframe title="Attention heads" sandbox="allow-scripts allow-downloads" srcdoc="{page}" '
    'style="width: 100%; height: 860px; border: 0; background: white"></iframe>'
)


class ByLayer(dict[str, Any]):
    """Values by the layer's name as `headscope.capture` has it; its number serves as well."""

    def __missing__(self, name: Any) -> Any:
        """Return the value of a layer's number, or of its name inside headscope's wrapper."""
        if isinstance(name, int):
            return list(self.values())[name]
        if name.startswith("model."):
            return self[name.removeprefix("model.")]
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
        without_layers: the same with all heads of that layer ablated [L, C].
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
    without_layers: Float[np.ndarray, "L C"] | None
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
        """What passes through each head to the log-odds of the prediction; None if unknown."""
        return None if self.explanation is None else self.explanation.heads.sum(axis=-1)

    @property
    def roles(self) -> list[list[str]]:
        """The role of each head of each layer in this text: see `headscope.heads.measures`."""
        roles = role_arrays(self.numbers)["roles"].tolist()
        return [[role for role in of_layer if role] for of_layer in roles]

    def __repr__(self) -> str:
        """Return the prediction and the sizes in one line."""
        heads = sum(map(len, self.maps.values()))
        known = f", prediction {self.prediction!r}" if self.probabilities else ""
        return f"HeadView({len(self.tokens)} tokens, {heads} heads{known})"

    def __str__(self) -> str:
        """Return the words that decided, the probabilities, and which heads matter if measured."""
        shares = ", ".join(f"{name} {share:.3f}" for name, share in self.probabilities.items())
        matter = "give labelled texts to measure which heads matter"
        if self.study is not None:
            matter = self.study.answer
        line = "; ".join(filter(None, [f"{len(self.tokens)} tokens", shares, matter]))
        return line if self.explanation is None else f"{self.explanation}\n{line}"

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
    text: Any,
    text_pair: str | None = None,
    texts: Any = None,
    labels: Any = None,
    max_tokens: int = 128,
) -> HeadView:
    """Show what every head of a model does with a text.

        headscope.show(model, tokenizer, "a film that knows what it wants")
        headscope.show(model, tokenizer, text, texts=some_texts, labels=their_classes)
        headscope.show(module, ["a", "film"], token_ids)  # any nn.Module, [1, 2] token ids

    Last in a notebook's cell, it is the page. With labelled texts it says which heads matter, too.
    Nothing is fetched, and the model is left as it was. For a run that headscope trained:
    `run.show(text)`.

    Args:
        model: a sequence classifier of transformers, such as BertForSequenceClassification, with
            two classes or more; or, with tokens, any module with attention of headscope, torch or
            transformers.
        tokenizer: the model's own; or the tokens of the text, one for each row of a map.
        text: what is shown; or, with tokens, what the module is called with: a tensor, a tuple of
            arguments, or a dictionary of named ones. Those with the text begin with 1, a batch of
            one. Where the output, or its `logits`, is [1, C], contributions are shown, too.
        text_pair: the second text, for a model of pairs.
        texts: labelled texts, or pairs (text, text_pair), over which every head is ablated in turn:
            a list, or a column of pandas, numpy or datasets. That takes a forward pass over all of
            them for each head; 300 are enough for a first answer.
        labels: the class of each of them, a name or a number; where a text may have several, a list
            of them, or C numbers 0 and 1, as transformers trains on. A column or tensor serves,
            too. With tokens: the names of the C classes, in the order of the logits.
        max_tokens: a longer text is cut, for the model too, and the page says so. The page grows
            with the square of this: 12 x 12 heads take 6 MB at 128 tokens, 25 at 256.

    Raises:
        ValueError: if the model is no sequence classifier, its heads cannot be ablated over texts,
            texts come without labels, or tokens do not fit the maps.
        DataError: for a label that the model does not know.
    """
    if isinstance(tokenizer, list | tuple):
        if texts is not None or text_pair is not None:
            raise ValueError(
                "texts, text_pair: expected none with a list of tokens, got some; give a tokenizer "
                "to have texts read, and the heads measured on them: docs/any-model.md"
            )
        return _show_module(model, list(tokenizer), text, labels)
    classifier = SequenceClassifier(model, tokenizer, max_tokens)
    if texts is not None and not headed_layers(classifier):
        raise ValueError(
            f"texts: the heads of {type(model).__name__} cannot be ablated, since it does not use "
            "transformers' AttentionInterface; leave texts and labels out to see its maps"
        )
    study = None
    if texts is not None and labels is not None:
        rows = as_list(texts, "texts")
        with Bar(terminal(), f"measuring every head on {len(rows)} texts") as bar:
            study = study_texts(classifier, rows, as_list(labels, "labels"), bar.update)
    elif texts is not None or labels is not None:
        raise ValueError("texts, labels: expected both or neither, got one")
    shown = text if text_pair is None else (text, text_pair)
    notes = {"model": f"{type(model).__name__} {getattr(model, 'name_or_path', '')}".strip()}
    output = classifier.output(classifier.probe(shown))
    if classifier.is_cut(shown):
        count = len(output.text.tokens)
        notes["shown"] = f"the first {count} tokens, which are all that the model was given"
    return head_view(output, study, notes)


class _Called(nn.Module):
    """Calls a module with given inputs, as often as there are rows in a batch."""

    def __init__(self, model: nn.Module, inputs: Any) -> None:
        super().__init__()
        self.model = model
        self.inputs = inputs if isinstance(inputs, tuple | dict) else (inputs,)

    def forward(self, token_ids: Tensor, *_: Any) -> Float[Tensor, "B C"]:
        """Return the logits [B, C]; [B, 0] where the module gives none."""
        B = len(token_ids)

        def repeated(tensor: Tensor) -> Tensor:
            tensor = tensor.to(token_ids.device)
            is_text = tensor.ndim > 0 and len(tensor) == 1
            if is_text:
                tensor = tensor.repeat(B, *[1] * (tensor.ndim - 1))
            return token_vectors(tensor) if tensor.is_floating_point() else tensor

        inputs = tree_map_only(Tensor, repeated, self.inputs)
        output = self.model(**inputs) if isinstance(inputs, dict) else self.model(*inputs)
        logits = getattr(output, "logits", output)
        if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != B:
            return token_ids.new_zeros(B, 0).float()
        return logits


def _show_module(model: nn.Module, tokens: list[str], inputs: Any, names: Any) -> HeadView:
    """Show what every head of any module does with what it is called with."""
    called = _Called(model, inputs)
    nothing = torch.zeros(1, len(tokens), dtype=torch.long, device=device_of(model))
    batch = Batch(nothing, None, None, torch.tensor([-1]), torch.tensor([0]))
    with eval_mode(called), torch.no_grad(), capture(called, poolings=False) as maps:
        num_classes = logits_of(called, batch).shape[-1]
    for name, weights in maps.items():
        if weights.shape[0] != 1 or tuple(weights.shape[2:]) != (len(tokens), len(tokens)):
            name = name.removeprefix("model.")
            raise ValueError(
                f"tokens, inputs: expected one text of {len(tokens)} tokens, got a map "
                f"{tuple(weights.shape)} of {name}; give a batch of one, with a token a place"
            )
    classes = [f"class {number}" for number in range(num_classes)]
    if names is not None:
        classes = ordered_names(names, "labels")
    if len(classes) != num_classes:
        raise ValueError(f"labels: expected {num_classes} names, got {len(classes)}")
    probe = Probe(Text("text", tokens, " ".join(tokens)), batch)
    known = classes if num_classes >= 2 else []
    output = run_probe(called, probe, known, with_ablations=True)
    return head_view(named_as_captured(output), None, {"model": type(model).__name__})


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
        maps=ByLayer(zip(output.layers, output.maps, strict=True)),
        probabilities=output.probabilities,
        explanation=output.explanation,
        without_heads=output.arrays.get("without/heads"),
        without_layers=output.arrays.get("without/layers"),
        numbers=ByLayer(summary),
        study=study,
        html=page("Attention heads", layers, list(output.probabilities), [text]),
        text=text,
    )
