"""Depthwise convolutions become sums over their windows, so that Inductor fuses them with the operators around them.

No element meets a matrix, so tensor cores are of no use, and libraries are far from the speed of memory: on an H100 the causal
convolution of a state space model took cuDNN 440 us and such a kernel 91 to 130.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import torch
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from kernelllm.compiler.capture import derived_sizes
from kernelllm.compiler.capture.graph_editor import CONVERT, HALF, STORED, Editor

aten = torch.ops.aten
_TAPS: Final = {3: 16, 4: 9}
"""Most elements of a window, by the input's dimensions: each is a load of its own."""
_FEW: Final = 8
_FEW_OUT: Final = 3
"""Output channels that are sums each, in float32: a mask, two directions, three colours. In half precision cuDNN has kernels for those."""
_LIBRARY: Final = (3, 5, 7)
"""Sides of square windows that cuDNN has kernels for."""
_MANY: Final = 32
"""Channels from which on those are fast."""
_LINE: Final = 64
"""Most elements of a window's line: the kernel's text has all of them."""
_END: Final = 2**63 - 1


def sum_over_window(
    edit: Editor, x: Node, weight: Node, bias: Node | None, stride: Sequence[Any], padding: Sequence[Any], dilation: Sequence[Any],
    transposed: bool, *_: Any,
) -> Node | None:  # fmt: skip
    """The convolution that ``edit.node`` is, in float32, rounded at the end. None where it is no such one.

    Where all its readers cut its rows (a causal convolution is padded on both sides), it ends there, and they read it whole.
    """
    value, window = x.meta["val"], list(weight.meta["val"].shape[2:])
    if transposed or value.dtype not in (torch.float32, *HALF) or not _each(x, weight) or value.dim() != len(window) + 2:
        return None
    known = all(isinstance(n, int) for n in (*window, *stride, *padding, *dilation))
    if not known or not 2 <= math.prod(window) <= _TAPS.get(value.dim(), 0):
        return None
    readers, cut = _cut(edit.node) if set(stride) == {1} else ([], 0)
    edit.called(aten._conv_depthwise2d.default)
    total = _summed(edit, x, weight, stride, [(p, p - (cut if d == len(window) - 1 else 0)) for d, p in enumerate(padding)], dilation)
    total = _with_bias(edit, total, bias, window)
    expected = readers[0] if readers else edit.node
    if any(_number(n - m) != 0 for n, m in zip(total.meta["val"].shape, expected.meta["val"].shape, strict=True)):
        return None
    for reader in readers:
        reader.replace_all_uses_with(edit.node)
    return total if value.dtype == torch.float32 else edit.call(CONVERT, total, value.dtype)


def sum_over_spread(
    edit: Editor, x: Node, weight: Node, bias: Node | None, stride: Sequence[Any], padding: Sequence[Any], dilation: Sequence[Any],
    transposed: bool, output_padding: Sequence[Any], groups: Any,
) -> Node | None:  # fmt: skip
    """A transposed convolution of each channel by itself: the sum over windows turned round, of an input with zeros between its elements.

    Filters that double the size of images are such ones, for which cuDNN 9 took 0.3 ms where memory takes 0.02 (H200, half precision).
    """
    value, window = x.meta["val"], list(weight.meta["val"].shape[2:])
    if not transposed or groups != value.shape[1] or value.dtype not in (torch.float32, *HALF) or not _each(x, weight):
        return None
    known = all(isinstance(n, int) for n in (*value.shape, *window, *stride, *padding, *dilation, *output_padding))
    if not known or value.dim() != len(window) + 2 or not 2 <= math.prod(window) <= _TAPS.get(value.dim(), 0):
        return None
    edit.called(aten._conv_depthwise2d.default)
    for d, step in enumerate(stride):
        if step > 1:
            spread = edit.call(aten.constant_pad_nd.default, edit.call(aten.unsqueeze.default, x, 3 + d), [0] * (2 * (len(window) - 1 - d))
                               + [0, step - 1], 0.0)  # fmt: skip
            x = edit.call(aten.reshape.default, spread, [n * (step if at == 2 + d else 1) for at, n in enumerate(x.meta["val"].shape)])
    before = [n * (k - 1) - p for n, k, p in zip(dilation, window, padding, strict=True)]
    after = [n + more - (step - 1) for n, more, step in zip(before, output_padding, stride, strict=True)]
    total = _summed(edit, x, weight, [1] * len(window), list(zip(before, after, strict=True)), dilation, turned=True)
    total = _with_bias(edit, total, bias, window)
    return total if value.dtype == torch.float32 else edit.call(CONVERT, total, value.dtype)


