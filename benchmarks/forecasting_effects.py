"""Effects that were planted: what a forecast makes of an event, and how far a leading feature helps.

python -m benchmarks.forecasting_effects
"""

import argparse
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from stochflow.forecasting import StochflowForecaster
from tests.forecasting.planted import EFFECT, event_effects, led_by_x

RESULTS = Path("benchmarks/results/forecasting_effects.csv")
LENGTHS, NUM_WINDOWS = (80, 200), 20


def events(network: str, num_seeds: int) -> list[dict[str, object]]:
    """Mean effects over seeds, relative to the planted one: at the event, the largest at another step, in a row."""
    found = [event_effects(seed, network) for seed in range(num_seeds)]
    one, twelve = (np.mean(each, axis=0) / EFFECT for each in zip(*found, strict=True))
    elsewhere = np.abs(np.delete(one, 2)).max(), np.abs(np.delete(twelve, range(2, 14))).max()
    figures = {
        "at the event": one[2],
        "largest at another step": elsewhere[0],
        "least of twelve in a row": twelve[2:14].min(),
        "largest of twelve in a row": twelve[2:14].max(),
        "largest beside the twelve": elsewhere[1],
    }
    return [{"case": f"events, network {network}", "figure": name, "value": value} for name, value in figures.items()]


def leading(num: int, num_seeds: int) -> list[dict[str, object]]:
    """Root mean squared error of one-step forecasts over the noise's, and coverage of 80 % intervals."""
    errors, noise, covered = [], [], []
    for seed in range(num_seeds):
        frame = led_by_x(seed, num)
        forecaster = StochflowForecaster(freq="D", horizon=1, past=["x"], network="none")
        found = forecaster.cross_validation(frame, 1, n_windows=NUM_WINDOWS, step_size=1, level=[80])
        errors.append((found["stochflow"] - found["y"]).to_numpy())
        noise.append((frame["y"] - 50 - 10 * frame["x"].shift()).to_numpy()[-NUM_WINDOWS:])
        covered.append(found["y"].between(found["stochflow-lo-80"], found["stochflow-hi-80"]).to_numpy())
    ratio = np.sqrt(np.square(errors).mean() / np.square(noise).mean())
    case = f"y led by x, {num} values"
    return [
        {"case": case, "figure": "error over noise", "value": ratio},
        {"case": case, "figure": "coverage of 80 %", "value": np.mean(covered)},
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--networks", nargs="+", default=["none", "auto"])
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    jobs = [(events, network, given.seeds) for network in given.networks]
    jobs += [(leading, num, min(given.seeds, 5)) for num in LENGTHS]
    rows: list[dict[str, object]] = []
    for measure, case, num_seeds in jobs:
        found = measure(case, num_seeds)
        rows += found
        pd.DataFrame(rows).to_csv(RESULTS, index=False)  # what is done stays
        print(pd.DataFrame(found).to_string(index=False, header=False, float_format="{:.3f}".format), flush=True)


if __name__ == "__main__":
    main()
