"""A run directory with its trained sampler."""

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from stochflow.config.layers import resolve
from stochflow.config.noise import whole_channel
from stochflow.config.options import RUN_ORACLE_ENGINE, settings_of
from stochflow.config.schema import Config
from stochflow.core.errors import ConfigError
from stochflow.core.ram import require
from stochflow.core.random import RandomStreams
from stochflow.environments.base import Environment
from stochflow.environments.sequences.fasta import read_written
from stochflow.environments.sequences.oracles.task import named_task
from stochflow.evaluation.summary import Summary
from stochflow.experiments.build import restore
from stochflow.experiments.draws import Request
from stochflow.experiments.experiment import Experiment, summarise
from stochflow.experiments.torch_settings import computing
from stochflow.runs.directory import RunDirectory

Function = Callable[[list[str]], Any]
_BYTES_PER_DESIGN = 400  # two strings and three numbers, and the text that is made of them


class Run:
    """A run directory with its trained sampler.

    Args:
        oracle: the score function of the run, or its name: without it scores that were never paid for cannot be had.
        oracle_engine, address: where it is called, as for `train`; by default as in training.
    """

    def __init__(
        self,
        path: str | Path,
        oracle: str | Function | None = None,
        oracle_engine: str | None = None,
        address: str | None = None,
    ) -> None:
        self._oracle = named_task(oracle, address)[1]
        self._called = settings_of(RUN_ORACLE_ENGINE, {"oracle_engine": oracle_engine, "address": address})
        self.directory = RunDirectory.open(Path(path))
        self.path = self.directory.path
        self._experiment: Experiment | None = None

    @property
    def config(self) -> Config:
        return self.directory.config()

    @property
    def summary(self) -> Summary:
        """The metrics that were written when training ended."""
        return self.directory.summary()

    @property
    def metrics(self) -> pd.DataFrame:
        """One row per training step."""
        return self.directory.metrics()

    def sample(
        self,
        n: int | None = None,
        *,
        unique: bool = False,
        best: int | None = None,
        exclude: str | Path | Iterable[str] | None = None,
        exclude_column: str | None = None,
        noise: float | str | None = None,
        feedback: str | None = None,
        seed: int | None = None,
        score_samples: bool = False,
    ) -> pd.DataFrame:
        """Designs from the trained policy: sequence, intended, score, log_reward, log_prob.

        Without feedback, under noise: order, sequence, score, log_reward, log_prob, exact_probability, expected_score,
        share_above; docs/how-to/orders.md says what they are.

        Args:
            n: how many; 1,000 by default. With `best`, how many are drawn to choose from; by default 10,000, and more
                until there are enough different ones or fewer than 1 in 200 draws is new.
            unique: draw until there are n different sequences or orders, or until fewer than 1 in 200 draws is new.
            best: only so many different designs, those with the highest expected scores, best first. Of equal scores
                those count first that the policy draws more often, and of these random ones, by the seed. Designs that
                break a constraint or have no score are left out.
            exclude: sequences that `best` or `unique` shall leave out, or a file of them: FASTA, CSV, TSV, or one per
                line.
            exclude_column: of the sequences in that file; by default `sequence`, or else the first.
            noise: another channel than the one of training, as for `train`.
            feedback: "step" or "none", other than in training.
            seed: draws differ by seed; the run's own by default.
            score_samples: ask the oracle, which the run must have been loaded with, for scores that were never paid
                for; without it they are NaN.
        """
        request = Request(n, unique, best, score_samples)
        request.check(exclude is not None)
        needed = {f"{request.num:,} designs": float(request.num) * _BYTES_PER_DESIGN}
        require(needed, "draw fewer at a time, each time with another seed")
        experiment = self.experiment()
        config, environment = experiment.config, self._environment(noise, feedback)
        excluded = _excluded(environment, exclude, exclude_column)
        request.check_space(environment.num_designs, len(excluded))
        generator = RandomStreams(config.seed if seed is None else seed)["evaluation"]
        with computing(config), contextlib.closing(environment):
            return request.drawn(
                lambda num: experiment.samples(num, generator, environment, score_samples),
                environment.object_column,
                excluded,
                generator,
            )

    def evaluate(
        self, *, noise: float | str | None = None, feedback: str | None = None, score_samples: bool = False
    ) -> Summary:
        """Every metric again from the checkpoint, under the training channel and feedback or others.

        Args:
            score_samples: ask the oracle for scores that were never paid for.
        """
        experiment = self.experiment()
        environment = None if noise is None and feedback is None else self._environment(noise, feedback)
        with computing(experiment.config), contextlib.closing(experiment):
            return summarise(experiment, environment, score_samples)[0]

    def experiment(self) -> Experiment:
        """The parts of the run as its newest checkpoint left them."""
        if self._experiment is None:
            config = resolve([self.config.model_dump(mode="json"), self._called]) if self._called else self.config
            self._experiment = restore(self.directory, config, function=self._oracle)
        return self._experiment

    def _environment(self, noise: float | str | None, feedback: str | None) -> Environment:
        """What the run was trained in, perhaps with other noise or other feedback."""
        experiment = self.experiment()
        if noise is None and feedback is None:
            return experiment.environment
        config = experiment.config
        channel = config.channel.model_dump()
        if noise is not None:
            edits = {"deletion": config.channel.deletion, "duplication": config.channel.duplication}
            channel = edits | whole_channel(noise)
        other = resolve([{"channel": channel, "feedback": feedback or config.feedback}])
        return experiment.environment.under(
            config.model_copy(update={"channel": other.channel, "feedback": other.feedback})
        )


def _excluded(environment: Environment, given: str | Path | Iterable[str] | None, column: str | None) -> set[str]:
    """Sequences that are not wanted, all of which the environment could make."""
    if given is None:
        if column is not None:
            raise ConfigError(f"'{column}' is a column of excluded sequences, but there are none; add --exclude FILE")
        return set()
    if isinstance(given, str | Path):
        return set(environment.spelled(read_written(Path(given), column), str(given)))
    return set(environment.spelled([*given], "exclude"))