def sum_over_channels(
    edit: Editor, x: Node, weight: Node, bias: Node | None, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
    transposed: bool, _output_padding: Any, groups: int,
) -> Node | None:  # fmt: skip
    """A convolution to so few channels that tensor cores have nothing to do: a sum over windows and channels for each, in one kernel.

    Channels last, cuDNN 9 takes 0.97 ms in float32 for 64 channels of 16 images of 128 x 128 to one or three of them, and 0.17 ms in
    torch's layout (H200).
    """
    value, out, window = x.meta["val"], edit.node.meta["val"], list(weight.meta["val"].shape[2:])
    if transposed or groups != 1 or edit.options.backward or value.dtype not in (torch.float32, *HALF) or value.dim() != out.dim():
        return None
    known = all(isinstance(n, int) for n in (*value.shape, *window, *stride, *padding, *dilation))
    taps, most = math.prod(window), _FEW_OUT if value.dtype == torch.float32 else 1
    if not known or out.shape[1] > most or value.shape[1] < 2 * _FEW or not 2 <= taps <= _TAPS.get(value.dim(), 0):
        return None
    edit.called(aten._conv_depthwise2d.default)
    x.meta[STORED] = True  # each element is met by as many windows as there are taps
    turned = edit.call(aten.permute.default, weight, [1, 0, *range(2, value.dim())])
    totals = []
    for channel in range(out.shape[1]):
        own = edit.call(aten.slice.Tensor, turned, 1, channel, channel + 1)
        total = _summed(edit, x, own, stride, [(p, p) for p in padding], dilation)
        totals.append(edit.call(aten.sum.dim_IntList, total, [1], True))
    made = _with_bias(edit, edit.call(aten.cat.default, totals, 1) if len(totals) > 1 else totals[0], bias, window)
    return made if value.dtype == torch.float32 else edit.call(CONVERT, made, value.dtype)


def by_planes(
    edit: Editor, x: Node, weight: Node, bias: Node | None, stride: Sequence[Any], padding: Sequence[Any], dilation: Sequence[Any],
    transposed: bool, _: Any, groups: Any,
) -> Node | None:  # fmt: skip
    """A convolution of each channel by itself with a window of more elements, by a kernel of ours that reads images in torch's layout.

    Channels last, cuDNN 9 takes 8 to 17 ms for 16 channels of two images of 1029 x 1034 and a window of 6 x 11 in bfloat16, torch's own
    kernel 1.27 in its layout (H200). cuDNN is fast for small square windows of many channels, and for lines: 31 frames of 512 channels of
    16 x 800 frames took this kernel 0.7 ms longer.
    """
    value, window = x.meta["val"], list(weight.meta["val"].shape[2:])
    if transposed or value.dtype not in (torch.float32, *HALF) or not _each(x, weight) or not _is_large(value, window):
        return None
    if not all(isinstance(n, int) for n in (*value.shape, *stride, *padding, *dilation)):
        return None
    return edit.template("conv", x, weight, bias, list(stride), list(padding), list(dilation), groups, allow_tf32=False)


def _is_large(value: torch.Tensor, window: Sequence[Any]) -> bool:
    """Whether a window has too many elements for a sum, and cuDNN has no fast kernel for it."""
    if value.dim() != len(window) + 2 or value.dim() not in _TAPS or not all(isinstance(n, int) for n in window):
        return False
    library = value.shape[1] >= _MANY and (value.dim() == 3 or (window[0] == window[1] and window[0] in _LIBRARY))
    if value.stride(-1) != 1 and value.shape[1] >= _FEW:  # the channels of a pixel lie side by side
        return False
    return not library and math.prod(window) > _TAPS[value.dim()] and window[-1] <= _LINE


def put_gradients(
    edit: Editor, grad: Node, x: Node, weight: Node, _: Any, stride: Sequence[Any], padding: Sequence[Any], dilation: Sequence[Any],
    transposed: bool, _output_padding: Any, _groups: Any, wanted: Sequence[bool],
) -> bool:  # fmt: skip
    """Put sums in the place of what is read of the ``convolution_backward`` that ``edit.node`` is. False where it is no such one.

    The input's gradient is the convolution of the output's by the windows turned round; that of the windows is a template.
    """
    value, window = x.meta["val"], list(weight.meta["val"].shape[2:])
    if transposed or value.dtype not in (torch.float32, *HALF) or not _each(x, weight) or value.dim() != len(window) + 2:
        return False
    known = all(isinstance(n, int) for n in (*value.shape, *window, *stride, *padding, *dilation))
    known &= all(user.target is operator.getitem for user in edit.node.users)
    if not known or set(stride) != {1}:
        return False
    spatial = list(range(2, value.dim()))
    around = [(d * (k - 1) - p,) * 2 for k, p, d in zip(window, padding, dilation, strict=True)]
    asked = {user.args[1] for user in edit.node.users if wanted[user.args[1]] and user.users}
    large = _is_large(value, window) and asked <= {0, 2} and min(around) >= (0, 0)  # a constant window: blurs, SSIM
    if not large and not 2 <= math.prod(window) <= _TAPS.get(value.dim(), 0):
        return False

    def of_input() -> Node:
        if large:
            turned = edit.call(torch.ops.prims.rev.default, weight, spatial)
            return edit.template("conv", grad, turned, None, [1] * len(window), [n for n, _ in around], list(dilation), value.shape[1],
                                 allow_tf32=False)  # fmt: skip
        return _summed(edit, grad, weight, stride, around, dilation, turned=True)

    makers: tuple[Callable[[], Node], ...] = (
        of_input,
        lambda: edit.template("window_gradient", grad, x, window, list(padding), list(dilation)),
        lambda: edit.call(aten.sum.dim_IntList, _wide(edit, grad), [0, *spatial]),
    )
    edit.called(aten._conv_depthwise2d.default)
    for user in list(edit.node.users):
        if wanted[user.args[1]] and user.users:
            made = makers[user.args[1]]()
            user.replace_all_uses_with(made if made.meta["val"].dtype == value.dtype else edit.call(CONVERT, made, value.dtype))
        edit.graph.graph.erase_node(user)
    return True


