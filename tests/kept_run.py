"""Small runs of version 1.0, kept as they were written: later versions load them (tests/runs/test_kept_run.py).

`python tests/kept_run.py` trains them again, with the code of 1.0, and writes tests/runs/kept_1_0 and, of each run on a
checkpoint, its one file below tests/runs/kept_1_0_pretrained; only a new format on purpose needs that.
"""

import csv
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

KEPT = Path(__file__).parent / "runs" / "kept_1_0"
KEPT_PRETRAINED = Path(__file__).parent / "runs" / "kept_1_0_pretrained"
TEXTS = ["a lovely warm day", "the film was awful", "", "unheard words"]
# Of the rest of a run nothing is promised: states of training, TensorBoard's files, pages.
PROMISED = ["model.safetensors", "metrics.json", "config.yaml", "tokenizer.json", "labels.json"]
SETTINGS = {
    "data": "files",
    "data.path": "reviews.csv",
    "data.text_column": "text",
    "data.label_column": "label",
    "name": "kept",
    "model.d_model": 16,
    "model.num_heads": 2,
    "model.num_layers": 2,
    "model.feedforward_size": 16,
    "trainer.accelerator": "cpu",
    "trainer.progress": False,
    "inspection.num_probes": 2,
}
# Of each run on a checkpoint the family, and what differs from SETTINGS.
PRETRAINED: dict[str, tuple[str, dict[str, Any]]] = {
    "path_bert": ("bert", {}),
    "path_roberta": ("roberta", {}),
    "features_bert": ("bert", {"model.features_layer": 2, "model.members": 1}),
    "members_bert": ("bert", {"model.features_layer": [1, 3], "model.members": 2}),
    "features_modernbert": ("modernbert", {"model.features_layer": 2, "model.members": 1}),
}
SMALL = {"hidden_size": 12, "intermediate_size": 14}  # of the checkpoints


def answers(run: Any) -> list[dict[str, Any]]:
    """Return what a run answers to TEXTS, to be compared."""
    found = []
    for text, prediction in zip(TEXTS, run.predict(TEXTS), strict=True):
        explanation = run.explain(text)
        words = [[name, round(number, 5)] for name, number in explanation.ranked_words()]
        found.append(
            {
                "label": prediction.label,
                "probabilities": prediction.probabilities,
                "log_odds": explanation.log_odds,
                "words": sorted(words),
            }
        )
    return found


def main() -> None:
    """Train each run in a folder of its own, so that its settings name no place, and keep it."""
    import headscope

    with _folder_of_reviews():
        run = headscope.train(SETTINGS)
        _keep(run, KEPT, PROMISED)
        shutil.copytree("outputs/kept/heads", KEPT / "heads")
    for name in PRETRAINED:
        with _folder_of_reviews() as texts:
            run = headscope.train(_on_checkpoint(name, texts))
            _keep(run, KEPT_PRETRAINED / name, PROMISED[:1])


@contextmanager
def _folder_of_reviews() -> Iterator[list[str]]:
    """Be in a new folder with reviews.csv, and yield its texts."""
    from training_runs import reviews

    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        with Path("reviews.csv").open("w", newline="", encoding="utf-8") as file:
            rows = csv.DictWriter(file, ["text", "label"])
            rows.writeheader()
            rows.writerows(reviews())
        yield [row["text"] for row in reviews()]
        os.chdir(Path(__file__).parent)  # before the folder goes


def _on_checkpoint(name: str, texts: list[str]) -> dict[str, Any]:
    """Return the settings of a run on a new checkpoint."""
    from bert_family import write_checkpoint

    family, options = PRETRAINED[name]
    write_checkpoint(Path("checkpoint"), family, texts, **SMALL)
    own = {key: value for key, value in SETTINGS.items() if not key.startswith("model.")}
    own |= {"optimizer.learning_rate": 1e-2, "inspection.enabled": False, "baseline": False}
    if not options:
        return own | {"model.path": "checkpoint", "model.evidence": False}
    return SETTINGS | own | options | {"model.features": "checkpoint"}


def _keep(run: Any, folder: Path, names: list[str]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in names:
        shutil.copy(Path("outputs/kept", name), folder)
    expected = json.dumps(answers(run), indent=1, ensure_ascii=False)
    (folder / "answers.json").write_text(expected + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
