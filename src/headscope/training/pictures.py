"""Writing a picture into an event file, quickly."""

from io import BytesIO

import numpy as np
from PIL import Image
from tensorboard.compat.proto import summary_pb2
from torch.utils.tensorboard import SummaryWriter


def add_picture(writer: SummaryWriter, tag: str, picture: np.ndarray, step: int) -> None:
    """Write a picture [height, width, 3] of bytes. SummaryWriter.add_image takes four times as long to save a tenth."""
    file, (height, width, _) = BytesIO(), picture.shape
    Image.fromarray(picture).save(file, format="PNG", compress_level=1)
    image = summary_pb2.Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=file.getvalue())
    value = summary_pb2.Summary.Value(tag=tag, image=image)
    writer._get_file_writer().add_summary(summary_pb2.Summary(value=[value]), step)
