"""MARS: the probability of what came, with the edit integrated out, and a proposal that learns from it."""

from collections.abc import Callable

import torch

from stochflow.environments.channels import confusion
from stochflow.experiments.experiment import Experiment
from stochflow.models.edit_proposal import EditProposal
from stochflow.objectives.baselines.mars import Mars, realised_log_proposal

MATRIX = torch.tensor([[0.8, 0.15, 0.05], [0.3, 0.6, 0.1], [0.1, 0.2, 0.7]], dtype=torch.float64)


def random_proposal(generator: torch.Generator, uniform_share: float = 0.1) -> EditProposal:
    proposal = EditProposal(3, 4, width=8, uniform_share=uniform_share)
    proposal.initialise(generator)
    with torch.no_grad():
        proposal.head.weight.normal_(std=10.0, generator=generator)
    return proposal.double()


def test_an_edit_is_never_the_letter_that_is_there(generator: torch.Generator) -> None:
    sequences = torch.randint(3, (6, 4), generator=generator)
    probs = random_proposal(generator)(sequences).exp()
    torch.testing.assert_close(probs.sum(dim=(1, 2)), torch.ones(6, dtype=torch.float64))
    assert probs.gather(-1, sequences.unsqueeze(-1)).max() < 1e-20
    others = probs[~torch.nn.functional.one_hot(sequences, 3).bool()]
    assert others.min() >= 0.1 / 8 - 1e-12
    assert others.max() > 2 / 8


def test_proposals_begin_uniform(generator: torch.Generator) -> None:
    proposal = EditProposal(3, 4, width=8, uniform_share=0.1)
    proposal.initialise(generator)
    probs = proposal(torch.zeros(1, 4, dtype=torch.int64)).exp()
    torch.testing.assert_close(probs[:, :, 1:], torch.full((1, 4, 2), 1 / 8))


def test_what_comes_of_an_edit_has_the_probability_of_all_ways_there(generator: torch.Generator) -> None:
    before, realised = (torch.randint(3, (5, 4), generator=generator) for _ in range(2))
    log_edits = random_proposal(generator)(before).detach()
    channel = confusion(MATRIX)
    expected = torch.zeros(5, dtype=torch.float64)
    for position in range(4):
        for letter in range(3):
            edited = before.clone()
            edited[:, position] = letter
            expected += log_edits[:, position, letter].exp() * MATRIX[edited, realised].prod(dim=-1)
    found = realised_log_proposal(log_edits, before, realised, channel.log_matrices(4).unsqueeze(0))
    torch.testing.assert_close(found.exp(), expected)


def test_proposed_edits_follow_the_network(tiny: Callable[..., Experiment], generator: torch.Generator) -> None:
    objective = tiny("mars").trainer.objective
    assert isinstance(objective, Mars)
    with torch.no_grad():
        objective.proposal.head.weight.normal_(generator=generator)
    state = torch.tensor([[0, 1, 2]])
    probs = objective.proposal(state).exp()[0]
    num = 20_000
    proposed = objective.propose(state.expand(num, -1), generator)
    assert torch.equal((proposed != state).sum(dim=-1), torch.ones(num, dtype=torch.int64))
    shares = torch.nn.functional.one_hot(proposed, 3).double().mean(dim=0)
    changed = probs.double() * (torch.nn.functional.one_hot(state[0], 3) == 0)
    five_sigma = 5.0 * (changed * (1.0 - changed) / num).sqrt() + 1e-6
    assert bool(((shares - changed).abs() <= five_sigma)[changed > 0].all())


def test_the_proposal_learns_the_moves_that_improved(tiny: Callable[..., Experiment]) -> None:
    trainer = tiny("mars", optimiser={"updates": 40}).trainer
    objective = trainer.objective
    assert isinstance(objective, Mars)
    worse, better = torch.tensor([[0, 0, 0]]), torch.tensor([[0, 2, 0]])
    optimiser = torch.optim.Adam(objective.proposal.parameters(), lr=0.02)
    for terms in objective.learn(worse, better):
        optimiser.zero_grad()
        terms["loss"].backward()
        optimiser.step()
    probs = objective.proposal(worse).exp()[0]
    assert probs.argmax().item() == 1 * 3 + 2
    assert probs[1, 2] > 0.8


def test_only_the_latest_improvements_are_kept_and_none_means_no_update(tiny: Callable[..., Experiment]) -> None:
    objective = tiny("mars", chains={"improvements": 3}, optimiser={"updates": 1}).trainer.objective
    assert isinstance(objective, Mars)
    nothing = torch.empty(0, 3, dtype=torch.int64)
    assert list(objective.learn(nothing, nothing)) == []
    for token in (0, 1):
        assert len(list(objective.learn(torch.full((2, 3), token), torch.full((2, 3), token + 1)))) == 1
    assert objective.improvements[:, 0, 0].tolist() == [0, 1, 1]


def test_training_moves_the_proposal_and_nothing_else(
    tiny: Callable[..., Experiment], trained: Callable[..., Experiment]
) -> None:
    start, end = tiny("mars"), trained("mars", budget={"steps": 4})
    before, after = (experiment.trainer.objective.own.state_dict() for experiment in (start, end))
    assert not torch.equal(before["proposal.head.weight"], after["proposal.head.weight"])
    networks = (start.network.state_dict(), end.network.state_dict())
    assert all(torch.equal(weight, networks[1][name]) for name, weight in networks[0].items())
