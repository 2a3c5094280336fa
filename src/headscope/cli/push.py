"""push(config): send a run to the Hub, with a model card made of its metrics."""

import json
import shutil
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from headscope.command_settings import PushConfig
from headscope.config import TrainConfig, is_local
from headscope.files import read_json, write_text
from headscope.hub import FILES, PREFIX, one_line
from headscope.run import load_run
from headscope.run_folder import CONFIG, METRICS
from headscope.terminal import show_line, terminal
from headscope.training.report import HEADLINE
from headscope.training.scores import SCORES
from headscope.validation import to_yaml


def push(config: PushConfig, console: Console | None = None) -> None:
    """Send the files that decide answers, metrics.json and README.md; print where they are.

    Raises:
        RunError: without a token or a connection, or if the Hub refuses.
    """
    from huggingface_hub import HfApi

    run = load_run(config.run)
    name = config.to.removeprefix(PREFIX)
    with tempfile.TemporaryDirectory(prefix="headscope-") as temporary, one_line(f"to={config.to}"):
        folder = Path(temporary)
        for file in FILES:
            if (run.folder / file).is_file():
                shutil.copyfile(run.folder / file, folder / file)
        write_text(folder / CONFIG, to_yaml(asdict(without_paths(run.config))))
        metrics = read_json(folder / METRICS, dict) if (folder / METRICS).exists() else {}
        write_text(folder / "README.md", model_card(name, without_paths(run.config), metrics))
        api = HfApi()
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


def model_card(name: str, config: TrainConfig, metrics: dict[str, Any]) -> str:
    """Return README.md; text of the data stands in JSON, in code blocks."""
    test = metrics.get("test", {})
    rows = [f"| {SCORES[key]} | {test[key]:.4f} |" for key in SCORES if key in test]
    facts = metrics.get("training", {})
    sizes = json.dumps(metrics.get("data", {}).get("sizes", {}))
    labels = json.dumps(metrics.get("labels", []), ensure_ascii=False)
    lines = [
        "---",
        "library_name: headscope",
        "pipeline_tag: text-classification",
        "tags: [text-classification, headscope]",
        "---",
        f"# {name}",
        "",
        f"A text classifier trained by headscope on {json.dumps(config.data.path)}, texts {sizes}.",
        "",
        "    import headscope",
        f'    run = headscope.load("{PREFIX}{name}")',
        '    print(run.predict(["a text"])[0].label)',
        "",
        "| test split | |\n|---|---|",
        *rows,
        "",
        f"    labels: {labels}",
        "",
        str(facts.get(HEADLINE, "")),
    ]
    return "\n".join(lines) + "\n"
