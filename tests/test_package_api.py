"""headscope as a Python package: what `import headscope` offers, a loaded run, and recording any LightningModule."""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.loggers import TensorBoardLogger
from torch import Tensor, nn
from torch.utils.data import DataLoader

import headscope
from headscope.cli.predict import predict
from headscope.record.reader import read_index, read_step
from headscope.record.schema import Text
from headscope.settings.commands import PredictConfig
from headscope.settings.config import DataConfig
from headscope.training.callbacks import without_needless_warnings
from untrained import LABELS, untrained

pytestmark = pytest.mark.usefixtures("unchecked_shapes")
TEXTS = [
    "the cat sat",
    "a very long film about other cats, and then about the mat",
    "",
    "unknown wörds",
    "the cat sat",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return untrained(tmp_path_factory.mktemp("run"), TEXTS, DataConfig(max_length=12))


def test_every_public_name_is_there() -> None:
    """`test_imports` sees that importing headscope alone imports nothing heavy."""
    names = {name: getattr(headscope, name) for name in headscope.__all__}
    assert names.keys() <= {*dir(headscope)}
    assert names["load"].__module__ == "headscope.pages.shown_run"
    with pytest.raises(AttributeError, match="no attribute 'transform'"):
        _ = headscope.transform


@pytest.mark.parametrize("kind", ["one_class", "multi_label", "pairs"])
def test_a_loaded_run_gives_the_probabilities_that_predict_writes(
    kind: str, tmp_path: Path
) -> None:
    other = "other" if kind == "pairs" else None
    multi_label = kind == "multi_label"
    data = DataConfig(max_length=12, multi_label=multi_label, text_pair_column=other)
    folder = untrained(tmp_path, TEXTS, data)
    given = list(zip(TEXTS, reversed(TEXTS), strict=True)) if other else TEXTS
    rows = [
        dict(zip(("text", "other"), text if isinstance(text, tuple) else (text,), strict=False))
        for text in given
    ]
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    predict(PredictConfig(str(folder), str(source), str(target), accelerator="cpu"))
    written = [json.loads(line) for line in target.read_text().splitlines()]
    run = headscope.load(str(folder))
    run.model.train()  # whoever went on training it still gets predictions without dropout
    found = run.predict(given)
    # Else thresholds and order would not be seen.
    assert len({prediction.label for prediction in found}) > 1
    for prediction, row in zip(found, written, strict=True):
        shares = {label: row[f"probability_{label}"] for label in LABELS}
        assert prediction.probabilities == pytest.approx(shares, abs=1e-6)
        labels = row["prediction"] if multi_label else [row["prediction"]]
        assert prediction.labels == labels
    assert run.predict([]) == []


def test_a_run_explains_a_text(folder: Path) -> None:
    run = headscope.load(folder)
    explanation = run.explain(TEXTS[1])
    (predicted,) = run.predict([TEXTS[1]])
    assert explanation.label == predicted.label
    assert explanation.probabilities == pytest.approx(predicted.probabilities, abs=1e-6)
    shares = sorted(explanation.probabilities.values())
    log_odds = math.log(shares[-1] / shares[-2])
    assert explanation.words.sum() + explanation.biases == pytest.approx(log_odds, abs=1e-4)
    empty = run.predict([""])[0].probabilities
    of_empty = math.log(empty[explanation.label] / empty[explanation.against])
    assert explanation.empty == pytest.approx(of_empty, abs=1e-4)
    other = min(LABELS, key=lambda label: explanation.probabilities[label])
    asked = run.explain(TEXTS[1], label=other)
    assert (asked.label, asked.against) == (other, explanation.label)
    with pytest.raises(ValueError, match=r"label: expected one of .*, got 'no such class'"):
        run.explain(TEXTS[1], label="no such class")


def test_a_model_that_needs_more_than_ids_refuses_to_be_called_without(
    folder: Path, tmp_path: Path
) -> None:
    ids = torch.tensor([headscope.load(folder).tokenizer.encode(TEXTS[0]).ids])
    with pytest.raises(ValueError, match="reads n-grams"):
        headscope.load(folder).model(ids)
    pairs = untrained(tmp_path, TEXTS, DataConfig(max_length=12, text_pair_column="other"))
    with pytest.raises(ValueError, match="reads pairs: call it with"):
        headscope.load(pairs).model(ids)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("a text", r"expected a list of texts"),
        ([("a", "pair")], r"texts\[0\]: expected a text, as .* was trained on, got"),
    ],
)
def test_what_is_not_a_list_of_texts_is_refused(
    texts: object, message: str, folder: Path, unchecked_shapes: None
) -> None:
    with pytest.raises(ValueError, match=message):
        headscope.load(folder).predict(texts)  # type: ignore[arg-type]


