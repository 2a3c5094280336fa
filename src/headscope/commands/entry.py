"""How every script starts: Hydra composes the configuration, it is checked, and only then is anything heavy imported.

Exit codes: 0 done; 1 it could not be done, such as a loss that is not a number; 2 a mistake in the command, the
configuration or the data; 130 stopped by Ctrl-C.
"""

import json
import os
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from headscope.commands.command_line import prepared
from headscope.commands.messages import explain
from headscope.commands.quick_help import read_configurations_once
from headscope.commands.resume import resumed
from headscope.errors import ConfigError, UserError
from headscope.files import write_whole
from headscope.settings import check, described


def start(run: Callable[[Any], object], schema: type, name: str, configs: Path) -> None:
    """Run a script: compose configs/<name>.yaml and the command line into `schema`, check it, call `run`, and exit.

    Args:
        run: what the script does; imports what is heavy itself.
        schema: the dataclass that the configuration must fit.
        name: of the configuration file.
        configs: folder of the configuration files.
    """
    try:
        sys.argv[1:] = prepared(sys.argv[1:], schema, configs, name)
    except ConfigError as error:
        raise SystemExit(_tell(error)) from None
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors come to us, instead of Hydra's own words and exit code
    warnings.showwarning = lambda message, *_: print(f"note: {message}", file=sys.stderr)
    if {"--help", "-h"} & {*sys.argv[1:]}:
        read_configurations_once()
    store = ConfigStore.instance()
    store.store("schema", schema)
    store.store("headscope", _help(name, run.__doc__ or "", schema), group="hydra/help")
    job = Job(run, schema)
    try:
        hydra.main(version_base="1.3", config_path=str(configs.resolve()), config_name=name)(job)()
    except (HydraException, OmegaConfBaseException) as error:
        raise SystemExit(_tell(ConfigError(explain(error, schema)))) from None
    except BrokenPipeError:  # of `--help | head`
        _let_go_of_output()
    sys.exit(job.exit_code)


class Job:
    """Run one configuration, or each of a sweep's, and remember whether any failed."""

    def __init__(self, run: Callable[[Any], object], schema: type) -> None:
        self.run, self.schema, self.exit_code = run, schema, 0

    def __call__(self, composed: DictConfig) -> None:
        """Check and run; a sweep goes on after a job that fails."""
        folder = _sweep_folder(composed)
        try:
            config = resumed(composed, self.schema) if composed.get("resume") else OmegaConf.to_object(composed)
            check(config)
            self.run(config)
        except KeyboardInterrupt as stop:
            print(f"\ninterrupted: {stop}" if str(stop) else "\ninterrupted", file=sys.stderr)
            raise SystemExit(130) from None
        except BrokenPipeError:
            _let_go_of_output()
        except Exception as error:
            if folder is None and not isinstance(error, UserError | OmegaConfBaseException):
                raise
            self._failed(error, folder)

    def _failed(self, error: Exception, folder: Path | None) -> None:
        if isinstance(error, OmegaConfBaseException):
            error = ConfigError(explain(error, self.schema))
        self.exit_code = max(self.exit_code, _tell(error))
        if folder is not None:
            message = f"{type(error).__name__}: {error}" if not isinstance(error, UserError) else str(error)
            _save(folder / "failure.json", {"message": message.split("\n")[0]})


def _let_go_of_output() -> None:
    """Whoever read our output has seen enough: let what is left of it, and the flush at the end, go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _tell(error: Exception) -> int:
    """Print one message and return the exit code."""
    kind = "error" if isinstance(error, UserError) else f"error: {type(error).__name__}"
    print(f"{kind}: {error}", file=sys.stderr)
    return error.exit_code if isinstance(error, UserError) else 1


def _sweep_folder(composed: DictConfig) -> Path | None:
    """Within a sweep, give the job a folder named after its number and overrides, and write these down."""
    settings = HydraConfig.get()
    if settings.mode != RunMode.MULTIRUN:
        return None
    # Only what differs from job to job: the rest stands on the command line as it is, but that Hydra writes False.
    given = {argument.lower() for argument in sys.argv}
    swept = [override for override in settings.overrides.task if override.lower() not in given]
    name = re.sub(r"[^\w.=,-]+", "_", f"{settings.job.num}-{','.join(swept)}")[:120].rstrip("-,")
    composed.outputs_dir, composed.name = settings.sweep.dir, name
    folder = Path(settings.sweep.dir) / name
    overrides = dict(override.split("=", 1) for override in settings.overrides.task)
    _save(folder / "job.json", {"overrides": overrides})
    return folder


def _save(path: Path, content: dict[str, Any]) -> None:
    write_whole(path, lambda temporary: temporary.write_text(json.dumps(content), encoding="utf-8"))


def _help(name: str, purpose: str, schema: type) -> dict[str, str]:
    """Return Hydra's help page: what the script does, and every key with its type, default and bounds."""
    rows = []
    for key, default, rule in described(schema()):
        bounds = f" [{rule.takes()}]" if rule.takes() else ""
        rows.append(f"  {key} = {default!r}{bounds}\n      {rule.meaning}")
    keys = "\n".join(rows).replace("$", "$$").replace("'???'", "(must be given)")
    template = f"""{purpose}

Usage: python scripts/{name}.py [key=value ...]   (-m for a sweep: key=a,b,c)

Ready groups, chosen as group=name:
$APP_CONFIG_GROUPS
Keys, with their defaults before groups:
{keys}

This configuration:
$CONFIG"""
    return {"app_name": "headscope", "header": "", "footer": "", "template": template}
