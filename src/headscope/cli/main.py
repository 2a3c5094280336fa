"""The command `headscope`: Hydra composes the configuration, it is checked, and only then is anything heavy imported.

What stands here is what Hydra lacks: bounds of values, help with meanings, errors of one line, exit codes, and a
folder for each job of a sweep. The grammar of the command line is Hydra's own.

Exit codes: 0 done; 1 it could not be done, such as a NaN loss; 2 a mistake in the command, the configuration or the
data; 128 and its number for a signal: 130 Ctrl-C, 143 SIGTERM (`headscope.__main__`).
"""

import difflib
import json
import os
import pkgutil
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, cast, get_args, get_type_hints

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, MissingConfigException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import (
    ConfigAttributeError,
    MissingMandatoryValue,
    OmegaConfBaseException,
    ValidationError,
)

from headscope.cli.sweep import FAILURE, METRICS, fixed_of, folder_name, score_of, write_table
from headscope.config import TrainConfig
from headscope.errors import (
    ConfigError,
    TrainingError,
    UserError,
    first_line,
    message_of,
    os_message,
    refused_by_machine,
    shown,
    tell,
)
from headscope.files import read_json, write_atomic
from headscope.options import (
    MISSING,
    EvaluateConfig,
    ExportConfig,
    InspectConfig,
    PredictConfig,
    TraceConfig,
    TuneConfig,
    VerifyConfig,
)
from headscope.settings import check, described, problems, read_config, structured
from headscope.signals import end, signals_taken
from headscope.terminal import warnings_as_notes
from headscope.training.resume import JOB, check_kept

INSTALLED = Path(__file__).parents[1] / "configs"
CONFIGS = (
    INSTALLED if INSTALLED.is_dir() else Path(__file__).parents[3] / "configs"
)  # of a checkout
FLAGS = (
    "--hydra-help",
    "--version",
    "--resolve",
    "--run",
    "-r",
    "--multirun",
    "-m",
    "--shell-completion",
    "-sc",
)
WITH_VALUE = (
    "--cfg", "-c", "--package", "-p", "--config-path", "-cp", "--config-name", "-cn", "--config-dir", "-cd",
    "--experimental-rerun", "--info", "-i",
)  # fmt: skip
CHOICES = dict.fromkeys(("--cfg", "-c"), ("job", "hydra", "all")) | dict.fromkeys(
    ("--info", "-i"), ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
)
OTHER_CONFIGS = {"--config-path", "-cp", "--config-name", "-cn", "--config-dir", "-cd"}


