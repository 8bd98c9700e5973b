"""All parts of one run, wired together, and what can be asked of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import pandas as pd
import torch

from stochflow.config.schema import Config
from stochflow.core.random import RandomStreams
from stochflow.environments.base import Environment
from stochflow.environments.graphs.environment import GraphEnvironment
from stochflow.environments.sequences.multi_task import MultiTaskEnvironment
from stochflow.evaluation.design_metrics import mean_pairwise_hamming
from stochflow.evaluation.elbo import Estimates, estimates
from stochflow.evaluation.samples import TOP, Sampled, design_metrics, draw, dynamics_metrics, samples_frame
from stochflow.evaluation.schedule import Space, evaluated_every, sequence_space
from stochflow.evaluation.summary import Summary
from stochflow.experiments.torch_settings import computing
from stochflow.models.base import FlowModel
from stochflow.sampling.policies import Policy
from stochflow.training.trainer import Trainer
from stochflow.truth.truth import Truth, truth_of

_FEW_STEPS = 4  # an episode on a graph may stop early


@dataclass(frozen=True)
class Experiment:
    """All parts of one run, wired together."""

    config: Config
    environment: Environment
    truth: Truth | None
    trainer: Trainer
    reference: torch.Tensor | None = None
    # the newest exact figures, by the step after which they were computed
    _evaluated: dict[int, dict[str, float]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def network(self) -> FlowModel:
        return self.trainer.learner.network

    @property
    def policy(self) -> Policy:
        """What is evaluated and sampled from, as training has left it."""
        return self.trainer.objective.policy()

    @cached_property
    def evaluated_every(self) -> float:
        """Share of the budget after which the policy is evaluated again."""
        return evaluated_every(self.config, self._space() if self._exact_truth else None)

    @property
    def _exact_truth(self) -> Truth | None:
        """The truth, if every object's probability can be compared with it."""
        if self.truth is None or not self.truth.exact_evaluation or self.network.reads_history:
            return None
        return self.truth

    def _space(self) -> Space:
        environment = self.environment
        if not isinstance(environment, GraphEnvironment):
            space = sequence_space(environment.num_actions, environment.max_steps)
            return space.times(len(environment.tasks)) if isinstance(environment, MultiTaskEnvironment) else space
        graph = environment.graph
        sizes = graph.depths[: graph.num_states].bincount().tolist()
        return Space(sizes, graph.num_actions, graph.num_objects, _FEW_STEPS)

    def train(self) -> "Experiment":
        """Train to the end of the budget, without a run directory; nothing is written."""
        with computing(self.config):
            while not self.trainer.finished:
                self.trainer.train_step()
        return self

    def evaluate(self) -> dict[str, float]:
        """Exact figures of the policy as it is now; elsewhere J, the best paid scores and what its last batch shows."""
        truth = self._exact_truth
        if truth is not None:
            self._evaluated.clear()
            self._evaluated[self.trainer.step] = truth.evaluate(self.policy)
            return dict(self._evaluated[self.trainer.step])
        latest = self.trainer.learner.replay.newest(self.config.optimiser.batch_size)
        found = self._estimates() | {"intended_spread": mean_pairwise_hamming(latest) / self.environment.max_steps}
        return {name: value for name, value in found.items() if value is not None} | self._best_paid()

    def _estimates(self) -> Estimates:
        """J of the policy as it is now, from few draws; nothing is paid for, and training is not disturbed."""
        # the same draws at every evaluation, so that noise moves a curve less than learning does
        generator = RandomStreams(self.config.seed)["evaluation"]
        sampled = draw(self.policy, self.environment, self.config.evaluation.curve_samples, generator)
        return estimates(sampled, self.environment, self.trainer.learner.reward, self.truth, self._exact_truth is None)

    def _best_paid(self) -> dict[str, float]:
        """The best score that was paid for, and the mean of the 100 best; nothing before anything was paid for."""
        best = self.trainer.learner.memory.best_scores(TOP)
        return {"best_paid": float(best[0]), "top100_paid": float(best.mean())} if len(best) else {}

    @property
    def last_evaluation(self) -> dict[str, float] | None:
        """Exact figures of the policy as it is now, if it was evaluated after the latest step."""
        return self._evaluated.get(self.trainer.step)

    def log_beliefs(self, outcomes: torch.Tensor, intentions: torch.Tensor | None = None) -> torch.Tensor | None:
        """log P̂ as training has left it; None where the objective never read it, so that nothing was learned."""
        known = self.config.dynamics.kind == "known"
        if self.trainer.dynamics_fitter.idle and not known:
            return None
        return self.trainer.learner.log_beliefs(outcomes, intentions)

    def samples(
        self,
        num: int,
        generator: torch.Generator | None = None,
        environment: Environment | None = None,
        pay: bool = False,
    ) -> pd.DataFrame:
        """Objects of the policy as it is now, as rows of `samples.csv`; see `draw`."""
        environment = environment or self.environment
        generator = generator or RandomStreams(self.config.seed)["evaluation"]
        sampled = draw(self.policy, environment, num, generator, pay)
        return samples_frame(sampled, environment, self.trainer.learner.reward, self.config.evaluation.mode_threshold)

    def conclude(self) -> tuple[Summary, pd.DataFrame]:
        """Every metric of the policy as it is now, and the objects it drew for them."""
        summary, sampled = summarise(self, pay=self.config.oracle.score_samples)
        reward, threshold = self.trainer.learner.reward, self.config.evaluation.mode_threshold
        return summary, samples_frame(sampled, self.environment, reward, threshold)

    def close(self) -> None:
        """Let go of processes and files."""
        self.environment.close()


