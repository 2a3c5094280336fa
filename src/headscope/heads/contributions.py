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
of the output projections.

A last layer of attention alone (model.attention_readout) has no feed-forward term, and nothing
below it is read directly: the heads of that layer, by token, and the bias are all there is.

One unit everywhere: a contribution is shown to the log-odds of a class against the runner-up, or
with several labels against its absence, of logits divided by the temperature. So all parts sum to
the log-odds of the very probabilities beside them; +1 nat multiplies the odds by e = 2.7.

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
from headscope.heads.capture import HEADED, device_of, eval_mode, headed_layers, logits_of
from headscope.model.classifier import TextClassifier
from headscope.model.objective import ONE_CLASS, Answer, MultiLabel, Objective
from headscope.model.pooling import first_pooling
from headscope.record.contributions import Explanation

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


def class_pair(
    probabilities: Float[Tensor, " C"],
    objective: Objective,
    shown: int | None = None,
    against: int | None = None,
) -> tuple[int, int | None]:
    """Return the class that contributions are to, and the one that they are against.

    By default the likeliest class against the runner-up, or against the likeliest other than
    `shown`. None against a class's absence: with any number of classes.
    """
    if shown is None:
        shown = int(probabilities.argmax())
    if isinstance(objective, MultiLabel):
        return shown, None
    if against is None or against == shown:
        others = probabilities.clone()
        others[shown] = -1
        against = int(others.argmax())
    return shown, against


def log_odds_direction(logits: Float[Tensor, "*B C"], objective: Objective) -> Tensor:
    """Return each class's factor in the log-odds of the likeliest class [*B, C].

    1, and -1 for the runner-up; with any number of classes 1 alone: against its absence.
    """
    C = logits.shape[-1]
    ranked = nn.functional.one_hot(logits.argsort(dim=-1, descending=True)[..., :2], C).double()
    if isinstance(objective, MultiLabel):
        return ranked[..., 0, :]
    return ranked[..., 0, :] - ranked[..., 1, :]


class HeadContributions(NamedTuple):
    """The contributions to the log-odds of each text's likeliest class, in nats."""

    heads: Float[Tensor, "N L H"]
    feedforward: Float[Tensor, "N L"]
    bias: Float[Tensor, " N"]

    def facts(self, objective: Objective) -> dict[str, object]:
        """Return the means over the texts as metrics.json has them, and what they are against."""
        against = "its absence" if isinstance(objective, MultiLabel) else "the runner-up"
        return {
            "against": against,
            "texts": len(self.heads),
            "heads": self.heads.mean(dim=0).tolist(),
            "feedforward": self.feedforward.mean(dim=0).tolist(),
            "constant": self.bias.mean(dim=0).tolist(),
        }


def mean_contributions(
    model: TextClassifier,
    batches: Iterable[Batch],
    objective: Objective,
    temperature: float = 1.0,
) -> HeadContributions:
    """Split the log-odds of each text's likeliest class, see `log_odds_direction`."""
    parts = []
    for batch in batches:
        inputs = moved(batch, device_of(model)).inputs
        split = logit_contributions(model, *inputs, by_key=False)
        direction = log_odds_direction(split.logits, objective) / temperature
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
    scales: dict[Tensor, Float[Tensor, " B"]] = field(default_factory=dict)  # sigma by norm.weight


