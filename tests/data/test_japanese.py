"""`tokenizer=japanese`: words of MeCab, read alike after saving, in a run that predicts and explains; what cannot read them says so."""

import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headscope.cli.pages import page
from headscope.data.tokenizer import shown_tokens, train_tokenizer, trained_tokenizer, word_spans
from headscope.export.graph import export
from headscope.ground.errors import ConfigError, RunError
from headscope.runs.run import load_run
from headscope.settings import config as settings
from headscope.settings.checks import check, override
from headscope.settings.commands import ExportConfig, PageConfig
from headscope.settings.config import TokenizerConfig
from headscope.training.train import train
from training_runs import configured

pytest.importorskip("fugashi")
pytest.importorskip("unidic_lite")

JAPANESE = TokenizerConfig(kind="japanese", vocab_size=400, min_frequency=1)
TEXTS = [
    "この映画はとても面白かった。",
    "ひどい映画で、途中で寝てしまった。",
    "ﾃﾞﾓを Emacs で起動する🎬",
] * 5


def test_tokens_are_words_and_full_width_is_half_width(tmp_path: Path) -> None:
    tokenizer = trained_tokenizer(TEXTS, JAPANESE, 32, tmp_path)
    again = trained_tokenizer(TEXTS, JAPANESE, 32, tmp_path)
    text = "ＥＭＡＣＳで　デモを起動する🎬 don't 3.14"
    encoding = tokenizer.encode(text)
    assert again.encode(text).ids == encoding.ids
    assert again.truncation == tokenizer.truncation
    shown = shown_tokens(tokenizer, encoding, (text,))
    assert shown[1:8] == ["ＥＭＡＣＳ", "で", "デモ", "を", "起動", "する", "🎬"]
    narrow = unicodedata.normalize("NFKC", text)
    assert tokenizer.encode(narrow).ids == encoding.ids
    assert encoding.tokens[1] == "emacs"
    named = [word.name for word in word_spans(encoding, (text,))]
    assert "".join(named) == text.replace(" ", "").replace("\u3000", "")
    assert tokenizer.encode("").ids == [2, 3]
    long = tokenizer.encode(TEXTS[0] * 20)
    assert (len(long.ids), long.ids[-1]) == (32, 3)


def test_the_letters_of_a_special_token_are_letters_and_what_is_rare_is_unknown() -> None:
    tokenizer = train_tokenizer(iter(TEXTS), JAPANESE)
    first, *inner, last = tokenizer.encode("[SEP]映画[MASK]").ids
    assert (first, last) == (2, 3)
    assert not {0, 2, 3, 4} & set(inner)
    assert tokenizer.encode("鬱").ids == [2, 1, 3]


def test_a_run_of_it_predicts_and_explains_and_what_cannot_read_it_says_so(tmp_path: Path) -> None:
    rows = [
        {"text": f"{a}{b}は{c}", "label": label}
        for label, words in {"good": ["面白い", "美しい"], "bad": ["退屈だ", "ひどい"]}.items()
        for a in ["この", "あの", "今日の", "昨日の"]
        for b in ["映画", "音楽", "物語", "結末"]
        for c in words
    ]
    options = {
        "trainer.max_steps": 2,
        "inspection.enabled": False,
        "inspection.ablation_texts": 0,
        "baseline": False,
    }
    config = replace(configured(tmp_path, rows, max_epochs=1), tokenizer=JAPANESE)
    report = train(override(config, options))
    assert report is not None
    run = load_run(report.folder)
    text = "昨日の物語は退屈だ"
    assert run.predict([text])[0].label == "bad"
    explanation = run.explain(text)
    assert explanation.tokens == ["[CLS]", "昨日", "の", "物語", "は", "退屈", "だ", "[SEP]"]
    total = explanation.words.sum() + explanation.biases
    assert total == pytest.approx(explanation.log_odds, abs=1e-4)
    with pytest.raises(RunError, match="got one that calls MeCab"):
        export(ExportConfig(run=str(report.folder), output=str(tmp_path / "onnx")))
    with pytest.raises(RunError, match=r"tokenizer\.kind: expected words, got japanese"):
        page(PageConfig(run=str(report.folder), output=str(tmp_path / "page.html")))


def test_without_mecab_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    find: Any = settings.find_spec
    missing = lambda name: None if name == "fugashi" else find(name)  # noqa: E731
    monkeypatch.setattr(settings, "find_spec", missing)
    with pytest.raises(ConfigError, match=r"tokenizer\.kind: .*pip install -e '\.\[japanese\]'"):
        check(override(settings.TrainConfig(), {"tokenizer.kind": "japanese"}))
