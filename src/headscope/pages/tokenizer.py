"""What tokenizer.js needs to cut a text as a tokenizer does; a part that it has no code for is named.

A tokenizer is its normalizer, pre-tokenizer, model and post-processor (huggingface.co/docs/tokenizers).
Which characters are letters, marks or signs, and what each becomes, is asked of the tokenizer: a
browser may have another version of Unicode.
"""

import json
import re
from collections.abc import Callable, Collection
from functools import cache
from typing import Any

from tokenizers import Tokenizer, normalizers, pre_tokenizers

from headscope.data.ngrams import CHARACTERS
from headscope.data.tokenizer import (
    LANGUAGES,
    LETTER,
    SPACES,
    UNIT,
    UNSPACED,
    copied,
    is_hidden,
    phrase_parser,
    unknown_ids,
)
from headscope.ground.errors import LivePageError, listed
from headscope.ground.mecab import write_tokenizer_json

Part = dict[str, Any]  # of a tokenizer.json
# Code points to ask about. Surrogates are none, planes 4 to 13 are unassigned, 15 and 16 private:
# what holds of both ends of such a gap holds within it.
CODES = [*range(0xD800), *range(0xE000, 0x40000), *range(0xE0000, 0xE1000)]
CODES += [0xF0000, 0xFFFFD, 0xFFFFE, 0xFFFFF, 0x100000, 0x10FFFD, 0x10FFFE, 0x10FFFF]
LAST_MARK = "\u0345"  # no mark comes after it
UNKNOWN_PENALTY = 10  # below the least score of a Unigram
BYTES = pre_tokenizers.ByteLevel.alphabet()


def page_tokenizer(
    tokenizer: Tokenizer, max_length: int, kept: Collection[int] | None = None
) -> dict[str, Any]:
    """Return what the page needs to cut a text or pair into the same tokens at the same places.

    Args:
        tokenizer: one that reads the letters of a special token as letters.
        max_length: tokens of a text or pair, special ones counted.
        kept: the ids that are handed over, with those that any text needs: special tokens, single
            characters, and what merges make the kept ones of. A text of kept tokens is cut into
            them; all of them by default.

    Returns:
        `pieces`: the vocabulary. Its rows are the page's ids; `ids` are the tokenizer's.

    Raises:
        LivePageError: if a part of the tokenizer is none that the page has code for.
    """
    parts = json.loads(write_tokenizer_json(tokenizer))
    model = parts["model"]
    normalizer = _steps("normalizer", parts["normalizer"], NORMALIZERS)
    pre_tokenizer = _steps("pre_tokenizer", parts["pre_tokenizer"], PRE_TOKENIZERS)
    _check_model(model, pre_tokenizer)
    pieces = _pieces(parts)
    ids = sorted(pieces if kept is None else _needed(parts, pieces, kept))
    rows = {number: row for row, number in enumerate(ids)}
    plain = copied(tokenizer)
    plain.no_truncation()
    plain.no_padding()
    return {
        "pieces": [pieces[number] for number in ids],
        "ids": ids,
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "model": MODELS[model["type"]](model, rows) | _outside(model, pieces, rows),
        "added": _added(parts["added_tokens"], rows),
        "template": [_template(plain, texts, rows) for texts in (("a",), ("a", "a"))],
        "trim": _trim(parts["post_processor"]),
        "unknown": [rows[number] for number in unknown_ids(tokenizer) if number in rows],
        "max_length": max_length,
        "lower": _lower_cases(),
        "characters": CHARACTERS,
        "hidden": _hidden(),
        "units": _units(),
    }


def _steps(name: str, part: Part | None, known: dict[str, Callable[[Part], list[Part]]]) -> list[Part]:
    """Return a normalizer or pre-tokenizer as steps of normalize.js or subwords.js."""
    if part is None:
        return []
    kind = part["type"]
    if kind == "Sequence" and not _cuts_at_signs(part):
        inner = part.get("normalizers") or part.get("pretokenizers") or []
        return [step for each in inner for step in _steps(name, each, known)]
    if kind not in known:
        raise _unknown(name, [*known], kind)
    return known[kind](part)


def _unknown(name: str, expected: Collection[Any], found: Any) -> LivePageError:
    return LivePageError(f"tokenizer: {name}: expected {listed([*expected])}, got {found}")


