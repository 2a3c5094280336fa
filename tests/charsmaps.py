"""Tables of characters that a tokenizer replaces, as SentencePiece writes them."""

import struct
from typing import Any


def charsmap(table: dict[str, str]) -> bytes:
    """Return a table of characters as SentencePiece writes it: a double array of keys, then texts."""
    texts = bytearray()
    trie: dict[int, Any] = {}
    for key, text in table.items():
        node = trie
        for byte in key.encode():
            node = node.setdefault(byte, {})
        node[0] = len(texts)  # where a key ends
        texts += text.encode() + b"\0"
    units = {0: 0}

    def place(node: dict[int, Any], at: int) -> None:
        base = next(it for it in range(1, 1 << 20) if not {it ^ byte for byte in node} & {*units})
        units[at] |= (at ^ base) << 10 | (0 in node) << 8
        units.update({base ^ byte: byte or node[0] | 1 << 31 for byte in node})
        for byte in sorted(node.keys() - {0}):
            place(node[byte], base ^ byte)

    place(trie, 0)
    size = (max(units) // 256 + 1) * 256
    array = struct.pack(f"<{size}I", *(units.get(at, 0) for at in range(size)))
    return struct.pack("<I", len(array)) + array + texts
