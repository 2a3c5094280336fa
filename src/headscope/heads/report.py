"""The few texts whose maps are shown at every record: always the same, so that a step can be compared with the next."""

from dataclasses import dataclass, field, replace
from itertools import zip_longest

import numpy as np
import torch
from jaxtyping import Float, Int
from tokenizers import Tokenizer
from torch import Tensor, nn

from headscope.attention.functional import AttentionCall
from headscope.attention.multi_head import HeadedAttention
from headscope.attention.variants import ScoredAttention
from headscope.config import InspectionConfig
from headscope.data.batching import Batch, encode_texts, moved
from headscope.data.columns import texts_among
from headscope.data.datamodule import TextDataModule
from headscope.data.evidence import Evidence, EvidenceVocabulary
from headscope.data.tokenizer import copied, shown_tokens
from headscope.heads.capture import HEADED, observe
from headscope.heads.contributions import (
    Attribution,
    IntegratedGradients,
    attributable,
    attribution,
    class_direction,
    gate_attribution,
)
from headscope.heads.interventions import eval_mode, headed_layers
from headscope.heads.transformers_models import foreign_models
from headscope.model.objective import ONE_CLASS, Answer, Objective
from headscope.model.pooling import Pooler, first_pooling
from headscope.record.schema import Contributions, label_text

JOIN = " ⏐ "  # between the two texts of a pair, where they are shown as one


@dataclass(frozen=True)
class Probe:
    """A text, cut to a length that can be shown."""

    texts: tuple[str, ...]  # the text, or the two of a pair
    tokens: list[str]  # its tokens as a person reads them
    token_ids: Int[Tensor, "1 T"]
    segment_ids: Int[Tensor, "1 T"] | None  # for pairs, the token types that the model is given
    label: str | None  # its class, if known, as a person reads it
    # For pairs, the text that each token is of, 0 or 1; None for special tokens
    segments: list[int | None] | None = None
    evidence: Evidence | None = None  # the tokens' n-grams, where the model reads them
    special: list[int] | None = (
        None  # places of tokens that are no words, such as [CLS]; None if not known
    )
    readout: int | None = (
        None  # the place that the classifier reads its answer from, where it is one
    )

    @property
    def text(self) -> str:
        """The text in one piece."""
        return JOIN.join(self.texts)

    @property
    def batch(self) -> Batch:
        """The text as a batch of its own, without padding, of a class that is not known."""
        return Batch(
            self.token_ids,
            None,
            self.segment_ids,
            torch.tensor([-1]),
            torch.tensor([0]),
            self.evidence,
        )


@dataclass(frozen=True)
class ProbeOutput:
    """What a model makes of a probe."""

    maps: dict[str, Float[np.ndarray, "H T T"]]  # layer name -> weights [H, T, T]
    probabilities: dict[str, float]  # class name -> probability
    answer: Answer  # what the text is given
    # Weight of each token in the text's vector, where the pooling attends
    pooling: Float[np.ndarray, " T"] | None = None
    norms: dict[str, Float[np.ndarray, "H T"]] = field(
        default_factory=dict
    )  # layer name -> lengths, see `value_norms`
    difference: float = 0.0  # the largest one between the sums that a layer went on with and the maps times the values
    logits: Float[Tensor, " C"] = field(
        default_factory=lambda: torch.zeros(0)
    )  # of the whole model, as they are
    attribution: Attribution | None = None  # what every part put into them, where that can be said
    spoken: Contributions | None = (
        None  # the same for the likeliest class, as it is said and recorded
    )

    @property
    def prediction(self) -> str:
        """What the text is given, as a person reads it."""
        return label_text(self.answer)


