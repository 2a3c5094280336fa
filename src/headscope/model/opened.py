"""A checkpoint of BERT's family, opened into our own network: its tensors by their names.

The shapes of all are compared before one is read. Nothing is unpickled, none of the checkpoint's
code is run, and transformers is not needed. What a checkpoint lacks of a head is drawn.

Shape letters: D model width, E head width.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Float
from safetensors import safe_open
from torch import Tensor, nn

from headscope.ground.errors import ConfigError, listed
from headscope.model.classifier import TextClassifier
from headscope.model.embedding import TokenEmbedding
from headscope.model.encoder import Encoder
from headscope.model.families import Description, Family, Names, architecture_of, family_of
from headscope.model.frozen import FrozenLayers
from headscope.model.running import Undrawn

SAFETENSORS = "model*.safetensors"  # one file, or several of one model
HEADS = ("head.", "pooler.")  # of ours, which may be drawn
POSITION = "embedding.position"
# Of the names of an encoder in runs of 1.0, which were those of transformers
OLD_PATH = "model."
OLD_FEATURES = "features.model."
Shapes = Mapping[str, Sequence[int]]  # of all tensors of a checkpoint
Read = Callable[[str], Tensor]


def frozen_layers(encoder: Description, layer: int | list[int] | None) -> FrozenLayers:
    """Return a checkpoint's embedding and first blocks, untrained; `load_weights` gives weights.

    ConfigError for a family that does not open, or if there is no such layer.
    """
    assert layer is not None, "the number of texts has chosen"
    architecture = architecture_of(encoder)
    layers = [layer] if isinstance(layer, int) else layer
    number = len(architecture.layers)
    if max(layers) > number:
        raise ConfigError(
            f"model.features_layer: expected at most {number}, the layers of model.features, "
            f"got {max(layers)}"
        )
    has_last = architecture.has_last_norm and max(layers) == number
    lower = replace(architecture, layers=architecture.layers[: max(layers)], has_last_norm=has_last)
    frozen = FrozenLayers(TokenEmbedding(lower), Encoder(lower), layers)
    return frozen.requires_grad_(False).eval()


def check_weights(encoder: Description, folder: Path) -> None:
    """Raise a ConfigError if a checkpoint's tensors do not fit its config.json; none is read."""
    has_head(encoder, folder, 2)


def has_head(encoder: Description, folder: Path, num_classes: int) -> bool:
    """Return whether a checkpoint has a head for its number of classes; errors: `check_weights`."""
    with Undrawn(shapes_only=True):
        network = TextClassifier(architecture_of(encoder), num_classes)
    with _tensors(folder) as (shapes, _):
        return "head.weight" in _sources(network, encoder, shapes)


def load_weights(
    network: TextClassifier | FrozenLayers, encoder: Description, folder: Path
) -> None:
    """Give a network the weights of a checkpoint's files.

    A head for other classes than the network's, or none, leaves the head as it was drawn; so does
    a missing pooler. ConfigError for any other tensor that is missing or has another shape.
    """
    with _tensors(folder) as (shapes, read):
        weights = translated(network, encoder, shapes, read)
    network.load_state_dict(weights, strict=False)


@contextmanager
def _tensors(folder: Path) -> Iterator[tuple[Shapes, Read]]:
    """Yield the shapes of all tensors of a checkpoint, and a function that reads one."""
    with ExitStack() as stack:
        opened = [safe_open(path, "pt") for path in sorted(folder.glob(SAFETENSORS))]
        files = [stack.enter_context(file) for file in opened]
        owners = {name: file for file in files for name in file.keys()}  # noqa: SIM118
        shapes = {name: file.get_slice(name).get_shape() for name, file in owners.items()}
        yield shapes, lambda name: owners[name].get_tensor(name)


def translated(
    network: nn.Module, encoder: Description, shapes: Shapes, read: Read
) -> dict[str, Tensor]:
    """Return a checkpoint's tensors under the names of our network; errors as of `load_weights`.

    Args:
        network: whose state dict decides names and shapes.
        encoder: the checkpoint's config.json.
        shapes: of all of its tensors.
        read: returns a tensor by its name.
    """
    sources = _sources(network, encoder, shapes)
    found = {ours: torch.cat([read(name) for name in it]).float() for ours, it in sources.items()}
    if POSITION in found:  # RoBERTa's first token is not in the first row
        found[POSITION] = found[POSITION][family_of(encoder).first_position(encoder) :].clone()
    if family_of(encoder).rotates_halves:
        E = architecture_of(encoder).head_dim
        packed = [name for name in found if name.endswith("in_proj_weight")]
        found |= {name: _pairs_beside(found[name], E) for name in packed}
    return found


