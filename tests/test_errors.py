"""How messages name many things."""

from headscope.errors import listed


def test_a_message_names_twenty_and_counts_the_rest() -> None:
    assert listed([]) == ""
    assert listed(["a", 2]) == "a, 2"
    assert listed(list(range(1, 21))).endswith("19, 20")
    assert listed(list(range(1, 24))).endswith("19, 20 and 3 more")
