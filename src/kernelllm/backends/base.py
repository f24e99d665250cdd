"""The interface of a kernel language: :class:`Backend`, one folder a language.

The judge and the language models' prompts know no language; they ask the backend that a candidate names. To add a language, write a
folder with a class derived from :class:`Backend`, and register it under ``backends`` (in core/registry.py, or by an entry point of the
group ``kernelllm.backends`` of a package of your own).

What CUDA C++ would say, for instance: ``modes`` are COMPILE (nvcc needs no GPU) and CUDA; it has no emulator, so that candidates are
judged on a GPU alone. ``load`` builds the file's C++ and imports it. ``watch`` cannot wrap a launch in Python: it subscribes to the
profiler's launch callbacks (CUPTI), which name the kernel; :meth:`Launches.suppress` has them skip it, :meth:`Launches.counted` counts.
``native_code`` names ``torch.utils.cpp_extension``, which is cheating in other languages, and ``tools`` name nvcc and what it starts.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import msgspec

from kernelllm.backends.sampled_launches import SampledLaunches
from kernelllm.core import registry


class AvailabilityState(StrEnum):
    """``available``: runs on this machine's GPU; ``can_build``: compiles or is emulated here; ``missing``: neither."""

    AVAILABLE = "available"
    CAN_BUILD = "can_build"
    MISSING = "missing"


class Availability(msgspec.Struct, frozen=True, kw_only=True):
    """What this machine can do with a backend, why, and what would improve it (empty: nothing)."""

    state: AvailabilityState
    reason: str
    fix: str = ""


class Mode(StrEnum):
    """What the launches of a worker do. A worker has one mode for its life."""

    INTERPRET = "interpret"
    """Kernels run on the CPU, by the language's emulator."""
    COMPILE = "compile"
    """Kernels compile for a target that need not be there, and run nothing."""
    CUDA = "cuda"
    """Kernels run on this machine's GPU."""


class DeviceAccess(StrEnum):
    """How a worker may hold the device."""

    RELEASED = "released"
    """Not at all: it compiles."""
    SHARED = "shared"
    """Beside others."""
    EXCLUSIVE = "exclusive"
    """Alone, to measure which configuration of a kernel is the fastest. Granted for a limited time, and only where it is timed."""


class IllegalAccess(Exception):
    """A kernel read or wrote outside of every tensor that it was given. ``line``: of the candidate, where no frame shows it."""

    def __init__(self, text: str, line: int = 0) -> None:
        super().__init__(text)
        self.line = line


STORED_TWICE = "a race: a program stores"
"""Begins the text of one about different values that programs of a launch store in one place."""
COMPILE_THREADS = "KERNELLLM_COMPILE_THREADS"
"""In a worker's environment: threads in which it may compile at once."""
LAUNCH = "launch: "
"""Begins the error of a kernel that compiles but cannot be launched with the grid it was given."""


class CompiledKernel(msgspec.Struct, frozen=True):
    """A kernel that was launched, with its resources where it was compiled."""

    name: str
    launches: int
    registers: int | None = None
    shared_bytes: int | None = None
    spills: int | None = None
    num_warps: int | None = None
    error: str = ""
    """The compiler's message when the compile failed."""
    line: int = 0
    """The line of the candidate's source that ``error`` is about."""
    configurations: dict[str, bool] = {}
    """Of an autotuned kernel: those that pruning left, and whether each ran. Where launches are timed to choose one, none is noted."""


@dataclass
class KernelSeen:
    """A kernel while launches of it are noted; a backend fills in what its compiler says."""

    name: str
    launches: int = 0
    registers: int | None = None
    shared_bytes: int | None = None
    spills: int | None = None
    num_warps: int | None = None
    errors: list[tuple[str, int]] = field(default_factory=list)
    """Messages of the compiler, each with a line of the candidate's source."""
    configurations: dict[str, bool] = field(default_factory=dict)
    """See :class:`CompiledKernel`."""
    flops: float = 0.0
    """Arithmetic of all launches so far: two for each multiplication of a dot product, one for each element of any other operation on
    floating-point values. 0 where the backend cannot tell."""


class Observer(Protocol):
    """What a backend tells of launches, and whom it asks for the GPU. The worker's recorder is one."""

    in_launch: bool
    """Set by the backend while a launch is under way: what torch and Python do then is the language's doing, not the candidate's."""

    fault: str
    """What a kernel did that ends a process on a GPU. Set by the backend, once; the candidate may have caught the exception."""

    read_after: int | None
    """Not None once candidate code looked at values that a kernel may have computed."""

    def launch(self, name: str, body: Callable[[], str] | None = None, count: int = 1) -> KernelSeen:
        """Note ``count`` launches of a kernel; ``body`` gives its source text."""

    def launched(self, what: str) -> None:
        """Note how a kernel was launched: the same text in modes INTERPRET and COMPILE."""

    def stores(self, memory: int, elements: float) -> None:
        """In COMPILE mode: a launch writes at most so many elements of the storage of this identity; 0: it may be any."""

    def narrow(self, text: str) -> None:
        """In COMPILE mode: a kernel's offsets have too few bits for a tensor that it got."""

    def wrote(self, ranges: Iterable[tuple[int, int]]) -> None:
        """In INTERPRET mode: a launch wrote into the storages at these addresses, from the first to before the second."""

    request_access: Callable[[DeviceAccess], None]
    """Hold the GPU in another way; returns when it is so. For languages that compile or tune in the middle of a run."""

    def tuning_times(self, call: Callable[[], Any]) -> list[float]:
        """Milliseconds on the GPU of some calls, each of which launches a kernel. For languages that choose among configurations."""