# name: (what is called, imported only then, its settings, its purpose)
COMMANDS: dict[str, tuple[str, type, str]] = {
    "train": ("headscope.training.train:train", TrainConfig,
              "Train a Transformer text classifier and record what every attention head does."),
    "tune": ("headscope.cli.tune:tune", TuneConfig,
             "Search for good settings: Optuna proposes, trains, and stops what is hopeless."),
    "evaluate": ("headscope.cli.evaluate:evaluate", EvaluateConfig,
                 "Score a finished run on its test split, or on other data with the same labels."),
    "predict": ("headscope.cli.predict:predict", PredictConfig,
                "Label texts with a finished run, in order, whatever the file's size."),
    "inspect": ("headscope.cli.inspect:inspect", InspectConfig,
                "Show what every attention head does with one text, or measure every head over a sample of validation "
                "texts."),
    "verify": ("headscope.proof.verify:verify", VerifyConfig,
               "Check the attention against torch and independent implementations; exit with 1 if a property does not "
               "hold."),
    "trace": ("headscope.proof.trace:trace_attention", TraceConfig,
              "Print the computation of multi-head attention, step by step, or how each step grows with the text."),
    "export": ("headscope.cli.export:export", ExportConfig,
               "Write a finished run that began with a checkpoint as a folder that `transformers` loads as BERT."),
}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `headscope <command> [key=value ...]` and exit.

    Args:
        arguments: the command and what follows it; those of the process by default.
    """
    name, *rest = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    warnings_as_notes()
    try:
        if name in ("--help", "-h"):
            lines = [f"  {name:10}{purpose}" for name, (*_, purpose) in COMMANDS.items()]
            usage, hint = (
                "Usage: headscope <command> [key=value ...]",
                "headscope <command> --help lists its keys.",
            )
            print("\n".join([usage, "", *lines, "", hint]))
        elif name in COMMANDS:
            sys.exit(_run(name, rest))
        else:
            raise ConfigError(
                f"{name}: unknown command; {_did_you_mean(name, COMMANDS)}takes {', '.join(COMMANDS)}"
            )
    except UserError as error:
        sys.exit(tell(error))
    except (
        BrokenPipeError
    ):  # of `| head`: the rest of the output, and its flush at the end, go nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        if refused_by_machine(error) is None:
            raise
        sys.exit(tell(error))


def _run(name: str, words: Sequence[str]) -> int:
    """Read the command line, hand it to Hydra, and return the exit code."""
    run, schema, _ = COMMANDS[name]
    ConfigStore.instance().store("schema", schema)
    options, given = _options(words, schema)
    is_sweep = bool({"-m", "--multirun"} & {*options})
    given = _with_seeds(given, is_sweep and schema is TrainConfig)
    overrides = _all_parsed(given)
    _check_keys(overrides, name, schema, bool(OTHER_CONFIGS & {*options}))
    keys = {entry.key_or_group for entry in overrides}
    has_no_data = any(entry.name == "data" and entry.default is None for entry in fields(schema))
    if has_no_data and "data" not in keys and any(key.startswith("data.") for key in keys):
        given.append(
            "data=files"
        )  # keys of other data, for a command that has none unless it is told
    # Hydra takes `model=...` for a choice among the files of configs/model, also where it is a plain key.
    aside = [
        entry for entry in overrides if entry.key_or_group == "model" and schema is InspectConfig
    ]
    plain = {entry.key_or_group: entry.value() for entry in aside}
    given = [word for word in given if word not in {entry.input_line for entry in aside}]
    try:
        if "--help" in options:
            print("\n".join(_help(name, given)))
            return 0
        folder = None
        if is_sweep or "hydra.mode" in keys:
            folder = _sweep_folder(overrides) if schema is TrainConfig else None
        else:
            for entry in filter(Override.is_sweep_override, overrides):
                key = entry.key_or_group
                quoted = shlex.quote(f"{key}={_quoted(entry.get_value_string())}")
                raise ConfigError(
                    f"{entry.input_line}: has a comma; as one text: {quoted}, as a list: {key}=[a,b], "
                    "for a run with each value: add -m"
                )
        if folder and "TORCHELASTIC_RUN_ID" in os.environ:
            raise ConfigError(
                "-m: torchrun starts one training; leave it out, and give trainer.devices=... to each job"
            )
        sys.argv[1:] = [
            *options,
            *given,
            *([f"++hydra.sweep.dir={_quoted(str(folder))}"] if folder else []),
        ]
        os.environ["HYDRA_FULL_ERROR"] = (
            "1"  # errors come to us, instead of Hydra's own words and exit code
        )
        fixed = fixed_of(overrides)
        if folder:
            _check_begun(folder, fixed)
        job = Job(run, schema, fixed, plain)
        hydra.main(version_base="1.3", config_path=str(CONFIGS), config_name=_config_name(name))(
            job
        )()
    except Exception as error:  # of Hydra, in composing: those of the job do not come this way
        is_hydras = isinstance(error, HydraException) or refused_by_machine(error) is None
        if isinstance(error, UserError) or not is_hydras:
            raise
        if (
            folder
            and not isinstance(error, HydraException | OmegaConfBaseException)
            and any(folder.glob(f"*/{JOB}"))
        ):
            said = shown(
                " ".join(str(error).split()) or type(error).__name__, 300
            )  # such as of a job that was killed
            again = "the same command again goes on with what is not done"
            raise TrainingError(f"{folder}: the launcher has ended: {said}; {again}") from error
        raise ConfigError(_explained(error, schema)) from error
    if job.error is not None:
        raise job.error
    # A job may have been refused here because another process was at it, which has finished it since.
    failures = (
        [path for path in folder.glob(f"*/{FAILURE}") if not (path.parent / METRICS).exists()]
        if folder
        else []
    )
    return max(
        (json.loads(path.read_text(encoding="utf-8"))["exit_code"] for path in failures), default=0
    )


class Job:
    """One run, or one of a sweep's, in whatever process Hydra's launcher starts it."""

    def __init__(
        self, run: str, schema: type, fixed: Mapping[str, str], plain: Mapping[str, Any]
    ) -> None:
        self.run, self.schema, self.fixed = (
            run,
            schema,
            fixed,
        )  # fixed: what has one value for all jobs
        self.plain = plain  # keys that Hydra would not take
        self.error: Exception | None = (
            None  # of a single run: Hydra would add lines of its own to one that it sees
        )

    def __call__(self, composed: DictConfig) -> float | None:
        """Check and run; a sweep goes on after a job that fails, and passes over one that is done.

        Return the validation score of a job of a sweep, for sweepers that search by it.
        """
        warnings_as_notes()  # the process may be a launcher's
        is_in_sweep = self.schema is TrainConfig and HydraConfig.get().mode == RunMode.MULTIRUN
        folder = self._folder(composed) if is_in_sweep else None
        if folder is not None and (score := score_of(folder)) is not None:
            print(f"{folder.name}: done before")
            return score
        try:
            for key, value in self.plain.items():
                composed[key] = value
            is_begun = folder is not None and (folder / "config.yaml").exists()
            config = _begun(cast(Path, folder)) if is_begun else self._config(composed)
            with signals_taken(end):
                run = pkgutil.resolve_name(self.run)
            run(config)
            return None if folder is None else score_of(folder)
        except Exception as error:
            if folder is None or isinstance(error, BrokenPipeError):
                self.error = error
                return None
            _save(
                folder / FAILURE,
                {"message": message_of(error).split("\n")[0], "exit_code": tell(error)},
            )
            return None

    def _config(self, composed: DictConfig) -> Any:
        """Return the settings, checked."""
        try:
            config = (
                _resumed(composed, self.schema)
                if composed.get("resume")
                else OmegaConf.to_object(composed)
            )
        except UserError:
            raise
        except OSError as error:
            raise ConfigError(os_message(error)) from error
        except Exception as error:  # of OmegaConf, or of Python where a number is too large for it
            raise ConfigError(_explained(error, self.schema)) from error
        check(config)
        return config

    def _folder(self, composed: DictConfig) -> Path:
        """Give the job a folder named by what differs from job to job, and write its overrides down."""
        settings = HydraConfig.get()
        folder = Path(str(settings.sweep.dir)) / folder_name(settings.overrides.task, self.fixed)
        composed.outputs_dir, composed.name = settings.sweep.dir, folder.name
        overrides = dict(entry.split("=", 1) for entry in settings.overrides.task)
        content = {"number": settings.job.num, "overrides": overrides, "fixed": dict(self.fixed)}
        _save(folder / JOB, content | {"metric": composed.sweep.metric})
        (folder / FAILURE).unlink(missing_ok=True)  # it is tried again
        write_table(folder.parent)
        return folder


def _begun(folder: Path) -> TrainConfig:
    """Return the settings of a job that was begun before, to go on with; the command line has said the same."""
    config: TrainConfig = read_config(folder / "config.yaml", TrainConfig)
    config.resume = str(folder)
    check(config)
    return config


def _save(path: Path, content: dict[str, Any]) -> None:
    write_atomic(
        path, lambda temporary: temporary.write_text(json.dumps(content), encoding="utf-8")
    )


def _resumed(composed: DictConfig, schema: type) -> Any:
    """Return the configuration of the run to go on with; keys on the command line override it.

    Whole groups (model=small) and keys that the run's weights depend on cannot be overridden.
    """
    path = Path(composed.resume) / "config.yaml"
    if not path.is_file():
        raise ConfigError(
            f"resume: got {composed.resume!r}, takes a run folder with a config.yaml in it"
        )
    before = read_config(path, schema)
    kept = structured(before)
    settings = HydraConfig.get()
    for entry in (
        _parsed(argument) for argument in settings.overrides.task if not argument.startswith("~")
    ):
        key = entry.key_or_group
        if key in settings.runtime.choices or isinstance(
            OmegaConf.select(composed, key), DictConfig
        ):
            raise ConfigError(
                f"{key}=...: a resumed run keeps its groups; override single keys, such as trainer.max_epochs=20"
            )
        value: Any = OmegaConf.to_container(
            composed
        )  # interpolations are read among the run's own settings
        for part in key.split("."):
            value = value[part]
        OmegaConf.update(kept, key, value)
    config: Any = OmegaConf.to_object(kept)
    check_kept(config, before)
    return config


def _options(words: Sequence[str], schema: Any) -> tuple[list[str], list[str]]:
    """Return the options, each with its value, and the keys: Hydra takes options in front of keys alone."""
    options, given = [], []
    remaining = iter(words)
    for word in remaining:
        option, sign, value = word.partition("=")
        if option in WITH_VALUE:
            value = value if sign else next(remaining, "")
            if not value or value not in CHOICES.get(option, (value,)):
                takes = f"one of {', '.join(CHOICES[option])}" if option in CHOICES else "a value"
                raise ConfigError(f"{option}: got {value!r}, takes {takes}")
            options += [option, value]
        elif word in ("--help", "-h"):
            options.append("--help")
        elif word in FLAGS:
            options.append(word)
        elif not word.startswith("-"):
            given.append(word)
        elif (key := option.lstrip("-")) in _keys(schema):
            raise ConfigError(f"{word}: keys are given without dashes: {key}={value or '...'}")
        else:
            raise ConfigError(
                f"{word}: unknown option; settings are given as key=value, and --help lists them"
            )
    return options, given


def _all_parsed(arguments: Iterable[str]) -> list[Override]:
    """Return the arguments as Hydra's grammar reads them; one error names all that it cannot read."""
    found, mistakes = [], []
    for argument in arguments:
        try:
            found.append(_parsed(argument))
        except ConfigError as error:
            mistakes.append(str(error))
    if mistakes:
        raise ConfigError("\n".join(mistakes))
    return found


