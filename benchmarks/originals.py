"""Searches of other packages on tasks of this one, called as they are: FLEXS, pytorch-holo and ViennaRNA.

They are installed in a directory of their own, see `originals.txt`. A `Ledger` answers them and pays for a design once,
as this package does.
"""

import random
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import pandas as pd
import torch
from torch import Tensor

from stochflow.environments.sequences.ehrlich import Ehrlich
from stochflow.environments.sequences.rna_fold import RnaFold
from stochflow.environments.sequences.task import Alphabet, Task
from stochflow.surrogates.letter_distances import letter_distance
from stochflow.surrogates.registry import make_surrogate

SCREENED = 20
HOLO = "holo-ehrlich"
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


class SpentError(Exception):
    """There are no calls left; it ends a search that would go on."""


class Ledger:
    """Designs in the order in which they were first scored; only these are paid for.

    Attributes:
        num_asked: designs that a search asked about, those that it knew already included.
    """

    def __init__(self, task: Task, calls: int) -> None:
        self.task, self.calls, self.num_asked = task, calls, 0
        self._scores: dict[str, float] = {}

    def score(self, names: list[str]) -> Tensor:
        """Scores, float64, [num]; the answer that uses up the calls is never given."""
        self.num_asked += len(names)
        new = [name for name in dict.fromkeys(names) if name not in self._scores][: self.calls - len(self._scores)]
        if new:
            self._scores.update(zip(new, self.task.score(self.task.alphabet.encode(new)).tolist(), strict=True))
        if len(self._scores) == self.calls:
            raise SpentError
        return torch.tensor([self._scores[name] for name in names], dtype=torch.float64)

    def paid(self) -> tuple[list[str], Tensor]:
        """Designs, and their scores, float64, [num]."""
        return list(self._scores), torch.tensor(list(self._scores.values()), dtype=torch.float64)


def load_flexs(folder: Path) -> Any:
    """FLEXS without what its `__init__` imports, tensorflow and more: landscapes, models and two explorers alone."""
    for name in ("flexs", "flexs.utils", "flexs.baselines", "flexs.baselines.explorers"):
        package = ModuleType(name)
        package.__path__ = [str(folder.joinpath(*name.split(".")))]
        sys.modules[name] = package
    flexs: Any = sys.modules["flexs"]
    for name, found in (("landscape", "Landscape"), ("model", "Model"), ("explorer", "Explorer")):
        setattr(flexs, found, getattr(import_module(f"flexs.{name}"), found))
    flexs.Adalead = import_module("flexs.baselines.explorers.adalead").Adalead
    flexs.GeneticAlgorithm = import_module("flexs.baselines.explorers.genetic_algorithm").GeneticAlgorithm
    return flexs


def _forest_model(flexs: Any, task: Task) -> Any:
    """The forest of this package as a model of FLEXS."""

    class ForestModel(flexs.Model):  # type: ignore[misc]  # its type is not known here
        def train(self, sequences: Any, labels: Tensor) -> None:
            self.forest = make_surrogate("forest", task.num_tokens, task.length, letter_distance(task))
            self.forest.fit(task.alphabet.encode(list(sequences)), labels)

        def _fitness_function(self, sequences: Any) -> Any:
            return self.forest.predict_mean(task.alphabet.encode(list(sequences))).numpy()

    return ForestModel("forest")


def _oracle_model(flexs: Any, ledger: Ledger) -> Any:
    """The oracle itself as a model of FLEXS: what is asked of it is paid for."""

    class OracleModel(flexs.Model):  # type: ignore[misc]  # its type is not known here
        def train(self, sequences: Any, labels: Tensor) -> None:
            pass

        def _fitness_function(self, sequences: Any) -> Any:
            return ledger.score(list(sequences)).numpy()

    return OracleModel("oracle")


def _rounds(explorer: Any, ledger: Ledger) -> NoReturn:
    """Rounds of an explorer whose model is fitted to all that was paid for, until the calls are spent."""
    while True:
        names, scores = ledger.paid()
        explorer.model.train(names, scores)
        proposed, _ = explorer.propose_sequences(pd.DataFrame({"sequence": names, "true_score": scores.numpy()}))
        ledger.score(list(proposed))