@contextmanager
def _recording(model: TextClassifier, by_key: bool) -> Iterator[Activations]:
    """Record the activations of the model's next forward pass."""
    activations = Activations()

    def record_output(outputs: list[Tensor]) -> Callable[..., None]:
        return lambda _, args, output: outputs.append(_exact(output[:, 0]))

    def record_scale(norm: nn.LayerNorm, args: tuple[Tensor, ...]) -> None:
        at_cls = _exact(args[0][:, 0])
        activations.scales[norm.weight] = (at_cls.var(dim=-1, correction=0) + norm.eps).sqrt()

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
    projection = LogitProjection(model.head, logits.shape[0])
    heads: list[Tensor] = []
    feedforward: list[Tensor] = []
    tokens: list[Tensor] = []
    projection.pass_norm(model.encoder.norm, activations)
    for number in reversed(range(len(model.encoder.blocks))):
        block: Any = model.encoder.blocks[number]
        if block.feedforward is None:
            feedforward.append(torch.zeros_like(projection.bias))
        else:
            feedforward.append(projection.project(activations.feedforward[number]))
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
        self.scale = self.scale * activations.scales[norm.weight]

    def add_bias(self, bias: Float[Tensor, " D"]) -> None:
        """Count a bias that is added here in."""
        self.bias = self.bias + self.project(_exact(bias).expand(self.scale.shape[0], -1))

    def project(self, vectors: Float[Tensor, "B D"]) -> Float[Tensor, "B C"]:
        """Return what a vector of each text adds to its logits."""
        return vectors @ self.direction.T / self.scale[:, None]


class IntegratedGradients(NamedTuple):
    """The contributions of every head of any model to the logits of one text, by token.

    Over heads and tokens they sum to `whole` less `none`, the logits with all heads and with none,
    up to the error of the quadrature.
    """

    tokens: list[Float[Tensor, "H K N"]]  # of each layer, in the order of `headed_layers`
    whole: Float[Tensor, " N"]  # of the N classes that were asked for
    none: Float[Tensor, " N"]


def integrated_gradients(
    model: nn.Module, batch: Batch, classes: Sequence[int]
) -> IntegratedGradients:
    """Split the logits that any model gives a text among heads x tokens, by gates that open as one.

    A gate g_hk multiplies what head h adds from token k, a_hqk v_hk for each query q. From g = 0,
    no head at all, to g = 1, the model itself, a logit s changes by the sum over heads and tokens
    of the integral of ds / dg_hk along the way (Sundararajan et al. 2017, Axiomatic Attribution for
    Deep Networks, section 3), here by Gauss-Legendre quadrature, in one batch. With z_hq the output
    of a head, ds / dg_hk = sum_q ds / dz_hq . a_hqk v_hk.

    `batch` holds one text without padding. ValueError for a model whose values cannot be observed.
    """
    points, weights = np.polynomial.legendre.leggauss(NUM_POINTS)
    # Behind the points stand the ends of the path, g = 0 and g = 1.
    device = device_of(model)
    path = torch.tensor([*(points + 1) / 2, 0.0, 1.0], dtype=torch.float64, device=device)
    factors = torch.tensor([*weights / 2, 0.0, 0.0], device=device)  # [P]
    layers = headed_layers(model)
    calls: dict[str, tuple[Tensor, Tensor]] = {}
    outputs: dict[str, Tensor] = {}

    def keep(name: str, call: AttentionCall) -> None:
        if call.values is None:
            raise ValueError(f"{name}: its values cannot be observed")
        calls[name] = (call.weights().detach().float(), call.values.detach().float())

    def gate(name: str, head_outputs: Float[Tensor, "P H Q E"]) -> Float[Tensor, "P H Q E"]:
        outputs[name] = head_outputs * path.to(head_outputs.dtype)[:, None, None, None]
        return outputs[name]

    gates = {name: partial(gate, name) for name in layers}
    with (
        eval_mode(model),
        torch.inference_mode(False),
        torch.enable_grad(),
        capture.observe(model, keep, HEADED),
        capture.intervene_layers(model, gates),
        _requiring_gradients(model),
    ):
        logits = logits_of(model, capture.repeat_batch(batch, len(path))).double()  # [P, C]
        of_classes = []
        for number in classes:
            score = logits[:, number].sum()
            gradients = torch.autograd.grad(
                score, [*outputs.values()], retain_graph=True, materialize_grads=True
            )
            of_classes.append(gradients)
    tokens = []
    for place, name in enumerate(outputs):
        maps, values = calls[name]  # [P, H, Q, K], [P, H, K, E]
        by_class = [
            torch.einsum("p,phqe,phqk,phke->hk", factors.float(), of[place].float(), maps, values)
            for of in of_classes
        ]
        tokens.append(torch.stack(by_class, dim=-1).cpu().double())
    in_order = dict(zip(outputs, tokens, strict=True))
    none, whole = logits.detach()[-2:, list(classes)].cpu()
    return IntegratedGradients([in_order[name] for name in layers if name in in_order], whole, none)


