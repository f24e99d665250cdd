"""Restricts a candidate's process to its own folder and the libraries it runs on.

The supervisor asks :func:`prepare` what this machine offers, then forks, and the child calls :func:`enter`, single-threaded
and before any candidate code or CUDA, so that every later thread and subprocess (ptxas, gcc) is confined too. Each layer is
used where the kernel allows it; what is in force and what is missing is told in a :class:`Strength`, never assumed.
docs/explanation/sandbox.md has the limits of all this.
"""

from __future__ import annotations

import os
import platform
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from enum import StrEnum
from functools import cache
from pathlib import Path

import msgspec

from kernelllm.backends.base import Backend, Mode
from kernelllm.core.errors import SandboxError, UnknownName
from kernelllm.judge.isolation import folders, landlock, seccomp, syscalls
from kernelllm.judge.isolation.allowed_paths import clean_environment, packages_of, reachable_by_others, readable
from kernelllm.judge.isolation.limits import Limits

GIB = 2**30
_CONTAINED = "KERNELLLM_BWRAP"
"""Set for what runs inside bubblewrap."""


class Level(StrEnum):
    """How strong the sandbox is, weakest first."""

    NONE = "none"
    LIMITS = "limits"
    """Memory, processes, file size, CPU time; environment scrubbed; no inherited descriptors."""
    FILESYSTEM = "filesystem"
    """Limits, and the candidate reads only libraries and writes only its own folder."""
    FULL = "full"
    """All of that, and it has no network and no reach into other processes."""


_ORDER = tuple(Level)


def level_named(name: str) -> Level:
    """The level of this name. Raises UnknownName."""
    if name not in _ORDER:
        raise UnknownName(f"Unknown sandbox level {name!r}.", fix=f"Known: {', '.join(_ORDER)}.")
    return Level(name)


class Strength(msgspec.Struct, frozen=True, kw_only=True):
    """What is in force (``active``) and what is not (``missing``, each with its fix), in plain words."""

    level: Level
    active: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    def require(self, level: str) -> None:
        """Raises SandboxError when weaker than ``level``, UnknownName when there is no such level."""
        if _ORDER.index(self.level) < _ORDER.index(level_named(level)):
            raise SandboxError(
                f"The sandbox here reaches level {self.level.value!r}, weaker than the {level!r} that was required.",
                fix=" ".join(self.missing) or "See docs/explanation/sandbox.md.",
            )

    def __str__(self) -> str:
        return f"{self.level.value} ({', '.join(self.active) or 'nothing'})"


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What one worker is allowed. Made by :func:`policy` on the trusted side; sizes in bytes, times in seconds."""

    workdir: str
    gpu: bool = False
    memory_bytes: int = 8 * GIB
    """Host memory the worker may add to what it was forked with."""
    cpu_s: int = 120
    processes: int = 256
    """Processes and threads together."""
    file_bytes: int = GIB
    open_files: int = 256
    """Descriptors. Each pipe and socket holds memory of the kernel's that no other limit counts."""
    keep: tuple[int, ...] = (0, 1, 2)
    """Descriptors that stay open."""
    read: tuple[str, ...] = ()
    """Readable files and folders."""
    uid: int | None = None
    """First of the users to become where the judge is root; None to stay."""
    reads_for_all: bool = True
    """False where only root may read Python itself, so that the worker keeps root's right to read (Landlock says what)."""
    environment: dict[str, str] = {}
    contained: bool = False
    """True where bubblewrap was put around the forkserver."""


def policy(workdir: Path | str, *, gpu: bool = False, read: Sequence[str] = (), keep: Sequence[int] = (0, 1, 2)) -> Policy:
    """The usual policy for a worker that lives in ``workdir``; ``read`` adds readable paths, ``keep`` names descriptors to leave open."""
    paths = (*readable(gpu=gpu), *read)
    open_to_all = reachable_by_others(paths, str(workdir))
    root = os.geteuid() == 0
    uid = 1_000_000 if root and (open_to_all or (landlock.abi() > 0 and seccomp.supported())) else None
    return Policy(
        workdir=str(workdir), gpu=gpu, open_files=1024 if gpu else 256, read=paths, keep=tuple(keep), uid=uid, reads_for_all=open_to_all,
        environment=clean_environment(str(workdir)), contained=os.environ.get(_CONTAINED) == "1",
    )  # fmt: skip