def _parsed(argument: str) -> Override:
    """Return an argument as Hydra's grammar reads it."""
    key, sign, value = argument.partition("=")
    if not key or not (sign or key.startswith("~")):
        raise ConfigError(
            f'{argument}: takes the form key=value, a text with spaces in quotes: "text=two words"'
        )
    if (
        count := len(re.findall(r"[,:\[{(]", QUOTED.sub("", value)))
    ) > MOST_ENTRIES:  # its parser takes minutes
        raise ConfigError(f"{key}: got a value of {count} parts, takes at most {MOST_ENTRIES}")
    try:
        return OverridesParser.create().parse_override(argument)
    except (HydraException, ValueError, RecursionError):
        quoted = shlex.quote(f"{key}={_quoted(value)}")
        raise ConfigError(
            f"{argument}: Hydra cannot read the value; put it in quotes: {quoted}"
        ) from None


QUOTED = re.compile(r"""'(\\.|[^'\\])*'|"(\\.|[^"\\])*\"""", re.DOTALL)
MOST_ENTRIES = 1000


def _quoted(value: str) -> str:
    """Return a text in the quotes of Hydra's grammar."""
    escaped = re.sub(r'(\\*)"', r'\1\1\\"', value)  # backslashes count in front of a quote alone
    return '"' + re.sub(r"(\\+)$", r"\1\1", escaped) + '"'


