"""Casts of a literal's bits to another type."""

from __future__ import annotations

import ast
import math
import struct
from typing import Any

from kernelllm.compiler.emit.ast_tools import call
from kernelllm.compiler.emit.kernels import integers

_BITS = {"tl.float64": ("tl.uint64", "<Q", "<d", 0), "tl.float32": ("tl.uint32", "<I", "<f", 0), "tl.float16": ("tl.uint16", "<H", "<e", 0),
         "tl.bfloat16": ("tl.uint16", "<I", "<f", 16)}  # the upper half of a float32


def cast(bits: Any, node: ast.Call) -> ast.expr:
    """``bits.to(tl.float32, bitcast=True)`` as the number that it is; Infinity and NaN, which have no literal, as a tensor's bits."""
    if isinstance(bits, float):
        if struct.pack("d", bits) != bytes(8):
            raise ValueError(f"the bits of {bits} are those of an unknown type")
        return ast.Constant(0)  # in every type
    integer, whole, number, shift = _BITS.get(ast.unparse(node.args[0]), ("tl.int32", "", "", 0))
    if whole and math.isfinite(value := struct.unpack(number, struct.pack(whole, bits << shift))[0]):
        return ast.Constant(value)
    node.func = ast.Attribute(call("tl.full", ast.List([], ast.Load()), ast.Constant(bits), integers.to_ast(integer)), "to", ast.Load())
    return node


__all__ = ["cast"]
