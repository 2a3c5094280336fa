"""Whether a head matters, and what it does: what a reader asks first.

The first is read from d_t: by how much the loss of text t rises when the head gives nothing. Over n texts the
mean m has the standard error s = std(d) / sqrt(n), and the interval m +- q s holds the true mean with 95 %: q is the
quantile of Student's t with n - 1 degrees of freedom, corrected for the number of heads and of looks (Bonferroni).
Against the smallest rise that counts, delta = 0.01 nats, there are three verdicts:

    matters         the interval lies wholly beyond delta, or wholly below -delta: then the head does harm
    no effect       it lies wholly between -delta and delta (the two one-sided tests of Schuirmann 1987)
    inconclusive    neither: more texts are needed

The second is told by rules over its numbers: the first of `RULES` that holds names its role.

Shape letters: n texts, L layers, H heads of a layer.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.stats import t as student
from torch import Tensor, nn

from headscope.data.batching import Batch
from headscope.heads.ablation import losses, losses_without
from headscope.heads.measures import Summary
from headscope.model.objective import ONE_CLASS, Objective

MATTERS, NOTHING, UNKNOWN, NO_HEAD = 1, 0, -1, -2
EFFECT_LABELS = {MATTERS: "matters", NOTHING: "no effect", UNKNOWN: "inconclusive"}
MIN_EFFECT = 0.01  # nats: the smallest rise of the loss that counts
ALPHA = 0.05  # how often any of the verdicts may be wrong
MIN_TEXTS = 30  # texts: below, a standard error says little
Head = tuple[str, int]  # the layer's name, the head's number


@dataclass(frozen=True)
class AblationEffect:
    """Whether a head matters: the mean rise of the loss without it and its standard error, in nats, over `texts`."""

    verdict: int  # MATTERS, NOTHING or UNKNOWN
    rise: float
    error: float
    texts: int


def ablation_effects(
    model: nn.Module,
    rises: Mapping[Head, Float[Tensor, " n"]],
    more: Sequence[Sequence[Batch]] = (),
    objective: Objective = ONE_CLASS,
) -> dict[Head, AblationEffect]:
    """Judge every head, and measure those that are not decided on more texts, as long as there are any.

    Args:
        model: called as in `headscope.heads.ablation.ablation`.
        rises: of each head, by how much the loss of each of the first texts rises without it.
        more: further texts for each further look, other ones each time; heads that are decided are left out.
        objective: what the labels are.
    """
    tests = len(rises) * (1 + len(more))
    found = {head: list(values.double().tolist()) for head, values in rises.items()}
    verdicts = {head: verdict(values, tests) for head, values in found.items()}
    for batches in more:
        open_heads = [head for head, known in verdicts.items() if known.verdict == UNKNOWN]
        if not open_heads:
            break
        whole = losses(model, batches, objective)
        for head in open_heads:
            found[head] += (losses_without(model, batches, head, objective) - whole).tolist()
            verdicts[head] = verdict(found[head], tests)
    return verdicts


def verdict(rises: Sequence[float], tests: int = 1, smallest: float = MIN_EFFECT) -> AblationEffect:
    """Return the verdict on a head from the rise of each text's loss, where so many tests are made in all."""
    values = np.array(rises, dtype=np.float64)
    texts = len(values)
    mean, error = values.mean(), values.std(ddof=1) / texts**0.5 if texts > 1 else 0.0
    if texts < MIN_TEXTS:
        return AblationEffect(UNKNOWN, float(mean), float(error), texts)
    reach = student.ppf(1 - ALPHA / (2 * tests), texts - 1) * error
    said = UNKNOWN
    if abs(mean) - reach > smallest:
        said = MATTERS
    elif abs(mean) + reach < smallest:
        said = NOTHING
    return AblationEffect(said, float(mean), float(error), texts)


def rises_of(verdicts: Mapping[Head, AblationEffect]) -> Summary:
    """Return by how much the loss rises without each head, over all the texts that it was judged by."""
    layers = dict.fromkeys(layer for layer, _ in verdicts)
    own = {
        layer: [found for (name, _), found in verdicts.items() if name == layer] for layer in layers
    }
    return {layer: {"loss_zeroed": ([each.rise for each in heads], [each.error for each in heads])}
            for layer, heads in own.items()}  # fmt: skip


