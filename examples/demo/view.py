"""What the terminal shows: a live panel while the run goes on, plain lines before and after. Figures go to stdout last."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from examples.demo.conversations import Conversation, in_short
from examples.demo.following import Snapshot

_BARS = "▁▂▃▄▅▆▇█"
_COLOURS = {"running": "green", "completed": "green", "failed": "red", "cancelled": "yellow"}
_AVERAGED_STEPS = 3


def sparkline(values: list[float], width: int = 48) -> str:
    """Values of 0 to 1 as bars, the newest `width` of them."""
    return "".join(_BARS[min(7, int(max(0.0, min(1.0, value)) * 8))] for value in values[-width:])


def duration(seconds: float | None) -> str:
    """`3:05`, or `—` where it is not known."""
    if seconds is None:
        return "—"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}"


class View:
    """Speaks to the person at the terminal, on stderr; `quiet` shows lines but no live panel."""

    def __init__(self, *, quiet: bool) -> None:
        self.console = Console(file=sys.stderr, highlight=False)
        self._quiet = quiet or not self.console.is_terminal
        self._told_step = -1
        self._told_status = ""
        self._live: Live | None = None

    def say(self, line: str) -> None:
        """One line."""
        self.console.print(line, markup=False, soft_wrap=True)

    @contextmanager
    def step(self, doing: str) -> Iterator[None]:
        """Something that takes a while."""
        if self._quiet:
            self.say(f"{doing} …")
            yield
            return
        with self.console.status(f"{doing} …"):
            yield
        self.console.print(Text("✓ ", style="green").append(doing, style="default"))

    @contextmanager
    def watching(self) -> Iterator[None]:
        """The live panel is on inside the block."""
        if self._quiet:
            yield
            return
        with Live(console=self.console, refresh_per_second=4, transient=False) as live:
            self._live = live
            try:
                yield
            finally:
                self._live = None

    def show(self, snapshot: Snapshot) -> None:
        """The run as it is."""
        if self._live is not None:
            self._live.update(panel(snapshot))
            return
        step, status = int(snapshot.run["step"]), str(snapshot.run["status"])
        if (step, status) == (self._told_step, self._told_status):
            return
        self._told_step, self._told_status = step, status
        self.say(plain_line(snapshot))


def plain_line(snapshot: Snapshot) -> str:
    """The run in one line, for a terminal that is none."""
    run = snapshot.run
    line = f"{run['status']}  step {run['step']}/{run['total_steps']}"
    if snapshot.rewards:
        line += f"  reward {snapshot.rewards[-1].value:.3f}  {snapshot.samples_per_second:.2f} samples/s"
    return line


def panel(snapshot: Snapshot) -> Panel:
    """The run as a panel."""
    run = snapshot.run
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", min_width=12)
    table.add_column()
    status = Text(str(run["status"]), style=_COLOURS.get(str(run["status"]), "cyan"))
    if snapshot.queue_reason:
        status.append(f"  {snapshot.queue_reason}", style="dim")
    table.add_row("status", status)
    table.add_row("step", _progress(int(run["step"]), int(run["total_steps"])))
    table.add_row("reward", _reward(snapshot))
    table.add_row("held out", "  ".join(f"step {p.step}: {p.value:.3f}" for p in snapshot.validations) or "—")
    table.add_row("samples/s", f"{snapshot.samples_per_second:.2f}" if snapshot.rewards else "—")
    table.add_row("time left", duration(snapshot.seconds_left))
    parts: list[Table | Text] = [table]
    if snapshot.newest_rollout is not None:
        parts.append(Text(f"\n{in_short(Conversation.of(snapshot.newest_rollout))}", style="dim"))
    return Panel(Group(*parts), title=f"Osmosis · {run['name']}", subtitle="Ctrl-C cancels the run", width=84)


def _progress(step: int, total: int) -> Table:
    grid = Table.grid(padding=(0, 1))
    grid.add_row(ProgressBar(total=max(total, 1), completed=step, width=40), f"{step}/{total}")
    return grid


def _reward(snapshot: Snapshot) -> str:
    values = [point.value for point in snapshot.rewards]
    if not values:
        return "—"
    recent = values[-_AVERAGED_STEPS:]
    return (
        f"{sparkline(values)}  {values[-1]:.3f} now, {sum(recent) / len(recent):.3f} over {len(recent)} steps"
    )
