"""Your own objective: detailed balance with a Huber loss, as a method that the whole package knows by name.

python examples/own_objective.py
"""

from torch import Tensor
from torch.nn.functional import huber_loss

import stochflow
from stochflow import Method, ObjectiveRecord, PathBalance, Steps, register_method
from stochflow.objectives.detailed_balance import db_residual


class RobustBalance(PathBalance):
    """δ² near balance, |δ| far from it, so that no transition rules the batch."""

    def loss(self, steps: Steps, config) -> Tensor:
        residual = db_residual(
            steps.log_flow, steps.log_forward, steps.log_dynamics, steps.log_next_flow, steps.log_backward
        )
        real = residual if steps.valid is None else residual[steps.valid]
        return huber_loss(real, real.new_zeros(()).expand_as(real))


register_method(
    "robust-db",
    Method(
        description="Detailed balance with a Huber loss.",
        uses="score memory, replay, learned channel",
        objective=ObjectiveRecord("robust-balance", RobustBalance, graphs=True, along_path=True),
        settings={"optimiser": {"learning_rate": 5e-3, "updates": 8, "batch_size": 128}},
        reference="examples/own_objective.py",
    ),
)

if __name__ == "__main__":
    for method in ("robust-db", "sgfn-db"):
        run = stochflow.train("tfbind8", method=method, trajectories=4_000, out=f"runs/{method}", overwrite=True)
        print(f"{method}: regret {run.summary.regret:.3f}")
