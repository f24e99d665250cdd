"""Defines the messages between judge and worker.

Transport (:mod:`kernelllm.judge.transport.wire`): a Unix stream socket pair. Each message is a 4-byte big-endian length
and that many bytes of msgpack. File descriptors (memory arenas) travel from judge to worker only, with the length bytes
(``SCM_RIGHTS``). The judge sends one command and waits for exactly one reply with the same ``id``; it decodes replies with a typed
decoder, so that anything else (a wrong type, an unknown tag, too long) is a :class:`ProtocolError`. Nothing is ever unpickled.

==============  ============================================================  ===============================
command         meaning                                                       replies
==============  ============================================================  ===============================
``OpenArena``   open what it brings, before candidate code is there           ``Done``, ``Failed``
``Construct``   load the candidate file, build ``ModelNew(*args, **kwargs)``  ``Constructed``, ``Failed``
``LoadState``   copy parameters and buffers out of an arena, set train/eval   ``Done``, ``Failed``
``SetAttribute`` set an attribute of the model                                ``Done``, ``Failed``
``RunOnce``     call the model once, copy its outputs to the output arena     ``Ran``, ``Grow``, ``Failed``
``Sample``      call it once, where launches run some of their programs        ``Sampled``, ``Grow``, ``Failed``
``Collect``     copy the outputs of the last run again, or of a held one      ``Ran``, ``Grow``, ``Failed``
``ReadState``   copy parameters and buffers to the output arena               ``ModelState``, ``Grow``, ``Failed``
``TimeRuns``    run many times over several input sets, timed                 ``TimedBatch``, ``Grow``, ``Failed``
``Compile``     compile every kernel a run launches, launch none              ``Compiled``, ``Failed``
``ReadReport``  what was seen: kernels, operators, events                     ``Reported``
``Quit``        exit                                                          none
==============  ============================================================  ===============================

Before its reply a worker on a GPU may send ``AccessRequest``s: it releases the device, or wants it, and goes on at ``AccessGranted``.

Values (arguments, outputs) are trees of ``[tag, payload]`` (:mod:`kernelllm.judge.transport.values`); tensors in them are
indices into a list of :class:`TensorSpec`, whose bytes lie in an arena.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kernelllm.backends.base import CompiledKernel
from kernelllm.core.errors import WorkerError
from kernelllm.judge.transport.run_statistics import RunStatistics as RunStatistics

MAX_COMMAND = 64 * 2**20
MAX_REPLY = 16 * 2**20
MAX_TENSORS = 4096


class ProtocolError(WorkerError):
    """The worker sent something that is not a valid reply."""


class WorkerGone(WorkerError):
    """The worker's end of the socket is closed."""


class WorkerTimeout(WorkerError):
    """No reply came before the deadline."""


class TensorSpec(msgspec.Struct, frozen=True):
    """Where a tensor lies in an arena: ``offset`` in bytes, ``shape`` and ``stride`` in elements."""

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


class ArenaRef(msgspec.Struct, frozen=True):
    """An arena the worker may open. ``fd``: the position of its descriptor beside this message (CPU); ``handle``: a CUDA IPC handle."""

    key: int
    """Unique per session: an arena that is already open is not sent again (``fd`` -1, empty handle)."""
    size: int
    fd: int = -1
    handle: bytes = b""
    device: int = -1
    """CUDA device index, -1 for host memory."""


class Values(msgspec.Struct, frozen=True):
    """A value tree and the tensors it refers to, all in one arena."""

    tree: Any
    tensors: tuple[TensorSpec, ...]
    arena: ArenaRef


class Gradients(msgspec.Struct, frozen=True):
    """What a call of the model gives gradients of, beside its output: see :mod:`kernelllm.judge.gradient_outputs`."""

    arguments: tuple[str, ...]
    """Names of the forward's arguments: their floating tensors have gradients."""
    parameters: tuple[str, ...]


class OpenArena(msgspec.Struct, tag="open"):
    id: int
    output: ArenaRef


