"""What is exported as ONNX gives torch's logits, and its front end headscope's predictions."""

import asyncio
import gzip
import importlib
import json
import re
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bert_family import write_checkpoint
from headscope.cli import predict as predict_module
from headscope.cli.predict import Texts, predict
from headscope.data import ngrams, units
from headscope.data.batching import TextBatches, encode_texts
from headscope.export import graph
from headscope.export.graph import export
from headscope.ground import plain_rows
from headscope.ground.errors import ConfigError, DataError, RunError
from headscope.heads.linear import is_linear_here
from headscope.runs import answering
from headscope.runs.folder import model_name, save_model
from headscope.runs.run import Run, load_run
from headscope.runs.setup import Chosen, Setup
from headscope.settings.checks import check, validate
from headscope.settings.commands import ExportConfig, PredictConfig
from headscope.settings.config import DataConfig, ModelConfig, TrainConfig
from headscope.training.prepare import resolved
from untrained import untrained

beside = {"answering": answering, "ngrams": ngrams, "plain_rows": plain_rows, "units": units}
sys.modules |= beside  # classify.py in an export
classify = importlib.import_module("headscope.export.classify")
Classifier = classify.Classifier
LABELS = ["bad", "so-so", "Größe 東"]
LENGTH = 24
TRAINING = [
    "the film was lovely and quite warm, a book about rain",
    "the film was dark; nobody knows why it was cold in the warmest book",
    "無償で提供される 無償で提供する コーヒー 東京の本 無償の本 本の東京",
    "無償で提供された コーヒー 東京の雨 ÉCOLE école ΟΔΟΣ",
] * 3
HOSTILE = [
    "",
    "ΟΔΟΣ",
    " \u200b ",
    "a",
    "the film was lovely and quite warm " * 40,
    "無償で提供される コーヒー 東京の本",
    "[SEP] the [CLS] film [PAD] <script>alert(1)</script> \x07 \x9b \u2028",
    "ＴＨＥ ﬁlm ǅ İSTANBUL ẞ école E\u0301COLE ΣΊΣΥΦΟΣ 👩‍👩‍👧 \U0001f3ac",
    "x" * 150_000,
    "the film\tof rain\r",
]
SINGLE: Texts = [(text,) for text in HOSTILE]
PAIRS: Texts = [*zip(HOSTILE, HOSTILE[::-1], strict=True)]
SMALL: dict[str, Any] = {"d_model": 24, "num_heads": 4, "num_layers": 2, "feedforward_size": 20}


@pytest.fixture(autouse=True)
def _unchecked(unchecked_shapes: None) -> None:
    """Sizes that are symbols while the network is traced have no value to check."""


def write_run(
    folder: Path,
    multi_label: bool = False,
    pairs: bool = False,
    kind: str = "words",
    **options: Any,
) -> Path:
    pair = "other" if pairs else None
    data = DataConfig(max_length=LENGTH, multi_label=multi_label, text_pair_column=pair)
    return untrained(folder, TRAINING, data, LABELS, kind, **(SMALL | options))


def write_pretrained(folder: Path, family: str, pairs: bool = False, frozen: bool = False) -> Path:
    path = write_checkpoint(folder / "checkpoint", family, TRAINING)
    data = DataConfig(max_length=17, text_pair_column="other" if pairs else None)
    options: dict[str, Any] = {"path": str(path)}
    if frozen:
        options = SMALL | {"features": str(path), "features_layer": [1, 3], "members": 2}
    config = TrainConfig(data=data, model=ModelConfig(**options, evidence=False))
    config, checkpoint = resolved(config)
    assert checkpoint is not None
    setup = Setup(config, LABELS, checkpoint.tokenizer, {}, checkpoint.encoder)
    model = setup.build()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    save_model(folder / "run", setup, model, Chosen(temperature=1.7))
    return folder / "run"


def exported(run: Path, **options: Any) -> Path:
    return export(ExportConfig(str(run), str(run.parent / "exported"), **options))


def batch_of(run: Run, texts: Texts) -> Any:
    batches = TextBatches(encode_texts(run.tokenizer, texts, run.evidence))
    return batches[list(range(len(texts)))]


def outputs_of(session: Any, inputs: Any, names: list[str]) -> list[Any]:
    """Return what the model of an export gives for a batch of headscope's."""
    token_ids, padding, segments, *evidence = inputs
    tensors = {"input_ids": token_ids, "attention_mask": torch.ones_like(token_ids)}
    if padding is not None:
        tensors["attention_mask"] = (~padding).long()
    if segments is not None:
        tensors["token_type_ids"] = segments
    if evidence:
        tensors |= {"ngram_ids": evidence[0].ids, "ngram_places": evidence[0].places}
    feeds = {name: tensor.numpy() for name, tensor in tensors.items()}
    outputs: list[Any] = session.run(names, feeds)
    return outputs


