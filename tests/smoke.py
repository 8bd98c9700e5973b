"""What an installed stochflow must be able to do, far from its source tree: `python smoke.py` in an empty folder."""

import shutil
import subprocess
import sys
from pathlib import Path


def stochflow(*arguments: str) -> str:
    command = shutil.which("stochflow", path=str(Path(sys.executable).parent))
    assert command, "the command is not installed"
    done = subprocess.run([command, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def main() -> None:
    import stochflow as package
    from stochflow.environments.registry import TASKS, make_task
    from stochflow.environments.sequences.rna_bind import binding_targets
    from stochflow.forecasting.data.datasets import SERIES, load_series

    assert Path(package.__file__).is_relative_to(sys.prefix), f"imported from {package.__file__}"
    assert package.__version__ in stochflow("--version")
    settings = ("optimiser.batch_size=16", "optimiser.updates=2", "evaluation.num_samples=50")
    quick = ("--steps", "3", *(word for setting in settings for word in ("--set", setting)))
    stochflow("train", "tfbind8", *quick, "--out", "run")
    assert len(package.sample("run", 7)) == 7
    assert package.evaluate("run").regret > 0
    assert package.exact("tfbind8", noise=0.25)["min_kl"] > 0
    for name in TASKS:  # their tables must be in the package; RNA needs an extra
        assert name.startswith("rna-") or make_task(name).length > 0
    assert len(binding_targets()) > 0
    for name in SERIES:
        assert len(load_series(name)) > 0
    assert (Path(package.__file__).parent / "py.typed").is_file()
    print("smoke test passed")


if __name__ == "__main__":
    main()