class Construct(msgspec.Struct, tag="construct"):
    id: int
    args: Values
    """Tree of ``[list of positional, dict of keyword]`` constructor arguments."""
    seed: int  # torch is seeded with it just before the constructor
    there: bool = False  # build on the GPU where that works: quick, and enough where all parameters are loaded afterwards
    fake: bool = False  # build without memory (FakeTensorMode): the compile check at original sizes
    beside: bool = False  # the model that was built before stays, and LoadState may take it back
    copied: bool = False  # the model that was built before stays, and this one is a copy of it (copy.deepcopy)
    gradients: Gradients | None = None  # every later call of the model runs its backward too
    turn: int = 0  # of each autotuned kernel, the configuration that its first launch has


class LoadState(msgspec.Struct, tag="load_state"):
    id: int
    names: tuple[str, ...]
    values: Values
    """Tree: a list of tensors in the order of ``names``."""
    training: bool
    dtype: str = ""  # the type that floating parameters and buffers get first
    swap: bool = False  # first take the model that stayed, and let this one stay
    by: str = ""  # "itself", "assign": by its own load_state_dict, strictly (with assign=True); "renamed": what it lacks so; "data": .data


class SetAttribute(msgspec.Struct, tag="set_attribute"):
    """Set an attribute of the model or of a module below it, as a user does. Its name has the module's path before it."""

    id: int
    name: str
    value: bool | int | float | str | list[float]


class RunOnce(msgspec.Struct, tag="run"):
    id: int
    inputs: Values
    """Tree: the list of positional arguments."""
    output: ArenaRef
    seed: int
    suppress: bool = False
    """Do not launch kernels; memory from ``torch.empty`` and the like holds finite noise, other such where ``other_noise``."""
    suppress_backward: bool = False  # likewise, in the backward alone
    other_noise: bool = False
    observe: bool = False  # record ATen operators and FLOPs in this run; they come with the reply, and in the report's sum
    apart: bool = False
    """Record as ``observe`` does, but not in the sum: the run is at another size than those that are summed up."""
    bare: bool = False  # run without guard regions: to the candidate, memory is what it is in timed runs
    grad: bool = False  # with gradients enabled, and inputs that require them, as those who call a model often have them
    setting: str = ""  # with one of kernelllm.judge.caller_settings
    inference: bool = False  # in inference mode
    spoiled: bool = False  # after the outputs of the run before were written into
    times: int = 1  # call the model so often; what the last call returns is the output
    autocast: bool = False  # to bfloat16
    hooked: bool = False  # with the hooks of kernelllm.judge.hooks
    hooked_parts: tuple[str, ...] = ()  # with such hooks on the parts of these names
    in_order: bool = False  # the run before once more, the programs of every launch from the first to the last
    backward: str = ""  # another order of forwards and backwards, of those in kernelllm.judge.gradient_outputs
    hold: bool = False  # hold the outputs until they are collected, while other runs are made
    exact_products: bool = False  # no products in TF32 (on a GPU: torch's convolutions), in this run and in samples after it
    frozen: tuple[str, ...] = ()  # inputs and parameters that need no gradients
    named: dict[str, bool | int | float | str] = {}  # keyword arguments beside the inputs
    by_name: tuple[str, ...] = ()  # the last of the inputs are keyword arguments of these names
    again: bool = False
    """The inputs are the same tensors as in the run before, with other values in them, as a loop that reuses its buffers has them."""
    same: bool = False  # they are, and hold the same values
    undefined: tuple[str, ...] | None = None
    """Places of the report's ``undefined_lanes`` whose lanes stay undefined in this run; those of all others hold ``fill``. None: all."""
    fill: float = 0.0


class SamplePrograms(msgspec.Struct, tag="sample"):
    """Call the model once. Of each launch some programs run; what they wrote of the outputs is copied to the output arena. CPU only."""

    id: int
    inputs: Values
    output: ArenaRef
    seed: int
    seconds: float  # the run is given up after so many
    programs: tuple[float, ...] = ()  # numbers along a grid that run too, and shares of the whole grid


class Collect(msgspec.Struct, tag="collect"):
    id: int
    output: ArenaRef
    held: bool = False  # the outputs of the run that was told to hold them, not those of the last run


