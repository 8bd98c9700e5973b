"""Metropolis chains on a surrogate of log R, and designs near the best paid ones: what can be had without paying."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from stochflow.config.schema import ImaginationConfig
from stochflow.surrogates.genetic_search import SearchSize, genetic_search
from stochflow.surrogates.letter_distances import LetterDistance

LogReward = Callable[[Tensor], Tensor]

_TAIL = 1.5  # P(more than m times the usual number of letters) = m^−1.5
_MAX_CANDIDATES = 2**15  # designs that the surrogate scores at once when parents are varied
_HELD_OUT = 8  # one chain in so many
_MODE_GENERATIONS = 8  # of mutants of one mode, at most
_LATER = 4  # candidates of a first generation for one of the others
_CHILDREN, _MAX_CHILDREN, _SURVIVING = 16, 1500, 0.4  # of the search: for every design, at most, share of them
_FINALISTS, _MAX_FINALISTS = 8, 2000  # among which promise decides
_KEPT = ("states", "visited", "given", "held_out", "parents", "weights", "modes")


def distinct_elites(sequences: Tensor, scores: Tensor, num: int, distance: LetterDistance, niche: float) -> Tensor:
    """The best designs that lie apart, best first: each is further than `niche` from all before it.

    Greedy, one vectorised comparison per elite; [n, L], [n] → indices, at most `num`.

    >>> from stochflow.surrogates.letter_distances import hamming
    >>> designs = torch.tensor([[0, 0, 0], [0, 0, 1], [1, 1, 1]])
    >>> distinct_elites(designs, torch.tensor([3.0, 2.0, 1.0]), num=2, distance=hamming(2), niche=1.0)
    tensor([0, 2])
    """
    order = scores.argsort(descending=True, stable=True)
    ranked = distance.compared(sequences[order])
    free, chosen = torch.ones(len(order), dtype=torch.bool), list[int]()
    while len(chosen) < num and bool(free.any()):
        best = int(free.int().argmax())
        chosen.append(best)
        free &= distance.between_compared(ranked[best : best + 1], ranked).squeeze(0) > niche
        free[best] = False
    return order[torch.tensor(chosen, dtype=torch.int64)]


def tempered_weights(log_rewards: Tensor, effective: float) -> Tensor:
    """softmax(h·log R) with the largest h ≤ 1 whose perplexity exp(H) is at least `effective`; [n] → [n].

    One rule for rewards of any steepness: the better a design the more often it is a parent, but never fewer than so
    many parents in effect. Found by bisection, since the perplexity falls as h grows.

    >>> tempered_weights(torch.tensor([0.0, -1000.0]), effective=1.5).round(decimals=2)
    tensor([0.8600, 0.1400])
    """
    low, high = 0.0, 1.0
    for _ in range(40):
        heat = (low + high) / 2
        log_weights = torch.log_softmax(heat * log_rewards, dim=0)
        perplexity = math.exp(-float((log_weights.exp() * log_weights).sum()))
        low, high = (heat, high) if perplexity >= min(effective, len(log_rewards)) else (low, heat)
    return torch.softmax(low * log_rewards, dim=0)


def changed(letters: Tensor, neighbours: Tensor, generator: torch.Generator) -> Tensor:
    """Another letter in the place of each, drawn from its row of `neighbours`, [K, K]; [n] → [n]."""
    return torch.multinomial(neighbours[letters], 1, generator=generator).squeeze(-1) if len(letters) else letters


def mutated(sequences: Tensor, neighbours: Tensor, rates: Tensor, generator: torch.Generator) -> Tensor:
    """Every letter changed with the probability of its row; [n, L], neighbours [K, K], rates [n, 1] → [n, L]."""
    replaced = torch.rand(sequences.shape, generator=generator) < rates
    found = sequences.clone()
    found[replaced] = changed(sequences[replaced], neighbours, generator)
    return found


def shifted(sequences: Tensor, removed: Tensor, inserted: Tensor, letters: Tensor) -> Tensor:
    """One letter taken out and one put in elsewhere, so that what stands between moves by one place.

    A motif that may stand anywhere keeps its letters. Where both positions are the same it is a substitution.

    >>> shifted(torch.tensor([[0, 1, 2, 3]]), torch.tensor([[3]]), torch.tensor([[0]]), torch.tensor([[9]]))
    tensor([[9, 0, 1, 2]])

    Args:
        sequences: [n, L].
        removed, inserted: positions of the letter taken out and, in the result, of the one put in, [n, 1] each.
        letters: put in, [n, 1].
    """
    positions = torch.arange(sequences.shape[1])
    from_right = ((positions >= removed) & (positions < inserted)).long()
    from_left = ((positions > inserted) & (positions <= removed)).long()
    return sequences.gather(1, positions + from_right - from_left).scatter(1, inserted, letters)


class SurrogateChains:
    """Metropolis chains whose target is the surrogate's reward, and the paid designs that they begin at.

    Attributes:
        states: where the chains are, [num_chains, L]; empty before the first `refresh`.
        visited: where they and the repairs have been since the last `refresh`, [num_kept, L].
        given: how many letters of each were given, and not drawn; zero but for repairs, [num_kept].
        held_out: where some other chains are, from which nothing is learned, [num_chains/8, L].
        parents: paid designs that lie apart, best first, [num_parents, L].
        weights: how often each of them is a parent, float64, [num_parents].
        modes: paid designs that lie far apart, best first, [num_modes, L].
    """

    def __init__(self, config: ImaginationConfig, distance: LetterDistance, length: int) -> None:
        self._config, self._distance, self._length = config, distance, length
        self._niche, self._mode = (share * length * distance.mean for share in (config.niche, config.mode_distance))
        nothing = torch.empty(0, length, dtype=torch.int64)
        self.states = self.visited = self.held_out = self.parents = self.modes = nothing
        self.weights, self.given = torch.empty(0, dtype=torch.float64), torch.empty(0, dtype=torch.int64)

    def refresh(
        self,
        sequences: Tensor,
        log_rewards: Tensor,
        log_reward: LogReward,
        drawn: Tensor,
        generator: torch.Generator,
    ) -> None:
        """Choose parents among the paid designs and let the chains walk under a new surrogate.

        Chains that mix say what to intend after prefixes of good designs. A world that does not do what was intended
        leads to other prefixes, and what is best there is said by repairs: chains that begin at a draw of the policy,
        have its first letters given, and walk on the others.

        Args:
            sequences: paid designs, [n, L].
            log_rewards: log R of them, [n].
            log_reward: the surrogate's, [m, L] → [m].
            drawn: designs that the policy makes, to be repaired, [k, L].
        """
        config = self._config
        elites = distinct_elites(sequences, log_rewards, config.num_parents, self._distance, self._niche)
        self.parents, self.weights = sequences[elites], tempered_weights(log_rewards[elites], config.effective_parents)
        self.modes = sequences[distinct_elites(sequences, log_rewards, config.num_modes, self._distance, self._mode)]
        # those left behind begin again at parents, so that nothing good that was paid for is out of reach
        kept = log_reward(self.states).argsort(descending=True)[: int((1.0 - config.restarts) * config.num_chains)]
        starts = self._some_parents(config.num_chains - len(kept), generator)
        given = torch.randint(self._length, (len(drawn), 1), generator=generator)
        tails = self._some_parents(len(drawn), generator)
        drawn = torch.where(torch.arange(self._length) < given, drawn, tails)
        given = torch.cat([torch.zeros(config.num_chains, 1, dtype=torch.int64), given])
        self._walk(torch.cat([self.states[kept], starts, drawn]), given, log_reward, generator)

    def _some_parents(self, num: int, generator: torch.Generator) -> Tensor:
        """Parents by their weights, [num, L]."""
        if not num:
            return self.parents[:0]
        return self.parents[torch.multinomial(self.weights, num, replacement=True, generator=generator)]

    def _walk(self, states: Tensor, given: Tensor, log_reward: LogReward, generator: torch.Generator) -> None:
        """Metropolis–Hastings on all but the given letters; states of the second half of the moves are kept."""
        num, moves = len(states), self._config.moves
        here, kept = log_reward(states), [states]
        for move in range(moves):
            moved, log_ratio = self._moved(states, given, generator)
            there = log_reward(moved)
            accepted = torch.rand(num, generator=generator, dtype=torch.float64).log() < there - here + log_ratio
            states = torch.where(accepted.unsqueeze(-1), moved, states)
            here = torch.where(accepted, there, here)
            if 2 * move >= moves and (moves - 1 - move) % max(1, self._length // 4) == 0:
                kept.append(states)
        kept, num_chains = kept[1:] or kept, self._config.num_chains
        held_out = (torch.arange(num) < num_chains) & (torch.arange(num) % _HELD_OUT == 0)
        self.states, self.held_out = states[:num_chains], states[held_out]
        self.visited = torch.cat([each[~held_out] for each in kept])
        self.given = given.squeeze(1)[~held_out].repeat(len(kept))

    def _moved(self, sequences: Tensor, given: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """One letter changed, or in a share of the rows a stretch shifted by one place.

        Args:
            sequences: [n, L].
            given: how many letters at the beginning stay as they are, [n, 1].

        Returns:
            the new sequences, [n, L], and log q(back)/q(there) of the change, [n].
        """
        removed, inserted = (self._positions(given, generator) for _ in range(2))
        neighbours, before = self._distance.neighbours, sequences.gather(1, removed)
        after = changed(before.squeeze(1), neighbours, generator).unsqueeze(1)
        shift = torch.rand(given.shape, generator=generator) < self._config.shifts
        letters = torch.where(shift, torch.randint(len(neighbours), given.shape, generator=generator), after)
        log_ratio = (neighbours[after, before] / neighbours[before, after]).log().masked_fill(shift, 0.0)
        return shifted(sequences, removed, torch.where(shift, inserted, removed), letters), log_ratio.squeeze(1)

    def _positions(self, given: Tensor, generator: torch.Generator) -> Tensor:
        """One position of each row that was not given, uniformly; [n, 1] → [n, 1]."""
        return given + (torch.rand(given.shape, generator=generator) * (self._length - given)).long()

    def draw(self, num: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Some of the visited states and how many of their letters were given; [num, L] and [num]."""
        rows = torch.randint(len(self.visited), (num,), generator=generator)
        return self.visited[rows], self.given[rows]

    def near_parents(self, num: int, predicted: LogReward, promise: LogReward, generator: torch.Generator) -> Tensor:
        """What to pay for next: what a search from the parents finds, and mutants of the modes; [num, L].

        The search follows the best predictions wherever they lead. So a share of the designs has a parent of its own,
        the best design of one of the modes, which is mutated.

        Args:
            predicted: value of designs for the search, [n, L] → [n].
            promise: the same with what may be hoped for; among what was found it decides.
        """
        num_modes = int(self._config.spread * num)
        per_block = max(1, _MAX_CANDIDATES // self._config.candidates)
        blocks = [self._varied(size, promise, generator) for size in _sizes(num_modes, per_block)]
        return torch.cat([self._searched(num - num_modes, predicted, promise, generator), *blocks])

    def _searched(self, num: int, predicted: LogReward, promise: LogReward, generator: torch.Generator) -> Tensor:
        """Designs of a genetic search on the surrogate that lie apart, those of the highest promise; [num, L]."""
        if not num:
            return self.parents[:0]
        num_children = min(_MAX_CHILDREN, _CHILDREN * num)
        size = SearchSize(num_children, int(_SURVIVING * num_children), self._config.generations)
        found, values = genetic_search(self.parents, predicted, len(self._distance.neighbours), generator, size)
        finalists = found[values.topk(min(max(_MAX_FINALISTS, _FINALISTS * num), len(found))).indices]
        promises = promise(finalists)
        apart = distinct_elites(finalists, promises, num, self._distance, self._niche)
        others = torch.ones(len(finalists), dtype=torch.bool).index_fill(0, apart, False)
        rest = others.nonzero().squeeze(1)[promises[others].argsort(descending=True, stable=True)]
        chosen = finalists[torch.cat([apart, rest])[:num]]
        return torch.cat([chosen, self._some_parents(num - len(chosen), generator)])

    def _varied(self, num: int, promise: LogReward, generator: torch.Generator) -> Tensor:
        """Mutants of modes: every row goes on from its best for a number of generations of its own; [num, L]."""
        candidates = self._config.candidates
        modes = self.modes[torch.randint(len(self.modes), (num,), generator=generator)]
        found, predicted = self._best_variant(modes.repeat_interleave(candidates, dim=0), num, promise, generator)
        generations = torch.randint(_MODE_GENERATIONS, (num,), generator=generator)
        for generation in range(int(generations.max()) if num else 0):
            rows = (generations > generation).nonzero().squeeze(1)
            grown = found[rows].repeat_interleave(max(1, candidates // _LATER), dim=0)
            better, expected = self._best_variant(grown, len(rows), promise, generator)
            rises = expected > predicted[rows]
            found[rows[rises]], predicted[rows[rises]] = better[rises], expected[rises]
        return found

    def _best_variant(
        self, children: Tensor, num: int, log_reward: LogReward, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Of the mutants of every few designs the one predicted best, and how good; [num·c, L] → [num, L], [num]."""
        # heavy-tailed (Doerr et al. 2017): most stay near, and some are far enough to leave a plateau
        scales = torch.rand(len(children), 1, generator=generator).pow(-1.0 / _TAIL)
        rates = scales * (self._config.mutations / self._length)
        varied = mutated(children, self._distance.neighbours, rates, generator)
        varied, _ = self._moved(varied, torch.zeros(len(varied), 1, dtype=torch.int64), generator)
        predicted, best = log_reward(varied).view(num, -1).max(dim=1)
        return varied.view(num, len(varied) // max(num, 1), -1)[torch.arange(num), best], predicted

    def state_dict(self) -> dict[str, Tensor]:
        return {name: getattr(self, name) for name in _KEPT}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        for name in _KEPT:
            setattr(self, name, state[name])


def _sizes(total: int, block: int) -> list[int]:
    return [min(block, total - first) for first in range(0, total, block)]
