"""The embedded data: what the real package gives."""

from collections import Counter
from pathlib import Path

import pytest
from datasets import ClassLabel

from headscope.data import source
from headscope.data.corpus import load_corpus
from headscope.data.source import load_source
from headscope.ground.errors import DataError
from headscope.ground.files import digest
from headscope.settings.config import DataConfig


def test_a_package_that_is_not_installed_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "find_spec", lambda name: None)
    with pytest.raises(DataError, match=r"data\.path=licenses: .*pip install -e '\.\[demo\]'"):
        load_source(DataConfig(cache_dir=str(tmp_path)))


@pytest.mark.slow
def test_the_real_package_gives_the_data_that_every_figure_is_measured_on(tmp_path: Path) -> None:
    """The recipe is followed anew: another length, label or doubled text would change the key."""
    cache = str(tmp_path)
    dataset = load_source(DataConfig(train_split="all", cache_dir=cache))["all"]
    names = dataset.features["label"]
    assert isinstance(names, ClassLabel)
    counts = Counter(names.int2str(dataset[:]["label"]))
    assert sorted(counts.values()) == [106, 212, 635, 807, 1793, 3229, 4772]
    assert list(names.names) == sorted(counts)
    rows = (f"{names.names[row['label']]} {row['text']}" for row in dataset)
    assert digest(rows).hex() == "55682b3bbf209d0553d67c79f2bb78c0"
    with pytest.warns(UserWarning, match="4 of 11554 rows hold a text that stands under different"):
        corpus = load_corpus(DataConfig(cache_dir=cache))
    assert corpus.facts["sizes"] == {"train": 9227, "test": 1157, "validation": 1170}
    assert corpus.facts["near-duplicates kept on one side"] == 615
    assert corpus.facts["texts also in train"] == 0