def prepare(mode: Mode, required: str | None = None) -> Level:
    """Trusted side, before the fork: the level that :func:`enter` will reach here. Raises SandboxError when ``required`` is higher."""
    strength = available(gpu=mode is Mode.CUDA)
    if required is not None:
        strength.require(required)
    return strength.level


def enter(folder: str, limits: Limits, mode: Mode, backend: Backend) -> Strength:
    """Worker's side, after the fork: confine this process for good, with what its kernel language needs.

    Raises SandboxError where that falls short of :func:`prepare`.
    """
    gpu = mode is Mode.CUDA
    chosen = {name: value for name in ("memory_bytes", "file_bytes", "cpu_s") if (value := getattr(limits, name))}
    usual = policy(folder, gpu=gpu, read=packages_of(backend), keep=(0, 1, 2, 3))
    environment = usual.environment | backend.environment(mode, folder)
    strength = apply(msgspec.structs.replace(usual, environment=environment, **chosen))
    strength.require(available(gpu=gpu).level)
    return strength


def apply(p: Policy) -> Strength:
    """Confine this process to a policy. Call in a forked, single-threaded child. Raises SandboxError where even limits cannot be set."""
    active: list[str] = []
    missing: list[str] = []
    parent = os.getppid()
    if threading.active_count() > 1 or syscalls.threads() > 1:
        missing.append("The worker already had threads when it was confined; those stay free.")
    with suppress(PermissionError):
        os.setsid()  # already a leader: fine
    _close_others(p.keep)
    os.environ.clear()
    os.environ.update(p.environment)
    tempfile.tempdir = p.workdir  # what was cached before the fork is out of reach now
    os.umask(0o077)
    namespaces = _namespaces(p, active)
    _limits(p, active, missing, own_count=namespaces)
    _become(p, active, missing)
    os.chdir(p.workdir)
    syscalls.no_new_privileges()
    files, signals = _files(p, active, missing)
    syscalls.die_with_parent()
    syscalls.hide()
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)  # the forkserver died before the line above could tell the kernel
    quiet = _calls(p, active, missing, signals=signals)
    level = Level.LIMITS
    if files:
        level = Level.FULL if quiet else Level.FILESYSTEM
    return Strength(level=level, active=tuple(active), missing=tuple(missing))


def _close_others(keep: Sequence[int]) -> None:
    low = 0
    for fd in sorted({*keep, max(os.sysconf("SC_OPEN_MAX"), 1 << 16)}):
        if low < fd:  # an empty range would close everything
            os.closerange(low, fd)
        low = fd + 1


def _namespaces(p: Policy, active: list[str]) -> bool:
    """A network of its own, and for a plain user a count of processes of its own. Not on a GPU: CUDA IPC meets in the network's
    abstract sockets. True when processes are counted apart."""
    if p.gpu:
        return False
    if os.geteuid() == 0:
        if syscalls.unshare(syscalls.NEWNET | syscalls.NEWIPC):
            active.append("own network")
        return False
    if not syscalls.unshare_as_user(syscalls.NEWNET | syscalls.NEWIPC):
        return False
    active.append("own user, network")
    return True


def _limits(p: Policy, active: list[str], missing: list[str], *, own_count: bool) -> None:
    size, data = syscalls.memory_in_use()
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: p.file_bytes,
        resource.RLIMIT_NOFILE: p.open_files,
        resource.RLIMIT_CPU: p.cpu_s,
    }
    if not p.gpu:  # CUDA reserves more than any limit worth setting; the supervisor watches what is used
        wanted[resource.RLIMIT_DATA] = data + p.memory_bytes
        wanted[resource.RLIMIT_AS] = size + p.memory_bytes + 2 * GIB
    if own_count or p.uid is not None:
        wanted[resource.RLIMIT_NPROC] = p.processes
    elif os.geteuid() != 0:
        wanted[resource.RLIMIT_NPROC] = syscalls.tasks_of_user() + p.processes
    else:
        missing.append("Processes are not limited: the kernel exempts root. Run as a plain user.")
    try:
        for which, value in wanted.items():
            hard = resource.getrlimit(which)[1]
            limit = value if hard == resource.RLIM_INFINITY else min(value, hard)
            # CPU: a signal first, so that the parent can tell it from other kills
            resource.setrlimit(which, (limit, limit + 2 if which == resource.RLIMIT_CPU and hard == resource.RLIM_INFINITY else limit))
    except (OSError, ValueError) as error:
        raise SandboxError(f"The limits could not be set: {error}.") from error
    active.append("limits on memory, CPU time, file size, descriptors" + (", processes" if resource.RLIMIT_NPROC in wanted else ""))