CASES: dict[str, dict[str, Any]] = {
    "default": {},
    "pairs": {"pairs": True},
    "tokenizer bpe": {"kind": "bpe"},
    "learned, mean, several labels": {"positions": "learned", "pooling": "mean", "multi_label": True},
    "sinusoidal, max, window, causal, grouped-query, no evidence": {
        "positions": "sinusoidal", "pooling": "max", "window": 3, "causal": True, "num_kv_heads": 2,
        "evidence": False,
    },
    "shared projection, additive": {"attention": "shared_projection", "pooling": "additive"},
}  # fmt: skip
PRETRAINED = (
    "bert, pairs",
    "electra, pairs",
    "distilbert",
    "roberta, pairs",
    "xlm-roberta",
    "camembert",
    "modernbert, pairs",
    "bert, frozen below two networks",
    "modernbert, frozen below two networks",
)


def write_case(folder: Path, case: str) -> Path:
    if case in CASES:
        return write_run(folder / "run", **CASES[case])
    return write_pretrained(folder, case.split(",")[0], "pairs" in case, "frozen" in case)


def groups_of(run: Run, texts: Texts) -> list[Texts]:
    """Return the batches that are compared: shortest, longest and empty text alone, some, all."""
    lengths = [len(run.tokenizer.encode(*parts).ids) for parts in texts]
    shortest = lengths.index(min(lengths))
    longest = lengths.index(max(lengths))
    assert max(lengths) == run.config.data.max_length  # truncated
    if len(texts[0]) == 1:
        assert lengths[shortest] == 2
    return [[texts[shortest]], [texts[longest]], [tuple("" for _ in texts[0])], texts[2:5], texts]


def largest(found: Any, expected: Any) -> float:
    return float(np.abs(np.asarray(found) - np.asarray(expected)).max(initial=0.0))


def show(case: str, what: str, difference: float) -> None:
    """Print a figure, the largest of which docs/deploy.md has: pytest -s shows it."""
    print(f"{case} | {what} | {difference:.1e}")


@pytest.mark.slow
@pytest.mark.parametrize("case", [*CASES, *PRETRAINED])
def test_logits_and_predictions_are_those_of_torch(case: str, tmp_path: Path) -> None:
    is_pair = "pairs" in case
    folder = write_case(tmp_path, case)
    texts = PAIRS if is_pair else SINGLE
    run = load_run(folder)
    classifier = Classifier(exported(folder, reasons=is_linear_here(run.model)))
    of_logits = 0.0
    of_shares = 0.0
    of_words = 0.0
    for some in groups_of(run, texts):
        inputs = batch_of(run, some).inputs
        logits, shares = outputs_of(classifier.session, inputs, ["logits", "probabilities"])
        with torch.no_grad():
            expected = run.model(*inputs)
        of_logits = max(of_logits, largest(logits, expected))
        likewise = run.objective.probabilities(expected.double() / run.temperature)
        of_shares = max(of_shares, largest(shares, likewise))
        if classifier.words is not None:
            (words,) = outputs_of(classifier.words, inputs, ["words"])
            for parts, sums in zip(some, words, strict=True):
                expected_words = run.explain(parts if is_pair else parts[0]).words
                of_words = max(of_words, largest(sums[: len(expected_words)], expected_words))
                of_words = max(of_words, largest(sums[len(expected_words) :], 0.0))
    show(case, "logits", of_logits)
    show(case, "words", of_words)
    show(case, "probabilities", of_shares)
    assert max(of_logits, of_shares, of_words) < 1e-5
    assert expected.std(dim=0).max() > 0.01
    given = [parts if is_pair else parts[0] for parts in texts]
    rows = classifier.predict(given)
    for row, prediction in zip(rows, run.predict(given), strict=True):
        labels = row["prediction"]
        if not run.config.data.multi_label:  # by default it abstains on unfamiliar texts alone
            assert row["abstained"] == ("unfamiliar" if prediction.is_unfamiliar else "")
            labels = [labels] if labels else []
        assert labels == ([] if row.get("abstained") else prediction.labels)
        shares = [row[f"probability_{label}"] for label in LABELS]
        assert shares == pytest.approx([*prediction.probabilities.values()], abs=3e-6)