class Foreign(LightningModule):
    """A module of somebody else's: an attention layer, a linear one, dropout that must be off while recording."""

    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.embedding, self.attention, self.head = nn.Embedding(7, 12), attention, nn.Linear(12, 2)
        self.dropout = nn.Dropout(0.5)

    def forward(self, token_ids: Tensor, padding: Tensor | None = None) -> Tensor:
        tokens = self.dropout(self.embedding(token_ids))
        attended, _ = self.attention(
            tokens, tokens, tokens, key_padding_mask=padding, need_weights=False
        )
        return self.head(attended[:, 0])  # type: ignore[no-any-return]

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        return nn.functional.cross_entropy(self(batch), batch[:, 1] % 2)

    def validation_step(self, batch: Tensor, batch_idx: int) -> None:
        self(batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def attention() -> nn.Module:
    return nn.MultiheadAttention(12, 3, batch_first=True)


SHOWN = [Text("long", ["a", "b", "c", "d"], "a b c d"), Text("short", ["e", "f"], "e f")]
TOKEN_IDS = torch.tensor([[1, 2, 3, 4], [5, 6, 0, 0]])


def fitted(module: Foreign, callback: headscope.RecordHeads, folder: Path) -> None:
    """Train for two epochs of three steps, with a validation after each."""
    loader = DataLoader(torch.randint(1, 7, (6, 4)), batch_size=2)
    trainer = Trainer(
        accelerator="cpu", max_epochs=2, callbacks=[callback], logger=TensorBoardLogger(folder, name="mine", version=""),
        enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False, log_every_n_steps=1,
    )  # fmt: skip
    with without_needless_warnings():
        trainer.fit(module, loader, loader)


def test_the_heads_of_any_lightning_module_are_recorded(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = Foreign(attention())
    inputs = (TOKEN_IDS, TOKEN_IDS == 0)
    fitted(module, headscope.RecordHeads(SHOWN, inputs, every_n_steps=2), tmp_path)
    index = read_index(tmp_path / "mine/heads")
    assert [step.step for step in index.steps] == [0, 2, 3, 4, 6]
    assert (index.layers, index.heads, index.texts) == (["attention"], [3], SHOWN)
    arrays = read_step(tmp_path / "mine/heads" / index.steps[-1].file)
    with torch.no_grad(), headscope.capture(module.eval()) as maps:
        module(*inputs)
    for row, text in enumerate(SHOWN):
        recorded = arrays[f"text_{row}/layer_0/weights"]
        length = len(text.tokens)
        np.testing.assert_allclose(recorded, maps["attention"][row, :, :length, :length], atol=3e-4)
    assert list((tmp_path / "mine").glob("events.out.tfevents.*"))


def test_recording_changes_nothing_of_a_training(tmp_path: Path) -> None:
    weights = []
    recorder = headscope.RecordHeads(SHOWN, (TOKEN_IDS, TOKEN_IDS == 0), every_n_steps=1)
    for callback in (recorder, _Nothing()):
        torch.manual_seed(0)
        module = Foreign(attention())
        fitted(module, callback, tmp_path / type(callback).__name__)
        weights.append(module.state_dict())
        assert module.training
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


class _Nothing(headscope.RecordHeads):
    def __init__(self) -> None:
        super().__init__(SHOWN, [TOKEN_IDS])

    def record(self, *args: object) -> None:
        pass


@pytest.mark.parametrize(
    ("make", "rows", "message"),
    [
        (lambda: _Mean(), 2, "Foreign: expected attention layers"),
        (attention, 1, "expected maps with a row for each of 2 texts, got {'attention': 1}"),
    ],
)
def test_what_cannot_be_recorded_is_refused(
    make: Callable[[], nn.Module], rows: int, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        fitted(Foreign(make()), headscope.RecordHeads(SHOWN, [TOKEN_IDS[:rows]]), tmp_path)


class _Mean(nn.Module):
    def forward(self, query: Tensor, *args: object, **options: object) -> tuple[Tensor, None]:
        return query.mean(dim=1, keepdim=True), None


def test_the_code_of_the_page_does_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[1] / "docs/python.md").read_text(encoding="utf-8")
    (tmp_path / "outputs/first").mkdir(parents=True)
    untrained(tmp_path / "outputs/first", TEXTS, DataConfig(max_length=12), num_heads=2)
    monkeypatch.chdir(tmp_path)
    code = "\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    with without_needless_warnings():
        exec(compile(code, "python.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "encoder.blocks.0.attention (2, 6, 6)" in printed
    assert "log-odds" in printed
    index = read_index(tmp_path / "outputs/mine/heads")
    assert ([step.step for step in index.steps], index.layers) == (
        [0, 10, 20],
        ["encoder.self_attn"],
    )
