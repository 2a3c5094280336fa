"""Classifiers of transformers, called as headscope's own network is.

A checkpoint is the folder of a model of transformers, or its id on the Hub. Its weights are read
from safetensors alone, and none of its code is run. A run keeps the model's config.json; with it
and its own weights it is opened without the checkpoint.

The states of frozen layers are computed by `headscope.training.train`, kept by
`headscope.data.features`, and `PretrainedClassifier.forward` starts from them.

Shape letters: B texts, T tokens of the longest, C classes, F width of hidden states.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.overrides import handle_torch_function, has_torch_function_unary

from headscope.ground.errors import ConfigError, first_line, listed
from headscope.model.running import accepts, eval_mode, hooks_kept, logits_in
from headscope.settings.config import NO_TRANSFORMERS, ModelConfig

TokenIds = Int[Tensor, "B T"]
Encoder = dict[str, Any]  # the content of a config.json of transformers

MOST_LAYERS = 1000  # as of our own network
NO_LIMIT = 10**6  # tokens; a tokenizer without a limit has a huge number as its limit
CODE = ("auto_map", "attn_implementation", "_attn_implementation")  # would name code on the Hub


class Pretrained(nn.Module):
    """A model of transformers, called with padding as headscope has it: id 0, True in a mask."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        config: Any = getattr(model, "config", None)
        pad_id = getattr(config, "pad_token_id", None)
        self.pad_id: int | None = None if pad_id is None or pad_id < 0 else pad_id
        self.has_segments = (getattr(config, "type_vocab_size", None) or 0) > 1

    def run(
        self,
        token_ids: TokenIds,
        key_padding_mask: Bool[Tensor, "B T"] | None = None,
        segment_ids: TokenIds | None = None,
        **options: Any,
    ) -> Any:
        """Return all that the model of transformers returns."""
        mask = torch.ones_like(token_ids)
        if key_padding_mask is not None:
            mask = (~key_padding_mask).long()
            # A hidden word keeps its id: by those of padding RoBERTa counts positions.
            is_padding = key_padding_mask & (token_ids == 0)
            token_ids = token_ids.masked_fill(is_padding, self.pad_id or 0)
        if segment_ids is not None and self.has_segments:
            options["token_type_ids"] = segment_ids
        if accepts(self.model, "attention_mask"):
            options["attention_mask"] = mask
        return self.model(input_ids=token_ids, **options)

    @cached_property
    def reads_padding(self) -> bool:
        """Whether padding on the right changes what a text is given.

        As in XLNet, whose last place is read, and FNet, which has no mask.
        """
        device = next(self.parameters()).device
        text = torch.arange(1, 6, device=device)[None]
        padding = torch.arange(8, device=device)[None] >= 5
        try:
            with eval_mode(self), torch.no_grad():
                alone = self._read(self.run(text))
                padded = self._read(self.run(nn.functional.pad(text, (0, 3)), padding))
        except (AssertionError, IndexError, RuntimeError, TypeError, ValueError):
            return False  # it cannot read such a text, and says so where it reads one
        return not torch.allclose(alone, padded, atol=1e-3)

    def _read(self, output: Any) -> Tensor:
        """Return what counts of an output, of the first text's first places."""
        logits: Tensor = logits_in(output)
        return logits

    @property
    def width(self) -> int:
        """F, the width of hidden states."""
        width: int = self.model.config.hidden_size  # type: ignore[union-attr, assignment]
        return width

    def digest(self) -> str:
        """Return a digest of what the hidden states of frozen layers depend on."""
        found = hashlib.blake2b(str(self.model.config).encode(), digest_size=16)
        for weight in self.parameters():
            if not weight.requires_grad:
                found.update(weight.detach().cpu().numpy().tobytes())
        return found.hexdigest()


