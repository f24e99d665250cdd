"""Convolutions that are computed in the kernel that reads their result, on the path for known sizes.

cuDNN writes the result, and the next kernel reads it again. Of few products each, that takes longer than the products: on an H200 a
convolution of 16 channels to 64 by 3 x 3 and the minimum over them took 2.44 ms, and 0.78 as one kernel.
"""

from __future__ import annotations

import ast
import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import sympy

from kernelllm.compiler.emit.ast_tools import names
from kernelllm.compiler.emit.host_steps import HostProgram, HostTensor
from kernelllm.compiler.emit.kernels import convolution_kernel
from kernelllm.compiler.emit.kernels.convolution_kernel import Reader
from kernelllm.compiler.emit.kernels.convolution_shape import Shape
from kernelllm.compiler.emit.kernels.kernel_text import KernelText
from kernelllm.compiler.emit.kernels.readable_names import fresh_name
from kernelllm.compiler.emit.launch_code import WrittenLaunch
from kernelllm.compiler.inductor.wrapper_lines import Allocate, Assign, Free, HostStep, Launch
from kernelllm.core.text import syntax_tree

if TYPE_CHECKING:
    from kernelllm.compiler.emit.graph_code import GraphCode

_CONVOLUTION = "extern_kernels.convolution"
_HALF = ("torch.float16", "torch.bfloat16")
_LARGE = 2**22
"""Elements of a result from which on it pays to leave it out."""
_MOST = 160
"""Products of one result up to which this was faster than cuDNN and a kernel, 1.4 to 2.2 times on an H200."""
_MOST_BEFORE_CHEAP = 640
"""The same where what follows is cheap: 1.03 to 1.32 times for 576 products."""
_FUNCTIONS = {"libdevice.tanh": 2, "libdevice.log1p": 2, "libdevice.log": 1, "libdevice.erf": 1, "tl.exp": 1, "tl.sigmoid": 1, "tl.log": 1}
"""About how many steps a function takes, which keep registers from the products. Others count as 2."""
_CHEAP = 2
_WIDEST = 256
_TAPS = 64
"""Taps of a transposed convolution over volumes from which on cuDNN has no fast kernel: 5 x 5 x 5 took it 26 times as long."""
_ALONE = """
def convolution_kernel(out_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    convolved = tl.load(out_ptr + offsets)
    tl.store(out_ptr + offsets, convolved)
"""
"""A kernel that does nothing else with a result."""
_TURNED = '''
@triton.jit
def {name}(weights_ptr, out_ptr, n_elements, channels, BLOCK: tl.constexpr):
    """Weights of a transposed convolution, with the channels that a product goes over side by side."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_elements
    weights = tl.load(weights_ptr + (offsets % channels * (n_elements // channels) + offsets // channels), mask)
    tl.store(out_ptr + offsets, weights, mask)
'''


def join(code: GraphCode, taken: set[str]) -> None:
    """Rewrite the steps of a path, in place. ``taken``: names at the top of the file."""
    program = code.program
    for step in [i for i in program.items if isinstance(i, Assign) and ast.unparse(i.value).startswith(f"{_CONVOLUTION}(")]:
        found = _FusedConvolution(code, step)
        if found.fits():
            found.write(taken)
        elif found.is_slow():
            found.write_alone(taken)
    launched = {i.kernel for i in program.items if isinstance(i, Launch)}
    code.kernels.texts = {k: t for k, t in code.kernels.texts.items() if k in launched}