def _sweep_folder(overrides: Iterable[Override]) -> Path:
    """Return the folder of a sweep: what outputs_dir and name, one for all its jobs, say."""
    given = {
        entry.key_or_group: entry.value() for entry in overrides if not entry.is_sweep_override()
    }
    if "hydra.sweep.dir" in given:
        return Path(str(given["hydra.sweep.dir"]))
    name = given.get("name") or f"sweep_{datetime.now():%Y-%m-%d_%H-%M-%S}"
    if wrong := [
        line for line in problems(TrainConfig(name=str(name))) if line.startswith("name: ")
    ]:
        raise ConfigError(wrong[0])
    folder = Path(str(given.get("outputs_dir", "outputs")), str(name))
    if (folder / "config.yaml").exists():
        raise ConfigError(
            f"name={name}: {folder} is a run already; take another name for the sweep"
        )
    return folder


def _check_begun(folder: Path, given: Mapping[str, str]) -> None:
    """Refuse to go on with a sweep whose jobs were begun with other settings that they have in common."""
    for path in sorted(folder.glob(f"*/{JOB}")):
        before = read_json(path, dict).get("fixed", given)
        for key in sorted({*before, *given} - {"name", "outputs_dir"}):
            if before.get(key) != given.get(key) and not key.startswith(
                "hydra"
            ):  # how jobs are started is free
                was = f"{key}={before[key]}" if key in before else f"no {key}=..."
                raise ConfigError(
                    f"{folder} holds a sweep that was begun with {was}; give the same, or another name"
                )


