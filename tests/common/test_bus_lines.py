"""Lines, for every mix of lines, widths and failures: order within a line, width across lines, all done in the end."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from libs.common.bus.lines import Lines

JOBS = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 2)), max_size=25)


@given(jobs=JOBS, width=st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_lines_keep_their_order_and_their_width(jobs: list[tuple[str, int]], width: int) -> None:
    started: list[tuple[str, int]] = []
    at_work: list[str] = []
    left = {n: failures for n, (_, failures) in enumerate(jobs)}

    async def run() -> None:
        lines = Lines(width, "test")
        for number, (line, _) in enumerate(jobs):
            lines.add(line, lambda line=line, number=number: job(line, number))
        async with asyncio.timeout(10):
            while not lines.idle:  # noqa: ASYNC110 - the lines have no event for it
                await asyncio.sleep(0)

    async def job(line: str, number: int) -> float | None:
        assert line not in at_work
        at_work.append(line)
        assert len(at_work) <= width
        await asyncio.sleep(0)
        at_work.remove(line)
        started.append((line, number))
        if left[number] > 0:
            left[number] -= 1
            return 0.0001
        return None

    asyncio.run(run())
    for line in "abcd":
        expected = [n for n, (name, failures) in enumerate(jobs) if name == line for _ in range(failures + 1)]
        assert [number for name, number in started if name == line] == expected


async def test_waking_tries_again_at_once() -> None:
    lines, tries = Lines(1, "test"), list[int]()

    async def job() -> float | None:
        tries.append(1)
        return 3600 if len(tries) == 1 else None

    lines.add("a", job)
    async with asyncio.timeout(5):
        while not tries:  # noqa: ASYNC110 - the lines have no event for it
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        lines.wake()
        while not lines.idle:  # noqa: ASYNC110 - the lines have no event for it
            await asyncio.sleep(0)
    assert len(tries) == 2


async def test_a_stop_lets_those_at_work_end_and_starts_no_other() -> None:
    lines, done, go_on = Lines(1, "test"), list[str](), asyncio.Event()

    def job_of(name: str) -> None:
        async def job() -> float | None:
            await go_on.wait()
            done.append(name)
            return None

        lines.add(name, job)

    job_of("first")
    job_of("second")
    await asyncio.sleep(0)
    stopping = asyncio.create_task(lines.stop(10))
    await asyncio.sleep(0)
    go_on.set()
    await stopping
    job_of("third")
    assert done == ["first"]
    assert lines.idle


async def test_a_stop_cancels_those_that_take_too_long() -> None:
    lines, cancelled = Lines(1, "test"), asyncio.Event()
    started = asyncio.Event()

    async def job() -> float | None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return None

    lines.add("a", job)
    await started.wait()
    await lines.stop(0.01)
    assert cancelled.is_set()
