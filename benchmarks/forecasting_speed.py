"""Seconds of fitting and predicting: one series of 360 months with a transformer, and a panel of 100 of 300 months.

python -m benchmarks.forecasting_speed
"""

import time

import numpy as np
import pandas as pd
import torch

from stochflow.forecasting import StochflowForecaster

CASES = {"one series of 360, transformer": (1, 360, "transformer"), "100 series of 300, auto": (100, 300, "auto")}


def panel(num_series: int, num_values: int) -> pd.DataFrame:
    """Monthly series with trend, season and a random walk."""
    time_steps, parts = np.arange(num_values), []
    for seed in range(num_series):
        generator = np.random.default_rng(seed)
        trend, height, roughness = generator.normal(), generator.random(), generator.random()
        y = 100 + 0.1 * trend * time_steps + 10 * height * np.sin(2 * np.pi * (time_steps + seed) / 12)
        y += roughness * generator.normal(size=num_values).cumsum() + generator.normal(size=num_values)
        times = pd.date_range("1990-01-01", periods=num_values, freq="MS")
        parts.append(pd.DataFrame({"unique_id": f"s{seed:03d}", "ds": times, "y": y}))
    return pd.concat(parts, ignore_index=True)


def main() -> None:
    torch.set_num_threads(1)
    for name, (num_series, num_values, network) in CASES.items():
        frame = panel(num_series, num_values)
        wall, cpu = time.perf_counter(), time.process_time()
        StochflowForecaster(freq="MS", horizon=12, network=network).fit(frame).predict(12)
        print(f"{name}: {time.perf_counter() - wall:.0f} seconds, {time.process_time() - cpu:.0f} of them on a core")


if __name__ == "__main__":
    main()
