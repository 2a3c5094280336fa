"""Texts to labels: ours beside a Hugging Face pipeline with a BERT of the same size.

    python benchmarks/predict.py                              # about 4 minutes on one core; needs transformers
    python benchmarks/predict.py --device cuda --size base --texts 10000

Prints a table of texts a second, from texts in memory to probabilities in memory: tokens are cut, batched and read.
The texts are the embedded licence texts; the weights are random, since labels cost the same, right or wrong.
"""

import statistics
from collections.abc import Callable
from functools import partial

import torch
from tokenizers import Tokenizer

from headscope.config import ModelConfig, TokenizerConfig
from headscope.data.batching import encode_texts
from headscope.data.licenses import load_licenses
from headscope.data.tokenizer import CLASS, PADDING, SEPARATOR, UNKNOWN, trained_tokenizer
from headscope.files import cache_folder
from headscope.model.classifier import TextClassifier
from headscope.prediction import probabilities
from headscope.run import TOKENS_PER_BATCH
from side_by_side import (
    SIZES,
    arguments,
    bert_config,
    count,
    in_turn,
    precisions,
    print_page,
    ratio,
    short,
    table,
    transformers,
)

LENGTH, CLASSES, BATCH = (
    256,
    7,
    32,
)  # tokens of the longest text; classes; texts of the pipeline's batch
PIPELINE = f"pipeline, batch of {BATCH}"


def main() -> None:
    """Measure, and print the table."""
    parser = arguments(__doc__)
    parser.add_argument("--texts", type=count, default=400, help="how many: %(default)s by default")
    options = parser.parse_args()
    device, sizes = torch.device(options.device), SIZES[options.size]
    torch.manual_seed(0)
    corpus = load_licenses(cache_folder(None))
    tokenizer = trained_tokenizer(corpus["text"][:], TokenizerConfig(), LENGTH, cache_folder(None))
    texts = corpus.shuffle(seed=0).select(range(min(options.texts, len(corpus))))["text"][:]
    works = peers(sizes, tokenizer, texts, device) | ours(sizes, tokenizer, texts, device)
    taken = in_turn(works, options.rounds, device)
    rows = [
        (name, f"{len(texts) / statistics.median(seconds):.0f}", ratio(taken[PIPELINE], seconds))
        for name, seconds in taken.items()
    ]
    tokens = sum(len(encoding) for encoding in tokenizer.encode_batch_fast(texts))
    print_page(
        "Prediction beside a Hugging Face pipeline",
        device,
        f"{len(texts):,} licence texts, {tokens:,} tokens; width {sizes.d_model}, {sizes.num_layers} layers, "
        f"{sizes.num_heads} heads, feed-forward {sizes.feedforward_size}; median of {options.rounds} rounds in turn; "
        "on a CPU one thread and its own time.",
        table(("", "texts a second", "times as fast as the pipeline"), rows),
    )


def ours(
    sizes: ModelConfig, tokenizer: Tokenizer, texts: list[str], device: torch.device
) -> dict[str, Callable[[], object]]:
    """Return what labels the texts as `predict` does, in each precision."""
    model = TextClassifier(sizes, tokenizer.get_vocab_size(), CLASSES, LENGTH).to(device)
    positions = TOKENS_PER_BATCH.get(device.type, 65536)

    def label(precision: torch.dtype) -> object:
        return probabilities(
            model,
            encode_texts(tokenizer, [(text,) for text in texts]),
            positions,
            device,
            precision,
        )

    return {
        f"headscope, {short(precision)}": partial(label, precision)
        for precision in precisions(device)
    }


def peers(
    sizes: ModelConfig, tokenizer: Tokenizer, texts: list[str], device: torch.device
) -> dict[str, Callable[[], object]]:
    """Return the pipeline on the texts as they come and, as a careful user has them, the longest first."""
    theirs = transformers()
    names = {"pad_token": PADDING, "unk_token": UNKNOWN, "cls_token": CLASS, "sep_token": SEPARATOR}
    copy = Tokenizer.from_str(tokenizer.to_str())  # which the pipeline tells to pad
    fast = theirs.PreTrainedTokenizerFast(tokenizer_object=copy, model_max_length=LENGTH, **names)
    architecture = bert_config(sizes, tokenizer.get_vocab_size(), CLASSES, LENGTH)
    model = theirs.BertForSequenceClassification(architecture).eval()
    classify = theirs.pipeline("text-classification", model=model, tokenizer=fast, device=device)
    ordered = sorted(texts, key=len, reverse=True)
    return {
        PIPELINE: lambda: classify(texts, batch_size=BATCH, truncation=True, top_k=None),
        f"{PIPELINE}, longest first": lambda: classify(
            ordered, batch_size=BATCH, truncation=True, top_k=None
        ),
    }


if __name__ == "__main__":
    main()
