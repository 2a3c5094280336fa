"""suite=scaling: how time and memory grow with the length of a text, width, layers, and the number of texts."""

from collections.abc import Callable

import torch

from headscope.benchmark.config import BenchmarkConfig
from headscope.benchmark.growth_steps import layers_table, length_table, width_table
from headscope.benchmark.growth_texts import texts_table
from headscope.benchmark.page import Table


def measure(config: BenchmarkConfig, device: torch.device, tell: Callable[[str], object]) -> list[Table]:
    """Return four tables: growth with length, with width, with layers, and with the number of texts.

    Ranges follow the configuration: lengths from 1/4 to 16 times max_length, widths from 1/4 to 4 times d_model, layers
    from 1 to 4 times num_layers, and 1, 10, 100 and 1,000 times `texts`. Each point has a process of its own.
    """
    return [
        length_table(config, device, tell),
        width_table(config, device, tell),
        layers_table(config, device, tell),
        texts_table(config, tell),
    ]
