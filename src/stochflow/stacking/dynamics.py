"""The dynamics models of several runs, fitted together."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from stochflow.logmath import masked_log_softmax
from stochflow.models.dynamics import DynamicsModel
from stochflow.stacking.descent import StackedDescent, stacked_parameters
from stochflow.trainer import Record, Trainer, dynamics_learning_rate
from stochflow.trajectory import Trajectories


class StackedDynamics:
    """P̂ of every run. Tables are fitted in one program; what sees the state is fitted run by run."""

    def __init__(self, trainers: Sequence[Trainer]) -> None:
        self._trainers = trainers
        models = [trainer.learner.dynamics for trainer in trainers]
        self._tables: _Tables | None = None
        if isinstance(models[0], DynamicsModel) and not models[0].sees_state:
            descents = [fitter for trainer in trainers if (fitter := trainer.dynamics_fitter.descent) is not None]
            stacks = stacked_parameters(models)
            self._tables = _Tables(stacks, models[0], StackedDescent(stacks, models, descents))

    def fit(self, fresh: Sequence[Trajectories], progress: float) -> list[Record]:
        """What `Trainer.fit_dynamics` does, for every run."""
        if self._tables is None:
            return [trainer.fit_dynamics(batch, progress) for trainer, batch in zip(self._trainers, fresh, strict=True)]
        config = self._trainers[0].learner.config.dynamics
        batches, rounds = list(fresh), 1
        if config.off_policy:
            rounds = config.rounds
            batches = [
                trainer.learner.replay.sample(rounds * config.sample_size, trainer.learner.generators["replay"])
                for trainer in self._trainers
            ]
        counts = transition_counts(batches, rounds, self._tables.model.num_tokens)
        losses = [self._tables.fit(of_round, dynamics_learning_rate(config, progress)) for of_round in counts]
        return [{"forward_dynamics_loss": loss} for loss in torch.stack(losses).mean(dim=0).tolist()]

    def log_matrices(self, outcomes: Tensor) -> Tensor:
        """log P̂(b|s_t,a), without gradient; [runs, batch, time] → [runs, batch or 1, time, K, K]."""
        if self._tables is not None:
            return self._tables.log_probs(outcomes.shape[-1]).unsqueeze(1)
        learners = [trainer.learner for trainer in self._trainers]
        return torch.stack([learner.log_dynamics(rows) for learner, rows in zip(learners, outcomes, strict=True)])

    def settle(self) -> None:
        """Give every run its own moments."""
        if self._tables is not None:
            self._tables.descent.settle()


class _Tables:
    """Logits that depend on the intention and perhaps the position, with the gradient in closed form.

    The cross-entropy sees a batch through its counts alone: its gradient is (n_a·P̂ − n_ab)/n.
    """

    def __init__(self, stacks: dict[str, nn.Parameter], model: DynamicsModel, descent: StackedDescent) -> None:
        self.model, self.descent = model, descent
        self._stacks = stacks

    @torch.no_grad()
    def log_probs(self, time: int) -> Tensor:
        """log P̂(b|a) at so many positions, [runs, time, K, K]."""
        logits = self._stacks["intention"].unsqueeze(1).expand(-1, time, -1, -1)
        if "position" in self._stacks:
            logits = logits + self._stacks["position"][:, :time]
        return masked_log_softmax(logits, self.model.possible)

    @torch.no_grad()
    def fit(self, counts: Tensor, learning_rate: float) -> Tensor:
        """One update of every run on counts [runs, time, K, K]; the losses, [runs]."""
        intention, position = self._stacks["intention"], self._stacks.get("position")
        counts = counts.to(intention.dtype)
        log_probs = self.log_probs(counts.shape[1])
        num = counts.sum(dim=(1, 2, 3), keepdim=True).clamp_min(1)
        losses = -((counts * log_probs).sum(dim=(1, 2, 3)) / num.flatten())
        gradient = (counts.sum(dim=-1, keepdim=True) * log_probs.exp() - counts) / num
        intention.grad = gradient.sum(dim=1)
        if position is not None:
            position.grad = gradient
        self.descent.step(learning_rate)
        return losses


def transition_counts(batches: Sequence[Trajectories], rounds: int, num_tokens: int) -> Tensor:
    """How often each outcome followed each intention in each part of every run's batch.

    Args:
        batches: one per run, of equal size; each is cut into `rounds` equal parts.

    Returns:
        int64, [rounds, runs, time, K, K].
    """
    length = batches[0].outcomes.shape[1]
    pairs = torch.stack([batch.intentions * num_tokens + batch.outcomes for batch in batches])  # [runs, rows, time]
    valid = torch.stack([batch.valid for batch in batches])
    shape = (rounds, len(batches), length, num_tokens, num_tokens)
    num_bins = rounds * len(batches) * length * num_tokens**2
    places = torch.arange(0, num_bins, num_tokens**2).view(rounds, len(batches), 1, length)
    bins = pairs.unflatten(1, (rounds, -1)).transpose(0, 1) + places
    # what is not valid falls into a bin of its own
    bins = torch.where(valid.unflatten(1, (rounds, -1)).transpose(0, 1), bins, num_bins)
    return bins.flatten().bincount(minlength=num_bins + 1)[:-1].view(shape)
