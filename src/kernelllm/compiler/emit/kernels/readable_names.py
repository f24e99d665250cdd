"""Names that a reader expects: of kernels after what they compute, of values after where they come from."""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Iterable

from kernelllm.compiler.emit.ast_tools import all_reads, assigned, bindings, every, name_of
from kernelllm.compiler.emit.kernels.clean import Cleaned

_SILENT = {
    "view", "_unsafe_view", "reshape", "permute", "transpose", "t", "unsqueeze", "squeeze", "expand", "clone", "convert_element_type",
    "full", "scalar_tensor", "detach", "slice", "alias", "copy", "copy_", "getitem", "iota", "arange", "lift_fresh_copy", "_to_copy",
    "select", "split", "split_with_sizes", "as_strided", "as_strided_scatter", "full_like", "zeros", "ones", "empty", "unbind", "to",
    "contiguous", "fill", "new_zeros", "index_put_", "zeros_like", "ones_like", "unfold", "_assert_async", "bitwise_and", "logical_and",
    "ge", "gt", "le", "lt", "eq", "ne", "prepare_softmax_online", "auto_functionalized", "auto_functionalized_v2",
}  # fmt: skip
_SPOKEN = {
    "_softmax": "softmax", "_log_softmax": "log_softmax", "native_layer_norm": "layer_norm", "native_group_norm": "group_norm",
    "_native_batch_norm_legit": "instance_norm", "_native_batch_norm_legit_functional": "batch_norm", "native_batch_norm": "batch_norm",
    "_native_batch_norm_legit_no_training": "batch_norm", "cudnn_batch_norm": "batch_norm", "addmm": "bias", "convolution": "bias",
    "_conv_depthwise2d": "depthwise",
    "mul": "scale", "_low_memory_max_pool_with_offsets": "max_pool", "max_pool2d_with_indices": "max_pool", "avg_pool2d": "avg_pool",
    "_adaptive_avg_pool2d": "avg_pool", "avg_pool3d": "avg_pool", "avg_pool1d": "avg_pool", "_adaptive_avg_pool3d": "avg_pool",
    "max_pool3d_with_indices": "max_pool", "var_mean": "mean_var", "amax": "max", "amin": "min", "silu": "silu", "div": "divide",
    "sub": "subtract", "rsub": "subtract", "linalg_vector_norm": "norm", "constant_pad_nd": "pad", "upsample_nearest2d": "upsample",
    "upsample_bilinear2d": "upsample", "_scaled_dot_product_efficient_attention": "attention", "index": "gather", "cat": "concat",
    "_fused_rms_norm": "rms_norm", "pow": "power", "baddbmm": "bias", "clamp_min": "clamp", "clamp_max": "clamp", "add_": "add",
    "masked_fill": "mask", "_embedding_bag": "embedding", "native_dropout": "dropout", "binary_cross_entropy_with_logits": "bce_loss",
}  # fmt: skip
_LIMIT = 3
_RESERVED = set(keyword.kwlist) | {
    "torch", "nn", "triton", "tl", "libdevice", "math", "self", "range", "max", "min", "sum", "len", "print", "abs", "int", "float",
    "mask", "cols",
    "rows", "row", "offsets", "start", "input",
    "grid", "warmup", "num_warps", "num_stages", "num_ctas", "maxnreg", "debug",  # a launch has keywords of these names
}  # fmt: skip


def operator_words(ops: Iterable[str]) -> list[str]:
    """Fused operators as words, in order, each once, without those that only move elements."""
    words: list[str] = []
    for op in ops:
        bare = op.rsplit("::", 1)[-1].split(".")[1] if op.count(".") else op
        if bare in _SILENT:
            continue
        word = _SPOKEN.get(bare, bare.strip("_"))
        if word not in words:
            words.append(word)
    return _idioms(words)


