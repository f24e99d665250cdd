"""Functions of torch that are replaced while a module is traced.

Whole recurrent layers and attention become single operators. Functions whose ATen form pins a size to a number, or differs between
devices, are written out with symbolic sizes.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.overrides import TorchFunctionMode

from kernelllm.compiler import template_ops, write_time
from kernelllm.compiler.capture import least_sizes, symbols
from kernelllm.compiler.capture.data_dependent import branches, mask_positions, row_count_tests
from kernelllm.compiler.capture.decompositions import (
    averaged_norms,
    batched_functions,
    composite_functions,
    flex_scores,
    grid_samples,
    interpolation,
    linear_algebra,
    norms_of_lists,
    padded_encoders,
    plain_rules,
    recurrent_cells,
    scalar_index,
    selection_rules,
    size_checks,
    size_readers,
    small_products,
    special_functions,
    whole_windows,
    window_sums,
)
from kernelllm.compiler.capture.decompositions.constant_vectors import FUNCTIONS as WINDOWS
from kernelllm.compiler.capture.decompositions.constant_vectors import evenly_spaced
from kernelllm.compiler.capture.decompositions.expert_rules import rules as expert_rules
from kernelllm.compiler.capture.decompositions.trivial_mask_proofs import hides_nothing
from kernelllm.compiler.capture.patching import patch
from kernelllm.compiler.capture.tensor_caches import no_kept_tensors
from kernelllm.compiler.options import Options
from kernelllm.problems.unfused_flex import unfused_flex


def decompositions(options: Options | None = None) -> dict[Any, Callable[..., Any]]:
    """Inductor's decompositions without dropout: torch draws its mask, so that it is the one that eager draws.

    ``options.library``: those that it has for a GPU, though the graph is traced on the CPU.
    """
    from torch._inductor import lowering  # noqa: F401 - the table needs it
    from torch._inductor.decomposition import select_decomp_table

    aten = torch.ops.aten
    table = {op: rule for op, rule in select_decomp_table().items() if op is not aten.native_dropout.default}
    if options is not None and options.library:
        plain = table[aten.native_group_norm.default]
        table = {op: rule for op, rule in table.items() if op not in (aten.mm.default, aten.addmm.default, aten.bmm.default)}
        table[aten.native_group_norm.default] = _group_norm_on_gpu(plain)
    # Inductor's own rule keeps the grid's side by itself where the graph is on a CPU: a GPU reads it again for each channel, in one kernel
    table |= torch._decomp.get_decompositions([aten.grid_sampler_2d])
    own = {**composite_functions.OPERATORS, **window_sums.OPERATORS, **special_functions.rules(),
           **torch._decomp.get_decompositions([getattr(aten, name).vec for name in _SCALED]),  # torch.export leaves these whole
           **selection_rules.rules(table, library=options is not None and options.library)}
    own |= norms_of_lists.rules(options or Options()) | expert_rules(options or Options())
    own |= {} if options and options.extern == "allow" else linear_algebra.rules()
    kept = plain_rules.KEPT if options is not None and options.short and options.extern != "allow" and not options.backward else ()
    return size_checks.asked({op: rule for op, rule in (table | own).items() if op not in kept})


_SCALED = tuple(f"{kind}{n}d" for kind in ("upsample_nearest", "_upsample_nearest_exact") for n in (1, 2, 3))


def _group_norm_on_gpu(plain: Callable[..., Any]) -> Callable[..., Any]:
    """The rule without weights, which for a CPU are scaled before the input is read."""

    def rule(x: Any, weight: Any, bias: Any, *sizes: Any) -> Any:
        out, mean, rstd = plain(x.float() if x.dtype in (torch.float16, torch.bfloat16) else x, None, None, *sizes)
        shape = [1, x.shape[1], *[1] * (x.dim() - 2)]
        out = out if weight is None else out * weight.reshape(shape)
        out = out if bias is None else out + bias.reshape(shape)
        return out.to(x.dtype), mean.to(x.dtype), rstd.to(x.dtype)

    return rule


@contextmanager
def whole_layers(options: Options) -> Iterator[None]:
    """While open, ``scaled_dot_product_attention``, RNN, LSTM and GRU layers trace as one operator each."""
    context = _Context(options, template_ops.register())
    replaced: list[tuple[Any, str, Callable[..., Any]]] = [
        (F, "scaled_dot_product_attention", _attention),
        (torch, "group_norm", _group_norm),
        (torch.nn.modules.batchnorm._BatchNorm, "forward", averaged_norms.forward),
        (torch, "max_pool1d", _max_pool1d),
        *((F, *rule) for part in (composite_functions, batched_functions, size_checks) for rule in part.NN_FUNCTIONS.items()),
        (torch.Tensor, "cumprod", composite_functions.cumprod), (torch.Tensor, "quantile", composite_functions.quantile),
        (torch.Tensor, "nanquantile", composite_functions.nanquantile), (F, "ctc_loss", _ctc_loss),
        (torch, "matmul", small_products.matmul), (torch.Tensor, "matmul", small_products.matmul),
        (torch.Tensor, "__matmul__", small_products.matmul),
        (F, "avg_pool1d", plain_rules.avg_pool1d), (torch._VF, "split_with_sizes", row_count_tests.split),
        *((F, *rule) for rule in whole_windows.NN_FUNCTIONS.items()),
        *((owner, *rule) for owner, rules in size_readers.RULES.items() for rule in rules.items()),
        *((torch, name, rule) for name, rule in {**composite_functions.FUNCTIONS, **plain_rules.FUNCTIONS, **WINDOWS}.items()),
        *((torch, *rule) for rule in whole_windows.FUNCTIONS.items()),
    ]
    for owner in (torch, torch._VF):
        replaced += [(owner, name, _recurrent(name)) for name in ("rnn_tanh", "rnn_relu", "gru", "lstm")]
        replaced += [(owner, *cell) for cell in recurrent_cells.CELLS.items()]
        replaced += [(owner, "dropout", _dropout), (owner, "dropout_", _dropout_in_place)]
    with ExitStack() as stack:
        patch(stack, FunctionalTensor, "cuda", lambda tensor, *_, **__: tensor)
        interpolation.patched(stack)
        grid_samples.patched(stack)
        patch(stack, FunctionalTensor, "unfold", _either(composite_functions.unfold, context, torch.Tensor.unfold))
        patch(stack, FunctionalTensor, "fill_diagonal_", _either(composite_functions.fill_diagonal, context, torch.Tensor.fill_diagonal_))
        for owner, name, rule in replaced:
            patch(stack, owner, name, _either(rule, context, getattr(owner, name)))
        stack.enter_context(unfused_flex(flex_scores.attention))
        yield


def _contract_path(plain: Callable[..., Any]) -> Callable[..., Any]:
    """The order of an einsum's products for the sizes as they are: opt_einsum would read them, and so pin each to its number."""

    def call(equation: str, *operands: torch.Tensor, optimize: Any = "auto") -> Any:
        shapes = [tuple(n.node.hint if isinstance(n, torch.SymInt) else n for n in operand.shape) for operand in operands]
        return plain(equation, *shapes, shapes=True, optimize=optimize)

    return call


