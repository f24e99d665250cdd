"""Builds a small seccomp filter as BPF: a table of system calls that a kernel has no business with.

Own code because the Python bindings (`pyseccomp`) need libseccomp.so, which most images lack. Numbers are from
Linux's arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h; the filter format is seccomp(2)'s.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct
from collections.abc import Iterable, Sequence

_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_LD_W_ABS, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06
_PR_SET_SECCOMP, _MODE_FILTER, _PR_GET_SECCOMP = 22, 2, 21
_NEW_NAMESPACES = 0x7E020000

# name: (x86_64, aarch64); None where the architecture has no such call
_NUMBERS: dict[str, tuple[int | None, int | None]] = {
    # other processes' memory, signals and limits
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424), "process_madvise": (440, 440),
    "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    "prlimit64": (302, 261), "setpriority": (141, 140), "ioprio_set": (251, 30), "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118), "sched_setattr": (314, 274), "sched_setaffinity": (203, 122), "migrate_pages": (256, 238),
    "move_pages": (279, 239), "setsid": (112, 157), "setpgid": (109, 154), "prctl": (157, 167),
    # network and other ways to talk
    "socket": (41, 198), "socketpair": (53, 199), "shmget": (29, 194), "shmat": (30, 196), "semget": (64, 190), "msgget": (68, 186),
    "mq_open": (240, 180),
    # namespaces, mounts, files by handle
    "clone": (56, 220), "clone3": (435, 435), "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39),
    "pivot_root": (155, 41), "chroot": (161, 51), "move_mount": (429, 429), "open_tree": (428, 428), "fsopen": (430, 430),
    "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442), "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265), "fanotify_init": (300, 262), "mknod": (133, None), "mknodat": (259, 33),
    # metadata of files, which Landlock does not cover
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, None), "fchown": (93, 55),
    "lchown": (94, None), "fchownat": (260, 54), "utimensat": (280, 88), "utime": (132, None), "utimes": (235, None),
    "futimesat": (261, None), "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "removexattr": (197, 14),
    "lremovexattr": (198, 15), "fremovexattr": (199, 16),
    # the kernel itself
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89),
    "quotactl": (179, 60), "syslog": (103, 116), "settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266),
    "adjtimex": (159, 171), "sethostname": (170, 161), "setdomainname": (171, 162), "iopl": (172, None), "ioperm": (173, None),
    "vhangup": (153, 58), "ioctl": (16, 29), "mmap": (9, 222), "memfd_create": (319, 279), "memfd_secret": (447, 447),
}
_SIGNALS = ("kill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")
_SIGNALS_BY_HANDLE = ("tkill", "pidfd_open", "pidfd_send_signal")
_PRETEND = (
    "chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat", "utimensat", "utime", "utimes", "futimesat",
)  # fmt: skip
"""Answered with success and not done: linkers set the mode of their output and would stop otherwise."""
_BY_ARGUMENT = (
    *_SIGNALS, *_SIGNALS_BY_HANDLE, *_PRETEND, "prlimit64", "sched_setaffinity", "prctl", "socket", "clone", "clone3", "ioctl",
    "mmap", "memfd_create", "socketpair",
)  # fmt: skip
_PRCTL_DENIED = (1, 4, 35, 0x59616D61)  # PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_MM, PR_SET_PTRACER
_IOCTL_DENIED = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX

_MAP_SHARED, _MAP_ANONYMOUS = 0x01, 0x20

Instruction = tuple[int, int, int, int]


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def supported() -> bool:
    """True where this machine's processor is known and the kernel takes filters."""
    if platform.machine() not in _ARCH:
        return False
    try:
        return int(ctypes.CDLL(None, use_errno=True).prctl(_PR_GET_SECCOMP, 0, 0, 0, 0)) >= 0
    except (OSError, AttributeError):
        return False


def _number(name: str) -> int | None:
    return _NUMBERS[name][0 if platform.machine() == "x86_64" else 1]


def _deny(code: int) -> Instruction:
    return (_RET, 0, 0, _ERRNO | code)


