"""Finding a font that has the characters of a token: no single font has them all.

Looked at in this order: the file that `inspection.font` names, then the fonts of this machine, those first that
are known to hold Japanese and Chinese (Noto Sans CJK, IPA, Takao, WenQuanYi, Hiragino, Yu Gothic, MS Gothic), then
any other, and last the one that Pillow brings, which has Latin letters alone. What no font has is shown by its code,
such as <U+9B31>; installing fonts-noto-cjk (Debian, Ubuntu) or google-noto-sans-cjk-fonts (Fedora) mends it.
"""

import os
import sys
from functools import cache
from pathlib import Path

from PIL import ImageFont

PREFERRED = (
    *("NotoSansCJK-Regular", "SourceHanSans-Regular", "ipag", "TakaoGothic", "wqy-microhei", "wqy-zenhei"),
    *("ヒラギノ角ゴシック W3", "Hiragino Sans", "PingFang", "YuGothR", "msgothic", "msyh", "simsun"),
    *("DejaVuSans", "NotoSans-Regular"),
)
PLACES = {
    "darwin": ("/System/Library/Fonts", "/Library/Fonts", "~/Library/Fonts"),
    "win32": (os.environ.get("WINDIR", "C:/Windows") + "/Fonts",),
    "linux": ("/usr/share/fonts", "/usr/local/share/fonts", "~/.local/share/fonts", "~/.fonts"),
}

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


@cache
def font_files() -> tuple[str, ...]:
    """Return the font files of this machine, the preferred ones first."""
    places = [Path(place).expanduser() for place in PLACES.get(sys.platform, PLACES["linux"])]
    found = [path for place in places for path in sorted(place.rglob("*")) if path.suffix in (".ttf", ".ttc", ".otf")]
    rank = {name: number for number, name in enumerate(PREFERRED)}
    # Bold and italic faces come last: they are there for emphasis.
    found.sort(key=lambda path: (rank.get(path.stem, len(rank)), "Bold" in path.stem or "Italic" in path.stem))
    return tuple(map(str, found))


@cache
def _open(path: str, size: int) -> Font | None:
    try:
        return ImageFont.truetype(path, size)
    except OSError:  # a broken file, or a form that FreeType cannot read
        return None


@cache
def _has(path: str, character: str) -> bool:
    """Tell whether the font draws the character otherwise than one that no font has."""
    font = _open(path, 16)
    if font is None:
        return False
    drawn, missing = font.getmask(character), font.getmask("\U0010fffe")
    return drawn.size != missing.size or bytes(drawn) != bytes(missing)


def font_for(text: str, size: int, configured: str | None = None) -> tuple[Font, str]:
    """Return a font for this text, and the text with what that font lacks replaced by its code.

    Args:
        text: a token or a caption.
        size: in pixels.
        configured: a font file to be looked at first.
    """
    needed = {character for character in text if not character.isspace()}
    if all(character.isascii() for character in needed):
        return _default(size), text
    candidates = [configured, *font_files()] if configured else list(font_files())
    for path in candidates:
        font = _open(path, size)
        if font is not None and all(_has(path, character) for character in needed):
            return font, text
    return _default(size), "".join(
        character if character.isascii() else f"<U+{ord(character):04X}>" for character in text
    )


@cache
def _default(size: int) -> Font:
    return ImageFont.load_default(size)
