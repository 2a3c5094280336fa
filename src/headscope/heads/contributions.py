"""What every head put into each class's logit: direct logit attribution, a sum without a rest.

In a pre-norm encoder that is read out at [CLS], x, what reaches the last norm, is what [CLS] began with plus what every
head and every feed-forward block added there. With the norm's scale sigma taken as it was for this text, a logit is
linear in x, so it is a sum with a term for each of them (Elhage et al. 2021, A Mathematical Framework for Transformer
Circuits; nostalgebraist 2020, interpreting GPT: the logit lens):

    logit_c = sum_lh head_lhc + sum_l feedforward_lc + constant_c
    head_lhc = U_c W^O_lh sum_k a_lhk v_lhk,   U_c = (gamma * W_c - mean_d(gamma * W_c)) / sigma

W and b are the classifier's, gamma and beta the norm's, W^O_lh the columns of the output projection that head h of
layer l goes through, a_lhk the weight that [CLS] gives to key k there, v_lhk its value. The constant is what is there
whatever the text says: what [CLS] began with, b, beta and the biases of the output projections. In the post-norm
encoder of a checkpoint the scales of all norms are taken as they were.

Logits are in nats: a class's less another's is the logarithm of how many times as likely it is.

Shape letters: B texts, L layers, H heads, K keys, T tokens, E head width, D model width, C classes.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeGuard

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headscope.attention.functional import AttentionCall
from headscope.attention.multi_head import HeadedAttention
from headscope.data.batching import Batch
from headscope.heads.capture import observe
from headscope.heads.interventions import (
    device_of,
    eval_mode,
    headed_layers,
    intervene_layers,
    logits_of,
)
from headscope.model.classifier import TextClassifier
from headscope.model.objective import MultiLabel, Objective
from headscope.model.pooling import first_pooling
from headscope.model.pretrained import PostNormEncoder
from headscope.record.schema import Contributions, spoken

ONLY_FIRST = "what a head decided can be said only where the read-out is [CLS]: model.pooling=first"


@dataclass(frozen=True)
class Attribution:
    """What every part put into each class's logit, in nats; in float64, on the CPU. `found[0]` is the first text's."""

    heads: Float[Tensor, "*B L H C"]  # of each layer
    feedforward: Float[Tensor, "*B L C"]  # of each layer's feed-forward block
    constant: Float[Tensor, "*B C"]  # what is there whatever the text says
    logits: Float[
        Tensor, "*B C"
    ]  # what the model said; heads, feed-forward blocks and constant sum to it
    # Heads by the key that they read, if asked for; 0 for a head whose sum an intervention changed: it read no key
    tokens: Float[Tensor, "*B L H K C"] | None = None

    def __getitem__(self, text: int) -> "Attribution":
        """Return one text's, padding included."""
        tokens = None if self.tokens is None else self.tokens[text]
        return Attribution(
            self.heads[text], self.feedforward[text], self.constant[text], self.logits[text], tokens
        )

    def total(self) -> Float[Tensor, "*B C"]:
        """Return the sum of all parts, which is the logit."""
        return self.heads.sum(dim=(-3, -2)) + self.feedforward.sum(dim=-2) + self.constant

    def said(
        self, weights: Float[Tensor, " C"], answer: str, tokens: Sequence[str]
    ) -> Contributions:
        """Return what one text's parts put for an answer, such as "Copyleft", to be put into words.

        The weights multiply the classes: from `class_direction`, or 1 and -1 for a class against another. Tokens are as a
        person reads them.
        """
        assert self.tokens is not None
        parts = (self.heads, self.tokens, self.feedforward, self.constant)
        heads, by_key, feedforward, constant = ((part @ weights).numpy() for part in parts)
        return spoken(answer, tokens, heads, by_key[..., : len(tokens)], feedforward, constant)


def attributable(model: nn.Module) -> TypeGuard[TextClassifier]:
    """Return whether a model's logits are such a sum: whether it is read out at [CLS]."""
    return isinstance(model, TextClassifier) and model.pool is first_pooling


def attribution(model: TextClassifier, *inputs: Any, by_key: bool = True) -> Attribution:
    """Run the model in eval mode, and split each logit into what every part of the model put into it.

    Values, weights and sums are those that the attention layers used. Products are exact float32, on a GPU too.

    Args:
        model: read out at [CLS].
        inputs: of some texts, what the model is called with.
        by_key: also split what a head put by the keys that it read, which takes B L H K C numbers.

    Raises:
        ValueError: if the model is not read out at [CLS], so that tokens reach the logits past the heads.
    """
    if not attributable(model):
        raise ValueError(ONLY_FIRST)
    device = model.head.weight.device.type
    with (
        eval_mode(model),
        torch.no_grad(),
        torch.autocast(device, enabled=False),
        _exact_products(),
    ):
        with _passing(model, by_key) as passed:
            logits = _exact(model(*inputs))
        return decompose_logits(model, passed, logits)


