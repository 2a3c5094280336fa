"""What the cache holds is listed by kind with its size, and removed when asked; other files stay."""

from pathlib import Path
from typing import Any

from headscope.ground.files import PARTIAL, cached


def test_the_cache_is_listed_and_emptied(tmp_path: Path, command: Any) -> None:
    for name in ("encoded/a.safetensors", "encoded/b.safetensors", "rows/c.arrow"):
        cached(tmp_path / name, lambda path: path.write_bytes(bytes(1_500_000)))
    (tmp_path / "mine.csv").write_text("text")
    (tmp_path / "rows" / f"{PARTIAL}{'0' * 32}.arrow").write_bytes(bytes(10))  # of a killed process
    shown = command("cache", f"cache_dir={tmp_path}")
    assert shown.splitlines()[0] == f"cache: {tmp_path}"
    assert "1.5 MB  rows (2 files)" in shown
    assert "3.0 MB  encoded (2 files)" in shown
    assert "0.0 MB  features (0 files)" in shown
    assert "4.5 MB  in all (4 files)" in shown
    shown = command("cache", f"cache_dir={tmp_path}", "empty=true")
    assert "0.0 MB  in all (0 files)" in shown
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / "mine.csv"]