@dataclass
class _Context:
    options: Options
    namespace: Any


def _either(rule: Callable[..., Any], context: _Context | None, plain: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        made = rule(context, *args, **kwargs)
        return plain(*args, **kwargs) if made is NotImplemented else made

    return call


def _recurrent(name: str) -> Callable[..., Any]:
    def rule(mode: _Context, *args: Any, **kwargs: Any) -> Any:
        if kwargs or len(args) != 9 or not isinstance(args[2], list | tuple) or mode.options.backward:
            return NotImplemented  # packed sequences; and the templates have no gradients
        x, hx, params, *rest = args
        if name == "lstm" and len(params) != len(hx[0]) * (4 if rest[0] else 2):
            return NotImplemented  # with proj_size there is one more weight
        states = list(hx) if name == "lstm" else hx
        if mode.options.extern == "allow":
            return getattr(mode.namespace, f"torch_{name}")(x, states, list(params), *rest)
        return getattr(mode.namespace, name)(x, states, list(params), *rest, allow_tf32=mode.options.matmul_tf32)

    return rule


def _attention(mode: _Context, query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
               scale: float | None = None, enable_gqa: bool = False) -> Any:
    if not query.is_floating_point():
        return NotImplemented
    if attn_mask is not None and not is_causal and hides_nothing(attn_mask, (*query.shape[:-1], key.shape[-2])):
        attn_mask = None
    if mode.options.backward and (mode.options.extern == "allow" or (attn_mask is not None and attn_mask.requires_grad)):
        return _plain_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    faster = mode.options.mixed and query.dtype == torch.float32  # than torch, whose fast kernels are for half precision
    differentiated = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))  # by the forward itself
    if mode.options.extern == "allow" and not faster and not differentiated:
        added = mode.options.library and not mode.options.mixed and attn_mask is not None and attn_mask.dtype == torch.bool
        if added:  # torch does so too, in a kernel of its own; our template takes conditions
            attn_mask = torch.where(attn_mask, 0.0, float("-inf")).to(query.dtype)
        return mode.namespace.torch_scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    if scale is None and not least_sizes.at_least(query.shape[-1], 1):
        raise ValueError("queries have no elements")  # the kernels' factor is one over the root of their number
    if dropout_p > 0.0 or query.dim() > 4 or isinstance(scale, torch.SymFloat):
        return _plain_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    rank = query.dim()
    for _ in range(4 - rank):
        query, key, value = query.unsqueeze(0), key.unsqueeze(0), value.unsqueeze(0)
        if attn_mask is not None and attn_mask.dim() > 2:
            attn_mask = attn_mask.unsqueeze(0)
    template = mode.namespace.half_attention if query.dtype in (torch.float16, torch.bfloat16) else mode.namespace.attention
    out = template(query, key, value, attn_mask, is_causal, scale, allow_tf32=mode.options.matmul_tf32)
    for _ in range(4 - rank):
        out = out.squeeze(0)
    return out


