"""Scores of the objects of a graph: each is paid for once."""

import torch

from stochflow.sampling.object_memory import ObjectMemory

SCORES = torch.tensor([0.5, 1.0, 2.0, 4.0], dtype=torch.float64)


def test_the_oracle_is_asked_for_the_first_of_each_new_object() -> None:
    memory = ObjectMemory(SCORES)
    memory.pay(torch.tensor([2]), lambda objects: SCORES[objects])
    assert memory.asks(torch.tensor([1, 2, 1, 0, 0])).tolist() == [True, False, False, True, False]
    scores = memory.pay(torch.tensor([1, 2, 1, 0, 0]), lambda objects: SCORES[objects])
    assert scores.tolist() == [1.0, 2.0, 1.0, 0.5, 0.5]
    assert memory.num_calls == 3
    assert not bool(memory.asks(torch.tensor([0, 1, 2])).any())


def test_only_what_was_paid_for_is_known() -> None:
    memory = ObjectMemory(SCORES)
    memory.pay(torch.tensor([3, 1]), lambda objects: SCORES[objects])
    found = memory.lookup(torch.tensor([[0, 1], [2, 3]]))
    assert found.isnan().tolist() == [[True, False], [True, False]]
    assert found[:, 1].tolist() == [1.0, 4.0]


def test_a_restored_memory_knows_the_same() -> None:
    memory, restored = ObjectMemory(SCORES), ObjectMemory(SCORES)
    memory.pay(torch.tensor([3, 1]), lambda objects: SCORES[objects])
    restored.load_state_dict(memory.state_dict())
    assert restored.paid.tolist() == [False, True, False, True]
    assert restored.num_calls == 2


def test_the_best_scores_are_those_of_paid_objects() -> None:
    memory = ObjectMemory(SCORES)
    memory.pay(torch.tensor([0, 2, 1]), lambda objects: SCORES[objects])
    assert memory.best_scores(2).tolist() == [2.0, 1.0]
