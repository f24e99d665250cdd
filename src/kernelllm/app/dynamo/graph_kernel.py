"""One graph of AOTAutograd's as something to call: eager until its file is written and verified, then that file."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from torch import fx

from kernelllm.app import in_process
from kernelllm.app.dynamo import orders
from kernelllm.app.dynamo.any_device import decomposed
from kernelllm.app.dynamo.by_inductor import ByInductor
from kernelllm.app.dynamo.graph_parts import GraphParts, apart, left_to_libraries
from kernelllm.app.dynamo.graph_report import GraphRecord, compile_report
from kernelllm.app.dynamo.race import Race, Run
from kernelllm.core.errors import KernelLLMError
from kernelllm.problems.graph_problem import OF_TORCH_COMPILE, graph_problem, told_by_shapes
from kernelllm.problems.graph_text import noted
from kernelllm.problems.observed import hint

if TYPE_CHECKING:
    from kernelllm.app.dynamo.backend_options import CompileOptions
    from kernelllm.app.dynamo.writing import Written

log = logging.getLogger("kernelllm")


class GraphKernel:
    """Called with a list of inputs, which it empties, as AOTAutograd does it. Never raises what the graph itself would not."""

    def __init__(self, name: str, graph: fx.GraphModule, options: CompileOptions, *, whole: bool = True) -> None:
        """``whole``: it is no part of a longer graph, and its file is held against Inductor by itself."""
        self._boxed_call = True  # of the object: torch copies it to what it wraps around
        self._graph, self._options, self._whole = graph, options, whole
        operators = sum(n.op == "call_function" for n in graph.graph.nodes)
        self.record = GraphRecord(name, operators, settle=weakref.WeakMethod(self.settle))
        compile_report().graphs.append(self.record)
        self._run: Run = self._eager
        self._inductor: Run | None = None
        self._inductor_failed = ""
        self._decided = self._waited = False
        self._lock = threading.Lock()
        self._answer: Future[Written] | None = None
        self._key = ""
        self._parts: GraphParts | None = None

    def __call__(self, boxed: list[Any]) -> Sequence[Any]:
        inputs = list(boxed)
        boxed.clear()
        if not self._decided:
            return self._undecided(inputs)
        if not torch.is_grad_enabled():  # mostly; the context below takes microseconds
            return self._run(inputs)
        with torch.no_grad():
            return self._run(inputs)

    def begun(self, inputs: list[Any]) -> Sequence[Any]:
        """Eager's results, while the file is being written: :meth:`settle` waits for it."""
        with self._lock, torch.no_grad():
            self._decide(inputs)
            return self._eager(inputs)

    @property
    def key(self) -> str:
        """The name of its file on disk."""
        return self._key

    @property
    def beside_inductor(self) -> bool:
        """Whether Inductor may run the graph while its file is being written."""
        return self._inductor is not None

    def settle(self, *, wait: bool = True) -> bool:
        """Take the file if it is there; ``wait`` for it as a first call does. Whether it is decided what runs the graph."""
        with self._lock:
            if self._answer is not None:
                self._decide([], wait=wait)
        return self._decided

    # -- what runs it ----------------------------------------------------------------------------

    def _undecided(self, inputs: list[Any]) -> Sequence[Any]:
        """A call before it is known what runs the graph. At the first one Inductor compiles, and answers, while the file is written."""
        with self._lock, torch.no_grad():
            begins = self._answer is None
            self._decide(inputs)
            if self._decided or not begins:
                return self._run(inputs)
            if self._inductor is None:
                self._decide([], wait=True)
                return self._run(inputs)
            with orders.meanwhile():
                result = self._run(inputs)
            self._decide([], wait=True)
            return result

    def _eager(self, inputs: list[Any]) -> Sequence[Any]:
        result: Sequence[Any] = self._graph(*inputs)
        return result

    def _decide(self, inputs: list[Any], *, wait: bool = False) -> None:
        """Choose what runs the graph from now on; left open while it is being written. It is waited for once."""
        if self._decided:
            return
        start = time.perf_counter()
        try:
            if self._answer is None:
                self._begin(inputs)
            if self._answer is not None and wait and not self._waited:
                self._wait(self._answer)
            if self._answer is not None and self._answer.done():
                self._decided = True
                self._take(self._answer.result())
        except KernelLLMError as error:
            self._leave(error.what)
        except Exception as error:
            log.debug("the traceback", exc_info=error)
            self._leave(f"{type(error).__name__}: {error}")  # plain torch.compile would not raise it
        self.record.seconds += time.perf_counter() - start

    def _begin(self, inputs: list[Any]) -> None:
        """Look for the file on disk, or have it written."""
        from kernelllm.app.dynamo import disk

        parts = self._parts = apart(self._graph)
        computed = decomposed(parts.computed)
        if not any(n.op == "call_function" for n in computed.graph.nodes):
            return self._stay_eager("there is nothing to compute")
        if left_to_libraries(computed.graph):
            return self._stay_eager("it has nothing but products and views, which libraries do")
        given = [*inputs, *parts.constants]
        device = _device(given)
        if device is None:
            return self._leave("its tensors are on several devices, or on one that is neither a CPU nor CUDA")
        fakes = [noted(n) for n in _placeholders(computed)]
        self._key = disk.key(graph_problem(computed, fakes, name="graph"), device, _conv_tf32(device))
        found = disk.get(self._key) if self._options.cache else None
        if found is not None and (found.verified or not found.source or self._options.verify == "off"):
            self.record.from_disk = True
            self._answer = Future()
            return self._answer.set_result(found)
        problem = graph_problem(computed, given, name=self.record.name.replace(" ", "_"))
        problem = msgspec.structs.replace(problem, origin=OF_TORCH_COMPILE)
        order = f"{self._key} {self._options.verify == 'off'}"
        self._answer = orders.ordered(order, lambda: self._written(problem, device))
        if self._options.verify != "background" and self._options.fallback == "inductor" and _has_inductor(device):
            self._run = self._inductor = self._by_inductor()
        return None

    def _wait(self, answer: Future[Written]) -> None:
        """Wait as long as the options allow; then Inductor or eager runs the graph until it is written."""
        self._waited = True
        if not orders.wait_for(answer, 0.0 if self._options.verify == "background" else self._options.wait_s):
            self.record.became("waiting", f"it is being written, {'Inductor' if self._inductor else 'eager'} runs it until then")

    def _written(self, problem: Any, device: str) -> Written:
        from kernelllm.app.dynamo import disk
        from kernelllm.app.dynamo.writing import Order, Written

        try:
            order = Order(problem, self._options.verify != "off", device, _conv_tf32(device))
            found = orders.processes().write(order, self._options.time_limit_s)
        except KernelLLMError as error:
            return Written(message=error.what)
        if self._options.cache:
            disk.put(self._key, found)
        return found

    def _take(self, found: Written) -> None:
        """Run the written file from now on, if there is one and this machine can run it."""
        from kernelllm.app.dynamo import disk

        self.record.verified, self.record.write_s, self.record.judge_s = found.verified, found.write_s, found.judge_s
        if not found.source:
            return self._leave(found.message)
        parts = self._parts
        assert parts is not None
        device = next(n.device for n in map(noted, self._graph.graph.nodes) if isinstance(n, torch.Tensor))
        try:
            if device.type == "cpu" and not in_process.interpreted():
                _warn_of_cpu()
                self._run = self._eager
                return self.record.became("checked")
            module = disk.loaded(self._key, found.source)
            self.record.file = str(module.__file__)
            vars(module)["check"] = _checked_by_dynamo
            model = module.ModelNew().to(device)
        except Exception as error:  # noqa: BLE001 - a written file that fails here is left out, whatever the cause
            return self._leave(f"the written file does not load: {type(error).__name__}: {error}")
        layouts = [_layout(r) for r in _results(parts.computed)]
        forward, views = model.forward, parts.views.forward if _results(parts.views) else None
        told = told_by_shapes(parts.computed)
        taken = [i for i, n in enumerate(_placeholders(parts.computed)) if n.name not in told]

        def run(inputs: list[Any]) -> Sequence[Any]:
            given = [*inputs, *parts.constants]
            try:
                with in_process.on(device):
                    computed = forward(*(given[i] for i in taken))
            except torch.OutOfMemoryError:
                raise
            except Exception as error:  # noqa: BLE001 - a guard of the file, or a fault in it: eager is always right
                self._leave(f"the written file failed: {type(error).__name__}: {error}")
                return self._run(inputs)
            computed = [_laid_out(t, s) for t, s in zip(computed, layouts, strict=True)]
            return parts.joined(computed, views(*given) if views else ())

        self._run = run
        if self._whole and self._inductor is not None and _races(device):
            self._run = Race(run, self._inductor, lambda faster, cause: self._raced(run, cause, faster=faster))
        return self.record.became("written")

    def _raced(self, run: Run, cause: str, *, faster: bool) -> None:
        """The faster one stays, in later processes too."""
        from kernelllm.app.dynamo import disk
        from kernelllm.app.dynamo.writing import Written

        if self.record.state != "written":
            return
        self._run = run
        if not faster:
            if self._options.cache:
                disk.put(self._key, Written(message=cause))
            self._leave(cause)

    def _leave(self, cause: str) -> None:
        self._decided = True
        cause = " ".join(cause.split())
        cause = cause if len(cause) <= 400 else f"{cause[:250]} ... {cause[-150:]}"  # a command that failed says how at its end
        if self._options.fallback == "eager" or self.record.state == "inductor" or self._inductor_failed:
            return self._stay_eager("; ".join(filter(None, (cause, self._inductor_failed))))
        self._inductor = self._run = self._inductor or self._by_inductor()
        return self.record.became("inductor", cause)

    def _by_inductor(self) -> Run:
        def failed(error: str) -> None:
            self._inductor_failed = error
            if self.record.state == "written":
                return  # the race goes on against eager
            self._run = self._eager
            if self._decided:
                self._stay_eager(f"{self.record.cause}; {error}")

        return ByInductor(self._graph, failed)

    def _stay_eager(self, cause: str) -> None:
        self._decided = True
        self._run = self._eager
        self.record.became("eager", cause)


