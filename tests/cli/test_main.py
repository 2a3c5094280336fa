"""The command line: help, what Hydra's grammar takes, errors of one line, exit codes and the folders of a sweep."""

import csv
import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from hydra.core.plugins import Plugins
from omegaconf import DictConfig
from rich.console import Console

import headscope.__main__
import headscope.training.train
from headscope.cli import main as cli
from headscope.cli import sweep
from headscope.cli.compose import parse_override
from headscope.cli.sweep import Job
from headscope.ground.signals import Stopped, signals_taken
from headscope.runs.folder import save_config
from headscope.settings.checks import command
from headscope.settings.config import TrainConfig


@pytest.fixture(autouse=True)
def _process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Undo what a process of its own would take to its end."""
    monkeypatch.setattr("sys.argv", ["headscope"])
    monkeypatch.setattr("warnings.showwarning", None)
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    monkeypatch.chdir(tmp_path)


def run(*arguments: str) -> int:
    try:
        cli.main(arguments)
    except SystemExit as end:
        return int(str(end.code or 0))
    return 0


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[TrainConfig]:
    """Return the configurations that train was called with; it keeps them, and learns nothing."""
    configs: list[TrainConfig] = []

    def train(config: TrainConfig, console: Console | None = None) -> None:
        configs.append(config)
        print("learning")
        save_config(Path(config.outputs_dir) / str(config.name), config)

    monkeypatch.setattr(headscope.training.train, "train", train)
    return configs


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == run("--help") == 0
    shown = capsys.readouterr().out
    assert [name for name in cli.COMMANDS if f"\n  {name} " not in shown] == []


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--version"], ["train", "--version"]):
        assert run(*words) == 0
        assert capsys.readouterr().out == f"headscope {headscope.__version__}\n"


@pytest.mark.parametrize(
    ("name", "key", "meaning"),
    [
        ("train", "model.num_heads = 4 [integer >= 1 <= 1000000000]", "must divide d_model"),
        ("evaluate", "data.text_column = null", "the run's"),
        ("inspect", "max_tokens = null", "truncate"),
        ("verify", "dtype = 'float64' [float64 | float32", "type"),
        ("export", "run = (must be given)", "run folder"),
    ],
)
def test_help_lists_every_key_with_its_meaning_and_the_groups_of_that_command(
    name: str, key: str, meaning: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(name, "--help") == 0
    shown = capsys.readouterr().out
    assert f"\n  {key}" in shown
    assert meaning in shown
    assert ("experiment: attention" in shown) == (name == "train")
    assert ("data: ag_news" in shown) == (name in ("train", "evaluate"))


def test_help_shows_the_values_of_what_was_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", "--help", "model=base", "seed=3") == 0
    shown = capsys.readouterr().out
    assert "model.d_model = 768 [integer" in shown
    assert "\n  seed = 3 " in shown


def test_help_takes_little_longer_than_importing_hydra() -> None:
    def seconds(*code: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        subprocess.run([sys.executable, *code], check=True, stdout=subprocess.DEVNULL)
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before

    def ratio() -> float:
        return seconds("-m", "headscope", "train", "--help") / seconds("-c", "import hydra")

    assert any(ratio() < 2.5 for _ in range(3))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("trian", "command: expected one of train, .*, got 'trian'; did you mean train?"),
        ("train lerning_rate=3", "lerning_rate: unknown key; did you mean optimizer.learning_rate?"),
        ("train modle.d_model=8", "modle.d_model: unknown key; did you mean model.d_model?"),
        ("train +model.depth=3", "model.depth: unknown key"),
        ("evaluate run=. model=tiny", "model: unknown key"),
        ("train model.d_model=wide", "model.d_model: expected a valid integer, .*got 'wide'; width of the model"),
        ("train seed=4294967296", "seed: expected less than 4294967296, got 4294967296"),
        ("train optimizer.learning_rate=1e400", "optimizer.learning_rate: expected a finite number, got inf"),
        ("train model.num_heads=3", "model.num_heads: expected a divisor of model.d_model=128, got 3"),
        ("train model.pooling=median", "model.pooling: expected 'first', .*, got 'median'"),
        ("train data.path=no/such/file.csv", "data.path: expected a file or directory that exists, got 'no/such/file.csv'"),
        ("train name=../elsewhere", "name: expected the name of a folder below outputs_dir, got '../elsewhere'"),
        ("train resume=nowhere", "resume: expected a run folder, got 'nowhere'; headscope train makes one"),
        ("train data=licences", "data: expected one of ag_news, .*, got 'licences'; did you mean licenses?"),
        ("train model=0.5", "model: expected one of base, .*, got '0.5'"),
        ("train data=[null]", "data: expected one of ag_news, .*, got 'null'"),
        ("train -m data=licenses,licences", "data: expected one of .*; did you mean licenses"),
        ("evaluate run=. data=filez data.path=a", "data: expected one of .*; did you mean files"),
        ("evaluate run=nowhere", "run: expected a run folder, got 'nowhere'; headscope train makes one"),
        ("train lr=3", "lr: unknown key; did you mean optimizer.learning_rate?"),
        ("train trainer.epochs=3", "trainer.epochs: unknown key; did you mean trainer.max_epochs?"),
        ("train batch_size=8", "batch_size: unknown key; did you mean data.tokens_per_batch?"),
        ("train --name=foo", "--name: unknown option; keys are given without dashes: name=foo"),
        ("train --batch-size 8", "--batch-size: .* without dashes: data.tokens_per_batch=..."),
        ("train --lr=1e-3", "--lr: .* without dashes: optimizer.learning_rate=1e-3"),
        ("train --hlep", "--hlep: unknown option; did you mean --help?"),
        ("train --fast", "--fast: unknown option"),
        ("inspect run=. text=hello world", "world: expected key=value"),
        ("train hydra.verbose=true", "hydra.verbose: expected `train -m` with it"),
        ("train -m seed=1 hydra/launcher=joblib", "hydra/launcher=joblib: is not installed; pip install hydra-joblib-launcher"),
        ("train -m seed=range(0,1,0)", "seed: expected a step, got 0; leave it out"),
        ("evaluate -m run=a,b", "--multirun: expected `train`, got `evaluate`"),
        ("verify dtype=float16", "dtype: expected 'float64', .*, got 'float16'"),
        ("trace num_heads=7", "num_heads: "),
        *([] if torch.cuda.is_available() else [("verify device=cuda", "device: .*torch finds no CUDA GPU")]),
        ("train data.path=${nothing}", "data.path: .*nothing"),
        ("train seed=${seed}", "seed: Recursive interpolation"),
        ("train --cfg nope", "--cfg: expected job, got 'nope'"),
        (f"train seed={'9' * 5000}", r"seed=999.*9\.\.\. .[0-9,]* characters.$"),
        ("train name='\x1b[31m'", r"name: expected .*, got '\\x1b\[31m'"),
        ("train surprise\x1b=1", r"surprise\\x1b=1: Hydra cannot read"),
        ("train data.path='\udcff'", "data.path: expected text in UTF-8, without NUL, got '.udcff'"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_and_exit_code_2(
    arguments: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("config.yaml").touch()  # run=. is a run folder
    assert run(*arguments.split(" ")) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert re.match(f"error: {words.replace('?', '.').replace('+', '.')}", shown.err), shown.err
    assert len(shown.err.strip().splitlines()) == 1
    assert not Path("outputs").exists()


def test_a_run_that_does_not_exist_is_answered_with_those_that_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("first", "second"):
        (Path("outputs") / name).mkdir(parents=True)
        (Path("outputs") / name / "model.safetensors").touch()
    for word in ("run=outputs/frist", "run=first", "run=outputs"):  # the last is no run either
        assert run("evaluate", word) == 2
        assert capsys.readouterr().err.endswith("; runs here: outputs/first, outputs/second\n")


def test_all_wrong_values_are_named_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", "model.dropout=2", "seed=-1", "trainer.max_epochs=0") == 2
    assert capsys.readouterr().err.count(": expected ") == 3


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        *((text, text) for text in ("1.10", "1_000", "1e3", "007", "true", "a, b", "映画", "x=1.csv")),
        *((text, text) for text in ('say "hi" (twice)', "it's", 'b\\"c', "C:\\x", "[a]", "range(3)", "~")),
        ('"a, b"', "a, b"),
        ("'null'", "null"),
        ("${tokenizer.kind}", "words"),
    ],
)  # fmt: skip
def test_of_a_key_of_type_text_the_words_count_as_they_are_typed(
    typed: str, text: str, trained: list[TrainConfig]
) -> None:
    assert run("train", "name=n", f"data.text_column={typed}") == 0
    assert trained[0].data.text_column == text


def test_the_composed_configuration_is_shown_and_taken_from_a_directory_of_yours(
    trained: list[TrainConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mine/data").mkdir(parents=True)
    Path("mine/data/own.yaml").write_text("path: some/id\nmax_length: 9\n")
    Path("mine/best.yaml").write_text("defaults: [train, _self_]\nseed: 5\n")
    assert run("train", "--config-dir", "mine", "data=own", "--cfg", "job") == 0
    assert yaml.safe_load(capsys.readouterr().out)["data"]["max_length"] == 9
    assert run("train", "--config-dir", "mine", "--config-name=best", "data=own", "name=a") == 0
    assert (trained[0].seed, trained[0].data.path) == (5, "some/id")
    assert run("evaluate", "run=.", "--config-dir", "mine", "data=own", "-c", "job") == 0
    assert "path: some/id" in capsys.readouterr().out


def test_a_log_that_lacks_a_letter_does_not_end_a_command() -> None:
    command = [sys.executable, "-m", "headscope", "train", "--help", "data.text_column=本文"]
    environment = os.environ | {"PYTHONIOENCODING": "latin-1"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert r"data.text_column = '\u672c\u6587'" in ended.stdout


def test_in_a_sweep_texts_count_as_they_are_typed_and_of_a_key_given_twice_the_last_one_holds(
    trained: list[TrainConfig],
) -> None:
    words = ["seed=2", "-m", "data.text_column=1.10,日本語,'a, b'", "seed=0"]
    assert run("train", "name=twice", *words) == 0
    found = [(config.data.text_column, config.seed) for config in trained]
    assert found == [("1.10", 0), ("日本語", 0), ("a, b", 0)]


def test_a_sweep_names_its_jobs_goes_on_after_a_failure_and_returns_its_code(
    trained: list[TrainConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["outputs_dir=a b", "name=heads", "baseline=false"]
    assert run("train", *given, "-m", "model.num_heads=2,3,4") == 2
    names = sorted(path.parent.name for path in Path("a b/heads").glob("*/job.json"))
    assert [name[:-9] for name in names] == [f"model.num_heads_{heads}" for heads in (2, 3, 4)]
    assert [path.parent.name for path in Path("a b/heads").glob("*/failure.json")] == names[1:2]
    assert [config.name for config in trained] == [names[0], names[2]]
    assert [config.model.num_heads for config in trained] == [2, 4]
    assert "learning" not in capsys.readouterr().out
    assert Path("a b/heads", names[0], "log.txt").read_text() == "learning\n"
    shutil.rmtree("a b")
    assert run("train", "hydra.sweep.dir=elsewhere", "name=a,b", "--multirun") == 0
    assert len(list(Path("elsewhere").glob("*/job.json"))) == 2


def test_the_same_sweep_again_passes_over_what_is_done_goes_on_with_what_was_begun_and_tries_again_what_failed(
    trained: list[TrainConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = ("train", "name=heads", "baseline=false", "-m", "model.num_heads=2,3,4")
    assert run(*sweep) == 2
    first, _, third = sorted(path.parent for path in Path("outputs/heads").glob("*/job.json"))
    metrics = {
        "test": {"accuracy": 0.5, "macro_f1": 0.5},
        "validation": {"macro_f1": 0.25},
        "seconds": {"everything": 3},
    }
    (first / "metrics.json").write_text(json.dumps(metrics))
    trained.clear()
    # In another order, with one more value: each job keeps its folder.
    assert run("train", "name=heads", "baseline=false", "-m", "model.num_heads=8,4,3,2") == 2
    assert [(config.model.num_heads, config.resume) for config in trained] == [
        (8, None),
        (4, str(third)),
    ]
    assert f"{first.name}: done before" in capsys.readouterr().out
    with Path("outputs/heads/sweep.csv").open(newline="") as file:
        rows = {row["model.num_heads"]: row["status"].split(":")[0] for row in csv.DictReader(file)}
    assert rows == {"8": "not finished", "4": "not finished", "3": "failed", "2": "done"}
    # By whom jobs are started may differ.
    again = ("train", "name=heads", "-m", "model.num_heads=2,3")
    assert run(*again, "baseline=false", "hydra.sweeper.max_batch_size=2") == 2
    assert len(list(Path("outputs/heads").glob("*/job.json"))) == 4
    # One value alone: the job has been named by what differed before.
    assert run("train", "name=heads", "baseline=false", "-m", "model.num_heads=2") == 2
    assert len(list(Path("outputs/heads").glob("*/job.json"))) == 4
    # With other settings they are other jobs.
    assert run(*again) == 2
    assert len(list(Path("outputs/heads").glob("*/job.json"))) == 6


def test_a_job_returns_the_validation_score_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def train(config: TrainConfig, console: Console) -> None:
        validation = {"macro_f1": 0.25, "accuracy": 0.5, "loss": 1.5}
        metrics = {"test": validation, "validation": validation, "seconds": {"everything": 3}}
        folder = Path(config.outputs_dir) / str(config.name)
        save_config(folder, config)
        (folder / "metrics.json").write_text(json.dumps(metrics))

    returned = []

    class RecordedJob(Job):
        def __call__(self, composed: DictConfig) -> float | None:
            returned.append(super().__call__(composed))
            return returned[-1]

    monkeypatch.setattr(headscope.training.train, "train", train)
    monkeypatch.setattr(sweep, "Job", RecordedJob)
    for _ in range(2):  # trained, and done before
        assert run("train", "-m", "name=scores", "seed=3,4", "sweep.metric=loss") == 0
    assert returned == 4 * [1.5]
    with Path("outputs/scores/sweep.csv").open(newline="") as file:
        assert {row["validation_loss"] for row in csv.DictReader(file)} == {"1.5"}


def test_a_launcher_that_loses_a_job_is_one_line_and_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Launcher:
        def launch(self, jobs: object, initial_job_idx: int) -> None:
            Path("outputs/lost/seed_1-12345678").mkdir()
            Path("outputs/lost/seed_1-12345678/job.json").write_text("{}")
            raise RuntimeError("Job 1 has no result\nkilled")

    monkeypatch.setattr(Plugins, "instantiate_launcher", lambda *_, **__: Launcher())
    assert run("train", "-m", "name=lost", "seed=1,2") == 1
    assert capsys.readouterr().err == (
        "error: outputs/lost: the launcher has ended: Job 1 has no result killed; "
        "the same command again continues what is not done\n"
    )


def test_a_resumed_run_takes_its_settings_from_its_folder(
    trained: list[TrainConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("train", "name=first", "seed=7", "model=small", "trainer.max_epochs=2") == 0
    assert run("train", "resume=outputs/first", "trainer.max_epochs=7") == 0
    assert (trained[1].seed, trained[1].model.d_model, trained[1].trainer.max_epochs) == (7, 256, 7)
    for argument, words in {
        "seed=${trainer.max_epochs}": "seed: expected a valid integer",
        "experiment=smoke": "experiment: unknown key",
    }.items():
        assert run("train", "resume=outputs/first", argument) == 2
        assert capsys.readouterr().err.startswith(f"error: {words}")


@pytest.mark.parametrize(
    ("stopped", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "stopped by Ctrl-C"),
        (Stopped(signal.SIGTERM, "; go on with x"), 143, "stopped by SIGTERM; go on with x"),
    ],
)
def test_what_a_signal_has_stopped_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    stopped: BaseException,
    code: int,
    said: str,
) -> None:
    def train(config: TrainConfig) -> None:
        raise stopped

    monkeypatch.setattr(headscope.training.train, "train", train)
    monkeypatch.setattr("sys.argv", ["headscope", "train"])
    # This process gets its own handlers back.
    with signals_taken(signal.SIG_DFL), pytest.raises(SystemExit) as caught:
        headscope.__main__.main()
    assert caught.value.code == code
    assert capsys.readouterr().err == f"\n{said}\n"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(28, "No space", "outputs/x"), r"\[Errno 28\] No space: 'outputs/x'"),
        (MemoryError(), "not enough memory"),
        (
            RuntimeError("[..] DefaultCPUAllocator: can't allocate memory:\nat"),
            "not enough memory: ",
        ),
        (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB."), "not enough memory: C"),
    ],
)
def test_what_the_machine_refuses_is_one_line_and_exit_code_1(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    words: str,
) -> None:
    def train(config: TrainConfig) -> None:
        raise error

    monkeypatch.setattr(headscope.training.train, "train", train)
    assert run("train") == 1
    shown = capsys.readouterr().err
    assert re.match(f"error: {words}", shown), shown
    assert len(shown.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("positions: rotary", "positions: rotarry", "model.positions: expected 'learned', .*, got 'rotarry'"),
        ("kind: words", "kind: japanese", "tokenizer.kind: expected 'words' or 'bpe', got 'japanese'"),
        ("\nseed: 0", "\nsede: 0", "sede: unknown key; did you mean seed?"),
        ("seed: 0", "seed: ${oc.env:HOME}", r"seed: expected a valid integer, got '\${oc.env:HOME}'"),
        ("limit: null", "limit: !!python/object:os.abort {}", None),
    ],
)  # fmt: skip
def test_a_config_that_is_read_again_is_checked_and_nothing_in_it_is_resolved(
    old: str,
    new: str,
    words: str | None,
    trained: list[TrainConfig],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("train", "name=first") == 0
    path = Path("outputs/first/config.yaml")
    path.write_text(path.read_text().replace(old, new))
    capsys.readouterr()
    assert run("train", "resume=outputs/first") == 2
    fault = f"does not fit this version of headscope: {words}" if words else "is damaged"
    shown = capsys.readouterr().err
    assert re.match(f"error: run=outputs/first: config.yaml {fault}", shown), shown


def test_idle_threads_sleep_unless_the_user_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts for torch if it is set before torch is imported, as `test_imports` sees."""
    monkeypatch.setattr("sys.argv", ["headscope", "--help"])
    for given in (None, "active"):
        monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
        if given is not None:
            monkeypatch.setenv("OMP_WAIT_POLICY", given)
        with signals_taken(signal.SIG_DFL):
            headscope.__main__.main()
        assert os.environ["OMP_WAIT_POLICY"] == (given or "passive")


def test_a_fault_of_ours_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headscope.training.train, "train", lambda config: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        cli.main(["train"])


@pytest.mark.parametrize("is_sweep", [False, True])
@pytest.mark.parametrize(
    "name", ["a.csv", "it's, a=b.csv", 'my "best" {1}\\', "日本 語.csv", "null", ""]
)
def test_a_command_to_copy_is_read_back_by_the_shell_and_hydra_as_it_was_meant(
    name: str, is_sweep: bool
) -> None:
    values = {"data.path": name, "data.validation_split": None, "data.drop_empty": True}
    words = shlex.split(command("headscope train", **values))[2:]
    read = [parse_override(word, TrainConfig, is_sweep) for word in words]
    assert {each.key_or_group: each.value() for each in read} == values
