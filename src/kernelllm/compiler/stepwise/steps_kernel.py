"""The text of an elementwise kernel with one step a line, and of the function that launches it."""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

from kernelllm.compiler.stepwise.step_values import StepValue, Unsupported

_TENSORS: Final = ("x", "y", "z", "w", "p", "q", "u", "v")
_NUMBERS: Final = ("a", "b", "c", "d", "e", "f", "g", "h", "k", "l", "m", "n")
_RESULTS: Final = ("t", "s", "r", "o", "t1", "t2", "t3", "t4")


class StepsKernel:
    """The kernel of one value, the last step. Raises Unsupported where no tensor has the result's shape."""

    def __init__(self, result: StepValue, name: str) -> None:
        self.name, self.result = name, result
        leaves = list(result.leaves())
        tensors = [leaf for leaf in leaves if leaf.tensor]
        full = [leaf for leaf in tensors if leaf.value.shape == result.value.shape and leaf.value.dtype == result.value.dtype]
        first = full[0] if full else next((leaf for leaf in tensors if leaf.value.dtype == result.value.dtype), None)
        if first is None or len(tensors) > len(_TENSORS) or not result.value.dtype.is_floating_point:
            raise Unsupported("a step without a tensor of the result's kind")
        self.whole = bool(full)
        self.tensors = [first, *(t for t in tensors if t is not first)]
        self.numbers = [leaf for leaf in leaves if not leaf.tensor]
        if len(self.numbers) > len(_NUMBERS):
            raise Unsupported("a kernel of so many numbers")
        names = [*zip(self.tensors, _TENSORS, strict=False), *zip(self.numbers, _NUMBERS, strict=False)]
        self.names = {id(leaf): name for leaf, name in names}
        self.used: set[str] = set()
        self.lines = self._steps()

    def call(self) -> str:
        """What the forward calls."""
        return f"{self.name}({', '.join(self._given(leaf) for leaf in (*self.tensors, *self.numbers))})"

    def _given(self, leaf: StepValue) -> str:
        if leaf is self.tensors[0] and not self.whole:
            shapes = ", ".join(f"{other.text}.shape" for other in self.tensors)
            return f"{leaf.text}.expand(torch.broadcast_shapes({shapes}))"
        if leaf.tensor and self._spread(leaf) is None:
            return f"{leaf.text}.expand_as({self.tensors[0].text})"
        return str(leaf.text)

    def _spread(self, leaf: StepValue) -> bool | None:
        """Whether a tensor has fewer elements than the result; None where they do not lie there in a row."""
        if leaf is self.tensors[0]:
            return False
        shape, whole = list(leaf.value.shape), list(self.result.value.shape)
        if shape == whole:
            return False
        own = [1] * (len(whole) - len(shape)) + shape
        wide = [i for i, size in enumerate(own) if size != 1]
        if wide and any(own[i] != whole[i] for i in range(wide[0], wide[-1] + 1)):
            return None
        return True

    def _steps(self) -> list[str]:
        uses: Counter[int] = Counter()
        order: list[StepValue] = []
        self._ordered(self.result, uses, order, set())
        lines = []
        for step in order:
            names = [self.names[id(part)] for part in step.parts]
            for part in step.parts:
                uses[id(part)] -= 1
            free = [n for part, n in zip(step.parts, names, strict=True) if not uses[id(part)] and n not in _NUMBERS]
            target = "x" if "x" in free else free[0] if free else self._fresh(uses)
            self.names[id(step)] = target
            lines.append(f"{target} = {step.form.format(*names)}")
            self.used.update(re.findall(r"\b([a-z_]\w*)\(", step.form))
        return lines

    def _ordered(self, step: StepValue, uses: Counter[int], order: list[StepValue], seen: set[int]) -> None:
        if step.text is not None or id(step) in seen:
            return
        seen.add(id(step))
        for part in step.parts:
            self._ordered(part, uses, order, seen)
            uses[id(part)] += 1
        order.append(step)

    def _fresh(self, uses: Counter[int]) -> str:
        taken = {name for key, name in self.names.items() if uses[key] > 0}
        found = next((n for n in _RESULTS if n not in taken), None)
        if found is None:
            raise Unsupported("a kernel of so many results")
        return found

    def text(self) -> str:
        """The kernel and the function that starts it."""
        tensors = list(zip(self.tensors, _TENSORS, strict=False))
        spread = {name: bool(self._spread(leaf)) for leaf, name in tensors}
        numbers = [name for _, name in zip(self.numbers, _NUMBERS, strict=False)]
        args = [part for n, s in spread.items() for part in ([f"{n}_ptr"] + ([f"{n}_step", f"{n}_size"] if s else []))]
        head = ", ".join([*args, *numbers, "out_ptr", "total", "BLOCK: tl.constexpr"])
        loads = [
            f"{n} = tl.load({n}_ptr + i{f' // {n}_step % {n}_size' if s else ''}, mask=mask, other=0.0).to(tl.float32)"
            for n, s in spread.items()
        ]
        given = [f"{n}.contiguous()" + (f", *places({n}, x)" if s else "") for n, s in spread.items()]
        result = self.names[id(self.result)]
        return "\n".join([
            "@triton.jit",
            f"def {self.name}_kernel({head}):",
            "    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)",
            "    mask = i < total",
            *(f"    {line}" for line in (*loads, *self.lines)),
            f"    tl.store(out_ptr + i, {result}.to(out_ptr.dtype.element_ty), mask=mask)",
            "",
            "",
            f"def {self.name}({', '.join([*spread, *numbers])}):",
            "    out = torch.empty(x.shape, device=x.device, dtype=x.dtype)",
            f"    {self.name}_kernel[(triton.cdiv(x.numel(), 1024),)]("
            f"{', '.join([*given, *numbers])}, out, x.numel(), BLOCK=1024)",
            "    return out",
        ])  # fmt: skip

    @property
    def needs(self) -> list[str]:
        """Names of the library that it has to have."""
        spread = any(self._spread(leaf) for leaf in self.tensors)
        return [*(["places"] if spread else []), *sorted(self.used)]
