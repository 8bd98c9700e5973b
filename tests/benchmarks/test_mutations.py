"""The list of mutations stays true to the code."""

from benchmarks.mutations import MUTATIONS, ROOT, misplaced
from benchmarks.mutations import test_files as files_of


def test_every_mutation_finds_the_text_that_it_replaces() -> None:
    assert misplaced(MUTATIONS) == []


def test_no_mutation_stands_twice() -> None:
    assert len({(one.file, one.old, one.new) for one in MUTATIONS}) == len(MUTATIONS)


def test_a_mutation_whose_text_is_gone_is_named() -> None:
    gone = MUTATIONS[0]._replace(old="nobody ever wrote this")
    assert misplaced([gone, MUTATIONS[1]]) == [f"0 times in {gone.file}: nobody ever wrote this"]


def test_every_mutation_has_tests() -> None:
    """A file that was renamed would be left out without a word."""
    named = {name for one in MUTATIONS for name in one.tests.split()}
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
    assert all(files_of(one, ROOT) for one in MUTATIONS)
