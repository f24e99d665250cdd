"""``hf/DATASET``: any Hugging Face data set, or local JSON lines file, with a column of PyTorch modules in KernelBench's format.

``hf/GPUMODE/KernelBook`` reads the hub; ``hf/DATASET?split=train&config=NAME&column=COLUMN&limit=100`` says which part of it;
``hf/path/to/rows.jsonl`` reads a file, for which the package datasets is not needed; a ``.parquet`` file or a folder of files needs it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from kernelllm.core.errors import KernelLLMError, MissingExtra, ProblemError, UsageError
from kernelllm.core.types import Problem
from kernelllm.problems import sizes, wrap
from kernelllm.suites import contract, file

CODE_COLUMNS = ("code", "python_code", "pytorch_code", "pytorch_module", "reference", "ref_code", "source", "module_code", "text")
NAME_COLUMNS = ("name", "problem_id", "task_id", "uuid", "id", "entry_point", "module_name")
CLASS_COLUMNS = ("entry_point", "module_name", "class_name")
_HUB_S = 10
OPTIONS = ("split", "config", "column", "revision", "limit")


class HFSuite(contract.Suite):
    """Rows of a data set as problems, named ``<row>_<name column>``, in the order of the data set.

    A row whose module is not called Model is taken under its entry_point or module_name column, or as the only module class it
    defines. Rows that are no problems are left out; ``skipped`` says why for each. Raises MissingExtra without the package datasets and
    UsageError for an unknown option or a data set without a code column.
    """

    name = "hf"
    summary = "rows of a Hugging Face data set or a JSON-lines file: hf/DATASET, hf/PATH.jsonl"

    def __init__(self, spec: str = "") -> None:
        self.dataset, _, query = spec.partition("?")
        if not self.dataset:
            raise UsageError("hf/ needs the name of a data set.", fix="For example: hf/GPUMODE/KernelBook?limit=100.")
        self.options = dict(parse_qsl(query))
        unknown = [key for key in self.options if key not in OPTIONS]
        if unknown:
            raise UsageError(f"Unknown option {unknown[0]!r} in {spec!r}.", fix=f"Known: {', '.join(OPTIONS)}.")
        if not self.options.get("limit", "0").isdigit():
            raise UsageError(f"limit is a number, not {self.options['limit']!r}.", where=spec)
        self.skipped: dict[str, str] = {}

    @cached_property
    def version(self) -> str:
        """``hf:<revision>``; "" for a local file."""
        return "" if Path(self.dataset).exists() else revision(self.dataset, self.options.get("revision"))

    def problems(self) -> Iterator[Problem]:
        """The rows that are problems, read one at a time."""
        return (problem for problem, _ in self.problems_with_rows())

    def problems_with_rows(self) -> Iterator[tuple[Problem, dict[str, Any]]]:
        """The problems, each with all columns of its row."""
        limit = int(self.options.get("limit", "0"))
        column: str | None = self.options.get("column")
        found = 0
        options = {k: v for k, v in self.options.items() if k in ("split", "config", "revision")}
        for number, row in enumerate(rows(self.dataset, **options)):
            column = column or _column(row, self.dataset)
            if column not in row:
                raise UsageError(f"The data set has no column {column!r}.", where=self.dataset, fix=f"It has: {', '.join(row)}.")
            label = next((str(row[c]) for c in NAME_COLUMNS if row.get(c) not in (None, "")), "")
            name = f"{number}_{file.problem_name(label)}" if label else str(number)
            try:
                source = _as_problem(str(row[column] or ""), row, name)
            except KernelLLMError as error:
                self.skipped[name] = error.what
                continue
            found += 1
            yield Problem(name=name, source=source, origin=f"hf:{self.dataset}#{number}", tags=_tags(row)), row
            if found == limit:
                return
        if not found:
            why = next(iter(self.skipped.values()), "It is empty.")
            raise UsageError(f"No row of the data set is a problem. {why}", where=self.dataset)


def rows(dataset: str, *, split: str = "train", config: str | None = None, revision: str | None = None) -> Iterator[dict[str, Any]]:
    """Rows of a data set on the hub, of a local ``.jsonl``, ``.json`` or ``.parquet`` file, or of a folder of such.

    Raises MissingExtra where that needs the package datasets and it is not there, and UsageError for what cannot be read.
    """
    path = Path(dataset).expanduser()
    if path.suffix in (".jsonl", ".json"):
        yield from _json_rows(path)
        return
    try:
        datasets: Any = import_module("datasets")
    except ImportError as error:
        raise MissingExtra("datasets", "hf") from error
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    try:
        yield from (dict(row) for row in _table(datasets, dataset, split, config, revision))
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        why = (str(error.__cause__ or error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        fix = "Check its name, config and split."
        if isinstance(error, ConnectionError):
            fix = "Without a network, name a file or folder that holds its rows."
        raise UsageError(f"The data set {dataset} cannot be read: {why}.", fix=fix) from error


def _table(datasets: Any, dataset: str, split: str, config: str | None, revision: str | None) -> Any:
    """What the package datasets makes of a name on the hub, a Parquet file, a folder of files, or a folder that it saved itself."""
    path = Path(dataset).expanduser()
    if path.suffix == ".parquet":
        return datasets.load_dataset("parquet", data_files=str(path), split="train")
    if not (path / "dataset_dict.json").is_file() and not (path / "state.json").is_file():
        with nullcontext() if path.is_dir() else _cache_where_unreachable(datasets, dataset):
            return datasets.load_dataset(str(path) if path.is_dir() else dataset, config, split=split, revision=revision)
    saved = datasets.load_from_disk(str(path))
    if not isinstance(saved, dict):
        return saved
    if split not in saved:
        raise ValueError(f'Unknown split "{split}"; it has {", ".join(saved)}')
    return saved[split]


@contextmanager
def _cache_where_unreachable(datasets: Any, dataset: str) -> Iterator[None]:
    """Where the hub gives no answer, only the cache is looked at, at once: the hub's client itself tries for half a minute."""
    hub: Any = import_module("huggingface_hub")
    before, why = datasets.config.HF_HUB_OFFLINE, ""
    try:
        if not before:
            hub.HfApi().dataset_info(dataset, timeout=_HUB_S)
    except (hub.errors.HTTPError, OSError, ValueError) as error:
        if getattr(error, "response", None) is None and not isinstance(error, hub.errors.HFValidationError):
            why, datasets.config.HF_HUB_OFFLINE = str(error) or type(error).__name__, True
    try:
        yield
    except ConnectionError:
        if why:
            raise ConnectionError(f"the hub gives no answer ({why})") from None
        raise
    finally:
        datasets.config.HF_HUB_OFFLINE = before