@contextmanager
def _requiring_gradients(model: nn.Module) -> Iterator[None]:
    """Let a parameter need a gradient, so that there is a graph; afterwards as before."""
    parameter = next(model.parameters(), None)
    before = parameter is not None and parameter.requires_grad
    if parameter is not None and not any(each.requires_grad for each in model.parameters()):
        parameter.requires_grad_(True)
    try:
        yield
    finally:
        if parameter is not None:
            parameter.requires_grad_(before)


def explain(
    model: nn.Module,
    batch: Batch,
    tokens: Sequence[str],
    classes: Sequence[str],
    logits: Float[Tensor, " C"],
    objective: Objective = ONE_CLASS,
    temperature: float = 1.0,
    label: str | None = None,
    against: Answer | None = None,
) -> Explanation | None:
    """Return why a text, a batch of its own without padding, is given a class.

    The sum is exact where the model is ours and read out at [CLS], else by integrated gradients;
    None where a model of ours lets tokens bypass attention, or heads cannot be changed.

    `logits` are not yet divided by the temperature. `label` is the class that is explained, by
    default the likeliest, `against` the one that it is held against, by default the likeliest
    other. With any number of classes, where `against` is what the text has, the class that is most
    wrong is explained.
    """
    probabilities = objective.probabilities(logits.double() / temperature)
    number = None if label is None else classes.index(label)
    other = None
    if isinstance(against, str):
        other = classes.index(against)
    elif against is not None and number is None:
        truth = torch.tensor([name in against for name in classes]).double()
        number = int((probabilities - truth).abs().argmax())
    number, other = class_pair(probabilities, objective, number, other)
    names = dict(zip(classes, probabilities.tolist(), strict=True))
    pair = classes[number], None if other is None else classes[other]
    if has_contributions(model):
        split = logit_contributions(model, *batch.inputs)[0]
        assert split.tokens is not None
        by_token = (split.tokens[:, :, : len(tokens)] / temperature).numpy()
        feedforward = (split.feedforward / temperature).numpy()
        # A head that an intervention changed adds something, but from no token.
        from_no_token = (split.heads - split.tokens.sum(dim=-2)).sum(dim=(0, 1))
        bias = ((split.bias + from_no_token) / temperature).numpy()
        return Explanation(*pair, names, tokens, list(classes), by_token, feedforward, bias)
    if isinstance(model, TextClassifier) or not headed_layers(model):
        return None
    asked = [number] if other is None else [number, other]
    gates = integrated_gradients(model, batch, asked)
    if any(of_layer.shape[1] != len(tokens) for of_layer in gates.tokens):
        return None  # heads that attend to something else than the tokens
    num_heads = max(len(of_layer) for of_layer in gates.tokens)
    table = np.full((len(gates.tokens), num_heads, len(tokens), len(asked)), np.nan)
    for layer, of_layer in enumerate(gates.tokens):
        table[layer, : len(of_layer)] = of_layer.numpy() / temperature
    sums = np.nansum(table, axis=(0, 1, 2)) + gates.none.numpy() / temperature
    misses = sums - gates.whole.numpy() / temperature
    miss = misses[0] if other is None else misses[0] - misses[1]
    feedforward = np.zeros((len(table), len(asked)))  # unknown: `none` has it
    bias = gates.none.numpy() / temperature
    names_asked = [classes[each] for each in asked]
    return Explanation(
        *pair, names, tokens, names_asked, table, feedforward, bias, abs(float(miss))
    )


@contextmanager
def _exact_products() -> Iterator[None]:
    """Multiply matrices in full float32, not in TensorFloat-32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