# --- normalizers ---


def _bert_normalizer(part: Part) -> list[Part]:
    steps: list[Part] = []
    if part["clean_text"]:
        steps += [{"type": "Remove", "characters": _removed(True)}, {"type": "Spaces"}]
    if part["handle_chinese_chars"]:
        steps.append({"type": "Apart", "characters": _set_apart()})
    if part["lowercase"] if part["strip_accents"] is None else part["strip_accents"]:
        steps += [_form("NFD"), {"type": "Remove", "characters": _removed(False)}]
    return steps + [{"type": "Lowercase"}] * part["lowercase"]


def _replace(part: Part) -> list[Part]:
    """Return the step of a Replace: of a text, or of spaces in a row."""
    ((kind, pattern),) = part["pattern"].items()
    spaces = re.fullmatch(r"( |\\s)(\+|\{\d+,\d*\})", pattern)
    if kind == "String":
        pattern = _escaped(pattern)
    elif spaces:
        letters = " " if spaces[1] == " " else SPACES
        pattern = f"[{_escaped(letters)}]{spaces[2]}"
    else:
        raise _unknown("normalizer: Replace", [r" {2,}", r"\s+"], pattern)
    return [{"type": "Replace", "pattern": pattern, "content": part["content"]}]


def _escaped(text: str) -> str:
    return "".join(f"\\u{{{ord(character):x}}}" for character in text)


def _form(name: str) -> Part:
    """Return the step of NFC, NFD, NFKC or NFKD."""
    apart = "NFKD" if "K" in name else "NFD"
    return {"type": "Form", "form": name, "decomposed": _changed(apart), "marks": _marks()}


NORMALIZERS: dict[str, Callable[[Part], list[Part]]] = {
    "BertNormalizer": _bert_normalizer,
    "Lowercase": lambda part: [part],
    "NFC": lambda part: [_form("NFC")],
    "NFD": lambda part: [_form("NFD")],
    "NFKC": lambda part: [_form("NFKC")],
    "NFKD": lambda part: [_form("NFKD")],
    "Precompiled": lambda part: [
        {"type": "Precompiled", "charsmap": part["precompiled_charsmap"]}
    ],
    "Prepend": lambda part: [{"type": "Prepend", "text": part["prepend"]}],
    "Replace": _replace,
    "Strip": lambda part: [
        {"type": "Strip", "left": part["strip_left"], "right": part["strip_right"]}
    ],
}


@cache
def _removed(controls: bool) -> list[int]:
    """Return what BERT's normalizer removes: control characters, or the accents of letters."""
    normalizer = normalizers.BertNormalizer(controls, False, not controls, False)
    return _ranges(lambda character: normalizer.normalize_str(character) == "")


@cache
def _set_apart() -> list[int]:
    """Return the characters that BERT's normalizer sets between spaces: Chinese ones."""
    normalizer = normalizers.BertNormalizer(False, True, False, False)
    return _ranges(lambda character: len(normalizer.normalize_str(character)) == 3)


@cache
def _changed(form: str) -> list[int]:
    """Return the characters that a normal form changes."""
    normalizer = getattr(normalizers, form)()
    return _ranges(lambda character: normalizer.normalize_str(character) != character)


@cache
def _marks() -> list[int]:
    """Return the marks that a normal form puts in order."""
    order = normalizers.NFD().normalize_str
    return _ranges(lambda mark: order(LAST_MARK + mark)[0] != LAST_MARK or mark == LAST_MARK)


@cache
def _lower_cases() -> list[str]:
    """Return each code point that has a lower case, followed by it."""
    normalizer = normalizers.Lowercase()
    characters = map(chr, CODES)
    lowered = ((character, normalizer.normalize_str(character)) for character in characters)
    return [character + lower for character, lower in lowered if lower != character]


# --- pre-tokenizers ---


def _cuts_at_signs(part: Part) -> bool:
    """Tell whether this is the pre-tokenizer of `tokenizer=words`."""
    steps = [(step["type"], step.get("behavior")) for step in part.get("pretokenizers", [])]
    return steps == [("Split", "Removed"), ("Split", "Isolated")]


def _words(part: Part, letters: str = "a") -> list[Part]:
    return [{"type": "Words", "joins": [_joined(json.dumps(part), letter) for letter in letters]}]


