"""MARS: annealed chains whose edits are proposed by a network that learns from what improved."""

from collections.abc import Iterator

import torch
from torch import Tensor

from stochflow.core.logspace import pick
from stochflow.models.edit_proposal import EditProposal
from stochflow.objectives.base import Terms
from stochflow.objectives.baselines.mcmc import MetropolisHastings
from stochflow.objectives.learners import SequenceLearner
from stochflow.objectives.path_terms import log_likelihood


def realised_log_proposal(log_edits: Tensor, before: Tensor, realised: Tensor, log_dynamics: Tensor) -> Tensor:
    """log q(x|y) = log Σ_e q(e|y)·Π_t P̂(x_t|y^e_t): what comes of an edit, with the edit integrated out.

    Args:
        log_edits: log q(e|y) of every position and letter, [batch, L, K].
        before: y, [batch, L].
        realised: x, [batch, L].
        log_dynamics: log P̂(b|a) along x, [batch or 1, L, K, K].

    Returns:
        [batch].
    """
    log_letters = log_likelihood(log_dynamics, realised)
    unedited = pick(log_letters, before)
    # an edit exchanges one factor of the product
    exchanged = log_edits + log_letters - unedited.unsqueeze(-1)
    return unedited.sum(dim=-1) + exchanged.flatten(1).logsumexp(dim=-1)


class Mars(MetropolisHastings):
    """Metropolis–Hastings with a learned proposal, hot at the start.

    The proposal is fitted by maximum likelihood to the latest moves that raised the reward. What was meant is not what
    came, so the likelihood is that of the realised sequence, through P̂; the same quantity corrects the acceptance, so
    that the states settle at R/Z whatever was learned, as far as P̂ is right.

    Attributes:
        improvements: latest improving moves, from [:, 0] to [:, 1], uint8, [num, 2, L].
    """

    reads_dynamics = True  # the likelihood of what came goes through P̂

    def __init__(self, learner: SequenceLearner) -> None:
        super().__init__(learner)
        network, config = learner.network, learner.config.chains
        self.proposal = EditProposal(network.num_tokens, network.length, config.width, config.uniform_share)
        self.proposal.initialise(learner.generators["init"])
        self.own["proposal"] = self.proposal.to(learner.device)
        self.improvements = torch.empty(0, 2, network.length, dtype=torch.uint8)

    @torch.no_grad()
    def propose(self, states: Tensor, generator: torch.Generator) -> Tensor:
        if not len(states):
            return states
        edits = self.proposal(states.to(self.learner.device)).flatten(1).exp().cpu()
        chosen = torch.multinomial(edits, 1, generator=generator)
        num_tokens = self.learner.network.num_tokens
        return states.scatter(1, chosen // num_tokens, chosen % num_tokens)

    @torch.no_grad()
    def log_correction(self, before: Tensor, realised: Tensor) -> Tensor:
        return (self._log_proposal(realised, before) - self._log_proposal(before, realised)).double().cpu()

    def learn(self, before: Tensor, after: Tensor) -> Iterator[Terms]:
        learner = self.learner
        latest = torch.stack([before, after], dim=1).to(torch.uint8)
        self.improvements = torch.cat([self.improvements, latest])[-learner.config.chains.improvements :]
        if not len(self.improvements):
            return
        size = (learner.config.optimiser.batch_size,)
        for _ in range(learner.config.optimiser.updates):
            rows = torch.randint(len(self.improvements), size, generator=learner.generators["replay"])
            worse, better = self.improvements[rows].long().unbind(dim=1)
            yield {"loss": -self._log_proposal(worse, better).mean()}

    def state_dict(self) -> dict[str, Tensor]:
        return super().state_dict() | {"improvements": self.improvements}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        super().load_state_dict(state)
        self.improvements = state["improvements"]

    def _log_proposal(self, before: Tensor, realised: Tensor) -> Tensor:
        before, realised = before.to(self.learner.device), realised.to(self.learner.device)
        log_dynamics = self.learner.log_channel_of(realised)
        return realised_log_proposal(self.proposal(before), before, realised, log_dynamics)
