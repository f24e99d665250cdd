"""A cheaper launch: what Triton works out about a launch's arguments is cached for the next launch like it."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import Any

from kernelllm.core.text import syntax_tree

STRAIGHT = "straight"
TEXT_STRAIGHT = '''
def straight(run, handles, given):
    """A launch of what Triton compiled, with other tensors: the driver gets their addresses and looks none up."""
    if type(run).__name__ != "CudaLauncher" or run.global_scratch_size or getattr(run, "profile_scratch_size", 0):
        return lambda extents, stream, addresses, tensors, rest: run(
            *extents, stream, *handles, None, None, None, *tensors, *rest
        )
    order, launch, count = [], run.launch, sum(hasattr(one, "data_ptr") for one in given)
    run.launch = lambda *arguments: order.extend(arguments)  # what this version of Triton hands to the driver
    try:
        run(0, 0, 0, 0, *handles, None, None, None, *given)
    finally:
        run.launch = launch
    if isinstance(order[-1], tuple):
        before = order[4:-1]
        return lambda extents, stream, addresses, tensors, rest: launch(
            *extents, stream, *before, (*addresses, *tensors[count:], *rest)
        )
    before = order[4 : -len(given)]
    return lambda extents, stream, addresses, tensors, rest: launch(
        *extents, stream, *before, *addresses, *tensors[count:], *rest
    )
'''
NAME = "Launcher"
TEXT = '''
class Launcher:
    """A kernel of Triton that goes straight to the driver from its second launch with such arguments on."""

    def __init__(self, kernel):
        self.kernel, self.known, self.kinds, self.tuned = kernel, {}, {}, isinstance(kernel, triton.runtime.Autotuner)
        self.pointers = sum("_ptr" in name for name in kernel.arg_names)  # they come first

    def __getitem__(self, grid):
        def launch(*arguments, **named):
            tensors, numbers = arguments[: self.pointers], arguments[self.pointers :]
            device = tensors[0].get_device()
            where = grid(self.kernel.configs[0].kwargs) if callable(grid) else grid
            key = (device, where, numbers, *map(type, numbers), *named.values(), *[tensor.dtype for tensor in tensors])
            known = self.known.get(key)
            addresses = [tensor.data_ptr() for tensor in tensors]
            aligned = not any([address & 15 for address in addresses])  # Triton compiles for that
            aligned = aligned and all([tensor.get_device() == device for tensor in tensors])
            if known and aligned:
                run, extents, stream, rest = known
                run(extents, stream(device), addresses, arguments, rest)
                return
            kind = (device, *map(self.kind, self.kernel.arg_names[self.pointers :], numbers), *key[3 + len(numbers) :])
            if aligned and kind in self.kinds:  # a new size, for which Triton compiles nothing new
                run, best, stream, rest = self.kinds[kind]
                extents = (*(grid(best) if callable(grid) else grid), 1, 1)[:3]
                run(extents, stream(device), addresses, arguments, rest)
                return
            compiled = self.kernel[grid](*arguments, **named)
            if compiled and aligned and device == torch.cuda.current_device() and len(self.known) < 256:
                best = self.kernel.best_config.kwargs if self.tuned else {}
                extents = grid(best) if callable(grid) else grid
                rest = [{**named, **best}[name] for name in self.kernel.arg_names[len(arguments) :]]
                run = straight(compiled.run, (compiled.function, compiled.packed_metadata), (*arguments, *rest))
                stream = triton.runtime.driver.active.get_current_stream
                self.known[key] = run, (*extents, 1, 1)[:3], stream, rest
                if not self.tuned:  # which a new size is, if it is
                    self.kinds[kind] = run, best, stream, rest

        return launch

    def kind(self, name, number):
        """What Triton compiles for, of a number that is no constant: whether it is 1, divisible by 16, of 64 bits."""
        constant = self.tuned or "constexpr" in str(self.kernel.fn.__annotations__.get(name))
        return number if constant else (type(number), number == 1, number % 16 == 0, abs(number) >= 2**31)
'''
ALIKE = "AlikeLauncher"
TEXT_ALIKE = '''
class AlikeLauncher:
    """A kernel whose launches differ in their tensors alone. From its second on they go straight to the driver."""

    def __init__(self, kernel):
        self.kernel, self.known = kernel, {}

    def __getitem__(self, grid):
        self.grid = grid  # of every launch
        return self.launch

    def launch(self, *arguments, **named):
        device = arguments[0].get_device()
        if device in self.known:
            dtypes, run, extents, stream, rest = self.known[device]
            addresses = []
            for dtype, tensor in zip(dtypes, arguments):
                address = tensor.data_ptr()
                if address & 15 or tensor.dtype is not dtype or tensor.get_device() != device:
                    break  # Triton compiles for that
                addresses.append(address)
            else:
                run(extents, stream(device), addresses, arguments, rest)
                return
        kernel, grid = self.kernel, self.grid
        compiled = kernel[grid](*arguments, **named)
        tensors = [argument for name, argument in zip(kernel.arg_names, arguments) if "_ptr" in name]
        if compiled and device == torch.cuda.current_device() and not any([tensor.data_ptr() & 15 for tensor in tensors]):
            best = kernel.best_config.kwargs if isinstance(kernel, triton.runtime.Autotuner) else {}
            extents = grid(best) if callable(grid) else grid
            rest = [{**named, **best}[name] for name in kernel.arg_names[len(arguments) :]]
            run = straight(compiled.run, (compiled.function, compiled.packed_metadata), (*arguments, *rest))
            stream = triton.runtime.driver.active.get_current_stream
            known = [tensor.dtype for tensor in tensors], run, (*extents, 1, 1)[:3], stream, rest
            self.known.setdefault(device, known)
'''
MANY = 3
"""A file with so many launches uses it, and every file with a path for known sizes."""

_KERNEL = re.compile(r"^(?:@triton\.autotune\(\n(?:    .*\n)*\)\n)?@triton\.jit(?:\([^)]*\))?\ndef (\w+)\(([^)]*)\)", re.MULTILINE)
"""A kernel, and how it is tuned."""
_UNPACKED = re.compile(r"[(,]\s*\*\*")
"""Options of a launch that the file puts together, such as that of a cooperative grid: Triton looks at them each time."""
_CONSTANT = {"triton", "max", "min"}
"""Names whose meaning never changes."""


def wrapped(sections: Sequence[str], host: str, *, always: bool) -> list[str]:
    """The definitions of a file with its kernels launched that way, where there are many launches or ``always``.

    ``host``: the statements that launch.
    """
    whole = "\n".join([*sections, host])
    launches = _launches(whole)
    if not always and sum(name.endswith("_kernel") for name, _ in launches) < MANY:
        return list(sections)
    used = set()

    def decorated(found: re.Match[str]) -> str:
        name, pointers = found[1], ["_ptr" in argument for argument in found[2].split(",")]
        first = pointers[0] and pointers == sorted(pointers, reverse=True) and not found.string[: found.start()].endswith(f"{NAME}\n")
        calls = [call for other, call in launches if other == name]
        if not calls or not first or any(_UNPACKED.search(call) for call in calls):
            return found[0]
        way = ALIKE if _alike(calls, sum(pointers)) else NAME
        used.add(way)
        return f"@{way}\n{found[0]}"

    made = [_KERNEL.sub(decorated, text) for text in sections]
    texts = [text.strip() for way, text in ((NAME, TEXT), (ALIKE, TEXT_ALIKE)) if way in used]
    return [TEXT_STRAIGHT.strip(), *texts, *made] if texts else made


def launched_again(source: str) -> str:
    """A file whose kernels are launched in a loop, with all of them launched that way."""
    lines, classes = source.splitlines(), []
    for statement in reversed(syntax_tree(source).body):
        found = isinstance(statement, ast.ClassDef | ast.FunctionDef) and statement.name in (STRAIGHT, NAME, ALIKE)
        if found:  # it may stand behind kernels of another part
            span = slice(statement.lineno - 1, statement.end_lineno)
            classes.append("\n".join(lines[span]))
            del lines[span]
    *more, text = wrapped(["\n".join(lines)], "", always=True)
    lines = text.splitlines()
    at = max((s.end_lineno or 0 for s in syntax_tree(text).body if isinstance(s, ast.Import | ast.ImportFrom)), default=0)
    lines[at:at] = [line for one in dict.fromkeys([*classes, *more]) for line in ("", "", *one.splitlines())]
    return re.sub(r"\n{4,}", "\n\n\n", "\n".join(lines) + "\n")


def _launches(text: str) -> list[tuple[str, str]]:
    """The launches in a text: the kernel's name and the whole call."""
    found = []
    for start in re.finditer(r"\b(\w+)\[", text):
        call = _bracketed(text, start.end() - 1)
        if call and text[call : call + 1] == "(" and (end := _bracketed(text, call)):
            found.append((start[1], text[start.start() : end]))
    return found


def _bracketed(text: str, at: int) -> int:
    """Where what a bracket opens has ended; 0 where it does not."""
    depth = 0
    for found in re.finditer(r"[()\[\]]", text[at:]):
        depth += 1 if found[0] in "([" else -1
        if not depth:
            return at + found.end()
    return 0


def _alike(calls: Sequence[str], pointers: int) -> bool:
    """Whether launches have one grid and the same numbers, all of them written out."""
    rests = set()
    for text in calls:
        call: Any = syntax_tree(text, mode="eval").body
        rest: list[ast.AST] = [call.func.slice, *call.args[pointers:], *call.keywords]
        own = {argument.arg for part in rest for argument in ast.walk(part) if isinstance(argument, ast.arg)}
        free = {name.id for part in rest for name in ast.walk(part) if isinstance(name, ast.Name)} - own - _CONSTANT
        if free or any(isinstance(argument, ast.Starred) for argument in call.args):
            return False
        rests.add(" ".join(map(ast.dump, rest)))
    return len(rests) == 1