def _with_bias(edit: Editor, total: Node, bias: Node | None, window: Sequence[int]) -> Node:
    if bias is None:
        return total
    for _ in window:
        bias = edit.call(aten.unsqueeze.default, bias, -1)
    return edit.call(aten.add.Tensor, total, _wide(edit, bias))


def _summed(
    edit: Editor, x: Node, weight: Node, stride: Sequence[int], padding: Sequence[tuple[int, int]], dilation: Sequence[int],
    turned: bool = False,
) -> Node:  # fmt: skip
    """The sum over windows, in float32. ``padding``: elements before and after each dimension; ``turned``: each window from its end."""
    total: Node | None = None
    window = list(weight.meta["val"].shape[2:])
    for tap, met in _met(edit, _padded(edit, x, padding), window, stride, dilation):
        by = weight
        for d, at in enumerate(tap):
            at = window[d] - 1 - at if turned else at
            by = edit.call(aten.slice.Tensor, by, 2 + d, at, at + 1)
        product = edit.call(aten.mul.Tensor, *(_wide(edit, part) for part in (met, edit.call(aten.squeeze.dim, by, 1))))
        total = product if total is None else edit.call(aten.add.Tensor, total, product)
    assert total is not None  # a window has elements
    return total


def _padded(edit: Editor, x: Node, padding: Sequence[tuple[int, int]]) -> Node:
    around = [n for both in reversed(padding) for n in both]
    return edit.call(aten.constant_pad_nd.default, x, around, 0.0) if any(around) else x


def _met(
    edit: Editor, padded: Node, window: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], Node]]:
    """Each element of a window, and what it meets at all places."""
    for tap in itertools.product(*map(range, window)):
        met = padded
        for d, at in enumerate(tap):
            start, rest = at * dilation[d], (window[d] - 1 - at) * dilation[d]
            met = edit.call(aten.slice.Tensor, met, 2 + d, start, -rest if rest else _END, stride[d])
        yield tap, met


def _cut(node: Node) -> tuple[list[Node], int]:
    """The readers of the convolution where all of them leave the same number of elements at the end of its rows out, and that number."""
    value = node.meta["val"]
    cuts = [u for u in node.users if u.target is aten.slice.Tensor and len(u.args) == 4 and u.args[1] in (value.dim() - 1, -1)]
    left = {_number(value.shape[-1] - u.meta["val"].shape[-1]) for u in cuts if not u.args[2]}
    if len(cuts) < len(node.users) or len(left) != 1 or any(u.args[2] for u in cuts):
        return [], 0
    (cut,) = left
    return (cuts, cut) if cut and cut > 0 else ([], 0)


def _number(size: Any) -> int | None:
    """What a difference of sizes is whatever they are; None where it depends on them."""
    if isinstance(size, int):
        return size
    names = {symbol: made for made, symbol in derived_sizes.table(size.node.shape_env).items()}
    found = size.node.expr.xreplace(names).expand()
    return int(found) if found.is_number else None


def all_alone(graph: GraphModule) -> bool:
    """Whether every convolution of the graph is one of each channel by itself: none asks for channels last."""
    found = graph.graph.find_nodes(op="call_function", target=aten.convolution.default)
    gradients = graph.graph.find_nodes(op="call_function", target=aten.convolution_backward.default)
    return all(_each(*node.args[:2]) for node in found) and all(_each(*node.args[1:3]) for node in gradients)


def of_few_channels(graph: GraphModule) -> bool:
    """Whether every convolution is one of each channel by itself, in float32, and channels last would leave most lanes without work."""
    found = graph.graph.find_nodes(op="call_function", target=aten.convolution.default)
    values = [node.meta["val"] for node in found]
    return all_alone(graph) and all(v.dtype == torch.float32 and v.shape[1] <= _FEW for v in values)


def _each(x: Node, weight: Node) -> bool:
    """Whether every channel has one window of its own."""
    channels, kernel = x.meta["val"].shape[1], weight.meta["val"].shape
    return isinstance(kernel[1], int) and kernel[1] == 1 and statically_known_true(kernel[0] == channels)


def _wide(edit: Editor, node: Node) -> Node:
    return node if node.meta["val"].dtype == torch.float32 else edit.call(CONVERT, node, torch.float32)
