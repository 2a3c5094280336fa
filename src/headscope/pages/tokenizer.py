"""What tokenizer.js needs to cut a text as a tokenizer does; a part without code there is named.

Steps have the names and settings of a tokenizer.json. Which characters are letters, marks or signs,
and what each becomes, is asked of `tokenizers`: a browser may have another version of Unicode.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable
from functools import cache
from typing import Any

from tokenizers import Tokenizer, normalizers, pre_tokenizers

from headscope.data.tokenizer import copied, unknown_ids, word_units
from headscope.data.units import (
    CHARACTERS,
    JOINED,
    LANGUAGES,
    LETTER,
    SPACES,
    UNIT,
    UNSPACED,
    is_hidden,
)
from headscope.ground.errors import LivePageError, listed
from headscope.ground.mecab import write_tokenizer_json

Part = dict[str, Any]  # of a tokenizer.json, or of what the page gets
# Code points to ask about. Surrogates are none, planes 4 to 13 are unassigned, 15 and 16 private:
# what holds of both ends of such a gap holds within it.
CODES = [*range(0xD800), *range(0xE000, 0x40000), *range(0xE0000, 0xE1000)]
CODES += [0xF0000, 0xFFFFD, 0xFFFFE, 0xFFFFF, 0x100000, 0x10FFFD, 0x10FFFE, 0x10FFFF]
LAST_MARK = "\u0345"  # no mark comes after it
UNKNOWN_PENALTY = 10  # below the least score of a Unigram
BYTES = {*pre_tokenizers.ByteLevel.alphabet()}
MODELS = ("BPE", "Unigram", "WordLevel", "WordPiece")
AROUND = (("a",), ("a", "a"))  # texts to see what a tokenizer puts around one, and around a pair


def page_tokenizer(
    tokenizer: Tokenizer, max_length: int, kept: Collection[int] | None = None
) -> Part:
    """Return what the page needs to cut a text or pair into the same tokens at the same places.

    Args:
        tokenizer: one that reads the letters of a special token as letters.
        max_length: tokens of a text or pair, special ones counted.
        kept: the ids that are handed over, beside special tokens, single characters and what the
            kept ones are merged from; by default all. Texts of kept tokens are cut as before.

    Returns:
        `pieces`: the vocabulary. Its rows are the page's ids; `ids` are the tokenizer's.

    Raises:
        LivePageError: if a part of the tokenizer is none that the page has code for.
    """
    parts = json.loads(write_tokenizer_json(tokenizer))
    added = parts["added_tokens"]
    steps = {name: _steps(name, parts[name], known) for name, known in STEPS.items()}
    model, own = _checked_model(parts["model"], steps["pre_tokenizer"])
    pieces = {number: piece for piece, number in own.items()}
    pieces |= {token["id"]: token["content"] for token in added}
    needed = pieces if kept is None else _needed(model, pieces, {*kept}, added)
    rows = {number: row for row, number in enumerate(sorted(needed))}
    plain = copied(tokenizer)
    plain.no_truncation()
    plain.no_padding()
    return {
        **steps,
        "pieces": [pieces[number] for number in rows],
        "ids": [*rows],
        "model": _rows_of(model, own, rows),
        "added": _added(added, rows),
        "template": [_template(plain, texts, rows) for texts in AROUND],
        "trim": _trim(parts["post_processor"]),
        "unknown": [rows[number] for number in unknown_ids(tokenizer) if number in rows],
        "max_length": max_length,
        "lower": _lower_cases(),
        "characters": CHARACTERS,
        "hidden": _ranges_of("hidden"),
        "units": _units(),
    }


def _unknown(name: str, expected: Iterable[object], found: object) -> LivePageError:
    return LivePageError(f"tokenizer: {name}: expected {listed([*expected])}, got {found}")


# --- normalizers and pre-tokenizers, as steps of normalize.js and subwords.js ---


def _steps(name: str, part: Part | None, known: "Steps") -> list[Part]:
    """Return the steps of a normalizer or pre-tokenizer."""
    if part is None:
        return []
    inner = part.get("normalizers") or part.get("pretokenizers") or []
    if [step.get("behavior") for step in inner] == ["Removed", "Isolated"]:  # tokenizer=words
        return _words(part, "aア")
    if part["type"] == "Sequence":
        return [step for each in inner for step in _steps(name, each, known)]
    if part["type"] not in known:
        raise _unknown(name, known, part["type"])
    return known[part["type"]](part)


def _bert_normalizer(part: Part) -> list[Part]:
    steps: list[Part] = []
    if part["clean_text"]:
        steps += [{"type": "Remove", "characters": _ranges_of("controls")}, {"type": "Spaces"}]
    if part["handle_chinese_chars"]:
        steps.append({"type": "Apart", "characters": _ranges_of("Chinese")})
    if part["lowercase"] if part["strip_accents"] is None else part["strip_accents"]:
        steps += _form({"type": "NFD"})
        steps.append({"type": "Remove", "characters": _ranges_of("accents")})
    return steps + [{"type": "Lowercase"}] * part["lowercase"]


def _form(part: Part) -> list[Part]:
    decomposed = _ranges_of("NFKD" if "K" in part["type"] else "NFD")
    own = {"decomposed": decomposed, "marks": _ranges_of("marks")}
    return [{"type": "Form", "form": part["type"], **own}]


def _replace(part: Part) -> list[Part]:
    """Return the step of a Replace: of a text, or of spaces in a row."""
    ((kind, pattern),) = part["pattern"].items()
    spaces = re.fullmatch(r"( |\\s)(\+|\{\d+,\d*\})", pattern)
    if kind == "String":
        pattern = _escaped(pattern)
    elif spaces:
        pattern = f"[{_escaped(' ' if spaces[1] == ' ' else SPACES)}]{spaces[2]}"
    else:
        raise _unknown("normalizer: Replace", [r" {2,}", r"\s+"], pattern)
    return [part | {"pattern": pattern}]


def _escaped(text: str) -> str:
    return "".join(f"\\u{{{ord(character):x}}}" for character in text)


def _as_it_is(part: Part) -> list[Part]:
    return [part]


def _words(part: Part, letters: str = "a") -> list[Part]:
    return [{"type": "Words", "joins": [_joined(json.dumps(part), letter) for letter in letters]}]


def _byte_level(part: Part) -> list[Part]:
    own = json.dumps(part | {"add_prefix_space": False})
    classes = [_joined(own, letter) for letter in "a1"] if part["use_regex"] else None
    return [part | {"classes": classes}]


Steps = dict[str, Callable[[Part], list[Part]]]
STEPS: dict[str, Steps] = {
    "normalizer": {
        "BertNormalizer": _bert_normalizer,
        **dict.fromkeys(("NFC", "NFD", "NFKC", "NFKD"), _form),
        **dict.fromkeys(("Lowercase", "Precompiled", "Prepend", "Strip"), _as_it_is),
        "Replace": _replace,
    },
    "pre_tokenizer": {
        **dict.fromkeys(("BertPreTokenizer", "WhitespaceSplit"), _words),
        "ByteLevel": _byte_level,
        "Metaspace": _as_it_is,
    },
}


# --- models ---


def _checked_model(model: Part, pre_tokenizer: list[Part]) -> tuple[Part, dict[str, int]]:
    """Return a model, with the id of what it does not know, and the ids of its pieces."""
    kind = model["type"]
    own = model["vocab"]
    if kind not in MODELS:
        raise _unknown("model", MODELS, kind)
    if kind == "Unigram":
        own = {piece: number for number, (piece, _) in enumerate(own)}
        if model["byte_fallback"] and not own.keys() >= {*_byte_pieces()}:
            raise _unknown("model: byte_fallback", ["a piece for each byte"], "fewer")
    for key in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"):
        if kind == "BPE" and model[key]:
            raise _unknown(f"model: {key}", ["none"], model[key])
    is_byte_level = any(step["type"] == "ByteLevel" for step in pre_tokenizer)
    if kind == "BPE" and not (is_byte_level and own.keys() >= BYTES):
        raise _unknown("model", ["a BPE of all 256 bytes"], "another BPE")
    unknown = model["unk_id"] if kind == "Unigram" else own.get(model["unk_token"])
    if kind != "BPE" and unknown is None:
        raise _unknown("model", ["a piece for what is unknown"], "none")
    return model | {"unknown": unknown}, own


def _byte_pieces() -> list[str]:
    return [f"<0x{byte:02X}>" for byte in range(256)]


def _rows_of(model: Part, own: dict[str, int], rows: dict[int, int]) -> Part:
    """Return what the page needs of a model beside its pieces, with rows in place of ids."""
    known = {*own.values()}
    content = {key: value for key, value in model.items() if key not in ("vocab", "merges")}
    content["unknown"] = rows.get(model["unknown"])
    content["outside"] = [row for number, row in rows.items() if number not in known]
    if model["type"] == "BPE":
        merges = [[own[one], own[other], own[one + other]] for one, other in model["merges"]]
        merges = [merge for merge in merges if rows.keys() >= {*merge}]
        content["merges"] = [rows[number] for merge in merges for number in merge]
    if model["type"] == "Unigram":
        scores = dict(enumerate(score for _, score in model["vocab"]))
        content["scores"] = [scores.get(number, 0.0) for number in rows]
        content["unknown_score"] = min(scores.values()) - UNKNOWN_PENALTY
        names = _byte_pieces() if model["byte_fallback"] else []
        content["bytes"] = [rows[own[name]] for name in names] or None
    return content


def _needed(model: Part, pieces: dict[int, str], kept: set[int], added: list[Part]) -> set[int]:
    """Return the kept ids and those that any text needs."""
    prefix = model.get("continuing_subword_prefix") or ""
    needed = kept | {token["id"] for token in added} | {model["unknown"]} - {None}
    for number, piece in pieces.items():
        if len(piece.removeprefix(prefix)) == 1 or re.fullmatch("<0x[0-9A-F]{2}>", piece):
            needed.add(number)
    for one, other in reversed(model.get("merges", [])):
        if model["vocab"][one + other] in needed:
            needed |= {model["vocab"][one], model["vocab"][other]}
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
    ordered = sorted(tokens, key=lambda token: token["special"])
    return [token | {"id": rows[token["id"]]} for token in ordered]


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
    """Return the step that leaves spaces out of tokens' places, if there is one."""
    steps = [] if part is None else part.get("processors", [part])
    return next((step for step in steps if step.get("trim_offsets")), None)


