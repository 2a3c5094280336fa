"""Classifiers of transformers, called as headscope's own network is.

A checkpoint is the folder of a model of transformers, or its id on the Hub. Its weights are read
from safetensors alone, and none of its code is run. A run keeps the model's config.json; with it
and its own weights it is opened without the checkpoint.

Shape letters: B texts, T tokens of the longest, C classes.
"""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headscope.ground.errors import ConfigError, listed
from headscope.model.checkpoint import errors_of
from headscope.model.families import Description
from headscope.model.others import import_transformers
from headscope.model.running import accepts, eval_mode, hooks_kept, logits_in
from headscope.settings.config import ModelConfig

TokenIds = Int[Tensor, "B T"]

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


class PretrainedClassifier(Pretrained):
    """logits = model(ids).logits, with the call of `TextClassifier`.

    Args:
        model: a sequence classifier of transformers.
    """

    def forward(
        self,
        token_ids: TokenIds,
        key_padding_mask: Bool[Tensor, "B T"] | None = None,
        segment_ids: TokenIds | None = None,
        evidence: None = None,
        features: None = None,
    ) -> Float[Tensor, "B C"]:
        """Return the logits of texts padded with id 0; the mask is True at padding."""
        if key_padding_mask is not None and self.reads_padding:
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


def build_pretrained(
    encoder: Description,
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
    encoder: Description, config: ModelConfig | None = None, labels: Sequence[str] = ("0", "1")
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
