"""A small run of version 1.0, kept as it was written: later versions load it (tests/runs/test_kept_run.py).

`python tests/kept_run.py` trains it again and writes tests/runs/kept_1_0; only a new format on purpose needs that.
"""

import csv
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

KEPT = Path(__file__).parent / "runs" / "kept_1_0"
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
    """Train the run in a folder of its own, so that its settings name no place, and keep it."""
    import headscope
    from training_runs import reviews

    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        with Path("reviews.csv").open("w", newline="", encoding="utf-8") as file:
            rows = csv.DictWriter(file, ["text", "label"])
            rows.writeheader()
            rows.writerows(reviews())
        run = headscope.train(SETTINGS)
        shutil.rmtree(KEPT, ignore_errors=True)
        KEPT.mkdir()
        for name in PROMISED:
            shutil.copy(Path("outputs/kept", name), KEPT)
        shutil.copytree("outputs/kept/heads", KEPT / "heads")
        expected = json.dumps(answers(run), indent=1, ensure_ascii=False)
        (KEPT / "answers.json").write_text(expected + "\n", encoding="utf-8")
        os.chdir(KEPT)


if __name__ == "__main__":
    main()
