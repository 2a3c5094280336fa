"""Checkpoints of transformers: what is read, what is drawn, and what is rejected by name."""

import json
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from bert_family import FAMILIES, PLACES, peer, write_checkpoint
from headscope.ground.errors import ConfigError
from headscope.model.checkpoint import find_checkpoint, read_checkpoint
from headscope.model.pretrained import PretrainedClassifier, build_pretrained
from headscope.settings.config import ModelConfig

TEXTS = ["the film was lovely and quite warm", "a dark day", "東京の映画 A Café"]
CONFIG = ModelConfig(path="some/id", evidence=False, dropout=0.3, attention_dropout=0.2)


def built(folder: Path, classes: int = 3) -> PretrainedClassifier:
    labels = [f"class {number}" for number in range(classes)]
    return build_pretrained(
        read_checkpoint("model.path", str(folder)).encoder, CONFIG, labels, folder
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_each_family_is_read_with_a_fresh_head_and_our_dropout(family: str, tmp_path: Path) -> None:
    write_checkpoint(tmp_path, family, TEXTS * 5)
    checkpoint = read_checkpoint("model.path", str(tmp_path))
    assert checkpoint.max_tokens == PLACES
    model = built(tmp_path)
    assert model.training
    shares = {part.p for part in model.modules() if isinstance(part, torch.nn.Dropout)}
    assert shares <= {0.3, 0.2}
    assert model.model.config.id2label[2] == "class 2"
    base: Any = model.model.base_model
    before = transformers.AutoModel.from_pretrained(tmp_path)
    assert torch.equal(base.get_input_embeddings().weight, before.get_input_embeddings().weight)
    model.eval()
    assert model.readout_position == 0
    ids = checkpoint.tokenizer.encode(TEXTS[1]).ids
    alone = model(torch.tensor([ids]))
    padded = torch.tensor([[*ids, 0, 0], [*ids, *ids[1:3]]])  # as a batch of ours has it
    padding = torch.tensor([[False] * len(ids) + [True] * 2, [False] * (len(ids) + 2)])
    torch.testing.assert_close(model(padded, padding)[:1], alone, rtol=0, atol=1e-5)
    _assert_frozen_layers_have_no_dropout_and_can_be_left_out(model, padded, padding)


def _assert_frozen_layers_have_no_dropout_and_can_be_left_out(
    model: PretrainedClassifier, *inputs: torch.Tensor
) -> None:
    assert not model.can_skip(), "nothing is frozen"
    model.freeze(2)
    model.train()
    assert model.can_skip()
    states = model.frozen_states(*inputs)
    assert torch.equal(states, model.frozen_states(*inputs))
    assert not states.requires_grad, "the embeddings and all between are frozen"
    assert not torch.equal(model(*inputs), model(*inputs)), "the other layers have dropout"
    model.eval()
    first = model._stack()[1][0].register_forward_pre_hook(lambda *_: pytest.fail("was run"))
    found = model(*inputs, features=states)
    first.remove()
    torch.testing.assert_close(found, model(*inputs), rtol=0, atol=1e-5)


def test_a_head_for_as_many_classes_is_kept_and_another_is_drawn(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, "bert", TEXTS * 5, "ForSequenceClassification")
    kept = load_file(tmp_path / "model.safetensors")["classifier.weight"]
    assert torch.equal(built(tmp_path, 2).model.classifier.weight, kept)
    assert built(tmp_path, 3).model.classifier.weight.shape == (3, kept.shape[1])


def test_half_precision_and_weights_in_several_files_are_read(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, "bert", TEXTS * 5)
    whole = built(tmp_path).state_dict()
    model = transformers.AutoModel.from_pretrained(tmp_path).half()
    (tmp_path / "model.safetensors").unlink()
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    found = built(tmp_path).state_dict()
    for name, weight in found.items():
        assert weight.dtype == torch.float32
        if "classifier" not in name:
            assert torch.equal(weight, whole[name].half().float())


def _changed(**values: Any) -> Any:
    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    return change


def _pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def _lacks_a_layer(folder: Path) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    kept = {name: tensor for name, tensor in tensors.items() if "layer.2." not in name}
    save_file(kept, path, {"format": "pt"})


def _without(name: str) -> Any:
    return lambda folder: (folder / name).unlink()


REMOTE = {"AutoModelForSequenceClassification": "code.Model", "AutoConfig": "code.Config"}
REJECTED: dict[str, tuple[Any, str]] = {
    "pickles": (_pickled, r"expected model\.safetensors, found none; pickled weights are not read"),
    "remote code": (
        _changed(model_type="its own", auto_map=REMOTE),
        "model_type: .* got 'its own'; no other code is run",
    ),
    "no config": (_without("config.json"), r"No such file.*config\.json"),
    "no JSON": (lambda folder: (folder / "config.json").write_text("{"), "Expecting property name"),
    "a layer less": (_lacks_a_layer, r"weights do not fit its config\.json: bert\.encoder\.layer"),
    "weights elsewhere": (
        lambda folder: (folder / "model.safetensors.index.json").write_text(
            '{"weight_map": {"a": "../../outside/w.safetensors"}}'
        ),
        r"model\.safetensors\.index\.json: expected files in its folder, got \.\./\.\./outside",
    ),
    "more weights than its file": (
        _changed(vocab_size=50_000_000),
        r"config\.json: expected weights as in its files, got \d+ MiB",
    ),
    "a million layers": (_changed(num_hidden_layers=10**6), "num_hidden_layers: expected at most"),
    "another width": (_changed(intermediate_size=38), r"weights do not fit its config\.json"),
    "a smaller vocabulary": (_changed(vocab_size=20), "ids up to .*, its embedding 20 rows"),
    "broken weights": (
        lambda folder: (folder / "model.safetensors").write_text("no such format"),
        r"model\.path=.*: ",
    ),
}


@pytest.mark.parametrize("case", REJECTED)
def test_what_cannot_be_read_is_rejected_in_one_line(case: str, tmp_path: Path) -> None:
    spoil, words = REJECTED[case]
    write_checkpoint(tmp_path, "bert", TEXTS * 5)
    spoil(tmp_path)
    with pytest.raises(ConfigError, match=words) as refusal:
        built(tmp_path)
    assert "\n" not in str(refusal.value)


def test_of_an_adapter_of_peft_the_way_to_a_whole_model_is_said(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    save_file({"lora_A": torch.ones(1)}, tmp_path / "adapter_model.safetensors")
    with pytest.raises(ConfigError, match=r"adapter of PEFT; merge it .*merge_and_unload\(\)"):
        find_checkpoint("model.path", str(tmp_path))


def test_code_that_a_checkpoint_names_beside_a_known_model_is_not_run(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, "bert", TEXTS * 5)
    (tmp_path / "code.py").write_text("raise SystemExit('this code was run')")
    _changed(auto_map=REMOTE, attn_implementation="some-org/kernels")(tmp_path)
    model = built(tmp_path).model
    assert type(model) is transformers.BertForSequenceClassification
    assert model.config._attn_implementation == "sdpa"


def test_a_revision_of_a_folder_and_a_missing_library_raise_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer("bert").save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"model\.revision: expected null for the folder"):
        find_checkpoint("model.path", str(tmp_path), "v1")
    with pytest.raises(ConfigError, match=r"model\.path: expected a Hub id or a folder .*/none"):
        find_checkpoint("model.path", str(tmp_path / "none"))
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(
        ConfigError, match=r"needs transformers, .*: pip install -e '\.\[pretrained"
    ):
        read_checkpoint("model.path", str(tmp_path))


def test_of_a_hub_id_no_pickle_is_asked_for_and_its_error_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(tmp_path, "bert", TEXTS * 5)
    asked: dict[str, Any] = {}

    def download(path: str, **options: Any) -> str:
        asked.update(options, path=path)
        if path == "some/none":
            raise OSError("Repository Not Found\nfor url: ...")
        return str(tmp_path)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert read_checkpoint("model.path", "some/bert", "v1").folder == tmp_path
    assert (asked["path"], asked["revision"]) == ("some/bert", "v1")
    names = ["model.safetensors", "pytorch_model.bin", "code.py", "tokenizer.json"]
    patterns = asked["allow_patterns"]
    found = [name for name in names if any(fnmatch(name, pattern) for pattern in patterns)]
    assert found == ["model.safetensors", "tokenizer.json"]
    words = r"^model\.path=some/none: no such folder, .*from the Hub: Repository Not Found$"
    with pytest.raises(ConfigError, match=words):
        read_checkpoint("model.path", "some/none")