def _with_seeds(given: Sequence[str], is_sweep: bool) -> list[str]:
    """Put in the place of `seeds=3` the seeds that it means, 0 to 2 or from `seed=` on, as the innermost axis."""
    seeds = [word for word in given if word.startswith("seeds=")]
    if not seeds:
        return [*given]
    count, first = seeds[-1].removeprefix("seeds="), 0
    if not is_sweep or not re.fullmatch("[1-9][0-9]{0,3}", count):
        raise ConfigError(
            f"{seeds[-1]}: takes a number, with train -m: so often is each configuration trained"
        )
    for word in given:
        if word.startswith("seed="):
            if not word.removeprefix("seed=").isdigit():
                raise ConfigError(
                    f"{word} {seeds[-1]}: takes one of them, or one number for seed to begin with"
                )
            first = int(word.removeprefix("seed="))
    rest = [word for word in given if not word.startswith(("seed=", "seeds="))]
    return [*rest, f"seed={','.join(map(str, range(first, first + int(count))))}"]


def _keys(schema: Any, prefix: str = "") -> dict[str, Any]:
    """Return every key that a configuration class takes, groups among them, with its type."""
    found = {}
    for name, kind in get_type_hints(schema).items():
        found[f"{prefix}{name}"] = kind
        for option in (kind, *get_args(kind)):
            if is_dataclass(option):
                found |= _keys(option, f"{prefix}{name}.")
    return found


def _config_name(command: str) -> str:
    """Return the file of configs/ that a command's settings are composed from."""
    return "train" if issubclass(COMMANDS[command][1], TrainConfig) else command


def _groups(name: str) -> dict[str, list[str]]:
    """Return the groups that a command's configuration is made of, each with the names of its files."""
    defaults = OmegaConf.load(CONFIGS / f"{_config_name(name)}.yaml").defaults
    names = [
        str(key).removeprefix("optional ")
        for entry in defaults
        if isinstance(entry, DictConfig)
        for key in entry
    ]
    return {
        name: sorted(path.stem for path in (CONFIGS / name).glob("*.yaml"))
        for name in names
        if "/" not in name
    }


def _check_keys(
    overrides: Iterable[Override], name: str, schema: type, has_other_configs: bool
) -> None:
    """Refuse a key or a file of a group that there is not; Hydra passes over the files of optional groups."""
    groups, keys = _groups(name), _keys(schema)
    for entry in overrides:
        key, given = entry.key_or_group, cast(Any, entry.value())
        if key in groups and not has_other_configs:
            for value in getattr(given, "list", []) if entry.is_sweep_override() else [given]:
                choice = "null" if value is None else str(getattr(value, "text", value))
                if not isinstance(value, list | dict) and choice not in groups[key]:
                    raise ConfigError(_unknown_choice(key, choice, groups[key]))
        elif (
            key not in keys
            and key not in groups
            and not key.startswith("hydra")
            and not entry.package
        ):
            raise ConfigError(_unknown_key(key, schema))


