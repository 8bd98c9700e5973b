"""Rebuild the target RNAs of the tasks rna-bind from the flexs 0.2.8 wheel.

    pip download --no-deps flexs==0.2.8
    python scripts/build_rna_targets.py flexs-0.2.8-py3-none-any.whl

Writes rna_targets.fasta into src/stochflow/environments/sequences/data and prints its SHA-256, which belongs in
SHA256SUMS of that folder.
"""

import argparse
import ast
import hashlib
import zipfile
from pathlib import Path

TARGET = Path(__file__).parents[1] / "src/stochflow/environments/sequences/data/rna_targets.fasta"
MODULE = "flexs/landscapes/rna.py"


def targets_in(source: str) -> list[str]:
    """The list of strings that a module assigns to the name `targets`; the module is read, not run."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assign) and [ast.unparse(name) for name in node.targets] == ["targets"]:
            return [str(target) for target in ast.literal_eval(node.value)]
    raise SystemExit(f"{MODULE} has no list of targets")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    with zipfile.ZipFile(parser.parse_args().wheel) as wheel:
        targets = targets_in(wheel.read(MODULE).decode("utf-8"))
    text = "".join(f">RNA{number}\n{target}\n" for number, target in enumerate(targets, start=1))
    TARGET.write_text(text, encoding="ascii", newline="\n")
    print(f"{TARGET.name}: {len(text):,} bytes, SHA-256 {hashlib.sha256(text.encode()).hexdigest()}")


if __name__ == "__main__":
    main()
