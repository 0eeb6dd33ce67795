"""When appends reach the database: at once, in groups, or from the spool after the database was away."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from uuid import uuid4

from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, SQLAlchemyError

from context_paging.domain.errors import ContextPagingError, InvalidEvent
from context_paging.domain.events import AuditInterrupted

from ..telemetry import logger
from . import process
from .backlog import Backlog
from .commit import REMEMBERED_SESSIONS, Committer
from .database_errors import telling_errors
from .errors import LogUnavailable, SessionConflict
from .options import Audit, Durability
from .prepared import Append, Encode
from .records import Record
from .spool import AbandonedFile, Damage, abandoned, draining

QUEUED_EVENTS = 10_000
"""How many events may wait in memory before appends wait for the database."""
SPOOLED_BYTES = 64 * 1024 * 1024
"""How large the spool may grow, while the database is there, before appends wait for it."""
GROUP_EVENTS = 1_000
"""How many events one commit takes at most, unless a single append has more."""
LINGER_SECONDS = 0.1
"""How long the first append of a group waits for others."""
PATIENCE_SECONDS = 10.0
"""How long an append waits for a database that does not keep up before it takes it for away."""
RETRY_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Pauses between attempts to reach a database that is away; the last one repeats."""

_told = logger("log")
_inherited: list[Committer] = []