def _unknown_choice(group: str, given: str, known: Sequence[str]) -> str:
    return f"{group}: got {given!r}; {_did_you_mean(given, known, f'{group}=')}takes one of {', '.join(known)}"


def _did_you_mean(given: str, known: Iterable[str], prefix: str = "") -> str:
    close = difflib.get_close_matches(given, [*known], n=1)
    return f"did you mean {prefix}{close[0]}? " if close else ""


def _unknown_key(key: str, schema: type) -> str:
    """Say that there is no such key, and which ones of the whole tree are called nearly so."""
    known, (group, _, last) = _keys(schema), key.rpartition(".")
    names = {name.rpartition(".")[2] for name in known}
    close = difflib.get_close_matches(last, names, n=1)
    found = [name for name in known if close and name.rpartition(".")[2] == close[0]]
    found = [name for name in found if name.rpartition(".")[0] == group] or found
    hint = f"did you mean {' or '.join(found)}? " if found else ""
    return f"{key}: unknown key; {hint}--help lists all keys"


def _explained(error: BaseException, schema: type) -> str:
    """Return one line for what Hydra or OmegaConf raises."""
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options:
        group, _, given = error.missing_cfg_file.rpartition("/")
        if group in ("hydra/launcher", "hydra/sweeper"):
            package = f"hydra-{given.partition('_')[0]}-{group.partition('/')[2]}"
            return f"{group}={given}: is not installed; pip install {package} brings it"
        return _unknown_choice(group, given, sorted(error.options))
    found = re.search(
        r"full_key: (\S+)", str(error)
    )  # where OmegaConf adds it to what Python raises
    while not isinstance(error, OmegaConfBaseException) and error.__cause__ is not None:
        error = error.__cause__
    key, first = (
        str(getattr(error, "full_key", "") or (found[1] if found else "")),
        first_line(error),
    )
    if isinstance(error, ConfigAttributeError):
        return _unknown_key(key, schema)
    if isinstance(error, MissingMandatoryValue):
        return f"{key}: is missing; give it as {key}=..."
    if isinstance(error, ValidationError):
        kind = _keys(schema).get(key.split("[")[0])
        words = {
            int: "a whole number",
            float: "a number",
            bool: "true or false",
            str: "text",
            type(None): "null",
        }
        options = get_args(kind) or (kind,)
        takes = " or ".join(words.get(option, str(option)) for option in options)
        return f"{key}: {first}" + (f"; takes {takes}" if kind is not None else "")
    if not isinstance(error, HydraException | OmegaConfBaseException):  # of Python itself
        return f"{key or 'the command line'}: {first or type(error).__name__}"
    if key:
        return f"{key}: {first}"
    return " ".join(str(error).split("\nConfig search path")[0].split())


def _help(name: str, given: list[str]) -> Iterator[str]:
    """Yield what a command does, its groups, and every key with its value here, its bounds and its meaning."""
    _, schema, purpose = COMMANDS[name]
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        composed = hydra.compose(_config_name(name), given)
    seeds = " seeds=3" if schema is TrainConfig else ""
    yield f"{purpose}\n\nUsage: headscope {name} [key=value ...]   (-m for a sweep: key=a,b,c{seeds})\n"
    if groups := _groups(name):
        yield "Groups, chosen as group=name:"
        yield from (f"  {group}: {', '.join(names)}" for group, names in groups.items())
        yield ""
    yield "Keys, with their values in this configuration:"
    for key, default, rule in described(schema()):
        value = "(must be given)" if default == MISSING else repr(OmegaConf.select(composed, key))
        yield f"  {key} = {value}" + (f" [{rule.takes()}]" if rule.takes() else "")
        yield f"      {rule.meaning}"
