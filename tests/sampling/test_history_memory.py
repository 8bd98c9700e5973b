"""One payment per design, whatever way it was made."""

import torch
from torch import Tensor

from stochflow.environments.rewards import Reward
from stochflow.sampling.history_memory import HistoryMemory


def tens(rows: Tensor) -> Tensor:
    return (10 * rows[:, 0] + rows[:, 1]).double()


def fresh(reward: Reward | None = None) -> HistoryMemory:
    """A row of tokens stands for the same tokens in order."""
    return HistoryMemory(3, 2, lambda rows: rows.sort(dim=1).values, reward)


def test_the_same_design_is_paid_for_once() -> None:
    memory = fresh()
    asked: list[list[int]] = []

    def oracle(rows: Tensor) -> Tensor:
        asked.extend(rows.tolist())
        return tens(rows)

    rows = torch.tensor([[1, 0], [0, 1], [2, 2]])
    assert memory.asks(rows).tolist() == [True, False, True]
    assert memory.pay(rows, oracle).tolist() == [1.0, 1.0, 22.0]
    assert asked == [[0, 1], [2, 2]]
    assert memory.num_calls == 2
    assert len(memory) == 3
    again = torch.tensor([[2, 2], [2, 0], [0, 2], [1, 0]])
    assert memory.asks(again).tolist() == [False, True, False, False]
    assert memory.pay(again, oracle).tolist() == [22.0, 2.0, 2.0, 1.0]
    assert asked[2:] == [[0, 2]]
    assert memory.num_calls == 3


def test_every_history_has_the_score_of_its_design() -> None:
    memory = fresh()
    rows = torch.tensor([[1, 0], [0, 1], [2, 1]])
    memory.pay(rows, tens)
    torch.testing.assert_close(memory.scores, tens(memory.sequences.sort(dim=1).values))
    assert len(memory.scores) == len(memory.trie) == 3
    assert memory.designs.sequences.tolist() == [[0, 1], [1, 2]]
    # a history that was never seen is known by its design
    assert memory.lookup(torch.tensor([[1, 2], [2, 0]])).nan_to_num(-1).tolist() == [12.0, -1.0]


def test_noisy_measurements_are_averaged_over_histories() -> None:
    memory = fresh(Reward(beta=1.0, floor=1e-6, ramp=0.0))
    answers = iter([[1.0], [3.0]])
    memory.pay(torch.tensor([[1, 0]]), lambda rows: torch.tensor(next(answers)))
    memory.pay(torch.tensor([[0, 1]]), lambda rows: torch.tensor(next(answers)))
    assert memory.scores.tolist() == [2.0, 2.0]
    assert memory.num_calls == 2


def test_what_is_remembered_survives_a_checkpoint() -> None:
    memory = fresh()
    memory.pay(torch.tensor([[1, 0], [0, 1], [2, 1]]), tens)
    state = {name: tensor.clone() for name, tensor in memory.state_dict().items()}
    again = fresh()
    again.load_state_dict(state)
    rows = torch.tensor([[1, 2], [0, 2], [2, 0]])
    assert torch.equal(again.scores, memory.scores)
    assert torch.equal(again.asks(rows), memory.asks(rows))
    assert torch.equal(again.pay(rows, tens), memory.pay(rows, tens))
    assert again.state_dict().keys() == memory.state_dict().keys()
    assert all(torch.equal(tensor, memory.state_dict()[name]) for name, tensor in again.state_dict().items())


def test_the_best_scores_count_a_design_once() -> None:
    memory = fresh()
    memory.pay(torch.tensor([[1, 2], [2, 1], [0, 1]]), tens)
    assert memory.best_scores(2).tolist() == [12.0, 1.0]