def _idioms(words: list[str]) -> list[str]:
    """Groups of primitive operators that have one name."""
    have = set(words)
    for parts, name in (
        ({"max", "subtract", "exp", "sum", "log"}, "log_softmax"),
        ({"max", "subtract", "exp", "sum", "divide"}, "softmax"),
        ({"mean_var", "rsqrt"}, "norm"),
        ({"power", "mean", "rsqrt"}, "rms_norm"),
        ({"power", "mean", "sqrt"}, "rms_norm"),
        ({"erf"}, "gelu"),
    ):
        if parts <= have:
            extra = {"scale", "add", "subtract", "divide"} if name in ("norm", "gelu", "rms_norm") else set()
            at = min(words.index(p) for p in parts)
            words = [*words[:at], name, *[w for w in words[at:] if w not in parts | extra]]
            words = [w for i, w in enumerate(words) if w not in parts | extra or (w == name and words.index(w) == i)]
            have = set(words)
    return words


def kernel_name(cleaned: Cleaned, taken: set[str]) -> str:
    """A fresh name such as ``bias_gelu_kernel``."""
    words = operator_words(cleaned.kernel.ops)
    if not words:
        words = ["copy"]
    if words == ["bias"] and len(cleaned.pointers) == 2 and not any(p.startswith("in_out") for p in cleaned.pointers):
        words = ["reorder"]  # a convolution's input or weights, put into another order
    if len(words) > _LIMIT:
        words = [*words[: _LIMIT - 1], words[-1]]
    return fresh_name("_".join(words) + "_kernel", taken)


def fresh_name(wish: str, taken: set[str]) -> str:
    """``wish``, made an identifier, with ``_2``, ``_3`` ... where it is taken; records it."""
    base = re.sub(r"\W+", "_", wish).strip("_") or "value"
    if base[0].isdigit():
        base = f"n_{base}"
    if base in _RESERVED:
        base += "_"
    name, n = base, 1
    tail = next((t for t in ("_kernel", "_ptr") if base.endswith(t)), "")
    stem = base.removesuffix(tail)
    while name in taken:
        n += 1
        name = f"{stem}_{n}{tail}"
    taken.add(name)
    return name


def block_names(cleaned: Cleaned) -> dict[str, str]:
    """New names of the block sizes and of the values tied to them."""
    blocks = [p for p in cleaned.params if p.endswith("BLOCK")]
    reduces = any(p.startswith("R") for p in blocks)
    if cleaned.rows:
        return {
            "R0_BLOCK": "BLOCK", "xindex": "row", "r0_index": "cols", "r0_mask": "mask", "r0_base": "lanes", "r0_offset": "start",
        }  # fmt: skip
    if not reduces and "YBLOCK" not in blocks:
        return {"XBLOCK": "BLOCK", "xindex": "offsets", "xmask": "mask"}
    if not reduces:
        return {
            "mask": "tile_mask",
            "XBLOCK": "BLOCK_X", "YBLOCK": "BLOCK_Y", "ZBLOCK": "BLOCK_Z", "xindex": "xs", "yindex": "ys", "zindex": "zs",
            "xmask": "x_mask", "ymask": "y_mask", "zmask": "z_mask",
        }  # fmt: skip
    return {
        "mask": "tile_mask",
        "XBLOCK": "BLOCK_ROWS", "YBLOCK": "BLOCK_GROUPS", "R0_BLOCK": "BLOCK_COLS", "R1_BLOCK": "BLOCK_INNER", "xindex": "rows",
        "xmask": "row_mask",
        "yindex": "groups", "ymask": "group_mask", "r0_index": "cols", "r0_mask": "col_mask", "r0_base": "lanes", "r0_offset": "start",
        "r1_index": "inner", "r1_mask": "inner_mask", "r1_base": "inner_lanes", "r1_offset": "inner_start",
    }  # fmt: skip


