"""What inspect refuses before anything is computed or written."""

from pathlib import Path

import pytest

from headscope.commands.config import InspectConfig
from headscope.commands.inspect import inspect
from headscope.data.config import DataConfig, TokenizerConfig
from headscope.data.tokenizer import train_tokenizer
from headscope.errors import ConfigError
from headscope.model.config import ModelConfig
from headscope.training.config import TrainConfig
from headscope.training.folder import build_model, save_config, save_vocabulary, save_weights

LABELS = ["Commercial", "Copyleft Limited", "Permissive"]


def untrained(folder: Path, labels: list[str] = LABELS, **data: bool) -> Path:
    model = ModelConfig(d_model=16, num_heads=2, num_layers=1, feedforward_size=32)
    config = TrainConfig(data=DataConfig(max_length=16, **data), model=model)  # type: ignore[arg-type]
    tokenizer = train_tokenizer(iter(["a licence of a kind"]), TokenizerConfig(vocab_size=300))
    save_config(folder, config)
    save_vocabulary(folder, tokenizer, labels)
    save_weights(folder, build_model(config, tokenizer, labels))
    return folder


def refusal(folder: Path, label: str) -> str:
    with pytest.raises(ConfigError) as caught:
        inspect(InspectConfig(run=str(folder), text="MIT", label=label, accelerator="cpu"))
    assert not (folder / "inspect").exists()
    return str(caught.value)


def test_a_label_that_the_run_does_not_know_is_refused_with_the_classes(tmp_path: Path) -> None:
    folder = untrained(tmp_path)
    assert refusal(folder, "Permisive") == (
        f"label: {folder} knows no class 'Permisive'; takes one of these: Commercial, Copyleft Limited, Permissive"
    )


def test_each_of_several_labels_must_be_known(tmp_path: Path) -> None:
    folder = untrained(tmp_path, multi_label=True)
    assert refusal(folder, "Permissive; Comercial;Copyleft") == (
        f"label: {folder} knows no class 'Comercial', 'Copyleft'; takes any of these, with ';' between them: "
        "Commercial, Copyleft Limited, Permissive"
    )


def test_of_many_classes_the_first_are_named(tmp_path: Path) -> None:
    folder = untrained(tmp_path, [f"class {number}" for number in range(21)])
    assert refusal(folder, "none").endswith("class 18, class 19, ...")