class Launches:
    """A worker's hold on the launches that it watches; this one is for COMPILE mode, where none runs."""

    def suppress(self, on: bool) -> None:
        """While on, launches are noted and checked, and run nothing. For modes INTERPRET and CUDA."""

    def compile_less(self, *, list_only: bool, binary: bool) -> None:
        """From now on launches are only listed where their kernel was compiled before, or (not ``binary``) kernels are compiled as far
        as the compiler refuses them, and not assembled. For mode COMPILE."""

    def raised(self, error: BaseException) -> None:
        """A run of the model ended with this error, which may come of a launch. For mode COMPILE."""

    def begin_run(self, places: Collection[str] | None, fill: float, *, in_order: bool, exact_products: bool = False) -> None:
        """A run of the model begins. Masked lanes that a load gives no value hold ``fill``, but for those of ``places``; None: nowhere.

        ``in_order``: the programs of a launch run from the first to the last. With either, it is the run before once more.
        ``exact_products``: nothing is rounded to TF32, though a kernel asks for it. For INTERPRET.
        """

    def begin_at(self, turn: int) -> None:
        """The first launch of each autotuned kernel has the configuration of this number. For INTERPRET."""

    def ran_backwards(self) -> bool:
        """Whether the programs of any launch of the latest run went from the last to the first. For mode INTERPRET."""
        return False

    def undefined_lanes(self) -> tuple[str, ...]:
        """The places (kernel and line) where a load left masked lanes without a value. For mode INTERPRET."""
        return ()

    def sampled(self, seed: int, seconds: float, programs: tuple[float, ...] = ()) -> SampledLaunches:
        """A context in which launches run some of their programs, chosen by ``seed``, for so long. For mode INTERPRET.

        ``programs``: numbers along a dimension of the grid that are among them, and shares of all programs, below 1.
        """
        raise NotImplementedError

    def disagreement(self) -> bool:
        """Whether launches were counted differently in the two places where they are: what counts them was tampered with."""
        return False

    def counted(self) -> AbstractContextManager[Callable[[], int]]:
        """Around timed runs: launches are only counted, as cheaply as can be. Gives a function that says how many there were so far.

        For mode CUDA.
        """
        return nullcontext(lambda: 0)


FAMILIES = ("add", "elementwise", "epilogue", "matmul", "reduction", "softmax")
"""Operator families of which prompts show worked examples; ``epilogue``: a matrix product with a fused epilogue."""


class LanguageNames(msgspec.Struct, frozen=True, kw_only=True):
    """What the kernels of a language that is embedded in Python may name beside their arguments, jitted helpers and literals."""

    modules: tuple[str, ...]
    """Dotted paths of the language, and of modules whose constants it knows."""
    builtins: frozenset[str]
    """Names of Python that it compiles, or tells apart, itself."""
    python_attributes: frozenset[str]
    """Attributes that values have in Python or in an emulator alone, or that differ there."""
    constant_functions: tuple[str, ...] = ()
    """Dotted paths of decorators of functions that kernels call on constants, when they are compiled."""
    machine: tuple[str, ...]
    """Dotted paths that tell outside of a kernel which machine or emulator it is on."""
    launching: tuple[str, ...] = ()
    """Exceptions: paths below those above that launches take, and that lead to such; they tell nothing of the machine."""


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """A worked example for prompts: a reference module and the same with kernels."""

    title: str
    reference: str
    kernel: str


