"""Every name of torch and Triton that is replaced while kernelllm works, with the signature that it relies on, and why.

Data alone: tests/test_patches.py asserts that each name is there and takes these parameters. Both ends of the supported range agree:
torch 2.11 with triton 3.6, and torch 2.13 with triton 3.7.1. A name that only some releases have gets a ``versions``.

A change to the compiler lasts as long as one ``with`` block. A change to the worker lasts as long as its process, which never
is the caller's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Kind = Literal["replaced", "added", "overridden", "called"]


@dataclass(frozen=True)
class Patch:
    """One name that is replaced, or relied on by a replacement."""

    target: str
    """``module:qualified.name``."""
    parameters: tuple[str, ...] | None
    """Names of its parameters, in order; None where only the name counts."""
    by: str
    """The file or package that does it."""
    why: str
    kind: Kind = "replaced"
    """``added``: the name must not exist (a builtin is shadowed). ``overridden``: in a subclass. ``called``: private, called as it is."""
    versions: str = ""
    """Releases that have it, such as ``torch>=2.12``; empty for all that are supported."""


def _each(by: str, why: str, module: str, names: str, kind: Kind = "replaced", versions: str = "") -> Iterator[Patch]:
    """One patch for each of ``names``: ``name`` or ``name(parameters)``, separated by semicolons; a prefix ends with ``.``."""
    for item in names.split(";"):
        name, bracket, inner = item.strip().removesuffix(")").partition("(")
        parameters = tuple(p.strip() for p in inner.split(",") if p.strip()) if bracket else None
        yield Patch(f"{module}:{name}", parameters, by, why, kind, versions)


_CELL = "(input, hx, w_ih, w_hh, b_ih, b_hh)"
_DROPOUT = "dropout(input, p, train);dropout_(self, p, train)"
_LAYER = "(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)"
_RECURRENT = ";".join([f"{n}{_LAYER}" for n in ("rnn_tanh", "rnn_relu", "gru", "lstm")])
_CELLS = ";".join([f"{n}{_CELL}" for n in ("rnn_tanh_cell", "rnn_relu_cell", "gru_cell", "lstm_cell")])

CAPTURE = (
    *_each("compiler/capture/symbols.py", "a symbol stays a symbol in the arithmetic of constructors", "math", "sqrt;floor;ceil;log;log2"),
    *_each("compiler/capture/symbols.py", "a symbol stays a symbol in the arithmetic of constructors", "numpy", "sqrt"),
    *_each("compiler/capture/symbols.py", "LayerNorm tells sizes by numbers.Integral", "torch.nn.modules.normalization", "numbers"),
    *_each("compiler/capture/symbols.py", "RNNBase asks isinstance(size, int)", "torch.nn.modules.rnn", "int", "added"),
    *_each("compiler/capture/symbols.py", "Unflatten asks isinstance(size, int)", "torch.nn.modules.flatten", "int", "added"),
    *_each(
        "compiler/capture/size_functions.py", "sizes made of three numbers are multiplied two at a time",
        "torch.fx.experimental.proxy_tensor", "_build_proxy_for_sym_expr(tracer, expr, out)",
    ),
    *_each(
        "compiler/capture/size_functions.py", "as above", "torch.fx.experimental.proxy_tensor", "_sym_register(tracer, func, args, out)",
        "called",
    ),
    *_each("compiler/capture/symbols.py", "a symbolic factor is not turned into a number", "torch.nn.functional", "float; min", "added"),
    *_each(
        "compiler/capture/symbols.py", "values of fake parameters are of no interest", "torch.nn.init",
        "_calculate_fan_in_and_fan_out(tensor);constant_;dirac_;eye_;kaiming_normal_;kaiming_uniform_;normal_;ones_;orthogonal_;sparse_;"
        "trunc_normal_;uniform_;xavier_normal_;xavier_uniform_;zeros_",
    ),
    *_each("compiler/capture/symbols.py", "as above", "torch.nn.modules.rnn", "RNNBase.reset_parameters(self)"),
    *_each(
        "compiler/capture/intercept.py", "attention is one operator of the graph", "torch.nn.functional",
        "scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)",
    ),
    *_each("compiler/capture/intercept.py", "a recurrent layer is one operator of the graph", "torch", _RECURRENT),
    *_each("compiler/capture/intercept.py", "a recurrent layer is one operator of the graph", "torch._VF", _RECURRENT),
    *_each("compiler/capture/intercept.py", "ATen's cells pin their sizes to numbers", "torch", _CELLS),
    *_each("compiler/capture/intercept.py", "ATen's cells pin their sizes to numbers", "torch._VF", _CELLS),
    *_each("compiler/capture/intercept.py", "the mask is the one that eager draws", "torch", _DROPOUT),
    *_each("compiler/capture/intercept.py", "the mask is the one that eager draws", "torch._VF", _DROPOUT),
    *_each("compiler/capture/intercept.py", "ATen's bilinear operator has no lowering", "torch", "bilinear(input1, input2, weight, bias)"),
    *_each(
        "compiler/capture/intercept.py", "no lowering takes ATen's operator apart", "torch",
        "embedding_bag;cdist(x1, x2, p, compute_mode);cov;corrcoef"
    ),
    *_each("compiler/capture/intercept.py", "no lowering takes ATen's operator apart", "torch.nn.functional",
           "multilabel_margin_loss;ctc_loss;grid_sample;affine_grid(theta, size, align_corners);"
           "embedding_bag(input, weight, offsets, max_norm, norm_type, scale_grad_by_freq, mode, sparse, per_sample_weights, "
           "include_last_offset, padding_idx)"),
    *_each("compiler/capture/intercept.py", "ATen's operator pins the number of classes", "torch.nn.functional", "one_hot"),
    *_each("compiler/capture/intercept.py", "a circular pad of more than there is has an error", "torch.nn.functional", "pad"),
    *_each("compiler/capture/intercept.py", "rules for a batch of ATen's operators pin sizes, or take no symbols", "torch.nn.functional",
           "gelu;layer_norm(input, normalized_shape, weight, bias, eps)"),
    *_each(
        "compiler/capture/intercept.py", "ATen's bilinear operator has no lowering", "torch.nn.functional",
        "bilinear(input1, input2, weight, bias)",
    ),
    *_each(
        "compiler/capture/intercept.py", "ATen's form pins a size", "torch",
        "group_norm(input, num_groups, weight, bias, eps, cudnn_enabled);"
        "max_pool1d(self, kernel_size, stride, padding, dilation, ceil_mode)",
    ),
    *_each(
        "compiler/capture/intercept.py", "ATen's windows fix the length, and have no lowering", "torch",
        "hann_window;hamming_window;blackman_window;bartlett_window",
    ),
    *_each(
        "compiler/capture/intercept.py", "while tracing, its gradient takes a scan for every element", "torch", "cumprod;Tensor.cumprod",
    ),
    *_each(
        "compiler/capture/intercept.py", "ATen's form asks for the number of elements", "torch",
        "quantile;nanquantile;Tensor.quantile;Tensor.nanquantile",
    ),
    *_each("compiler/capture/intercept.py", "torch reads sizes among the numbers, and pins them", "torch", "tensor;as_tensor"),
    *_each(
        "compiler/capture/intercept.py", "C++ reads sizes as numbers", "torch",
        "gradient;kron;take_along_dim;vander;chain_matmul;tril_indices;triu_indices;Tensor.kron;Tensor.take_along_dim",
    ),
    *_each("compiler/capture/decompositions/size_readers.py", "sizes stay symbols", "torch.nn.functional", "unfold;fold"),
    *_each("compiler/capture/decompositions/size_readers.py", "sizes stay symbols", "torch", "Tensor.unfold"),
    *_each("compiler/capture/decompositions/size_readers.py", "sizes stay symbols", "torch.fft", "fftfreq;rfftfreq"),
    *_each("compiler/capture/intercept.py", "C++ reads sizes as numbers", "torch.linalg", "multi_dot;norm;matrix_norm"),
    *_each("compiler/capture/intercept.py", "momentum=None reads a tensor on the host", "torch.nn.modules.batchnorm", "_BatchNorm.forward"),
    *_each("compiler/capture/intercept.py", "files to learn from have plain templates", "torch", "batch_norm;instance_norm;layer_norm"),
    *_each("compiler/capture/intercept.py", "files to learn from have plain templates", "torch.nn.functional", "avg_pool1d"),
    *_each("compiler/capture/intercept.py", "pools of a whole image are reductions", "torch.nn.functional", "avg_pool2d;avg_pool3d"),
    *_each("compiler/capture/intercept.py", "pools of a whole image are reductions", "torch", "max_pool2d;max_pool3d"),
    *_each(
        "compiler/capture/intercept.py", "tracing needs no GPU; windows keep a symbolic length", "torch._subclasses.functional_tensor",
        "FunctionalTensor.cuda(self, device, args, kwargs);FunctionalTensor.unfold(self, dimension, size, step);"
        "FunctionalTensor.fill_diagonal_",
    ),
    *_each("compiler/capture/intercept.py", "products of many small matrices are sums", "torch",
           "matmul;Tensor.matmul;Tensor.__matmul__"),
    *_each("compiler/capture/intercept.py", "it reads the sizes of an einsum's operands", "opt_einsum", "contract_path"),
    *_each("compiler/capture/decompositions/grid_samples.py", "outside of an image torch's reads its first pixel times 0",
           "torch._decomp.decompositions", "_grid_sampler_2d(a, grid, interpolation_mode, padding_mode, align_corners, _expand_grid)"),
    *_each(
        "compiler/capture/decompositions/interpolation.py", "torch's is NaN between infinite neighbours", "torch._decomp.decompositions",
        "_upsample_linear(input, output_size, align_corners, scales)",
    ),
    *_each(
        "compiler/capture/decompositions/interpolation.py", "the scale is what the module gives", "torch._decomp.decompositions",
        "_compute_upsample_nearest_indices(input, output_size, scales, exact)",
    ),
    *_each(
        "compiler/capture/decompositions/interpolation.py", "places of neighbours", "torch._decomp.decompositions",
        "_compute_scale(in_size, out_size, align_corners, scale);_compute_source_index(scale, dst_index, align_corners);pw_cast_for_opmath",
        "called",
    ),
    *_each(
        "compiler/capture/data_dependent/mask_positions.py", "a loop over a mask's positions runs over all", "torch",
        "Tensor.__iter__(self)",
    ),
    *_each(
        "compiler/capture/intercept.py", "torch cannot convert fake parameters", "torch.nn.modules.module",
        "Module._apply(self, fn, recurse)",
    ),
    *_each(
        "compiler/capture/decompositions/padded_encoders.py", "no trace takes nested tensors", "torch.nn.modules.transformer",
        "TransformerEncoder.forward(self, src, mask, src_key_padding_mask, is_causal)",
    ),
    *_each(
        "compiler/capture/decompositions/padded_encoders.py", "values decide", "torch", "_nested_tensor_from_mask_left_aligned",
    ),
    *_each(
        "problems/unfused_flex.py", "flex attention is what it computes, without torch's compiler", "torch.nn.attention.flex_attention",
        "create_mask(mod_fn, B, H, Q_LEN, KV_LEN, device);_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG;setup_compilation_env;flex_attention_hop;"
        "_validate_device(query, key, value);"
        "_apply_kernel_options(query, key, value, return_lse, kernel_options, return_aux);"
        "_convert_mask_to_block_mask(mask, Q_BLOCK_SIZE, KV_BLOCK_SIZE, separate_full_blocks);"
        "_create_sparse_block_from_block_mask(block_mask, mask_mod, seq_lengths, Q_BLOCK_SIZE, KV_BLOCK_SIZE)",
    ),
    *_each("problems/unfused_flex.py", "flex attention is what it computes, without torch's compiler",
           "torch._higher_order_ops.flex_attention",
           "math_attention(query, key, value, score_mod, block_mask, scale, kernel_options, score_mod_other_buffers, "
           "mask_mod_other_buffers)",
           "called"),
    *_each("compiler/capture/decompositions/flex_scores.py", "the caller's functions, at all positions",
           "torch.nn.attention.flex_attention", "_vmap_for_bhqkv(fn, prefix, suffix, out_dims, group_dim);_identity;noop_mask", "called"),
    *_each("compiler/capture/decompositions/flex_scores.py", "positions are indices", "torch._dynamo._trace_wrapped_higher_order_op",
           "TransformGetItemToIndex", "called"),
    *_each("problems/unfused_flex.py", "what torch.compile gave runs as it is", "torch._dynamo.config", "error_on_nested_fx_trace"),
    *_each("compiler/capture/intercept.py", "a decision that only refuses is passed", "torch", "Tensor.__bool__"),
    *_each("compiler/capture/intercept.py", "a decision on values is traced both ways", "torch", "allclose"),
    *_each("compiler/capture/intercept.py", "a number that is read off a tensor stays one", "torch", "Tensor.item"),
    *_each("compiler/capture/data_dependent/row_count_tests.py", "where rows may be found, some are", "torch", "SymBool.__bool__"),
    *_each("compiler/capture/data_dependent/row_count_tests.py", "lengths of parts are numbers of rows", "torch._VF", "split_with_sizes"),
    *_each(
        "compiler/capture/data_dependent/host_row_counts.py", "counts that NumPy has, and rows between their sums",
        "torch._subclasses.functional_tensor", "FunctionalTensor.numpy;FunctionalTensor.__getitem__",
    ),
    *_each(
        "compiler/capture/data_dependent/row_count_tests.py", "a decision stands in the module's line",
        "torch.fx.experimental.symbolic_shapes", "uninteresting_files()",
    ),
    *_each(
        "compiler/capture/intercept.py", "a decision that only refuses is passed", "torch._subclasses.functional_tensor",
        "FunctionalTensor.__bool__(self)",
    ),
    *_each(
        "compiler/capture/intercept.py", "a known value is a real tensor", "torch.utils._python_dispatch", "_disable_current_modes()",
        "called",
    ),
    *_each("compiler/capture/intercept.py", "validation reads values", "torch.distributions.distribution", "Distribution._validate_args"),
    *_each("compiler/capture/least_sizes.py", "what a module decides by sizes of 1 is checked", "torch", "SymBool.__bool__"),
    *_each("compiler/capture/least_sizes.py", "where it does so is told", "torch.fx.experimental.symbolic_shapes", "uninteresting_files()"),
    *_each(
        "compiler/capture/divisible_sizes.py", "facts about sizes are looked through again only for what a divisible size changes",
        "torch.fx.experimental.symbolic_shapes", "ShapeEnv._maybe_evaluate_static",
    ),
    *_each(
        "compiler/capture/derived_sizes.py", "output sizes of convolutions and pools get symbols of their own", "torch._meta_registrations",
        "calc_conv_nd_return_shape(input_tensor, weight, stride, padding, dilation, is_transposed, groups, output_padding);"
        "pooling_output_shape(inputSize, kernelSize, pad, stride, dilation, ceil_mode)",
    ),
    *_each(
        "compiler/capture/derived_sizes.py", "views have the sizes that were asked for", "torch._refs",
        "_reshape_view_helper_core_alg(a, shape, allow_copy)",
    ),
    *_each(
        "compiler/capture/derived_sizes.py", "the same in Inductor's lowerings", "torch._inductor.lowering",
        "pooling_size(x, i, kernel_size, stride, padding, ceil_mode, dilation)",
    ),
    *_each(
        "compiler/capture/modes.py", "a forward that asks for its mode is told from one that does not", "torch.nn.modules.module",
        "Module.training", "added",
    ),
    Patch("torch.autograd:Function.apply", None, "compiler/recurrences/loop_function.py", "a step with a gradient of its own is refused"),
    *_each("compiler/recurrences/step_graphs.py", "a step is traced apart from the trace around it", "torch.utils._python_dispatch",
           "_disable_current_modes", "called"),
    *_each("compiler/recurrences/step_graphs.py", "the fake tensors behind the wrappers", "torch._guards", "detect_fake_mode", "called"),
    *_each("compiler/capture/torch_export.py", "it prints a graph when it gives up", "torch.export._trace", "print", "added"),
    *_each("compiler/capture/capture.py", "an error in torch.export leaves vmap open", "torch._C._functorch",
           "get_dynamic_layer_stack_depth;pop_dynamic_layer_stack_and_undo_to_depth", "called"),
    *_each(
        "compiler/capture/fx_trace.py", "functionalisation without AOTAutograd", "torch._functorch._aot_autograd.functional_utils",
        "to_fun(t);from_fun(t);has_data_mutation(t)", "called",
    ),
)  # fmt: skip

INDUCTOR = (
    *_each(
        "compiler/inductor/fake_device.py", "Inductor asks a described GPU, not the machine's", "torch._dynamo.device_interface",
        "device_interfaces;get_interface_for_device(device)", "called",
    ),
    *_each(
        "compiler/inductor/fake_device.py", "Inductor asks a described GPU, not the machine's", "torch._dynamo.device_interface",
        "CudaInterface.device;CudaInterface.Worker;CudaInterface.current_device();CudaInterface.set_device(device);"
        "CudaInterface.device_count();CudaInterface.synchronize(device);CudaInterface.get_device_properties(device);"
        "CudaInterface.exchange_device(device);CudaInterface.maybe_exchange_device(device);CudaInterface.memory_allocated(device);"
        "CudaInterface.is_bf16_supported(including_emulation);CudaInterface.is_available();CudaInterface.get_compute_capability(device);"
        "CudaInterface.is_triton_capable(device);CudaInterface.raise_if_triton_unavailable(device)", "overridden",
    ),
    *_each(
        "compiler/inductor/fake_device.py", "Inductor asks a described GPU, not the machine's", "torch.cuda",
        "is_available();current_device();device_count();get_device_properties(device);get_device_capability(device);"
        "is_bf16_supported(including_emulation);synchronize(device)",
    ),
    *_each("compiler/inductor/fake_device.py", "it would start CUDA", "torch._subclasses.fake_tensor", "init_gpu_context(device)"),
    *_each("compiler/inductor/fake_device.py", "the method wants a GPU's driver", "torch._subclasses.fake_tensor", "FakeTensor.contiguous"),
    *_each("compiler/inductor/fake_device.py", "Triton's target without a driver", "triton.runtime.driver", "driver._active"),
    *_each(
        "compiler/inductor/fake_device.py", "answers about the device asked last are dropped", "torch._inductor.utils",
        "get_gpu_type;is_big_gpu;get_max_num_sms;using_b200;get_device_tflops;get_gpu_dram_gbps;get_backend_num_stages", "called",
    ),
    *_each(
        "compiler/inductor/fake_device.py", "answers about the device asked last are dropped", "torch.utils._triton",
        "_device_supports_tma;has_triton;triton_backend;has_triton_experimental_host_tma;has_triton_tensor_descriptor_host_tma;"
        "has_triton_tma;has_triton_tma_device;has_datacenter_blackwell_tma_device;has_triton_stable_tma_api;triton_hash_with_backend",
        "called",
    ),
    *_each("compiler/inductor/heuristics.py", "block sizes are read", "torch._inductor.runtime.triton_heuristics", "cached_autotune"),
    *_each(
        "compiler/inductor/lower.py", "layouts are those of cuDNN, which this build may lack", "torch._C",
        "_conv_determine_backend_memory_format",
    ),
    *_each(
        "compiler/inductor/lower.py", "attention that is written out becomes our stand-in for torch's",
        "torch._inductor.fx_passes.fuse_attention", "_scaled_dot_product_attention",
    ),
    *_each("compiler/inductor/lower.py", "a product with 0 may be NaN", "torch._inductor.fx_passes.joint_graph",
           "UniformValueConstantFolder._add_peephole_patterns(self)"),
    *_each("compiler/inductor/quotient_ranges.py", "squares of quotients are split", "torch._inductor.codegen.simd",
           "SIMDKernel._split_iteration_ranges(groups, lengths)"),
    *_each("compiler/inductor/quotient_ranges.py", "squares of quotients are split", "torch._inductor.sizevars",
           "SizeVarAllocator.statically_known_gt(self, left, right)"),
    *_each("compiler/inductor/row_reductions.py", "softmax of scaled rows", "torch._inductor.fx_passes.joint_graph", "pass_patterns"),
    *_each(
        "compiler/inductor/lower.py", "attention is recognised", "torch._inductor.fx_passes.joint_graph", "joint_graph_passes",
        "called",
    ),
    *_each(
        "compiler/inductor/lower.py", "results keep their strides", "torch._inductor.compile_fx",
        "record_original_output_strides(gm)", "called",
    ),
    *_each(
        "compiler/inductor/lower.py", "the methods want a GPU's driver", "torch._subclasses.fake_tensor",
        "FakeTensor.copy_;FakeTensor.__invert__",
    ),
    *_each(
        "compiler/inductor/lower.py", "kernels of one operator each; constants in kernels; exact strides", "torch._inductor.graph",
        "GraphLowering.run_node(self, n);GraphLowering.get_attr(self, target, args, kwargs);"
        "GraphLowering.has_feature(self, device, feature);GraphLowering.output(self, target, args, kwargs)", "overridden",
    ),
    *_each("compiler/inductor/scatters.py", "asks for atomic operations where nothing is added up", "torch._inductor.lowering",
           "use_scatter_fallback(op_overload, reduction_type, self_dtype, src_dtype, src_device_type, src_is_tensor)"),
    *_each("compiler/inductor/lower.py", "lowering without printing or compiling", "torch._inductor.graph",
           "GraphLowering.freeze_runtime_asserts(self);GraphLowering._update_scheduler(self);"
           "GraphLowering.init_wrapper_code(self, is_subgraph, subgraph_name, parent_wrapper_code, partition_signatures)", "called"),
    *_each("compiler/inductor/lower.py", "lowering without printing or compiling", "torch._inductor.scheduler",
           "Scheduler.codegen(self)", "called"),
    *_each("compiler/inductor/wrapper_lines.py", "the host's steps are read from the wrapper's lines", "torch._inductor.codegen.wrapper",
           "PythonWrapperCodegen.push_codegened_graph(self, graph);PythonWrapperCodegen.run_wrapper_ir_passes(self, is_inference);"
           "PythonWrapperCodegen.get_output_refs(self);PythonWrapperCodegen.codegen_shape_tuple(self, shape);"
           "PythonWrapperCodegen.codegen_sizevar(self, x);PythonWrapperCodegen.prepare_triton_kernel_call(self, call_args);"
           "KernelDefinitionLine;KernelCallLine;AllocateLine;FreeLine;FreeIfNotReusedLine;SymbolicCallArg;SymbolicCallArgLine;"
           "ExternKernelAllocLine;CommentLine;NullLine;EnterDeviceContextManagerLine;ExitDeviceContextManagerLine;LineContext", "called"),
    *_each("compiler/inductor/broadcasting.py", "a computed size may be 1", "torch._inductor.ir", "ExpandView.make_reindexer(self)"),
    *_each("compiler/inductor/broadcasting.py", "a counted size fits what it was captured with", "torch._inductor.ir",
           "ExpandView._normalize_size(x, new_size)"),
    *_each("compiler/inductor/in_place.py", "memory that an operator hands on is not written into", "torch._inductor.codegen.wrapper",
           "PythonWrapperCodegen.can_reuse(self, input_buffer, output_buffer)"),
    *_each("compiler/inductor/wrapper_lines.py", "a line of another kind is printed by itself", "torch._inductor.codegen.wrapper",
           "PythonWrapperCodegen.writeline(self, line)"),
    *_each("compiler/inductor/wrapper_lines.py", "the host's steps are read from the wrapper's lines", "torch._inductor.ir",
           "ExternKernel.codegen_args(self);ExternKernel.codegen_kwargs(self, skip_out);ExternKernel.get_kernel_name(self);NoneLayout",
           "called"),
    *_each("compiler/inductor/in_place.py", "reads of what an earlier write left count, too", "torch._inductor.scheduler",
           "Scheduler.fusable_weak_dep(self, weak_dep, node1, node2)"),
    *_each("compiler/inductor/in_place.py", "a write in place sees all views of what it writes", "torch._inductor.fx_passes.post_grad",
           "reinplace_inplaceable_ops(fake_tensor_updater, graph)"),
    *_each("compiler/inductor/lower.py", "Inductor's passes over a forward graph", "torch._inductor.fx_passes.post_grad",
           "post_grad_passes(gm, is_inference);view_to_reshape(gm)", "called"),
    *_each("compiler/inductor/lower.py", "regions read each other's results by their strides", "torch._inductor.ir",
           "ExternKernel.require_exact_strides(x, exact_strides, allow_padding)", "called"),
    *_each("compiler/inductor/arctangents.py", "an arctangent is a call, not inline assembly", "torch._inductor.codegen.triton",
           "TritonOverrides.atan"),
    *_each("compiler/inductor/arctangents.py", "half precision is converted before a call", "torch._inductor.codegen.triton",
           "maybe_upcast_float32(convert_output)", "called"),
    *_each("compiler/inductor/loads_in_loops.py", "what a loop loads is not known behind it", "torch._inductor.codegen.triton",
           "TritonKernel.get_load_buffer(self, indexing);TritonKernel.load(self, name, index)"),
    *_each("compiler/inductor/row_reductions.py", "a reduction's form follows the hint of a symbolic length", "torch._inductor.choices",
           "InductorChoices.should_use_persistent_reduction(features, cooperative_reduction)", "overridden"),
    *_each("compiler/inductor/row_reductions.py", "a row of symbolic length may be held in registers", "torch._inductor.codegen.triton",
           "TritonKernel._get_persistent_RBLOCK(rnumel);TritonKernel.codegen_static_numels(self, code)"),
    *_each("compiler/inductor/row_reductions.py", "softmax of a long row in one pass", "torch._inductor.lowering",
           "lowerings;_make_reduction_inner(x, axis, keepdims, dtype, override_return_dtype, reduction_type)", "called"),
    *_each("compiler/inductor/row_reductions.py", "softmax of a long row in one pass", "torch._inductor.inductor_prims",
           "prepare_softmax_online", "called"),
    *_each(
        "compiler/inductor/row_reductions.py", "softmax of a long row in one pass", "torch._inductor.ir",
        "OnlineSoftmaxReduction.create(device, dst_dtype, src_dtype, inner_fn, ranges, reduction_ranges, num_output, "
        "reduction_hint, input_node)", "called",
    ),
    *_each("compiler/inductor/row_reductions.py", "the value of a size at the problem's own sizes", "torch._inductor.sizevars",
           "SizeVarAllocator.optimization_hint(self, expr, fallback)", "called"),
    *_each("compiler/capture/size_quotients.py", "common powers of sizes cancel", "torch.utils._sympy.functions",
           "simple_floordiv_gcd(p, q)"),
    *_each("compiler/inductor/signs_of_zero.py", "a written out sum begins with zero", "torch._inductor.ir",
           "Reduction._unroll_reduction_fn(inner_fn, reduction_ranges, reduction_type, src_dtype)"),
    *_each("compiler/inductor/joined_inputs.py", "a long part of a concatenation is not stored", "torch._inductor.ir",
           "StorageBox.has_exceeded_max_reads(self)"),
    *_each("compiler/inductor/joined_inputs.py", "how long it is", "torch._inductor.ir",
           "StorageBox.num_reads(self);Pointwise.inner_fn_opcount(self)", "called"),
    *_each("compiler/inductor/size_extremes.py", "the smaller of two sizes holds at all sizes", "torch._inductor.sizevars",
           "SizeVarAllocator.evaluate_min(self, left, right);SizeVarAllocator.evaluate_max(self, left, right)"),
    *_each("compiler/inductor/size_extremes.py", "what is known of the larger of 0 and an index", "torch.fx.experimental.symbolic_shapes",
           "_maybe_evaluate_static_worker(expr, symbol_info, unbacked_only, size_oblivious)"),
    *_each("compiler/inductor/size_extremes.py", "a sum of opposite infinities has no bounds", "torch.utils._sympy.value_ranges",
           "SymPyValueRangeAnalysis.add(a, b);ValueRanges.unknown"),
    *_each("compiler/inductor/size_extremes.py", "what is known of all sizes", "torch._inductor.sizevars",
           "SizeVarAllocator.statically_known_leq(self, left, right)", "called"),
    *_each(
        "compiler/inductor/split_reductions.py", "the number of parts of a reduction is marked; a scan has one part", "torch._inductor.ir",
        "Reduction.num_splits(device, dst_dtype, src_dtype, inner_fn, ranges, reduction_ranges, reduction_type, "
        "reduction_numel, input_node);"
        "Scan.num_splits(device, dtype, inner_fn, axis, pointwise_ranges, scan_ranges, combine_fn, scan_numel)",
    ),
    *_each("compiler/inductor/viewed_layouts.py", "a view is one of a buffer whose layout is decided", "torch._inductor.ir",
           "View.create(x, new_size)"),
    *_each("compiler/inductor/viewed_layouts.py", "the layout of a buffer is decided", "torch._inductor.ir",
           "as_storage_and_layout(x, freeze, want_contiguous, stride_order, allow_padding, exact_strides)", "called"),
    *_each("compiler/inductor/tilings.py", "whether ranges fit a tiling is worked out once", "torch._inductor.codegen.simd",
           "SIMDKernel.is_compatible(groups, lengths, reduction_numel)"),
    *_each("compiler/inductor/reduction_loops.py", "kernels of several reductions have few loops", "torch._inductor.codegen.simd",
           "SIMDScheduling.generate_node_schedule(self, nodes, numel, rnumel);EnableReduction"),
    *_each("compiler/inductor/reduction_loops.py", "memory is no reason against joining a kernel to the one that it reads",
           "torch._inductor.scheduler", "Scheduler.can_fusion_increase_peak_memory(self, node1, node2)"),
    *_each("compiler/inductor/split_reductions.py", "whether a reduction reads along memory", "torch._inductor.ir",
           "FlexibleLayout.allow_indexing"),
    *_each("compiler/inductor/split_reductions.py", "whether a reduction reads along memory", "torch._inductor.dependencies",
           "extract_read_writes(fn, argsizes, normalize, prefix, hidden_args);index_vars_squeeze(argsizes, prefix)", "called"),
)  # fmt: skip

LAUNCHES = (
    *_each("backends/triton/host_calls.py", "launches beside a file's launchers are seen", "triton.runtime.jit",
           "JITFunction.run(self, args, grid, warmup, kwargs)"),
    *_each("backends/triton/host_calls.py", "a file's memory for descriptors is set again", "triton", "set_allocator(allocator)"),
    *_each("the worker", "launches are seen, suppressed or compiled only", "triton.runtime.jit",
           "JITFunction.run(self, args, grid, warmup, kwargs)"),
    *_each("the worker", "launches of compiled objects are seen too", "triton.compiler.compiler", "CompiledKernel._init_handles(self)"),
    *_each("the worker", "the device rests while a kernel compiles", "triton.runtime.jit",
           "JITFunction._do_compile(self, key, signature, device, constexprs, options, attrs, warmup)"),
    *_each("the worker", "tuning has the device alone, and none is timed without one", "triton.runtime.autotuner",
           "Autotuner.run(self, args, kwargs);Autotuner.prune_configs(self, kwargs);Autotuner.do_bench"),
    *_each("the worker", "streams are counted", "torch.cuda.streams", "Stream.__new__(cls, device, priority, kwargs)"),
    *_each("the worker", "the singleton is made before workers fork", "triton.backends.nvidia.driver", "CudaUtils.__init__(self)"),
    *_each("the worker without a GPU", "jitted functions are Triton's own objects, and run in the interpreter", "triton.runtime.jit",
           "JITFunction.__call__(self, args, kwargs)"),
    *_each("the worker without a GPU", "the interpreter leaves no names among the candidate's", "triton.runtime.interpreter",
           "FunctionRewriter._compile_and_exec(self, transformed_ast)"),
    *_each("the worker without a GPU", "a kernel's source is looked up once", "triton.runtime.interpreter",
           "FunctionRewriter._find_def(self, lines);FunctionRewriter._prepare_source(self, lines);"
           "FunctionRewriter._transform_ast(self, src)", "called"),
    *_each("the worker without a GPU", "the function for CUDA runs", "torch._library.custom_ops",
           "CustomOpDef.register_kernel(self, device_types, fn)"),
    *_each("the worker without a GPU", "no folder is made for each file of a compile", "triton", "knobs.cache.manager_class"),
    *_each("the worker without a GPU", "no folder is made for each file of a compile", "triton.runtime.cache",
           "FileCacheManager.put(self, data, filename, binary);FileCacheManager._make_path(self, filename)", "overridden"),
)  # fmt: skip

DEVICE = (
    *_each("app/live/active_modes.py", "types and layouts of many tensors are compared at once", "torch._C._dynamo.guards", "TensorGuards",
           "called"),
    *_each("the worker without a GPU", "a candidate asks for a GPU and gets figures", "torch.cuda", ";".join((
        "is_available", "is_initialized", "init", "_lazy_init", "device_count", "current_device", "set_device", "synchronize",
        "get_device_properties", "get_device_capability", "get_device_name", "current_stream", "default_stream", "stream", "set_stream",
        "Stream", "ExternalStream", "Event", "device", "device_of", "empty_cache", "memory_allocated", "max_memory_allocated",
        "memory_reserved", "max_memory_reserved", "reset_peak_memory_stats", "reset_max_memory_allocated", "mem_get_info", "manual_seed",
        "manual_seed_all", "is_bf16_supported", "is_tf32_supported", "is_current_stream_capturing", "get_arch_list", "CUDAGraph", "graph",
        "ipc_collect", "nvtx",
    ))),
    *_each("the worker without a GPU", "the same by the newer name", "torch.accelerator",
           "current_device_index;device_count;synchronize;set_device_index"),
    *_each("the worker on a GPU", "a candidate that makes CUDA graphs is told to launch directly", "torch.cuda", "graphs.CUDAGraph"),
    *_each("the worker on a GPU", "the same by the newer name", "torch.accelerator", "Graph", versions="torch>=2.13"),
    *_each("the worker without a GPU", "its parser takes real streams alone", "torch", "Tensor.record_stream"),
    *_each("the worker without a GPU", "generators live on the CPU", "torch", "Generator"),
    *_each("the worker without a GPU", "torch says of itself what a build with CUDA says", "torch", "__version__"),
    *_each("the worker without a GPU", "torch says of itself what a build with CUDA says", "torch.version", "__version__;cuda"),
    *_each("the worker without a GPU", "torch says of itself what a build with CUDA says", "torch.backends.cuda", "is_built"),
    *_each(
        "problems/without_symbols.py", "of plain numbers a stand-in says the same", "torch.fx.experimental.symbolic_shapes",
        "expect_true;guard_or_false;guard_or_true;guard_size_oblivious;statically_known_true;guard_int;is_nested_int;sym_eq;sym_and;sym_or",
    ),
    *_each("the worker without a GPU", "functions that a build with CUDA alone has end the run", "torch._C", "__getattr__", "added"),
    *_each("the worker without a GPU", "storages and threads are those of a machine with a GPU", "torch",
           "UntypedStorage.device;get_num_threads;get_num_interop_threads"),
    *_each("the worker without a GPU", "Python code in a backward meets the stand-in too", "torch.autograd", "_engine_run_backward"),
    *_each("any worker", "a call as torch.compile traces it", "torch.compiler", "_is_compiling_flag"),
    *_each("the worker without a GPU", "nothing is timed", "triton.testing",
           "do_bench(fn, warmup, rep, grad_to_none, quantiles, return_mode);"
           "do_bench_cudagraph(fn, rep, grad_to_none, quantiles, return_mode)"),
    *_each("the worker without a GPU", "Triton's target without a driver", "triton.runtime.driver", "driver.set_active(driver)", "called"),
)  # fmt: skip

_BUILDER = "triton.runtime.interpreter"
_BINARY = ("fadd", "fmul", "fdiv", "frem", "fsub", "precise_divf", "minimumf", "minnumf", "maximumf", "maxnumf", "fcmpOLT", "fcmpOGT",
           "fcmpOLE", "fcmpOGE", "fcmpOEQ", "fcmpONE", "fcmpULT", "fcmpUGT", "fcmpULE", "fcmpUGE", "fcmpUEQ", "fcmpUNE")  # fmt: skip
_UNARY = ("cos", "exp", "exp2", "floor", "ceil", "log", "log2", "precise_sqrt", "sqrt", "sin", "erf", "rsqrt")

EMULATOR = (
    *_each("the emulator", "bfloat16 is computed in float32 and rounded", _BUILDER, ";".join(
        [f"InterpreterBuilder.create_{n}(self, lhs, rhs)" for n in _BINARY] + [f"InterpreterBuilder.create_{n}(self, arg)" for n in _UNARY]
        + ["InterpreterBuilder.create_clampf(self, arg, lo, hi, propagate_nans)", "InterpreterBuilder.create_fma(self, x, y, z)",
           "InterpreterBuilder.cast_impl(self, src, dst_type)",
           "InterpreterBuilder.create_fp_to_fp(self, src, dst_type, rounding_mode)"])),
    *_each("the emulator", "operands are rounded as a tensor core sees them", _BUILDER,
           "InterpreterBuilder.create_dot(self, a, b, d, input_precision, max_num_imprecise_acc)"),
    *_each("the emulator", "libdevice and inline assembly, which the interpreter has not", _BUILDER,
           "InterpreterBuilder.create_extern_elementwise(self, libName, libPath, symbol, argList, retType, isPure);"
           "InterpreterBuilder.create_inline_asm(self, inlineAsm, constraints, values, type, isPure, pack)"),
    *_each("the emulator", "inline assembly by the name that the interpreter looks for first", _BUILDER,
           "InterpreterBuilder.create_inline_asm_elementwise", "added"),
    *_each("the emulator", "libdevice's functions are torch's", "triton.language.extra.cuda.libdevice", "tanh;pow;fmod", "called"),
    *_each("the emulator", "libdevice's functions are torch's", "triton.language.extra.libdevice", "tanh;pow;fmod"),
    *_each("the emulator", "no output, and assertions that name the line", _BUILDER,
           "InterpreterBuilder.create_print(self, prefix, hex, values, isSigned);"
           "InterpreterBuilder.create_assert(self, condition, message);InterpreterBuilder.create_assume(self, condition)"),
    *_each("the emulator", "threads meet at a barrier: reads before it and after it are told apart", _BUILDER,
           "InterpreterBuilder.create_barrier(self)"),
    *_each("the emulator", "the interpreter has no bfloat16 constants", _BUILDER, "InterpreterBuilder.get_bf16", "added"),
    *_each("the emulator", "every access is checked against the tensors that the launch was given", _BUILDER,
           "InterpreterBuilder.create_masked_load(self, ptrs, mask, other, cache_modifier, eviction_policy, is_volatile);"
           "InterpreterBuilder.create_masked_store(self, ptrs, value, mask, cache_modifier, eviction_policy);"
           "InterpreterBuilder.create_atomic_cas(self, ptr, cmp, val, sem, scope);"
           "InterpreterBuilder.create_atomic_rmw(self, rmwOp, ptr, val, mask, sem, scope);"
           "InterpreterBuilder.create_int_to_ptr(self, src, dst_type);InterpreterBuilder.create_bitcast(self, src, dst_type)"),
    *_each("the emulator", "many programs run as one, with one more axis", _BUILDER,
           "InterpreterBuilder.create_get_program_id(self, axis);InterpreterBuilder.create_splat(self, ret_ty, arg);"
           "InterpreterBuilder.create_unsplat(self, arg);InterpreterBuilder.create_broadcast(self, arg, shape);"
           "InterpreterBuilder.create_reshape(self, arg, shape, allow_reorder);InterpreterBuilder.create_trans(self, arg, perm);"
           "InterpreterBuilder.create_cat(self, lhs, rhs);InterpreterBuilder.create_join(self, lhs, rhs);"
           "InterpreterBuilder.create_make_range(self, ret_ty, start, stop);InterpreterBuilder.create_advance(self, ptr, offsets);"
           "InterpreterBuilder.create_gather(self, src, indices, axis);InterpreterBuilder.create_histogram(self, data, bins, mask);"
           "InterpreterBuilder.create_descriptor_gather(self, desc, x_offsets, y_offset, type);"
           "InterpreterBuilder.create_descriptor_scatter(self, desc, value, x_offsets, y_offset);"
           "BlockPointerHandle.materialize_pointers(self, boundary_check);TensorDescHandle.materialize_pointers(self, offsets);"
           "ReduceOps.apply_impl(self, input);ScanOps.apply_impl(self, input);"
           "GridExecutor.__init__(self, fn, arg_names, grid, pre_run_hooks);"
           "GridExecutor.__call__(self, args_dev, kwargs)"),
    *_each("the emulator", "many programs run as one, with one more axis", "triton.language.semantic",
           "TritonSemantic.expand_dims(self, input, axis);TritonSemantic.atom_red_typechecking_impl(self, ptr, val, mask, op)"),
    *_each("the emulator", "many programs run as one, with one more axis", "triton.language.core", "validate_block_shape(shape);tensor.T"),
    *_each("the emulator", "arrays of one element become numbers", "triton.language.core", "tensor.__index__;tensor.__bool__", "added"),
    *_each("the emulator", "reductions and scans by NumPy, not element by element", _BUILDER,
           "ReduceOps.generic_reduce(self, input);ReduceOps.sum(self, input);ScanOps.generic_scan(self, input)"),
    *_each("the emulator", "the numbers of a loop are scalars of the kernel", "triton.language.core", "range"),
    *_each("the emulator", "the numbers of a loop are scalars of the kernel", "triton.language", "range"),
    *_each("the emulator", "sorting by NumPy", "triton.language.standard", "sort"),
    *_each("the emulator", "sorting by NumPy", "triton.language", "sort"),
    *_each("the emulator", "the language is replaced once, not at every launch", _BUILDER,
           "_patch_lang(fn);FunctionRewriter.rewrite_ast(self)"),
    *_each("the emulator", "True and False are arguments of a launch", _BUILDER, "_implicit_cvt(arg)"),
    *_each("the emulator", "types are worked out once", _BUILDER, "_get_np_dtype(tt_dtype)"),
    *_each("the emulator", "NumPy has no unsigned -1", _BUILDER, "InterpreterBuilder.get_all_ones_value(self, type)"),
    *_each("the emulator", "constants are told apart by their class", "triton.language.core", "_unwrap_if_constexpr(o)"),
    *_each("the emulator", "types are worked out once", "triton.language.core",
           "tensor.__init__(self, handle, type);block_type.__init__(self, element_ty, shape)"),
    *_each(
        "the emulator", "a masked load of one element loses its other value where that is zero", "triton.language.semantic",
        "TritonSemantic.load(self, ptr, mask, other, boundary_check, padding_option, cache_modifier, eviction_policy, is_volatile)",
    ),
    *_each("the emulator", "types are worked out once", "triton.language.semantic", "TritonSemantic.broadcast_impl_value(self, lhs, rhs)"),
    *_each(
        "the emulator", "operands of one type need no checks", "triton.language.semantic",
        "TritonSemantic.binary_op_type_checking_impl(self, lhs, rhs, allow_lhs_ptr, allow_rhs_ptr, arithmetic_check, div_or_mod)",
    ),
    *_each("the worker without a GPU", "a compile ends before machine code", "triton", "knobs.runtime.add_stages_inspection_hook"),
    *_each("the emulator", "assertions are not made twice", _BUILDER, "interpreter_builder;interpreter_semantic", "called"),
)  # fmt: skip

PATCHES: tuple[Patch, ...] = (*CAPTURE, *INDUCTOR, *LAUNCHES, *DEVICE, *EMULATOR)