@pytest.mark.slow
def test_the_script_labels_lines_and_objects_and_names_mistakes(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    output = exported(run)

    def script(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, output / "classify.py", *arguments]
        return subprocess.run(command, input=stdin, capture_output=True)

    lines = [text for text in HOSTILE if "\r" not in text and "\u2028" not in text]
    done = script(stdin="".join(f"{line}\n" for line in lines).encode())
    assert done.stderr == b""
    rows = [json.loads(row) for row in done.stdout.decode().split("\n") if row]
    assert [row["text"] for row in rows] == lines
    mistakes = {
        "No such file or directory: 'absent.txt'": script("absent.txt"),
        "unrecognized arguments: b": script("a", "b"),
        "can't decode": script(stdin=b"\xff\xfd\n"),
    }
    for name, content, expected in (
        ("a.jsonl", '{"other": "x"}\n', "row 0: expected text, got ['other']"),
        (
            "a.csv",
            "text,label\nwarm,good\na,b,c\n",
            "row 1: has more cells than the first line, which has 2",
        ),
        ("b.csv", "text,\x1b[2J,\x1b[2J\n", r"have the same name, of text, \u001b[2J, "),
        ("b.jsonl", '{"text": "a", "text": "b"}', "row 0: an object has a key twice, of text"),
        ("a.xlsx", "PK", "a.xlsx: expected a name that ends in .csv, .tsv, .json, .jsonl, "),
    ):
        (tmp_path / name).write_text(content)
        mistakes[expected] = script(str(tmp_path / name))
    table = 'id,text,label,prediction\n7,"warm, and\nlovely",good,x\n8,,bad,y\n'
    (tmp_path / "october.csv").write_text(table)
    ours = [json.loads(row) for row in script(str(tmp_path / "october.csv")).stdout.splitlines()]
    files = (str(tmp_path / "october.csv"), str(tmp_path / "table.jsonl"))
    predict(PredictConfig(str(run), *files, min_confidence=0.0))
    theirs = [json.loads(row) for row in (tmp_path / "table.jsonl").read_text().splitlines()]
    (tmp_path / "nan.jsonl").write_text('{"text": "warm", "n": NaN, "m": -Infinity}')
    row = script(str(tmp_path / "nan.jsonl")).stdout
    assert row.startswith(b'{"text": "warm", "n": null, "m": null, ')  # as of predict
    named = {"model": model_name(run)}
    assert ours == [pytest.approx(row | named, abs=3e-6) for row in theirs]
    classifier = Classifier(output)
    assert classifier.predict("warm") == classifier.predict(["warm"])
    for texts, expected in (
        (["a", None], r"texts\[1\]: expected text, got \(None,\)"),
        (["\ud800"], "surrogates"),
    ):
        with pytest.raises(ValueError, match=expected):
            classifier.predict(texts)
    (output / "model.onnx").write_bytes(b"half")
    mistakes["error: "] = script()
    (output / "model.onnx").unlink()
    mistakes["No such file or directory: "] = script()
    for expected, done in mistakes.items():
        assert done.returncode in (1, 2)
        assert expected in done.stderr.decode()
        assert re.match(b"(classify.py: )?error: ", done.stderr)
        assert done.stderr.count(b"\n") == 1
        assert b"\x1b" not in done.stderr  # of the names of columns, which a terminal obeys


def test_an_unfinished_run_and_a_missing_package_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.yaml").touch()
    with pytest.raises(RunError, match="so it did not finish"):
        exported(tmp_path)
    monkeypatch.setattr("headscope.settings.commands.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="onnx is not installed; from the clone: pip install"):
        check(ExportConfig(run=str(tmp_path), output=str(tmp_path / "out")))


async def status_of_half_a_body(app: Any) -> int:
    """Return what a server answers to a request whose body does not end."""
    parts = [{"type": "http.request", "body": b"{", "more_body": True}]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return parts.pop() if parts else await asyncio.Future()

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/classify", "query_string": b""}
    scope["headers"] = [(b"content-type", b"application/json"), (b"content-length", b"9")]
    await asyncio.wait_for(app(scope, receive, send), 5)
    return sent[0]["status"]


@pytest.mark.slow
def test_the_server_of_the_docs_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fastapi.testclient import TestClient

    page = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(import os.*?)```", page, re.DOTALL)
    run = write_run(tmp_path / "run")
    predicted = load_run(run).predict(HOSTILE[:7])
    shares = sorted(max(each.probabilities.values()) for each in predicted)
    least = (shares[2] + shares[3]) / 2
    output = exported(run, min_confidence=least)
    (output / "serve.py").write_text(example, encoding="utf-8")
    monkeypatch.syspath_prepend(output)
    with TestClient(importlib.import_module("serve").app) as client:
        assert client.get("/labels").json() == LABELS
        answers = client.post("/classify", json={"texts": HOSTILE[:7]}).json()
        for answer, prediction in zip(answers, predicted, strict=True):
            share = max(prediction.probabilities.values())
            why = "unfamiliar" if prediction.is_unfamiliar else ""
            why = why or ("confidence" if share < least else "")
            assert answer["label"] == (None if why else prediction.label)
            assert (answer["abstained"], answer["why"]) == (bool(why), why)
            assert answer["model"] == model_name(run)
            assert answer["probability"] == pytest.approx(share, abs=3e-6)
            assert answer["probabilities"] == pytest.approx(prediction.probabilities, abs=3e-6)
        assert {answer["why"] for answer in answers} == {"", "confidence"}
        headers = {"content-type": "application/json"}
        rejected = ('{"texts": []}', '{"texts": [1]}', "{", '{"texts": [NaN]}', '{"texts": NaN}')
        long = json.dumps({"texts": ["x" * 60_000] * 2})
        for content in (*rejected, r'{"texts": ["\ud800"]}', '{"texts": ["x", 7654321]}', long):
            found = client.post("/classify", content=content, headers=headers)
            assert found.status_code == 422
            assert "7654321" not in found.text
            assert len(found.text) < 300
        for content in (" " * 2**20 + "{}", iter([b"{}"])):  # the second in chunks
            assert client.post("/classify", content=content, headers=headers).status_code == 413
        both = headers | {"content-length": "10", "transfer-encoding": "chunked"}
        assert client.post("/classify", content=iter([b"{}"]), headers=both).status_code == 413
        serve = importlib.import_module("serve")
        serve.MOST_SECONDS = 0.1
        with ThreadPoolExecutor(1) as thread:  # where no browser's loop runs
            assert thread.submit(lambda: asyncio.run(status_of_half_a_body(serve.app))).result() == 408  # fmt: skip
        old = serve.classifier
        (output / "model.onnx").rename(tmp_path / "away")  # of a model that cannot be loaded
        with pytest.raises(FileNotFoundError):
            serve.load_again()
        assert client.post("/classify", json={"texts": ["a"]}).status_code == 200
        (tmp_path / "away").rename(output / "model.onnx")
        serve.load_again()
        assert serve.classifier is not old


@pytest.mark.slow
def test_it_abstains_as_predict_does_by_each_key(tmp_path: Path) -> None:
    """Predict and classify.py share the rule; what they are given of a run must be the same."""
    run = write_run(tmp_path / "run")
    loaded = load_run(run)
    texts = [text for text in [*TRAINING[:4], *HOSTILE] if "\r" not in text]
    with torch.no_grad():
        logits = loaded.model(*batch_of(loaded, [(text,) for text in texts]).inputs)
    labels = torch.arange(len(texts)) % 3
    save_model(run, loaded.setup, loaded.model, Chosen(most_unknown=0.6), (logits, labels))
    (tmp_path / "in.jsonl").write_text("".join(f"{json.dumps({'text': text})}\n" for text in texts))
    whys = set()
    for key, value in {"min_confidence": 0.4, "target_accuracy": 0.4}.items():
        output = export(ExportConfig(str(run), str(tmp_path / key), **{key: value}))
        files = (str(tmp_path / "in.jsonl"), str(tmp_path / f"{key}.jsonl"))
        predict(PredictConfig(str(run), *files, **{key: value}))
        theirs = [json.loads(row) for row in (tmp_path / f"{key}.jsonl").read_text().splitlines()]
        ours = Classifier(output).predict(texts)
        found = [(row["prediction"], row["abstained"]) for row in ours]
        assert found == [(row["prediction"], row["abstained"]) for row in theirs]
        whys |= {row["abstained"] for row in ours}
    assert whys == {"", "confidence", "unfamiliar"}


PLACES = [
    "この映画はとても良い映画だった。コーヒーもカードも東京で無償",
    "यह फ़िल्म बहुत अच्छी थी, हिन्दी में",
    "หนังเรื่องนี้ดีมาก ไทย",
    "我被重复扣款两次，请退款",
    "👨‍👩‍👧 🇯🇵 👍🏽! 1️⃣ 3.14",
    "don't pay 3.14; the  film was\u200b lovely",
    "the film was lovely and quite warm " * 9,  # the rest of which counts
]


@pytest.mark.parametrize("kind", ["words", pytest.param("bpe", marks=pytest.mark.slow)])
def test_reasons_are_those_of_predict(kind: str, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", kind=kind)
    texts = tmp_path / "a.jsonl"
    texts.write_text("\n".join(json.dumps({"text": text}) for text in PLACES), encoding="utf-8")
    output = str(tmp_path / "b.jsonl")
    predict(PredictConfig(str(run), str(texts), output, reasons=True, accelerator="cpu"))
    theirs = Path(output).read_text("utf-8").splitlines()
    ours = Classifier(exported(run, reasons=True)).predict(PLACES)
    assert [row["reasons"] for row in ours] == [json.loads(line)["reasons"] for line in theirs]
    words = {part.rsplit(" ", 1)[0] for row in ours for part in row["reasons"].split("; ")}
    assert "the rest of the text" in words
    assert len(words & {"映画だった", "अच्छी", "हिन्दी", "👨<U+200D>👩<U+200D>👧", "don't"}) > 1


def test_a_long_word_is_not_kept(tmp_path: Path) -> None:
    """Each of those that are kept might have a megabyte."""
    classifier = Classifier(exported(write_run(tmp_path / "run")))
    classify.kept_word.cache_clear()
    classifier.predict(["x" * 65, "y" * 64])
    assert classify.kept_word.cache_info().currsize == 2  # y, and "" of [CLS]
    assert classify.kept_word.cache_info().maxsize <= 32_768


def test_mistakes_are_one_line_and_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_run(tmp_path / "run", pooling="mean")
    for name in ("run", "run/model.safetensors"):
        with pytest.raises(ConfigError, match="output: expected a folder that does not exist"):
            validate(ExportConfig, {"run": str(run), "output": str(tmp_path / name)})

    def broken(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(graph, "write_onnx", broken)
    with pytest.raises(RunError, match=r"^output=\S+exported: cannot be written: No space left"):
        exported(run)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


WRITTEN = '"text","prediction","probability_a"\n"\'=1+1","\'@a",0.5\n'
HOSTILE_FILES: list[tuple[str, str | bytes]] = [
    ("a.csv", "text,text\na,b\n"),
    ("a.csv", "text,label,,\na,x,1,2\n"),
    ("a.csv", "text,input_prediction,prediction\na,first,second\n"),
    ("a.csv", "text\na\n\nb\n"),
    ("a.csv", "text,label\na,x\n\nb\n"),
    ("a.csv", "text,label\na,x,y\n"),
    ("a.csv", "sep=;\ntext;label\na;b\n"),
    ("a.csv", 'text,label\n"a,b\n'),
    ("a.csv", "other\na\n"),
    ("a.csv", ""),
    ("a.csv", WRITTEN),
    ("a.csv", "text\n\u65e5\u672c\n".encode("utf-16")),
    ("a.tsv", "text\tlabel\na, b\tx\n"),
    ("a.csv.gz", gzip.compress(b"text\na\n", mtime=0)),
    ("a.jsonl", '{"text": null}\n{"text": NaN}\n\n{"text": "\\ud83d"}\n'),
    ("a.jsonl", '{"text": 5}\n'),
    ("a.jsonl", '{"label": "x"}\n'),
    ("a.jsonl", "[1]\n"),
    ("a.ndjson", '{"text": "a"}\n'),
    ("a.json", '[{"text": "a"}, {"text": "b"}]'),
    ("a.txt", b"\xff\xfea\x00\n\x00"),
    ("a.txt", "\ufeffa\r\n\nb"),
    ("a.xlsx", "PK"),
]


@pytest.mark.parametrize(("name", "content"), HOSTILE_FILES)
def test_its_reader_reads_what_predict_reads(
    name: str, content: str | bytes, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    config = PredictConfig.__new__(PredictConfig)
    vars(config).update(input=str(path), format="auto", encoding="utf-8", separator=None)
    theirs: list[Any] = []
    ours: list[Any] = []
    try:
        theirs += predict_module.read_texts(config, {"text_column": "text"}, Counter())
    except DataError:
        theirs.append("fault")
    try:
        ours += classify.read(str(path), ["text"])
    except ValueError:
        ours.append("fault")
    assert repr(ours) == repr(theirs)
    assert theirs or not content


def test_a_column_called_like_ours_is_kept_by_both() -> None:
    row = {"prediction": "old", "input_prediction": "older", "text": "a"}
    found = plain_rows.renamed(row, {"prediction": "new"})
    assert found == {"input_input_prediction": "old", "input_prediction": "older", "text": "a"}
    assert classify.renamed is plain_rows.renamed
