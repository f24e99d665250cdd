"""Names for the buffers of ModelNew.forward, after what fills them."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from kernelllm.compiler.emit.ast_tools import name_of
from kernelllm.compiler.emit.forward import HostPrinter
from kernelllm.compiler.emit.host_steps import HostProgram, one_of_three
from kernelllm.compiler.emit.kernels.readable_names import fresh_name
from kernelllm.compiler.inductor.wrapper_lines import Allocate, Assign, Launch
from kernelllm.compiler.scored_operators import PREFIX

_RESULTS = {
    "matmul": "product", "addmm": "product", "batched_matmul": "product", "baddbmm": "product", "matvec": "product", "conv": "convolved",
    "conv_transpose": "convolved", "attention": "attended", "half_attention": "attended", "half_attention_backward": "gradient",
    "sink_attention": "attended", "attention_with_sums": "attended", "attention_gradients": "gradient",
    "half_matmul": "product", "half_batched_matmul": "product", "gated_matmul": "gated", "matmul_three": "products",
    "quantized_matmul": "product",
    "scaled_dot_product_attention": "attended", "max_pool": "pooled", "avg_pool": "pooled", "adaptive_avg_pool": "pooled",
    "mm": "product", "bmm": "product", "convolution": "convolved", "cumsum": "running", "cumprod": "running",
}  # fmt: skip


def name_buffers(
    program: HostProgram, host: HostPrinter, wishes: dict[str, dict[str, str]], bases: dict[str, str], taken: set[str]
) -> None:
    """Give every buffer its name: outputs ``out``, the rest after the kernel or template that fills it."""
    outputs = program.result[: len(program.result) - program.kept]
    returned = [program.base(n.id) for e in outputs for n in ast.walk(e) if isinstance(n, ast.Name)]
    returned = [r for r in dict.fromkeys(returned) if r in program.tensors and r not in host.paths]
    final = set(returned)
    for i, name in enumerate(returned):
        host.paths[name] = fresh_name("out" if len(returned) == 1 else f"out_{i}", taken)
    changed = _changed_in_place(program, wishes, bases)
    for item in program.items:
        if isinstance(item, Launch):
            targets = [
                (p, program.base(v.id))
                for p, v in item.arguments.items()
                if p.startswith(("out_ptr", "in_out_ptr")) and isinstance(v, ast.Name)
            ]
            new = [(p, t) for p, t in targets if t not in host.paths and t in program.tensors]
            for param, target in new:
                wish = wishes[item.kernel].get(param)
                if wish is None:
                    wish = bases[item.kernel] + ("" if len(new) == 1 else "_out")
                elif wish == "count" or (len(new) >= 3 and wish in ("mean", "m2")):
                    wish = f"part_{wish}"
                host.paths[target] = fresh_name(wish, taken)
        elif isinstance(item, Assign) and item.target and item.target not in host.paths:
            call, one = item.value, one_of_three(item.value, program)
            while isinstance(call, ast.Subscript):
                call = call.value
            bare = _layer(one, host) if one else ""
            if isinstance(call, ast.Call):
                called = ast.unparse(call.func).removesuffix(".default").removesuffix(".Tensor")
                if name_of(call.func) == "reinterpret_tensor":
                    bare = changed.get(program.base(item.target), "viewed")
                else:
                    last = called.rsplit(".", 1)[-1].removeprefix("torch_")
                    last = "attention" if last.startswith(PREFIX) else last
                    layer = "" if last == "matmul_three" else _layer(call.args[1:3], host)
                    bare = layer or _RESULTS.get(last, f"{last.strip('_')}_out")
            elif isinstance(call, ast.Name) and not bare:
                bare = host.paths.get(program.base(call.id), "part") + "_part"
            host.paths[item.target] = fresh_name(bare or "value", taken)
    for item in program.items:
        if isinstance(item, Allocate) and item.target not in host.paths:
            host.paths[item.target] = fresh_name("out" if item.target in final else "scratch", taken)


def _changed_in_place(program: HostProgram, wishes: dict[str, dict[str, str]], bases: dict[str, str]) -> dict[str, str]:
    """What to call each buffer that a kernel both reads and writes: after what it writes."""
    launches = [item for item in program.items if isinstance(item, Launch)]
    return {
        program.base(v.id): wishes[one.kernel].get(p) or bases[one.kernel]
        for one in launches for p, v in one.arguments.items() if p.startswith("in_out_ptr") and isinstance(v, ast.Name)
    }  # fmt: skip


def _layer(operands: Sequence[ast.expr], host: HostPrinter) -> str:
    """``qkv_out`` for a template that applies ``self.qkv.weight``."""
    for argument in operands:
        for node in ast.walk(argument):
            path = host.paths.get(host.program.base(node.id), "") if isinstance(node, ast.Name) else ""
            match = re.fullmatch(r"self\.(?:.*[.\]])?([A-Za-z]\w*)\.(?:weight|in_proj_weight)", path)
            if match:
                return f"{match[1]}_out"
    return ""
