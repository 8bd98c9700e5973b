"""A campaign: ask for designs, order them, tell what was measured, and ask again."""

import hashlib
import operator
import sqlite3
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from stochflow.campaigns.exports import write_export
from stochflow.campaigns.history import History
from stochflow.campaigns.judging import judge
from stochflow.campaigns.plates import places, plate_for
from stochflow.campaigns.proposal import Batch, propose
from stochflow.campaigns.rehearsal import Source, known_scores, play
from stochflow.campaigns.report.page import write_campaign_page
from stochflow.campaigns.results import read_results
from stochflow.campaigns.settings import CampaignSettings, checked_settings, stored_settings
from stochflow.campaigns.status import Status, status_of
from stochflow.campaigns.store import Store, frame_of, insert, signature
from stochflow.campaigns.telling import Told, record, undo
from stochflow.core.errors import ConfigError, DataError
from stochflow.core.words import counted
from stochflow.environments.sequences.fasta import read_sequences

_NUMBERS = dict.fromkeys(["predicted", "low", "high", "expected", "probability"], float)
_ASKED = f"SELECT id, design AS 'order', plate, well, {', '.join(_NUMBERS)}, why FROM orders WHERE ask = ?"


class Campaign:
    """Rounds of orders and measurements, kept in one file of a directory.

    Every fact is written in a transaction and never changed: a process that is killed loses nothing, and no design is
    handed out twice. The same history gives the same ask.

    >>> import pandas, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> campaign = Campaign.create(folder.name, alphabet="dna", length=6, noise=0.01, batch=8)
    >>> print(campaign.tell(pandas.DataFrame({"sequence": ["ACGTAC", "GGGTTT", "ACGTTT"], "score": [0.4, -0.1, 0.7]})))
    Tell 1: 3 new values, 3 of designs that were not ordered here.
    >>> plate = campaign.ask()
    >>> list(plate.columns)
    ['id', 'order', 'plate', 'well', 'predicted', 'low', 'high', 'expected', 'probability', 'why']
    >>> print(campaign.tell(plate[["id"]].assign(score=0.5)))
    Tell 2: 8 new values.
    >>> campaign.status().num_pending
    0
    >>> campaign.report().name
    'report.html'
    >>> folder.cleanup()
    """

    def __init__(self, store: Store, settings: CampaignSettings) -> None:
        self._store, self.settings = store, settings

    @classmethod
    def create(
        cls,
        directory: Path | str,
        alphabet: str = "dna",
        length: int = 20,
        noise: float | str = "none",
        goal: str = "maximise",
        batch: int = 96,
        constraints: Mapping[str, Any] | None = None,
        thresholds: Sequence[str] = (),
        seed: int = 0,
    ) -> "Campaign":
        """Begin a campaign in a new directory.

        Args:
            alphabet: `dna`, `rna`, `protein`, or the letters.
            length: letters of a design.
            noise: what happens between order and outcome, as for `train`; a file of `channel fit` is copied.
            goal: `maximise` the score, `sample` in proportion to it, or `target:0.7`.
            batch: wells of a round; up to 96 lie on plates of 96, more on plates of 384.
            constraints: settings such as `{"forbid": ["GGTCTC"], "gc": [0.4, 0.6]}`, which every order satisfies.
            thresholds: bounds of further properties, such as `solubility>=0.5`.
            seed: of every random choice.
        """
        given = {"alphabet": alphabet, "length": length, "batch": batch, "seed": seed}
        given |= {"purpose": goal, "thresholds": list(thresholds), "constraints": dict(constraints or {})}
        settings = checked_settings(noise, **given)
        store = Store(Path(directory))
        store.create(settings.model_dump_json())
        return cls(store, settings)

    @classmethod
    def open(cls, directory: Path | str) -> "Campaign":
        """The campaign of a directory."""
        return cls._of(Store(Path(directory)))

    @property
    def directory(self) -> Path:
        return self._store.directory

    def tell(self, results: pd.DataFrame | Path | str) -> Told:
        """Record results: a CSV file or a DataFrame with `sequence` or `id`, and `score`.

        Further columns are replicate, observed (the sequence that was found), plate, well, variance, failed, control,
        and the properties of thresholds. What is known already is left out; what contradicts it is refused.
        """
        table = read_results(results, self.settings.goal.properties)
        with self._store.writing() as connection:
            return record(connection, table, self.settings.space.alphabet, self.settings.length)

    def ask(self, num: int | None = None) -> pd.DataFrame:
        """Choose designs to order, record them as pending, and return one row per well.

        Args:
            num: how many; the batch of the campaign by default.
        """
        num = self.settings.batch if num is None else _whole(num, "designs")
        if num < 1:
            raise ConfigError(f"{num:,} designs were asked for; ask for one at least")
        with self._store.writing() as connection:
            history = History(connection, self.settings)
            number = len(history.asks) + 1
            self._check_room(num, history)
            seed = _seed(self.settings.seed, number)
            batch = self._proposed(history, num, seed)
            insert(connection, "asks", [(number, num, seed, *signature())])
            insert(connection, "orders", self._orders(batch, number))
            return _asked(connection, number)

    def asked(self, number: int | None = None) -> pd.DataFrame:
        """What an earlier ask returned, the last one by default."""
        with self._store.reading() as connection:
            (last,) = connection.execute("SELECT count(*) FROM asks").fetchone()
            if not last:
                raise ConfigError(f"there is no ask in {self.directory} yet; ask for designs first")
            number = last if number is None else _whole(number, "an ask")
            if not 1 <= number <= last:
                raise ConfigError(
                    f"there is no ask {number} in {self.directory}, which has {last}; name one of them, or ask anew"
                )
            return _asked(connection, number)

    def undo(self) -> tuple[int, str]:
        """Take the last tell back, which is recorded too; its number and the name of its file."""
        with self._store.writing() as connection:
            return undo(connection)

    def status(self) -> Status:
        """How many designs were ordered, measured, and are awaited, and the best of them."""
        return status_of(self.history(), self.settings)

    def history(self) -> History:
        """Orders with their state, results and evidence, as they are now."""
        with self._store.reading() as connection:
            return History(connection, self.settings)

    def judge(self, candidates: Sequence[str] | pd.DataFrame | Path | str) -> pd.DataFrame:
        """Predict and look up designs that somebody else proposes.

        Args:
            candidates: sequences, a DataFrame with the column `sequence`, or a FASTA or CSV file.
        """
        sequences = _sequences(candidates)
        wrong = next((each for each in sequences if len(each) != self.settings.length), None)
        if wrong is not None:
            raise DataError(
                f"the candidate {wrong[:40]} has {len(wrong)} letters and designs have {self.settings.length}; "
                "correct or remove it"
            )
        return judge(self.history(), self.settings.space, sequences)

    def rehearse(self, table: Source, rounds: int = 4, batch: int | None = None) -> pd.DataFrame:
        """Play the next rounds on known scores in a copy of the campaign, which is then thrown away.

        Args:
            table: a CSV file or DataFrame with `sequence` and `score`, or a task such as `tfbind8`.
            rounds: how many.
            batch: wells of a round; that of the campaign by default.
        """
        if _whole(rounds, "rounds") < 1:
            raise ConfigError(f"{rounds:,} rounds were asked for; play one at least")
        task = known_scores(table, self.settings.space)
        with tempfile.TemporaryDirectory() as folder:
            copy = Campaign._of(self._store.copy_to(Path(folder)))
            return play(task, self.settings.space, lambda: copy.ask(batch), copy.tell, rounds, self.settings.seed)

    def export(self, out: Path | str, layout: str = "plate", ask: int | None = None) -> Path:
        """Write an ask, the last one by default, as a plate map, FASTA or order sheet.

        Args:
            out: .csv, .xlsx or a FASTA file.
            layout: `plate`, `map`, `fasta`, `idt` or `twist`.
            ask: its number.
        """
        plate, letters = plate_for(self.settings.batch), self.settings.space.alphabet.letters
        write_export(self.asked(ask), plate, layout, Path(out), letters)
        return Path(out)

    def report(self, out: Path | str | None = None) -> Path:
        """Write one HTML page about the campaign, by default `report.html` in its directory; returns its path."""
        target = self.directory / "report.html" if out is None else Path(out)
        return write_campaign_page(self.history(), self.settings, self.directory.resolve().name, target)

    @classmethod
    def _of(cls, store: Store) -> "Campaign":
        with store.reading() as connection:
            found = connection.execute("SELECT value FROM settings WHERE name = 'campaign'").fetchone()
        return cls(store, stored_settings(found[0] if found else ""))

    def _check_room(self, num: int, history: History) -> None:
        """Refuse an ask for more designs than there are left."""
        space = self.settings.space
        if space.size is None:
            return
        gone = int(space.feasible(space.alphabet.encode(history.taken)).sum()) if history.taken else 0
        if num > space.size - gone:
            left, asked = space.size - gone, f"{counted(num, 'design')} {'was' if num == 1 else 'were'} asked for"
            remedy = f"{'ask for fewer, or ' if left else ''}loosen the constraints in a new campaign"
            raise ConfigError(
                f"{asked}, and {left:,} of the {space.size:,} that the constraints allow "
                f"{'is' if left == 1 else 'are'} left; {remedy}"
            )

    def _proposed(self, history: History, num: int, seed: int) -> Batch:
        """The proposal of a batch, checked: nothing that is taken, infeasible or twice is ever handed out."""
        space = self.settings.space
        evidence, known = history.evidence(), history.taken
        taken = space.alphabet.encode(known) if known else evidence.tokens[:0]
        batch = propose(space, evidence, taken, num, self.settings.goal, seed)
        designs = set(space.alphabet.decode(batch.orders))
        fresh = len(designs) == num and not designs & set(known)
        if not fresh or not bool(space.feasible(batch.orders).all()):
            raise DataError(f"no {num} new designs were found; ask for fewer, or loosen the constraints")
        return batch

    def _orders(self, batch: Batch, number: int) -> list[tuple[Any, ...]]:
        """Rows of the table `orders`."""
        space, num = self.settings.space, len(batch.orders)
        names = [f"a{number}_{index:03d}" for index in range(1, num + 1)]
        plates, wells = zip(*places(num, number, self.settings.batch), strict=True)
        figures = (values.tolist() for values in (batch.mean, batch.low, batch.high, batch.expected))
        exact = space.channel.exact_probability(batch.orders).tolist()
        designs = space.alphabet.decode(batch.orders)
        return list(zip(names, [number] * num, designs, plates, wells, *figures, exact, batch.reasons, strict=True))


