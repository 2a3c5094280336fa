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
from headscope.foreign.pretrained import PretrainedClassifier, build_pretrained
from headscope.ground.errors import ConfigError
from headscope.model.checkpoint import find_checkpoint, read_checkpoint
from headscope.model.classifier import TextClassifier
from headscope.model.families import architecture_of
from headscope.model.opened import load_weights
from headscope.settings.config import ModelConfig

BY_TRANSFORMERS = ".*transformers computes it"
TEXTS = ["the film was lovely and quite warm", "a dark day", "東京の映画 A Café"]
CONFIG = ModelConfig(path="some/id", evidence=False, dropout=0.3, attention_dropout=0.2)


def built(folder: Path, classes: int = 3) -> PretrainedClassifier:
    """Return a model that transformers computes, after its door."""
    labels = [f"class {number}" for number in range(classes)]
    return build_pretrained(
        read_checkpoint("model.path", str(folder)).encoder, CONFIG, labels, folder
    )


def opened(folder: Path) -> TextClassifier:
    checkpoint = read_checkpoint("model.path", str(folder))
    torch.manual_seed(0)
    model = TextClassifier(architecture_of(checkpoint.encoder), 3)
    load_weights(model, checkpoint.encoder, checkpoint.folder)
    return model


@pytest.mark.filterwarnings(f"default:{BY_TRANSFORMERS}:UserWarning")
def test_a_family_that_does_not_open_is_computed_by_transformers_and_it_is_said(
    tmp_path: Path,
) -> None:
    write_checkpoint(tmp_path, "deberta", TEXTS * 5)
    said = "since it does not open: model_type: expected one of"
    with pytest.warns(UserWarning, match=said):
        checkpoint = read_checkpoint("model.path", str(tmp_path))
    with pytest.warns(UserWarning, match=said):
        model = built(tmp_path)
    assert checkpoint.max_tokens == PLACES
    with pytest.raises(ConfigError, match=r"got 'deberta-v2'; model\.path fine-tunes other"):
        read_checkpoint("model.features", str(tmp_path))
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


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "deberta"])
def test_the_tokenizer_of_a_family_that_opens_is_read_as_transformers_reads_it(
    family: str, tmp_path: Path
) -> None:
    write_checkpoint(tmp_path, family, TEXTS * 5)
    checkpoint = read_checkpoint("model.path", str(tmp_path))
    assert checkpoint.max_tokens == PLACES
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in (*TEXTS, "Ünïcödé  [SEP]", ""):
        assert (
            checkpoint.tokenizer.encode(text).ids
            == theirs(text, split_special_tokens=True)["input_ids"]
        )
    pair = TEXTS[:2]
    assert checkpoint.tokenizer.encode(*pair).ids == theirs(*pair)["input_ids"]


def test_settings_beside_a_tokenizer_count_more_than_its_file(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, "bert", TEXTS * 5)
    path = tmp_path / "tokenizer_config.json"
    settings = json.loads(path.read_text()) | {"do_lower_case": False, "model_max_length": 9}
    path.write_text(json.dumps(settings))
    checkpoint = read_checkpoint("model.path", str(tmp_path))
    assert checkpoint.max_tokens == 9
    assert checkpoint.tokenizer.normalizer.normalize_str("Ä") == "Ä"


def test_half_precision_and_weights_in_several_files_are_read(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, "bert", TEXTS * 5)
    whole = opened(tmp_path).state_dict()
    model = transformers.AutoModel.from_pretrained(tmp_path)
    for dtype in (torch.float16, torch.bfloat16):
        for path in tmp_path.glob("model*.safetensors*"):
            path.unlink()
        model.to(dtype).save_pretrained(tmp_path, max_shard_size="20KB")
        assert len([*tmp_path.glob("model*.safetensors")]) > 1
        for name, weight in opened(tmp_path).state_dict().items():
            assert weight.dtype == torch.float32
            if not name.startswith("head"):
                error = (weight - whole[name]).abs().max()
                assert error <= torch.finfo(dtype).eps * whole[name].abs().max()


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
    "a layer less": (_lacks_a_layer, r"weights do not fit its config\.json: encoder\.layer"),
    "weights elsewhere": (
        lambda folder: (folder / "model.safetensors.index.json").write_text(
            '{"weight_map": {"a": "../../outside/w.safetensors"}}'
        ),
        r"model\.safetensors\.index\.json: expected files in its folder, got \.\./\.\./outside",
    ),
    "more weights than its file": (
        _changed(vocab_size=50_000_000),
        r"weights do not fit its config\.json: embeddings\.word_embeddings\.weight",
    ),
    "a million layers": (_changed(num_hidden_layers=10**6), "num_hidden_layers: expected at most"),
    "another width": (_changed(intermediate_size=38), r"weights do not fit its config\.json"),
    "a smaller vocabulary": (_changed(vocab_size=20), r"weights do not fit its config\.json"),
    "broken weights": (
        lambda folder: (folder / "model.safetensors").write_text("no such format"),
        r"model\.path=.*: ",
    ),
}


@pytest.mark.filterwarnings(f"ignore:{BY_TRANSFORMERS}:UserWarning")
@pytest.mark.parametrize("case", REJECTED)
def test_what_cannot_be_read_is_rejected_in_one_line(case: str, tmp_path: Path) -> None:
    spoil, words = REJECTED[case]
    write_checkpoint(tmp_path, "bert", TEXTS * 5)
    spoil(tmp_path)
    with pytest.raises(ConfigError, match=words) as refusal:
        opened(tmp_path)
    assert "\n" not in str(refusal.value)


def test_of_an_adapter_of_peft_the_way_to_a_whole_model_is_said(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    save_file({"lora_A": torch.ones(1)}, tmp_path / "adapter_model.safetensors")
    with pytest.raises(ConfigError, match=r"adapter of PEFT; merge it .*merge_and_unload\(\)"):
        find_checkpoint("model.path", str(tmp_path))


@pytest.mark.filterwarnings(f"ignore:{BY_TRANSFORMERS}:UserWarning")
def test_code_that_a_checkpoint_names_beside_a_known_model_is_not_run(tmp_path: Path) -> None:
    for family in ("bert", "deberta"):
        write_checkpoint(tmp_path, family, TEXTS * 5)
        (tmp_path / "code.py").write_text("raise SystemExit('this code was run')")
        _changed(auto_map=REMOTE, attn_implementation="some-org/kernels")(tmp_path)
        if family == "bert":
            assert opened(tmp_path).encoder.blocks
        else:
            assert type(built(tmp_path).model) is transformers.DebertaV2ForSequenceClassification


@pytest.mark.filterwarnings(f"ignore:{BY_TRANSFORMERS}:UserWarning")
def test_a_revision_of_a_folder_and_a_missing_library_raise_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer("bert").save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"model\.revision: expected null for the folder"):
        find_checkpoint("model.path", str(tmp_path), "v1")
    with pytest.raises(ConfigError, match=r"model\.path: expected a Hub id or a folder .*/none"):
        find_checkpoint("model.path", str(tmp_path / "none"))
    _changed(model_type="deberta-v2")(tmp_path)
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