class FrozenEncoder(Pretrained):
    """The first layers of an encoder of transformers, which never learn and have no dropout.

    `layers` are those that are read; their hidden states stand side by side.
    """

    def __init__(self, model: nn.Module, layers: Sequence[int]) -> None:
        super().__init__(model)
        self.layers = layers
        self.requires_grad_(False).eval()

    @property
    def width(self) -> int:
        """F, of all layers that are read together."""
        return len(self.layers) * super().width

    def train(self, mode: bool = True) -> "FrozenEncoder":
        """Stay in eval mode."""
        return super().train(False)

    def forward(
        self,
        token_ids: TokenIds,
        key_padding_mask: Bool[Tensor, "B T"] | None = None,
        segment_ids: TokenIds | None = None,
    ) -> Float[Tensor, "B T F"]:
        """Return the hidden states of the layers that are read."""
        inputs = (token_ids, key_padding_mask, segment_ids)
        if len(self.layers) == 1:
            states: Tensor = self.run(*inputs).last_hidden_state
            return input_vectors(states)
        found = self.run(*inputs, output_hidden_states=True).hidden_states
        return input_vectors(torch.cat([found[layer] for layer in self.layers], dim=-1))

    def _read(self, output: Any) -> Tensor:
        states: Tensor = output.last_hidden_state[:, :5]
        return states


def input_vectors(vectors: Float[Tensor, "B T F"]) -> Float[Tensor, "B T F"]:
    """Return the vectors unchanged; the call tells `FixedGates` that layers count from here."""
    if has_torch_function_unary(vectors):
        marked: Tensor = handle_torch_function(input_vectors, (vectors,), vectors)
        return marked
    return vectors


class FoundError(Exception):
    """Carries hidden states out of a forward pass, which it ends."""