class _FusedConvolution:
    """One convolution with the launch that reads it."""

    def __init__(self, code: GraphCode, step: Assign) -> None:
        self.code, self.program, self.step = code, code.program, step
        self.launch: Launch | None = None
        self.parameter = ""
        """The launch's parameter for the result."""
        self.shape: Shape | None = None
        self.reader: Reader | None = None
        self.followed: KernelText | None = None
        """The launch's kernel at the sizes that this launch passes."""

    def fits(self) -> bool:
        self.shape = _shape(self.program, self.step)
        if self.shape is None or not self._prepared() or not self._worth(self.shape) or not self._read_by_one():
            return False
        assert self.launch is not None
        if self.launch.kernel not in self.code.kernels.cleaned:  # the kernel has another convolution already
            return False
        kernel = self.followed = self._at_known_sizes()
        self.reader = convolution_kernel.reader(kernel.text, kernel.names[self.parameter], self.shape)
        if self.reader is None or (self.reader.whole_rows and self.shape.out_channels > _WIDEST):
            return False
        apart = self.shape.transposed and not self.reader.whole_rows and not self.reader.alike  # pixels of a phase are stored so
        costly = self.shape.products > _MOST and _steps(kernel.text) > self._cheap(self.shape)
        if costly or not self._block_n() or (apart and self.shape.stride[-1] != 2):
            return False
        self.shape = replace(self.shape, paired=apart)
        return True

    def _cheap(self, shape: Shape) -> int:
        most = _CHEAP if shape.products > _MOST_BEFORE_CHEAP // 2 else 2 * _CHEAP
        return most if self._dtype() == "torch.float32" else most // 2

    def is_slow(self) -> bool:
        """Whether cuDNN is; then the convolution is a kernel of its own."""
        shape = self.shape
        if shape is None or not self._prepared() or not self._rounds():
            return False
        if not shape.transposed or len(shape.size) < 3 or math.prod(shape.taps) <= _TAPS:
            return False
        self.reader = convolution_kernel.reader(_ALONE, "out_ptr", shape)
        return bool(self._block_n())

    def _prepared(self) -> bool:
        """Whether its weights are made ahead of a run, as those of a transposed one must be: they are turned."""
        assert self.shape is not None
        return not self.shape.transposed or self.program.base(_operand(self.step, 1)) in self.code.prepared.buffers

    def _rounds(self) -> bool:
        dtype = self._dtype()
        return dtype in _HALF or (dtype == "torch.float32" and self.code.options.conv_tf32)

    def _worth(self, shape: Shape) -> bool:
        few = shape.products <= _MOST_BEFORE_CHEAP and shape.channels % 8 == 0
        return self._rounds() and few and shape.pixels * shape.out_channels >= _LARGE

    def _dtype(self) -> str:
        return self.program.tensors[_operand(self.step, 0)].dtype

    def _read_by_one(self) -> bool:
        """Note the launch that reads the result. False where there are others, or others than launches."""
        base = self.program.base(self.step.target)
        after = self.program.items[self.program.items.index(self.step) + 1 :]
        readers = [i for i in after if not isinstance(i, Free) and any(base in map(self.program.base, names(v)) for v in _values(i))]
        if not readers or not isinstance(readers[0], Launch):
            return False
        self.launch = readers[0]
        own = [p for p, v in self.launch.arguments.items() if base in map(self.program.base, names(v))]
        if len(own) != 1 or not isinstance(self.launch.arguments[own[0]], ast.Name) or own[0] not in self._text().order:
            return False
        self.parameter = own[0]
        if self._overwritten(after[: after.index(self.launch) + 1]):
            return False
        returned = any(base in map(self.program.base, names(e)) for e in self.program.result)
        return own[0].startswith("in_out_ptr") or (own[0].startswith("in_ptr") and len(readers) == 1 and not returned)

    def _overwritten(self, until: list[HostStep]) -> bool:
        """Whether memory of images or weights has another use until the launch: the convolution is computed there only."""
        kept = {self.program.base(_operand(self.step, at)) for at in (0, 1)}
        for item in until:
            if isinstance(item, Launch):
                written = [v for p, v in item.arguments.items() if p.startswith(("out_ptr", "in_out_ptr"))]
            else:
                written = [ast.Name(item.target)] if isinstance(item, Allocate | Assign) else []
                written += [item.value] if isinstance(item, Assign) else []
            if kept & {self.program.base(name) for value in written for name in names(value)}:
                return True
        return False

    def _text(self) -> KernelText:
        assert self.launch is not None
        return self.code.kernels.texts[self.launch.kernel]

    def _at_known_sizes(self) -> KernelText:
        """The launch's kernel with its sizes as numbers: a place modulo the number of channels is seen to be a channel."""
        assert self.launch is not None
        old, pointers = self._text(), self.code.kernels.cleaned[self.launch.kernel].pointers
        passed = {p: self.code.kernels.size(self.launch, p) for p in old.order if p not in pointers}
        known = {p: int(size) for p, size in passed.items() if sympy.sympify(size).is_Integer}
        text = convolution_kernel.at_sizes(old.text, {old.names[p]: size for p, size in known.items()})
        return replace(old, text=text, order=[p for p in old.order if p not in known])

    def _block_n(self) -> int:
        """Channels of a tile; 0 where no tile fits."""
        assert self.shape is not None
        assert self.reader is not None
        width = self.shape.out_channels
        if self.reader.whole_rows:
            return max(16, 1 << (width - 1).bit_length())
        return next((n for n in (128, 64, 32, 16) if width % n == 0), 0)

    def _configs(self) -> list[str]:
        """Tiles to try: those that were fastest on an H200 over ten convolutions."""
        assert self.shape is not None
        assert self.reader is not None
        half = self._dtype() in _HALF
        deep = next((k for k in ((64, 32, 16) if half else (32, 16)) if self.shape.channels % k == 0), 32 if not half else 64)
        wide = min(256, 32768 // self._block_n())
        tiles = [(128, 8, 3), (128, 4, 3), (wide, 8, 4)] if wide > 128 else [(wide, 8, 3), (wide, 4, 3), (64, 4, 3)]
        fitting = [t for t in tiles if self.reader.masked or self.shape.transposed or self.shape.pixels % t[0] == 0] or tiles
        return [
            f'triton.Config({{"BLOCK_M": {m}, "BLOCK_N": {self._block_n()}, "BLOCK_K": {deep}}}, num_warps={w}, num_stages={s})'
            for m, w, s in fitting
        ]

    def write(self, taken: set[str]) -> None:
        """The new kernel and its launch."""
        assert self.launch is not None
        assert self.followed is not None
        code, old = self.code, self.followed
        kept = {p: v for p, v in self.launch.arguments.items() if p != self.parameter or p.startswith("in_out_ptr")}
        pointers = code.kernels.cleaned[self.launch.kernel].pointers
        given = {p: kept[p] for p in old.order if p in kept and p in pointers}
        passed = [code.host.size(code.kernels.size(self.launch, p)) for p in old.order if p not in pointers]
        made = self._launched(old, f"{self.launch.kernel} ", given, passed, taken, _precision(self._dtype()))
        turned = self._turned(made, taken)
        at = self.program.items.index(self.step)
        self.program.items[at:at] = turned
        self._replace(made)

    def write_alone(self, taken: set[str]) -> None:
        """The same for the convolution by itself."""
        alone = KernelText("", _ALONE, ["in_out_ptr0"], {"in_out_ptr0": "out_ptr"}, set())
        precision = _precision(self._dtype(), "tf32x3")  # cuDNN's slow kernel does not round
        made = self._launched(alone, "", {"in_out_ptr0": ast.Name(self.step.target)}, [], taken, precision)
        at = self.program.items.index(self.step)
        self.program.items[at : at + 1] = [*self._turned(made, taken), *self._result(), made]

    def _turned(self, made: WrittenLaunch, taken: set[str]) -> list[HostStep]:
        """The steps that turn the weights of a transposed convolution, ahead of a run; the launch reads what they make."""
        assert self.shape is not None
        if not self.shape.transposed:
            return []
        code, texts = self.code, self.code.kernels.texts
        if _TURNED not in texts:
            name = fresh_name("turned_weights_kernel", taken)
            texts[_TURNED] = KernelText(name, _TURNED.format(name=name).strip(), ["in_ptr0", "out_ptr0"], {})
        given = self.program.tensors[_operand(self.step, 1)]
        count = math.prod(int(n) for n in given.shape)
        turned = f"{_operand(self.step, 1)}_turned"
        self.program.tensors[turned] = HostTensor([sympy.Integer(count)], [sympy.Integer(1)], given.dtype, given.device)
        code.host.paths[turned] = fresh_name("turned_weights", code.local)
        size: Any = [syntax_tree(f"({n},)", mode="eval").body for n in (count, 1)]
        kernel = texts[_TURNED].name
        arguments = {"in_ptr0": self._operand(1), "out_ptr0": ast.Name(turned)}
        numbers = [str(count), str(self.shape.channels)]
        steps: list[HostStep] = [
            Allocate(turned, size[0], size[1], given.dtype, given.device),
            WrittenLaunch(_TURNED, arguments, kernel, f"({-(-count // 1024)},)", numbers, "BLOCK=1024"),
        ]
        code.prepared.buffers[turned] = None
        code.prepared.steps |= {id(step) for step in steps}
        made.arguments["in_ptr_weight"] = ast.Name(turned)
        return steps

    def _launched(
        self, old: KernelText, key: str, given: dict[str, ast.expr], passed: list[str], taken: set[str], precision: str
    ) -> WrittenLaunch:
        """The launch of the convolution with what ``old`` does. ``given``: its other tensors."""
        assert self.reader is not None
        assert self.shape is not None
        name = fresh_name(f"conv_{old.name}" if old.name else "conv_alone_kernel", taken)
        others = {a.arg for a in self.reader.function.args.args}
        configs = self._configs()
        pointers = fresh_name("image_ptr", set(others)), fresh_name("weights_ptr", set(others))
        blocks = [int(n) for n in re.findall(r'"BLOCK_M": (\d+)', " ".join(configs))]
        partly = not self.reader.masked and any(self.shape.pixels % n for n in blocks)
        text = convolution_kernel.text(self.reader, self.shape, name, configs, pointers, self._block_n(), partly=partly)
        self.code.kernels.texts[f"{key}{name}"] = KernelText(name, text, old.order, old.names, old.helpers)
        arguments = {"in_ptr_image": self._operand(0), "in_ptr_weight": self._operand(1), **given}
        tiles = -(-self.shape.out_channels // self._block_n()) * self.shape.phases
        places = self.shape.images * math.prod(self.shape.places) * (2 if self.shape.paired else 1)
        grid = f'lambda meta: (-(-{places} // meta["BLOCK_M"]){f" * {tiles}" if tiles > 1 else ""},)'
        return WrittenLaunch(f"{key}{name}", arguments, name, grid, passed, f"PRECISION={precision}")

    def _operand(self, at: int) -> ast.expr:
        call: Any = self.step.value
        argument: ast.expr = call.args[at]
        return argument

    def _replace(self, made: WrittenLaunch) -> None:
        operands = {_operand(self.step, 0), _operand(self.step, 1)}
        items: list[HostStep] = []
        freed: list[str] = []
        launched = False
        for item in self.program.items:
            if item is self.step:
                items += self._result() if self.parameter.startswith("in_out_ptr") else []
            elif item is self.launch:
                items += [made, *([Free(freed)] if freed else [])]
                launched = True
            elif isinstance(item, Free) and not launched:
                now = [t for t in item.targets if t not in operands]
                freed += [t for t in item.targets if t in operands]
                items += [Free(now)] if now else []
            else:
                items.append(item)
        self.program.items = [*items]

    def _result(self) -> list[HostStep]:
        """The convolution's result, which the kernel fills now."""
        assert self.step.layout is not None
        shape, stride = ([sympy.Integer(n) for n in part] for part in self.step.layout)
        given = self.program.tensors[_operand(self.step, 0)]
        self.program.tensors[self.step.target] = HostTensor(shape, stride, given.dtype, given.device)
        size, steps = (syntax_tree(str(tuple(part)), mode="eval").body for part in self.step.layout)
        return [Allocate(self.step.target, size, steps, given.dtype, given.device)]


def _precision(dtype: str, rounded: str = "tf32") -> str:
    return f'"{rounded}" if torch.backends.cudnn.allow_tf32 else "ieee"' if dtype == "torch.float32" else '"ieee"'


def _steps(text: str) -> int:
    """Of the functions that a kernel calls for each element."""
    called = [ast.unparse(n.func) for n in ast.walk(syntax_tree(text)) if isinstance(n, ast.Call)]
    return sum(_FUNCTIONS.get(name, 2 * name.startswith("libdevice.")) for name in called)


def _values(step: HostStep) -> list[ast.expr]:
    return list(step.arguments.values()) if isinstance(step, Launch) else [step.value] if isinstance(step, Assign) else []


def _operand(step: Assign, at: int) -> str:
    call: Any = step.value
    return call.args[at].id if isinstance(call.args[at], ast.Name) else ""


def _shape(program: HostProgram, step: Assign) -> Shape | None:
    """None for others than convolutions of channels-last images or volumes by such weights; transposed ones have a stride."""
    call: Any = step.value
    settings = {k.arg: ast.literal_eval(k.value) for k in call.keywords if ast.unparse(k.value)[0] in "(0123456789TFN"}
    image, weight = (program.tensors.get(_operand(step, at)) for at in (0, 1))
    if image is None or weight is None or step.layout is None or settings.get("bias", 0) is not None or settings.get("groups") != 1:
        return None
    sizes = [_numbers(t) for t in (image, weight)]
    if any(s is None or len(s[0]) not in (4, 5) or not _channels_last(*s) for s in [*sizes, step.layout]) or image.dtype != weight.dtype:
        return None
    (n, c, *size), (_, _, *taps) = (s[0] for s in sizes if s is not None)
    if max(n * c * math.prod(size), math.prod(step.layout[0]), math.prod(taps) * c * step.layout[0][1]) >= 2**31:
        return None
    stride, padding, dilation = (tuple(settings[name]) for name in ("stride", "padding", "dilation"))
    transposed = settings.get("transposed", False)
    if transposed and (c % 16 or set(dilation) != {1} or any(k < s for k, s in zip(taps, stride, strict=True))):
        return None
    out, out_size = step.layout[0][1], tuple(step.layout[0][2:])
    return Shape(n, c, tuple(size), out, out_size, tuple(taps), stride, padding, dilation, transposed)


def _numbers(tensor: HostTensor) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    known = all(sympy.sympify(n).is_Integer for n in (*tensor.shape, *tensor.stride))
    return (tuple(map(int, tensor.shape)), tuple(map(int, tensor.stride))) if known else None


def _channels_last(shape: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    """Whether neighbours among the channels lie side by side, and nothing is between pixels; sizes of 1 may have any stride."""
    wanted = [math.prod(shape[1:]), 1, *(math.prod(shape[at + 1 :]) * shape[1] for at in range(2, len(shape)))]
    return all(n == 1 or a == b for n, a, b in zip(shape, stride, wanted, strict=True))


__all__ = ["join"]