class ReadState(msgspec.Struct, tag="read_state"):
    id: int
    output: ArenaRef
    names: tuple[str, ...]
    by_itself: bool = False  # as its own state_dict gives them


class TimeRuns(msgspec.Struct, tag="time_runs"):
    """Timed batch on a GPU: for each entry of ``order`` L2 is cleared, and the call on that input set lies between two events."""

    id: int
    inputs: tuple[Values, ...]
    order: tuple[int, ...]
    output: ArenaRef
    warmup: int = 3
    """Untimed runs before the first."""
    flush_bytes: int = 0
    """Size of the buffer that is written before each timed run; 0: no L2 flush."""
    leading: int = 0
    """How often it is written before the first of them: the GPU is busy with that while the run is prepared."""
    busy_cycles: int = 0
    """For so many of its clock's cycles the GPU is kept busy before that."""
    settle: bool = False
    """Wait for the device after each run: launching the next one is then part of its time, as far as the flush does not hide it."""
    seed: int | None = None
    """Seed all generators before each run, where outputs that are kept depend on them."""
    graph: bool = False
    """Capture one CUDA graph for each input set and time its replay."""
    keep: tuple[int, ...] = ()
    """Positions in ``order`` whose outputs are copied to the output arena."""
    cores: tuple[int, ...] = ()
    """Cores kept free for measuring, to launch the runs from."""
    watch: int = -1
    """Input set to run on once more after the last, untimed and with operators recorded; -1: none. To the candidate it is one run more."""


class Compile(msgspec.Struct, tag="compile"):
    """Run the model, compiling launches for ``target`` instead; ``inputs.tensors`` give shapes and dtypes, ``fake``: without memory."""

    id: int
    inputs: Values
    target: str
    fake: bool
    hollow: bool = False  # real tensors of these shapes, whose values say nothing
    list_only: bool = False
    """Only list what is launched, without compiling again what was compiled before."""
    binary: bool = True
    """False: compile until what is left is the assembler's work, which refuses next to nothing and takes a third of the time."""


class ReadReport(msgspec.Struct, tag="report"):
    id: int


class AccessGranted(msgspec.Struct, tag="access_granted"):
    """The worker has the access that its ``AccessRequest`` asked for."""

    id: int


class Quit(msgspec.Struct, tag="quit"):
    id: int


Command = (
    OpenArena | Construct | LoadState | SetAttribute | RunOnce | SamplePrograms | Collect | ReadState | TimeRuns | Compile | ReadReport
    | AccessGranted | Quit
)  # fmt: skip


class AccessRequest(msgspec.Struct, tag="access_request"):
    """A :class:`kernelllm.backends.base.DeviceAccess`, in the middle of command ``id``."""

    id: int
    access: str


class StateEntry(msgspec.Struct, frozen=True):
    name: str
    shape: tuple[int, ...]
    dtype: str
    buffer: bool
    shares: str  # the first name of the same tensor


class Constructed(msgspec.Struct, tag="constructed"):
    id: int
    state: tuple[StateEntry, ...]
    training: bool


class Done(msgspec.Struct, tag="done"):
    id: int
    had: bool = True  # of SetAttribute: whether there was one of that name


class Failed(msgspec.Struct, tag="failed"):
    """The candidate's code raised, or is no candidate."""

    id: int
    kind: str
    """``invalid``, ``compile``, ``memory``, ``illegal_access``, ``asserted``, ``not_plain``, ``not_here`` (no GPU) or ``error``."""
    error: str
    """Exception type name."""
    message: str
    line: int = 0
    """Line of the candidate's source where it was raised or last passed through, 0 if none."""
    trace: str = ""
    """The candidate's own frames, innermost last."""
    device_lost: bool = False
    """The worker's context on the GPU is dead: every later command would fail too, whatever the candidate does."""


class Grow(msgspec.Struct, tag="grow"):
    """The output arena is too small: ``Collect`` with at least ``bytes``."""

    id: int
    bytes: int


