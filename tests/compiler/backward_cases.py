"""Written backward passes in the emulator, beside eager: ``python backward_cases.py FOLDER``, one JSON line a case.

Each file ``NAME.py`` in the folder holds a problem, ``NAME_new.py`` what the compiler wrote for it.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.utils import _pytree as pytree

from kernelllm.backends.base import Mode, open_backend
from kernelllm.core.types import DEFAULT_BACKEND
from kernelllm.judge.worker import setup

STEPS = 8


def tell(result: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(result) + "\n")


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def pair(folder: Path, name: str) -> tuple[ModuleType, torch.nn.Module, torch.nn.Module]:
    """The problem, its model, and the written one with the same parameters."""
    problem, new = load(folder / f"{name}.py"), load(folder / f"{name}_new.py")
    models = problem.Model(*problem.get_init_inputs()), new.ModelNew(*problem.get_init_inputs())
    models[1].load_state_dict(models[0].state_dict())
    return problem, *models


def losses(model: torch.nn.Module, inputs: list[Any], steps: int) -> list[float]:
    """Of a short training by SGD."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = sum(out.square().mean() for out in pytree.tree_leaves(model(*inputs)) if out.is_floating_point())
        loss.backward()
        optimizer.step()
        found.append(float(loss))
    return found


def kept_bytes(model: torch.nn.Module, inputs: list[Any]) -> int:
    """What autograd keeps between forward and backward, parameters and inputs aside."""
    known = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers(), *inputs)}
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        held = model(*inputs)  # no memory is used twice as long as it is held
    del held
    return sum(size for where, size in kept.items() if where not in known)


def trained(folder: Path, name: str) -> None:
    problem, reference, mine = pair(folder, name)
    inputs = problem.get_inputs()
    memory = [kept_bytes(model, inputs) for model in (reference, mine)]
    tell({"name": name, "losses": [losses(model, inputs, STEPS) for model in (reference, mine)], "kept": memory})


def particular(folder: Path, name: str) -> None:
    """A model with several outputs, of which one has no gradient: parts of the gradients, frozen parameters, views, a second backward."""
    problem, reference, mine = pair(folder, name)
    (x,) = problem.get_inputs()
    results: dict[str, Any] = {"name": name}

    def gradients(model: torch.nn.Module, given: torch.Tensor, wanted: Any) -> list[torch.Tensor]:
        return list(torch.autograd.grad(wanted(model(given)), [p for p in (given, *model.parameters()) if p.requires_grad]))

    def error(wanted: Any, given: torch.Tensor) -> float:
        found = [gradients(model, given.detach().requires_grad_(given.requires_grad), wanted) for model in (reference, mine)]
        return max(float((a - b).abs().max()) for a, b in zip(*found, strict=True))

    leaf = x.clone().requires_grad_()
    results["all"] = error(lambda out: (out[0] * out[2]).sum(), leaf)
    results["one output"] = error(lambda out: out[0].square().sum(), leaf)
    results["expanded gradient"] = error(lambda out: out[2].sum(), leaf)
    results["no gradient of the input"] = error(lambda out: out[0].square().sum(), x)
    for model in (reference, mine):
        model.scale.requires_grad_(False)
    results["frozen parameter"] = error(lambda out: out[0].square().sum(), leaf)
    out = mine(leaf)
    results["has gradients"] = [t.requires_grad for t in out]
    try:
        torch.autograd.grad(out[0].sum(), leaf, create_graph=True)
    except RuntimeError as message:
        results["second backward"] = str(message)
    with torch.no_grad():
        results["without gradients"] = mine(x)[0].requires_grad
    tell(results)


if __name__ == "__main__":
    setup.prepare(Mode.INTERPRET, "sm_90", open_backend(DEFAULT_BACKEND))
    torch.manual_seed(0)
    for case in sys.argv[2:]:
        (particular if case == "particular" else trained)(Path(sys.argv[1]), case)
