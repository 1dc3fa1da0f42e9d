"""An attempt from hello to its end.

Guaranteed: it ends in exactly one way. Either its end is reported, or it is over and reports nothing more; and whatever
raised, the user is told in a sentence while the traceback stays in the attempt's log.
"""

from __future__ import annotations

import asyncio
import shutil
import traceback
from contextlib import suppress
from enum import IntEnum
from pathlib import Path

import structlog

from libs.common.blobs.factory import open_blobs
from libs.common.clock import SystemClock
from libs.common.contracts.attempts import Ended, Hello
from libs.common.contracts.recipes import ExportOrder, MergeOrder, TrainOrder
from services.trainer.attempt.context import Context, WorkFailed
from services.trainer.attempt.control import Control, Told, beat
from services.trainer.attempt.link import Fenced, Link, Unreachable
from services.trainer.attempt.settings import AttemptSettings

ERROR_CHARACTERS = 2000

_log = structlog.get_logger(__name__)


class Exit(IntEnum):
    """Exit status of the process."""

    DONE = 0
    FAILED = 1
    FENCED = 3
    UNREACHABLE = 4


async def run_attempt(settings: AttemptSettings) -> Exit:
    """Do the work of one attempt and report how it ended."""
    work_id, epoch = settings.attempt_work_id, settings.attempt_epoch
    structlog.contextvars.bind_contextvars(work=work_id, epoch=epoch)
    token = settings.attempt_token.get_secret_value()
    scratch = _scratch(settings)
    try:
        async with Link(settings.attempt_url, work_id, epoch, token) as link:
            context = Context(settings, open_blobs(settings), SystemClock(), link, Control(), scratch)
            return await _hello_to_end(context)
    except Fenced as over:
        _log.warning("the attempt is over", reason=str(over))
        return Exit.FENCED
    except Unreachable as error:
        _log.error("the trainer service is out of reach", error=str(error))
        return Exit.UNREACHABLE
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


async def _hello_to_end(context: Context) -> Exit:
    hello = await context.link.hello()
    _log.info("the work is known", kind=hello.order.kind)
    work = asyncio.create_task(_outcome(context, hello), name="work")
    beats = asyncio.create_task(beat(context.link, context.control, hello.heartbeat_s), name="heartbeats")
    try:
        await asyncio.wait({work, beats}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            beats.result()  # heartbeats end by raising alone: the attempt is over
        ended = await work
        await context.link.ended(ended)
    finally:
        # The computing thread cannot be stopped from here: it ends by itself at its next question.
        context.control.fence()
        for task in (work, beats):
            task.cancel()
            with suppress(asyncio.CancelledError, Fenced, Unreachable):
                await task
    _log.info("the end is reported", outcome=ended.outcome, step=ended.step)
    return Exit.FAILED if ended.outcome == "failed" else Exit.DONE


async def _outcome(context: Context, hello: Hello) -> Ended:
    try:
        await _ask_first(context)
        return await _carry_out(context, hello)
    except (Fenced, Unreachable):
        raise
    except Told as told:
        return Ended(outcome="paused" if told.directive == "pause" else "cancelled")
    except Exception as error:  # noqa: BLE001 - whatever a model, a folder or a library raises ends the attempt
        _log.error("the attempt failed", error=repr(error), trace=traceback.format_exc())
        return Ended(outcome="failed", error=said_to_user(error))


async def _ask_first(context: Context) -> None:
    """Work that nobody wants any more is not begun."""
    with suppress(Unreachable):
        context.control.tell((await context.link.heartbeat()).directive)
    context.control.check()


async def _carry_out(context: Context, hello: Hello) -> Ended:
    # The tensor libraries take seconds to load: only now, with heartbeats on their way.
    order = hello.order
    if isinstance(order, TrainOrder):
        from services.trainer.attempt.training import train

        return await train(context, order.recipe, hello.resume_from)
    from services.trainer.attempt.jobs import export, merge

    match order:
        case MergeOrder():
            return await merge(context, order)
        case ExportOrder():
            return await export(context, order)


def said_to_user(error: BaseException) -> str:
    """The error in a sentence; one that was not written for users begins with its kind."""
    text = " ".join(str(error).split()) or "no more is known; see the attempt's log"
    kind = "" if isinstance(error, WorkFailed) else f"{type(error).__name__}: "
    return f"{kind}{text}"[:ERROR_CHARACTERS]


def _scratch(settings: AttemptSettings) -> Path:
    """A folder for this attempt; those that killed attempts of the same work left behind go."""
    folder = settings.data_dir.absolute() / "scratch" / settings.attempt_work_id
    shutil.rmtree(folder, ignore_errors=True)
    scratch = folder / str(settings.attempt_epoch)
    scratch.mkdir(parents=True)
    return scratch
