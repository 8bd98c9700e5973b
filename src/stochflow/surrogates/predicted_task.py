"""A task whose scores are predicted from a table of measurements."""

import torch
from torch import Tensor

from stochflow.environments.rewards import Reward
from stochflow.environments.sequences.lookup_task import MODE_QUANTILE, Measurements
from stochflow.environments.sequences.task import Alphabet, Task
from stochflow.surrogates.letter_distances import letter_distance
from stochflow.surrogates.table_evidence import TableEvidence


class PredictedTask(Task):
    """Designs scored by surrogates of measured ones, on the scale where measured means run from 0 to 1.

    The score is the certain one that is worth as much as the prediction: score^β = exp E[log R]. KL(P_π‖R/Z) is linear
    in log R, so the target under uncertainty is the expected log reward, and of two designs with the same predicted
    mean the better known one is preferred. Nothing is paid for a prediction.

    >>> dna = Alphabet("ACGT")
    >>> tokens = torch.cartesian_prod(*[torch.arange(4)] * 3)
    >>> measured = Measurements(tokens[::2], (tokens[::2] == 0).double().sum(dim=1, keepdim=True) - 5.0)
    >>> task = PredictedTask("adenines", dna, measured, Reward(beta=3.0, floor=1e-6, ramp=0.0))
    >>> bad, good = task.score(dna.encode(["GTT", "AAC"])).tolist()
    >>> bad < good
    True

    Args:
        name: of the table.
        alphabet: in whose tokens the measurements are.
        measured: on the table's own scale.
        reward: whose expectation is the target.
    """

    def __init__(self, name: str, alphabet: Alphabet, measured: Measurements, reward: Reward) -> None:
        self.name, self.alphabet, self.length = name, alphabet, measured.tokens.shape[1]
        num = len(measured.tokens)
        self.description, self.source = f"predicted from {num:,} scores of your own", "your table"
        self._reward = Reward(reward.beta, reward.floor, 0.0)
        evidence = TableEvidence(name, alphabet, measured, letter_distance(self))
        self.evidence, self.surrogate = evidence, evidence.surrogate
        scores = evidence.scale.unit(evidence.scores)
        self.mode_threshold = float(scores.quantile(MODE_QUANTILE))

    def score(self, tokens: Tensor) -> Tensor:
        prediction = self.surrogate.predict(tokens)
        return (prediction.expected_log_reward(self._reward) / self._reward.beta).exp()

    def free(self, tokens: Tensor) -> Tensor:
        return torch.ones(len(tokens), dtype=torch.bool)
