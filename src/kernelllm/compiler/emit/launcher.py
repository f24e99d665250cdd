"""A launch that costs the host little: what Triton finds out about a launch's arguments is kept for the next one like it."""

from __future__ import annotations

import re
from collections.abc import Sequence

NAME = "Launcher"
TEXT = '''
class Launcher:
    """A kernel of Triton that goes straight to the driver from its second launch with such arguments on."""

    def __init__(self, kernel):
        self.kernel, self.known, self.tuned = kernel, {}, isinstance(kernel, triton.runtime.Autotuner)
        self.pointers = sum("_ptr" in name for name in kernel.arg_names)  # they come first

    def __getitem__(self, grid):
        def launch(*arguments, **named):
            tensors, numbers = arguments[: self.pointers], arguments[self.pointers :]
            device = tensors[0].get_device()
            where = grid(self.kernel.configs[0].kwargs) if callable(grid) else grid
            key = (device, where, numbers, *map(type, numbers), *named.values(), *[tensor.dtype for tensor in tensors])
            known = self.known.get(key)
            aligned = not any([tensor.data_ptr() & 15 for tensor in tensors])  # Triton compiles for that
            if known and aligned:
                run, extents, stream, handles, rest = known
                run(*extents, stream(device), *handles, None, None, None, *arguments, *rest)
                return
            compiled = self.kernel[grid](*arguments, **named)
            if compiled and aligned and device == torch.cuda.current_device() and len(self.known) < 256:
                best = self.kernel.best_config.kwargs if self.tuned else {}
                extents = grid(best) if callable(grid) else grid
                rest = [{**named, **best}[name] for name in self.kernel.arg_names[len(arguments) :]]
                handles, stream = (compiled.function, compiled.packed_metadata), triton.runtime.driver.active
                self.known[key] = compiled.run, (*extents, 1, 1)[:3], stream.get_current_stream, handles, rest

        return launch
'''
MANY = 3
"""A file with so many launches uses it, and every file with a path for known sizes."""

_KERNEL = re.compile(r"^(?:@triton\.autotune\(\n(?:    .*\n)*\)\n)?@triton\.jit(?:\([^)]*\))?\ndef (\w+)\(([^)]*)\)", re.MULTILINE)
"""A kernel, and how it is tuned."""


def wrapped(sections: Sequence[str], host: str, *, always: bool) -> list[str]:
    """The definitions of a file with its kernels launched that way, where there are many launches or ``always``.

    ``host``: the statements that launch.
    """
    launches = re.findall(r"\b(\w+)\[(?:[^\[\]]|\[[^\]]*\])+\]\(", "\n".join([*sections, host]))

    def decorated(found: re.Match[str]) -> str:
        pointers = ["_ptr" in argument for argument in found[2].split(",")]
        first = pointers[0] and pointers == sorted(pointers, reverse=True)
        return f"@{NAME}\n{found[0]}" if found[1] in launches and first else found[0]

    if not always and sum(name.endswith("_kernel") for name in launches) < MANY:
        return list(sections)
    made = [_KERNEL.sub(decorated, text) for text in sections]
    return [TEXT.strip(), *made] if made != list(sections) else made
