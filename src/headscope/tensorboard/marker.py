"""The marker in a run's event file that says there is a record of heads beside it.

The maps stay out of event files, since TensorBoard keeps what it reads from those in memory and drops most steps.
"""

import time
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import DATA_CLASS_TENSOR, Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from headscope.inspection.record import VERSION

PLUGIN = TAG = "heads"


def marker_summary() -> Summary:
    """Return a summary that names the version of the record, for any writer of event files.

    With torch: ``writer._get_file_writer().add_summary(marker_summary(), step)``.
    """
    version = str(VERSION).encode()
    plugin = SummaryMetadata.PluginData(plugin_name=PLUGIN, content=version)
    # Without a data class TensorBoard reads the summary and then shows it to nobody.
    metadata = SummaryMetadata(plugin_data=plugin, display_name=PLUGIN, data_class=DATA_CLASS_TENSOR)
    tensor = TensorProto(dtype=DT_STRING, tensor_shape=TensorShapeProto(), string_val=[version])
    return Summary(value=[Summary.Value(tag=TAG, metadata=metadata, tensor=tensor)])


def write_marker(logdir: str | Path) -> None:
    """Write an event file that holds the marker alone, for a run that has no writer of its own.

    Args:
        logdir: the folder of the run, beside whose `heads` folder the event file is put; made if it is missing.

    Raises:
        OSError: if the folder cannot be written to.
    """
    writer = EventFileWriter(str(logdir))
    try:
        writer.add_event(Event(step=0, wall_time=time.time(), summary=marker_summary()))
    finally:
        writer.close()
