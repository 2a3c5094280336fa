"""What the callback writes into TensorBoard's event file."""

from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

from headscope.training.pictures import add_picture


def test_a_picture_is_written_to_the_last_pixel(tmp_path: Path) -> None:
    picture = np.random.default_rng(0).integers(0, 256, (7, 11, 3), dtype=np.uint8)
    with SummaryWriter(tmp_path) as writer:
        add_picture(writer, "attention/probe_0", picture, 503)
    (found,) = EventAccumulator(str(tmp_path)).Reload().Images("attention/probe_0")
    assert (found.step, found.height, found.width) == (503, 7, 11)
    np.testing.assert_array_equal(np.asarray(Image.open(BytesIO(found.encoded_image_string))), picture)