def choose_probes(
    data: TextDataModule,
    config: InspectionConfig,
    model: nn.Module,
    objective: Objective = ONE_CLASS,
) -> list[Probe]:
    """Return the configured texts, or texts of the validation split: the classes in turn, long but not too long."""
    readout = readout_position(model)
    if config.probes:  # as long as the model reads them
        length = data.config.max_length
        return [
            make_probe(data.tokenizer, (text,), None, length, data.evidence, readout)
            for text in config.probes
        ]
    split, labels = data.corpus.splits["validation"], data.labels("validation")
    lengths = data.encoded["validation"].lengths
    # The longest that fit come first; where none fits, the shortest, which are then cut.
    order = np.lexsort([np.abs(lengths - config.max_tokens), lengths > config.max_tokens])
    chosen = _classes_in_turn(order, labels)[: config.num_probes]
    columns = texts_among(split.column_names)
    texts = [tuple(split[row][column] for column in columns) for row in chosen]
    classes = objective.has(torch.from_numpy(labels[chosen]), len(data.corpus.labels))
    return [
        make_probe(
            data.tokenizer, text, label_text(name), config.max_tokens, data.evidence, readout
        )
        for text, name in zip(texts, objective.names(classes, data.corpus.labels), strict=True)
    ]


def _classes_in_turn(rows: np.ndarray, labels: np.ndarray) -> list[int]:
    """Return the rows, each class's first before any class's second; a row without a class comes last."""
    members = (
        [labels == label for label in np.unique(labels)]
        if labels.ndim == 1
        else list(labels.T.astype(bool))
    )
    by_class = [rows[member[rows]].tolist() for member in members]
    in_turn = [row for turn in zip_longest(*by_class) for row in turn if row is not None]
    return list(dict.fromkeys([*in_turn, *rows.tolist()]))


def make_probe(
    tokenizer: Tokenizer,
    texts: tuple[str, ...],
    label: str | None,
    max_tokens: int,
    evidence: EvidenceVocabulary | None = None,
    readout: int | None = None,
) -> Probe:
    """Encode a text or pair, cut to max_tokens; `readout` is the place that its answer is read from, see `readout_position`."""
    cutting = copied(tokenizer)
    limit = min(max_tokens, (tokenizer.truncation or {}).get("max_length", max_tokens))
    cutting.enable_truncation(limit)
    return encoded_probe(cutting, texts, label, evidence, readout)


def encoded_probe(
    tokenizer: Tokenizer,
    texts: tuple[str, ...],
    label: str | None,
    evidence: EvidenceVocabulary | None = None,
    readout: int | None = None,
) -> Probe:
    """Encode a text or pair, cut as the tokenizer cuts."""
    encoding = tokenizer.encode(texts[0], texts[1] if len(texts) == 2 else None)
    is_pair = len(texts) == 2
    types, segments = (
        (torch.tensor([encoding.type_ids]), encoding.sequence_ids) if is_pair else (None, None)
    )
    special = [place for place, is_special in enumerate(encoding.special_tokens_mask) if is_special]
    token_ids, known = torch.tensor([encoding.ids]), None
    if evidence is not None:
        ids = encode_texts(tokenizer, [texts], evidence)
        assert ids.evidence is not None
        known = ids.evidence.of([0], ids.starts[:1], ids.lengths, len(ids.ids))
    tokens = shown_tokens(tokenizer, encoding, texts)
    return Probe(texts, tokens, token_ids, types, label, segments, known, special, readout)


def readout_position(model: nn.Module) -> int | None:
    """Return the place that a classifier of ours reads its answer from: 0, that of [CLS]; None if it reads all."""
    pool = getattr(model, "pool", None)
    return 0 if pool is first_pooling or isinstance(pool, Pooler) else None


