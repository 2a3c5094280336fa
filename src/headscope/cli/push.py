"""push(config): send a run to the Hub, with a model card of its metrics, and its live page."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from PIL import Image
from pydantic import TypeAdapter
from rich.console import Console

from headscope.command_settings import PushConfig
from headscope.config import TrainConfig, is_local
from headscope.errors import LivePageError, warn
from headscope.files import read_json, reading, write_text
from headscope.hub import FILES, PREFIX, one_line
from headscope.live.page import live_html
from headscope.manifest import METRICS
from headscope.run import Run, load_run
from headscope.run_folder import CONFIG
from headscope.tab.page import write_page
from headscope.tab.pictures import effects_picture
from headscope.tab.summaries import literal
from headscope.terminal import show_line, terminal
from headscope.training.report import ABLATION, HEADLINE
from headscope.training.scores import SCORES
from headscope.validation import to_yaml

PICTURE = "heads.png"
PAGE = "page.html"
SPLITS = ("train", "validation", "test")


def push(config: PushConfig, console: Console | None = None) -> None:
    """Send the files that decide answers, metrics.json, and what people read; print where they are.

    Raises:
        RunError: without a token or a connection, or if the Hub refuses.
    """
    from huggingface_hub import HfApi

    run = load_run(config.run)
    name = config.to.removeprefix(PREFIX)
    with tempfile.TemporaryDirectory(prefix="headscope-") as temporary:
        folder = Path(temporary)
        for file in FILES:
            if (run.folder / file).is_file():
                shutil.copyfile(run.folder / file, folder / file)
        write_text(folder / CONFIG, to_yaml(asdict(without_paths(run.config))))
        metrics = read_json(folder / METRICS, dict) if (folder / METRICS).exists() else {}
        lines = [*model_card(name, without_paths(run.config), metrics)]
        lines += [*write_picture(folder, metrics), *write_live_page(folder, run)]
        write_text(folder / "README.md", "\n".join(lines) + "\n")
        api = HfApi()
        with one_line(f"to={config.to}"):
            api.create_repo(name, private=config.private, exist_ok=True)
            api.upload_folder(repo_id=name, folder_path=folder, commit_message="headscope push")
    show_line(terminal(console), f"pushed; use it: run={PREFIX}{name}")


def without_paths(config: TrainConfig) -> TrainConfig:
    """Return the settings with the name of a local file or folder in place of its whole path."""

    def shortened(group: Any, *keys: str) -> Any:
        values = {key: getattr(group, key) for key in keys}
        names = {
            key: Path(value).name if value and is_local(value) else value
            for key, value in values.items()
        }
        return replace(group, **names)

    return replace(
        config,
        name=None,
        outputs_dir="outputs",
        resume=None,
        data=replace(
            shortened(config.data, "path", "validation_path", "test_path", "drop_rows"),
            cache_dir=None,
        ),
        model=shortened(config.model, "path"),
        inspection=replace(config.inspection, font=None),
    )


def model_card(name: str, config: TrainConfig, metrics: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of README.md; text of the data stands in a code block, or escaped."""
    sizes = metrics.get("data", {}).get("sizes", {})
    counts = ", ".join(f"{sizes[role]} {role}" for role in SPLITS if role in sizes)
    labels = json.dumps(metrics.get("labels", []), ensure_ascii=False)
    yield from [
        "---",
        "library_name: headscope",
        "pipeline_tag: text-classification",
        "tags: [text-classification, headscope]",
        "---",
        f"# {name}",
        "",
        f"A text classifier trained by headscope on {literal(config.data.path)}"
        + (f": {counts} texts." if counts else "."),
        "",
        "    import headscope",
        f'    run = headscope.load("{PREFIX}{name}")',
        '    print(run.predict(["a text"])[0].label)',
        "",
        f"    labels: {labels}",
        "",
        *score_rows(metrics),
        "",
        literal(str(metrics.get("training", {}).get(HEADLINE, ""))),
    ]


def score_rows(metrics: dict[str, Any]) -> list[str]:
    """Return a table of the scores on the test split, beside those of the baseline."""
    columns = {"test split": metrics.get("test", {})}
    if baseline := metrics.get("baseline"):
        columns[literal(baseline["name"])] = baseline
    rows = [f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for key, name in SCORES.items():
        found = [scores.get(key) for scores in columns.values()]
        if found[0] is not None:
            cells = ["" if value is None else f"{value:.4f}" for value in found]
            rows.append(f"| {name} | {' | '.join(cells)} |")
    return rows if len(rows) > 2 else []


def write_picture(folder: Path, metrics: dict[str, Any]) -> list[str]:
    """Write heads.png, if the run ablated its heads; return lines that show it."""
    if (effects := metrics.get("training", {}).get(ABLATION)) is None:
        return []
    with reading(folder / METRICS):
        heads = TypeAdapter(dict[str, tuple[float, float]]).validate_python(effects["heads"])
    Image.fromarray(effects_picture(heads)).save(folder / PICTURE)
    texts = int(effects["texts"])
    return ["", f"![What each head does to the loss, over {texts} validation texts]({PICTURE})"]


def write_live_page(folder: Path, run: Run) -> list[str]:
    """Write page.html, without a text of the data, if the network runs in it; return its link."""
    try:
        content = live_html(run, dtype="float16")
    except LivePageError as error:
        warn(f"no {PAGE} is pushed: {error}")
        return []
    write_page(folder / PAGE, content)
    return ["", f"Download [{PAGE}]({PAGE}) and open it: type a text, see every head decide."]
