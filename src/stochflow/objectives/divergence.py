"""SGFN-KL: KL(P_π‖R/Z) with the intention integrated out, over trajectories or state by state."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from stochflow.core.arrays import Array
from stochflow.core.logspace import log_marginal, masked_mean, pick
from stochflow.models.base import Sampler
from stochflow.models.dynamics.tabular import chosen
from stochflow.models.evaluation import ClosedFormLoss, PathHeads
from stochflow.objectives.base import ARITHMETIC, Objective, TensorTerms, Terms
from stochflow.objectives.entropy import EntropyTerms, entropy_gradient, entropy_terms
from stochflow.objectives.path_gradients import PathOutputs, log_softmax, log_sum, silent
from stochflow.objectives.path_terms import log_posterior, observed_paths
from stochflow.objectives.regression_losses import balance_loss
from stochflow.objectives.state_flows import Paths
from stochflow.sampling.trajectories import Trajectories


def reward_adjusted_diff(log_reward: Tensor, log_marginals: Tensor, valid: Tensor) -> Tensor:
    """log R(x) − Σ_t log M(s_{t+1}|s_t) over the real steps; [batch], [batch, time] → [batch]."""
    return log_reward - (log_marginals * valid).sum(dim=-1)


def trajectory_weights(residual: Tensor, log_weights: Tensor | None) -> Tensor:
    """Share of each trajectory in a mean under the policy: equal, or by importance; sums to one, [batch]."""
    if log_weights is None:
        return torch.full_like(residual, 1.0 / len(residual))
    return torch.softmax(log_weights.detach().to(residual.dtype), dim=0)


def trajectory_kl_loss(residual: Tensor, log_weights: Tensor | None = None) -> Tensor:
    """½·Var of the residual over the batch: its on-policy gradient is that of the KL with a batch baseline.

    Args:
        residual: log R − Σ log M, [batch].
        log_weights: log importance weights π/behaviour of off-policy trajectories, [batch]; they sum to one
            after normalisation and carry no gradient.
    """
    size, weights = len(residual), trajectory_weights(residual, log_weights)
    centred = residual - (weights * residual).sum()
    return 0.5 * (weights * centred.square()).sum() * size / max(size - 1, 1)


def state_kl(log_marginals: Tensor, log_child_flows: Tensor, log_flow: Tensor) -> Tensor:
    """Σ_b M(b|s)·[log M(b|s) − log F(s_b) + log F(s)] over all children; [..., K], [..., K], [...] → [...].

    Flows are held fixed. With F(s) = Σ_b F(s_b) it is KL(M‖F(s_b)/F(s)), which is zero at balance.
    """
    gap = log_marginals - log_child_flows.detach() + log_flow.detach().unsqueeze(-1)
    return (log_marginals.exp() * gap).sum(dim=-1)


def policy_kl(log_planned: Tensor, log_policy: Tensor) -> Tensor:
    """KL(π*‖π_θ) from a planned policy, whose gradient in the logits is π_θ − π*; [..., A] each → [...].

    >>> policy_kl(torch.tensor([0.5, 0.5]).log(), torch.tensor([0.5, 0.5]).log())
    tensor(0.)
    """
    return (log_planned.exp() * (log_planned - log_policy)).sum(dim=-1)


def marginal_balance_residual(log_flow: Tensor, log_marginals: Tensor, log_next_flow: Tensor) -> Tensor:
    """δ_M = log F(s) + log M(s'|s) − log F(s'), the flows' own condition on a tree; any common shape."""
    return log_flow + log_marginals.detach() - log_next_flow


def log_hindsight(heads: PathHeads, log_matrices: Tensor, paths: Paths) -> Tensor:
    """log π_B(a_t|x, pairs before t) of what was intended, [batch, time].

    It starts as the posterior at the step itself, πP̂/M, and the head learns what later outcomes add.

    Args:
        log_matrices: log P̂(b|h_t,a), [batch or 1, time, K, K].
    """
    assert heads.log_backward is not None, "the heads were evaluated without π_B"
    at_the_step = log_posterior(heads.log_policy.detach(), log_matrices, paths.outcomes)
    return pick(torch.log_softmax(at_the_step + heads.log_backward, dim=-1), paths.intentions)


