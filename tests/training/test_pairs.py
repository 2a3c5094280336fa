"""Runs on pairs of texts: what is recorded of them."""

from pathlib import Path

from headscope.cli.inspect import inspect
from headscope.record.reader import read_index, read_step
from headscope.settings.commands import InspectConfig
from training_runs import Trained


def test_a_run_on_pairs_records_segments_and_crossing(of_pairs: Trained) -> None:
    folder = of_pairs.folder / "heads"
    index = read_index(folder)
    for text in index.texts:
        assert text.segments is not None
        special = [
            token
            for token, segment in zip(text.tokens, text.segments, strict=True)
            if segment is None
        ]
        assert special == ["[CLS]", "[SEP]", "[SEP]"]
        texts = [
            "".join(t for t, s in zip(text.tokens, text.segments, strict=True) if s == which)
            for which in (0, 1)
        ]
        assert texts == [part.replace(" ", "") for part in text.text.split(" ⏐ ")]
    for kept in index.steps:
        arrays = read_step(folder / kept.file)
        crossing = arrays["numbers/crossing/mean"]
        assert crossing.shape == (2, 3)
        assert ((crossing[:-1] > 0) & (crossing[:-1] < 1)).all()
        assert (crossing[-1] == 0).all()  # the row of [CLS], which is of neither text


def test_a_finished_run_on_pairs_is_inspected(of_pairs: Trained, tmp_path: Path) -> None:
    folder = of_pairs.copy(tmp_path)
    page = tmp_path / "page.html"
    inspect(
        InspectConfig(
            run=str(folder), text="the cat", text_pair="a dog", output=str(page), accelerator="cpu"
        )
    )
    assert '"segments":[null,0,0,null,1,1,null]' in page.read_text()
    (record,) = folder.glob("inspect/*/heads")
    assert read_index(record).texts[0].segments == [None, 0, 0, None, 1, 1, None]
