"""Requests that arrive together are sampled together.

Guaranteed: a batch runs on one policy version from its first token to its last; publishing a version waits for the
batch under way and holds back the next. A batch starts when no request has come for `QUIET_S`, or when it is full, so
the 64 chats of a step are one batch; its order does not depend on who came first.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import structlog

from services.trainer.engine.generation import generate
from services.trainer.engine.sampling import Overloaded, SampleRequest, SampleResult

QUIET_S = 0.01
FULL_TOKENS = 64 * 1024
"""Rows times (longest prompt plus longest answer) of one batch: bounds the cache's memory."""
MAX_WAITING = 10_000

_log = structlog.get_logger(__name__)


class BatchingEngine:
    """A policy engine on a transformers model of this process."""

    def __init__(self, model: Any, tokenizer: Any, *, context_length: int, version: int = 0) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._context_length = context_length
        self._vocabulary = int(model.get_input_embeddings().weight.shape[0])
        self._version = version
        self._weights = threading.Lock()
        self._arrived = threading.Condition()
        self._waiting: list[tuple[SampleRequest, Future[SampleResult]]] = []
        self._closed = False
        self.sampled_tokens = 0
        self._thread = threading.Thread(target=self._run, name="policy-engine", daemon=True)
        self._thread.start()

    @property
    def version(self) -> int:
        """The version that samples now."""
        return self._version

    async def sample(self, request: SampleRequest) -> SampleResult:
        """Sample one answer; see `PolicyEngine`."""
        return await asyncio.wrap_future(self.submit(request))

    def submit(self, request: SampleRequest) -> Future[SampleResult]:
        """As `sample`, for callers in threads.

        Raises:
            Overloaded, ValueError: as `PolicyEngine.sample`.
        """
        if len(request.prompt_ids) + request.max_tokens > self._context_length:
            raise ValueError(
                f"{len(request.prompt_ids)} prompt tokens and max_tokens {request.max_tokens} do not fit into"
                f" the model's context of {self._context_length} tokens"
            )
        # One such id would end the whole batch, its neighbours included.
        if not 0 <= min(request.prompt_ids) <= max(request.prompt_ids) < self._vocabulary:
            raise ValueError(f"prompt_ids are not all of the model's {self._vocabulary} tokens")
        future: Future[SampleResult] = Future()
        with self._arrived:
            if self._closed or len(self._waiting) >= MAX_WAITING:
                raise Overloaded("the policy engine takes no more requests at the moment")
            self._waiting.append((request, future))
            self._arrived.notify()
        return future

    @contextmanager
    def publishing(self, version: int) -> Generator[None]:
        """Change the weights inside the block; what is sampled afterwards is of `version`."""
        with self._weights:
            yield
            self._version = version

    def close(self) -> None:
        """Sample no more; requests that wait are refused."""
        with self._arrived:
            self._closed = True
            self._arrived.notify()
        self._thread.join()

    def _run(self) -> None:
        while batch := self._gather():
            live = [(request, future) for request, future in batch if future.set_running_or_notify_cancel()]
            if not live:
                continue
            try:
                with self._weights:
                    results = generate(self._model, self._tokenizer, [r for r, _ in live], self._version)
            except Exception as error:  # noqa: BLE001 - the batch's callers get it; the engine goes on
                _log.error("a batch could not be sampled", error=repr(error), exc_info=error)
                for _, future in live:
                    future.set_exception(error)
                continue
            self.sampled_tokens += sum(len(result.token_ids) for result in results)
            for (_, future), result in zip(live, results, strict=True):
                future.set_result(result)

    def _gather(self) -> list[tuple[SampleRequest, Future[SampleResult]]]:
        """The next batch, in an order of its own; empty when the engine is closed."""
        with self._arrived:
            while not self._waiting and not self._closed:
                self._arrived.wait()
            seen = 0
            while not self._closed and len(self._waiting) > seen:
                seen = len(self._waiting)
                self._arrived.wait(QUIET_S)
            if self._closed:
                for _, future in self._waiting:
                    # A caller that gave up has cancelled its future, which takes no answer any more.
                    if future.set_running_or_notify_cancel():
                        future.set_exception(Overloaded("the policy engine is closing"))
                self._waiting.clear()
                return []
            self._waiting.sort(key=lambda entry: _place(entry[0]))
            count = _fitting([request for request, _ in self._waiting])
            batch, self._waiting = self._waiting[:count], self._waiting[count:]
            return batch


def _place(request: SampleRequest) -> tuple[int, list[int], int, str]:
    """Where a request stands in line: those of one length together (less padding), then those of one prompt."""
    return len(request.prompt_ids) + request.max_tokens, request.prompt_ids, request.seed, request.rollout_id


def _fitting(requests: Sequence[SampleRequest]) -> int:
    """How many of the first requests make a batch of at most `FULL_TOKENS`; at least one."""
    longest = 0
    for count, request in enumerate(requests, start=1):
        longest = max(longest, len(request.prompt_ids) + request.max_tokens)
        if count > 1 and count * longest > FULL_TOKENS:
            return count - 1
    return len(requests)
