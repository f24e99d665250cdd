"""A callable for one graph of AOTAutograd's: eager until its file is written and verified, then that file."""

from __future__ import annotations

import copy
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
from kernelllm.app.dynamo import compile_jobs
from kernelllm.app.dynamo.any_device import decomposed
from kernelllm.app.dynamo.graph_parts import GraphParts, kept_weights, left_to_libraries, split_results
from kernelllm.app.dynamo.graph_report import GraphRecord, compile_report
from kernelllm.app.dynamo.written_graph import Run, placeholders, written_run
from kernelllm.core.errors import KernelLLMError
from kernelllm.core.types import OF_TORCH_COMPILE, Problem
from kernelllm.problems.graphs.graph_problem import graph_problem
from kernelllm.problems.graphs.graph_text import traced_value

if TYPE_CHECKING:
    from kernelllm.app.dynamo.choice import GraphChoice
    from kernelllm.app.dynamo.writing import WriteResult

log = logging.getLogger("kernelllm")


class GraphKernel:
    """Called with a list of inputs, which it empties, as AOTAutograd does it. Never raises what the graph itself would not."""

    def __init__(self, name: str, graph: fx.GraphModule, choice: GraphChoice) -> None:
        self._boxed_call = True  # of the object: torch copies it to what it wraps around
        self._graph, self._choice, self._options = graph, choice, choice.options
        operators = sum(n.op == "call_function" for n in graph.graph.nodes)
        self.record = GraphRecord(name, operators, settle=weakref.WeakMethod(self.settle))
        self.records = [self.record]
        compile_report().graphs.append(self.record)
        choice.parts.append(self)
        self._with_copies: fx.GraphModule | None = None
        self._run: Run = self._eager
        self._decided = self._waited = False
        self._lock = threading.Lock()
        self._answer: Future[WriteResult] | None = None
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

    def in_eager(self, inputs: list[Any]) -> Sequence[Any]:
        """Eager's results, while the file is being written: :meth:`settle` waits for it."""
        with self._lock, torch.no_grad():
            self._decide(inputs)
            return self._eager(inputs)

    @property
    def begun(self) -> bool:
        """Whether the graph was called."""
        return self._decided or self._answer is not None

    @property
    def settled(self) -> bool:
        """Whether it is decided what runs the graph."""
        return self._decided

    @property
    def kept(self) -> bool:
        """Whether what became of it is the same in a later process."""
        from kernelllm.app.dynamo import graph_cache

        return not self._key or graph_cache.get(self._key) is not None

    def settle(self, *, wait: bool = True) -> bool:
        """Take the file if it is there; ``wait`` for it as a first call does. Whether it is decided what runs the graph."""
        if not self._decided:
            with self._lock:
                if self._answer is not None:
                    self._decide([], wait=wait)
        return self._decided

    # -- what runs it ----------------------------------------------------------------------------

    def _undecided(self, inputs: list[Any]) -> Sequence[Any]:
        """A call before it is known what runs the graph. The first one waits for the file."""
        with self._lock, torch.no_grad():
            self._decide(inputs)
            self._decide([], wait=True)
            return self._run(inputs)

    def _eager(self, inputs: list[Any]) -> Sequence[Any]:
        graph = self._with_copies or self._graph
        try:
            result: Sequence[Any] = graph(*inputs)
        except RuntimeError as error:
            if self._with_copies or "view size is not compatible" not in str(error):
                raise
            self._with_copies = _viewed_or_copied(self._graph)
            return self._eager(inputs)
        return result

    def _decide(self, inputs: list[Any], *, wait: bool = False) -> None:
        """Choose what runs the graph from now on; left open while it is being written. It is waited for once."""
        if self._decided:
            return
        start = time.perf_counter()
        try:
            if self._answer is None:
                self._choice.begins()
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
        from kernelllm.app.dynamo import graph_cache

        parts = self._parts = split_results(self._graph)
        computed = decomposed(parts.computed)
        if not any(n.op == "call_function" for n in computed.graph.nodes):
            return self._leave("there is nothing to compute")
        if left_to_libraries(computed.graph):
            return self._leave("it has nothing but products and views, which libraries do")
        given = [*inputs, *parts.constants]
        device = _device(given)
        if device is None:
            return self._leave("its tensors are on several devices, or on one that is neither a CPU nor CUDA")
        if not (parts.written or parts.copied) and self.record.name.startswith("inference"):
            parts.weights = kept_weights(parts.computed.graph, given)
        fakes = [traced_value(n) for n in placeholders(computed)]
        self._key = graph_cache.key(_problem(computed, fakes, parts, "graph").source, device, _conv_tf32(device))
        found = self._on_disk()
        if found is not None:
            self.record.from_disk = True
            self._answer = Future()
            return self._answer.set_result(found)
        problem = _problem(computed, given, parts, self.record.name.replace(" ", "_"))
        problem = msgspec.structs.replace(problem, origin=OF_TORCH_COMPILE)
        job = f"{self._key} {self._options.verify == 'off'}"
        self._answer = compile_jobs.submit(job, lambda: self._written(problem, device))
        return None

    def _on_disk(self) -> WriteResult | None:
        """What was written before, if it may be used."""
        from kernelllm.app.dynamo import graph_cache

        found = graph_cache.get(self._key) if self._options.cache else None
        usable = found is not None and (found.verified or not found.source or self._options.verify == "off")
        return found if usable else None

    def _wait(self, answer: Future[WriteResult]) -> None:
        """Wait as long as the options allow."""
        self._waited = True
        if not compile_jobs.wait_for(answer, 0.0 if self._options.verify == "background" else self._options.wait_s):
            self.record.became("waiting", "it is being written")

    def _written(self, problem: Any, device: str) -> WriteResult:
        from kernelllm.app.dynamo import graph_cache
        from kernelllm.app.dynamo.writing import WriteRequest, WriteResult

        found = self._on_disk()  # an equal graph may have been written since
        if found is not None:
            return found
        try:
            request = WriteRequest(problem, self._options.verify != "off", device, _conv_tf32(device))
            found = compile_jobs.processes().write(request, self._options.time_limit_s)
        except KernelLLMError as error:
            return WriteResult(message=error.what)
        if self._options.cache:
            graph_cache.put(self._key, found)
        return found

    def _take(self, found: WriteResult) -> None:
        """Run the written file from now on, if there is one and this machine can run it."""
        from kernelllm.app.dynamo import graph_cache

        self.record.verified, self.record.write_s, self.record.judge_s = found.verified, found.write_s, found.judge_s
        if not found.source:
            return self._leave(found.message)
        assert self._parts is not None
        device = next(n.device for n in map(traced_value, self._graph.graph.nodes) if isinstance(n, torch.Tensor))
        if device.type == "cpu" and not in_process.runs_without_gpu():
            _warn_of_cpu()
            return self.record.became("checked")
        try:
            module = graph_cache.loaded(self._key, found.source)
            self.record.file = str(module.__file__)
            run = written_run(module, self._parts, device)
        except Exception as error:  # noqa: BLE001 - a written file that fails here is left out, whatever the cause
            return self._leave(f"the written file does not load: {type(error).__name__}: {error}")
        self._run = self._or_eager(run)
        return self.record.became("written")

    def _or_eager(self, run: Run) -> Run:
        """The file, and eager from the first call on in which it fails. After a call that went well it may have changed inputs."""
        changes = bool(self._parts and self._parts.written)
        ran = False

        def tried(inputs: list[Any]) -> Sequence[Any]:
            nonlocal ran
            try:
                result = run(inputs)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:
                if ran and changes:
                    raise
                cause = f"the written file failed: {type(error).__name__}: {error}"
                self._leave(cause)
                self._choice.failed(self.record.cause)
                return self._run(inputs)
            ran = True
            return result

        return tried

    def _leave(self, cause: str) -> None:
        """Eager runs it from now on, if it runs."""
        self._decided = True
        self._run = self._eager
        cause = " ".join(cause.split())
        cause = cause if len(cause) <= 400 else f"{cause[:250]} ... {cause[-150:]}"  # a command that failed says how at its end
        self.record.became("inductor" if self._choice.has_inductor else "eager", cause)