_cpu_warned = False


def _checked_by_dynamo(*_: Any) -> None:
    """Stands for the guards of a file: Dynamo guards dtypes, devices and sizes, and has done so when a graph is called."""


def _device(values: list[Any]) -> str | None:
    """The one device of the tensors among the inputs, None where there is none or several."""
    devices = {v.device for v in values if isinstance(v, torch.Tensor)}
    if len(devices) != 1:
        return None
    device = devices.pop()
    return str(device) if device.type in ("cpu", "cuda") else None


def _has_inductor(device: str) -> bool:
    """Whether Inductor runs graphs there while they are being written. On a CPU it needs a C++ compiler, and eager stays in the end."""
    return device != "cpu"


def _races(device: torch.device) -> bool:
    """Whether what runs there can be timed."""
    return device.type == "cuda"


def _conv_tf32(device: str) -> bool:
    """Whether eager's fp32 convolutions may round to TF32 there: on a GPU, unless the user has switched it off."""
    if device == "cpu":
        return False
    try:
        return bool(torch.backends.cudnn.allow_tf32)
    except RuntimeError:  # set for single operators
        by_operator: Any = torch.backends.cudnn
        return bool(by_operator.conv.fp32_precision == "tf32")


def _warn_of_cpu() -> None:
    global _cpu_warned
    if not _cpu_warned:
        _cpu_warned = True
        log.warning(
            "There is no GPU: graphs are written and verified, and eager runs them. TRITON_INTERPRET=1, set before Python starts, runs the"
            " written kernels in Triton's interpreter, slowly."
        )


