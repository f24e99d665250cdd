"""The attempt store: runs, attempts, prompts, answers, sources. SQLite by default, any SQLAlchemy URL.

Every row is written as soon as what it records has happened, in its own transaction, so that a process
killed at any moment loses only what was under way. Texts are stored once, by content hash.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kernelllm.core.closing import Closing
from kernelllm.core.database import as_url, brief, opened
from kernelllm.core.errors import StoreError, UsageError
from kernelllm.core.types import Attempt, Candidate, Cost, Problem, Verdict, digest, from_json, to_json

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

VERSION = 1
"""Version of the tables; a store of another version is refused, not misread."""


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One line of ``kernelllm runs list``. Times are UTC in ISO format."""

    id: str
    kind: str
    name: str
    state: str
    """``running`` (or killed), ``done``, or ``stopped: REASON``."""
    created: str
    updated: str
    settings: dict[str, Any] = {}
    """The resolved settings of the command."""
    environment: dict[str, str] = {}
    attempts: int = 0
    correct: int = 0
    tokens: int | None = None
    """Tokens in and out together; None where no attempt knows."""
    usd: float | None = None


_DRY = "dry-{}-"
"""With a run's id: begins the keys of problems that have no more samples."""


def run_id(kind: str, identity: Mapping[str, Any]) -> str:
    """The name of the run that a command belongs to: the same command has the same name, so it resumes."""
    return digest(kind + "\n" + msgspec.json.encode(identity, order="sorted").decode())[:12]