def _byte_level(part: Part) -> list[Part]:
    own = json.dumps(part | {"add_prefix_space": False})
    classes = [_joined(own, letter) for letter in "a1"] if part["use_regex"] else None
    return [{"type": "ByteLevel", "prefix": part["add_prefix_space"], "classes": classes}]


def _metaspace(part: Part) -> list[Part]:
    own = {"scheme": part["prepend_scheme"], "split": part["split"]}
    return [{"type": "Metaspace", "replacement": part["replacement"], **own}]


PRE_TOKENIZERS: dict[str, Callable[[Part], list[Part]]] = {
    "BertPreTokenizer": _words,
    "ByteLevel": _byte_level,
    "Metaspace": _metaspace,
    "Sequence": lambda part: _words(part, "aア"),
    "WhitespaceSplit": _words,
}


@cache
def _joined(part: str, letter: str) -> list[int]:
    """Return the characters that a pre-tokenizer does not cut from a letter before them."""
    model = {"type": "WordLevel", "vocab": {"": 0}, "unk_token": ""}
    whole = {"version": "1.0", "added_tokens": [], "model": model, "pre_tokenizer": json.loads(part)}
    cut = Tokenizer.from_str(json.dumps(whole)).pre_tokenizer.pre_tokenize_str
    return _ranges(lambda character: cut(letter + character)[0][1] == (0, 2))


# --- models ---


def _check_model(model: Part, pre_tokenizer: list[Part]) -> None:
    """Raise a LivePageError for a model that the page has no code for."""
    kind = model["type"]
    if kind not in MODELS:
        raise _unknown("model", [*MODELS], kind)
    for key in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"):
        if kind == "BPE" and model.get(key):
            raise _unknown(f"model: {key}", ["none"], model[key])
    is_byte_level = any(step["type"] == "ByteLevel" for step in pre_tokenizer)
    if kind == "BPE" and not (is_byte_level and model["vocab"].keys() >= {*BYTES}):
        raise LivePageError("tokenizer: model: expected a BPE of all 256 bytes, got another BPE")
    if kind == "Unigram" and model["unk_id"] is None:
        raise _unknown("model: unk_id", ["the id of a piece"], None)


def _word_level(model: Part, rows: dict[int, int]) -> Part:
    return {"type": "WordLevel", "unknown": rows[model["vocab"][model["unk_token"]]]}


def _word_piece(model: Part, rows: dict[int, int]) -> Part:
    return {
        "type": "WordPiece",
        "unknown": rows[model["vocab"][model["unk_token"]]],
        "prefix": model["continuing_subword_prefix"],
        "most": model["max_input_chars_per_word"],
    }


def _byte_pairs(model: Part, rows: dict[int, int]) -> Part:
    ids = model["vocab"]
    merges = [[ids[first], ids[second], ids[first + second]] for first, second in model["merges"]]
    known = [[rows[each] for each in merge] for merge in merges if rows.keys() >= {*merge}]
    flat = [row for merge in known for row in merge]
    return {"type": "BPE", "merges": flat, "whole": model["ignore_merges"]}


def _unigram(model: Part, rows: dict[int, int]) -> Part:
    scores = [score for _, score in model["vocab"]]
    ids = {piece: number for number, (piece, _) in enumerate(model["vocab"])}
    names = [f"<0x{byte:02X}>" for byte in range(256)] if model["byte_fallback"] else []
    if not ids.keys() >= {*names}:
        raise _unknown("model: byte_fallback", ["a piece for each byte"], "fewer")
    return {
        "type": "Unigram",
        "scores": [scores[number] if number < len(scores) else 0.0 for number in rows],
        "unknown": rows[model["unk_id"]],
        "unknown_score": min(scores) - UNKNOWN_PENALTY,
        "bytes": [rows[ids[name]] for name in names] or None,
    }


MODELS: dict[str, Callable[[Part, dict[int, int]], Part]] = {
    "BPE": _byte_pairs,
    "Unigram": _unigram,
    "WordLevel": _word_level,
    "WordPiece": _word_piece,
}


