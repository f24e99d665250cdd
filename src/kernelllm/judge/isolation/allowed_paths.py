"""Says which files a worker may read, and which variables it may see."""

from __future__ import annotations

import importlib.util
import os
import shutil
import site
import stat
import sys
import sysconfig
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from kernelllm.backends.base import COMPILE_THREADS, Backend

_SYSTEM = (
    "/usr", "/lib", "/lib64", "/lib32", "/bin", "/sbin", "/sys/devices", "/sys/bus", "/sys/class", "/sys/kernel/mm", "/sys/module",
    "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ld.so.preload", "/etc/alternatives", "/etc/localtime",
    "/etc/timezone", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/nix", "/nix/store", "/opt/cuda", "/opt/nvidia",
)  # fmt: skip
_GPU = ("/etc/nvidia", "/run/nvidia-persistenced", "/sys/fs/cgroup")
_PACKAGES = ("torch", "numpy", "kernelllm", "msgspec")
_TOOLCHAIN = ("bin", "lib", "lib32", "lib64", "libexec", "include", "nvvm", "targets", "sysroot", "*-linux-gnu*")
"""Parts of the folder that a compiler is installed under. Not ``share`` and ``state``: below ``~/.local`` keys lie there."""
_VARIABLES = (
    "PATH", "LANG", "LANGUAGE", "TZ", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER",
    "CUDA_DEVICE_MAX_CONNECTIONS", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "CONDA_PREFIX", "CC", "CXX",
    "C_INCLUDE_PATH", "CPATH", "LIBRARY_PATH", "PYTHONHASHSEED", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "PYTHONUNBUFFERED",
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", COMPILE_THREADS,
)  # fmt: skip
"""All that a worker server, and a worker, may see of its parent's environment, beside what its kernel language names."""
_PREFIX = "LC_"


@cache
def readable(*, gpu: bool = False) -> tuple[str, ...]:
    """Files and folders with the interpreter, its packages, the system's libraries and compilers. Nothing of the user's own."""
    paths = sysconfig.get_paths()
    system = [*_SYSTEM, *(_GPU if gpu else ())]
    found = [paths["stdlib"], paths["platstdlib"], paths["purelib"], paths["platlib"]]
    found += [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else []), *package_folders()]
    for prefix in {sys.prefix, sys.base_prefix, sys.exec_prefix}:
        found += [f"{prefix}/{part}" for part in ("bin", "lib", "lib64", "include", "pyvenv.cfg", "nvvm", "targets")]
    for name in _PACKAGES:
        found += _package(name)
    for tool in (os.environ.get("CC", ""), "cc", "gcc", "clang", "ptxas"):
        found += _toolchain(tool)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        found += _toolchain_parts(Path(os.environ.get(variable) or "/"))
    found += os.environ.get("LD_LIBRARY_PATH", "").split(":")
    own = {path for path in found if Path(path).is_absolute() and not _holds_home(Path(path))}
    return tuple(sorted(path for path in {*system, *own} if os.path.lexists(path)))


def package_folders() -> list[str]:
    """Folders of packages on the search path: of another environment as well, which a ``.pth`` file or a variable brought in."""
    return [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]


def _holds_home(path: Path) -> bool:
    """Whether a folder is the user's home or one above it, or where programs keep a user's data."""
    home, real = Path.home(), path.resolve()
    return home.is_relative_to(real) or real in (home / ".local", home / ".local" / "share", home / ".config", home / ".cache")


def _toolchain(tool: str) -> list[str]:
    """What a compiler needs of the folder that it was installed under, where that is a place of its own (``/opt/gcc``, not ``/usr``)."""
    path = shutil.which(tool) if tool else None
    if path is None:
        return []
    return [part for prefix in {Path(path).parent.parent, Path(path).resolve().parent.parent} for part in _toolchain_parts(prefix)]


def _toolchain_parts(prefix: Path) -> list[str]:
    if len(prefix.parts) <= 2 or prefix == Path.home():
        return []
    return [str(path) for part in _TOOLCHAIN for path in prefix.glob(part)]


def packages_of(backend: Backend) -> tuple[str, ...]:
    """Where the packages of a kernel language lie, and the language itself where it is a plugin."""
    return (*(path for name in backend.libraries for path in _package(name)), *plugin_of(backend))


def plugin_of(backend: Backend) -> tuple[str, ...]:
    """Where the code of a kernel language lies that is no part of kernelllm."""
    package = type(backend).__module__.partition(".")[0]
    return () if package == __name__.partition(".")[0] else tuple(_package(package))


def _package(name: str) -> list[str]:
    module = sys.modules.get(name)
    spec = module.__spec__ if module is not None else importlib.util.find_spec(name)
    if spec is None:
        return []
    return list(spec.submodule_search_locations or ([spec.origin] if spec.origin else []))


def reachable_by_others(paths: Sequence[str], workdir: str) -> bool:
    """True when a user who owns nothing could read ``paths`` and reach ``workdir``: every folder above is open to all."""
    ours = [path for path in paths if not path.startswith(("/usr/", "/etc", "/sys", "/run", "/lib"))]
    for path in [*ours, workdir, sys.executable]:
        real = Path(path).resolve()
        try:
            if path is not workdir and not real.stat().st_mode & stat.S_IROTH:
                return False
            if not all(above.stat().st_mode & stat.S_IXOTH for above in real.parents):
                return False
        except OSError:
            return False
    return True


def clean_environment(workdir: str) -> dict[str, str]:
    """The variables that a worker server and its workers see: no keys, no tokens, no home. Caches and temporary files go to ``workdir``."""
    kept = {name: value for name, value in os.environ.items() if name in _VARIABLES or name.startswith(_PREFIX)}
    folders = dict.fromkeys(("HOME", "TMPDIR", "TMP", "TEMP", "PWD", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"), workdir)
    caches = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "CUDA_CACHE_PATH": "cuda"}
    folders |= {name: f"{workdir}/{folder}" for name, folder in caches.items()}
    return {**kept, **folders, "USER": "worker", "LOGNAME": "worker"}