class PretrainedClassifier(Pretrained):
    """logits = model(ids).logits, with the call of `TextClassifier`.

    Args:
        model: a sequence classifier of transformers.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.num_frozen = 0  # layers

    def forward(
        self,
        token_ids: TokenIds,
        key_padding_mask: Bool[Tensor, "B T"] | None = None,
        segment_ids: TokenIds | None = None,
        evidence: None = None,
        features: Float[Tensor, "B T F"] | None = None,
    ) -> Float[Tensor, "B C"]:
        """Return the logits of texts padded with id 0; the mask is True at padding.

        `features` are the hidden states of the frozen layers, if they are known already.
        """
        known = nullcontext() if features is None else self._above(features)
        with known:
            if key_padding_mask is not None and features is None and self.reads_padding:
                return self._one_by_one(token_ids, key_padding_mask, segment_ids)
            logits: Tensor = logits_in(self.run(token_ids, key_padding_mask, segment_ids))
        return logits

    def _one_by_one(
        self, token_ids: TokenIds, padding: Bool[Tensor, "B T"], segment_ids: TokenIds | None
    ) -> Float[Tensor, "B C"]:
        """Return the logits of each text by itself, without its padding."""
        logits = []
        for row, length in enumerate((~padding).sum(dim=1).tolist()):
            own = (slice(row, row + 1), slice(length))
            segments = None if segment_ids is None else segment_ids[own]
            logits.append(logits_in(self.run(token_ids[own], None, segments)))
        return torch.cat(logits)

    def frozen_states(
        self,
        token_ids: TokenIds,
        key_padding_mask: Bool[Tensor, "B T"] | None = None,
        segment_ids: TokenIds | None = None,
    ) -> Float[Tensor, "B T F"]:
        """Return the hidden states of the last frozen layer."""

        def stop(module: nn.Module, args: tuple[Any, ...], options: dict[str, Any]) -> None:
            raise FoundError(args[0] if args else options["hidden_states"])

        _, stack = self._stack()
        handle = stack[self.num_frozen].register_forward_pre_hook(stop, with_kwargs=True)
        try:
            self.run(token_ids, key_padding_mask, segment_ids)
        except FoundError as found:
            states: Tensor = found.args[0]
            return states
        finally:
            handle.remove()
        raise TypeError("no layer of this model was called")

    @contextmanager
    def _above(self, states: Float[Tensor, "B T F"]) -> Iterator[None]:
        """Run the layers above the frozen ones on these states; the embeddings run in vain."""

        def start(module: nn.Module, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
            if args:
                return (states, *args[1:]), options
            return args, {**options, "hidden_states": states}

        name, stack = self._stack()
        above = stack[self.num_frozen :]
        handle = above[0].register_forward_pre_hook(start, with_kwargs=True)
        self.set_submodule(name, above)
        try:
            yield
        finally:
            self.set_submodule(name, stack)
            handle.remove()

    @torch.no_grad()
    def can_skip(self) -> bool:
        """Return whether the upper layers give the same logits from the states alone."""
        if not 0 < self.num_frozen < len(self._stack()[1]):
            return False
        text = self._example()
        with eval_mode(self):
            found = self(text, features=self.frozen_states(text))
            return torch.allclose(found, self(text), atol=1e-5)

    def _example(self) -> TokenIds:
        return torch.arange(1, 6, device=next(self.parameters()).device)[None]

    def _stack(self) -> tuple[str, nn.ModuleList]:
        """Return the layers, and the name of their module."""
        parts = self.named_modules()
        stacks = [(name, part) for name, part in parts if isinstance(part, nn.ModuleList)]
        return max(stacks, key=lambda named: len(named[1]))

    @cached_property
    def readout_position(self) -> int | None:
        """The position that the logits are read from, if it is the same in texts of any length."""
        device = next(self.parameters()).device
        text = torch.ones(1, 5, dtype=torch.long, device=device)
        position = self.position_read(text)
        return position if position == self.position_read(text[:, :3]) else None

    def position_read(self, *inputs: Any) -> int | None:
        """Return the position that a text's logits are read from: 0 for [CLS], the last of a GPT.

        That is the position of the last hidden state with a gradient; None where it is not one.
        """
        try:
            with (
                eval_mode(self),
                hooks_kept(self),
                torch.inference_mode(False),
                torch.enable_grad(),
            ):
                output = self.run(*inputs, output_hidden_states=True, return_dict=True)
                logits = output.logits.float().sum()  # MPS has no float64
                (gradient,) = torch.autograd.grad(logits, output.hidden_states[-1])
        except (AttributeError, RuntimeError, TypeError):  # a model without hidden states to show
            return None
        is_read = (gradient[0] != 0).any(dim=-1)  # [T]
        positions = is_read.nonzero().flatten().tolist()
        return positions[0] if len(positions) == 1 else None

    def freeze(self, layers: int) -> None:
        """Freeze the first `layers` layers and all below, which have no dropout from then on.

        ConfigError if there are fewer.
        """
        if self.reads_padding:
            raise ConfigError(
                f"model.frozen_layers: expected 0 for {type(self.model).__name__}, which reads "
                "padding, so its texts are read one by one"
            )
        _, stack = self._stack()
        if layers > len(stack):
            raise ConfigError(
                f"model.frozen_layers: expected at most {len(stack)}, the layers of model.path, "
                f"got {layers}"
            )
        self.num_frozen = layers
        weights = [*self.parameters()]
        with hooks_kept(self):
            output = self.run(self._example(), output_hidden_states=True, return_dict=True)
        states = output.hidden_states[layers]
        gradients = torch.autograd.grad(states.sum(), weights, allow_unused=True)
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.requires_grad_(gradient is None)
        self.train(self.training)

    def train(self, mode: bool = True) -> "PretrainedClassifier":
        """Set the mode of the parts that learn; frozen ones stay in eval mode."""
        super().train(mode)
        for part in self.model.modules():
            weights = [*part.parameters()]
            if weights and not any(weight.requires_grad for weight in weights):
                part.eval()
        return self


def import_transformers(key: str) -> Any:
    """Return the library, without its notes and progress bars; ConfigError if it is missing."""
    try:
        import transformers
    except ImportError as error:
        raise ConfigError(f"{key}: {NO_TRANSFORMERS}") from error
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return transformers


@contextmanager
def errors_of(key: str, path: str) -> Iterator[None]:
    """Make one line of what transformers raises, which are many classes."""
    try:
        yield
    except (ConfigError, MemoryError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # panics of libraries in Rust are no Exception
        raise ConfigError(f"{key}={path}: {first_line(error)}") from error


def build_pretrained(
    encoder: Encoder,
    config: ModelConfig | None = None,
    labels: Sequence[str] = ("0", "1"),
    folder: Path | None = None,
) -> PretrainedClassifier:
    """Return the network of a config.json, with a checkpoint's weights if its folder is given.

    What the checkpoint lacks of a head for these classes is drawn. Dropout is that of `config`.
    """
    factory = import_transformers("model.path").AutoModelForSequenceClassification
    model = _loaded("model.path", factory, _settings(encoder, config, labels), folder)
    return PretrainedClassifier(model.train())


def num_layers(encoder: Encoder) -> int:
    """Return how many layers an encoder has."""
    return int(_settings(encoder).num_hidden_layers)


def build_frozen(
    encoder: Encoder, layer: int | list[int] | None, folder: Path | None = None
) -> FrozenEncoder:
    """Return an encoder up to the highest layer, with a checkpoint's weights from `folder`."""
    assert layer is not None, "the number of texts has chosen"
    factory = import_transformers("model.features").AutoModel
    settings = _settings(encoder)
    layers = [layer] if isinstance(layer, int) else layer
    highest = max(layers)
    if highest > settings.num_hidden_layers:
        raise ConfigError(
            f"model.features_layer: expected at most {settings.num_hidden_layers}, the layers of "
            f"model.features, got {highest}"
        )
    settings.num_hidden_layers = highest
    if kinds := getattr(settings, "layer_types", None):
        settings.layer_types = kinds[:highest]
    model = _loaded("model.features", factory, settings, folder)
    if getattr(model, "pooler", None) is not None:
        model.pooler = None  # behind the last hidden state
    frozen = FrozenEncoder(model, layers)
    if folder is not None and frozen.reads_padding:
        raise ConfigError(
            f"model.features: expected an encoder with a mask for padding, got "
            f"{type(model).__name__}, whose states depend on it"
        )
    return frozen