def _own_pieces(model: Part) -> dict[int, str]:
    """Return the pieces of a model by their ids."""
    vocabulary = model["vocab"]
    if isinstance(vocabulary, list):
        return {number: piece for number, (piece, _) in enumerate(vocabulary)}
    return {number: piece for piece, number in vocabulary.items()}


def _pieces(parts: Part) -> dict[int, str]:
    """Return all pieces by their ids."""
    added = {token["id"]: token["content"] for token in parts["added_tokens"]}
    return _own_pieces(parts["model"]) | added


def _outside(model: Part, pieces: dict[int, str], rows: dict[int, int]) -> Part:
    """Return the rows of pieces that the model itself does not know, only the tokenizer."""
    own = _own_pieces(model)
    return {"outside": [row for number, row in rows.items() if pieces[number] != own.get(number)]}


def _needed(parts: Part, pieces: dict[int, str], kept: Collection[int]) -> set[int]:
    """Return the kept ids and those that any text needs."""
    model = parts["model"]
    prefix = model.get("continuing_subword_prefix") or ""
    needed = {*kept} | {token["id"] for token in parts["added_tokens"]}
    for number, piece in pieces.items():
        if len(piece.removeprefix(prefix)) == 1 or re.fullmatch("<0x[0-9A-F]{2}>", piece):
            needed.add(number)
    if "unk_id" in model:
        needed.add(model["unk_id"])
    elif model["unk_token"] is not None:
        needed.add(model["vocab"][model["unk_token"]])
    for first, second in reversed(model.get("merges", [])):
        if model["vocab"][first + second] in needed:
            needed |= {model["vocab"][first], model["vocab"][second]}
    return needed


# --- around texts ---


def _added(tokens: list[Part], rows: dict[int, int]) -> list[Part]:
    """Return the tokens that stand for their text wherever it is; none if all are special ones.

    The text of a special one is letters, and hides what is within it.
    """
    if all(token["special"] for token in tokens):
        return []
    for token in tokens:
        for key in ("single_word", "lstrip", "rstrip"):
            if token[key] and not token["special"]:
                raise _unknown(f"added token {token['content']!r}: {key}", ["false"], "true")
    return [
        {"id": rows[token["id"]], **{key: token[key] for key in ("content", "special", "normalized")}}
        for token in sorted(tokens, key=lambda token: token["special"])
    ]


def _template(tokenizer: Tokenizer, texts: tuple[str, ...], rows: dict[int, int]) -> list[Part]:
    """Return the special tokens around a text or pair, and where the texts are between them."""
    encoding = tokenizer.encode(*texts)  # type: ignore[arg-type]
    template: list[Part] = []
    tokens = zip(encoding.ids, encoding.type_ids, encoding.sequence_ids, strict=True)
    for number, segment, side in tokens:
        own = {"side": side, "id": rows[number] if side is None else None, "segment": segment}
        if side is None or own != template[-1]:
            template.append(own)
    return template


def _trim(part: Part | None) -> Part | None:
    """Return whether tokens' places leave out spaces, and one that is put before the text."""
    steps = [] if part is None else part.get("processors", [part])
    for step in steps:
        if step.get("trim_offsets"):
            return {"prefix": step["add_prefix_space"]}
    return None


# --- how tokens are shown ---


@cache
def _units() -> dict[str, Any]:
    """Return what the page needs to join tokens into the same words.

    The models are those of BudouX (Google, Apache License 2.0).
    """
    is_letter = re.compile(LETTER).fullmatch
    return {
        "unit": UNIT.replace(LETTER, "LETTER"),
        "letters": _ranges(lambda character: is_letter(character) is not None),
        "unspaced": UNSPACED,
        "languages": [(letters, phrase_parser(it).model) for it, letters in LANGUAGES.items()],
        "license": "BudouX: Copyright 2021 Google LLC, https://apache.org/licenses/LICENSE-2.0",
    }


@cache
def _hidden() -> list[int]:
    """Return the code points that are shown by number."""
    return _ranges(is_hidden)


def _ranges(is_one: Callable[[str], bool]) -> list[int]:
    """Return the code points of which something holds: first, last, first, last, ..."""
    ranges: list[int] = []
    last = False
    for code in CODES:
        holds = is_one(chr(code))
        if holds and last:
            ranges[-1] = code
        elif holds:
            ranges += [code, code]
        last = holds
    return ranges