def run_probe(
    model: nn.Module,
    probe: Probe,
    labels: list[str],
    device: torch.device,
    objective: Objective = ONE_CLASS,
    temperature: float = 1.0,
) -> ProbeOutput:
    """Run the model in eval mode on one probe alone, so that nothing is padded; logits are divided by temperature."""
    maps: dict[str, np.ndarray] = {}
    pooled: list[np.ndarray] = []
    differences: list[float] = []
    norms: dict[str, np.ndarray] = {}
    layers = headed_layers(model)

    def keep(name: str, seen: AttentionCall) -> None:
        maps[name] = seen.weights()[0].cpu().numpy()
        differences.append(seen.difference())
        layer = layers.get(name)
        if seen.values is not None and isinstance(layer, HeadedAttention):
            norms[name] = value_norms(layer, seen.values)[0].cpu().numpy()

    def keep_pooling(name: str, seen: AttentionCall) -> None:
        pooled.append(seen.weights()[0, 0, 0].cpu().numpy())

    batch = moved(probe.batch, device)
    with (
        torch.no_grad(),
        eval_mode(model),
        observe(model, keep, HEADED),
        observe(model, keep_pooling, ScoredAttention),
    ):
        logits = model(*batch.inputs).float().cpu()
    split = attribution(model, *batch.inputs)[0] if attributable(model) else None
    likeliest = labels[int(logits[0].argmax())]
    said = (
        None
        if split is None
        else split.said(class_direction(split.logits, objective), likeliest, probe.tokens)
    )
    if said is None and foreign_models(model) and layers:
        said = _said_by_gates(
            gate_attribution(model, batch, class_direction(logits[0].double(), objective)),
            likeliest,
            probe,
        )
    found = objective.probabilities(logits / temperature)  # [1, C]
    (answer,) = objective.names(objective.given(found), labels)
    probabilities = dict(zip(labels, found[0].tolist(), strict=True))
    difference = max(differences, default=0.0)
    pooling = pooled[0] if pooled else None
    return ProbeOutput(
        maps, probabilities, answer, pooling, norms, difference, logits[0], split, said
    )


@torch.no_grad()
def value_norms(layer: HeadedAttention, values: Float[Tensor, "B H K E"]) -> Float[Tensor, "B H K"]:
    """Return || W^O_h v_hk ||: the length of what key k adds to a query's vector for each unit of its weight.

    Times the weight, that is how much the key really adds: a head may look at a token whose value is next to nothing
    (Kobayashi et al. 2020, Attention is Not Only a Weight, section 3). In float32.
    """
    columns = layer.output_projection.weight.float().unflatten(
        1, (layer.num_heads, -1)
    )  # [D, H, E]
    squares = torch.einsum("dhe,dhf->hef", columns, columns)
    vectors = values.float()
    with torch.autocast(values.device.type, enabled=False):
        return torch.einsum("bhke,hef,bhkf->bhk", vectors, squares, vectors).clamp_min(0).sqrt()


def _said_by_gates(found: IntegratedGradients, answer: str, probe: Probe) -> Contributions:
    """Return what the heads put; the constant is what is said without any head, feed-forward blocks among it."""
    layers, width = len(found.heads), max(map(len, found.heads))
    heads, none = np.zeros((layers, width)), np.zeros((layers, width, 0))
    for layer, values in enumerate(found.heads):
        heads[layer, : len(values)] = values.numpy()
    return Contributions(
        answer, probe.tokens, heads, none.astype(np.int32), none, np.zeros(layers), found.none
    )


def shortened(probe: Probe, reading: ProbeOutput, tokens: int) -> tuple[Probe, ProbeOutput]:
    """Return the first tokens of a probe, and of its maps, for pictures, which would grow with the square."""
    if len(probe.tokens) <= tokens:
        return probe, reading
    # Copies, so that the whole maps can be let go.
    maps = {layer: weights[:, :tokens, :tokens].copy() for layer, weights in reading.maps.items()}
    norms = {layer: lengths[:, :tokens] for layer, lengths in reading.norms.items()}
    pooling = None if reading.pooling is None else reading.pooling[:tokens]
    segments = None if probe.segments is None else probe.segments[:tokens]
    special = (
        None if probe.special is None else [place for place in probe.special if place < tokens]
    )
    readout = probe.readout if probe.readout is not None and probe.readout < tokens else None
    cut = replace(
        probe, tokens=probe.tokens[:tokens], segments=segments, special=special, readout=readout
    )
    return cut, replace(reading, maps=maps, norms=norms, pooling=pooling)
