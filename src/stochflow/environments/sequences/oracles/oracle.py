"""Oracle: batched, parallel, cached calls of a score function, with retries."""

import queue
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from stochflow.config.oracle import OracleConfig
from stochflow.core.errors import OracleError
from stochflow.environments.sequences.oracles.cache import ScoreCache
from stochflow.environments.sequences.oracles.clients import OracleClient, Reply
from stochflow.environments.sequences.task import MAX_SCORE

_SHOWN = 60


class Oracle:
    """Scores of designs from the cache where it has them, otherwise from the function.

    Every score is stored in the cache before it is returned. A batch that fails is retried with exponential backoff;
    if it still fails, its designs are tried one by one to find the one that fails.

    Args:
        clients: one per concurrent call.
    """

    def __init__(self, name: str, clients: Sequence[OracleClient], cache: ScoreCache, config: OracleConfig) -> None:
        self.name, self.cache = name, cache
        self._clients, self._config = list(clients), config
        self._idle: queue.SimpleQueue[OracleClient] = queue.SimpleQueue()
        for client in self._clients:
            self._idle.put(client)
        self._closed = threading.Event()

    def scores(self, designs: Sequence[str]) -> list[float]:
        """One score per design; equal designs are scored once."""
        self._closed.clear()
        known = self.cache.get(designs)
        missing = [design for design in dict.fromkeys(designs) if design not in known]
        if missing:
            self._clients[0].connect()
        size = self._config.batch_size
        batches = [missing[start : start + size] for start in range(0, len(missing), size)]
        # a batch that fails does not discard the scores of the others
        with ThreadPoolExecutor(max_workers=len(self._clients)) as pool:
            futures = [pool.submit(self._score_batch, batch) for batch in batches]
            try:
                for future in as_completed(futures):
                    known |= future.result()
            except BaseException as error:
                for future in futures:
                    future.cancel()
                if not isinstance(error, OracleError):  # Ctrl-C: do not wait for the other batches
                    self.close()
                raise
        return [known[design] for design in designs]

    def close(self) -> None:
        """Stop the workers and close the cache; the next call of `scores` opens them again."""
        self._closed.set()
        for client in self._clients:
            client.close()
        self.cache.close()

    def _score_batch(self, batch: list[str]) -> dict[str, float]:
        # another run that shares the cache may have scored them in the meantime
        scores = self.cache.get(batch)
        pending = [design for design in batch if design not in scores]
        client = self._idle.get()
        try:
            for attempt in range(self._config.retries + 1):
                if not pending:
                    return scores
                if attempt:
                    self._closed.wait(self._config.backoff * 2 ** (attempt - 1))
                found, problem = self._asked(client, pending)
                scores |= self._kept(found)
                pending = [design for design in pending if design not in scores]
            for design in pending if len(pending) > 1 else []:
                found, problem = self._asked(client, [design])
                scores |= self._kept(found)
                if not found:
                    raise self._error(design, problem)
            if len(pending) == 1:
                raise self._error(pending[0], problem)
            return scores
        finally:
            self._idle.put(client)

    def _asked(self, client: OracleClient, designs: list[str]) -> tuple[dict[str, float], str]:
        if self._closed.is_set():  # by Ctrl-C: do not start the worker again
            raise OracleError("the oracle was closed")
        return valid_scores(client.score(designs), designs)

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


def valid_scores(reply: Reply, designs: Sequence[str]) -> tuple[dict[str, float], str]:
    """The valid scores of a reply, and the problem of the first invalid one."""
    if "problem" in reply:
        return {}, str(reply["problem"])
    pairs = list(zip(designs, reply["scores"], strict=True))
    good = {design: score for design, score in pairs if is_valid(score)}
    worst = next((score for _, score in pairs if not is_valid(score)), 0.0)
    return good, f"its score is {worst}, and scores must be neither negative nor above {MAX_SCORE:g}"


def is_valid(score: float) -> bool:
    """True for a score in [0, MAX_SCORE], so that log R is finite."""
    return 0.0 <= score <= MAX_SCORE
