"""What a user would pick instead of scripts/predict.py: a Hugging Face pipeline, from a jsonl file to a jsonl file.

    python -m headscope.benchmark.hugging_face_predict FOLDER INPUT OUTPUT DEVICE TEXTS_PER_BATCH given|sorted

It runs in a process of its own and is timed from its start, so it imports nothing but what such a script needs.
"""

import json
import sys
from pathlib import Path

from transformers import BertForSequenceClassification, PreTrainedTokenizerFast, pipeline


def label_texts(
    folder: Path, source: Path, target: Path, device: str, texts_per_batch: int, is_sorted: bool = False
) -> None:
    """Write a row with label and score for each row's text, in the order of the rows.

    Args:
        folder: where model and tokenizer were saved by save_pretrained.
        source: a jsonl file with the texts in the column text.
        target: the jsonl file to write.
        device: where to compute.
        texts_per_batch: texts that the pipeline pads to the longest of them.
        is_sorted: hand the texts over from the longest to the shortest, by their characters.
    """
    classify = pipeline(
        "text-classification",
        model=BertForSequenceClassification.from_pretrained(folder),
        tokenizer=PreTrainedTokenizerFast.from_pretrained(folder),
        device=device,
    )
    with source.open(encoding="utf-8") as file:
        texts = [json.loads(line)["text"] for line in file]
    order = sorted(range(len(texts)), key=lambda row: -len(texts[row])) if is_sorted else list(range(len(texts)))
    labelled = classify([texts[row] for row in order], batch_size=texts_per_batch, truncation=True)
    found = dict(zip(order, labelled, strict=True))
    with target.open("w", encoding="utf-8") as file:
        for row, text in enumerate(texts):
            file.write(json.dumps({"text": text, **found[row]}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    folder, source, target, device, texts_per_batch, order = sys.argv[1:]
    label_texts(Path(folder), Path(source), Path(target), device, int(texts_per_batch), order == "sorted")
