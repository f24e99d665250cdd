"""A set of pairs on disk: Parquet parts with zstd, a card, the report. And the forms in which others want it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from kernelllm import __version__
from kernelllm.core.errors import MissingExtra, UsageError
from kernelllm.core.types import Problem, to_json
from kernelllm.lm import prompts
from kernelllm.models.extras import upload
from kernelllm.pairs.cleaning import CleaningReport
from kernelllm.pairs.row import Pair

PART_BYTES: Final = 14 * 2**20
"""Most bytes in one part: sets travel in parts that any host takes."""
KERNELBOOK: Final = (
    "entry_point", "python_code", "triton_code", "repo_name", "module_name", "synthetic", "uuid", "licenses", "repo_link", "sha",
)  # fmt: skip


def write(rows: Sequence[Pair], folder: Path, report: CleaningReport) -> list[Path]:
    """Parts ``data/SPLIT-00000.parquet``, ``README.md`` (the card) and ``report.json``. Raises MissingExtra, OSError."""
    parquet, arrow = _arrow()
    (folder / "data").mkdir(parents=True, exist_ok=True)
    for old in (folder / "data").glob("*.parquet"):
        old.unlink()
    written: list[Path] = []
    for split in dict.fromkeys(r.split for r in rows):
        chosen = [msgspec.to_builtins(r) for r in rows if r.split == split]
        size = max(1, _rows_a_part(chosen, arrow, parquet))
        for number, start in enumerate(range(0, len(chosen), size)):
            path = folder / "data" / f"{split}-{number:05d}.parquet"
            parquet.write_table(arrow.Table.from_pylist(chosen[start : start + size], schema=_schema(arrow)), path, compression="zstd")
            written.append(path)
    (folder / "report.json").write_text(to_json(report) + "\n", encoding="utf-8")
    (folder / "README.md").write_text(card(rows, report), encoding="utf-8")
    return written


def read(folder: Path) -> Iterator[Pair]:
    """The rows of a set. Raises UsageError where there is none, MissingExtra."""
    parquet, _ = _arrow()
    parts = sorted((folder / "data").glob("*.parquet"))
    if not parts:
        raise UsageError(f"There is no set of pairs in {folder}.", fix="kernelllm pairs build makes one.")
    for part in parts:
        try:
            rows = parquet.read_table(part).to_pylist()
        except (OSError, ValueError) as error:  # pyarrow's errors are ValueErrors
            why = str(error).strip().splitlines()[0].rstrip(".")
            raise UsageError(f"The set cannot be read: {why}.", where=str(part), fix="Build or download it again.") from error
        for row in rows:
            yield msgspec.convert({k: v for k, v in row.items() if v is not None or k in _OPTIONAL}, Pair)


def report_of(folder: Path) -> CleaningReport:
    """The report that was written beside a set; an empty one where there is none."""
    path = folder / "report.json"
    return msgspec.json.decode(path.read_bytes(), type=CleaningReport) if path.is_file() else CleaningReport()


def push(folder: Path, repository: str, *, private: bool = False) -> str:
    """Upload the folder to a data set on the Hugging Face hub; its address.

    Raises UsageError where there is no set or the hub refuses it, and MissingExtra.
    """
    next(read(folder))
    return upload(folder, repository, "dataset", private=private, message="Verified pairs by kernelllm")


def chat(rows: Iterable[Pair], template: str = prompts.DEFAULT) -> Iterator[str]:
    """JSON lines with ``messages``, the form that trainers take. The prompt is the one that :mod:`kernelllm.lm` asks with."""
    templates = prompts.Templates()
    for row in rows:
        asked = prompts.first_prompt(templates, template, Problem(name=row.name, source=row.python_code))
        messages = [{"role": "user" if m.role == "text" else m.role, "content": m.content} for m in asked]
        messages.append({"role": "assistant", "content": f"```python\n{row.triton_code.rstrip()}\n```"})
        if row.kind != "pair":
            told = f"```python\n{row.before_code.rstrip()}\n```"
            messages[-1:-1] = [{"role": "assistant", "content": told}, {"role": "user", "content": row.before_verdict}]
        yield json.dumps({"messages": messages, "uuid": row.uuid, "split": row.split})


def kernelbook(rows: Iterable[Pair]) -> Iterator[str]:
    """JSON lines with KernelBook's columns alone."""
    for row in rows:
        yield json.dumps({name: getattr(row, name) for name in KERNELBOOK})


