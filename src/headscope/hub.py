"""Run folders on the Hugging Face Hub: `run=hub:user/name`.

Only the files of FILES are sent and fetched: no checkpoint, event file or code, and nothing that is
unpickled. The token is huggingface_hub's own: HF_TOKEN, or that of `hf auth login`.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headscope.errors import RunError, first_line

PREFIX = "hub:"
REPOSITORY = re.compile(r"\w[\w.-]*/\w[\w.-]*", re.ASCII)
FILES = (
    "config.yaml",
    "tokenizer.json",
    "encoder.json",
    "labels.json",
    "evidence.safetensors",
    "model.safetensors",
    "thresholds.json",
    "calibration.json",
    "manifest.json",
    "metrics.json",
)


def is_on_hub(run: str | Path) -> bool:
    """Tell a repository of the Hub, hub:user/name, from a run folder."""
    return str(run).startswith(PREFIX)


def is_repository(name: str) -> bool:
    """Whether a name, with or without hub:, is that of a repository, user/name."""
    return REPOSITORY.fullmatch(name.removeprefix(PREFIX)) is not None


def local_folder(run: str | Path) -> Path:
    """Return a run folder as it is; of hub:user/name the folder in the cache, fetched if needed."""
    if not is_on_hub(run):
        return Path(run)
    from huggingface_hub import snapshot_download

    name = str(run).removeprefix(PREFIX)
    if not is_repository(name):
        raise RunError(f"run={run}: expected hub:user/name")
    with one_line(f"run={run}"):
        folder = Path(snapshot_download(name, allow_patterns=[*FILES]))
    if not (folder / "config.yaml").is_file():
        raise RunError(
            f"run={run}: expected a run that `headscope push` sent, found no config.yaml"
        )
    return folder


@contextmanager
def one_line(what: str) -> Iterator[None]:
    """Turn what huggingface_hub raises into a RunError of one line."""
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HFValidationError,
        LocalTokenNotFoundError,
        RepositoryNotFoundError,
    )

    # Of the library that this version of the client stands on: httpx2, httpx or requests.
    http_error: type[BaseException] = HfHubHTTPError.__mro__[1]
    try:
        yield
    except HFValidationError as error:
        raise RunError(f"{what}: expected hub:user/name; {first_line(error)}") from error
    except RepositoryNotFoundError as error:
        problem = "no such repository, or a private one; for that set HF_TOKEN"
        raise RunError(f"{what}: {problem}") from error
    except LocalTokenNotFoundError as error:
        raise RunError(f"{what}: no token; set HF_TOKEN, or run `hf auth login`") from error
    except HfHubHTTPError as error:
        status = getattr(error.response, "status_code", 0)
        hint = "; set HF_TOKEN to a token that may write" if status in (401, 403) else ""
        raise RunError(f"{what}: {first_line(error)}{hint}") from error
    except (http_error, OSError) as error:
        raise RunError(f"{what}: the Hub cannot be reached: {first_line(error)}") from error
