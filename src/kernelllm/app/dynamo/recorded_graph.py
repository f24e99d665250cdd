"""A graph of AOTAutograd's that is replayed as a CUDA graph, by the trees of CUDA graphs that Inductor's own code is recorded with.

One launch of the host replays the whole graph. It is asked for by ``mode="reduce-overhead"`` or ``"max-autotune"``, and holds for what
runs by written files as it does for what Inductor compiles: outputs are overwritten by the next step.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

import torch
from torch import fx

from kernelllm.problems.graphs.graph_text import traced_value

if TYPE_CHECKING:
    from kernelllm.app.dynamo.graph_report import GraphRecord

Kind = Literal["forward", "backward", "inference"]
PLAIN_CALLS = 4
"""Calls before the recording: kernels compile, constants are made and host code is prepared, all outside of the graph's memory."""
MOST_SIZES = 8
"""Sizes of one graph that are recorded, each with memory of its own."""


class Recordable(Protocol):
    """What runs a graph. It empties the list that it is called with."""

    records: list[GraphRecord]
    """What the report says of its parts."""

    @property
    def settled(self) -> bool:
        """Whether it is decided what runs each part."""
        ...

    def __call__(self, boxed: list[Any]) -> Sequence[Any]: ...


class ForwardRecording:
    """What the backward of a graph needs to know of its forward."""

    recorded = False
    static: frozenset[str] = frozenset()
    """Names of inputs at fixed addresses: parameters, buffers, what a user marks so."""


class RecordedGraph:
    """Called as a graph of AOTAutograd's: runs what it is given, after ``PLAIN_CALLS`` calls of the same sizes as a CUDA graph.

    Not recorded: a graph with tensors elsewhere than on one GPU, with operators that CUDA graphs exclude, or with files that wait for
    the GPU. A backward is recorded behind a recorded forward alone.
    """

    def __init__(self, run: Recordable, kind: Kind, graph: fx.GraphModule, forward: ForwardRecording) -> None:
        self._boxed_call = True  # of the object: torch copies it to what it wraps around
        self._run, self._kind, self._forward = run, kind, forward
        places = graph.graph.find_nodes(op="placeholder")
        self._numbers = [i for i, node in enumerate(places) if not isinstance(traced_value(node), torch.Tensor)]
        self._index = _device_index(graph)
        self._wanted = _recordable(graph)
        self._replayed: Callable[[list[Any]], Sequence[Any]] | None = None
        self._calls = dict[tuple[Any, ...], int]()
        self._recording = self._arguments(graph) if self._wanted else {}

    def __call__(self, boxed: list[Any]) -> Sequence[Any]:
        sizes = tuple([boxed[i] for i in self._numbers])
        calls = self._calls.get(sizes, 0)
        if calls > PLAIN_CALLS and self._replayed is not None:
            return self._replayed(boxed)
        if not self._wanted or not self._run.settled or (not calls and len(self._calls) >= MOST_SIZES):
            return self._plain(boxed)
        self._calls[sizes] = min(calls + 1, PLAIN_CALLS)
        if calls < PLAIN_CALLS:
            return self._plain(boxed, watched=calls + 1 == PLAIN_CALLS)
        if self._kind == "backward" and not self._forward.recorded:
            return self._run(boxed)
        self._calls[sizes] = PLAIN_CALLS + 1
        if self._replayed is None:
            from torch._inductor.compile_fx import cudagraphify

            self._replayed = cudagraphify(self._run, **self._recording)
            self._forward.recorded |= self._kind == "forward"
            for record in self._run.records:
                record.recorded = True
        return self._replayed(boxed)

    def _plain(self, boxed: list[Any], *, watched: bool = False) -> Sequence[Any]:
        """By launches. ``watched``: a graph that waits for the GPU is not recorded."""
        if self._kind == "backward" and self._forward.recorded:
            from torch._inductor.cudagraph_trees import get_manager

            manager = get_manager(self._index, create_if_none_exists=False)
            if manager is not None:
                manager.set_to_running_backward()
        if not watched:
            return self._run(boxed)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            before = torch.cuda.get_sync_debug_mode()
            torch.cuda.set_sync_debug_mode("warn")
            try:
                result = self._run(boxed)
            finally:
                torch.cuda.set_sync_debug_mode(before)
        self._wanted = not any("called a synchronizing" in str(w.message) for w in seen)
        return result

    def _arguments(self, graph: fx.GraphModule) -> dict[str, Any]:
        from torch._dynamo.backends.cudagraphs import find_input_mutations
        from torch._inductor.compile_fx import get_static_input_idxs
        from torch._inductor.cudagraph_utils import get_placeholder_info

        names = [node.name for node in graph.graph.find_nodes(op="placeholder")]
        if self._kind == "backward":
            static = [i for i, name in enumerate(names) if name in self._forward.static]
        else:
            static = list(get_static_input_idxs(0))
            self._forward.static = frozenset(names[i] for i in static)
        results: Any = graph.graph.output_node().args[0]
        return {
            "static_input_idxs": static,
            "device_index": self._index,
            "stack_traces": [result.stack_trace if isinstance(result, fx.Node) else None for result in results],
            "is_backward": self._kind == "backward",
            "is_inference": self._kind == "inference",
            "placeholders": get_placeholder_info(graph.graph),
            "mutated_input_idxs": tuple(sorted(find_input_mutations(graph.graph))),
        }


def _device_index(graph: fx.GraphModule) -> int:
    indices = [v.device.index for v in map(traced_value, graph.graph.nodes) if isinstance(v, torch.Tensor) and v.is_cuda]
    return next((index for index in indices if index is not None), torch.cuda.current_device() if indices else 0)


def _recordable(graph: fx.GraphModule) -> bool:
    """Whether one CUDA graph can hold it: on one GPU, without operators that none can hold."""
    from torch._inductor.utils import get_first_incompatible_cudagraph_node

    devices = {v.device for v in map(traced_value, graph.graph.nodes) if isinstance(v, torch.Tensor)}
    return {device.type for device in devices} == {"cuda"} and len(devices) == 1 and get_first_incompatible_cudagraph_node(graph) is None
