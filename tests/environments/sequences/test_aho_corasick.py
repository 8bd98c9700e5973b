"""Words found in one pass."""

import itertools

import torch

from stochflow.environments.sequences.aho_corasick import aho_corasick

WORDS = [(0, 1), (1, 1, 0), (1,), (0, 1, 1)]


def test_every_word_is_found_where_it_ends_and_nowhere_else() -> None:
    automaton = aho_corasick(WORDS, num_tokens=2)
    marks = torch.zeros(len(automaton.moves), len(WORDS), dtype=torch.bool)
    marks[automaton.ends, torch.arange(len(WORDS))] = True
    found = automaton.spread(marks)
    for text in itertools.product(range(2), repeat=6):
        node = 0
        for end, token in enumerate(text, start=1):
            node = int(automaton.moves[node, token])
            assert found[node].tolist() == [text[max(end - len(word), 0) : end] == word for word in WORDS]


def test_a_mark_of_a_longer_word_does_not_hide_a_larger_one_of_its_suffix() -> None:
    automaton = aho_corasick(WORDS, num_tokens=2)
    marks = torch.zeros(len(automaton.moves), dtype=torch.int64)
    marks[automaton.ends] = torch.tensor([1, 1, 2, 1])
    spread = automaton.spread(marks)
    assert [int(spread[end]) for end in automaton.ends] == [2, 1, 2, 2]
    assert int(marks[automaton.ends[0]]) == 1, "the marks that were given stay as they are"


def test_without_words_there_is_one_node() -> None:
    automaton = aho_corasick([], num_tokens=3)
    assert automaton.moves.tolist() == [[0, 0, 0]]
    assert automaton.spread(torch.zeros(1, dtype=torch.bool)).tolist() == [False]
