"""The command `headscope`: settings are composed and checked before anything heavy is imported.

Exit codes: 0 done; 1 it could not be done, such as a NaN loss; 2 a mistake in the command, the
configuration or the data; 128 + the number of a signal: 130 Ctrl-C, 143 SIGTERM.
"""

import gc
import io
import os
import pkgutil
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from headscope import __version__
from headscope.cli.compose import (
    CommandLine,
    check_code,
    compose,
    groups,
    parse,
    starting,
    unknown_choice,
)
from headscope.cli.sweep import run_sweep
from headscope.data.rows import check_first_row
from headscope.ground.errors import (
    ConfigError,
    UserError,
    print_error,
    refused_by_machine,
    warnings_as_notes,
)
from headscope.ground.signals import end, signals_taken
from headscope.settings import commands
from headscope.settings.checks import check, flatten, keys, literal, takes, validate
from headscope.settings.config import TrainConfig

# Of each command the function that it calls, by its import path, and its settings.
COMMANDS: dict[str, tuple[str, type]] = {
    "train": ("headscope.training.train:train", TrainConfig),
    "evaluate": ("headscope.cli.evaluate:evaluate", commands.EvaluateConfig),
    "predict": ("headscope.cli.predict:predict", commands.PredictConfig),
    "labels": ("headscope.cli.labels:labels", commands.LabelsConfig),
    "inspect": ("headscope.cli.inspect:inspect", commands.InspectConfig),
    "page": ("headscope.cli.pages:page", commands.PageConfig),
    "report": ("headscope.cli.pages:report", commands.ReportConfig),
    "verify": ("headscope.proof.verify:verify", commands.VerifyConfig),
    "trace": ("headscope.proof.trace:trace_attention", commands.TraceConfig),
    "export": ("headscope.export.graph:export", commands.ExportConfig),
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
            for command, (_, schema) in COMMANDS.items():
                print(f"  {command:10}{schema.__doc__}")
            print("\nheadscope <command> --help lists its keys; headscope --version.")
        elif "--version" in (name, *words):
            print(f"headscope {__version__}")
        elif name in COMMANDS:
            sys.exit(run(name, words))
        else:
            raise ConfigError(unknown_choice("command", name, [*COMMANDS, "--help", "--version"]))
    except BrokenPipeError:  # of `| head`: the rest of the output goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        if not isinstance(error, UserError) and refused_by_machine(error) is None:
            raise
        sys.exit(print_error(error))


def run(name: str, words: Sequence[str]) -> int:
    """Do what the words after a command say, and return the exit code."""
    function, schema = COMMANDS[name]
    line = parse(words, schema)
    is_sweep = "--multirun" in line.options
    if "TORCHELASTIC_RUN_ID" in os.environ and (name != "train" or is_sweep):
        raise ConfigError("torchrun: expected one run of train, no sweep and no other command")
    if is_sweep and name != "train":
        raise ConfigError(f"--multirun: expected `train`, got `{name}`; other commands run once")
    if is_sweep:
        return run_sweep(line)
    is_plain_help = "--help" in line.options and not line.overrides  # of the defaults, at once
    content = {} if is_plain_help else compose(line)
    if "--help" in line.options:
        print("\n".join(help_of(name, line, content)))
    elif "--cfg" in line.options:
        print(yaml.safe_dump(content, allow_unicode=True, sort_keys=False), end="")
    else:
        check_code(line, content)
        config: Any = validate(schema, content)
        check(config)
        if isinstance(config, TrainConfig) and config.resume is None:
            check_first_row(config.data)
        with signals_taken(end), starting(config):
            call = pkgutil.resolve_name(function)
        gc.freeze()  # what is imported stays: no collection needs to look at it again
        call(config)
    return 0


def help_of(name: str, line: CommandLine, content: dict[str, Any]) -> Iterator[str]:
    """Yield what a command does, its groups, and every key with its value, bounds and meaning."""
    yield f"{line.schema.__doc__}\n\nUsage: headscope {name} [key=value ...]"
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
            bounds = "" if kind.startswith(("string", "boolean")) else f" [{kind}]"
            yield f"  {key} = {value}{bounds}"
            yield f"      {entry['description']}"