def kl_divergence_loss(divergence: Tensor, entropy: EntropyTerms) -> Tensor:
    """KL − λ_r·mean log r_γ + λ_d·L_dyn, a scalar."""
    return divergence + entropy.penalty


class TrajectoryKL(Objective):
    """One update per fresh batch: remembered trajectories stay out of an on-policy gradient."""

    _last_residual = 0.0

    @property
    def reads_behaviour(self) -> bool:
        """Only exploration makes it differ from the policy."""
        exploration = self.learner.config.exploration
        return exploration.epsilon > 0 or exploration.temperature != 1.0

    def sampler(self, batch_size: int) -> Sampler:
        return self.learner.network.recording_sampler(batch_size)

    def updates(self, fresh: Trajectories, step: int, progress: float) -> Iterator[Terms]:
        learner = self.learner
        several_ways = learner.network.reads_history or not learner.environment.is_tree
        evaluation = learner.evaluate(fresh, "learned" if several_ways else None)
        terms: Terms
        if learner.is_full(fresh):
            log_reward = learner.log_rewards(fresh, step).float().numpy()
            outputs = PathOutputs(evaluation.outputs(), learner.network.num_actions, fresh.outcomes.shape[1])
            values = self.closed_form(outputs, fresh, log_reward, learner.log_dynamics(fresh).cpu().numpy(), progress)
            terms = {**values, "loss": ClosedFormLoss.of(values["loss"], evaluation, outputs.gradient)}
        else:
            paths = observed_paths(learner, fresh, step)
            log_behaviour = fresh.log_behaviour.to(learner.network.dtype).to(learner.device)
            heads, log_matrices = evaluation.heads(), learner.log_dynamics(fresh)
            terms = self.path_terms(paths, heads, log_matrices, log_behaviour, progress)
        residual = terms["reward_adjusted_diff_mean"]
        self._last_residual = float(residual.detach() if isinstance(residual, Tensor) else residual)
        yield terms

    def path_terms(
        self, paths: Paths, heads: PathHeads, log_matrices: Tensor, log_behaviour: Tensor, progress: float
    ) -> TensorTerms:
        """The loss of one batch and what is logged with it.

        Args:
            log_matrices: log P̂(b|s_t,a), [batch or 1, time, A, C].
            log_behaviour: log-probability of each intention under the policy that drew it, [batch, time].
        """
        log_policy = heads.log_policy
        log_back = heads.log_parent
        log_marginals = pick(log_marginal(log_policy, log_matrices), paths.outcomes)
        if self.learner.network.reads_history:
            log_back = log_hindsight(heads, log_matrices, paths)
            walked = pick(log_policy, paths.intentions) + chosen(log_matrices, paths.intentions, paths.outcomes)
            # the value is that of the pair; the gradient that of log M, which is its mean over intentions given what
            # came. That leaves out what an intention does to later steps other than by its outcome, and is far quieter
            log_marginals = log_marginals + (walked - log_marginals).detach()
        if log_back is not None:
            log_marginals = log_marginals - log_back.detach()
        residual = reward_adjusted_diff(paths.log_reward, log_marginals, paths.valid)
        log_weights = None
        if self.reads_behaviour:
            log_weights = ((pick(log_policy, paths.intentions) - log_behaviour) * paths.valid).sum(dim=-1)
        divergence = trajectory_kl_loss(residual, log_weights)
        entropy = entropy_terms(log_policy, paths.valid.float(), self.learner.config.objective, progress, heads.choices)
        terms = {
            "loss": kl_divergence_loss(divergence, entropy),
            "kl_loss": divergence,
            "log_entropy_ratio": entropy.log_ratio,
            "dynamics_loss": entropy.dynamics,
            "reward_adjusted_diff_mean": residual.mean(),
            "reward_adjusted_diff_std": residual.std(correction=0),
        }
        if log_back is None:
            return terms
        # the same KL in p_B: the likelihood, under the policy, of the parents that were passed through
        weights = trajectory_weights(residual.detach(), log_weights)
        backward_loss = -(weights * (log_back * paths.valid).sum(dim=-1)).sum()
        return terms | {"loss": terms["loss"] + backward_loss, "backward_loss": backward_loss}

    @silent()
    def closed_form(
        self, outputs: PathOutputs, batch: Trajectories, log_reward: Array, log_matrices: Array, progress: float
    ) -> dict[str, float]:
        """What `path_terms` says where every step counts; the gradient in the network's outputs is added to theirs."""
        joint = outputs.log_policy + outputs.log_likelihood(log_matrices, batch.outcomes.numpy())
        log_marginals = log_sum(joint)
        residual = log_reward - np.add.reduce(log_marginals, axis=-1)
        size = len(residual)
        weights = np.full_like(residual, 1.0 / size)
        if self.reads_behaviour:
            log_weights = outputs.log_forward(batch.intentions.numpy()) - batch.log_behaviour.numpy()
            weights = log_softmax(log_weights.sum(axis=-1).astype(residual.dtype)[None])[1][0]
        centred = residual - np.add.reduce(weights * residual)
        coefficient = weights * centred * np.asarray(size / max(size - 1, 1), residual.dtype)
        loss = np.add.reduce(coefficient * centred) / 2.0
        choice = np.exp(joint - log_marginals[..., None])
        outputs.add_grad_forward(np.repeat(-coefficient[:, None], log_marginals.shape[1], axis=1), choice)
        entropies = outputs.entropies()
        entropy = entropy_gradient(entropies, self.learner.config.objective, progress)
        if entropy.gradient is not None:
            outputs.add_grad_entropies(entropy.gradient, entropies)
        return {
            "loss": float(loss + entropy.penalty),
            "kl_loss": float(loss),
            "log_entropy_ratio": float(entropy.log_ratio),
            "dynamics_loss": float(entropy.dynamics),
            "reward_adjusted_diff_mean": float(residual.mean()),
            "reward_adjusted_diff_std": float(residual.std()),
        }

    def log_z(self) -> float:
        """Mean residual of the last batch: E[log R − log P_π] = log Z − KL."""
        return self._last_residual

    def state_dict(self) -> dict[str, Tensor]:
        return {"last_residual": torch.tensor(self._last_residual, dtype=torch.float64)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self._last_residual = float(state["last_residual"])


class BootstrappedKL(Objective):
    """State scope with log F learned from its own children by marginal balance; any trajectories will do."""

    # the policy follows the children's flows, and those of paid leaves are the memory's means of R
    reward_mean = ARITHMETIC

    def updates(self, fresh: Trajectories, step: int, progress: float) -> Iterator[Terms]:
        for batch in self.learner.replayed(fresh):
            yield self.terms(batch, step, progress)

    def terms(self, batch: Trajectories, step: int, progress: float) -> Terms:
        learner = self.learner
        paths = observed_paths(learner, batch, step)
        heads = learner.evaluate(batch, None if learner.environment.is_tree else "learned", ends=True).heads()
        log_policy, log_flow, valid = heads.log_policy, heads.log_flow, paths.valid
        log_marginals = log_marginal(log_policy, learner.log_dynamics(batch))
        log_child_flows = learner.child_flows(batch, step)
        # averaged over all children under M, not over those that came: where balance is out of reach this, and only
        # this, leads log F to the soft value Σ_b M_b·(V_b − log M_b), whoever drew the trajectories
        residual = marginal_balance_residual(log_flow.unsqueeze(-1), log_marginals, log_child_flows)
        expected = (log_marginals.detach().exp() * residual).sum(dim=-1)
        # complete sequences are states too: their flow learns log R, for children that were never paid for
        assert heads.log_end_flow is not None
        leaf_loss = (heads.log_end_flow - paths.log_reward).square().mean()
        flow_loss = balance_loss(expected, valid) + leaf_loss
        divergence = masked_mean(state_kl(log_marginals, log_child_flows, log_flow), valid)
        entropy = entropy_terms(log_policy, valid.float(), learner.config.objective, progress, heads.choices)
        terms = {
            "loss": kl_divergence_loss(divergence, entropy) + learner.config.objective.flow_weight * flow_loss,
            "kl_loss": divergence,
            "flow_loss": flow_loss,
            "log_entropy_ratio": entropy.log_ratio,
            "dynamics_loss": entropy.dynamics,
        }
        if heads.log_parent is None:
            return terms
        backward_loss = -masked_mean(heads.log_parent, valid)
        return terms | {"loss": terms["loss"] + backward_loss, "backward_loss": backward_loss}
