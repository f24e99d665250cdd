"""Problems out of installed packages: their ``nn.Module`` classes, each with what it needs, under licences that allow it.

Each file is harvested in a process of its own with a time limit. What is done is marked in the folder, so that the same command goes on.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import logging
import multiprocessing
import multiprocessing.connection
import os
import random
import re
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

from kernelllm.core.errors import UsageError

log = logging.getLogger(__name__)

ALLOWED: Final = ("MIT", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "Unlicense", "PSF-2.0", "CC0-1.0")
"""Licences under which modules may be kept (SPDX)."""
_CLASSIFIERS: Final = {"MIT": "MIT", "Apache": "Apache-2.0", "BSD": "BSD-3-Clause", "ISC": "ISC", "Python Software": "PSF-2.0"}
_MARKS: Final = (".classes", ".texts", ".files")
_LEFT_OUT: Final = re.compile(
    r"(^|[._])(tests?|testing|conftest|setup|scripts?|cli|examples?|benchmarks?|__main__|docs|commands|trainer|modular|pipelines"
    r"|tokenization|processing|convert)([._]|$)"
)
FILES: Final = 6
"""Files that one import of a package is used for."""
SECONDS: Final = 150
"""For one file."""
MEMORY: Final = 12 * 2**30


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Where a harvested module comes from."""

    repo_name: str
    """Distribution and version, e.g. ``timm 1.0.31``."""
    module_name: str
    licenses: tuple[str, ...]
    repo_link: str = ""


class Harvest:
    """The harvest of packages into a folder of problem files."""

    def __init__(self, packages: list[str], out: Path, *, workers: int = 1, seconds: float | None = None) -> None:
        """Raises UsageError for a package that is not installed."""
        self.out, self._workers = out.absolute(), workers
        self._until = time.monotonic() + seconds if seconds else float("inf")
        self.dropped: Counter[str] = Counter()
        """What became no problem, by reason."""
        self._jobs: list[tuple[str, list[str]]] = []
        for package in packages:
            spec = importlib.util.find_spec(package)
            if spec is None or not spec.submodule_search_locations:
                raise UsageError(f"There is no installed package {package!r}.", fix="Install it, or name another.")
            licence = licence_of(package)[0]
            if licence not in ALLOWED:
                self.dropped[f"licence {licence or 'unknown'} of {package}"] += 1
                continue
            files = _files(package, Path(next(iter(spec.submodule_search_locations))))
            self._jobs += [(package, files[i : i + FILES]) for i in range(0, len(files), FILES)]
        random.Random(0).shuffle(self._jobs)  # a harvest that is cut short has something of every package
        for name in _MARKS:
            (self.out / name).mkdir(parents=True, exist_ok=True)

    def run(self) -> Iterator[tuple[int, int]]:
        """Harvest; (groups of files that are done, of how many) as it goes on. The provenance is written at the end, come what may."""
        context: Any = multiprocessing.get_context("fork")
        waiting, done = self._jobs[::-1], 0
        running: list[Any] = []
        total = len(waiting)
        try:
            while waiting or running:
                while waiting and len(running) < self._workers and time.monotonic() < self._until:
                    running.append(context.Process(target=_group, args=(*waiting.pop(), self.out, self._until)))
                    running[-1].start()
                if time.monotonic() >= self._until:
                    waiting = []
                multiprocessing.connection.wait([p.sentinel for p in running], timeout=5)
                done += sum(not p.is_alive() for p in running)
                running = [p for p in running if p.is_alive()]
                yield done, total
        finally:
            for process in running:
                process.terminate()
            for process in running:
                process.join()
            self.provenance()

    def provenance(self) -> dict[str, Any]:
        """By problem: package, version, licence. Written beside the problems; counts what was dropped so far."""
        found: dict[str, Any] = {}
        for path in sorted((self.out / ".files").iterdir()):
            told = json.loads(path.read_bytes())
            self.dropped.update(told["reasons"] if path.suffix == ".json" else ())
            for name, what in told["found"].items():
                known = [licence_of(p) for p in what["packages"]]
                home = licence_of(name.partition(".")[0])
                licences = tuple(dict.fromkeys(k[0] for k in known))
                found[name] = Origin(repo_name=home[1], module_name=what["module_name"], licenses=licences, repo_link=home[2])
        (self.out / "provenance.json").write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1))
        return found


def _files(package: str, root: Path) -> list[str]:
    """The modules of a package that define modules or make them, as the text says: most files need not be imported."""
    found = []
    for file in sorted(root.rglob("*.py")):
        name = ".".join((package, *file.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if not _LEFT_OUT.search(name.partition(".")[2]) and ("def forward(" in text or re.search(r"^@register_model", text, re.M)):
            found.append(name)
    return found


def _group(package: str, files: list[str], out: Path, until: float) -> None:
    """Import a package once, and harvest some of its files, each in a process that is ended when its time is over."""
    from kernelllm.pairs.harvest_file import harvest_file, time_limit
    from kernelllm.pairs.stand_ins import imported

    _alone()
    missing = [name for name in files if not (out / ".files" / f"{name}.json").exists()]
    if not missing:
        return
    try:
        with time_limit(60):
            imported(package)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - packages raise anything where an optional part is missing
        log.info("%s cannot be imported: %s", package, error)
    context: Any = multiprocessing.get_context("fork")
    _distributions()  # once for all files
    for name in missing:
        left = min(SECONDS, until - time.monotonic())
        if left < 1:
            return
        child = context.Process(target=harvest_file, args=(name, out, allowed))
        child.start()
        child.join(left)
        if child.is_alive() or child.exitcode:
            late = child.is_alive()
            child.kill()
            child.join()
            mark = out / ".files" / f"{name}.json"
            if not mark.exists() and time.monotonic() < until:
                reason = "its file takes too long" if late else "its file ends the process"
                mark.write_text(json.dumps({"found": {}, "reasons": {reason: 1}}), encoding="utf-8")


def _alone() -> None:
    """No network, a folder of its own, bounded memory, and nothing on the terminal for the code of others."""
    import resource

    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)

    os.chdir(tempfile.mkdtemp(prefix="kernelllm-harvest-"))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

    def refused(*_: object, **__: object) -> None:
        raise OSError("no network while harvesting")

    socket.socket.connect = refused  # type: ignore[method-assign]
    socket.getaddrinfo = refused  # type: ignore[assignment]


def allowed(package: str) -> bool:
    """Whether what a package holds may become part of a problem."""
    return licence_of(package)[0] in ALLOWED


@cache
def _distributions() -> Mapping[str, list[str]]:
    """Package to the distributions that bring it. Looks at all that is installed, which takes a second."""
    return importlib.metadata.packages_distributions()


@cache
def licence_of(package: str) -> tuple[str, str, str]:
    """(licence as SPDX, "name version", link) of the distribution that a package comes from."""
    names = _distributions().get(package) or [package]
    try:
        told = importlib.metadata.metadata(names[0]).json
    except importlib.metadata.PackageNotFoundError:
        return "", package, ""
    classifiers = [c for c in told.get("classifier", ()) if c.startswith("License")]
    stated = [str(told.get("license_expression", "")), *classifiers, str(told.get("license", ""))]
    licence = next((spdx for text in stated for key, spdx in _CLASSIFIERS.items() if key in text.split("\n")[0]), "")
    if stated[0] in ALLOWED:
        licence = stated[0]
    links = [u.partition(",")[2].strip() for u in told.get("project_url", ())]
    return licence, f"{told['name']} {told['version']}", str(told.get("home_page") or next((x for x in links if "git" in x), ""))