def _plain_attention(query: Any, key: Any, value: Any, attn_mask: Any, dropout_p: float, is_causal: bool, scale: Any,
                     enable_gqa: bool) -> Any:
    """The definition in torch's documentation, for what the template does not cover."""
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    if enable_gqa:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
    scores = query @ key.transpose(-2, -1) * factor
    if is_causal:
        keep = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = scores.masked_fill(~keep, float("-inf"))
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, float("-inf")) if attn_mask.dtype == torch.bool else scores + attn_mask
    return _dropout(None, torch.softmax(scores, dim=-1), dropout_p, True) @ value


def _dropout(_: Any, x: Any, p: float = 0.5, train: bool = True) -> Any:
    if not train or p == 0.0:
        return x.clone()
    if p == 1.0:
        return torch.zeros_like(x)
    # the very mask that torch's own dropout draws after the same seed
    keep = torch.native_dropout(torch.empty_like(x), p, True)[1]
    return x * keep * (1.0 / (1.0 - p))


def _dropout_in_place(context: Any, x: Any, p: float = 0.5, train: bool = True) -> Any:
    return x.copy_(_dropout(context, x, p, train))


def _ctc_loss(context: _Context, log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: int = 0,
              reduction: str = "mean", zero_infinity: bool = False) -> Any:
    """One operator of torch, which reads the lengths; where gradients are asked for, one that keeps what its gradient needs."""
    tensors = log_probs.dim() == 3 and isinstance(input_lengths, torch.Tensor) and isinstance(target_lengths, torch.Tensor)
    if not tensors or context.options.extern == "forbid":
        return NotImplemented
    given = log_probs, targets, input_lengths, target_lengths, blank
    if not (torch.is_grad_enabled() and log_probs.requires_grad):
        return context.namespace.torch_ctc_loss(*given, reduction, zero_infinity)
    loss, _ = context.namespace.torch_ctc_alphas(*given, zero_infinity)
    if zero_infinity:
        loss = torch.where(loss == float("inf"), 0.0, loss)
    if reduction == "mean":
        return (loss / target_lengths.to(loss.dtype).clamp(min=1)).mean()
    return loss.sum() if reduction == "sum" else loss