def class_direction(logits: Float[Tensor, "*B C"], objective: Objective) -> Float[Tensor, "*B C"]:
    """Return the factor of each class's part that says what spoke for the likeliest class.

    Where a text has one of C classes: for it, against the mean of all, 1 - 1/C and -1/C. With any number of classes:
    for the class, against its absence, 1 and 0.
    """
    likeliest = nn.functional.one_hot(logits.argmax(dim=-1), logits.shape[-1]).double()
    return likeliest if isinstance(objective, MultiLabel) else likeliest - 1 / logits.shape[-1]


@dataclass
class Activations:
    """What passed [CLS] when the model ran: a list has an entry for each layer."""

    begin: list[Float[Tensor, "B D"]] = field(
        default_factory=list
    )  # one entry: what the first block was given
    sums: list[Float[Tensor, "B H E"]] = field(default_factory=list)
    products: list[Float[Tensor, "B H K E"]] = field(
        default_factory=list
    )  # weight x value of each key
    untouched: list[Bool[Tensor, "B H"]] = field(
        default_factory=list
    )  # False where an intervention changed a sum
    feedforward: list[Float[Tensor, "B D"]] = field(default_factory=list)
    scales: dict[nn.Module, Float[Tensor, " B"]] = field(default_factory=dict)  # sigma of each norm


@contextmanager
def _passing(model: TextClassifier, by_key: bool) -> Iterator[Activations]:
    passed = Activations()

    def note_norm(norm: nn.LayerNorm, args: tuple[Tensor, ...]) -> None:
        at_cls = _exact(args[0][:, 0])
        passed.scales[norm] = (at_cls.var(dim=-1, correction=0) + norm.eps).sqrt()

    def noting(found: list[Tensor]) -> Callable[..., None]:
        return lambda _, args, out: found.append(_exact(out[:, 0]))

    def note_keys(name: str, seen: AttentionCall) -> None:
        assert seen.values is not None
        passed.products.append(_exact(seen.weights()[:, :, 0, :, None]) * _exact(seen.values))

    with ExitStack() as stack:
        hooks = [model.embedding.register_forward_hook(noting(passed.begin))]
        for block in model.encoder.blocks:
            stack.enter_context(_noting_sums(block.attention, passed))  # type: ignore[arg-type]
            feedforward: Any = block.feedforward
            hooks.append(feedforward.register_forward_hook(noting(passed.feedforward)))
        for norm in (
            module for module in model.encoder.modules() if isinstance(module, nn.LayerNorm)
        ):
            hooks.append(norm.register_forward_pre_hook(note_norm))
        for hook in hooks:
            stack.callback(hook.remove)
        if by_key:
            stack.enter_context(observe(model.encoder, note_keys, HeadedAttention))
        yield passed


def _exact(numbers: Tensor) -> Tensor:
    return numbers.cpu().double()  # not every device has float64


@contextmanager
def _noting_sums(layer: HeadedAttention, passed: Activations) -> Iterator[None]:
    """Note the sums that a layer goes on with at [CLS], and which of them an intervention left alone."""
    earlier = layer.intervention

    def note(sums: Float[Tensor, "B H Q E"]) -> Float[Tensor, "B H Q E"]:
        given = sums if earlier is None else earlier(sums)
        passed.sums.append(_exact(given[:, :, 0]))
        passed.untouched.append((given[:, :, 0] == sums[:, :, 0]).all(dim=-1).cpu())
        return given

    layer.intervention = note
    try:
        yield
    finally:
        layer.intervention = earlier


def decompose_logits(
    model: TextClassifier, passed: Activations, logits: Float[Tensor, "B C"]
) -> Attribution:
    """Walk from the logits back to the first block, and note on the way what each part added to them."""
    back = LogitProjection(model.head, len(logits))
    is_post_norm = isinstance(model.encoder, PostNormEncoder)
    heads, feedforward, tokens = [], [], []
    if not is_post_norm:
        back.through(model.encoder.norm, passed)  # type: ignore[arg-type]
    for number in reversed(range(len(model.encoder.blocks))):
        block: Any = model.encoder.blocks[number]
        if is_post_norm:
            back.through(block.feedforward_norm, passed)
        feedforward.append(back.put(passed.feedforward[number]))
        if is_post_norm:
            back.through(block.attention_norm, passed)
        project = block.attention.output_projection
        back.constant = back.constant + back.put(_exact(project.bias).expand(len(logits), -1))
        columns = _exact(project.weight).unflatten(1, (block.attention.num_heads, -1))  # [D, H, E]
        toward = torch.einsum("cd,dhe->che", back.toward, columns)
        heads.append(torch.einsum("che,bhe,b->bhc", toward, passed.sums[number], 1 / back.scale))
        if passed.products:
            read = torch.einsum("che,bhke,b->bhkc", toward, passed.products[number], 1 / back.scale)
            tokens.append(read * passed.untouched[number][:, :, None, None])
    constant = back.constant + back.put(passed.begin[0])
    return Attribution(
        torch.stack(heads[::-1], dim=1),
        torch.stack(feedforward[::-1], dim=1),
        constant,
        logits,
        torch.stack(tokens[::-1], dim=1) if tokens else None,
    )


