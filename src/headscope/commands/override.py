"""What Hydra's grammar makes of a value."""

from functools import cache

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, ValueType
from hydra.errors import HydraException


@cache
def _parsed(value: str) -> Override | None:
    try:
        return OverridesParser.create().parse_override(f"key={value}")
    except HydraException:
        return None


def is_understood(value: str) -> bool:
    """Tell whether Hydra can read a value as it stands."""
    return _parsed(value) is not None


def is_list_of_values(value: str) -> bool:
    """Tell whether Hydra takes a value for several with commas between them."""
    found = _parsed(value)
    return found is not None and found.value_type == ValueType.SIMPLE_CHOICE_SWEEP
