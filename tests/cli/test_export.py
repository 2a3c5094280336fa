"""What is exported is loaded by `transformers`, which then gives our token ids and our logits."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers import Tokenizer
from torch import Tensor, nn

from bert_family import FAMILIES, LAYERS, PLACES, WIDTH, train_tokenizer, write_checkpoint
from headscope.cli.export import export
from headscope.cli.predict import Texts
from headscope.command_settings import ExportConfig
from headscope.config import DataConfig, ModelConfig, TrainConfig
from headscope.data.batching import TextBatches, encode_texts
from headscope.data.tokenizer import pretrained_tokenizer
from headscope.errors import ConfigError, RunError
from headscope.export import bert as bert_module
from headscope.export.bert import LINEAR, linear_pooler
from headscope.model.classifier import TextClassifier
from headscope.model.pretrained import find_checkpoint, load_weights
from headscope.prediction import split_logits
from headscope.run import load_run
from headscope.run_folder import (
    build_model,
    save_architecture,
    save_config,
    save_thresholds,
    save_vocabulary,
    save_weights,
)
from headscope.training.train import starting_point
from headscope.validation import check

LABELS = ["bad", "so-so", "Größe 東"]
WORDS = "the film was lovely and quite warm a book about rain it so they say warmest day in years nobody knows why"
LONG = "it was, so they say, the warmest day in years; nobody knows why"
SINGLE: Texts = [("the film was lovely",), (LONG,), ("why",), ("a day",), (WORDS * 3,)]
PAIRS: Texts = [("the film", "nobody knows"), ("rain", WORDS * 2), (WORDS * 2, "rain"), ("a", "b")]
ODD = ["", " \n\t", "zzz Ünï 東京 🎬", "[SEP] a [CLS] b[MASK] c [PAD]", "<s> a </s><pad> <mask>"]


def write_run(
    folder: Path, family: str, pooling: str = "pooler", pairs: bool = False, **options: Any
) -> Path:
    """Write a run folder as training does: a checkpoint of `transformers` read by us, with a head of its own."""
    checkpoint_folder = write_checkpoint(folder / "checkpoint", family, [WORDS] * 3, **options)
    model_config = ModelConfig(
        path=str(checkpoint_folder),
        pooling=pooling,
        dropout=0.25,
        attention_dropout=0.125,
        evidence=False,
    )
    data = DataConfig(max_length=17, text_pair_column="other" if pairs else None)
    config = TrainConfig(name="run", data=data, model=model_config)
    checkpoint = starting_point(config)
    assert checkpoint is not None
    tokenizer = pretrained_tokenizer(
        checkpoint.folder, config.data.max_length, checkpoint.architecture.vocab_size
    )
    model = build_model(config, tokenizer, LABELS, checkpoint.architecture)
    load_weights(model, checkpoint)
    nn.init.normal_(model.head.weight)
    save_architecture(folder / "run", checkpoint.architecture)
    return keep(folder / "run", config, tokenizer, model)


def keep(run: Path, config: TrainConfig, tokenizer: Tokenizer, model: TextClassifier) -> Path:
    save_config(run, config)
    save_vocabulary(run, tokenizer, LABELS)
    save_weights(run, model)
    return run


def exported(run: Path) -> Path:
    return export(ExportConfig(str(run), str(run.parent / "exported")))


def our_logits(run: Path, texts: Texts) -> Tensor:
    loaded = load_run(run)
    batches = TextBatches(encode_texts(loaded.tokenizer, texts))
    return split_logits(loaded.model, [batches[list(range(len(texts)))]], torch.device("cpu"))[0]


def their_inputs(folder: Path, texts: Texts) -> Any:
    columns = [list(column) for column in zip(*texts, strict=True)]
    return transformers.AutoTokenizer.from_pretrained(folder)(
        *columns, padding=True, truncation=True, return_tensors="pt"
    )


def their_model(folder: Path) -> Any:
    return transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()


@torch.no_grad()
def their_logits(folder: Path, texts: Texts) -> Tensor:
    return their_model(folder)(**their_inputs(folder, texts)).logits


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_multi_label_run_has_sigmoids_in_transformers_and_a_note_on_thresholds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path, "bert")
    config = load_run(run).config
    config.data.multi_label = True
    save_config(run, config)
    save_thresholds(run, LABELS, torch.tensor([0.2, 0.5, 0.9]))
    theirs = their_model(exported(run))
    assert theirs.config.problem_type == "multi_label_classification"
    shown = capsys.readouterr().out
    assert "transformers has no thresholds" in shown
    assert f"from_pretrained('{tmp_path / 'exported'}')" in shown
    inputs = their_inputs(run.parent / "exported", SINGLE)
    with torch.no_grad():
        found = theirs(**inputs, labels=torch.ones(len(SINGLE), len(LABELS)))
    torch.testing.assert_close(found.logits, our_logits(run, SINGLE), rtol=0, atol=1e-5)
    torch.testing.assert_close(found.loss, -found.logits.sigmoid().log().mean())


@pytest.mark.parametrize("pooling", ["pooler", "first"])
@pytest.mark.parametrize("texts", [SINGLE, PAIRS], ids=["single", "pairs"])
def test_logits_are_ours(family: str, pooling: str, texts: Texts, tmp_path: Path) -> None:
    run = write_run(tmp_path, family, pooling, pairs=texts is PAIRS)
    folder = exported(run)
    expected = our_logits(run, texts)
    inputs = their_inputs(folder, texts)
    assert inputs["attention_mask"].sum(dim=1).unique().numel() > 1  # padded
    assert ("token_type_ids" in inputs) == (family == "bert")
    assert expected.std(dim=0).max() > 0.03
    torch.testing.assert_close(their_logits(folder, texts), expected, rtol=0, atol=1e-5)
    alone = torch.cat([their_logits(folder, [text]) for text in texts])
    torch.testing.assert_close(alone, expected, rtol=0, atol=1e-5)


def test_the_model_is_a_whole_bert_with_the_runs_classes_and_dropout(
    family: str, tmp_path: Path
) -> None:
    run = write_run(tmp_path, family)
    folder = exported(run)
    model, loading = transformers.AutoModelForSequenceClassification.from_pretrained(
        folder, output_loading_info=True
    )
    assert type(model) is transformers.BertForSequenceClassification
    assert not any(loading[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    config = model.config
    assert config.id2label == dict(enumerate(LABELS))
    assert config.problem_type == "single_label_classification"
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (0.25, 0.125)
    assert model.dropout.p == 0.25
    assert (config.max_position_embeddings, config.type_vocab_size) == (PLACES, 2)
    assert config.pad_token_id == transformers.AutoTokenizer.from_pretrained(folder).pad_token_id
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}
    names = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert {path.name for path in folder.iterdir()} == names
    loss = model(**their_inputs(folder, SINGLE), labels=torch.arange(len(SINGLE)) % 3).loss
    assert loss > 0  # it can be trained on


@pytest.mark.parametrize(
    "options",
    [{"hidden_act": "gelu_new"}, {"layer_norm_eps": 0.1}, {"type_vocab_size": 1}],
    ids=str,
)
def test_activation_and_epsilon_are_kept_and_one_token_type_becomes_two(
    options: dict[str, Any], tmp_path: Path
) -> None:
    run = write_run(tmp_path, "bert", pairs=True, **options)
    found = their_logits(exported(run), PAIRS)
    torch.testing.assert_close(found, our_logits(run, PAIRS), rtol=0, atol=1e-5)


def test_token_ids_are_ours(family: str, tmp_path: Path) -> None:
    run = write_run(tmp_path, family)
    ours = load_run(run).tokenizer
    theirs = transformers.AutoTokenizer.from_pretrained(exported(run))
    texts = [*ODD, *(text for (text,) in SINGLE)]
    for text in texts:
        assert theirs(text, truncation=True)["input_ids"] == ours.encode(text).ids, text
    for one in (*ODD, WORDS * 2):
        for two in (*ODD, WORDS * 2):
            expected = ours.encode(one, two)
            # Lists, as an empty second text given alone is no second text to transformers.
            found = theirs([one], [two], truncation=True, return_token_type_ids=True)
            assert found["input_ids"] == [expected.ids], (one, two)
            assert found["token_type_ids"] == [expected.type_ids]
    assert theirs.model_max_length == 17
    assert {len(theirs(text, truncation=True)["input_ids"]) for text in texts} >= {2, 17}
    assert len(theirs(WORDS)["input_ids"]) > 17  # transformers cuts where it is asked to
    pad, mask = ("<pad>", "<mask>") if "roberta" in family else ("[PAD]", "[MASK]")
    assert (theirs.pad_token, theirs.mask_token) == (pad, mask)
    assert len(theirs) == ours.get_vocab_size()  # nothing was added


def test_a_tokenizer_without_padding_pads_with_what_ends_a_text(tmp_path: Path) -> None:
    run = write_run(tmp_path, "bert")
    content = json.loads((run / "tokenizer.json").read_text())
    vocabulary = content["model"]["vocab"]
    vocabulary["[unused]"] = vocabulary.pop("[PAD]")
    content["added_tokens"].pop(0)
    (run / "tokenizer.json").write_text(json.dumps(content))
    folder = exported(run)
    assert transformers.AutoTokenizer.from_pretrained(folder).pad_token == "[SEP]"
    torch.testing.assert_close(
        their_logits(folder, SINGLE), our_logits(run, SINGLE), rtol=0, atol=1e-5
    )


@pytest.mark.parametrize("gain", [1e-3, 1.0, 500.0])
def test_the_pooler_of_first_is_linear_to_rounding(gain: float) -> None:
    norm = nn.LayerNorm(WIDTH)
    nn.init.normal_(norm.weight, std=gain)
    nn.init.normal_(norm.bias, std=gain)
    one_hot = 1e6 * torch.eye(WIDTH)  # what a norm makes its largest outputs of
    with torch.no_grad():
        scale, pooler = linear_pooler(norm)
        outputs = torch.cat([norm(one_hot), norm(-one_hot), norm(torch.randn(100, WIDTH))])
        found = torch.tanh(pooler(outputs)) / scale
    assert LINEAR / 16 < (scale * outputs).abs().max() <= LINEAR or gain < 1
    torch.testing.assert_close(found, outputs, rtol=2.0**-22, atol=0)


def test_what_is_exported_can_be_trained_on_by_us(tmp_path: Path) -> None:
    run = write_run(tmp_path, "roberta")
    checkpoint = find_checkpoint(str(exported(run)))
    assert (checkpoint.architecture.family, checkpoint.architecture.num_layers) == ("bert", LAYERS)
    loaded = load_run(run)
    again = build_model(loaded.config, loaded.tokenizer, LABELS, checkpoint.architecture).eval()
    load_weights(again, checkpoint)
    again.head.load_state_dict(loaded.model.head.state_dict())
    ids = torch.arange(5, 16)[None]
    torch.testing.assert_close(again(ids), loaded.model(ids), rtol=0, atol=0)


def test_what_transformers_lacks_raises_an_error(tmp_path: Path) -> None:
    run = write_run(tmp_path, "bert", "mean")
    with pytest.raises(RunError, match=r"model\.pooling=pooler or first, got .*pooling=mean;"):
        exported(run)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint", "run"]
    small = ModelConfig(d_model=12, num_heads=3, num_layers=2, feedforward_size=7, evidence=False)
    config = TrainConfig(name="run", model=small)
    tokenizer = train_tokenizer("bert", [WORDS] * 3)
    run = keep(tmp_path / "new", config, tokenizer, build_model(config, tokenizer, LABELS))
    with pytest.raises(
        RunError, match=r"expected a run with model\.path.*got training from scratch"
    ):
        exported(run)


def test_an_output_must_be_new_or_empty(tmp_path: Path) -> None:
    run = write_run(tmp_path, "bert")
    (tmp_path / "empty").mkdir()
    given = {
        name: ExportConfig(str(run), str(tmp_path / name))
        for name in ("run", "run/config.yaml", "empty", "a/new")
    }
    for name in ("run", "run/config.yaml"):
        with pytest.raises(ConfigError, match="output: expected a folder that does not exist"):
            check(given[name])
    for name in ("empty", "a/new"):
        check(given[name])
        assert (export(given[name]) / "model.safetensors").is_file()
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match=r"^output=\S+: cannot be written: .*(Not a dir|exists)"):
        export(ExportConfig(str(run), str(tmp_path / "file/below")))


def test_a_failure_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_run(tmp_path, "bert")

    def full(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str]) -> None:
        path.write_bytes(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(bert_module, "save_file", full)
    with pytest.raises(RunError, match=r"^output=\S+exported: cannot be written: No space left"):
        exported(run)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint", "run"]
