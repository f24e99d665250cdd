"""Opens a database by path or SQLAlchemy URL, with its errors in one line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelllm.core.errors import MissingExtra, StoreError, UsageError

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine


def as_url(url: str | Path) -> str:
    """The URL of a SQLite file, whose folder is made, or of any other database as it stands. Raises StoreError."""
    text = str(url)
    if "://" in text:
        return text
    path = Path(text).expanduser()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = f"The folder of the attempt store cannot be made: {error.strerror}."
        raise StoreError(what, where=str(path), fix="Name another with --db.") from error
    return f"sqlite:///{path}"


def opened(url: str) -> Engine:
    """The engine of a URL; a SQLite file that survives kills and several writers. Raises UsageError, MissingExtra."""
    from sqlalchemy import create_engine, event
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError

    try:
        engine = create_engine(url)
    except ModuleNotFoundError as error:
        raise MissingExtra(error.name or "its driver", "postgres") from error
    except (ArgumentError, NoSuchModuleError) as error:
        # The address may hold a password: it is not repeated.
        what = f"The database address cannot be used: {brief(error).replace(url, '...')}."
        raise UsageError(what, fix="For example sqlite:///runs.db or postgresql+psycopg://USER@HOST/NAME.") from None
    if engine.dialect.name == "sqlite":

        @event.listens_for(engine, "connect")
        def _durable(connection: Any, _record: object) -> None:
            # WAL with synchronous=NORMAL: a killed process loses nothing that was committed.
            for pragma in ("busy_timeout=30000", "journal_mode=WAL", "synchronous=NORMAL"):
                connection.execute(f"PRAGMA {pragma}")
            connection.isolation_level = None  # transactions begin below, not in the driver

        @event.listens_for(engine, "begin")
        def _immediate(connection: Connection) -> None:
            # Taking the write lock at once makes several processes wait for each other rather than fail half-way.
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def brief(error: Exception) -> str:
    """The first line of what the driver says."""
    original = getattr(error, "orig", None) or error
    return str(original).splitlines()[0].rstrip(".")
