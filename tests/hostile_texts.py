"""Texts that are hard to cut: characters that change one another, hide, turn, or look like a tokenizer's own."""

import unicodedata

import numpy as np

SENTENCES = [
    "The quick brown fox doesn't jump over the lazy dog's 3.14 back, naïvely; façade!",
    "カードが二重に請求されました。10月3日にGoogleで公開",
    "我被重复扣款两次，请退款",
    "한국어 단어를 나눕니다",
    "👨‍👩‍👧 🇯🇵 👍🏽! 🐈‍⬛",
    "ไทยแลนด์ สวัสดีครับ",
    "नमस्ते दुनिया क्षत्रिय",
    "مرحبا بالعالم العربيةُ",
    "Привет, мир! ΟΔΟΣ Οδος",
    "İstanbul ışık straße ﬁne ﬂuﬀy ½ ㌔ ①",
    "Ｆｕｌｌｗｉｄｔｈ ｶﾞﾊﾟ ﾊﾝｶｸ",
    "e\u0301le\u0301ment école Ạ\u0323\u0307 ổ",
]
ATOMS = [
    *"abcABCxyz0123.,!?'’-_#@|/ \t\n\x00\x07\x1c\x85\xa0\xad▁ĠĊéÅﬁﬀ½①㌔㍿Ａｚ１ｱガぱ゛각ㄱ각カ映画我نمЯΣςßẞİıǅ𝔘𝒶𠀀𑄯𐞁",
    *"\u200b\u200c\u200d\ufeff\u2028\u2009\u3000\ufffd\uffff\ue000\U000f0000\U00100000\U000e0041",
    *"\u0300\u0301\u0323\u0307\u0345\u035c\u05b0\u0e31\u3099\u309a\u20dd\u0f71\u0f72\U0001d165",
    "  ", "\t\t", "\r\n", "ｶﾞ", "ﾊﾟ", "क्ष", "ि", "ที่", "मِ", "i\u0307", "ạ\u0307", "請求", "した", "the", "The", " fox",
    "👍🏽", "👨‍👩‍👧", "🇯🇵", "🇯", "1️⃣", "🐈‍⬛", "❤️", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "'s", "'ll", "n't", "don't", "▁▁", "##", "##a",
    "[CLS]", "[SEP]", "[MASK]", "[UNK]", "[PAD]", "<s>", "</s>", "<mask>", "<unk>", "<pad>", "|||IP|||",
]  # fmt: skip
CHOSEN = [
    "",
    " ",
    "\n",
    "\t \n",
    "\x00",
    "\x00a",
    "\u200b",
    "\u0301",
    "\u0301a",
    "▁",
    "▁▁a",
    " a",
    "a ",
    "Ġ",
]
CHOSEN += ["ﬁﬁﬁ ﬁ", "½½½x", "[CLS]", "a [SEP] b", "<s>a</s>", "x<mask>y", "한국어"]
CHOSEN += ["a" * 300, "é" * 150, "映" * 120, "x1" * 2000]
PLANES = [(32, 127), (0, 0x3000), (0x300, 0x370), (0x1100, 0x1200), (0x3000, 0xD7FF)]
PLANES += [(0xAC00, 0xAC40), (0xE000, 0x10000), (0x10000, 0x1FFFF), (0x20000, 0x110000)]
FORMS = ("NFC", "NFD", "NFKC", "NFKD")


def random_text(random: np.random.Generator) -> str:
    """Return characters of every plane, many of them such that change one another."""
    chosen = random.integers(len(PLANES), size=random.integers(40))
    return "".join(chr(random.integers(*PLANES[each])) for each in chosen)


def hostile_texts(count: int, seed: int = 0) -> list[str]:
    """Return this many texts: chosen ones, atoms side by side, with marks, sentences in every form."""
    random = np.random.default_rng(seed)
    texts = [*CHOSEN, *SENTENCES]
    while len(texts) < count:
        atoms = [ATOMS[each] for each in random.integers(len(ATOMS), size=random.integers(1, 24))]
        form = FORMS[random.integers(len(FORMS))]
        sentence = unicodedata.normalize(form, SENTENCES[random.integers(len(SENTENCES))])
        start, end = sorted(random.integers(len(sentence) + 1, size=2))
        marks = [chr(mark) for mark in random.integers(0x300, 0x370, size=len(atoms))]
        texts += [
            "".join(atoms),
            random_text(random),
            sentence[:start] + atoms[0] + sentence[end:],
            " ".join(map("".join, zip(atoms, marks, strict=True))),
        ]
    return texts[:count]
