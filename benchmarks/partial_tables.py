"""How far surrogates see from the worse half of a real table that covers next to nothing of its space.

    pip install --no-deps --target DIRECTORY -r benchmarks/partial_tables.txt
    python -m benchmarks.partial_tables DIRECTORY [--tables amyloid tdp43 sortseq] [--seeds 1]

The tables are those of mavenn 1.1.4 (MIT), whose files are read without importing it: nucleation by amyloid beta (Seuma
et al. 2021), toxicity of TDP-43 (Bolognesi et al. 2019), and expression from the lac promoter (Kinney et al. 2010),
where the score is the mean number of the gate that a cell was sorted into. Rows below the 80th percentile of the score
are the lower ones. A random half of these is what surrogates are fitted to, with the variances of the table where it
has any; what they predict is the other half (`held out`), and the rows above (`higher`), which are better than anything
that they have seen. An interval is of the measurement: it holds the variance that the table states for the row. R² is
relative to the rows that are predicted, so that of the higher ones, which are all alike, is small or negative.

Every fit is two rows of benchmarks/results/partial_tables.csv.
"""

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from benchmarks.surrogate_calibration import RESULTS, figures
from stochflow.core.files import write_atomically
from stochflow.environments.sequences.task import Alphabet
from stochflow.experiments.torch_settings import torch_threads
from stochflow.surrogates.base import Prediction
from stochflow.surrogates.letter_distances import LetterDistance, amino_acids, hamming
from stochflow.surrogates.registry import make_surrogate

PROTEIN, STOP, DNA = "ACDEFGHIKLMNPQRSTVWY", "*", "ACGT"
LETTERS = {"amyloid": PROTEIN + STOP, "tdp43": PROTEIN + STOP, "sortseq": DNA}
SURROGATES = ("kmer-ridge", "gaussian-process", "calibrated-gaussian-process", "convolution", "position-pairs")
LOWER = 0.8  # share of the rows that a surrogate may be fitted to
NUM_GATES = 10


@dataclass(frozen=True)
class Rows:
    """Rows of a table.

    Attributes:
        tokens: int64, [num, L].
        scores: not negative, float64, [num].
        variances: of the noise in each score, [num]; zero where the table does not know it.
    """

    tokens: Tensor
    scores: Tensor
    variances: Tensor

    def __getitem__(self, rows: Tensor) -> "Rows":
        return Rows(self.tokens[rows], self.scores[rows], self.variances[rows])

    def measured(self, prediction: Prediction) -> Prediction:
        """Predictive distributions of measurements, from those of what is measured; the noise is normal."""
        return Prediction(prediction.mean, (prediction.deviation.square() + self.variances).sqrt())


def read_table(folder: Path, name: str) -> Rows:
    """A table of mavenn, installed into a folder; scores are shifted so that the smallest is zero."""
    path = folder / "mavenn" / "examples" / "datasets" / f"{name}_data.csv.gz"
    if not path.is_file():
        raise SystemExit(
            f"{path} is missing; run: pip install --no-deps --target {folder} -r benchmarks/partial_tables.txt"
        )
    return as_rows(pd.read_csv(path), LETTERS[name])


def as_rows(table: pd.DataFrame, letters: str) -> Rows:
    """Rows of a table with the columns `y` and `dy`, or with a number of cells per gate, `ct_0` to `ct_9`."""
    if "y" in table:
        scores, variances = table["y"].to_numpy(), table["dy"].to_numpy() ** 2
    else:
        counts = table[[f"ct_{gate}" for gate in range(NUM_GATES)]].to_numpy()
        scores, variances = counts @ np.arange(NUM_GATES) / counts.sum(axis=1), np.zeros(len(table))
    tokens = Alphabet(letters).encode(table["x"].tolist())
    return Rows(tokens, torch.from_numpy(scores - scores.min()), torch.from_numpy(variances))


def split(rows: Rows, generator: torch.Generator) -> tuple[Rows, dict[str, Rows]]:
    """A random half of the lower-scoring rows, and what is predicted: the other half, and the higher rows."""
    lower = rows.scores < rows.scores.quantile(LOWER)
    shuffled = lower.nonzero().squeeze(1)
    shuffled = shuffled[torch.randperm(len(shuffled), generator=generator)]
    middle = len(shuffled) // 2
    return rows[shuffled[:middle]], {"held out": rows[shuffled[middle:]], "higher": rows[(~lower).nonzero().squeeze(1)]}


def distance_of(name: str) -> LetterDistance:
    """BLOSUM62 for proteins, with the stop as far from each as they are on average; Hamming for DNA."""
    letters = LETTERS[name]
    return hamming(len(letters)) if letters == DNA else amino_acids(PROTEIN, len(letters))


def measure(name: str, rows: Rows, surrogate: str, seed: int) -> list[dict[str, object]]:
    """What one surrogate says of the rows that it has not seen."""
    fitted, unseen = split(rows, torch.Generator().manual_seed(seed))
    started = time.process_time()
    model = make_surrogate(surrogate, len(LETTERS[name]), rows.tokens.shape[1], distance_of(name))
    model.fit(fitted.tokens, fitted.scores, fitted.variances if bool(fitted.variances.any()) else None)
    label = {"table": name, "surrogate": surrogate, "seed": seed, "fitted": len(fitted.scores)}
    label["fit_cpu_seconds"] = round(time.process_time() - started, 1)
    found: list[dict[str, object]] = []
    for part, others in unseen.items():
        started = time.process_time()
        known = figures(others.scores, others.measured(model.predict(others.tokens)))
        seconds = round(time.process_time() - started, 1)
        found.append(label | {"part": part, "rows": len(others.scores)} | known | {"predict_cpu_seconds": seconds})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where mavenn was installed")
    parser.add_argument("--tables", nargs="+", choices=list(LETTERS), default=["amyloid", "tdp43"])
    parser.add_argument("--surrogates", nargs="+", default=list(SURROGATES))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args()
    found: list[dict[str, object]] = []
    with torch_threads(1):
        for name in given.tables:
            rows = read_table(given.folder, name)
            for seed in range(given.seeds):
                for surrogate in given.surrogates:
                    found += measure(name, rows, surrogate, seed)
                    print(pd.DataFrame(found[-2:]).to_string(index=False, float_format="%.3f"), flush=True)
    table = pd.DataFrame(found).to_csv(index=False, float_format="%.4f")
    write_atomically(given.results / "partial_tables.csv", table)


if __name__ == "__main__":
    main()
