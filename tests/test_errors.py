"""How messages name many things."""

from headscope.ground.errors import listed, shown


def test_a_message_names_twenty_and_counts_the_rest() -> None:
    assert listed([]) == ""
    assert listed(["a", 2]) == "a, 2"
    assert listed(list(range(1, 21))).endswith("19, 20")
    assert listed(list(range(1, 24))).endswith("19, 20 and 3 more")


def test_a_message_shows_the_beginning_of_a_long_value_and_escapes_for_control_characters() -> None:
    assert shown("日本 é") == "日本 é"
    assert shown("a\n\x1b[31m") == r"a\n\x1b[31m"
    assert shown("x" * 100_000) == "x" * 60 + "... (100,000 characters)"
    assert listed(["x" * 100_000] * 30) == ", ".join([shown("x" * 100_000)] * 20) + " and 10 more"