_CALLED = {
    "tl.sum": "total", "max_along": "largest", "min_along": "smallest", "any_along": "any_true", "prod_along": "product",
    "tl.cumsum": "running",
    "tl.cumprod": "running", "last_along": "last", "tl.exp": "exponential", "tl.rsqrt": "rstd", "tl.sqrt": "root", "tl.sqrt_rn": "root",
    "tl.sigmoid": "gate", "libdevice.tanh": "tanh", "tl.log": "logarithm", "maximum": "upper", "minimum": "lower", "tl.where": "chosen",
    "count_below": "place",
    "tl.abs": "magnitude", "tl.erf": "erf", "floor_div": "quotient", "libdevice.log1p": "softplus", "libdevice.expm1": "grown",
    "tl.full": "filled", "tl.zeros": "acc", "libdevice.pow": "power", "tl.maximum": "upper", "tl.minimum": "lower",
}  # fmt: skip
_TUPLES = {
    "welford_along": ("mean", "m2", "count"), "welford_update": ("new_mean", "new_m2", "new_count"), "welford_merge": ("new_mean",
    "new_m2", "new_count"),
    "softmax_along": ("largest", "total"), "softmax_update": ("new_largest", "new_total"),
    "softmax_merge": ("new_largest", "new_total"),
    "argmax_along": ("best", "best_index"), "argmin_along": ("best", "best_index"),
    "keep_larger": ("new_best", "new_index"), "keep_smaller": ("new_best", "new_index"),
}  # fmt: skip
_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "added", ast.Sub: "shifted", ast.Mult: "scaled", ast.Div: "ratio", ast.FloorDiv: "quotient", ast.Mod: "rest",
    ast.BitAnd: "inside", ast.BitOr: "either",
}  # fmt: skip


def suggested_name(value: ast.expr, pointers: dict[str, str], index: bool) -> str:
    """What to call a value, from the expression that makes it."""
    match value:
        case ast.Subscript(value=inner):
            return suggested_name(inner, pointers, index)
        case ast.Call():
            name = name_of(value.func)
            if name == "tl.load":
                pointer = next((n.id for n in ast.walk(value.args[0]) if isinstance(n, ast.Name) and n.id in pointers), None)
                return pointers[pointer].removesuffix("_ptr") if pointer else "loaded"
            if name.endswith(".to") and isinstance(value.func, ast.Attribute):
                return suggested_name(value.func.value, pointers, index)
            if name == "tl.broadcast_to":
                return suggested_name(value.args[0], pointers, index)
            return _CALLED.get(name, name.rsplit(".", 1)[-1].strip("_") or "value")
        case ast.Compare():
            return "inside"
        case ast.BinOp(op=op):
            return "index" if index and not isinstance(op, ast.BitAnd | ast.BitOr) else _OPERATORS.get(type(op), "value")
        case ast.UnaryOp(op=ast.USub()):
            return "negated"
        case ast.UnaryOp():
            return "outside"
    return "value"


def value_names(cleaned: Cleaned, fixed: dict[str, str], pointers: dict[str, str]) -> dict[str, str]:
    """A new name for every remaining value of the kernel. Values of one loop may reuse the names of another loop's."""
    names = dict(fixed)
    outer = set(names.values()) | {"cols", "rows"} | cleaned.helpers
    _results(cleaned.body, names, outer)
    _block(cleaned, cleaned.body, names, outer, pointers, top=True)
    return names


def _results(body: list[ast.stmt], names: dict[str, str], taken: set[str]) -> None:
    """Accumulators are called after what they end up as: ``largest_acc`` becomes ``largest``."""
    carried = {n for n, times in bindings(body).items() if times > 1}
    for statement in body:
        if not isinstance(statement, ast.Assign):
            continue
        value = statement.value
        while isinstance(value, ast.Subscript):
            value = value.value
        if not isinstance(value, ast.Call):
            continue
        called, target = name_of(value.func), statement.targets[0]
        if called in _TUPLES and isinstance(target, ast.Tuple):
            for element, argument, wish in zip(target.elts, value.args, _TUPLES[called], strict=False):
                if isinstance(argument, ast.Name) and argument.id not in names and argument.id in carried:
                    names[argument.id] = fresh_name(f"{wish}_acc", taken)
                if isinstance(element, ast.Name) and element.id not in names and element.id != "_":
                    names[element.id] = fresh_name(wish, taken)
        elif called in ("tl.sum", "max_along", "min_along", "prod_along", "any_along") and isinstance(target, ast.Name):
            wish = _CALLED[called]
            if isinstance(value.args[0], ast.Name) and value.args[0].id in carried and value.args[0].id not in names:
                names[value.args[0].id] = fresh_name(f"{wish}_acc", taken)
            if target.id not in names:
                names[target.id] = fresh_name(wish, taken)


