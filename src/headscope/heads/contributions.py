"""What every head contributes to each class's logit: direct logit attribution.

In a pre-norm encoder that is read out at [CLS], x, the input of the last norm, is what [CLS]
started with plus what every head and every feed-forward block added there. With the norm's scale
sigma held fixed at its value for this text, a logit is linear in x, so it is a sum with a term for
each of them (Elhage et al. 2021, A Mathematical Framework for Transformer Circuits; nostalgebraist
2020, interpreting GPT: the logit lens):

    logit_c = sum_lh head_lhc + sum_l feedforward_lc + bias_c
    head_lhc = U_c W^O_lh sum_k a_lhk v_lhk,   U_c = (gamma * W_c - mean_d(gamma * W_c)) / sigma

W and b are the classifier's, gamma and beta the norm's, W^O_lh the columns of the output projection
that head h of layer l goes through, a_lhk the weight that [CLS] gives to key k there, v_lhk its
value. The bias is input-independent, but for sigma: what [CLS] started with, b, beta and the biases
of the output projections. In the post-norm encoder of a checkpoint the scales of all norms are held
fixed.

Contributions are in nats: +1 nat for a class, against another, multiplies its odds by e = 2.7.

Shape letters: B texts, N texts in all, L layers, H heads, K keys, T tokens, E head width, D model
width, C classes.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeGuard

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headscope.attention.functional import AttentionCall
from headscope.attention.multi_head import HeadedAttention, Intervention
from headscope.data.batching import Batch, moved
from headscope.heads import capture
from headscope.heads.capture import device_of, eval_mode
from headscope.model.classifier import TextClassifier
from headscope.model.objective import MultiLabel, Objective
from headscope.model.pooling import first_pooling
from headscope.model.pretrained import PostNormEncoder
from headscope.record.contributions import Contributions, strongest_tokens

ONLY_FIRST = (
    "contributions of heads are known only where the read-out is [CLS]: model.pooling=first"
)
NUM_POINTS = 16  # of integrated gradients


@dataclass(frozen=True)
class LogitContributions:
    """What every part contributes to each class's logit, in nats; `[0]` is the first text's."""

    heads: Float[Tensor, "*B L H C"]
    feedforward: Float[Tensor, "*B L C"]
    bias: Float[Tensor, "*B C"]
    logits: Float[Tensor, "*B C"]  # of the model: heads, feed-forward blocks and bias sum to them
    # Heads by the key that they attend to, if asked for; 0 where an intervention changed the head
    tokens: Float[Tensor, "*B L H K C"] | None = None

    def __getitem__(self, text: int) -> "LogitContributions":
        """Return one text's, padding included."""
        return LogitContributions(
            self.heads[text],
            self.feedforward[text],
            self.bias[text],
            self.logits[text],
            None if self.tokens is None else self.tokens[text],
        )

    def total(self) -> Float[Tensor, "*B C"]:
        """Return the sum of all parts, which is the logit."""
        return self.heads.sum(dim=(-3, -2)) + self.feedforward.sum(dim=-2) + self.bias

    def along(
        self, direction: Float[Tensor, " C"], answer: str, tokens: Sequence[str]
    ) -> Contributions:
        """Return one text's contributions to an answer, such as "Copyleft", and their main tokens.

        `direction` has a factor for each class: from `class_direction`, or 1 and -1 for a class
        against another.
        """
        assert self.tokens is not None
        parts = (self.heads, self.tokens, self.feedforward, self.bias)
        heads, by_key, feedforward, bias = ((part @ direction).numpy() for part in parts)
        return strongest_tokens(
            answer, tokens, heads, by_key[..., : len(tokens)], feedforward, bias
        )


def has_contributions(model: nn.Module) -> TypeGuard[TextClassifier]:
    """Return whether a model's logits are such a sum: whether it is read out at [CLS]."""
    return isinstance(model, TextClassifier) and model.pool is first_pooling


def logit_contributions(
    model: TextClassifier, *inputs: Any, by_key: bool = True
) -> LogitContributions:
    """Run the model in eval mode, and split each logit into the contributions of the model's parts.

    Values, weights and head outputs are those that the attention layers used. Products are exact
    float32, on a GPU too.

    Args:
        model: read out at [CLS]; a ValueError if not, since tokens then bypass attention.
        inputs: of some texts, what the model is called with.
        by_key: also split each head's contribution by key, which takes B L H K C numbers.
    """
    if not has_contributions(model):
        raise ValueError(ONLY_FIRST)
    no_autocast = torch.autocast(device_of(model).type, enabled=False)
    with eval_mode(model), torch.no_grad(), no_autocast, _exact_products():
        with _recording(model, by_key) as activations:
            logits = _exact(model(*inputs))
        return decompose_logits(model, activations, logits)


