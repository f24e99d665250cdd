"""Makes the small system calls behind the sandbox: namespaces, capabilities, process control, and attacks on one's own walls."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, NoReturn

NEWNET, NEWIPC, NEWUSER = 0x40000000, 0x08000000, 0x10000000
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 4, 24, 38
_PR_SET_KEEPCAPS, _PR_CAP_AMBIENT, _AMBIENT_RAISE, _CAP_DAC_READ_SEARCH = 8, 47, 2, 2
_CAPABILITY_V3 = 0x20080522

PROC_READABLE = (
    "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/version", "/proc/filesystems", "/proc/devices", "/proc/modules",
    "/proc/sys/kernel", "/proc/sys/vm", "/proc/driver", "/proc/loadavg", "/proc/uptime",
)  # fmt: skip


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def threads() -> int:
    """Number of threads of this process, 1 where /proc is not there."""
    try:
        return sum(1 for _ in os.scandir("/proc/self/task"))
    except OSError:
        return 1


def unshare(flags: int) -> bool:
    """Leave the shared namespaces; False where that is not permitted."""
    try:
        return int(_libc().unshare(flags)) == 0
    except AttributeError:
        return False


def unshare_as_user(flags: int) -> bool:
    """A user namespace in which this user is itself, and ``flags`` beside it; False where that is not permitted."""
    uid, gid = os.geteuid(), os.getegid()
    if not unshare(NEWUSER | flags):
        return False
    with contextlib.suppress(OSError):  # unmapped ids still work; they only read as "nobody"
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    return True


def keep_capabilities() -> None:
    """Let the next change of user keep what :func:`drop_capabilities` is to keep."""
    _libc().prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0)


def drop_capabilities(*, keep_read: bool = False) -> None:
    """Give up every capability (all but the right to read any file, when ``keep_read``) and the right to gain one by executing a file."""
    libc = _libc()
    kept = _CAP_DAC_READ_SEARCH if keep_read else -1
    for capability in range(64):
        if capability != kept and libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            break
    mask = 1 << kept if keep_read else 0
    header = ctypes.create_string_buffer(struct.pack("II", _CAPABILITY_V3, 0))
    libc.capset(header, ctypes.create_string_buffer(struct.pack("6I", mask, mask, mask, 0, 0, 0)))
    if keep_read:
        libc.prctl(_PR_CAP_AMBIENT, _AMBIENT_RAISE, kept, 0, 0)  # for ptxas and gcc


def no_new_privileges() -> None:
    """What Landlock and seccomp ask for first; also makes setuid programs harmless. Raises OSError."""
    if _libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_NO_NEW_PRIVS")


def die_with_parent() -> None:
    """SIGKILL for this process when its parent ends. Must follow any change of user, which clears it."""
    _libc().prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0)


def hide() -> None:
    """No core dumps, and no other process of the same user may trace this one."""
    _libc().prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def memory_in_use() -> tuple[int, int]:
    """(address space, private writable memory) of this process in bytes; zeros where unknown."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0, 0
    found = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith(("VmSize:", "VmData:"))}
    return int(found.get("VmSize", 0)) * 1024, int(found.get("VmData", 0)) * 1024


def tasks_of_user() -> int:
    """Threads that this user runs now, on the whole machine: what RLIMIT_NPROC counts."""
    uid = os.geteuid()
    count = 0
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if entry.stat().st_uid == uid:
                    count += sum(1 for _ in os.scandir(f"{entry.path}/task"))
    return count


def devices(*, gpu: bool) -> list[str]:
    """Device files that a worker may use."""
    found = ["/dev/null", "/dev/full", "/dev/random", "/dev/urandom"]
    if gpu:  # not on the CPU: what is mapped of /dev/zero is shared memory, which nothing counts
        found += ["/dev/zero", *(str(path) for path in Path("/dev").glob("nvidia*"))]
    return found


class Leaks(NamedTuple):
    """Attacks from inside that worked: on files, and on network or other processes."""

    files: tuple[str, ...]
    reach: tuple[str, ...]


def leaks(home: str) -> Leaks:
    """Attack the walls from inside; ``home``: the judge's user's. Harmless where an attack works."""
    files: list[str] = []
    reach: list[str] = []
    for path in dict.fromkeys((home, "/home", "/tmp")):
        with contextlib.suppress(OSError):
            list(Path(path).iterdir())
            files.append(f"{path} can be read from inside.")
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_STREAM):
        reach.append("A network socket can be opened from inside.")
    with contextlib.suppress(OSError):
        os.kill(os.getppid(), 0)
        reach.append("The judge's process can be signalled from inside.")
    with contextlib.suppress(OSError):
        _first_byte(f"/proc/{os.getppid()}/mem")
        reach.append("The judge's memory can be opened from inside.")
    return Leaks(tuple(files), tuple(reach))


def _first_byte(path: str) -> None:
    with Path(path).open("rb"):
        pass


def report_and_exit(write_end: int, work: Callable[[], bytes]) -> NoReturn:
    """In a forked child: write what ``work`` gives (or its error as text) to the pipe and end at once."""
    code = 0
    try:
        answer = work()
    except Exception:  # noqa: BLE001 - the child's border: whatever went wrong is the answer
        answer = traceback.format_exception_only(*sys.exc_info()[:2])[-1].strip().encode()
        code = 1
    with contextlib.suppress(OSError):
        os.write(write_end, answer)
    os._exit(code)