def revision(dataset: str, wanted: str | None = None) -> str:
    """``hf:<commit>`` of a data set on the hub; "" where it cannot be found out."""
    try:
        hub: Any = import_module("huggingface_hub")
    except ImportError:
        return ""
    try:
        return f"hf:{hub.HfApi().dataset_info(dataset, revision=wanted, timeout=_HUB_S).sha}"
    except (hub.errors.HTTPError, OSError, ValueError):
        return ""


def _json_rows(path: Path) -> Iterator[dict[str, Any]]:
    text = file.read(path)
    try:
        values = json.loads(text) if path.suffix == ".json" else [json.loads(line) for line in text.split("\n") if line.strip()]
    except json.JSONDecodeError as error:
        raise UsageError(f"The file is not JSON: {error.msg} on line {error.lineno}.", where=str(path)) from error
    if isinstance(values, dict):
        values = [values]
    if not isinstance(values, list) or not all(isinstance(row, dict) for row in values):
        raise UsageError("The file holds no list of rows.", where=str(path))
    yield from values


def _column(row: dict[str, Any], dataset: str) -> str:
    """The code column: one of the usual names, else the only column whose text defines a class."""
    for column in CODE_COLUMNS:
        if isinstance(row.get(column), str) and "class " in row[column]:
            return column
    likely = [c for c, v in row.items() if isinstance(v, str) and "class " in v and "def forward" in v]
    if likely:
        return likely[0]
    fix = f"Name one with ?column=. It has: {', '.join(row)}."
    raise UsageError("The data set has no column of PyTorch modules.", where=dataset, fix=fix)


def _as_problem(source: str, row: dict[str, Any], where: str) -> str:
    tree = sizes.parse(source, where)
    bound = wrap.bound_names(tree) or frozenset()
    if "Model" not in bound:
        named = [str(row[c]) for c in CLASS_COLUMNS if row.get(c) and str(row[c]) in bound]
        classes = named or wrap.classes(tree)
        if not classes:
            raise ProblemError("It defines no class.", where=where)
        source = wrap.wrapped(source, tree, classes[0] if named else classes[-1], wrap.Arguments(), where)
        tree = sizes.parse(source, where)
    file.check(tree, where)
    return source


def _tags(row: dict[str, Any]) -> tuple[str, ...]:
    licence = row.get("licenses") or row.get("license")
    if isinstance(licence, list):
        licence = ",".join(map(str, licence))
    return (f"license:{licence}",) if licence else ()