class Store(Closing):
    """A database of runs. Thread-safe; one object a process is enough. Raises StoreError.

    ``url`` is a SQLAlchemy URL, or a path of an SQLite file (its folder is created).
    """

    def __init__(self, url: str | Path) -> None:
        from kernelllm.core import _tables

        self._tables = _tables
        self._lock = threading.Lock()
        self.url = as_url(url)
        self._engine: Engine = opened(self.url)
        try:
            with self._engine.begin() as connection:
                _tables.METADATA.create_all(connection)
                found = connection.execute(_tables.META.select().where(_tables.META.c.key == "version")).first()
                if found is None:
                    self._put(connection, _tables.META, {"key": "version", "value": str(VERSION)})
        except _tables.SQLAlchemyError as error:
            what = f"The attempt store cannot be opened: {brief(error)}."
            held = "Another process holds it. Wait for that one, or name" if "locked" in what else "Name"
            raise StoreError(what, where=self.safe_url, fix=f"{held} another with --db.") from error
        if found is not None and found.value != str(VERSION):
            what = f"The attempt store has tables of version {found.value}; this is version {VERSION}."
            raise StoreError(what, where=self.safe_url)

    @property
    def safe_url(self) -> str:
        """The URL with no password in it."""
        return self._engine.url.render_as_string(hide_password=True)

    def close(self) -> None:
        self._engine.dispose()

    # -- plumbing ------------------------------------------------------------------------------

    @contextmanager
    def _begin(self) -> Iterator[Connection]:
        """One transaction. SQLite has one writer: our threads queue here rather than in its busy loop."""
        try:
            with self._lock, self._engine.begin() as connection:
                yield connection
        except self._tables.SQLAlchemyError as error:
            raise StoreError(f"The attempt store failed: {brief(error)}.", where=self.safe_url) from error

    def _put(self, connection: Connection, table: Any, row: Mapping[str, Any], *, replace: bool = False) -> None:
        """Insert a row; one that is there already is kept, or replaced."""
        if self._engine.dialect.name == "postgresql":
            from sqlalchemy.dialects.postgresql import insert
        else:
            from sqlalchemy.dialects.sqlite import insert  # type: ignore[assignment]
        statement = insert(table).values(**row)
        keys = self._tables.UNIQUE.get(table.name) or [k.name for k in table.primary_key]
        if replace:
            rest = {name: value for name, value in row.items() if name not in keys}
            statement = statement.on_conflict_do_update(index_elements=keys, set_=rest)
        else:
            statement = statement.on_conflict_do_nothing(index_elements=keys)
        connection.execute(statement)

    def _text(self, connection: Connection, table: Any, text: str) -> str:
        key = digest(text)
        if text:
            self._put(connection, table, {"digest": key, "text": text})
        return key

    # -- runs ----------------------------------------------------------------------------------

    def open_run(
        self,
        kind: str,
        name: str,
        identity: Mapping[str, Any],
        *,
        settings: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
        fresh: bool = False,
    ) -> Run:
        """The run that this command belongs to: made now, or found again and resumed.

        ``identity`` holds what makes it the same work (model, problems, parameters), not how much of it
        (``n``, rounds, budgets): asking for more continues. ``fresh`` starts a new run beside it.
        """
        key = run_id(kind, {**identity, "fresh": _now()} if fresh else identity)
        row = {
            "id": key,
            "kind": kind,
            "name": name,
            "state": "running",
            "created": _now(),
            "updated": _now(),
            "identity": to_json(identity, indent=0),
            "settings": to_json(settings or {}, indent=0),
            "environment": to_json(environment or {}, indent=0),
        }
        runs = self._tables.RUNS
        with self._begin() as connection:
            self._put(connection, runs, row)
            again = {name: row[name] for name in ("state", "updated", "settings", "environment")}
            connection.execute(runs.update().where(runs.c.id == key).values(**again))
        return Run(self, key)

    def runs(self) -> list[RunInfo]:
        """All runs, the newest first."""
        t = self._tables
        with self._begin() as connection:
            rows = connection.execute(t.RUNS.select().order_by(t.RUNS.c.updated.desc())).all()
            return [self._info(connection, row) for row in rows]

    def _info(self, connection: Connection, row: Any) -> RunInfo:
        from sqlalchemy import case, func, select

        a = self._tables.ATTEMPTS.c
        figures = connection.execute(
            select(
                func.count(),
                func.coalesce(func.sum(case((a.status == "correct", 1), else_=0)), 0),
                func.sum(func.coalesce(a.tokens_in, 0) + func.coalesce(a.tokens_out, 0)),
                func.sum(a.usd),
                func.count(a.tokens_out),
            ).where(a.run == row.id)
        ).one()
        return RunInfo(
            id=row.id,
            kind=row.kind,
            name=row.name,
            state=row.state,
            created=row.created,
            updated=row.updated,
            settings=msgspec.json.decode(row.settings),
            environment=msgspec.json.decode(row.environment),
            attempts=figures[0],
            correct=figures[1],
            tokens=int(figures[2]) if figures[4] else None,
            usd=figures[3],
        )

    def run(self, key: str) -> Run:
        """The run whose id is ``key`` or starts with it (``last``: the newest). Raises UsageError."""
        t = self._tables
        with self._begin() as connection:
            query = t.RUNS.select().order_by(t.RUNS.c.updated.desc())
            found = [row.id for row in connection.execute(query) if key == "last" or row.id.startswith(key)]
        if not found or (len(found) > 1 and key != "last" and key not in found):
            what = f"No run {key!r}" if not found else f"Several runs start with {key!r}"
            raise UsageError(f"{what} in the attempt store.", where=self.safe_url, fix="See: kernelllm runs list")
        return Run(self, key if key in found else found[0])

    # -- answers -------------------------------------------------------------------------------

    def answer(self, key: str) -> bytes | None:
        """A recorded answer (JSON) under the key of its request, None when it was never asked."""
        t = self._tables.ANSWERS
        with self._begin() as connection:
            row = connection.execute(t.select().where(t.c.key == key)).first()
        return None if row is None else row.body.encode()

    def put_answer(self, key: str, model: str, body: bytes) -> None:
        """Record an answer at once, before anything is done with it."""
        with self._begin() as connection:
            self._put(connection, self._tables.ANSWERS, {"key": key, "model": model, "body": body.decode(), "created": _now()})

    def source(self, key: str) -> str | None:
        """A candidate's or a problem's text by its SHA-256."""
        t = self._tables.SOURCES
        with self._begin() as connection:
            row = connection.execute(t.select().where(t.c.digest == key)).first()
        return None if row is None else str(row.text)