def _loaded(key: str, factory: Any, settings: Any, folder: Path | None) -> Any:
    """Return a model of transformers: drawn, or with a checkpoint's weights."""
    if folder is None:
        return factory.from_config(settings, dtype=torch.float32, trust_remote_code=False)
    with errors_of(key, str(folder)):
        model, report = factory.from_pretrained(
            folder,
            config=settings,
            dtype=torch.float32,
            use_safetensors=True,
            trust_remote_code=False,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
        misfits = [name for name, *_ in report["mismatched_keys"]]
        encoder = "" if model.base_model is model else f"{model.base_model_prefix}."
        lost = [
            name
            for name in sorted([*report["missing_keys"], *misfits])
            if name.startswith(encoder)  # the head may be drawn,
            and "pooler" not in name  # and BERT's pooler
        ]
        if lost:
            raise ValueError(f"weights do not fit its config.json: {listed(lost)}")
    return model


def _settings(
    encoder: Encoder, config: ModelConfig | None = None, labels: Sequence[str] = ("0", "1")
) -> Any:
    """Return transformers' configuration with our classes and dropout, and no code in it."""
    from transformers import AutoConfig

    check_kind(encoder.get("model_type"))
    known = {key: value for key, value in encoder.items() if key not in CODE}
    for key, value in known.items():
        if "layer" in key and isinstance(value, int) and value > MOST_LAYERS:
            raise ConfigError(f"model.path: {key}: expected at most {MOST_LAYERS}, got {value}")
    settings = AutoConfig.for_model(**known)
    settings.id2label = dict(enumerate(labels))
    settings.label2id = {label: number for number, label in enumerate(labels)}
    if config is None:
        return settings
    for name, value in settings.to_dict().items():
        if "dropout" in name and isinstance(value, float | int):
            is_of_weights = name.startswith("attention")
            setattr(settings, name, config.attention_dropout if is_of_weights else config.dropout)
    return settings


def check_kind(kind: Any) -> None:
    """Check that transformers has a sequence classifier of this model_type; else ConfigError."""
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES as KNOWN,
    )

    if kind not in KNOWN:
        raise ConfigError(
            "model.path: model_type: expected one of which transformers has a sequence classifier, "
            f"got {kind!r}; no other code is run"
        )


def max_tokens_of(model: nn.Module, tokenizer: Any) -> int:
    """Return how many tokens the model can read, by its positions and its tokenizer."""
    config = getattr(model, "config", None)
    limits = [
        NO_LIMIT,
        getattr(tokenizer, "model_max_length", NO_LIMIT),
        getattr(config, "max_position_embeddings", None) or NO_LIMIT,
    ]
    limits = [limit for limit in limits if limit > 0]  # XLNet's config says -1: there is none
    for name, table in model.named_modules():
        is_positions = name.endswith(("position_embeddings", "embed_positions", "wpe"))
        if is_positions and isinstance(table, nn.Embedding):
            # RoBERTa's positions begin behind that of padding.
            first = 0 if table.padding_idx is None else table.padding_idx + 1
            limits.append(table.num_embeddings - first)
    return min(limits)