def _become(p: Policy, active: list[str], missing: list[str]) -> None:
    """Leave root for a user that owns nothing but the work folder."""
    if p.uid is None:
        if os.geteuid() == 0:
            missing.append("The worker stays root: Python's folder is not readable by other users, and Landlock is not there.")
        syscalls.drop_capabilities()
        return
    # distinct per worker, so that limits on processes are counted apart and no worker can signal another
    uid = p.uid + os.getpid()
    try:
        os.chown(p.workdir, uid, uid)
        syscalls.keep_capabilities()
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    except OSError as error:
        missing.append(f"The worker stays root: {error}.")
        syscalls.drop_capabilities()
        return
    syscalls.drop_capabilities(keep_read=not p.reads_for_all)
    active.append("own user")


def _files(p: Policy, active: list[str], missing: list[str]) -> tuple[bool, bool]:
    """(files confined, signals confined)."""
    rules = [(path, landlock.READ) for path in p.read]
    rules += [(path, landlock.READ) for path in ("/proc/self", *syscalls.PROC_READABLE)]
    rules += [(path, landlock.DEVICE) for path in syscalls.devices(gpu=p.gpu)]
    rules.append((p.workdir, landlock.READ | landlock.WRITE))
    if p.gpu:
        rules.append(("/proc/self/task", landlock.READ | landlock.OVERWRITE))  # the driver names its threads there or fails
    scoped = landlock.SCOPE_SIGNAL | (0 if p.gpu else landlock.SCOPE_ABSTRACT_UNIX)
    try:
        version = landlock.restrict(rules, scoped=scoped)
    except OSError as error:
        if p.contained:
            active.append("files (bubblewrap)")
            if p.uid is None:
                missing.append("Workers of one judge reach each other's folders: use Linux 5.13 or newer with Landlock, or judge as root.")
            return p.uid is not None, False
        missing.append(f"Files are not confined ({error}). Use Linux 5.13 or newer with Landlock, or install bubblewrap.")
        return False, False
    active.append(f"files (Landlock {version})")
    if version < 3:
        missing.append("Files elsewhere could still be truncated if their owner is the judge's user: Landlock 3 (Linux 6.2) closes this.")
    if version >= 6:
        active.append("signals (Landlock)")
    return True, version >= 6


def _calls(p: Policy, active: list[str], missing: list[str], *, signals: bool) -> bool:
    """System calls that no kernel needs; True when network and other processes are out of reach."""
    if not seccomp.supported():
        missing.append("System calls are not filtered (no seccomp for this kernel or processor): network and processes are less confined.")
        return False
    try:
        families = (1,) if p.gpu else ()
        seccomp.install(seccomp.program(pid=os.getpid(), signals_scoped=signals, families=families, shared_memory=p.gpu))
    except OSError as error:
        missing.append(f"System calls are not filtered ({error}): network and processes are less confined.")
        return False
    active.append("system calls (seccomp): no network, no other processes")
    if p.gpu:
        missing.append("Unix sockets stay open on a GPU: CUDA IPC needs them.")
    return True


@cache
def available(*, gpu: bool = False) -> Strength:
    """What a worker reaches on this machine: tried for real in a short-lived child, which then attacks its own walls. About 20 ms, once."""
    if platform.system() != "Linux":
        return Strength(level=Level.NONE, missing=("Candidates are confined on Linux only. Use Linux or a Linux container.",))
    folder = Path(tempfile.mkdtemp(prefix="kernelllm-"))
    try:
        answer = _tried_in_bubblewrap(folder, gpu) if bubblewrap(gpu=gpu) else _tried_here(folder, gpu)
        try:
            return msgspec.json.decode(answer, type=Strength)
        except msgspec.DecodeError:
            said = answer.decode(errors="replace") or "no answer"
            return Strength(level=Level.NONE, missing=(f"The sandbox could not be entered: {said}.",))
    finally:
        folders.remove(folder)