def class_direction(logits: Float[Tensor, "*B C"], objective: Objective) -> Float[Tensor, "*B C"]:
    """Return each class's factor in the contributions for the likeliest class.

    Where a text has one of C classes: that class against the mean of all, 1 - 1/C and -1/C. With
    any number of classes: that class against its absence, 1 and 0.
    """
    likeliest = nn.functional.one_hot(logits.argmax(dim=-1), logits.shape[-1]).double()
    return likeliest if isinstance(objective, MultiLabel) else likeliest - 1 / logits.shape[-1]


class HeadContributions(NamedTuple):
    """The contributions to each text's likeliest class, in nats: see `class_direction`."""

    heads: Float[Tensor, "N L H"]
    feedforward: Float[Tensor, "N L"]
    bias: Float[Tensor, " N"]

    def facts(self) -> dict[str, object]:
        """Return the means over the texts as metrics.json has them, and the number of texts."""
        return {
            "texts": len(self.heads),
            "heads": self.heads.mean(dim=0).tolist(),
            "feedforward": self.feedforward.mean(dim=0).tolist(),
            "constant": self.bias.mean(dim=0).tolist(),
        }


def mean_contributions(
    model: TextClassifier, batches: Iterable[Batch], objective: Objective
) -> HeadContributions:
    """Split the logit of each text's likeliest class, along `class_direction`."""
    parts = []
    for batch in batches:
        inputs = moved(batch, device_of(model)).inputs
        split = logit_contributions(model, *inputs, by_key=False)
        direction = class_direction(split.logits, objective)
        of_classes = (split.heads, split.feedforward, split.bias)
        parts.append([torch.einsum("b...c,bc->b...", part, direction) for part in of_classes])
    return HeadContributions(*(torch.cat(part) for part in zip(*parts, strict=True)))


@dataclass
class Activations:
    """The activations at [CLS] of one forward pass: a list has an entry for each layer."""

    start: list[Float[Tensor, "B D"]] = field(default_factory=list)  # the first block's input
    head_outputs: list[Float[Tensor, "B H E"]] = field(default_factory=list)
    weighted_values: list[Float[Tensor, "B H K E"]] = field(default_factory=list)  # of each key
    is_unchanged: list[Bool[Tensor, "B H"]] = field(default_factory=list)  # by an intervention
    feedforward: list[Float[Tensor, "B D"]] = field(default_factory=list)
    scales: dict[nn.Module, Float[Tensor, " B"]] = field(default_factory=dict)  # sigma of each norm


@contextmanager
def _recording(model: TextClassifier, by_key: bool) -> Iterator[Activations]:
    """Record the activations of the model's next forward pass."""
    activations = Activations()

    def record_output(outputs: list[Tensor]) -> Callable[..., None]:
        return lambda _, args, output: outputs.append(_exact(output[:, 0]))

    def record_scale(norm: nn.LayerNorm, args: tuple[Tensor, ...]) -> None:
        at_cls = _exact(args[0][:, 0])
        activations.scales[norm] = (at_cls.var(dim=-1, correction=0) + norm.eps).sqrt()

    def record_heads(earlier: Intervention | None) -> Intervention:
        def record(before: Float[Tensor, "B H Q E"]) -> Float[Tensor, "B H Q E"]:
            after = before if earlier is None else earlier(before)
            activations.head_outputs.append(_exact(after[:, :, 0]))
            is_unchanged = (after[:, :, 0] == before[:, :, 0]).all(dim=-1)
            activations.is_unchanged.append(is_unchanged.cpu())
            return after

        return record

    def record_keys(name: str, call: AttentionCall) -> None:
        assert call.values is not None
        weights = _exact(call.weights()[:, :, 0, :, None])  # [B, H, K, 1]
        activations.weighted_values.append(weights * _exact(call.values))

    with ExitStack() as stack:
        hooks = [model.embedding.register_forward_hook(record_output(activations.start))]
        for block in model.encoder.blocks:
            layer: Any = block.attention
            stack.callback(setattr, layer, "intervention", layer.intervention)
            layer.intervention = record_heads(layer.intervention)
            if block.feedforward is not None:
                record = record_output(activations.feedforward)
                hooks.append(block.feedforward.register_forward_hook(record))  # type: ignore[union-attr]
        for module in model.encoder.modules():
            if isinstance(module, nn.LayerNorm):
                hooks.append(module.register_forward_pre_hook(record_scale))
        for hook in hooks:
            stack.callback(hook.remove)
        if by_key:
            stack.enter_context(capture.observe(model.encoder, record_keys, HeadedAttention))
        yield activations


def _exact(numbers: Tensor) -> Tensor:
    return numbers.cpu().double()  # not every device has float64