def _asked(connection: sqlite3.Connection, number: int) -> pd.DataFrame:
    frame = frame_of(connection, f"{_ASKED} ORDER BY rowid", (number,))
    return frame.astype(_NUMBERS | dict.fromkeys(["id", "order", "plate", "well", "why"], "str"))


def _whole(number: Any, what: str) -> int:
    """A number of something as an int, or an error of one sentence."""
    try:
        return operator.index(number)
    except TypeError:
        raise ConfigError(f"the number of {what} is {number!r}; give a whole number") from None


def _seed(seed: int, ask: int) -> int:
    """Seed of an ask, from that of the campaign and its number."""
    return int.from_bytes(hashlib.sha256(f"{seed} {ask}".encode()).digest()[:6], "big")


def _sequences(candidates: Sequence[str] | pd.DataFrame | Path | str) -> list[str]:
    if isinstance(candidates, str | Path):
        return read_sequences(Path(candidates))
    if isinstance(candidates, pd.DataFrame) and "sequence" not in candidates:
        raise DataError("the candidates have no column 'sequence'; name the column of the designs so")
    found = list(candidates["sequence"] if isinstance(candidates, pd.DataFrame) else candidates)
    if not found:
        raise DataError("there are no candidates to judge; give one sequence at least")
    return [str(each).strip().upper() for each in found]