def _argument(index: int) -> Instruction:
    return (_LD_W_ABS, 0, 0, 16 + 8 * index)  # the low half: all that is compared here fits in 32 bits


def _rule(name: str, body: Sequence[Instruction]) -> list[Instruction]:
    number = _number(name)
    if number is None:
        return []
    return [(_LD_W_ABS, 0, 0, 0), (_JEQ, 0, len(body), number), *body]


def _unless_equal(index: int, allowed: Iterable[int], code: int) -> list[Instruction]:
    """Deny unless the argument is one of ``allowed``."""
    values = [value & 0xFFFFFFFF for value in allowed]
    tests: list[Instruction] = [(_JEQ, len(values) - i, 0, value) for i, value in enumerate(values)]
    return [_argument(index), *tests, _deny(code), (_RET, 0, 0, _ALLOW)]


def _if_equal(index: int, denied: Sequence[int], code: int) -> list[Instruction]:
    tests: list[Instruction] = [(_JEQ, len(denied) - i, 0, value) for i, value in enumerate(denied)]
    return [_argument(index), *tests, (_RET, 0, 0, _ALLOW), _deny(code)]


def program(*, pid: int, signals_scoped: bool, families: Iterable[int] = (), shared_memory: bool = False) -> bytes:
    """The filter as bytes. ``pid``: this process; ``signals_scoped``: Landlock already confines signals; ``families``: socket families
    that may still be opened, and paired; ``shared_memory``: files in memory and shared anonymous memory may be made."""
    code: list[Instruction] = [
        (_LD_W_ABS, 0, 0, 4), (_JEQ, 1, 0, _ARCH[platform.machine()]), _deny(errno.EPERM),
        (_LD_W_ABS, 0, 0, 0), (_JGE, 0, 1, 0x40000000), _deny(errno.ENOSYS),  # the x32 numbers
    ]
    for name in _NUMBERS:
        if name not in _BY_ARGUMENT:
            code += _rule(name, [_deny(errno.EPERM)])
    for name in _PRETEND:
        code += _rule(name, [_deny(0)])
    if not signals_scoped:
        for name in _SIGNALS:
            code += _rule(name, _unless_equal(0, (pid, 0), errno.EPERM))
        for name in _SIGNALS_BY_HANDLE:
            code += _rule(name, [_deny(errno.EPERM)])
    for name in ("prlimit64", "sched_setaffinity"):
        code += _rule(name, _unless_equal(0, (0, pid), errno.EPERM))
    if not shared_memory:  # no limit counts what nobody maps just now; CUDA cannot launch without
        both = [(_JSET, 0, 2, _MAP_ANONYMOUS), (_JSET, 0, 1, _MAP_SHARED)]
        code += _rule("mmap", [_argument(3), *both, _deny(errno.EPERM), (_RET, 0, 0, _ALLOW)])
        code += _rule("memfd_create", [_deny(errno.EPERM)])
    if not tuple(families):  # their buffers are the kernel's memory
        code += _rule("socketpair", [_deny(errno.EACCES)])
    code += _rule("socket", _unless_equal(0, families, errno.EACCES))
    code += _rule("prctl", _if_equal(0, _PRCTL_DENIED, errno.EPERM))
    code += _rule("ioctl", _if_equal(1, _IOCTL_DENIED, errno.EPERM))
    code += _rule("clone", [_argument(0), (_JSET, 0, 1, _NEW_NAMESPACES), _deny(errno.EPERM), (_RET, 0, 0, _ALLOW)])
    code += _rule("clone3", [_deny(errno.ENOSYS)])  # its flags lie behind a pointer; the C library falls back to clone
    code.append((_RET, 0, 0, _ALLOW))
    return b"".join(struct.pack("HBBI", *instruction) for instruction in code)


def install(filter_bytes: bytes) -> None:
    """Put the calling thread (and what it starts) under the filter, for good. Raises OSError where the kernel refuses.

    ``PR_SET_NO_NEW_PRIVS`` must be set before.
    """
    memory = ctypes.create_string_buffer(filter_bytes, len(filter_bytes))
    prog = _Program(len(filter_bytes) // 8, ctypes.addressof(memory))
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(prog), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "seccomp")