def decompose_logits(
    model: TextClassifier, activations: Activations, logits: Float[Tensor, "B C"]
) -> LogitContributions:
    """Walk from the logits back to the first block, and project on the way what each part added."""
    projection = LogitProjection(model.head, len(logits))
    is_post_norm = isinstance(model.encoder, PostNormEncoder)
    heads: list[Tensor] = []
    feedforward: list[Tensor] = []
    tokens: list[Tensor] = []
    if not is_post_norm:
        projection.pass_norm(model.encoder.norm, activations)  # type: ignore[arg-type]
    for number in reversed(range(len(model.encoder.blocks))):
        block: Any = model.encoder.blocks[number]
        if is_post_norm:
            projection.pass_norm(block.feedforward_norm, activations)
        if block.feedforward is None:
            feedforward.append(torch.zeros_like(projection.bias))
        else:
            feedforward.append(projection.project(activations.feedforward[number]))
        if is_post_norm:
            projection.pass_norm(block.attention_norm, activations)
        output_projection = block.attention.output_projection
        projection.add_bias(output_projection.bias)
        columns = _exact(output_projection.weight).unflatten(1, (block.attention.num_heads, -1))
        direction = torch.einsum("cd,dhe->che", projection.direction, columns)  # [D, H, E] columns
        scale = 1 / projection.scale
        head_outputs = activations.head_outputs[number]
        heads.append(torch.einsum("che,bhe,b->bhc", direction, head_outputs, scale))
        if activations.weighted_values:
            values = activations.weighted_values[number]
            by_key = torch.einsum("che,bhke,b->bhkc", direction, values, scale)
            tokens.append(by_key * activations.is_unchanged[number][:, :, None, None])
        if block.feedforward is None:  # and no residual connection: nothing below is read directly
            projection.direction = torch.zeros_like(projection.direction)
    return LogitContributions(
        torch.stack(heads[::-1], dim=1),
        torch.stack(feedforward[::-1], dim=1),
        projection.bias + projection.project(activations.start[0]),
        logits,
        torch.stack(tokens[::-1], dim=1) if tokens else None,
    )


class LogitProjection:
    """What a vector at [CLS] adds to the logits, on the way back: direction @ vector / scale."""

    def __init__(self, head: nn.Linear, texts: int) -> None:
        self.direction = _exact(head.weight)  # [C, D]
        self.scale = self.direction.new_ones(texts)  # [B]: the product of the norms' sigmas so far
        self.bias = _exact(head.bias).expand(texts, -1)  # [B, C]

    def pass_norm(self, norm: nn.LayerNorm, activations: Activations) -> None:
        """Go to before a norm: y = gamma * (x - mean(x)) / sigma + beta."""
        self.add_bias(norm.bias)
        scaled = self.direction * _exact(norm.weight)
        self.direction = scaled - scaled.mean(dim=-1, keepdim=True)
        self.scale = self.scale * activations.scales[norm]

    def add_bias(self, bias: Float[Tensor, " D"]) -> None:
        """Count a bias that is added here in."""
        self.bias = self.bias + self.project(_exact(bias).expand(len(self.scale), -1))

    def project(self, vectors: Float[Tensor, "B D"]) -> Float[Tensor, "B C"]:
        """Return what a vector of each text adds to its logits."""
        return vectors @ self.direction.T / self.scale[:, None]


class IntegratedGradients(NamedTuple):
    """The contributions of every head of any model to an answer for one text, in nats.

    `heads` sum to `whole` less `none`, the answer's logit with all heads and with none, up to the
    error of the quadrature.
    """

    heads: list[Float[Tensor, " _"]]  # of each layer, in the order of `headed_layers`
    whole: float
    none: float


def integrated_gradients(
    model: nn.Module, batch: Batch, direction: Float[Tensor, " C"]
) -> IntegratedGradients:
    """Split the logit that any model gives an answer among its heads, by gates that open together.

    A gate g multiplies the output of each head. From g = 0, no head at all, to g = 1, the model
    itself, the logit s along `direction` changes by the sum over the heads of the integral of ds /
    dg_h along the way (Sundararajan et al. 2017, Axiomatic Attribution for Deep Networks, section
    3), here by Gauss-Legendre quadrature, in one batch.

    `batch` holds one text without padding, and `direction` is from `class_direction`.
    """
    points, weights = np.polynomial.legendre.leggauss(NUM_POINTS)
    # Behind the points stand the ends of the path, g = 0 and g = 1.
    path = torch.tensor([*(points + 1) / 2, 0.0, 1.0], dtype=torch.float64)
    direction = direction.to(device_of(model))
    repeated = capture.repeat_batch(batch, len(path))
    score_of = partial(torch.matmul, other=direction)
    logits, gradients = capture.gate_gradients(model, repeated, path, score_of)
    factors = torch.tensor([*weights / 2, 0.0, 0.0], dtype=torch.float64).to(logits.device)
    heads = [(factors @ gradient).cpu() for gradient in gradients.values()]
    none, whole = logits[-2:].tolist()
    return IntegratedGradients(heads, whole, none)


@contextmanager
def _exact_products() -> Iterator[None]:
    """Multiply matrices in full float32, not in TensorFloat-32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
