"""Values that a kernel computes in float32 and stores in half precision: the rest is computed of the numbers that memory holds."""

from __future__ import annotations

import ast
from collections import Counter

from kernelllm.compiler.emit.ast_tools import Replace, all_reads, assigned, bindings, every, name_of, reads
from kernelllm.compiler.emit.kernels import integers
from kernelllm.compiler.emit.kernels.clean import Cleaned


def stored_too(cleaned: Cleaned, half: set[str]) -> dict[str, str]:
    """Values that a kernel stores in half precision and computes with besides, each with its pointer.

    Whoever reads them back must see the numbers that the rest was computed of, as the second pass of a normalisation and eager do.
    """
    found: dict[str, str] = {}
    used, bound, only_stored = all_reads(cleaned.body), bindings(cleaned.body), Counter[str]()
    apart = _converted_copies(cleaned.kernel.function.body)
    for statement in every(cleaned.body):
        match statement:
            case ast.Expr(value=ast.Call(func=func, args=[target, ast.Name(id=value), *_])) if name_of(func) == "tl.store":
                only_stored[value] += 1
                pointer = next(n.id for n in ast.walk(target) if isinstance(n, ast.Name))
                if pointer in half and cleaned.facts.types.get(value) == "fp32" and pointer not in apart:
                    found[value] = pointer
    return {value: pointer for value, pointer in found.items() if used[value] > only_stored[value] and bound[value] == 1}


def _converted_copies(body: list[ast.stmt]) -> set[str]:
    """Pointers to which a kernel of Inductor's stores what the module itself converts (``y.half()``), of values that it reads besides.

    In the kernel the copy is ``tmp2 = tmp1.to(tl.float32)``. ``tmp1`` keeps its precision.
    """
    used, copies, found = all_reads(body), dict[str, str](), set[str]()
    for statement in every(body):
        match statement:
            case ast.Assign(targets=[ast.Name(id=copy)], value=ast.Call(func=ast.Attribute(ast.Name(id=value), "to"))):
                copies[copy] = value
            case ast.Expr(value=ast.Call(func=func, args=[target, ast.Name(id=stored), *_])) if name_of(func) == "tl.store":
                if stored in copies and used[copies[stored]] > 1:
                    found.add(next(n.id for n in ast.walk(target) if isinstance(n, ast.Name)))
    return found


class InFloat32(ast.NodeTransformer):
    """Loads through some pointers as float32, but where the value is only stored again; values in ``stored`` are rounded as they are
    in memory."""

    def __init__(self, pointers: set[str], stored: dict[str, str]) -> None:
        self.pointers, self.stored = pointers, stored

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        target = node.targets[0]
        if isinstance(target, ast.Name) and target.id in self.stored:
            rounded = integers.to_ast(f"(_).to({self.stored[target.id]}.dtype.element_ty).to(tl.float32)")
            node.value = Replace({"_": node.value}).visit(rounded)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if name_of(node.func) == "tl.store" and isinstance(node.args[1], ast.Call) and name_of(node.args[1].func) == "tl.load":
            return node
        self.generic_visit(node)
        read = {n.id for n in ast.walk(node.args[0]) if isinstance(n, ast.Name)} if name_of(node.func) == "tl.load" else set()
        return ast.Call(ast.Attribute(node, "to", ast.Load()), [integers.to_ast("tl.float32")], []) if read & self.pointers else node


def stored_at_once(body: list[ast.stmt], stored: dict[str, str]) -> tuple[list[ast.stmt], set[str]]:
    """Rounded values that are stored where they are made, and which ones those are.

    A value that is rounded, widened and rounded once more for its store breaks a pass of Triton 3.6 (remove-layout-conversions: an operand
    does not dominate its use) where rows do not begin at multiples of 16 bytes.
    """
    moved: set[str] = set()

    def sweep(block: list[ast.stmt]) -> list[ast.stmt]:
        block, done = list(block), list[ast.stmt]()
        while block:
            statement = block.pop(0)
            if isinstance(statement, ast.For | ast.If):
                statement.body, statement.orelse = sweep(statement.body), sweep(statement.orelse)
            done.append(statement)
            name = (*assigned(statement), "")[0]
            if name not in stored or not isinstance(statement, ast.Assign):
                continue
            stores = list[ast.stmt]()
            while (at := _store_that_may_move(block, name)) is not None:
                stores.append(block.pop(at))
            if stores:
                moved.add(name)
                rounded = integers.to_ast(f"(_).to({stored[name]}.dtype.element_ty)")
                statement.value = Replace({"_": statement.value}).visit(rounded)
                done += [*stores, ast.Assign([ast.Name(name, ast.Store())], integers.to_ast(f"{name}.to(tl.float32)"))]
        return done

    return sweep(body), moved


def _store_that_may_move(block: list[ast.stmt], value: str) -> int | None:
    """Where in a block the value is stored next, if nothing before that reads memory, writes there or makes what the store reads."""
    made, written = set[str](), set[str]()
    for at, statement in enumerate(block):
        match statement:
            case ast.Expr(value=ast.Call(func=func, args=[target, stored, *_])) if name_of(func) == "tl.store":
                if isinstance(stored, ast.Name) and stored.id == value:
                    return None if (made | written) & set(reads(statement)) else at
                if _touches_memory(stored):
                    return None
                written.update(n for n in reads(target) if "ptr" in n)
            case ast.Assign() | ast.AugAssign() if not _touches_memory(statement):
                made.update(assigned(statement))
            case _:
                return None
    return None


def _touches_memory(node: ast.AST) -> bool:
    calls = (name_of(n.func) for n in ast.walk(node) if isinstance(n, ast.Call))
    return any(name.startswith(("tl.load", "tl.store", "tl.atomic")) or "barrier" in name for name in calls)