class Run:
    """One run in a store: attempts are added as they happen and read back in order."""

    def __init__(self, store: Store, key: str) -> None:
        self.store = store
        self.id = key

    def info(self) -> RunInfo:
        """The run as a row of the list of runs."""
        t = self.store._tables
        with self.store._begin() as connection:
            row = connection.execute(t.RUNS.select().where(t.RUNS.c.id == self.id)).one()
            return self.store._info(connection, row)

    def finish(self, state: str = "done") -> None:
        """Record how the run ended."""
        t = self.store._tables
        with self.store._begin() as connection:
            connection.execute(t.RUNS.update().where(t.RUNS.c.id == self.id).values(state=state, updated=_now()))

    def add_problem(self, problem: Problem) -> None:
        """Keep the problem, so that its attempts can be judged again elsewhere."""
        self.add_problems([problem])

    def add_problems(self, problems: Iterable[Problem]) -> None:
        """Keep the problems, all at once."""
        t = self.store._tables
        with self.store._begin() as connection:
            for problem in problems:
                source = self.store._text(connection, t.SOURCES, problem.source)
                body = to_json(msgspec.structs.replace(problem, source=""), indent=0)
                row = {"run": self.id, "name": problem.name, "source": source, "body": body}
                self.store._put(connection, t.PROBLEMS, row, replace=True)

    def problems(self) -> list[Problem]:
        t = self.store._tables
        with self.store._begin() as connection:
            query = t.PROBLEMS.select().where(t.PROBLEMS.c.run == self.id).order_by(t.PROBLEMS.c.name)
            rows = connection.execute(query).all()
            texts = self._texts(connection, t.SOURCES, {row.source for row in rows})
        return [msgspec.structs.replace(from_json(row.body, Problem), source=texts[row.source]) for row in rows]

    def mark_exhausted(self, problem: str) -> None:
        """Keep that the writer has nothing more to offer for a problem."""
        with self.store._begin() as connection:
            row = {"key": self._dry_key(problem), "value": problem}
            self.store._put(connection, self.store._tables.META, row, replace=True)

    def _dry_key(self, problem: str) -> str:
        return _DRY.format(self.id) + digest(problem)[:14]

    def exhausted(self) -> set[str]:
        """Names of the problems for which the writer has nothing more."""
        t = self.store._tables.META
        with self.store._begin() as connection:
            return {row.value for row in connection.execute(t.select().where(t.c.key.startswith(_DRY.format(self.id))))}

    def add(self, attempt: Attempt, *, replace: bool = False) -> None:
        """Record an attempt; one with the same problem, round and sample is kept unless ``replace``."""
        t = self.store._tables
        c = attempt.candidate
        with self.store._begin() as connection:
            row = {
                "run": self.id,
                "problem": attempt.problem,
                "round": attempt.round,
                "sample": c.sample,
                "status": attempt.verdict.status.value,
                "source": self.store._text(connection, t.SOURCES, c.source),
                "prompt": self.store._text(connection, t.PROMPTS, attempt.prompt),
                "answer": self.store._text(connection, t.SOURCES, attempt.answer),
                "candidate": to_json(msgspec.structs.replace(c, source=""), indent=0),
                "verdict": to_json(attempt.verdict, indent=0),
                "created": _now(),
                **msgspec.to_builtins(attempt.cost),
            }
            self.store._put(connection, t.ATTEMPTS, row, replace=replace)
            connection.execute(t.RUNS.update().where(t.RUNS.c.id == self.id).values(updated=_now()))

    def remove(self, attempts: Iterable[Attempt]) -> None:
        """Forget these attempts (their answers stay), so that they are made again."""
        t = self.store._tables
        c = t.ATTEMPTS.c
        with self.store._begin() as connection:
            for a in attempts:
                same = (c.run == self.id) & (c.problem == a.problem) & (c.round == a.round) & (c.sample == a.candidate.sample)
                connection.execute(t.ATTEMPTS.delete().where(same))
                connection.execute(t.META.delete().where(t.META.c.key == self._dry_key(a.problem)))

    def keys(self) -> set[tuple[str, int, int]]:
        """(problem, round, sample) of every stored attempt."""
        from sqlalchemy import select

        a = self.store._tables.ATTEMPTS.c
        with self.store._begin() as connection:
            rows = connection.execute(select(a.problem, a.round, a.sample).where(a.run == self.id))
            return {(row.problem, row.round, row.sample) for row in rows}

    def attempts(self, problem: str | None = None) -> list[Attempt]:
        """Stored attempts, by problem, round and sample."""
        t = self.store._tables
        a = t.ATTEMPTS.c
        query = t.ATTEMPTS.select().where(a.run == self.id).order_by(a.problem, a.round, a.sample)
        if problem is not None:
            query = query.where(a.problem == problem)
        with self.store._begin() as connection:
            rows = connection.execute(query).all()
            sources = self._texts(connection, t.SOURCES, {r.source for r in rows} | {r.answer for r in rows})
            prompts = self._texts(connection, t.PROMPTS, {r.prompt for r in rows})
        return [_attempt(row, sources, prompts) for row in rows]

    @staticmethod
    def _texts(connection: Connection, table: Any, keys: set[str]) -> dict[str, str]:
        """Texts by digest, asked for in portions (databases limit the number of parameters)."""
        found = {digest(""): ""}
        ordered = sorted(keys)
        for at in range(0, len(ordered), 500):
            for row in connection.execute(table.select().where(table.c.digest.in_(ordered[at : at + 500]))):
                found[row.digest] = row.text
        return found


def _attempt(row: Any, sources: Mapping[str, str], prompts: Mapping[str, str]) -> Attempt:
    candidate = msgspec.structs.replace(from_json(row.candidate, Candidate), source=sources[row.source])
    cost = Cost(**{name: getattr(row, name) for name in Cost.__struct_fields__})
    return Attempt(
        problem=row.problem,
        candidate=candidate,
        verdict=from_json(row.verdict, Verdict),
        cost=cost,
        round=row.round,
        prompt=prompts[row.prompt],
        answer=sources[row.answer],
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
