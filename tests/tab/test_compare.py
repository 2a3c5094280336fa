"""The comparison of two runs: which are offered, which steps meet, and heads that one of them lacks."""

from pathlib import Path

import pytest
from answered import answered_run
from heads_browser import Opener
from heads_server import maps_of

from headscope.record.schema import Text
from headscope.record.writer import HeadRecorder
from records import step_arrays

JOB = "model.num_heads_1_model.num_layers_1_optimizer.learning_rate"  # of a sweep
CAPTIONS = ".other-head h2"


@pytest.mark.slow
def test_the_best_steps_of_two_runs_meet_and_a_head_without_partner_is_marked(
    open_tab: Opener, tmp_path: Path
) -> None:
    answered_run(tmp_path / f"{JOB}-aaaa", heads=4, steps=(0, 30, 60, 90), kept=60)
    answered_run(tmp_path / f"{JOB}-bbbb", heads=2, steps=(0, 78, 156, 468), kept=468)
    tab = open_tab(tmp_path, f"#p.heads.run={JOB}-aaaa")
    tab.drawn(60)
    names = tab.find(".choose-other option").all_inner_texts()
    assert sum(name.endswith("-bbbb") for name in names) == 1  # both ends of a long name
    assert all(len(name) <= 35 for name in names)
    tab.compare(f"{JOB}-bbbb")
    tab.says(".other-head h2", "step 468")
    tab.choose(0, 1)
    tab.says(CAPTIONS, "head 1")
    tab.choose(0, 3)
    tab.says(CAPTIONS, "none")


@pytest.mark.slow
def test_the_command_that_is_advised_names_the_run_whatever_its_script(
    open_tab: Opener, tmp_path: Path
) -> None:
    recorder = HeadRecorder(tmp_path / "映画 評", [Text("t", ["a", "b"], "a b")])
    recorder.write(0, step_arrays([maps_of(0, 1, 3, 2)]))
    (tmp_path / "映画 評" / "model.safetensors").touch()
    tab = open_tab(tmp_path)
    tab.drawn(0)
    module = "await import(new URL('static/ablation.js', document.baseURI))"
    run = {"logdir": str(tmp_path), "run": "映画 評"}
    command = tab.frame.evaluate(f"async (run) => ({module}).runOf(run)", run)
    assert command == f"'run=\"{tmp_path}/映画 評\"'"
    assert (
        tab.frame.evaluate(f"async (run) => ({module}).runOf(run)", {**run, "run": "'"})
        == "run=<run>"
    )


@pytest.mark.slow
def test_layers_of_a_foreign_model_have_their_numbers(open_tab: Opener, tmp_path: Path) -> None:
    recorder = HeadRecorder(tmp_path / "foreign", [Text("t", ["a", "b"], "a b")])
    names = [f"enc.layers.{at}.self_attn" for at in range(2)]
    recorder.write(0, step_arrays([maps_of(0, 2, 3, 2)]), names)
    tab = open_tab(tmp_path)
    tab.drawn(0)
    assert tab.find(".grid .row-name").all_inner_texts()[1:] == ["layer 0", "layer 1"]
