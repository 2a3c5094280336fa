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
        64,
        "probes are chosen among texts of at most so many tokens; of longer ones that you give, the largest weights "
        "of each query and an overview are kept, and pictures show the beginning",
        minimum=2,
    )
    numbers: bool = setting(True, "numbers of every head over texts of the validation split")
    texts: int | None = setting(
        300, "so many of the validation texts, drawn once at random, give these numbers; null for all", minimum=1
    )
    every: int | None = setting(
        None, "record maps every so many steps too; null for step 0 and each validation alone", minimum=1
    )
    budget: int = setting(
        256, "MiB that the recorded maps of a run may take; near it, steps are thinned out evenly", minimum=1
    )
    precision: str = setting(
        "uint8", "how weights are kept: bytes with a scale for each row, or float16", choices=("uint8", "float16")
    )
    causes: int = setting(
        100,
        "texts of the validation split on which, at the end, each head is switched off in turn; 0 for none",
        minimum=0,
    )
    most_wrong: int | None = setting(
        20,
        "so many of the misclassified test texts, those of the highest loss, are shown with all heads in "
        "most_wrong.html; 0 or null for none",
        minimum=0,
        maximum=200,
    )
    font: str | None = setting(None, "font file for token names; by default one is looked for that has the characters")