def _viewed_or_copied(graph: fx.GraphModule) -> fx.GraphModule:
    """The graph with copies where strides are others than those of the trace, so that nothing can be viewed; Inductor's code copies too."""
    made = fx.GraphModule(graph, copy.deepcopy(graph.graph))
    for node in made.graph.find_nodes(op="call_function", target=torch.ops.aten.view.default):
        node.target = torch.ops.aten.reshape.default
    made.recompile()
    return made


def _problem(computed: fx.GraphModule, inputs: Sequence[Any], parts: GraphParts, name: str) -> Problem:
    """The problem of the graph; of the weights only what they hold, not that they are trained."""
    given = [v.detach() if i in parts.weights else v for i, v in enumerate(inputs)]
    return graph_problem(computed, given, name=name, state={n: given[i] for i, n in parts.weights.items()})


_cpu_warned = False


def _device(values: list[Any]) -> str | None:
    """The one device of the tensors among the inputs, None where there is none or several."""
    devices = {v.device for v in values if isinstance(v, torch.Tensor)}
    if len(devices) != 1:
        return None
    device = devices.pop()
    return str(device) if device.type in ("cpu", "cuda") else None


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
            "There is no GPU: graphs are written and verified, but not run by what was written. TRITON_INTERPRET=1, set before Python"
            " starts, runs the written kernels in Triton's interpreter, slowly."
        )
