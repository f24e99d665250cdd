"""Looks through the interpreter for the harness: stack frames, live objects, loaded modules."""

from __future__ import annotations

import ast

from kernelllm.core.types import Finding
from kernelllm.judge.checks.syntax import analyse, starts
from kernelllm.judge.observation import Observation

_CERTAIN = (
    "sys._getframe", "sys._current_frames", "sys._current_exceptions", "sys._getframemodulename", "inspect.stack", "inspect.currentframe",
    "inspect.trace", "inspect.getouterframes", "inspect.getinnerframes", "gc.get_objects", "gc.get_referrers", "gc.get_referents",
    "traceback.walk_stack", "traceback.extract_stack", "traceback.StackSummary", "__main__", "kernelllm",
    "threading._active", "threading.enumerate", "torch._C._cuda_memorySnapshot", "torch.cuda.memory_snapshot", "tracemalloc",
    "weakref.getweakrefs", "sys.last_value", "sys.last_traceback", "faulthandler",
)  # fmt: skip
_FRAME_ATTRIBUTES = {"f_back", "f_locals", "f_globals", "f_builtins", "tb_frame", "gi_frame", "cr_frame", "ag_frame", "__subclasses__"}
_EVENTS = {"gc.get_objects", "gc.get_referrers", "gc.get_referents"}


class Introspection:
    """See the module."""

    name = "introspection"
    describe = "looks through stack frames, live objects or loaded modules for the harness"

    def source(self, tree: ast.Module, text: str) -> list[Finding]:
        """Frames, garbage collector, modules of the harness."""
        known = analyse(tree)
        found = [
            Finding(check=self.name, message=f"Uses {use.path}.", line=use.line)
            for use in known.uses() if starts(use.path, *_CERTAIN)
        ]  # fmt: skip
        found += [
            Finding(check=self.name, message=f"Reads {node.attr!r} of a frame or class.", line=node.lineno)
            for node in known.attributes() if node.attr in _FRAME_ATTRIBUTES
        ]  # fmt: skip
        own = {
            node.value for node in analyse(tree).nodes
            if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Name) and node.slice.id == "__name__"
        }  # fmt: skip
        found += [
            Finding(check=self.name, message="Looks into sys.modules.", line=use.line)
            for use in known.uses() if use.path == "sys.modules" and use.node not in own
        ]  # fmt: skip
        return found

    def observed(self, seen: Observation) -> list[Finding]:
        """Audit events of the garbage collector while the model was built or run."""
        return [
            Finding(check=self.name, message=f"Called {event.name} ({event.count} times, while in {event.phase}).")
            for event in seen.events if event.name in _EVENTS
        ]  # fmt: skip
