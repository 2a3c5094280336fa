"""A published example: a layer of width 4 with two heads, drawn from seed 55.

The numbers are what torch gives, to four decimals, for

    torch.manual_seed(55)
    X = torch.randn(1, 5, 4)
    layer = torch.nn.MultiheadAttention(4, 2, bias=False, batch_first=True)

Articles on multi-head attention work them out by hand, step by step.
"""

import torch
from torch import Tensor, nn

PRINTED = 5e-5  # half a unit of the last decimal printed
# Each row belongs to a token. A head's are its weights: a row is a query, a column a key. All count from 0.
PUBLISHED = {
    "queries": [
        [-1.3839, 0.3560, -0.5477, 0.5145],
        [-0.3053, -0.4555, 0.9167, -0.7092],
        [0.1798, -0.4656, 0.2638, -0.6801],
        [-0.8393, 0.6234, -0.7506, -0.4411],
        [-0.2403, -0.3683, -0.1956, -0.2543],
    ],
    "keys": [
        [1.5560, -0.1749, 1.3026, -0.2896],
        [0.2180, 0.8775, 0.5869, -1.3853],
        [-0.4169, 0.4765, 0.0991, -0.2992],
        [-0.1963, -0.0795, 0.0261, 0.1924],
        [0.2528, 0.1956, 0.6195, -0.0164],
    ],
    "values": [
        [1.4396, -0.2397, 0.6415, 1.2935],
        [-0.6356, -0.6922, 0.7399, 0.5402],
        [-0.8500, -0.1792, -0.0935, -0.1088],
        [-0.3620, 1.1107, -0.1110, 0.4418],
        [-0.0104, -0.3045, -0.0634, 0.2639],
    ],
    "head 0": [
        [0.0424, 0.2048, 0.3446, 0.2414, 0.1667],
        [0.1729, 0.1644, 0.2146, 0.2448, 0.2033],
        [0.2667, 0.1591, 0.1675, 0.2068, 0.2000],
        [0.0698, 0.2457, 0.3001, 0.2061, 0.1782],
        [0.1792, 0.1710, 0.2114, 0.2354, 0.2030],
    ],
    "head 1": [
        [0.1456, 0.1290, 0.2313, 0.2845, 0.2096],
        [0.2896, 0.3155, 0.1334, 0.0994, 0.1622],
        [0.2136, 0.3166, 0.1714, 0.1335, 0.1649],
        [0.1254, 0.2581, 0.2383, 0.2125, 0.1655],
        [0.1764, 0.2372, 0.2087, 0.1930, 0.1846],
    ],
    "output": [
        [0.3529, 0.0220, 0.0969, -0.1303],
        [0.4565, 0.1399, 0.0720, 0.1694],
        [0.3354, 0.1571, 0.0336, 0.2145],
        [0.3725, 0.0816, 0.1403, -0.0746],
        [0.3248, 0.0932, 0.0436, 0.0879],
    ],
}


def published_example() -> tuple[Tensor, nn.MultiheadAttention]:
    """Return the tokens and torch's layer that the printed numbers belong to."""
    state = torch.get_rng_state()
    torch.manual_seed(55)
    tokens = torch.randn(1, 5, 4)
    layer = nn.MultiheadAttention(4, 2, bias=False, batch_first=True)
    torch.set_rng_state(state)
    return tokens, layer
