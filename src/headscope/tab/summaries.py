"""The mark in an event file of a record of heads beside it."""

import time
from contextlib import closing
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import DATA_CLASS_TENSOR, Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from headscope.record.schema import VERSION

# The maps stay out of event files: TensorBoard keeps those in memory and drops most steps.
PLUGIN = TAG = "heads"


def marker_summary() -> Summary:
    """Return the mark in an event file that a record of heads of this version is beside it."""
    version = str(VERSION).encode()
    plugin = SummaryMetadata.PluginData(plugin_name=PLUGIN, content=version)
    # Without a data class TensorBoard reads the summary and then shows it to nobody.
    metadata = SummaryMetadata(
        plugin_data=plugin, display_name=PLUGIN, data_class=DATA_CLASS_TENSOR
    )
    tensor = TensorProto(dtype=DT_STRING, tensor_shape=TensorShapeProto(), string_val=[version])
    return Summary(value=[Summary.Value(tag=TAG, metadata=metadata, tensor=tensor)])


def write_marker(logdir: str | Path) -> None:
    """Write an event file that holds the marker alone, for a run without a writer."""
    with closing(EventFileWriter(str(logdir))) as writer:
        writer.add_event(Event(step=0, wall_time=time.time(), summary=marker_summary()))


def add_summary(writer: Any, summary: Summary, step: int | None = None) -> None:
    """Write a summary through a torch SummaryWriter, which has no public function for it."""
    writer._get_file_writer().add_summary(summary, step)