# --- what holds of characters ---

CLEAN = normalizers.BertNormalizer(True, False, False, False)
CHINESE = normalizers.BertNormalizer(False, True, False, False)
WITHOUT_ACCENTS = normalizers.BertNormalizer(False, False, True, False)
NFD = normalizers.NFD()
NFKD = normalizers.NFKD()
HOLDS: dict[str, Callable[[str], bool]] = {
    "controls": lambda it: CLEAN.normalize_str(it) == "",
    "Chinese": lambda it: CHINESE.normalize_str(it) != it,
    "accents": lambda it: WITHOUT_ACCENTS.normalize_str(it) == "",
    "NFD": lambda it: NFD.normalize_str(it) != it,
    "NFKD": lambda it: NFKD.normalize_str(it) != it,
    "marks": lambda it: it == LAST_MARK or NFD.normalize_str(LAST_MARK + it)[0] != LAST_MARK,
    "hidden": is_hidden,
    "letters": lambda it: re.fullmatch(LETTER, it) is not None,
}


@cache
def _ranges_of(name: str) -> list[int]:
    """Return the code points of which something holds: first, last, first, last, ..."""
    return _ranges(HOLDS[name])


@cache
def _joined(part: str, letter: str) -> list[int]:
    """Return the code points that a pre-tokenizer does not cut from a letter before them."""
    model = {"type": "WordLevel", "vocab": {"": 0}, "unk_token": ""}
    own = {"version": "1.0", "added_tokens": [], "model": model, "pre_tokenizer": json.loads(part)}
    cut = Tokenizer.from_str(json.dumps(own)).pre_tokenizer.pre_tokenize_str
    return _ranges(lambda character: cut(letter + character)[0][1] == (0, 2))


def _ranges(holds: Callable[[str], bool]) -> list[int]:
    ranges: list[int] = []
    before = False
    for code in CODES:
        now = holds(chr(code))
        if now and before:
            ranges[-1] = code
        elif now:
            ranges += [code, code]
        before = now
    return ranges


@cache
def _lower_cases() -> list[str]:
    """Return each code point that has a lower case, followed by it."""
    normalizer = normalizers.Lowercase()
    characters = map(chr, CODES)
    lowered = ((character, normalizer.normalize_str(character)) for character in characters)
    return [character + lower for character, lower in lowered if lower != character]


@cache
def _units() -> Part:
    """Return what the page needs to join tokens into the same words.

    The models are those of BudouX (Google, Apache License 2.0).
    """
    return {
        "unit": UNIT.replace(LETTER, "LETTER"),
        "letters": _ranges_of("letters"),
        "unspaced": UNSPACED,
        "joined": JOINED,
        "languages": [(letters, word_units().models[it]) for it, letters in LANGUAGES.items()],
        "license": "BudouX: Copyright 2021 Google LLC, https://apache.org/licenses/LICENSE-2.0",
    }