class Backend(ABC):
    """One kernel language. Registered under the kind ``backends``; tests/backends/test_conformance.py holds for every one of them.

    Objects have no state and are made without arguments. Nothing heavy is imported before :meth:`prepare`.
    """

    # -- who it is ------------------------------------------------------------------------------

    name: str
    """The registered name."""
    title: str
    """The name as people write it."""
    suffix: str = ".py"
    """File name suffix of a candidate, with the dot."""
    modes: frozenset[Mode]
    """What it can do. Without INTERPRET its candidates need a GPU; without COMPILE they are not compiled where there is none."""

    @property
    def emulated(self) -> bool:
        """Whether kernels run on a machine without a GPU."""
        return Mode.INTERPRET in self.modes

    @abstractmethod
    def availability(self) -> Availability:
        """What this machine can do; never raises."""

    def missing(self) -> Availability | None:
        """What is not installed, so that nothing works; None where nothing is missing. Imports nothing heavy."""
        return None

    # -- in source ------------------------------------------------------------------------------

    kernel_decorators: tuple[str, ...] = ()
    """Dotted paths of what turns a function into a kernel, or a helper of one; as a decorator or called."""
    libraries: tuple[str, ...] = ()
    """Top-level packages that a candidate may import beside torch. Workers may read them."""
    settings: tuple[str, ...] = ()
    """Dotted paths below ``libraries`` that a candidate may assign to."""
    forbidden: Mapping[str, tuple[str, ...]] = {}
    """Dotted paths below ``libraries`` that a candidate must not use, by the check that says so: ``native_code``, ``introspection``,
    ``tampering``, or ``clock`` (which only reports)."""
    native_code: tuple[str, ...] = ()
    """Dotted paths that leave Python and are part of this language, though they are cheating in others."""
    variables: tuple[str, ...] = ()
    """Beginnings of the environment variables that a candidate may read and set."""
    hidden_variables: tuple[str, ...] = ()
    """Variables among these that tell which mode a worker is in: a candidate must not know."""
    tools: tuple[str, ...] = ()
    """Programs that the language itself starts, such as a compiler."""
    narrow_types: Mapping[str, str] = {}
    """Types narrower than float32, by the names that kernels give them, and torch's name of each."""

    def computes(self, body: str) -> bool:
        """False when the kernel of this source text only moves data. True in doubt."""
        return True

    def lowers_precision(self, path: str, options: Mapping[str, Any]) -> str:
        """How a call of ``path`` with these keyword arguments (``...``: not a constant) lowers float32's precision; else empty."""
        return ""

    def keeps_remainder(self, kernel: ast.FunctionDef) -> bool:
        """Whether a kernel keeps what a narrow type loses in a second value, so that nothing is lost."""
        return False

    def undefined_results(self, kernel: ast.FunctionDef) -> Iterable[tuple[int, str]]:
        """Where a kernel's result certainly depends on lanes that the language leaves undefined: a line, and what they count in."""
        return ()

    names: LanguageNames | None = None
    """What kernels may name; None where kernels are no Python."""

    # -- in a worker ----------------------------------------------------------------------------

    def environment(self, mode: Mode, folder: str) -> dict[str, str]:
        """Environment variables that a worker needs whose files lie in ``folder``, beside the usual ones."""
        return {}

    def preload(self, modes: Sequence[Mode], target: str) -> AbstractContextManager[None]:
        """Around the import of torch in a process from which forkservers of all these modes are forked: on leaving, the language is
        imported and warm. Called again in each of them.

        Work that needs no torch may begin on entering. CUDA must not be initialised: a context does not survive a fork.
        """
        return nullcontext()

    def prepare(self, mode: Mode, target: str) -> None:  # noqa: B027 (most languages need nothing)
        """Install what makes a forkserver one of this mode, after :meth:`preload` and before its first fork."""

    def versions(self) -> dict[str, str]:
        """Versions that verdicts depend on, by package. Called after :meth:`prepare`, and by the judge."""
        return {}

    def load(self, path: Path, name: str) -> ModuleType:
        """Import the candidate in a file as module ``name``. Raises whatever the source raises."""
        return import_file(path, name)

    def runs_here(self) -> bool:
        """Whether kernels run in this very process without a device, for tests and trials, because the person has asked for it."""
        return False

    def watched_calls(
        self, launched: Callable[[], None], set_up: Callable[[Callable[[], None]], None]
    ) -> AbstractContextManager[None]:  # fmt: skip
        """Inside it, a launch of this thread calls ``launched`` first, which may raise, and what host code sets up for its launches
        is handed to ``set_up`` as a function that does so again.
        """
        return nullcontext()

    @abstractmethod
    def watch(self, mode: Mode, observer: Observer) -> Launches:
        """Tell ``observer`` of every launch of this process from now on. Called once, before the candidate is loaded.

        In COMPILE mode a launch compiles for the target of :meth:`prepare`, notes resources and errors, and runs nothing; tensors may
        be fake. In CUDA mode the device is initialised, and the language should be made warm: a candidate comes next.
        """

    compile_errors: frozenset[str] = frozenset()
    """Names of exception classes that say that a kernel does not compile."""
    wrapping_errors: frozenset[str] = frozenset()
    """Names of exception classes that wrap what was raised inside a kernel, as their cause."""

    # -- for language models --------------------------------------------------------------------

    fence: str
    """The language tag of a Markdown code fence that holds a candidate."""
    fence_names: frozenset[str] = frozenset()
    """Other tags that models give such a fence."""
    rules: str
    """What a prompt tells a model about kernels in this language: plain text, one rule a line."""
    usual_imports: Mapping[str, str] = {}
    """Names that a model may use without importing them, and the import that is meant."""
    kernel_pattern: re.Pattern[str]
    """Found in every text that defines a kernel."""

    def examples(self) -> Mapping[str, Example]:
        """Worked examples by operator family, any of :data:`FAMILIES`."""
        return {}


def open_backend(name: str) -> Backend:
    """The backend of a name. Raises UnknownName."""
    found: Backend = registry.resolve("backends", name)()
    return found


def import_file(path: Path, name: str) -> ModuleType:
    """Import a Python file as module ``name``. Raises whatever its code raises."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