def _block(cleaned: Cleaned, body: list[ast.stmt], names: dict[str, str], taken: set[str], pointers: dict[str, str], top: bool) -> None:
    outside = {n for s in every(cleaned.body) for n in assigned(s)}
    here = set(taken)
    for statement in body:
        if isinstance(statement, ast.For | ast.If | ast.While):
            continue
        _name(cleaned, statement, names, here, pointers)
    if top:
        taken |= here
    for statement in body:
        if isinstance(statement, ast.For | ast.If | ast.While):
            carried = {n for s in every([statement]) for n in assigned(s)} & _read_elsewhere(cleaned.body, statement)
            for name in sorted(carried & outside):
                if name not in names:
                    names[name] = fresh_name("carried", taken)
                here.add(names[name])
            for block in (statement.body, statement.orelse):
                _block(cleaned, block, names, taken | here, pointers, top=False)


def _read_elsewhere(body: list[ast.stmt], loop: ast.stmt) -> set[str]:
    total = all_reads(body)
    inside = all_reads([loop])
    return {name for name in inside | total if total[name] > inside[name]}


def _name(cleaned: Cleaned, statement: ast.stmt, names: dict[str, str], taken: set[str], pointers: dict[str, str]) -> None:
    found = [n for n in assigned(statement) if n not in names and n != "_"]
    if not found or not isinstance(statement, ast.Assign | ast.AugAssign):
        return
    value = statement.value
    base = value
    while isinstance(base, ast.Subscript):
        base = base.value
    several = _TUPLES.get(name_of(base.func)) if isinstance(base, ast.Call) else None
    target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
    if several and isinstance(target, ast.Tuple):
        for element, wish in zip(target.elts, several, strict=False):
            if isinstance(element, ast.Name) and element.id in found:
                names[element.id] = fresh_name(wish, taken)
        return
    for name in found:
        if isinstance(value, ast.Subscript) and isinstance(value.value, ast.Name) and value.value.id in names:
            plain = names[value.value.id]
            names[value.value.id] = fresh_name(f"{plain}_1d", taken)
            names[name] = plain
            continue
        if re.fullmatch(r"[xyz]\d+|r\d_\d+", name):
            names[name] = fresh_name(_index_wish(name, value, names), taken)
            continue
        index = cleaned.facts.type(value) in ("int32", "int64", "size")
        wish = "before" if _reads_what_it_writes(value) else suggested_name(value, pointers, index)
        names[name] = fresh_name(wish, taken)


def _reads_what_it_writes(value: ast.expr) -> bool:
    """Whether a value is loaded from a buffer that the kernel writes in place."""
    loads = [n for n in ast.walk(value) if isinstance(n, ast.Call) and name_of(n.func) == "tl.load"]
    return any(isinstance(n, ast.Name) and n.id.startswith("in_out_ptr") for load in loads for n in ast.walk(load.args[0]))


def _index_wish(name: str, value: ast.expr, names: dict[str, str]) -> str:
    """``offsets % channels`` is ``channel``-like: after the size it wraps at, else ``i0`` ..."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mod) and isinstance(value.right, ast.Name):
        size = names.get(value.right.id, value.right.id)
        if not re.fullmatch(r"(ks|ps)\d+|size_\d+|n_\w+", size):
            return f"{size}_index"
    return f"i{name.lstrip('xyz')}" if name[0] in "xyz" else f"j{name.split('_')[-1]}"