def flexs_adalead(flexs: Any, ledger: Ledger, first: list[str], seed: int) -> NoReturn:
    """AdaLead with the forest of this package; settings as the defaults of ours."""
    random.seed(seed)
    ledger.score(first)
    settings = {"mu": 1, "recomb_rate": 0.2, "threshold": 0.05, "rho": 1}
    letters, num = ledger.task.alphabet.letters, len(first)
    # it proposes one less than it is asked for
    model = _forest_model(flexs, ledger.task)
    _rounds(flexs.Adalead(model, 1, num + 1, SCREENED * num, first[0], letters, **settings), ledger)


def flexs_genetic(flexs: Any, ledger: Ledger, first: list[str], seed: int, screened: bool) -> NoReturn:
    """The genetic algorithm with the settings of FLEXS' tutorial, on the oracle or, screened, on the forest."""
    random.seed(seed)
    ledger.score(first)
    settings = {"population_size": 20, "parent_selection_strategy": "wright-fisher", "beta": 0.01, "seed": seed}
    settings["children_proportion"] = 0.2
    letters, num = ledger.task.alphabet.letters, len(first)
    model = _forest_model(flexs, ledger.task) if screened else _oracle_model(flexs, ledger)
    # what is asked of the oracle is paid for at once, so one round goes on until the calls are spent
    queries = SCREENED * num if screened else sys.maxsize
    _rounds(flexs.GeneticAlgorithm(model, 1, first[0], num + 1, queries, letters, **settings), ledger)


class HoloEhrlich(Task):
    """An Ehrlich function of pytorch-holo; infeasible designs score 0 instead of −∞."""

    mode_threshold, source = 0.5, "Stanton 2024"

    def __init__(self, num_letters: int, length: int, num_motifs: int, motif_length: int, seed: int) -> None:
        make = import_module("holo.test_functions.closed_form").Ehrlich
        self.function: Any = make(num_letters, length, num_motifs, motif_length, random_seed=seed)
        self.name = f"{HOLO}:{num_letters},{length},{num_motifs},{motif_length},{seed}"
        self.alphabet, self.length = Alphabet(_LETTERS[:num_letters]), length
        self.description = f"instance {seed} of pytorch-holo with {num_motifs} motifs"

    def feasible(self, tokens: Tensor) -> Tensor:
        """True where no transition is banned; [num, L] → [num]."""
        return self.function(tokens).isfinite()

    def score(self, tokens: Tensor) -> Tensor:
        return self.function(tokens).clamp(min=0.0).double()


def feasible_start(task: HoloEhrlich | Ehrlich, seed: int) -> Tensor:
    """A feasible design, [1, L]: what pytorch-holo begins with, or a walk over the allowed transitions of ours."""
    if isinstance(task, HoloEhrlich):
        return task.function.initial_solution().unsqueeze(0)
    generator = torch.Generator().manual_seed(seed)
    letters = [torch.randint(task.num_tokens, (1,), generator=generator)]
    for _ in range(task.length - 1):
        letters.append(torch.multinomial(task.allowed[letters[-1][0]].double(), 1, generator=generator))
    return torch.cat(letters).unsqueeze(0)


def holo_genetic(ledger: Ledger, first: list[str], seed: int, particles: int, survivors: float) -> NoReturn:
    """DiscreteEvolution of pytorch-holo from one feasible design, with the rates of its README: 1/L and 1/L."""
    task = ledger.task
    assert isinstance(task, HoloEhrlich | Ehrlich)

    def loss(particles: list[Tensor]) -> Tensor:
        tokens = particles[0].long()
        scores = ledger.score(task.alphabet.decode(tokens))
        return torch.where(task.feasible(tokens), -scores, torch.inf)

    start = torch.nn.Parameter(task.alphabet.encode(first[:1])[0].float())
    rate = 1.0 / task.length
    evolution = import_module("holo.optim").DiscreteEvolution
    with torch.random.fork_rng():  # its randomness is global
        torch.manual_seed(seed)
        search = evolution([start], list(range(task.num_tokens)), rate, rate, particles, survivors)
        while True:
            search.step(loss)


def rna_inverse(ledger: Ledger, seed: int, ensemble: bool) -> NoReturn:
    """RNAinverse of ViennaRNA from random designs; it aims at the structure itself, or at its share of the ensemble."""
    task, library = ledger.task, import_module("RNA")
    assert isinstance(task, RnaFold)
    library.init_rand(seed)
    search = library.inverse_pf_fold if ensemble else library.inverse_fold
    generator = torch.Generator().manual_seed(seed)
    while True:
        start = torch.randint(task.num_tokens, (1, task.length), generator=generator)
        design, _ = search(task.alphabet.decode(start)[0], task.target)
        ledger.score([design])
