"""cache(config): show what the cache holds, and empty it."""

from rich.console import Console

from headscope.ground.files import KINDS, cache_folder, cached_files, trim_cache
from headscope.ground.terminal import show_line, terminal
from headscope.settings.commands import CacheConfig


def cache(config: CacheConfig, console: Console | None = None) -> None:
    """Print the folder, and the number and size of the files of each kind."""
    console = terminal(console)
    folder = cache_folder(config.cache_dir)
    show_line(console, f"cache: {folder}")
    if config.empty:
        trim_cache(folder, 0)
    files = cached_files(folder)
    for kinds in (*zip(KINDS, strict=True), KINDS):
        sizes = [size for _, size, path in files if path.parent.name in kinds]
        name = kinds[0] if len(kinds) == 1 else "in all"
        show_line(console, f"{sum(sizes) / 1e6:12.1f} MB  {name} ({len(sizes)} files)")
