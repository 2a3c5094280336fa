"""The command `headscope`: settings are composed and checked before anything heavy is imported.

Exit codes: 0 done; 1 it could not be done, such as a NaN loss; 2 a mistake in the command, the
configuration or the data; 128 + the number of a signal: 130 Ctrl-C, 143 SIGTERM.
"""

import io
import os
import pkgutil
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import yaml

from headscope import __version__
from headscope.cli.compose import CommandLine, checked, compose, groups, parse, starting
from headscope.cli.sweep import run_sweep
from headscope.ground.errors import (
    ConfigError,
    UserError,
    did_you_mean,
    print_error,
    refused_by_machine,
    warnings_as_notes,
)
from headscope.ground.signals import end, signals_taken
from headscope.settings.checks import flatten, keys, literal, takes
from headscope.settings.commands import (
    EvaluateConfig,
    ExportConfig,
    InspectConfig,
    LabelsConfig,
    PageConfig,
    PredictConfig,
    ReportConfig,
    TraceConfig,
    TuneConfig,
    VerifyConfig,
)
from headscope.settings.config import TrainConfig


class Command(NamedTuple):
    """A command: the function that it calls, by its import path, its settings and its purpose."""

    function: str
    schema: type
    purpose: str


COMMANDS = {
    "train": Command(
        "headscope.training.train:train",
        TrainConfig,
        "Train a Transformer text classifier and record what every attention head does.",
    ),
    "tune": Command(
        "headscope.cli.tune:tune",
        TuneConfig,
        "Search for good settings: Optuna proposes, trains, and prunes what is hopeless.",
    ),
    "evaluate": Command(
        "headscope.cli.evaluate:evaluate",
        EvaluateConfig,
        "Score a finished run on its test split, or on other data with the same labels.",
    ),
    "predict": Command(
        "headscope.cli.predict:predict",
        PredictConfig,
        "Label texts with a finished run, in order, whatever the file's size.",
    ),
    "labels": Command(
        "headscope.cli.labels:labels",
        LabelsConfig,
        "Find training texts whose label is probably wrong.",
    ),
    "inspect": Command(
        "headscope.cli.inspect:inspect",
        InspectConfig,
        "Show what every attention head does with one text, or over a sample of texts.",
    ),
    "page": Command(
        "headscope.cli.page:page",
        PageConfig,
        "Write a page on which you type a text and see every head decide, without a server.",
    ),
    "report": Command(
        "headscope.cli.page:report",
        ReportConfig,
        "Write what a run learned over many texts: words of each class and head, every text.",
    ),
    "verify": Command(
        "headscope.proof.verify:verify",
        VerifyConfig,
        "Check the attention against torch and independent implementations.",
    ),
    "trace": Command(
        "headscope.proof.trace:trace_attention",
        TraceConfig,
        "Print multi-head attention step by step: shapes, values, cost and time.",
    ),
    "export": Command(
        "headscope.cli.export:export",
        ExportConfig,
        "Write a run as ONNX, with a front end that needs no torch.",
    ),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `headscope <command> [key=value ...]`, by default that of the process, and exit."""
    name, *words = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a log may lack a letter of a class name
            stream.reconfigure(errors="backslashreplace")
    warnings_as_notes()
    try:
        if name in ("--help", "-h"):
            print("Usage: headscope <command> [key=value ...]\n")
            for command, (*_, purpose) in COMMANDS.items():
                print(f"  {command:10}{purpose}")
            print("\nheadscope <command> --help lists its keys; headscope --version.")
        elif "--version" in (name, *words):
            print(f"headscope {__version__}")
        elif name in COMMANDS:
            sys.exit(run(name, words))
        else:
            close = did_you_mean(name, (*COMMANDS, "--help", "--version"))
            hint = f"; did you mean {close}?" if close else ""
            raise ConfigError(f"expected one of {', '.join(COMMANDS)}, got {name!r}{hint}")
    except UserError as error:
        sys.exit(print_error(error))
    except BrokenPipeError:  # of `| head`: the rest of the output goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        if refused_by_machine(error) is None:
            raise
        sys.exit(print_error(error))


def run(name: str, words: Sequence[str]) -> int:
    """Do what the words after a command say, and return the exit code."""
    function, schema, _ = COMMANDS[name]
    line = parse(words, schema)
    if "TORCHELASTIC_RUN_ID" in os.environ and (name != "train" or "--multirun" in line.options):
        raise ConfigError("torchrun: expected one run of train, no sweep and no other command")
    if "--multirun" in line.options:
        if name != "train":
            raise ConfigError(
                f"--multirun: expected `train`, got `{name}`; other commands run once"
            )
        return run_sweep(line)
    is_plain_help = "--help" in line.options and not line.overrides  # of the defaults, at once
    content = {} if is_plain_help else compose(line)
    if "--help" in line.options:
        print("\n".join(help_of(name, line, content)))
    elif "--cfg" in line.options:
        print(yaml.safe_dump(content, allow_unicode=True, sort_keys=False), end="")
    else:
        config = checked(schema, content, line.overrides)
        with signals_taken(end), starting(config):
            call = pkgutil.resolve_name(function)
        call(config)
    return 0


def help_of(name: str, line: CommandLine, content: dict[str, Any]) -> Iterator[str]:
    """Yield what a command does, its groups, and every key with its value, bounds and meaning."""
    yield f"{COMMANDS[name].purpose}\n\nUsage: headscope {name} [key=value ...]"
    if name == "train":
        yield "       headscope train -m key=a,b,c 'seed=range(3)'    a sweep: every combination"
    yield ""
    if choices := groups(line.schema):
        yield "Groups, chosen as group=name:"
        yield from (f"  {group}: {', '.join(names)}" for group, names in choices.items())
        yield ""
    yield "Keys, with their values in this configuration:"
    entries = keys(line.schema)
    defaults = {key: entry["default"] for key, entry in entries.items() if "default" in entry}
    values = defaults | flatten(content)
    for key, entry in entries.items():
        if "#/$defs/" not in str(entry):  # no group
            value = literal(values[key]) if key in values else "(must be given)"
            kind = takes(entry)
            bounds = "" if kind.startswith(("text", "true")) else f" [{kind}]"
            yield f"  {key} = {value}{bounds}"
            yield f"      {entry['description']}"
