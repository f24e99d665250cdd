"""The entry point of lowering: an ATen graph becomes Inductor's kernels and host steps for CUDA, with no GPU."""

from __future__ import annotations

import logging
import pickle
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.torch_version import TorchVersion

from kernelllm.compiler import template_ops, write_time
from kernelllm.compiler.capture import derived_sizes, size_conditions
from kernelllm.compiler.capture.captured import Captured
from kernelllm.compiler.capture.patching import patch
from kernelllm.compiler.capture.rewrites import constant_folding, depthwise, faster_templates
from kernelllm.compiler.inductor import (
    arctangents,
    broadcasting,
    channels_last,
    explicit_rounding,
    fourier_strides,
    in_place,
    joined_inputs,
    loads_in_loops,
    reduction_loops,
    regions,
    row_reductions,
    scatters,
    searchsorted_views,
    signs_of_zero,
    size_extremes,
    sorts,
    split_reductions,
    storing,
    tilings,
    viewed_layouts,
    wrapper_lines,
)
from kernelllm.compiler.inductor.attention_layout import in_order
from kernelllm.compiler.inductor.fake_device import fake_gpu
from kernelllm.compiler.inductor.row_reductions import choices
from kernelllm.compiler.inductor.wrapper_lines import Wrapper
from kernelllm.compiler.options import Options
from kernelllm.core.background import TORCH
from kernelllm.core.errors import CaptureError
from kernelllm.problems.fake_mode import fake_mode

__all__ = ["cudnn_layouts", "rewritten"]
log = logging.getLogger(__name__)


@dataclass
class Lowered:
    """What Inductor made of a captured graph."""

    wrapper: Wrapper
    captured: Captured
    options: Options
    backward: Lowered | None = None
    fixed: Lowered | None = None
    """The same forward at the problem's own sizes, lowered as ``torch.compile`` does."""

    def graphs(self) -> list[Lowered]:
        """The forward, and the backward where there is one."""
        return [self, *([self.backward] if self.backward else [])]

    def copied(self, options: Options) -> Lowered:
        """The same for one file: writing it changes the wrapper."""
        wrapper = pickle.loads(pickle.dumps(self.wrapper))  # plain data; deepcopy takes five times as long
        return Lowered(wrapper, self.captured, options, self.backward.copied(options) if self.backward else None)


_CUDA = torch.device("cuda", 0)


def settings(options: Options, *, bounds: bool = False) -> dict[str, Any]:
    """Inductor's settings: deterministic text, no caches, no rewriting of layouts. ``bounds``: kernels assert that positions do exist."""
    return {
        "layout_optimization": options.library,
        "comprehensive_padding": options.library,
        "shape_padding": False,
        "fx_graph_cache": False,
        "fx_graph_remote_cache": False,
        "force_disable_caches": True,
        "fallback_random": True,
        "compile_threads": 1,
        "max_autotune": False,
        "max_autotune_gemm": False,
        "max_autotune_pointwise": False,
        "coordinate_descent_tuning": False,
        "size_asserts": False,
        "nan_asserts": False,
        "scalar_asserts": False,
        "alignment_asserts": False,
        "benchmark_harness": False,
        "benchmark_kernel": False,
        "graph_partition": False,
        "allow_buffer_reuse": False,
        "inplace_buffers": options.library,
        "memory_planning": False,
        "assume_aligned_inputs": True,
        "freezing": False,
        "pattern_matcher": True,
        "combo_kernels": False,
        "assert_indirect_indexing": bounds,
        "split_reductions": options.split_reductions,
        "max_fusion_size": 64 if options.fusion else 1,
        "triton.cudagraphs": False,
        "triton.multi_kernel": 0,
        "triton.cooperative_reductions": False,
        "triton.mix_order_reduction": False,
        "triton.persistent_reductions": options.persistent != "never",
        "triton.descriptive_names": "original_aten",
        "triton.unique_kernel_names": True,
        "triton.autotune_at_compile_time": False,
        "triton.store_cubin": False,
        "triton.codegen_upcast_to_fp32": True,
        "cpp_wrapper": False,
    }


