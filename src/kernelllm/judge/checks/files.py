"""Flags candidates that read files or the environment, or write outside their own tensors."""

from __future__ import annotations

import ast

from kernelllm.backends.base import Backend
from kernelllm.core.types import Finding, Severity
from kernelllm.judge.checks.syntax import analyse, starts
from kernelllm.judge.observation import Observation

_CERTAIN = (
    "os.listdir", "os.scandir", "os.walk", "os.fdopen", "os.open", "os.read", "os.write", "os.pread", "os.pwrite", "os.dup",
    "os.dup2", "os.pipe", "os.sendfile", "os.memfd_create", "os.mkfifo", "os.symlink", "os.link", "os.remove", "os.unlink",
    "os.rename", "os.replace", "os.chmod", "os.truncate", "os.close", "os.closerange", "glob", "shutil", "mmap", "fcntl", "tempfile",
    "sqlite3", "shelve", "dbm", "torch.save", "torch.from_file", "numpy.load", "numpy.save", "numpy.fromfile", "numpy.memmap",
    "numpy.genfromtxt", "numpy.loadtxt", "torch.UntypedStorage.from_file", "multiprocessing.shared_memory", "fileinput", "select",
    "io.FileIO", "_io", "zipfile", "tarfile",
)  # fmt: skip
_OPEN = ("builtins.open", "io.open", "codecs.open")
_PATH_METHODS = {"read_text", "read_bytes", "write_text", "write_bytes", "iterdir", "rglob", "touch", "unlink", "hardlink_to", "symlink_to"}
_ENVIRONMENT = ("os.environ", "os.environb", "os.getenv", "os.getenvb")
_KNOWN_VARIABLES = (
    "CUDA", "TORCH", "PYTORCH", "OMP", "MKL", "NVIDIA", "NCCL", "FLA_", "FLASH_ATTENTION_", "LIGER_", "MAMBA_", "SGLANG_", "UNSLOTH_",
    "VLLM_", "XFORMERS_",
)  # fmt: skip
"""Of torch, its libraries, and collections of kernels whose switches are copied along. Workers have none of the last."""
_PRIVATE = ("/proc/", "/root", "/home", "/etc/shadow")


_OF_THE_JUDGE = ("OMP_", "MKL_", "CUDA_CACHE_PATH", "TORCHINDUCTOR_", "TRITON_CACHE_DIR", "TRITON_HOME")
"""Variables that workers have values of their own for."""


class Files:
    name = "files"
    describe = "reads files, descriptors or the environment, where the harness might be found"

    def source(self, tree: ast.Module, backend: Backend) -> list[Finding]:
        """A kernel needs no files. Variables of torch, CUDA and the kernel language may be read and set."""
        known = analyse(tree)
        found = [
            Finding(check=self.name, message=f"Uses {use.path}.", line=use.line)
            for use in known.uses() if starts(use.path, *_CERTAIN, *_OPEN)
        ]  # fmt: skip
        if any(starts(use.path, "pathlib") for use in known.uses()):
            found += [
                Finding(check=self.name, message=f"Uses {node.attr} of a path.", line=node.lineno)
                for node in known.attributes() if node.attr in _PATH_METHODS
            ]  # fmt: skip
        return found + self._environment(tree, backend)

    def _environment(self, tree: ast.Module, backend: Backend) -> list[Finding]:
        known, allowed = analyse(tree), (*_KNOWN_VARIABLES, *backend.variables)
        named: set[ast.AST] = set()
        found = []
        for node in analyse(tree).nodes:
            key: ast.AST | None = None
            if isinstance(node, ast.Subscript) and known.paths(node.value) & set(_ENVIRONMENT):
                key, owner = node.slice, node.value
            elif isinstance(node, ast.Call) and node.args and any(starts(path, *_ENVIRONMENT) for path in known.paths(node.func)):
                key, owner = node.args[0], node.func
            elif isinstance(node, ast.Compare) and any(known.paths(other) & set(_ENVIRONMENT) for other in node.comparators):
                key, owner = node.left, node.comparators[0]
            if key is None:
                continue
            named.update(ast.walk(owner))
            variable = known.text(key)
            line, stored = getattr(node, "lineno", 0), isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)
            if variable is None or not variable.startswith(allowed) or variable in backend.hidden_variables:
                found.append(Finding(check=self.name, message=f"Reads the environment ({variable or 'unknown variable'}).", line=line))
            elif variable.startswith(_OF_THE_JUDGE) and not stored:
                message = f"Reads {variable} of the environment, which is another one under a judge than for users."
                found.append(Finding(check=self.name, message=message, severity=Severity.WARN, line=line))
        for use in known.uses():
            if use.path in ("os.environ", "os.environb") and use.node not in named and not isinstance(use.node, ast.ImportFrom):
                found.append(Finding(check=self.name, message="Reads the whole environment.", line=use.line))
        return found

    def observed(self, seen: Observation) -> list[Finding]:
        """Files that candidate code opened while it was built or run (imports and the language's cache are not the candidate's doing)."""
        return [
            Finding(check=self.name, message=f"Opened {event.detail} while in {event.phase}.", severity=Severity.WARN)
            for event in seen.events if event.name == "open" and event.detail.strip("'\"").startswith(_PRIVATE)
        ]  # fmt: skip
