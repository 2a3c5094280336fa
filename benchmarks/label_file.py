"""Label a file as one of predict.py's peers does, in a process that imports what the peer needs.

python benchmarks/label_file.py pipeline|sorted|fasttext|tfidf MODEL texts.jsonl > labels
"""

import json
import pickle
import sys
from pathlib import Path
from typing import Any

BATCH = 32  # texts of the pipeline's batch


def main(kind: str, model: str, source: str) -> None:
    """Write the label of each text."""
    with Path(source).open(encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in lines]
    labels: list[Any]
    if kind == "tfidf":
        labels = [*pickle.loads(Path(model).read_bytes()).predict(texts)]
    elif kind == "fasttext":
        import fasttext

        classify = fasttext.load_model(model).f
        cleaned = (" ".join(text.split()) + "\n" for text in texts)
        # Its own `predict` fails with NumPy 2.
        labels = [classify.predict(text, 1, 0.0, "strict") for text in cleaned]
    else:
        import transformers

        transformers.logging.set_verbosity_error()
        pipeline = transformers.pipeline("text-classification", model=model, device="cpu")
        order = sorted(texts, key=len, reverse=True) if kind == "sorted" else texts
        labels = [*pipeline(order, batch_size=BATCH, truncation=True, top_k=None)]
    sys.stdout.writelines(f"{label!r}\n" for label in labels)


if __name__ == "__main__":
    main(*sys.argv[1:])