def verdict_arrays(verdicts: Mapping[Head, AblationEffect]) -> dict[str, np.ndarray]:
    """Return the verdicts as the record keeps them, [L, H]; -2 where a layer has fewer heads than the widest."""
    layers = list(dict.fromkeys(layer for layer, _ in verdicts))
    kept = np.full((len(layers), 1 + max(head for _, head in verdicts)), NO_HEAD, dtype=np.int32)
    for (layer, head), found in verdicts.items():
        kept[layers.index(layer), head] = found.verdict
    most = max(found.texts for found in verdicts.values())
    return {
        "verdicts": kept,
        "verdicts/headline": np.array(answer(verdicts)),
        "verdicts/smallest": np.array(MIN_EFFECT, dtype=np.float32),
        "studied": np.array(most, dtype=np.int32),
    }


def answer(verdicts: Mapping[Head, AblationEffect]) -> str:
    """Return one line: which heads matter, the largest effect, and how many are inconclusive."""
    layers = list(dict.fromkeys(layer for layer, _ in verdicts))
    counts = Counter(effect.verdict for effect in verdicts.values())
    texts = max(effect.texts for effect in verdicts.values())
    if counts[UNKNOWN] == len(verdicts):
        return f"Ablating any single head is inconclusive ({texts} texts)"
    if counts[NOTHING] == len(verdicts):
        return f"Ablating any single head has no effect ({texts} texts)"
    matter, nothing, unknown = counts[MATTERS], counts[NOTHING], counts[UNKNOWN]
    parts = [f"{matter or 'None'} of {len(verdicts)} heads {'matters' if matter < 2 else 'matter'}"]
    if matter:
        (layer, head), effect = max(
            ((head, effect) for head, effect in verdicts.items() if effect.verdict == MATTERS),
            key=lambda item: abs(item[1].rise),
        )
        moves = "raises" if effect.rise > 0 else "lowers"
        parts[0] += (
            f": ablating layer {layers.index(layer)} head {head} {moves} the loss by"
            f" {abs(effect.rise):.2f} ± {effect.error:.2f} nats"
        )
    if nothing:
        parts.append(f"{nothing} {'has' if nothing == 1 else 'have'} no effect")
    if unknown:
        texts = max(each.texts for each in verdicts.values() if each.verdict == UNKNOWN)
        parts.append(f"{unknown} {'is' if unknown == 1 else 'are'} inconclusive ({texts} texts)")
    return "; ".join(parts)


@dataclass(frozen=True)
class Rule:
    """A role, and when a head has it: where `measure` is at least `least`."""

    role: str
    measure: str
    least: float


# In this order: the more a rule says, the earlier it comes. A head that rests on [CLS] may look far and wide otherwise.
RULES = (
    Rule("first-token sink", "first", 0.4),
    Rule("separator sink", "separator", 0.4),
    Rule("same token", "same_token", 0.4),
    Rule("previous token", "previous", 0.4),
    Rule("next token", "next", 0.4),
    Rule("itself", "self", 0.4),
    Rule("last token", "last", 0.4),
    Rule(
        "across texts", "crossing", 0.6
    ),  # of two texts as long as each other about 0.45 is by chance
    Rule("position only", "position_only", 0.9),
    Rule("broad", "entropy_share", 0.9),
    Rule("focused", "focus", 0.7),  # 1 - entropy_share
)
NO_PATTERN = "no clear pattern"


def role(numbers: Mapping[str, float]) -> tuple[str, float]:
    """Return what a head seems to do, by its numbers (measure -> mean), and the number by which it is called so.

    Where no rule holds, the number is the one nearest to its rule. Measures that are missing are passed over.
    """
    known = {
        **numbers,
        **({"focus": 1 - numbers["entropy_share"]} if "entropy_share" in numbers else {}),
    }
    rules = [rule for rule in RULES if rule.measure in known]
    for rule in rules:
        if known[rule.measure] >= rule.least:
            return rule.role, known[rule.measure]
    nearest = max(rules, key=lambda rule: known[rule.measure] / rule.least, default=None)
    return NO_PATTERN, known[nearest.measure] if nearest else 0.0


def role_arrays(summary: Summary) -> dict[str, np.ndarray]:
    """Return the role of every head and its score as the record keeps them, [L, H]; empty where there is no head."""
    layers = list(summary.values())
    if not layers:
        return {}
    heads = [len(next(iter(measures.values()))[0]) for measures in layers]
    names = np.full((len(layers), max(heads)), "", dtype="<U20")
    scores = np.full(names.shape, np.nan, dtype=np.float32)
    for layer, measures in enumerate(layers):
        for head in range(heads[layer]):
            found = role({name: means[head] for name, (means, _) in measures.items()})
            names[layer, head], scores[layer, head] = found
    return {"roles": names, "roles/score": scores}