def _group_norm(_: Any, x: Any, num_groups: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, *__: Any) -> Any:
    if not isinstance(num_groups, torch.SymInt) or x.dtype != torch.float32:
        return NotImplemented
    n, channels = x.shape[:2]
    grouped = x.reshape(n, num_groups, channels // num_groups, *x.shape[2:])
    variance, mean = torch.var_mean(grouped, dim=list(range(2, grouped.dim())), correction=0, keepdim=True)
    out = ((grouped - mean) * torch.rsqrt(variance + eps)).reshape(x.shape)
    shape = [1, channels, *[1] * (x.dim() - 2)]
    out = out if weight is None else out * weight.reshape(shape)
    return out if bias is None else out + bias.reshape(shape)


def _one(value: Any) -> Any:
    return value[0] if isinstance(value, list | tuple) and value else value


def _max_pool1d(_: Any, x: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
                **__: Any) -> Any:
    stride = _one(stride) if stride is not None and stride != [] and stride != () else _one(kernel_size)
    rows = (1, _one(kernel_size)), (1, stride), (0, _one(padding)), (1, _one(dilation))
    return torch.max_pool2d(x.unsqueeze(-2), *rows, ceil_mode).squeeze(-2)


class InTime(TorchFunctionMode):
    """Ends a trace that takes longer than writing may."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        write_time.check()
        return func(*args, **(kwargs or {}))


class _RealFactories(mask_positions.MaskPositions):
    """Small constant vectors made from numbers alone are real, so that code may read their values (``.item()``, loops)."""

    def __init__(self, building: bool, raises: bool) -> None:
        super().__init__()
        self.building, self.raises = building, raises

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        write_time.check()
        if func in (torch.linspace, torch.logspace):
            return evenly_spaced(func, args, kwargs)
        if func is torch.Tensor.cuda:
            return args[0]
        if func in linear_algebra.CHECKED and kwargs.get("out") is None:
            return linear_algebra.checked(func, args, kwargs, self.raises)
        if func in branches.READS:
            return branches.number(args[0], func)
        if self.building:
            kwargs = {name: value for name, value in kwargs.items() if name != "generator"}  # which takes no symbols; the values are fake
        args = branches.typed(tuple(_off_gpu(a) for a in args))
        kwargs = {k: _off_gpu(v) for k, v in kwargs.items()}
        if func is torch.Tensor.__deepcopy__ and isinstance(args[0], FakeTensor):
            return _copied(*args)
        return super().__torch_function__(func, types, args, kwargs)

    def called(self, func: Any, args: Any, kwargs: Any) -> Any:
        return scalar_index.called(func, args, kwargs)


def _truth(plain: Callable[..., bool]) -> Callable[[torch.Tensor], bool]:
    def truth(tensor: torch.Tensor) -> bool:
        passes = symbols.answer()
        return branches.truth(tensor, plain) if passes is None else passes

    return truth


def _off_gpu(value: Any) -> Any:
    """The CPU in place of a CUDA device. Tracing needs no GPU; the graph is moved to one later."""
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    return "cpu" if isinstance(value, str) and re.fullmatch(r"cuda(:\d+)?", value) else value


def _copied(tensor: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
    """A deep copy of a fake tensor, which torch would make through its memory."""
    if id(tensor) not in memo:
        fresh = torch.empty_like(tensor.detach())
        memo[id(tensor)] = torch.nn.Parameter(fresh, tensor.requires_grad) if isinstance(tensor, torch.nn.Parameter) else fresh
    copy: torch.Tensor = memo[id(tensor)]
    return copy


def _converted() -> Callable[..., Any]:
    """``Module._apply`` (``half()``, ``to(dtype)``) with new parameters: torch would swap fake ones in place, and cannot."""
    made: dict[tuple[Any, int], tuple[Any, Any]] = {}

    def new(fn: Callable[..., Any], tensor: Any) -> Any:
        before, after = made.get((fn, id(tensor)), (None, None))
        if before is not tensor:
            after = fn(tensor)
            after = torch.nn.Parameter(after, tensor.requires_grad) if isinstance(tensor, torch.nn.Parameter) else after
            made[fn, id(tensor)] = tensor, after  # a tied parameter stays tied
        return after

    def apply(module: Any, fn: Callable[..., Any], recurse: bool = True) -> Any:
        for child in module.children() if recurse else ():
            child._apply(fn)
        for members in (module._parameters, module._buffers):
            members.update({name: new(fn, tensor) for name, tensor in members.items() if tensor is not None})
        return module

    return apply


@contextmanager
def real_factories(*, building: bool = False, raises: bool = True) -> Iterator[None]:
    """While open, ``torch.linspace`` of plain numbers has known values (networks read drop rates off it), recurrent cells, which inputs
    may be computed with, and products of einsum pin no size, modules of fake tensors may be converted, and functions keep no tensors.
    ``building``: nor do tensors of sizes pin any, which the constructor makes; the forward has a rule of its own for them.
    ``raises``: torch's solvers look at their results, and raise; else these are NaN."""
    with _RealFactories(building, raises) as known, no_kept_tensors(), ExitStack() as stack:
        known.loops(stack)
        patch(stack, torch.nn.Module, "_apply", _converted())
        padded_encoders.patched(stack)
        patch(stack, torch, "allclose", branches.all_close)
        for kind in (torch.Tensor, FunctionalTensor):
            patch(stack, kind, "__bool__", _truth(kind.__bool__))
        if building:
            patch(stack, torch, "tensor", _either(composite_functions.tensor_of_sizes, None, torch.tensor))
            size_readers.taking_sizes(stack)
        row_count_tests.answer(stack)
        patch(stack, torch.Tensor, "item", functools.partialmethod(branches.number, torch.Tensor.item))
        for owner, name, rule in [(owner, *cell) for owner in (torch, torch._VF) for cell in recurrent_cells.CELLS.items()]:
            patch(stack, owner, name, _either(rule, None, getattr(owner, name)))
        patch(stack, torch.distributions.Distribution, "_validate_args", False)  # the validation reads values
        if torch.backends.opt_einsum.is_available():
            library: Any = torch.backends.opt_einsum.get_opt_einsum()
            patch(stack, library, "contract_path", _contract_path(library.contract_path))
        stack.enter_context(unfused_flex(flex_scores.attention))
        yield
