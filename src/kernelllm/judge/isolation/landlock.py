"""Calls Landlock by its three system calls, to restrict which files, ports and processes this process may touch.

The `landlock` package on PyPI is an alpha that knows files only, and a sandbox for kernels needs ports, signals
and abstract sockets too, hence this file. Source of numbers: Linux's include/uapi/linux/landlock.h and
Documentation/userspace-api/landlock.rst.
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterable

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_PATH_BENEATH = 1

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_ALL_ABI1 = (1 << 13) - 1
_FOR_FILES = EXECUTE | WRITE_FILE | READ_FILE | _TRUNCATE | _IOCTL_DEV
READ = EXECUTE | READ_FILE | READ_DIR
WRITE = _ALL_ABI1 | _REFER | _TRUNCATE
OVERWRITE = WRITE_FILE | _TRUNCATE
DEVICE = READ_FILE | WRITE_FILE | READ_DIR | _IOCTL_DEV
_TCP = 0b11
SCOPE_ABSTRACT_UNIX, SCOPE_SIGNAL = 1 << 0, 1 << 1


class _Ruleset(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("access", ctypes.c_uint64), ("fd", ctypes.c_int32))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def abi() -> int:
    """Landlock's version in this kernel, 0 where it is absent, switched off or hidden by a container."""
    try:
        found = int(_libc().syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1)))
    except (OSError, AttributeError):
        return 0
    return max(found, 0)


def _handled(version: int) -> int:
    bits = _ALL_ABI1
    if version >= 2:
        bits |= _REFER
    if version >= 3:
        bits |= _TRUNCATE
    if version >= 5:
        bits |= _IOCTL_DEV
    return bits


def restrict(rules: Iterable[tuple[str, int]], *, scoped: int = SCOPE_ABSTRACT_UNIX | SCOPE_SIGNAL) -> int:
    """Confine the calling thread (and what it starts) to ``rules``: pairs of path and access bits; a path that is not there is skipped.

    TCP bind and connect are denied where the kernel can. Returns the ABI in force.
    Raises OSError where Landlock is not available. ``PR_SET_NO_NEW_PRIVS`` must be set before.
    """
    version = abi()
    if version == 0:
        raise OSError("Landlock is not available")
    libc = _libc()
    attr = _Ruleset(_handled(version), _TCP if version >= 4 else 0, scoped if version >= 6 else 0)
    size = 8 if version < 4 else 16 if version < 6 else 24
    ruleset = libc.syscall(_CREATE, ctypes.byref(attr), ctypes.c_size_t(size), ctypes.c_uint32(0))
    if ruleset < 0:
        raise OSError(ctypes.get_errno(), "landlock_create_ruleset")
    try:
        for path, access in rules:
            _allow(libc, ruleset, path, access & attr.fs)
        if libc.syscall(_RESTRICT, ruleset, ctypes.c_uint32(0)) != 0:
            raise OSError(ctypes.get_errno(), "landlock_restrict_self")
    finally:
        os.close(ruleset)
    return version


def _allow(libc: ctypes.CDLL, ruleset: int, path: str, access: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            access &= _FOR_FILES
        rule = _PathBeneath(access, fd)
        if libc.syscall(_ADD, ruleset, _PATH_BENEATH, ctypes.byref(rule), ctypes.c_uint32(0)) != 0:
            raise OSError(ctypes.get_errno(), "landlock_add_rule", path)
    finally:
        os.close(fd)
