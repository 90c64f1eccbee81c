"""How far a run is, as a line on the terminal."""

import sys
import time
from collections.abc import Callable
from typing import TypeAlias

#: Hears the steps that are done, and all of them.
Progress: TypeAlias = Callable[[int, int], object]


class Bar:
    """A line on standard error that is there while something takes more than a second."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._begin = time.monotonic()
        self._next = self._begin + 1.0
        self._is_shown = False

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + 0.2
        share = done / total if total else 0.0
        filled = int(30 * share)
        sys.stderr.write(f"\r{self._what} {'━' * filled}{' ' * (30 - filled)} {share:4.0%} {now - self._begin:.0f} s")
        sys.stderr.flush()
        self._is_shown = True

    def close(self) -> None:
        if self._is_shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def heard_by(progress: Progress | bool | None, what: str) -> tuple[Progress | None, Callable[[], None]]:
    """Who hears how far it is, and what ends that: a bar on a terminal where nobody says."""
    if callable(progress):
        return progress, lambda: None
    if progress is False or (progress is None and not sys.stderr.isatty()):
        return None, lambda: None
    bar = Bar(what)
    return bar, bar.close
