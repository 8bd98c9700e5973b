"""Hostile texts, tables and tensors, made from good ones; the same from the same generator."""

import copy
import json
import struct
from typing import Any

import numpy as np
import yaml

Random = np.random.Generator

NUMBERS: list[Any] = [
    *(0, 1, -1, 2, 3, 7, 255, 256, 10_000, 2**31, 2**63, 2**64, 10**9, 10**12, 10**15, 10**30, 10**400, -(10**12)),
    *(0.0, -0.0, 1e-320, 1e-300, 0.5, 0.999999999, 1.0, 1.5, 1e6, 1e300, 1.7e308, -0.1),
    *(float("nan"), float("inf"), float("-inf")),
]
TEXTS = [
    *("", " ", "a", "none", "null", "auto", "all", "dna", "ACGT", "tfbind8", "table", "bits:8,1", "bits:4096,8", "cpu"),
    *("bits:99999999999,1", "ehrlich:20,15,2,4", "hypergrid", "hypergrid:2,8", "hypergrid:9,99", "gym:FrozenLake-v1"),
    *("oracle:evil_module_of_a_stranger:score", "oracle:os:system", "rna-fold:", "gym:os:system", "sgfn-db", "mcmc"),
    *(
        "../../etc/passwd",
        "/etc/passwd",
        "/dev/zero",
        "/dev/full",
        "outside/secret.csv",
        "~/x",
        "a\x00b",
        "\x1b[31mred",
    ),
    *("é", "日本語", "\u202e", "\ud7ff", "𝔸", "{{x}}", "%s%n", "$(touch x)", "; rm x", "<script>alert(1)</script>"),
    *(
        "[bold]x[/]",
        "[/]",
        "1e9",
        "nan",
        "-1",
        "0x10",
        "1:1:1",
        "2020-13-45",
        "true",
        "~",
        "a,b,c",
        ":" * 50,
        "A" * 5000,
    ),
]
TREES: list[Any] = [[], {}, [[]], [1, 2], ["a"], {"a": 1}, {"": None}, [None], [[0.5, 0.5], [0.5, 0.5]], {"file": "x"}]
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{','.join(['*' + old] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGE_BOMB = "a: &a {x: 1, y: 2}\n" + "".join(
    f"{new}: &{new} {{<<: [{','.join(['*' + old] * 9)}]}}\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
LINES = [
    *(
        BOMB,
        MERGE_BOMB,
        MERGE_BOMB,
        MERGE_BOMB,
        "x: &x [*x]\n",
        "task: !!python/object/apply:os.system ['touch PWNED']\n",
    ),
    *("!!python/name:os.system : 1\n", "seed: !!python/object/new:type {}\n", "? [a]\n: b\n", "? {a: b}\n: c\n"),
    *(
        "seed: 1\nseed: 2\n",
        "\t- x\n",
        "%YAML 9.9\n",
        "---\n",
        "...\n---\na: b\n",
        "<<: 3\n",
        "seed: !!int x\n",
        "a: *nobody\n",
    ),
    *(
        "seed: " + "1:" * 3000 + "1\n",
        "seed: " + "9" * 6000 + "\n",
        "x: " + "[" * 3000 + "\n",
        "x: " + "{a: " * 400 + "\n",
    ),
    *("seed: 2020-13-45\n", "seed: !!binary ////\n", "seed: !!set {a, b}\n", "- 1\n", "x: '" + "y" * 100_000 + "'\n"),
    *(
        "seed: !!timestamp 99999-01-01\n",
        "table: {file: /etc/passwd}\ntask: table\n",
        "- - - - - x\n",
        "&a &b c\n",
        "@\n",
    ),
]


def pick(random: Random, values: Any) -> Any:
    return values[int(random.integers(len(values)))]


def value(random: Random) -> Any:
    """A value of any kind."""
    return copy.deepcopy(pick(random, pick(random, [NUMBERS, TEXTS, TREES])))


def alike(old: Any, random: Random) -> Any:
    """Another value of the same kind, which gets further than one of another."""
    if isinstance(old, bool):
        return not old
    if isinstance(old, int):
        return pick(random, [number for number in NUMBERS if isinstance(number, int)])
    if isinstance(old, float):
        return pick(random, [number for number in NUMBERS if isinstance(number, float)])
    if isinstance(old, list):
        return pick(random, [old * 2, old[:1], old[::-1], [*old, value(random)], old * 1000])
    return pick(random, TEXTS)


def places(tree: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something stands in nested settings."""
    inside = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [at, *(place for key, part in inside for place in places(part, (*at, key)))]


def changed(tree: Any, random: Random) -> Any:
    """Nested settings with a few of them replaced, removed, renamed, nested or added."""
    tree = copy.deepcopy(tree)
    for _ in range(int(pick(random, [0, 1, 1, 1, 2, 3]))):
        *above, last = pick(random, [place for place in places(tree) if place] or [("x",)])
        owner = tree
        for key in above:
            owner = owner[key]
        action = int(random.integers(9))
        if action > 5 and isinstance(owner, dict):
            owner[last] = alike(owner.get(last), random)
        elif isinstance(owner, dict) and action == 0:
            owner.pop(last, None)
        elif isinstance(owner, dict) and action == 1:
            owner[pick(random, TEXTS)] = owner.pop(last, None)
        elif action == 2:
            nested = owner[last] if isinstance(owner, list) else owner.get(last)
            for _ in range(int(pick(random, [1, 2, 30, 100]))):
                nested = [nested] if random.random() < 0.5 else {"x": nested}
            owner[last] = nested
        else:
            owner[last] = value(random)
    return tree


def yaml_text(tree: Any, random: Random) -> bytes:
    """Settings as YAML, changed in their structure and sometimes in their text."""
    text = yaml.safe_dump(changed(tree, random), allow_unicode=True, sort_keys=False)
    if random.random() < 0.25:
        lines = text.splitlines(keepends=True)
        lines.insert(int(random.integers(len(lines) + 1)), pick(random, LINES))
        if random.random() < 0.3:
            lines.insert(int(random.integers(len(lines) + 1)), pick(random, lines))
        text = "".join(lines)
    data = text.encode("utf-8", errors="surrogatepass")
    return spoiled(data, random) if random.random() < 0.25 else data


def spoiled(data: bytes, random: Random) -> bytes:
    """Bytes with some flipped, cut off, put in twice, or put before the others."""
    kind, at = int(random.integers(6)), int(random.integers(len(data) + 1))
    if kind == 0 and data:
        flipped = bytearray(data)
        for _ in range(int(pick(random, [1, 3, 20]))):
            flipped[int(random.integers(len(data)))] ^= 1 << int(random.integers(8))
        return bytes(flipped)
    if kind == 1:
        return data[:at]
    if kind == 2:
        return data[:at] + bytes(random.integers(0, 256, int(pick(random, [1, 8, 300])), dtype=np.uint8)) + data[at:]
    if kind == 3:
        return (
            pick(random, [b"\xef\xbb\xbf", b"\xff\xfe", b"\x00", b"\x00" * 5000, b"\x1f\x8b\x08", b"PK\x03\x04"]) + data
        )
    if kind == 4:
        return data[:at] + data[max(0, at - 200) :]
    return pick(random, [b"", b"\n", b"\r", b"\x00", data[::-1], data * 20, b"," * 50_000, b'"' * 999])


def cells(rows: list[list[str]], random: Random, separator: str = ",") -> bytes:
    """A table as CSV with some cells, columns and rows changed, and sometimes its bytes."""
    rows = [list(row) for row in rows]
    for _ in range(int(random.integers(0, 4))):
        row = pick(random, rows)
        action = int(random.integers(7))
        if action == 0 and row:
            row.pop(int(random.integers(len(row))))
        elif action == 1:
            row.append(str(value(random)))
        elif action == 2:
            rows.append(list(row))
        elif action == 3:
            rows.insert(0, list(row))
        elif row:
            row[int(random.integers(len(row)))] = str(value(random))
    text = "\n".join(separator.join(_quoted(cell, random) for cell in row) for row in rows) + "\n"
    data = text.encode("utf-8", errors="surrogatepass")
    return spoiled(data, random) if random.random() < 0.3 else data


def _quoted(cell: str, random: Random) -> str:
    return '"' + cell.replace('"', '""') + '"' if random.random() < 0.1 else cell


def forged_tensors(data: bytes, random: Random) -> bytes:
    """A safetensors file with a header that lies: shapes, types, offsets, names; or with other values."""
    size = struct.unpack("<Q", data[:8])[0]
    header, body = json.loads(data[8 : 8 + size]), bytearray(data[8 + size :])
    names = [name for name in header if name != "__metadata__"]
    name = pick(random, names)
    entry, action = header[name], int(random.integers(9))
    if action == 0:
        entry["shape"] = [int(pick(random, [0, 1, 2, 2**31, 2**62, 10**12])) for _ in range(int(random.integers(4)))]
    elif action == 1:
        entry["dtype"] = pick(random, ["F64", "F16", "BF16", "I8", "I64", "U8", "BOOL", "C64", "F8_E4M3", "XX", ""])
    elif action == 2:
        entry["data_offsets"] = [int(pick(random, [0, 5, 2**40, 2**63])), int(pick(random, [0, 8, 2**41, 2**64 - 1]))]
    elif action == 3:
        header[pick(random, TEXTS)] = header.pop(name)
    elif action == 4:
        del header[name]
    elif action in (5, 6):
        start, end = entry["data_offsets"]
        odd = {"F32": np.float32, "F64": np.float64, "I64": np.int64}.get(entry["dtype"], np.uint8)
        values = np.frombuffer(bytes(body[start:end]), dtype=odd).copy()
        if len(values):
            with np.errstate(all="ignore"):
                filled = np.asarray(pick(random, [0, 1, 2, 7, -1, 255, 1e30, 2**40, float("nan"), float("inf")]))
                many = random.random(len(values)) < pick(random, [0.02, 1.0])
                values[many] = np.nan_to_num(filled, posinf=127).astype(odd) if odd in (np.int64, np.uint8) else filled
        body[start:end] = values.tobytes()
    elif action == 7:
        header["__metadata__"] = {"x": "y" * 10_000}
    else:
        return struct.pack("<Q", int(pick(random, [0, 1, 2**20, 2**40, 2**63, 2**64 - 1]))) + data[8:]
    written = json.dumps(header).encode()
    return struct.pack("<Q", len(written)) + written + bytes(body)