def _placeholders(graph: fx.GraphModule) -> list[fx.Node]:
    return [n for n in graph.graph.nodes if n.op == "placeholder"]


def _results(graph: fx.GraphModule) -> list[fx.Node]:
    return list(next(n for n in graph.graph.nodes if n.op == "output").args[0])


def _layout(node: fx.Node) -> tuple[int, ...] | None:
    """The order of a result's dimensions in memory, from the outermost to the innermost, that those who come after expect; empty for
    the usual one."""
    value = noted(node)
    if not isinstance(value, torch.Tensor) or any(s == 0 for s in map(hint, value.stride())):
        return None  # a repeated dimension is written out in the usual order
    order = sorted(range(value.dim()), key=lambda d: hint(value.stride()[d]), reverse=True)
    return tuple(order) if order != list(range(value.dim())) else ()


def _laid_out(tensor: Any, order: tuple[int, ...] | None) -> Any:
    """The tensor, dense in that order: itself, or a copy. What can be viewed in eager's layout, holes or not, can be viewed in this."""
    if order is None or not isinstance(tensor, torch.Tensor):
        return tensor
    if not order:
        return tensor.contiguous()  # itself, mostly
    ordered = tensor.permute(order)
    if ordered.is_contiguous():
        return tensor
    return ordered.contiguous().permute(sorted(range(len(order)), key=order.__getitem__))
