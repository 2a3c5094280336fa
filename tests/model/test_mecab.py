"""The commonest BERT in Japanese, whose tokenizer in Python calls MeCab: it trains, predicts, explains."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers import Tokenizer

import headscope
from bert_family import PLACES, SIZES
from headscope.cli.inspect import inspect
from headscope.data.tokenizer import copied, tokenizer_of
from headscope.export.graph import export
from headscope.foreign.sequence_classifier import SequenceClassifier
from headscope.foreign.transformers_files import plain_tokenizer, read_tokenizer
from headscope.ground import mecab
from headscope.ground.errors import ConfigError, RunError
from headscope.ground.mecab import write_tokenizer_json
from headscope.model.checkpoint import read_checkpoint
from headscope.model.opened import as_transformers
from headscope.runs.run import load_run
from headscope.settings.checks import override
from headscope.settings.commands import ExportConfig, InspectConfig
from headscope.settings.config import ModelConfig
from headscope.training.train import train
from training_runs import configured

pytest.importorskip("fugashi")
pytest.importorskip("unidic_lite")

TEXTS = [
    "東京で見た映画は、とても良かった。",
    "ひどい ﾃﾞﾓ\u3000だった\nＢｅｒｔ　㍻",
    "",
    "  𠮷野家は cafe\u0301 🎬 unknown\tです ",
    "a" * 101 + "映画",
]
CHARACTERS = [*"東京で見た映画はとても良かっ。、ひどいだった平成デモ野家すBerta"]
PIECES = [
    "東京",
    "映画",
    "あの",
    "今日",
    "の",
    "た",
    "とても",
    "良かっ",
    "ひどい",
    "デモ",
    "平",
    "##成",
    "B",
    "##e",
    "##rt",
    "ca",
    "##f",
]


def write_model(folder: Path, labels: tuple[str, ...] = ("x", "y"), **options: Any) -> Path:
    """Write a small BERT in Japanese as tohoku-nlp/bert-base-japanese-v3 is written."""
    folder.mkdir()
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *PIECES, *CHARACTERS]
    vocabulary = [*dict.fromkeys(vocabulary)]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    settings = {
        "tokenizer_class": "BertJapaneseTokenizer",
        "do_lower_case": False,
        "word_tokenizer_type": "mecab",
        "subword_tokenizer_type": "wordpiece",
        "mecab_kwargs": {"mecab_dic": "unidic_lite"},
        "model_max_length": PLACES,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | options))
    torch.manual_seed(0)
    config = transformers.BertConfig(
        **{**SIZES, "vocab_size": len(vocabulary)}, id2label=dict(enumerate(labels))
    )
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    "options",
    [{}, {"subword_tokenizer_type": "character"}, {"do_lower_case": True}],
    ids=["words", "characters", "lowercase"],
)
def test_its_ids_are_those_of_transformers_and_places_are_of_the_text(
    options: dict[str, Any], tmp_path: Path
) -> None:
    theirs = read_tokenizer(write_model(tmp_path / "model", **options))
    ours = plain_tokenizer(theirs)
    again = tokenizer_of(write_tokenizer_json(ours))
    for text in TEXTS:
        expected = theirs(text)["input_ids"]
        encoding = ours.encode(text)
        assert encoding.ids == expected
        assert again.encode(text).ids == expected
        assert copied(again).encode(text).ids == expected
    pair = theirs(*TEXTS[:2], return_token_type_ids=True)
    encoding = ours.encode(*TEXTS[:2])
    assert encoding.ids == pair["input_ids"]
    assert encoding.type_ids == pair["token_type_ids"]
    encoding = ours.encode("\u3000東京\u3000ﾃﾞﾓ ㍻")
    pieces = ["\u3000東京\u3000ﾃﾞﾓ ㍻"[start:end] for start, end in encoding.offsets]
    expected_pieces = ["", "東京", "ﾃﾞﾓ", "㍻", "㍻", ""]
    if options.get("subword_tokenizer_type") == "character":
        expected_pieces = ["", "東", "京", "ﾃ", "ﾓ", "㍻", "㍻", ""]
    assert pieces == expected_pieces
    assert [it.ids for it in ours.encode_batch(TEXTS * 50)][-1] == theirs(TEXTS[-1])["input_ids"]


WORDS = ["とても", "東京の", "あの", "今日の"]
ROWS = [
    {"text": f"{a}{b}{('良かった', 'ひどい')[number % 2]}映画", "label": "xy"[number % 2]}
    for a in WORDS
    for b in WORDS
    for number in range(8)
]


def trained(folder: Path, model: ModelConfig) -> Any:
    config = override(
        replace(configured(folder, ROWS, max_epochs=1), model=model),
        {"trainer.max_steps": 2, "inspection.ablation_texts": 0, "baseline": False},
    )
    report = train(config)
    assert report is not None
    return report


def assert_its_words_are_the_texts(run: Any, text: str) -> None:
    explanation = run.explain(text)
    names = [word.name for word in explanation.spans]
    assert "".join(names) == text
    assert "映画" in names[-1]
    total = explanation.words.sum() + explanation.biases
    assert total == pytest.approx(explanation.log_odds, abs=1e-4)


def test_a_run_of_it_trains_predicts_and_explains_without_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_model(tmp_path / "model")
    report = trained(tmp_path, ModelConfig(path=str(folder), evidence=False))
    theirs = read_tokenizer(folder)
    shutil.rmtree(folder)
    run = load_run(report.folder)
    encoder = run.setup.encoder
    assert encoder is not None
    config = transformers.AutoConfig.for_model(**encoder)
    alone = transformers.AutoModelForSequenceClassification.from_config(config)
    alone.load_state_dict(as_transformers(run.model, encoder))  # type: ignore[arg-type]
    texts = [row["text"] for row in ROWS[:3]] + TEXTS
    options = {"truncation": True, "max_length": PLACES, "padding": True}
    with torch.no_grad():
        logits = alone.eval()(**theirs(texts, return_tensors="pt", **options)).logits
    expected = (logits / run.temperature).softmax(dim=-1)
    found = [[*prediction.probabilities.values()] for prediction in run.predict(texts)]
    torch.testing.assert_close(torch.tensor(found), expected, rtol=0, atol=1e-6)
    assert_its_words_are_the_texts(run, texts[0])
    page = inspect(InspectConfig(run=str(report.folder), text=texts[0], accelerator="cpu"))
    assert json.dumps("良かっ")[1:-1] in page.read_text(encoding="utf-8")
    written = json.loads((report.folder / "tokenizer.json").read_text(encoding="utf-8"))
    assert written["pre_tokenizer"]["type"] == "MeCab"
    with pytest.raises(RunError, match="got one that calls MeCab"):
        export(ExportConfig(run=str(report.folder), output=str(tmp_path / "onnx")))
    monkeypatch.setattr(mecab, "_tagger", mecab._tagger.__wrapped__)
    monkeypatch.setitem(sys.modules, "unidic_lite", None)
    with pytest.raises(RunError, match="pip install fugashi unidic-lite"):
        load_run(report.folder)


def test_its_states_are_features(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model")
    options = {"features": str(folder), "num_heads": 2, "num_layers": 1, "d_model": 8}
    run = load_run(trained(tmp_path, ModelConfig(**options)).folder)
    assert_its_words_are_the_texts(run, ROWS[0]["text"])


def test_it_is_shown_by_words_and_trained_by_its_abilities(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = read_tokenizer(folder)
    found = SequenceClassifier(model, tokenizer).probe(ROWS[0]["text"]).text
    assert "".join(name for name, _, _ in found.words) == ROWS[0]["text"]
    assert found.tokens[1:3] == ["とても", "とても"]
    assert found.places is not None
    assert headscope.abilities(model, tokenizer, TEXTS[0]).trained == ""
    headscope.show(model, tokenizer, TEXTS[0])
    special = SequenceClassifier(model, tokenizer).probe("東京[SEP]映画").text
    assert special.tokens == ["[CLS]", "東京", "[SEP]", "映画", "[SEP]"], "as transformers reads it"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mecab_kwargs": {"mecab_option": "-o here"}}, "mecab_option: expected none"),
        ({"mecab_kwargs": {"normalize_text": False}}, "expected normalize_text"),
        ({"word_tokenizer_type": "basic"}, "expected mecab, and wordpiece or character"),
        ({"never_split": ["東京"]}, "no never_split"),
        ({"mecab_kwargs": {"mecab_dic": "ipadic"}}, "ipadic"),
    ],
)
def test_another_way_to_cut_is_said(options: dict[str, Any], said: str, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", **options)
    with pytest.raises(ConfigError, match=said):
        read_checkpoint("model.path", str(folder))


def test_a_tokenizer_json_names_no_other_dictionary(tmp_path: Path) -> None:
    content = json.loads(
        write_tokenizer_json(plain_tokenizer(read_tokenizer(write_model(tmp_path / "model"))))
    )
    content["pre_tokenizer"]["dictionary"] = "my_package"
    with pytest.raises(ValueError, match="expected a dictionary of"):
        tokenizer_of(json.dumps(content))
    with pytest.raises(Exception, match="did not match any variant"):
        Tokenizer.from_str(json.dumps(content))
