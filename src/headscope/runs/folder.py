"""A run folder: the files that training writes. One of them is the model.

    outputs/<name>/
        model.safetensors    the model: its best weights by tempered validation loss, and all that
                             decides an answer; the only file that is read to predict
        private.safetensors  which texts it was trained and chosen on, and the logits and labels of
                             validation: not for those who get the model
        metrics.json         scores, baseline, facts about data and training, seconds
        report.html          every test text, and the words that add most to each class
        words.csv            all of these words, and what passes through each head at them
        checkpoints/         last.ckpt, the only file that is read to resume a run
        heads/               the record of the attention heads, for TensorBoard's Heads tab
        events.out.tfevents… scalars and images for TensorBoard
        config.yaml, tokenizer.json, labels.json
                             copies for people; a run without a checkpoint starts with config.yaml

The metadata of model.safetensors are texts in JSON: settings, labels, tokenizer, encoder (a
checkpoint's config.json), ngrams (how they are numbered; their keys are a tensor), digests (of the
data), date, chosen: what the validation texts have chosen, and a digest of all of it, by which a
damaged file is noticed. Nothing in it is unpickled. Free of lightning, so that predicting starts
fast.
"""

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from contextlib import nullcontext, suppress
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any

import torch
import yaml
from jaxtyping import Float, Int
from pydantic import TypeAdapter
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor, nn

from headscope.ground.errors import RunError, existing_runs, warn
from headscope.ground.files import read_text, reading, write_atomic, write_text
from headscope.ground.mecab import write_tokenizer_json
from headscope.model.running import Undrawn
from headscope.runs.setup import LEARNED, NGRAMS, Chosen, Classifier, Setup, kept_settings
from headscope.settings.checks import command, resume_command
from headscope.settings.config import REPORT, REPORT_WORDS, TrainConfig, is_run
from headscope.settings.extension import is_import_path

CONFIG = "config.yaml"
COPIES = (CONFIG, "tokenizer.json", "labels.json")  # for people
WEIGHTS = "model.safetensors"
PRIVATE = "private.safetensors"
DIGEST = "digest"  # in the metadata of both, of all else in the file
MODEL = "model"  # in those of private.safetensors and in metrics.json: the model's digest
METRICS = "metrics.json"
VALIDATION = "validation"  # a tensor: logits, and in its last column the numbers of the labels
MOST_HEADER = 48  # MiB of a header, of which many small texts take 36 times as much
MOST_NUMBERS = 2**22  # in it, 16 MiB
Validation = tuple[Float[Tensor, "N C"], Int[Tensor, " N"]]  # logits and labels
DERIVED_FILES = (METRICS, REPORT, REPORT_WORDS)  # made from the weights


def save_model(
    folder: Path,
    setup: Setup,
    model: nn.Module,
    chosen: Chosen,
    validation: Validation | None = None,
) -> str:
    """Write the model and, beside it, what is told to nobody else; return the model's digest.

    What was made from the old weights is removed before. `validation` has logits and labels, of
    which at most 4 million numbers are kept.
    """
    for name in DERIVED_FILES:
        (folder / name).unlink(missing_ok=True)
    weights = model.state_dict().items()
    # A tensor that two layers share is written twice: a file has no shared ones.
    tensors = {name: weight.detach().cpu().clone().contiguous() for name, weight in weights}
    tensors |= setup.tensors()
    facts = {"chosen": json.dumps(asdict(chosen)), "date": date.today().isoformat()}
    metadata = setup.metadata() | facts
    digest = digest_of(tensors, metadata)
    private = {} if setup.learned is None else {LEARNED: setup.learned}
    if validation is not None:
        table = torch.column_stack(validation)
        step = 1 + table.numel() // MOST_NUMBERS
        private[VALIDATION] = table[::step].contiguous()
    write_tensors(folder / PRIVATE, private, {MODEL: digest})
    write_tensors(folder / WEIGHTS, tensors, metadata)
    return digest


