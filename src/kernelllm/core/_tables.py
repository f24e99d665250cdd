"""The store's tables. Imported by the store alone, when one is opened: SQLAlchemy takes a while to load."""

from __future__ import annotations

from sqlalchemy import Column, Float, ForeignKey, Integer, MetaData, String, Table, Text, UniqueConstraint
from sqlalchemy.exc import SQLAlchemyError

__all__ = ["ANSWERS", "ATTEMPTS", "META", "METADATA", "PROBLEMS", "PROMPTS", "RUNS", "SOURCES", "UNIQUE", "SQLAlchemyError"]

METADATA = MetaData()

META = Table("meta", METADATA, Column("key", String(32), primary_key=True), Column("value", Text, nullable=False))

SOURCES = Table("sources", METADATA, Column("digest", String(64), primary_key=True), Column("text", Text, nullable=False))

PROMPTS = Table("prompts", METADATA, Column("digest", String(64), primary_key=True), Column("text", Text, nullable=False))

ANSWERS = Table(
    "answers",
    METADATA,
    Column("key", String(64), primary_key=True),
    Column("model", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("created", String(32), nullable=False),
)

RUNS = Table(
    "runs",
    METADATA,
    Column("id", String(12), primary_key=True),
    Column("kind", String(32), nullable=False),
    Column("name", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("created", String(32), nullable=False),
    Column("updated", String(32), nullable=False),
    Column("identity", Text, nullable=False),
    Column("settings", Text, nullable=False),
    Column("environment", Text, nullable=False),
)

PROBLEMS = Table(
    "problems",
    METADATA,
    Column("run", String(12), ForeignKey("runs.id"), primary_key=True),
    Column("name", String(400), primary_key=True),
    Column("source", String(64), nullable=False),
    Column("body", Text, nullable=False),
)

ATTEMPTS = Table(
    "attempts",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("run", String(12), ForeignKey("runs.id"), nullable=False),
    Column("problem", String(400), nullable=False),
    Column("round", Integer, nullable=False),
    Column("sample", Integer, nullable=False),
    Column("status", String(32), nullable=False),
    Column("source", String(64), nullable=False),
    Column("prompt", String(64), nullable=False),
    Column("answer", String(64), nullable=False),
    Column("candidate", Text, nullable=False),
    Column("verdict", Text, nullable=False),
    Column("tokens_in", Integer),
    Column("tokens_out", Integer),
    Column("usd", Float),
    Column("generate_s", Float, nullable=False),
    Column("judge_s", Float, nullable=False),
    Column("gpu_s", Float, nullable=False),
    Column("created", String(32), nullable=False),
    UniqueConstraint("run", "problem", "round", "sample"),
)

UNIQUE = {"attempts": ["run", "problem", "round", "sample"]}
