"""What answers searches of other packages, and what they begin with."""

import pytest
import torch

from benchmarks.originals import Ledger, SpentError, feasible_start
from stochflow.environments.sequences.ehrlich import Ehrlich


def test_a_ledger_pays_for_a_design_once_and_ends_the_search_at_the_last_call():
    task = Ehrlich(4, 8, 2, 2)
    optimum = task.alphabet.decode(task.optimum.unsqueeze(0))[0]
    ledger = Ledger(task, calls=3)
    assert ledger.score([optimum, optimum]).tolist() == [1.0, 1.0]
    with pytest.raises(SpentError):
        ledger.score(["A" * 8, "B" * 8, optimum, "C" * 8])
    names, scores = ledger.paid()
    assert names == [optimum, "A" * 8, "B" * 8]
    torch.testing.assert_close(scores, task.score(task.alphabet.encode(names)), atol=0, rtol=0)
    assert ledger.num_asked == 6


def test_a_start_on_an_ehrlich_function_is_feasible_and_differs_between_seeds():
    task = Ehrlich(32, 32, 4, 4)
    starts = torch.cat([feasible_start(task, seed) for seed in range(20)])
    assert task.feasible(starts).all()
    assert len(starts.unique(dim=0)) == 20