class LogitProjection:
    """What a vector at [CLS] adds to the logits, at a place on the way back from them: toward @ vector / scale."""

    def __init__(self, head: nn.Linear, texts: int) -> None:
        self.toward = _exact(head.weight)  # [C, D]
        self.scale = self.toward.new_ones(
            texts
        )  # [B]: the product of the norms' sigmas from here on
        self.constant = _exact(head.bias).expand(texts, -1)  # [B, C]

    def through(self, norm: nn.LayerNorm, passed: Activations) -> None:
        """Go to before a norm: y = gamma * (x - mean(x)) / sigma + beta."""
        self.constant = self.constant + self.put(_exact(norm.bias).expand(len(self.scale), -1))
        scaled = self.toward * _exact(norm.weight)
        self.toward = scaled - scaled.mean(dim=-1, keepdim=True)
        self.scale = self.scale * passed.scales[norm]

    def put(self, vectors: Float[Tensor, "B D"]) -> Float[Tensor, "B C"]:
        """Return what a vector of each text adds to its logits."""
        return vectors @ self.toward.T / self.scale[:, None]


@dataclass(frozen=True)
class IntegratedGradients:
    """What every head of any model put for an answer about one text, by integrated gradients; in nats.

    `heads` sum to `whole` less `none`, what the model says of the text with all heads and with none, up to `error`.
    """

    heads: list[
        Float[Tensor, " _"]
    ]  # of each layer, which may have a number of its own, in `headed_layers`' order
    whole: float
    none: float

    @property
    def error(self) -> float:
        """Return how far the sum is off, which more points would bring down."""
        return abs(float(sum(heads.sum() for heads in self.heads)) - (self.whole - self.none))


POINTS = 16  # of the path from no head to all


def gate_attribution(
    model: nn.Module, batch: Batch, weights: Float[Tensor, " C"]
) -> IntegratedGradients:
    """Split what any model says of one text among its heads, where it is no sum: by gates that open together.

    A gate g multiplies what each head gives. From g = 0, no head at all, to g = 1, the model itself, what is said, s,
    changes by the sum over the heads of the integral of ds / dg_h along the way: integrated gradients (Sundararajan et
    al. 2017, Axiomatic Attribution for Deep Networks, section 3), here at the points of Gauss and Legendre, as a batch.

    Args:
        model: called with token ids, key padding mask and segment ids; returns logits.
        batch: one text, without padding.
        weights: of the classes in what is said: see `class_direction`.
    """
    layers, device = headed_layers(model), device_of(model)
    places, shares = np.polynomial.legendre.leggauss(POINTS)
    # Behind the points stand the ends of the path, g = 0 and g = 1.
    path = torch.tensor([*(places + 1) / 2, 0.0, 1.0], dtype=torch.float64, device=device)
    gates = {
        name: path[:, None].repeat(1, layer.num_heads).requires_grad_()
        for name, layer in layers.items()
    }
    changes = {name: lambda sums, gate=gate: sums * gate.to(sums.dtype)[:, :, None, None]
               for name, gate in gates.items()}  # fmt: skip
    segments = None if batch.segment_ids is None else batch.segment_ids.repeat(len(path), 1)
    repeated = batch._replace(token_ids=batch.token_ids.repeat(len(path), 1), segment_ids=segments)
    with (
        eval_mode(model),
        torch.inference_mode(False),
        torch.enable_grad(),
        intervene_layers(model, changes),
    ):
        said = logits_of(model, repeated).double() @ weights.to(device)
        gradients = torch.autograd.grad(said.sum(), list(gates.values()))
    said = said.detach()
    factors = torch.tensor([*shares / 2, 0.0, 0.0], dtype=torch.float64, device=device)
    heads = [(factors @ gradient).cpu() for gradient in gradients]
    none, whole = said[-2:].tolist()
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
