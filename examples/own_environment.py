"""Your own environment: pack a bag from five things, with a hand that slips, as well as any policy could.

python examples/own_environment.py
"""

import stochflow
from stochflow import GraphEnvironment, World, explore

WEIGHTS, VALUES, LIMIT, SLIP = (3, 4, 5, 8, 9), (2, 3, 4, 7, 8), 17, 0.2


class Bag(World):
    """Put things into a bag one by one, or close it; with probability 0.2 the hand takes another thing that fits."""

    name, noise = "bag", SLIP
    actions = (*(f"thing {number}" for number in range(5)), "close")

    def start(self):
        return frozenset(), False

    def fitting(self, things):
        room = LIMIT - sum(WEIGHTS[thing] for thing in things)
        return [thing for thing in range(5) if thing not in things and WEIGHTS[thing] <= room]

    def outcomes(self, state, action):
        things, _ = state
        if action == 5:
            return {(things, True): 1.0}
        fitting = self.fitting(things)
        if action not in fitting:
            return {}
        chances = {thing: SLIP / len(fitting) + (1 - SLIP) * (thing == action) for thing in fitting}
        return {(things | {thing}, False): chance for thing, chance in chances.items()}

    def score(self, state):
        things, closed = state
        return 1.0 + sum(VALUES[thing] for thing in things) if closed else None

    def features(self, state):
        things, closed = state
        return [*(float(thing in things) for thing in range(5)), float(closed)]


if __name__ == "__main__":
    environment = GraphEnvironment(explore(Bag()))
    for method in ("sgfn-kl", "sgfn-tb", "random"):
        experiment = stochflow.build(environment, method=method, trajectories=4_000, settings=["reward.beta=3"])
        regret = experiment.train().evaluate()["regret"]
        print(f"{method}: {regret:.4f} nats above the best that any policy can do with this hand")
        if method == "sgfn-kl":
            print(experiment.samples(3)[["object", "intended", "score"]].to_string(index=False))
