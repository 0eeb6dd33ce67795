"""The end of the process, and its forks: what writers have to do then."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import weakref
from typing import Protocol


class Ending(Protocol):
    """What has something to do when the process ends or forks."""

    def close(self) -> None:
        """The process ends."""

    def after_fork(self) -> None:
        """This is a child now."""


_watched: weakref.WeakSet[Ending] = weakref.WeakSet()


def watch(ending: Ending, *, sigterm: bool) -> None:
    """Close something at the end of the process, SIGTERM included if nobody else handles that."""
    _watched.add(ending)
    if (
        sigterm
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    ):
        # Ends the main thread as any exit does, so that what runs at exit runs.
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


def forget(ending: Ending) -> None:
    """It is closed."""
    _watched.discard(ending)


def _close_all() -> None:
    for ending in list(_watched):
        ending.close()


def _after_fork() -> None:
    for ending in list(_watched):
        ending.after_fork()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
