"""Keys of n-grams are the published FNV-1a, distinct within a word, and the same however many words are asked at once."""

import numpy as np
import pytest

from headscope.data.ngrams import NO_KEY, context_keys, joint_keys, numbers_of, word_keys

# draft-eastlake-fnv, appendix: FNV-1a of 64 bits.
PUBLISHED = {"": 0xCBF29CE484222325, "a": 0xAF63DC4C8601EC8C, "foobar": 0x85944171F73967E8}


def written_out(text: str) -> int:
    key = 0xCBF29CE484222325
    for sign in text:
        key = (key ^ ord(sign)) * 0x100000001B3 % 2**64
    return key


def keys_of(word: str) -> list[int]:
    """Return the keys of a word and of the distinct n-grams within it, by their definition."""
    marked = f"<{word}>"
    ngrams = {marked[at : at + n] for n in (3, 4) for at in range(len(marked) - n + 1)} - {marked}
    return [written_out(word), *sorted(written_out(f"\0{ngram}") for ngram in ngrams)]


@pytest.mark.parametrize("text", PUBLISHED)
def test_the_key_of_a_word_is_its_published_hash(text: str) -> None:
    keys, starts = word_keys([text])
    assert keys[0] == PUBLISHED[text] == written_out(text)
    assert starts.tolist() == [0, len(keys)]


def test_a_word_has_itself_first_and_each_ngram_within_it_once() -> None:
    words = ["banana", "", "a", "ab", "banana", "猫", "\ud800x", "é" * 5000, "\U0001f3ac film"]
    keys, starts = word_keys(words)
    for number, word in enumerate(words):
        first, *within = keys[starts[number] : starts[number + 1]].tolist()
        assert [first, *sorted(within)] == keys_of(word), word
        assert word_keys([word])[0].tolist() == [first, *within]
    keys, starts = word_keys([])
    assert (len(keys), starts.tolist()) == (0, [0])


def test_no_pair_and_no_three_reach_across_a_special_token() -> None:
    words = np.array([NO_KEY, 2, 3, 5, NO_KEY, 7, 11], np.uint64)
    are_characters = np.array([False, True, True, True, False, True, True])
    (two, three), (_, five), (_, eleven) = context_keys(words, are_characters)[[2, 3, 6]]
    assert two == joint_keys(words[1:2], words[2:3])[0]
    assert three == eleven == NO_KEY
    assert five == joint_keys(joint_keys(words[1:2], words[2:3]), words[3:4])[0]
    assert np.flatnonzero(context_keys(words, are_characters)[:, 0]).tolist() == [2, 3, 6]
    for few in range(3):
        assert not context_keys(words[:few], are_characters[:few]).any()
    assert numbers_of(np.array([5, 4, 2], np.uint64), np.array([2, 5], np.uint64)).tolist() == [
        1,
        -1,
        0,
    ]