class Writer:
    """Takes appends and sees to it that the database gets each exactly once, in order.

    Safe to share between threads; a session belongs to one thread at a time.
    """

    def __init__(
        self,
        name: str,
        log_id: str,
        committer: Callable[[], Committer],
        encode: Encode,
        forked: Callable[[], None],
        *,
        durability: Durability,
        audit: Audit,
        spool: Path | None,
        sigterm: bool,
    ) -> None:
        self._name = name
        self._log_id = log_id
        self._make_committer = committer
        self._encode = encode
        self._forked = forked
        self._durability = durability
        self._audit = audit
        self._folder = spool
        self._sigterm = sigterm
        self._committer: Committer | None = None
        self._begin()
        process.watch(self, sigterm=False)

    def _begin(self) -> None:
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        # The thread waits here: an append that others will follow does not wake it.
        self._work = threading.Condition(self._lock)
        self._queue: deque[Append] = deque()
        self._queued_events = 0
        self._committing = False
        self._hurry = 0
        self._backlog = Backlog(self._name, self._folder, self._log_id)
        self._drained = 0
        self._away: LogUnavailable | None = None
        self._attempts = 0
        self._next_attempt = 0.0
        self._accepted: dict[str, int] = {}
        self._failed: dict[str, ContextPagingError] = {}
        self._dropped: dict[str, tuple[int, str]] = {}
        self._thread: threading.Thread | None = None
        self._closed = False

    def append(self, append: Append) -> int:
        """Take an append; the session's last sequence.

        Raises:
            SessionConflict: another writer appended to the session, now or to what was taken before.
            InvalidEvent: the database refuses an event.
            LogUnavailable: nothing can be made durable, and audit is required; or the log is closed.
        """
        if self._durability is Durability.SYNC and self._is_quiet:
            return self._commit_now(append)
        with self._lock:
            known = self._accepted.get(append.session_id) == append.expected and not append.urgent
            if known and self._is_quiet and self._durability is Durability.GROUP:
                return self._enqueue(append)
            if self._closed:
                raise LogUnavailable(f"the log {self._name} was closed; open it again")
            failed = self._failed.pop(append.session_id, None)
            if failed is not None:
                raise failed
            append = self._with_gap(append)
            if known and self._durability is not Durability.SYNC:
                taken = self._take(append)
                if taken is not None:
                    return taken
        return self._append_now(append)

    def flush(self) -> None:
        """Wait until the database has everything that was taken.

        Raises:
            LogUnavailable: it is away; the spool has the rest.
            SessionConflict: another writer was faster; what it kept out is among the rejected appends.
        """
        with self._changed:
            self._bring_all()
            if self._away is not None:
                raise self._away
            for session_id in list(self._failed):
                raise self._failed.pop(session_id)

    def settle(self) -> None:
        """Wait until the database has everything that was taken, or is known to be away."""
        with self._changed:
            self._wait_for_commits()

    def forget(self) -> None:
        """Take nothing for known that was read from the database."""
        with self._lock:
            self._accepted.clear()
            if self._committer is not None:
                self._committer.forget()

    @property
    def away(self) -> LogUnavailable | None:
        """Why the database does not take anything, while it does not."""
        return self._away

    def recover(self) -> None:
        """Bring what writers that have ended left in the spool to the database."""
        if self._folder is None:
            return
        with draining(self._folder):
            self._recover(self._folder)

    def _recover(self, folder: Path) -> None:
        for file in abandoned(folder, self._log_id):
            try:
                damage = self._drain_file(file)
            except LogUnavailable as error:
                _told.warning("log.spool.kept", log=self._name, file=str(file.path), reason=str(error))
                file.close()
                return
            if damage:
                kept = file.put_aside()
                _told.error("log.spool.damaged", log=self._name, file=str(kept), places=damage)
            else:
                file.remove()

    def close(self) -> None:
        """Bring everything to the database, if it is there, and stop."""
        with self._changed:
            if self._closed:
                return
            self._bring_all()
            self._closed = True
            self._work.notify()
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(PATIENCE_SECONDS)
        if self._queue:
            _told.error(
                "log.events.dropped", log=self._name, events=self._queued_events, reason=str(self._away)
            )
        self._backlog.close()
        if self._committer is not None:
            self._committer.close()
        process.forget(self)

    def after_fork(self) -> None:
        """In a child: the files, the thread and what is not committed belong to the parent."""
        self._backlog.let_go()
        if self._committer is not None:
            # Its connection is the parent's, and must not even be closed here.
            _inherited.append(self._committer)
        self._committer = None
        self._forked()
        self._begin()

    def drop(self, session_id: str, events: int, reason: LogUnavailable) -> None:
        """Events could not even be prepared.

        Raises:
            LogUnavailable: audit is required.
        """
        if self._audit is Audit.REQUIRED:
            raise reason
        with self._lock:
            before, _ = self._dropped.get(session_id, (0, ""))
            self._dropped[session_id] = (before + events, str(reason))
        _told.error(
            "log.events.dropped", log=self._name, session=session_id, events=events, reason=str(reason)
        )

    def _take(self, append: Append) -> int | None:
        """Take an append for a later commit; ``None`` if that cannot be. The lock is held."""
        if not self._has_room() and not self._changed.wait_for(self._has_room, PATIENCE_SECONDS):
            self._lose(LogUnavailable(f"the log {self._name} cannot be used: its database does not keep up"))
        spooled = self._away is not None or self._durability is Durability.SPOOL
        if spooled and not self._write_to_spool(append):
            return None
        return self._accept(append) if self._away is not None else self._enqueue(append)

    @property
    def _is_quiet(self) -> bool:
        """Whether there is nothing to be thought of at an append."""
        return self._queued_events < QUEUED_EVENTS and not (
            self._away or self._failed or self._dropped or self._closed
        )

    def _enqueue(self, append: Append) -> int:
        self._queue.append(append)
        self._queued_events += len(append)
        if len(self._queue) == 1 or self._queued_events >= GROUP_EVENTS:
            self._wake()
        self._accepted[append.session_id] = last = append.last
        return last

    def _append_now(self, append: Append) -> int:
        """Commit an append after what was taken before it."""
        with self._changed:
            self._wait_for_commits()
            if self._away is not None and time.monotonic() >= self._next_attempt:
                self._wake()
                self._changed.wait_for(
                    lambda: self._away is None or self._next_attempt > time.monotonic(), 1.0
                )
            # With nothing that has to go first, the answer decides whether there is a provider call.
            decides = self._audit is Audit.REQUIRED and self._nothing_waits()
            if self._away is not None and not decides:
                return self._keep(append, self._away)
        return self._commit_now(append)

    def _commit_now(self, append: Append) -> int:
        # What cannot be stored is told, and is no fault of the database's.
        _ = append.prepared
        try:
            (result,) = self._commit([append])
        except LogUnavailable as error:
            with self._changed:
                self._lose(error)
                return self._keep(append, error)
        if isinstance(result, SessionConflict):
            with self._changed:
                self._accepted.pop(append.session_id, None)
            raise result
        with self._changed:
            if len(self._accepted) >= REMEMBERED_SESSIONS:
                self._accepted.clear()
            self._accepted[append.session_id] = result
            self._dropped.pop(append.session_id, None)
            if self._away is not None and self._nothing_waits():
                self._away = None
        return result

    def _keep(self, append: Append, away: LogUnavailable) -> int:
        """Take an append that the database does not take. The lock is held."""
        if self._write_to_spool(append):
            self._wake()
            return self._accept(append)
        self.drop(append.session_id, _told_events(append), away)
        return append.expected

    def _accept(self, append: Append) -> int:
        self._accepted[append.session_id] = append.last
        self._dropped.pop(append.session_id, None)
        return append.last

    def _with_gap(self, append: Append) -> Append:
        gap = self._dropped.get(append.session_id)
        if gap is None:
            return append
        interrupted = AuditInterrupted(events=gap[0], reason=gap[1])
        return append.after(Record(interrupted, uuid4().hex, append.prepared[0].recorded_at))

    def _nothing_waits(self) -> bool:
        return not self._queue and self._backlog.empty

    @property
    def _syncs(self) -> bool:
        # Beside a database that takes everything, the file only has to outlive the process.
        return self._durability is not Durability.SPOOL or self._away is not None

    def _has_room(self) -> bool:
        if self._away is not None:
            return True
        return self._queued_events < QUEUED_EVENTS and self._backlog.size < SPOOLED_BYTES

    def _wait_for_commits(self) -> None:
        self._hurry += 1
        self._wake()
        self._changed.wait_for(lambda: not self._committing and (not self._queue or self._away is not None))
        self._hurry -= 1

    def _bring_all(self) -> None:
        """Wait until the database has everything, or does not answer. The lock is held."""
        self._wait_for_commits()
        while self._is_away():
            self._next_attempt = 0.0
            self._wake()
            self._changed.wait_for(lambda: self._away is None or self._next_attempt > 0, PATIENCE_SECONDS)
            if self._is_away():
                return
            # What waited in memory is not in the spool that was just drained.
            self._wait_for_commits()

    def _is_away(self) -> bool:
        return self._away is not None

    def _write_to_spool(self, append: Append) -> bool:
        # What waits in memory is older.
        if self._away is not None and not self._spool_queue():
            return False
        return self._backlog.write(append, sync=self._syncs)

    def _spool_queue(self) -> bool:
        while self._queue:
            try:
                if not self._backlog.write(self._queue[0], sync=self._syncs):
                    break
            except InvalidEvent as error:
                self._reject(self._queue[0], error)
            self._queue.popleft()
        self._queued_events = sum(map(len, self._queue))
        return not self._queue

    def _commit(self, appends: Sequence[Append]) -> list[int | SessionConflict]:
        with telling_errors(self._name):
            if self._committer is None:
                self._committer = self._make_committer()
            try:
                return self._committer.commit(appends)
            except DBAPIError as error:
                if not _is_fault_of_an_event(error):
                    raise
                if len(appends) == 1:
                    reason = str(error.orig).splitlines()[0]
                    raise InvalidEvent(
                        f"the database refuses an event of {appends[0].session_id!r}: {reason}"
                    ) from error
            except InvalidEvent:
                if len(appends) == 1:
                    raise
            except (SQLAlchemyError, sqlite3.Error, OSError, ContextPagingError):
                raise
            except Exception as error:
                # An event of a shape that no code of ours makes must not be tried for ever.
                if len(appends) == 1:
                    raise InvalidEvent(
                        f"an event of {appends[0].session_id!r} cannot be stored: {error!r}"
                    ) from error
        # One of them is the reason: the others must not suffer from it.
        return [result for append in appends for result in self._commit_or_reject(append)]

    def _commit_or_reject(self, append: Append) -> list[int | SessionConflict]:
        try:
            return self._commit([append])
        except InvalidEvent as error:
            self._reject(append, error)
            return [append.last]

    def _reject(self, append: Append, error: ContextPagingError) -> None:
        _told.error("log.append.rejected", log=self._name, session=append.session_id, reason=str(error))
        self._backlog.reject(append)
        with self._changed:
            # What follows fails because of it, and is not the reason.
            self._failed.setdefault(append.session_id, error)
            self._accepted.pop(append.session_id, None)

    def _settle_batch(self, appends: Sequence[Append], results: Sequence[int | SessionConflict]) -> None:
        for append, result in zip(appends, results, strict=True):
            if isinstance(result, SessionConflict):
                self._reject(append, result)

    def _wake(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            if not self._queue and self._away is None:
                return
            self._thread = threading.Thread(target=self._run, name="context-paging log", daemon=True)
            self._thread.start()
            process.watch(self, sigterm=self._sigterm)
        self._work.notify()

    def _lose(self, error: LogUnavailable, batch: Sequence[Append] = ()) -> None:
        """The database is away, and did not take a batch. The spool gets what waits; the lock is held."""
        if self._away is None:
            _told.warning("log.database.away", log=self._name, reason=str(error))
            self._attempts = 0
        self._away = error
        self._queue.extendleft(reversed(batch))
        if self._durability is Durability.SPOOL:
            # It is there already.
            self._queue.clear()
        self._spool_queue()
        pause = RETRY_SECONDS[min(self._attempts, len(RETRY_SECONDS) - 1)]
        self._attempts += 1
        self._next_attempt = time.monotonic() + pause
        self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._wait_for_work():
                    return
                away = self._away is not None
                batch = [] if away else self._next_batch()
                self._committing = True
            try:
                if away:
                    self._drain_own()
                else:
                    self._settle_batch(batch, self._commit(batch))
            except LogUnavailable as error:
                with self._changed:
                    self._lose(error, batch)
            except ContextPagingError as error:
                # A single append that the database refuses.
                for append in batch:
                    self._reject(append, error)
            except Exception as error:
                # Whatever it is, nothing may be lost, and appending must go on.
                with self._changed:
                    self._lose(LogUnavailable(f"the log {self._name} cannot be used: {error!r}"), batch)
            finally:
                with self._changed:
                    self._committing = False
                    self._clear_spool()
                    self._changed.notify_all()

    def _wait_for_work(self) -> bool:
        while True:
            if self._away is not None:
                pause = self._next_attempt - time.monotonic()
                if pause <= 0:
                    return True
                if self._closed:
                    return False
                self._work.wait(pause)
            elif self._queue:
                self._work.wait_for(
                    lambda: self._hurry or self._closed or self._queued_events >= GROUP_EVENTS, LINGER_SECONDS
                )
                if self._queue:
                    return True
            elif self._closed:
                return False
            else:
                self._work.wait()

    def _next_batch(self) -> list[Append]:
        batch: list[Append] = []
        events = 0
        while self._queue and (not batch or events + len(self._queue[0]) <= GROUP_EVENTS):
            batch.append(self._queue.popleft())
            events += len(batch[-1])
        self._queued_events -= events
        return batch

    def _clear_spool(self) -> None:
        if self._away is None and not self._queue and not self._backlog.empty:
            self._backlog.clear()
            self._drained = 0

    def _drain_own(self) -> None:
        """Bring the spool of this process to the database, until it has everything."""
        with self._changed:
            if self._committer is not None:
                self._committer.forget()
        if self._backlog.empty:
            # Asks whether the database is there.
            self._commit([])
        while not self._all_drained():
            group: list[Append] = []
            # If nothing more can be read, nothing more is there.
            behind = self._backlog.size
            for end, frame in self._backlog.frames(self._encode, self._drained):
                behind = end
                if isinstance(frame, Append):
                    group.append(frame)
                if len(group) == GROUP_EVENTS:
                    break
            self._settle_batch(group, self._commit(group))
            self._drained = behind
        _told.info("log.database.back", log=self._name)

    def _all_drained(self) -> bool:
        with self._changed:
            if not self._backlog.empty and self._drained < self._backlog.size:
                return False
            # Nobody can add to the spool between the look and this.
            self._away = None
            self._clear_spool()
            self._changed.notify_all()
            return True

    def _drain_file(self, file: AbandonedFile) -> int:
        damage = 0
        group: list[Append] = []
        for frame in file.frames(self._encode):
            if isinstance(frame, Damage):
                damage += 1
                continue
            group.append(frame)
            if len(group) >= GROUP_EVENTS:
                self._settle_batch(group, self._commit_all(group))
                group = []
        if group:
            self._settle_batch(group, self._commit_all(group))
        # A rejected append is told once; nobody here waits for it.
        self._failed.clear()
        return damage

    def _commit_all(self, appends: Sequence[Append]) -> list[int | SessionConflict]:
        if len(appends) == 1:
            return self._commit_or_reject(appends[0])
        return self._commit(appends)


def _is_fault_of_an_event(error: DBAPIError) -> bool:
    # Classes of SQLSTATE: data, integrity, and what is too large for an index. No retry will help.
    state = getattr(error.orig, "sqlstate", None) or ""
    return isinstance(error, DataError | IntegrityError) or state[:2] in ("22", "23", "54")


def _told_events(append: Append) -> int:
    # A gap that could not be written either is counted by the next one.
    return sum(event_type != "audit-interrupted" for event_type in append.types)