def digest_of(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """Return the SHA-256 of tensors and texts, by name; a digest among the texts is left out."""
    found = hashlib.sha256()
    for name, text in sorted(metadata.items()):
        if name != DIGEST:
            found.update(json.dumps([name, text]).encode())
    for name, tensor in sorted(tensors.items()):
        found.update(json.dumps([name, str(tensor.dtype), tensor.shape]).encode())
        found.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Write a safetensors file with its digest, whole or not at all."""
    content = save(tensors, metadata | {DIGEST: digest_of(tensors, metadata)})
    write_atomic(path, lambda temporary: temporary.write_bytes(content))


def _read(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Return metadata and tensors; ValueError unless they have their digest, if there is one.

    Files of version 1.0 have none.
    """
    with path.open("rb") as content:
        if int.from_bytes(content.read(8), "little") > MOST_HEADER * 2**20:
            raise ValueError(f"its header: expected at most {MOST_HEADER} MiB")
    with safe_open(path, "pt") as file:
        metadata = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if DIGEST in metadata and metadata[DIGEST] != digest_of(tensors, metadata):
        raise ValueError("it is not what was written: its digest is another")
    return metadata, tensors


def _read_private(folder: Path, model: str) -> dict[str, Tensor]:
    """Return what stands beside the model of this digest; nothing if it is gone."""
    path = folder / PRIVATE
    with reading(path):
        if not path.exists():
            return {}
        metadata, tensors = _read(path)
        if metadata[MODEL] != model:
            raise RunError(
                f"run={folder}: {PRIVATE} is of another {WEIGHTS}; put back its own, or remove it"
            )
        return {name: tensors[name] for name in (LEARNED, VALIDATION) if name in tensors}


def model_name(folder: Path) -> str:
    """Return the start of the SHA-256 of model.safetensors, and the day on which it was written."""
    path = folder / WEIGHTS
    with reading(path), safe_open(path, "pt") as file:
        day = (file.metadata() or {}).get("date", "")
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        return f"{digest[:12]} {day}".strip()


def load_validation(folder: Path) -> Validation:
    """Read logits and labels of the validation texts; RunError for a run that keeps none."""
    with reading(folder / WEIGHTS):
        metadata, tensors = _read(folder / WEIGHTS)  # a run of 1.0 has them there
    tensors |= _read_private(folder, metadata.get(DIGEST, ""))
    if VALIDATION not in tensors:
        raise RunError(
            f"run={folder}: keeps no logits of its validation texts: it was stopped, or is "
            f"older, or {PRIVATE} is gone; train it again, or give min_confidence=..."
        )
    with reading(folder / PRIVATE):
        table = tensors[VALIDATION]
        classes = len(json.loads(metadata["labels"]))
        has_shape = table.dim() == 2 and len(table) > 0 and table.shape[1] == classes + 1
        if not has_shape or not ((table[:, -1] >= 0) & (table[:, -1] < classes)).all():
            raise ValueError(f"{VALIDATION}: expected logits and labels of {classes} classes")
    return table[:, :-1], table[:, -1].long()


def load_setup(folder: Path, allow_code: bool | Collection[str]) -> Setup:
    """Read what the weights in model.safetensors depend on; errors as in `load_model`."""
    path = folder / WEIGHTS
    with reading(path):
        metadata, tensors = _read(path)
        return Setup.read(metadata, tensors, path, allow_code)


@torch.inference_mode(False)  # in it weights have no gradient ever, nor what is explained by one
def load_model(folder: Path, allow_code: bool = False) -> tuple[Setup, Classifier, Chosen]:
    """Read model.safetensors; RunError if it is missing or damaged, or for code not allowed."""
    path = folder / WEIGHTS
    if not is_run(folder):
        raise RunError(f"run={folder}: expected a run folder; {existing_runs(str(folder))}")
    if not path.exists():
        raise RunError(
            f"run={folder}: has no {WEIGHTS}, so it did not finish; resume it: "
            + resume_command(folder)
        )
    with reading(path):
        metadata, tensors = _read(path)
        if "chosen" not in metadata and (folder / "config.json").is_file():
            raise RunError(
                f"run={folder}: expected a run, got a model of transformers; look at it by "
                f"headscope.load in Python, or fine-tune it: "
                + command("headscope train", **{"model.path": folder})
            )
        digest = metadata.get(DIGEST, "")
        tensors |= _read_private(folder, digest)
        setup = Setup.read(metadata, tensors, path, allow_code)
        chosen = TypeAdapter(Chosen).validate_json(metadata["chosen"])
        for name in (NGRAMS, LEARNED, VALIDATION):
            tensors.pop(name, None)
        if not all(tensor.isfinite().all() for tensor in tensors.values()):
            raise ValueError("has values that are not finite")
        setup, tensors = setup.renamed(tensors)
        setup.check_weights(tensors)
        is_own = is_import_path(setup.config.model.attention)  # tried as it is built
        with nullcontext() if is_own else Undrawn():
            model = setup.build().eval()
        model.load_state_dict(tensors)
    _compare_metrics(folder, digest)
    return setup, model, chosen


def _compare_metrics(folder: Path, digest: str) -> None:
    """Warn if the scores beside a model are those of another; a run of 1.0 does not say."""
    path = folder / METRICS
    with suppress(RunError):  # what cannot be read decides no answer
        told = re.search(f'"{MODEL}": "([0-9a-f]+)"', read_text(path)) if path.exists() else None
        if digest and told and told[1] != digest:
            warn(f"run={folder}: {METRICS} has the scores of another {WEIGHTS}; score it anew")


# Copies for people.


def as_json(content: Any) -> str:
    """Return JSON as people read it."""
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def save_json(path: Path, content: Any) -> None:
    """Write JSON, whole or not at all."""
    write_text(path, as_json(content))


def save_config(folder: Path, config: TrainConfig) -> None:
    """Write config.yaml."""
    content = kept_settings(config)
    write_text(folder / CONFIG, yaml.safe_dump(content, allow_unicode=True, sort_keys=False))


def save_copies(folder: Path, setup: Setup) -> None:
    """Write config.yaml, tokenizer.json and labels.json."""
    save_config(folder, setup.config)
    # The tokenizer's own `save` hides that the disk is full.
    write_text(folder / "tokenizer.json", write_tokenizer_json(setup.tokenizer, pretty=True))
    save_json(folder / "labels.json", setup.labels)
