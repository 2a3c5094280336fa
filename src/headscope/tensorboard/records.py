"""Finding the records of heads below a logdir.

Neither names nor files are trusted: a run is one that TensorBoard's data provider lists, and nothing is opened that
lies outside the logdir, whatever `..` or link leads to it.
"""

import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

from headscope.inspection.record import FOLDER, INDEX, Index, RecordError, read_index
from headscope.tensorboard.bundle import blaming
from headscope.tensorboard.marker import PLUGIN

# Bytes: of the index files whose content is kept (in memory it takes some eight times as much), and of a single one.
KEPT, LARGEST_INDEX = 2**22, 2**24


class Records:
    """The records below a logdir. Of what is read only indexes are kept, and of those no more than `KEPT` bytes.

    Args:
        logdir: as TensorBoard was given it; None or empty if it was started with --logdir_spec.
    """

    def __init__(self, logdir: str | None) -> None:
        self.logdir = logdir or ""
        self._kept: OrderedDict[Path, tuple[tuple[int, ...], Index]] = OrderedDict()
        self._lock = threading.Lock()  # TensorBoard answers each request in a thread of its own

    def root(self) -> Path:
        """Return the resolved logdir.

        Raises:
            RecordError: if there is none on this machine.
        """
        if not self.logdir:
            raise RecordError("TensorBoard was started without --logdir (or with --logdir_spec); give --logdir=FOLDER")
        root = Path(self.logdir).expanduser()
        if not root.is_dir():
            raise RecordError(f"logdir {self.logdir!r} is no folder of this machine; start TensorBoard with one")
        return root.resolve()

    def runs(self, provider: Any, context: Any, experiment: str) -> list[str]:
        """Return the runs that have the marker, and those without it that have an index.

        Args:
            provider: TensorBoard's data provider, or None.
            context: of the request, as the provider wants it.
            experiment: its identifier, as the provider wants it.
        """
        if provider is None:
            return []
        self.root()  # says so if there is none
        marked = set(provider.list_tensors(context, experiment_id=experiment, plugin_name=PLUGIN))
        listed = {run.run_name for run in provider.list_runs(context, experiment_id=experiment)}
        return sorted(marked | {run for run in listed - marked if self._has_index(run)})

    def _has_index(self, run: str) -> bool:
        try:
            return self.file(run, INDEX).is_file()
        except RecordError:
            return False

    def file(self, run: str, name: str) -> Path:
        """Return the path of a file in the record of a run that was listed.

        Raises:
            RecordError: if it is missing, no plain file, or outside the logdir.
        """
        root = self.root()
        try:
            path = (root / run / FOLDER / name).resolve()
            inside, there = path.is_relative_to(root), path.is_file()  # a pipe would be waited for
        except (OSError, RuntimeError, ValueError) as error:
            raise RecordError(f"{name}: cannot be looked up: {error}") from error
        if not inside:
            raise RecordError(f"{name}: lies outside the logdir, so it is not opened; start TensorBoard further up")
        if not there:
            raise RecordError(f"{name}: is missing; nothing has been recorded yet, or it was moved or deleted")
        return path

    def index(self, run: str) -> Index:
        """Return the index of a run that was listed, which must not be changed.

        Raises:
            RecordError: if it is missing, broken, or outside the logdir.
        """
        path = self.file(run, INDEX)
        if path.name != INDEX:  # what lies beside it under the right name may itself be a link that leads outside
            raise RecordError(f"{INDEX}: is a link to a file of another name, {path.name}; put the file itself there")
        with blaming(path):
            stat = path.stat()
        stamp = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        with self._lock:
            if path in self._kept and self._kept[path][0] == stamp:
                self._kept.move_to_end(path)
                return self._kept[path][1]
        if stat.st_size > LARGEST_INDEX:
            raise RecordError(f"{INDEX}: takes {stat.st_size} bytes, and at most {LARGEST_INDEX} are read")
        index = _parsed(path)
        self._keep(path, stamp, index)
        return index

    def _keep(self, path: Path, stamp: tuple[int, ...], index: Index) -> None:
        with self._lock:
            self._kept[path] = stamp, index
            self._kept.move_to_end(path)
            while sum(size for (_, size, _), _ in self._kept.values()) > KEPT:
                self._kept.popitem(last=False)


def _parsed(path: Path) -> Index:
    with blaming(path):
        index = read_index(path.parent)
        if not _fits(index):
            raise RecordError(f"{INDEX}: holds something of a type that docs/record-format.md does not give")
    return index


def _fits(index: Index) -> bool:
    """Say whether what an answer is made of is of the right type."""
    names = [*index.layers, *index.classes, *(token for text in index.texts for token in text.tokens)]
    names += [value for text in index.texts for value in (text.name, text.text, text.label or "")]
    numbers = [index.recorded, *index.heads, *(step.step for step in index.steps)]
    lists = [index.layers, index.heads, index.classes, *(text.tokens for text in index.texts)]
    return (
        all(isinstance(name, str) for name in names)
        and all(isinstance(number, int) for number in numbers)
        and all(isinstance(step.time, int | float) for step in index.steps)
        and all(isinstance(entries, list) for entries in lists)
        and len(index.layers) == len(index.heads)
        and isinstance(index.notes, dict)
    )