def on_cuda(captured: Captured) -> FakeTensorMode:
    """Move the graph to a fake CUDA device, in place: device arguments and every node's example value."""
    env: ShapeEnv = captured.env
    mode = fake_mode(shape_env=env)
    first: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def size(value: Any) -> Any:
        if not isinstance(value, torch.SymInt):
            return value
        return env.create_symintnode(env.replace(value.node.expr), hint=None)

    def move(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            with mode, enable_python_dispatcher():
                shape, stride = [size(d) for d in value.shape], [size(d) for d in value.stride()]
                _, base = first.get(value.untyped_storage()._cdata, (None, None))
                if base is not None and base.dtype == value.dtype:  # a view stays one, so that Inductor sees what a copy is for
                    meta = torch.as_strided(base, shape, stride, size(value.storage_offset()))
                else:
                    meta = torch.empty_strided(shape, stride, dtype=value.dtype, device="meta")
                    first[value.untyped_storage()._cdata] = value, meta
            return FakeTensor(mode, meta, _CUDA)
        if isinstance(value, torch.SymInt):
            return size(value)
        return value

    for node in captured.graph.graph.nodes:
        if "val" in node.meta:
            node.meta["val"] = pytree.tree_map(move, node.meta["val"])
        if isinstance(node.kwargs.get("device"), torch.device):
            node.kwargs = {**node.kwargs, "device": _CUDA}
        node.args = pytree.tree_map_only(torch.device, lambda d: _CUDA, node.args)
    captured.graph.recompile()
    return mode


_STRIDES = "results_before_passes"
"""Key in a graph's ``meta``: a pass may put a view that repeats elements in the place of a result (``cumsum`` of ones)."""
_CHECKS = ("aten._assert_async", "aten._assert_scalar", "aten._assert_tensor_metadata")


def tidy(graph: torch.fx.GraphModule) -> None:
    """Inductor's own passes over a forward graph: no-ops out, softmax in one pass, in-place updates recognised."""
    from torch._inductor.fx_passes.post_grad import post_grad_passes, view_to_reshape

    for node in list(graph.graph.nodes):  # torch's checks of its inputs need no kernel
        if node.op == "call_function" and str(node.target).startswith(_CHECKS):
            graph.graph.erase_node(node)
    size_extremes.of_two(graph)
    graph.graph.eliminate_dead_code()
    graph.meta[_STRIDES] = [getattr(n, "meta", {}).get("val") for n in graph.graph.output_node().args[0]]
    view_to_reshape(graph)
    with torch.no_grad(), ExitStack() as stack:
        # where torch is built without CUDA, these methods ask for a GPU's driver; the operators do not
        patch(stack, FakeTensor, "copy_", lambda into, source, *_: torch.ops.aten.copy_.default(into, source))
        patch(stack, FakeTensor, "__invert__", lambda tensor: torch.ops.aten.bitwise_not.default(tensor))
        post_grad_passes(graph, is_inference=True)
    for node in graph.graph.nodes:
        if str(node.target).startswith("prims.prepare_softmax_online"):
            node.meta["original_aten"] = torch.ops.aten._softmax.default  # what kernels are named after
    graph.recompile()


def _one_kernel_an_operator(base: type) -> Any:
    """GraphLowering that stores every operator's result, so that none is computed inside another's kernel."""

    class Unfused(base):  # type: ignore[misc]
        def run_node(self, node: Any) -> Any:
            result = super().run_node(node)
            if node.op == "call_function":
                for value in result if isinstance(result, list | tuple) else [result]:
                    if hasattr(value, "realize"):
                        value.realize()
            return result

    return Unfused


_REPLACEMENTS = (
    size_extremes.replace, broadcasting.of_computed_ones, broadcasting.of_counted_sizes, in_place.allowed, tilings.remember,
    sorts.by_torch, searchsorted_views.from_offset, fourier_strides.without_permuting, loads_in_loops.again_behind, scatters.overwriting,
    reduction_loops.few, reduction_loops.joined_by_results, arctangents.by_triton, viewed_layouts.decided_first,
    signs_of_zero.of_sums, joined_inputs.computed_there,
)  # fmt: skip
"""What is replaced in Inductor while it lowers a graph."""


def lower(captured: Captured, options: Options, *, backward: bool = False) -> Lowered:
    """Inductor's kernels and host steps for the graph. Raises CaptureError naming the operator that Inductor rejects."""
    from torch._inductor import config
    from torch._inductor.debug import DebugContext
    from torch._inductor.exc import InductorError, LoweringException
    from torch._inductor.graph import GraphLowering
    from torch._inductor.virtualized import V

    derived_sizes.freeze(captured.env)
    env, decided = captured.env, len(captured.env.guards)
    if options.library:
        rewritten(captured, options)
    mode = on_cuda(captured)
    examples = [n.meta["val"] for n in captured.graph.graph.find_nodes(op="placeholder")]
    with TORCH, torch.no_grad(), warnings.catch_warnings(), ExitStack() as stack:
        warnings.simplefilter("ignore")
        stack.enter_context(fake_gpu(options.target))
        stack.enter_context(V.set_fake_mode(mode))
        stack.enter_context(V.set_debug_handler(DebugContext()))
        stack.enter_context(derived_sizes.naming())
        stack.enter_context(V.set_choices_handler(choices(options, backward=backward)))
        stack.enter_context(row_reductions.symbolic_rows())
        for replace in _REPLACEMENTS:
            replace(stack)
        channels_last.prefer_channels_last(stack, options)
        stack.enter_context(split_reductions.marked(captured.graph.graph, marks=not options.library, whole_rows=options.mixed))
        stack.enter_context(config.patch(settings(options, bounds=not options.short)))
        if options.mixed and depthwise.of_few_channels(captured.graph):
            stack.enter_context(config.patch(layout_optimization=False))
        if options.library:
            stack.enter_context(cudnn_layouts())
        try:
            tidy(explicit_rounding.keep(captured))
            storing.mark(captured.graph.graph, options)
            wrapper = None
            if options.fusion and not captured.counted and len(captured.graph.graph.nodes) > regions.LONG:
                exact = _exact(GraphLowering)
                channels_last.follow(captured.graph)
                try:
                    wrapper = regions.lowered(captured, lambda graph, values: _wrapper(exact, graph, values, captured))
                except regions.Uncuttable:
                    log.info("%s: the graph is not cut into regions", captured.problem.name)
            if wrapper is None:
                kind = GraphLowering if options.fusion else _one_kernel_an_operator(GraphLowering)
                kind = _exact(kind) if captured.backward else kind  # the backward reads what is kept by the graph's strides
                wrapper = _wrapper(kind, captured.graph, examples, captured)
        except (InductorError, LoweringException, RuntimeError, AssertionError, NotImplementedError, TypeError, ValueError) as error:
            text = str(error).strip().splitlines()
            raise CaptureError(
                f"Inductor could not lower the graph: {type(error).__name__}: {text[0][:300] if text else ''}",
                where=captured.problem.name, fix="Try --extern allow, or use a language model (-m).",
            ) from error  # fmt: skip
    wrapper.marks = frozenset(split_reductions.lengths())
    gradients = lower(captured.backward.captured, options, backward=True) if captured.backward else None
    met = [c for c in map(size_conditions.needed, env.guards[decided:]) if c is not None]
    captured.guards += size_conditions.written(env, met, {size.symbol for size in captured.sizes})
    return Lowered(wrapper, captured, options, gradients)


def _wrapper(kind: Any, graph: torch.fx.GraphModule, examples: list[Any], captured: Captured) -> Wrapper:
    """Inductor's output for one graph, read before it is printed."""
    from torch._inductor.virtualized import V

    before = _fixed_symbols(captured)
    lowering = _vectors_on_cuda(kind)(graph, example_inputs=examples, shape_env=captured.env, is_inference=True)
    lowering.freeze_runtime_asserts()
    with V.set_graph_handler(lowering), V.set_extern_kernel_nodes([]):
        lowering.run(*examples)
        lowering.init_wrapper_code()
        lowering._update_scheduler()
        lowering.wrapper_code.push_codegened_graph(lowering)
        lowering.scheduler.codegen()
        lowering.wrapper_code.run_wrapper_ir_passes(is_inference=True)
        fixed = {s: v for s, v in _fixed_symbols(captured).items() if s not in before}
        if fixed:  # the file would be wrong at other sizes, and not know it; a way of capture that says so comes next
            raise ValueError(f"a lowering needs sizes that are fixed ({', '.join(f'{s} = {v}' for s, v in fixed.items())})")
        return wrapper_lines.read(lowering)


def _fixed_symbols(captured: Captured) -> dict[str, int]:
    """Sizes that the graph takes as symbols and that something has found to have one value alone."""
    return {str(s): int(v) for s, v in captured.env.replacements.items() if v.is_Integer}


def _vectors_on_cuda(base: type) -> Any:
    """GraphLowering that writes short constant vectors into the GPU's kernels; the graph holds them on the CPU. Each kernel does one
    thing: those that do several beside each other have grids of Inductor's own."""
    from torch._inductor.codegen.common import BackendFeature

    class Vectors(base):  # type: ignore[misc]
        def has_feature(self, device: Any, feature: Any) -> bool:
            return feature not in (BackendFeature.FOREACH, BackendFeature.SORT) and super().has_feature(device, feature)

        def run_node(self, node: Any) -> Any:
            write_time.check()
            in_order(node, self.env)
            return storing.lowered(node, self.env, super().run_node)

        def get_attr(self, target: str, args: Any, kwargs: Any) -> Any:
            from torch._inductor import lowering

            value = getattr(self.module, target, None)
            if isinstance(value, torch.Tensor) and value.dim() == 1 and len(value) <= constant_folding.AT_ONCE:
                return lowering.tensor(value.tolist(), dtype=value.dtype, device=_CUDA)
            return super().get_attr(target, args, kwargs)

    return Vectors


def _exact(base: type) -> Any:
    """GraphLowering whose results have the strides of the graph, by which other regions read them."""

    class Exact(base):  # type: ignore[misc]
        def output(self, target: Any, args: Any, kwargs: Any) -> None:
            from torch._inductor import ir

            nodes = self.current_node.args[0] if hasattr(self, "current_node") else ()
            results = getattr(self.module, "meta", {}).get(_STRIDES) or [n.meta["val"] for n in nodes]
            strides = [[s.node.expr if isinstance(s, torch.SymInt) else s for s in (r.stride() if isinstance(r, torch.Tensor) else ())]
                       for r in results]  # fmt: skip
            values = [
                ir.ExternKernel.require_exact_strides(v, s)
                if isinstance(v, ir.TensorBox) else v for v, s in zip(args[0], strides, strict=True)
            ]
            super().output(target, (tuple(values),), kwargs)

    return Exact


@contextmanager
def cudnn_layouts() -> Iterator[None]:
    """While open, convolutions have the layouts that cuDNN gives them; this build may lack it."""
    with ExitStack() as stack:
        patch(stack, torch._C, "_conv_determine_backend_memory_format", _cudnn_format)
        yield


def _cudnn_format(x: Any, weight: Any, _: Any) -> torch.memory_format:
    """cuDNN's rule: channels-last where the input or the weights are."""
    last = torch.channels_last_3d if x.dim() == 5 else torch.channels_last
    wanted = any(torch._prims_common.suggest_memory_format(t) == last for t in (x, weight))
    return last if wanted and torch.float64 not in (x.dtype, weight.dtype) else torch.contiguous_format


def _attention(query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
               scale: float | None = None, enable_gqa: bool = False) -> Any:
    operator = template_ops.register().torch_scaled_dot_product_attention
    return operator(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)


def rewritten(captured: Captured, options: Options) -> None:
    """Inductor's passes over a graph before it is known to be a forward: attention recognised, needless operators out. In place.
    The graph is still on the CPU: constants are folded by running operators."""
    from torch._inductor import config
    from torch._inductor.compile_fx import record_original_output_strides
    from torch._inductor.fx_passes import fuse_attention, joint_graph

    graph = explicit_rounding.hidden(captured)
    output = graph.graph.output_node()
    output.meta["user_visible_output_idxs"] = list(range(len(output.args[0])))
    with ExitStack() as stack:
        patch(stack, torch.cuda, "is_available", lambda: False)  # patterns are told by examples, which torch would put on a GPU
        scatters = {"optimize_scatter_upon_const_tensor": TorchVersion(torch.__version__) >= "2.13"}  # before, floats became whole numbers
        stack.enter_context(config.patch(shape_padding=False, fallback_random=True, **scatters))
        patch(stack, fuse_attention, "_scaled_dot_product_attention", _attention)
        patch(stack, joint_graph.UniformValueConstantFolder, "_add_peephole_patterns", lambda self: None)  # x * 0 of NaN is no 0
        row_reductions.plain_softmax(stack)
        joint_graph.joint_graph_passes(graph)
    if options.mixed:
        faster_templates.attend(graph, options, masked=True)
    record_original_output_strides(graph)
