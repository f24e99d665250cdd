"""A module whose launches are replayed as CUDA graphs: for calls that the host's launches bound. Written files may hold a copy."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import torch

PLAIN = (bool, int, float, str, type(None))
_PLAIN = "PLAIN = (bool, int, float, str, type(None))"


class CudaGraphs(torch.nn.Module):
    """Calls a module on a GPU through one CUDA graph for each set of shapes and types: the host launches once a call.

    The first call of a kind runs the module, the second records it. Inputs are copied in, and results are copies. It is recorded anew
    where a parameter or buffer was written or replaced, or a mode changed. Calls that a graph cannot stand for go to the module: with
    gradients or autocast, with other arguments than tensors on the current GPU and plain values, or where the module writes into its
    inputs. All calls come from one stream.
    """

    def __init__(self, module: torch.nn.Module, most: int = 8) -> None:
        """``most``: how many graphs are kept, each with the memory that the module needs."""
        super().__init__()
        self.module, self.most = module, most
        self.graphs: dict[Any, dict[str, Any]] = {}

    def forward(self, *inputs: Any, **named: Any) -> Any:
        values = [*inputs, *named.values()]
        key = self._key(values, named)
        if key is None:
            return self.module(*inputs, **named)
        tensors = [v for v in values if isinstance(v, torch.Tensor)]
        known = self.graphs.pop(key, None)
        if known is None or known["state"] != self._state():
            known = {"graph": None, "held": [t.clone() for t in tensors]}
            result = self._first(known, tensors, values, named)
        elif known["held"] is None:
            result = self.module(*inputs, **named)
        else:
            torch._foreach_copy_(known["held"], tensors)
            result = self._replayed(known, values, named)
        self.graphs[key] = known  # the latest comes last
        if len(self.graphs) > self.most:
            del self.graphs[next(iter(self.graphs))]
        return result

    def _key(self, values: list[Any], named: dict[str, Any]) -> Any:
        """What a graph holds for; None where none can."""
        tensors = [v for v in values if isinstance(v, torch.Tensor)]
        if torch.is_grad_enabled() or torch.is_autocast_enabled() or not all(t.is_cuda for t in tensors) or not tensors:
            return None
        device = torch.device("cuda", torch.cuda.current_device())
        if not all(t.device == device for t in tensors) or not all(isinstance(v, torch.Tensor) or type(v) in PLAIN for v in values):
            return None
        kinds = [(v.shape, v.stride(), v.dtype) if isinstance(v, torch.Tensor) else (type(v), v) for v in values]
        return (device, torch.is_inference_mode_enabled(), *named, *kinds)

    def _state(self) -> list[Any]:
        """What a graph does not see: where parameters and buffers lie, how often they were written, and modes."""
        found: list[Any] = []
        for module in self.module.modules():
            found.append(module.training)
            for tensor in (*module._parameters.values(), *module._buffers.values()):
                if tensor is not None:
                    found += [tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version]
        return found

    def _first(self, known: dict[str, Any], tensors: list[Any], values: list[Any], named: dict[str, Any]) -> Any:
        """Runs the module on copies of the inputs, as a graph will."""
        result = self._called(known["held"], values, named)
        pairs = list(zip(known["held"], tensors, strict=True))
        written = [(held, tensor) for held, tensor in pairs if not torch.equal(held, tensor)]
        for held, tensor in written:
            tensor.copy_(held)
        if written or any(held.stride() != tensor.stride() for held, tensor in pairs):
            known["held"] = None
        known["state"] = self._state()
        return result

    def _replayed(self, known: dict[str, Any], values: list[Any], named: dict[str, Any]) -> Any:
        if known["graph"] is None:
            graph = torch.cuda.CUDAGraph()
            try:
                with torch.cuda.graph(graph):
                    known["out"] = self._called(known["held"], values, named)
            except RuntimeError as error:
                warnings.warn(f"no CUDA graph for this call: {error}", stacklevel=4)
                result, known["held"] = self._called(known["held"], values, named), None
                return result
            known["graph"], known["state"] = graph, self._state()
        known["graph"].replay()
        return torch.utils._pytree.tree_map_only(torch.Tensor, torch.clone, known["out"])

    def _called(self, held: list[Any], values: list[Any], named: dict[str, Any]) -> Any:
        left = iter(held)
        given = [next(left) if isinstance(value, torch.Tensor) else value for value in values]
        count = len(values) - len(named)
        return self.module(*given[:count], **dict(zip(named, given[count:], strict=True)))


def added(source: str) -> str:
    """A file with the class at its end."""
    source = source.replace("import torch\n", "import warnings\nfrom typing import Any\n\nimport torch\n", 1)
    return f"{source}\n\n{_PLAIN}\n\n\n{inspect.getsource(CudaGraphs)}"