def statistics(rows: Sequence[Pair]) -> dict[str, Any]:
    """Counts and medians of a set."""
    import statistics as st

    lengths = [len(r.triton_code.splitlines()) for r in rows]
    operators = Counter(o for r in rows for o in set(r.operators))
    return {
        "rows": len(rows),
        "splits": dict(Counter(r.split for r in rows)),
        "kinds": dict(Counter(r.kind for r in rows)),
        "other writings of a module": sum(bool(r.augmented_from) for r in rows),
        "writers": dict(Counter(r.model for r in rows)),
        "sources": dict(Counter(r.origin.partition(":")[0] for r in rows)),
        "packages": len({r.repo_name for r in rows if r.repo_name}),
        "licenses": dict(Counter(x for r in rows for x in r.licenses)),
        "families": len({r.family for r in rows}),
        "modules": len({r.fingerprint for r in rows}),
        "median lines of a kernel file": st.median(lengths) if lengths else 0,
        "all heavy work in own kernels": sum(r.share in (None, 1.0) for r in rows),
        "timed": sum(r.kernel_ms is not None for r in rows),
        "most frequent operators": dict(operators.most_common(20)),
    }


def card(rows: Sequence[Pair], report: CleaningReport) -> str:
    """The data-set card, in the hub's form."""
    told = statistics(rows)
    lines = [
        "---", "task_categories: [text-generation]", "tags: [triton, pytorch, gpu-kernels]", "configs:", "- config_name: default",
        "  data_files:", *(f"  - split: {s}\n    path: data/{s}-*.parquet" for s in told["splits"]), "---", "",
        "# Pairs of PyTorch modules and Triton kernels", "",
        f"Made by `kernelllm pairs build` (kernelllm {__version__}). Each kernel was judged in a process of its own: right at the sizes and"
        " trials that its row says, and honest. A kernel that could not be verified is not in the set.", "",
        "| figure | value |", "|---|---|",
        *(f"| {k} | {v if not isinstance(v, dict) else ', '.join(f'{a} {b}' for a, b in v.items())} |" for k, v in told.items()), "",
        "## What was dropped", "", f"{report.rows} rows came in, {report.kept} stayed. Families of operators are in one split each.", "",
        "| reason | rows | for example |", "|---|---|---|",
        *(f"| {reason} | {count} | {'; '.join(report.examples.get(reason, []))} |" for reason, count in sorted(report.dropped.items())), "",
        "## Held against benchmarks", "",
        "A row is dropped that has a benchmark problem's text without names (with or without numbers), its graph of two or more operators,"
        " or nearly its text (MinHash over runs of five tokens, 0.8).", "",
        *(f"- {suite}: {count} problems" for suite, count in report.benchmarks.items()), "",
    ]  # fmt: skip
    return "\n".join(lines)


_OPTIONAL: Final = frozenset(n for n in Pair.__struct_fields__ if n in ("share", "speedup_eager", "speedup_compile", "kernel_ms"))


def _rows_a_part(rows: Sequence[dict[str, Any]], arrow: Any, parquet: Any) -> int:
    """Judged by the size of a sample of a thousand."""
    sample = rows[:1000]
    sink = arrow.BufferOutputStream()
    parquet.write_table(arrow.Table.from_pylist(sample, schema=_schema(arrow)), sink, compression="zstd")
    return int(0.8 * PART_BYTES / max(sink.getvalue().size / max(len(sample), 1), 1))


def _schema(arrow: Any) -> Any:
    kinds = {"bool": arrow.bool_(), "int": arrow.int64(), "float | None": arrow.float64(), "tuple[str, ...]": arrow.list_(arrow.string())}
    return arrow.schema([(name, kinds.get(Pair.__annotations__[name], arrow.string())) for name in Pair.__struct_fields__])


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtra("pyarrow", "pairs") from error
    return pyarrow.parquet, pyarrow
