"""Asking a function that costs something: in batches, in parallel, again when it fails, and never twice."""

import queue
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from stochflow.config.schema import OracleConfig
from stochflow.core.errors import OracleError
from stochflow.environments.sequences.oracles.cache import ScoreCache
from stochflow.environments.sequences.oracles.clients import Asker, Reply
from stochflow.environments.sequences.task import MAX_SCORE

_SHOWN = 60


class Oracle:
    """Scores of designs from the cache where somebody has paid for them, otherwise from the function.

    Every score is in the cache before anything else happens to it. A batch that fails is asked again, each time after
    a longer pause; when it still fails, its designs are asked one by one until the one that fails is found.

    Args:
        askers: as many as may work at a time.
    """

    def __init__(self, name: str, askers: Sequence[Asker], cache: ScoreCache, config: OracleConfig) -> None:
        self.name, self.cache = name, cache
        self._askers, self._config = list(askers), config
        self._free: queue.SimpleQueue[Asker] = queue.SimpleQueue()
        for asker in self._askers:
            self._free.put(asker)
        self._closed = threading.Event()

    def scores(self, designs: Sequence[str]) -> list[float]:
        """One score per design; equal designs are asked for once."""
        self._closed.clear()
        known = self.cache.get(designs)
        missing = [design for design in dict.fromkeys(designs) if design not in known]
        size = self._config.batch_size
        batches = [missing[start : start + size] for start in range(0, len(missing), size)]
        # of several batches that fail, what the others bring is kept
        with ThreadPoolExecutor(max_workers=len(self._askers)) as pool:
            futures = [pool.submit(self._settle, batch) for batch in batches]
            try:
                for future in as_completed(futures):
                    known |= future.result()
            except BaseException as error:
                for future in futures:
                    future.cancel()
                if not isinstance(error, OracleError):  # Ctrl-C: nobody wants to wait for the rest
                    self.close()
                raise
        return [known[design] for design in designs]

    def close(self) -> None:
        """End the workers and let go of the cache; the next call starts them again."""
        self._closed.set()
        for asker in self._askers:
            asker.close()
        self.cache.close()

    def _settle(self, batch: list[str]) -> dict[str, float]:
        # another run that shares the cache may have paid in the meantime
        scores = self.cache.get(batch)
        pending = [design for design in batch if design not in scores]
        asker = self._free.get()
        try:
            for attempt in range(self._config.retries + 1):
                if not pending:
                    return scores
                if attempt:
                    self._closed.wait(self._config.backoff * 2 ** (attempt - 1))
                found, problem = judged(asker.ask(pending), pending)
                scores |= self._kept(found)
                pending = [design for design in pending if design not in scores]
            for design in pending if len(pending) > 1 else []:
                found, problem = judged(asker.ask([design]), [design])
                scores |= self._kept(found)
                if not found:
                    raise self._error(design, problem)
            if len(pending) == 1:
                raise self._error(pending[0], problem)
            return scores
        finally:
            self._free.put(asker)

    def _kept(self, scores: dict[str, float]) -> dict[str, float]:
        if scores:
            self.cache.put(scores)
        return scores

    def _error(self, design: str, problem: str) -> OracleError:
        shown = design if len(design) <= _SHOWN else f"{design[:_SHOWN]}…"
        return OracleError(
            f"the oracle '{self.name}' failed on the design {shown}: {problem}; what was scored is kept in "
            f"{self.cache.path}, so correct the function and go on with --resume"
        )


def judged(reply: Reply, designs: Sequence[str]) -> tuple[dict[str, float], str]:
    """The usable scores of a reply, and what is wrong with the first of the others."""
    if "problem" in reply:
        return {}, str(reply["problem"])
    pairs = list(zip(designs, reply["scores"], strict=True))
    good = {design: score for design, score in pairs if usable(score)}
    worst = next((score for _, score in _bad(pairs)), 0.0)
    return good, f"its score is {worst}, and scores must be neither negative nor above {MAX_SCORE:g}"


def usable(score: float) -> bool:
    """True for what a reward can be made of."""
    return 0.0 <= score <= MAX_SCORE


def _bad(pairs: Iterable[tuple[str, float]]) -> Iterable[tuple[str, float]]:
    return ((design, score) for design, score in pairs if not usable(score))
