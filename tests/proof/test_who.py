"""Who helped whom: what the recipe makes, and that no run needs leave to read it."""

from collections import Counter

import pytest

from headscope.cli.compose import compose, parse
from headscope.ground.errors import RunError
from headscope.proof.who import english, japanese
from headscope.settings.config import DataConfig, TrainConfig
from headscope.settings.extension import OURS, check_allowed


@pytest.mark.parametrize("made", [english, japanese])
def test_neither_a_name_nor_its_particle_nor_the_verb_tells_the_helper(made: object) -> None:
    rows = made(DataConfig())["train"]  # type: ignore[operator]
    assert len(rows) == len({row["text"] for row in rows}) == 1728
    labels = Counter(row["label"] for row in rows)
    assert len({*labels.values()}) == 1  # each name helps as often
    names = sorted(labels)
    for first, second in [("ミカ", "ケン"), ("Ann", "Ben")]:
        both = [row for row in rows if first in row["text"] and second in row["text"]]
        assert Counter(row["label"] for row in both).get(first, 0) * 2 == len(both), names
    marks = [f"{names[0]}は", f"{names[0]}に", f"to {names[0]} ", "手を貸した", "grateful"]
    for mark in marks:  # each alone leaves it open
        with_mark = [
            row["label"] == names[0]
            for row in rows
            if mark in row["text"] and names[0] in row["text"]
        ]
        assert 2 * sum(with_mark) == len(with_mark)


def test_a_run_on_it_needs_no_leave_and_any_other_code_does() -> None:
    check_allowed({"data.path": "headscope.proof.who:japanese"}, "run=mine", False)
    with pytest.raises(RunError, match="names Python code to be run"):
        check_allowed({"data.path": "headscope.proof.who:random"}, "run=mine", False)


@pytest.mark.parametrize("language", ["who", "who_ja"])
def test_one_command_learns_it_by_heads_alone(language: str) -> None:
    config = compose(parse(["experiment=who", f"data={language}"], TrainConfig))
    assert config["model"]["evidence"] is False
    assert config["data"]["path"] == OURS[language == "who_ja"]