def summarise(
    experiment: Experiment, environment: Environment | None = None, pay: bool = False
) -> tuple[Summary, Sampled]:
    """Every metric of the policy as it is now, in its own environment or one with other noise, and what it drew.

    Args:
        pay: score objects that were never paid for.
    """
    config, trainer, truth = experiment.config, experiment.trainer, experiment.truth
    if environment is None:
        environment = experiment.environment
    elif truth is not None:
        truth = truth_of(environment, trainer.learner.reward)
    policy = experiment.policy
    # from the seed alone, not from where training left its generators: evaluating again gives the same numbers
    generator = RandomStreams(config.seed)["evaluation"]
    sampled = draw(policy, environment, config.evaluation.num_samples, generator, pay)
    walk = sampled.walk
    exact: Mapping[str, float | None]
    if truth is None or not truth.exact_evaluation or experiment.network.reads_history:
        exact = ({} if truth is None else truth.optimum()) | {"mean_score": _mean_of_known(sampled)}
    else:
        # after the last step it has been evaluated already
        known = experiment.last_evaluation if truth is experiment.truth else None
        exact = truth.optimum() | (truth.evaluate(policy) if known is None else known)
    unknown = dict.fromkeys(("kl", "min_kl", "regret", "tv", "min_tv", "attainable_score", "log_z_true"))
    summary = Summary(
        **trainer.standing
        | environment.describe()
        | unknown
        | {**exact}
        | estimates(sampled, environment, trainer.learner.reward, truth, experiment.network.reads_history)
        | design_metrics(sampled, environment, config.evaluation, experiment.reference)
        | dynamics_metrics(policy, experiment.log_beliefs(walk.outcomes, walk.intentions), environment, walk),
        log_z=trainer.objective.log_z(),
        reward_noise=config.reward_noise,
        reward_mean=trainer.objective.reward_mean if environment.noisy else None,
    )
    return summary, sampled


def _mean_of_known(sampled: Sampled) -> float | None:
    scores = sampled.scores[~sampled.scores.isnan()]
    return float(scores.mean()) if len(scores) else None