def _tried_here(folder: Path, gpu: bool) -> bytes:
    """The Strength that a child of this process reaches, as JSON, or what went wrong."""
    read_end, write_end = os.pipe()
    try:
        home = str(Path.home())
        planned = policy(folder, gpu=gpu, keep=(0, 1, 2, write_end))
        pid = os.fork()
        if pid == 0:
            syscalls.report_and_exit(write_end, lambda: msgspec.json.encode(_checked(apply(planned), home)))
        os.close(write_end)
        write_end = -1
        with os.fdopen(read_end, "rb", closefd=False) as stream:
            answer = stream.read()
        os.waitpid(pid, 0)
        return answer
    finally:
        os.close(read_end)
        if write_end >= 0:
            os.close(write_end)


_TRY = """
import sys, pathlib, msgspec
sys.path[:0] = sys.argv[3:]
from kernelllm.judge.isolation import sandbox
sys.stdout.buffer.write(sandbox._tried_here(pathlib.Path(sys.argv[1]), sys.argv[2] == "gpu"))
"""


def _tried_in_bubblewrap(folder: Path, gpu: bool) -> bytes:
    """The same, where the worker server will be put."""
    folder.chmod(0o711)
    work = folder / "work"
    work.mkdir(mode=0o700)
    command = [sys.executable, "-P", "-c", _TRY, str(work), "gpu" if gpu else "", *(path for path in sys.path if path)]
    done = subprocess.run(wrap(command, str(folder), gpu=gpu), capture_output=True, check=False, timeout=60)
    return done.stdout or done.stderr[-500:]


def _checked(strength: Strength, home: str) -> Strength:
    """Lower the level to what attacks from inside confirm."""
    leaks = syscalls.leaks(home)
    level = strength.level
    if leaks.files and level in (Level.FILESYSTEM, Level.FULL):
        level = Level.LIMITS
    elif leaks.reach and level is Level.FULL:
        level = Level.FILESYSTEM
    return msgspec.structs.replace(strength, level=level, missing=(*strength.missing, *leaks.files, *leaks.reach))


@cache
def bubblewrap(*, gpu: bool = False) -> str:
    """The path of bubblewrap where it has to confine files, since Landlock does not, and where it works; else empty. Tried once."""
    found = shutil.which("bwrap")
    if found is None or landlock.abi() > 0 or os.environ.get(_CONTAINED) == "1":
        return ""
    with tempfile.TemporaryDirectory(prefix="kernelllm-") as folder, suppress(OSError, subprocess.TimeoutExpired):
        command = _bubblewrapped(found, [sys.executable, "-S", "-c", ""], folder, gpu)
        if subprocess.run(command, capture_output=True, check=False, timeout=20).returncode == 0:
            return found
    return ""


def wrap(command: Sequence[str], workdir: str, *, gpu: bool = False, read: Sequence[str] = ()) -> list[str]:
    """``command`` inside bubblewrap, where that works and Landlock is not there to do it better; else unchanged.

    Inside, only what :func:`kernelllm.judge.isolation.allowed_paths.readable` names, and ``read``, can be read, and
    only ``workdir`` be written. Without a GPU there is no network.
    """
    found = bubblewrap(gpu=gpu)
    return _bubblewrapped(found, command, workdir, gpu, read) if found else list(command)


def _bubblewrapped(program: str, command: Sequence[str], workdir: str, gpu: bool, read: Sequence[str] = ()) -> list[str]:
    paths = (*readable(gpu=gpu), *read)
    above = sorted({str(folder) for path in (*paths, workdir) for folder in Path(path).parents if folder != Path("/")})
    folders = [part for folder in above for part in ("--perms", "0711", "--dir", folder)]  # workers of other users pass, and list nothing
    binds = [part for path in paths for part in ("--ro-bind-try", path, path)]
    apart = ["--dev-bind", "/dev", "/dev"] if gpu else ["--unshare-net", "--unshare-ipc", "--dev", "/dev"]
    return [
        program, "--tmpfs", "/", *folders, *binds, "--proc", "/proc", *apart,
        "--bind", workdir, workdir, "--chdir", workdir, "--setenv", _CONTAINED, "1", "--", *command,
    ]  # fmt: skip
