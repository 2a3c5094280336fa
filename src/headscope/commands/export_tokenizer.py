"""What AutoTokenizer of `transformers` must be told beside tokenizer.json to give the ids that we do."""

from typing import Any

from tokenizers import Tokenizer

from headscope.training.study import special_tokens

# What checkpoints of BERT's family call these; those around a text are asked of the tokenizer itself.
NAMES = {"pad_token": ("[PAD]", "<pad>"), "unk_token": ("[UNK]", "<unk>"), "mask_token": ("[MASK]", "<mask>")}


def tokenizer_settings(tokenizer: Tokenizer, max_positions: int, with_types: bool) -> dict[str, Any]:
    """Return tokenizer_config.json.

    Texts are cut where ours are, if asked (`truncation=True`). The letters "[SEP]" in a text stay letters, as they are
    here: split_special_tokens says so. A tokenizer without a token to pad with pads with the one that ends a text, as
    what stands at padding is hidden.

    Args:
        tokenizer: of the run.
        max_positions: most tokens that the network takes, where the tokenizer does not cut shorter.
        with_types: whether the network tells the texts of a pair apart by their token types.
    """
    around = [tokenizer.id_to_token(number) for number in special_tokens(tokenizer).fixed]
    known = {
        role: next((name for name in names if tokenizer.token_to_id(name) is not None), None)
        for role, names in NAMES.items()
    }
    named = {"cls_token": around[0], "sep_token": around[-1], "pad_token": around[-1]}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",  # reads tokenizer.json as it is, whatever the family
        "model_max_length": (tokenizer.truncation or {"max_length": max_positions})["max_length"],
        "model_input_names": ["input_ids", *(["token_type_ids"] if with_types else []), "attention_mask"],
        "padding_side": "right",
        "truncation_side": "right",
        "split_special_tokens": True,
        "clean_up_tokenization_spaces": False,
        **named,
        **{role: name for role, name in known.items() if name is not None},
    }