def _sources(network: nn.Module, encoder: Description, shapes: Shapes) -> dict[str, list[str]]:
    """Return the names of a checkpoint's tensors that make up each of ours."""
    family = family_of(encoder)
    first = family.first_position(encoder)
    num_layers = len(architecture_of(encoder).layers)
    expected = network.state_dict()
    sources: dict[str, list[str]] = {}
    lost = []
    for ours, theirs in _names(family, shapes, num_layers).items():
        if ours not in expected:
            continue
        names = [_spelled(name, shapes) for name in theirs]
        wanted = [*expected[ours].shape]
        wanted[0] += first if ours == POSITION else 0
        if _joined_shape([shapes.get(name) for name in names]) == wanted:
            sources[ours] = names
        elif not ours.startswith(HEADS):
            lost.append(names[0])
    if lost:
        raise ConfigError(f"weights do not fit its config.json: {listed(lost)}")
    for part in HEADS:  # is drawn as a whole, or not at all
        own = {ours for ours in expected if ours.startswith(part)}
        if not own <= sources.keys():
            sources = {ours: names for ours, names in sources.items() if ours not in own}
    return sources


def renamed(
    network: nn.Module, encoder: Description, weights: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return the weights of a run of headscope 1.0 under the names of today.

    It kept the encoder as transformers names it, below OLD_PATH or OLD_FEATURES.
    """
    found = dict(weights)
    features = getattr(network, "features", None)
    old = OLD_PATH if features is None else OLD_FEATURES
    theirs = {name.removeprefix(old): found.pop(name) for name in weights if name.startswith(old)}
    if theirs:
        shapes = {name: [*weight.shape] for name, weight in theirs.items()}
        part = network if features is None else features
        ours = translated(part, encoder, shapes, theirs.__getitem__)
        prefix = "" if features is None else "features."
        found |= {f"{prefix}{name}": weight for name, weight in ours.items()}
    return found


def as_transformers(network: TextClassifier, encoder: Description) -> dict[str, Tensor]:
    """Return the weights of an opened network as transformers names them, evidence left out.

    model = AutoModelForSequenceClassification.from_config(config)
    model.load_state_dict(as_transformers(run.model, run.setup.encoder))
    """
    family = family_of(encoder)
    weights = network.state_dict()
    found: dict[str, Tensor] = {}
    for ours, theirs in _names(family, {family.prefix: ()}, len(network.encoder.blocks)).items():
        if ours not in weights:
            continue
        weight = weights[ours].detach()
        if ours == POSITION:
            weight = F.pad(weight, (0, 0, family.first_position(encoder), 0))
        if family.rotates_halves and ours.endswith("in_proj_weight"):
            weight = _pairs_beside(weight, network.architecture.head_dim, back=True)
        parts = weight.chunk(len(theirs))
        found |= {name: part.clone() for name, part in zip(theirs, parts, strict=True)}
    return found


def _names(family: Family, shapes: Shapes, num_layers: int) -> Names:
    """Return all names of ours, with those of the checkpoint's tensors, in layers by number."""
    # The file of a plain encoder has no prefix.
    prefix = family.prefix if any(name.startswith(family.prefix) for name in shapes) else ""
    found = {
        ours: tuple(name.replace("{prefix}", prefix) for name in theirs)
        for ours, theirs in family.head.items()
    }
    for ours, theirs in family.names.items():
        for n in range(num_layers) if "{n}" in ours else (0,):
            names = tuple(f"{prefix}{name}".replace("{n}", str(n)) for name in theirs)
            found[ours.replace("{n}", str(n))] = names
    return found


def _spelled(name: str, shapes: Shapes) -> str:
    """Return a tensor's name as the file has it: norms of old checkpoints have gamma and beta."""
    if name in shapes:
        return name
    gamma = name.replace("LayerNorm.weight", "LayerNorm.gamma")
    return gamma.replace("LayerNorm.bias", "LayerNorm.beta")


def _joined_shape(shapes: Sequence[Sequence[int] | None]) -> list[int] | None:
    """Return the shape of tensors joined row by row; None if one is missing or is none of them."""
    found = [shape for shape in shapes if shape]
    if len(found) < len(shapes) or any(shape[1:] != found[0][1:] for shape in found):
        return None
    return [sum(shape[0] for shape in found), *found[0][1:]]


def _pairs_beside(
    weight: Float[Tensor, "rows D"], E: int, back: bool = False
) -> Float[Tensor, "rows D"]:
    """Return Q, K, V with the rows of a rotated pair side by side in each head of Q and K.

    transformers rotates numbers j and j + E / 2 of a head, `RotaryPositions` 2j and 2j + 1. `back`
    is the way from ours to theirs.
    """
    query, key, value = weight.chunk(3)
    order = torch.arange(E).view(2, -1).T.flatten()  # 0, E/2, 1, E/2 + 1, ...
    if back:
        order = order.argsort()
    moved = [rows.unflatten(0, (-1, E))[:, order].flatten(0, 1) for rows in (query, key)]
    return torch.cat([*moved, value])