class Ran(RunStatistics, frozen=True, tag="ran"):
    id: int
    tree: Any
    tensors: tuple[TensorSpec, ...]


class Sampled(msgspec.Struct, tag="sampled"):
    id: int
    shapes: tuple[tuple[int, ...], ...] | None = None
    """Shapes of the outputs' tensors. None where the run was given up, or goes on from what programs left out would have written."""
    tree: Any = None
    """A list with an item for each of these tensors: indices of elements and their values, or nothing."""
    kernels: tuple[str, ...] = ()
    """Names of those that were launched."""
    unwritten: str = ""
    """What all programs together leave unwritten of an output that they alone write; empty where that is not certain."""
    configurations_left: bool = False
    """See :class:`kernelllm.backends.base.SampledLaunches`."""
    ops: dict[str, int] = {}
    flops: dict[str, float] = {}
    """Torch's operators and their FLOPs, as far as the run came."""
    unwritten_read: int = 0  # elements that no program writes, though stores depend on them
    tensors: tuple[TensorSpec, ...] = ()


class ModelState(msgspec.Struct, tag="state"):
    id: int
    names: tuple[str, ...]
    tensors: tuple[TensorSpec, ...]


class TimedBatch(msgspec.Struct, tag="timed"):
    id: int
    times_ms: tuple[float, ...]
    """One figure for each entry of ``order``."""
    kept: tuple[int, ...] = ()
    """Positions whose outputs follow, in the order of ``trees``."""
    trees: tuple[Any, ...] = ()
    tensors: tuple[TensorSpec, ...] = ()
    """Tensors of all trees together; indices in the trees count through."""
    enqueued_ms: tuple[float, ...] = ()
    """When the first run began to be enqueued, then when each was, by the worker's clock since the batch began."""
    reached_ms: tuple[float, ...] = ()
    """When the GPU came to each run, since the batch began."""
    launching_ms: tuple[float, ...] = ()
    """How long each run's call kept the host."""
    launches: tuple[int, ...] = ()
    """Kernels that each run launched; empty where graphs were replayed."""
    watched_launches: int = 0
    """Launches of the run that was watched; then its operators and FLOPs."""
    ops: dict[str, int] = {}
    flops: dict[str, float] = {}


class Compiled(msgspec.Struct, tag="compiled"):
    id: int
    kernels: tuple[CompiledKernel, ...]
    launches: tuple[str, ...] = ()  # in order, until the candidate looked at values that a kernel would have computed
    cut: bool = False  # whether it did look at such values
    unwritten: str = ""  # what no kernel writes of an output, at these sizes; empty where all of it may be written
    ops: dict[str, int] = {}  # torch's operators and their FLOPs, at the original sizes alone
    flops: dict[str, float] = {}
    narrow: str = ""  # where a kernel's offsets are of 32 bits in a tensor that is longer


class AuditEvent(msgspec.Struct, frozen=True):
    """One thing that Python's audit hook saw while candidate code ran."""

    name: str  # e.g. ``open``, ``subprocess.Popen``, ``os.fork``, ``socket.connect``, ``sys._getframe``
    detail: str
    count: int
    phase: str
    """``import`` (the file's top level), ``construct``, ``run`` or ``time``."""


class Reported(msgspec.Struct, tag="reported"):
    id: int
    kernels: tuple[CompiledKernel, ...] = ()
    bodies: dict[str, str] = {}
    ops: dict[str, int] = {}
    flops: dict[str, float] = {}
    events: tuple[AuditEvent, ...] = ()
    threads: int = 0
    streams: int = 0
    tampered: tuple[str, ...] = ()
    peak_bytes: int = 0
    kernel_flops: dict[str, float] = {}
    """Kernel name to the arithmetic of its launches in all observed runs together, as far as it is known (see :class:`KernelSeen`)."""
    first_launches: tuple[str, ...] = ()
    """What the first run launched, in order."""
    undefined_lanes: tuple[str, ...] = ()
    """Where a load left masked lanes without a value, as far as that is known."""


Reply = Constructed | Done | Failed | Grow | Ran | Sampled | ModelState | TimedBatch | Compiled | Reported | AccessRequest
