"""Where results that can be made again are kept, keyed by what they were made from."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

import platformdirs


def cache_folder(configured: str | None) -> Path:
    """Return the folder for cached files: the configured one, or the user's cache folder."""
    folder = Path(configured).expanduser() if configured else Path(platformdirs.user_cache_dir("headscope"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def digest(parts: Iterable[str]) -> bytes:
    """Return the BLAKE2b digest of some texts, 16 bytes that change with any of them and with where one ends."""
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        found.update(len(encoded).to_bytes(8, "little"))  # so that ("ab", "c") differs from ("a", "bc")
        found.update(encoded)
    return found.digest()


def content_key(parts: Iterable[str]) -> str:
    """Return a name that changes with any of the parts: 32 hexadecimal digits of their digest."""
    return digest(parts).hex()
