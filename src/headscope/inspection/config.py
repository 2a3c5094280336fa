"""The settings of what is recorded about attention heads."""

from dataclasses import dataclass

from headscope.settings import setting


@dataclass
class InspectionConfig:
    """Maps and numbers of every head, at step 0 and at each validation."""

    enabled: bool = setting(True, "record attention while training")
    num_probes: int = setting(4, "texts of the validation split whose maps are shown", minimum=0, maximum=64)
    probes: list[str] = setting([], "texts of your own to show instead; a list of strings")
    max_tokens: int = setting(
        64, "probes are chosen among texts of at most so many tokens, longer ones are cut", minimum=2
    )
    numbers: bool = setting(True, "numbers of every head over the whole validation split")
    font: str | None = setting(None, "font file for token names; by default one is looked for that has the characters")
