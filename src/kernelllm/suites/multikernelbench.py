"""``multikernelbench/PATH``: the references of a MultiKernelBench checkout.

Most are problem files as they are. Those of ``npukernelbench`` have ``get_input_groups`` instead of ``get_inputs``: it reads the cases
in a JSON file beside it, one a line, and each case becomes a problem. The shapes and whole numbers of a case become constants, so that
they can be changed like any other sizes.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernelllm.core.errors import ProblemError, UsageError
from kernelllm.core.text import syntax_tree
from kernelllm.core.types import Problem
from kernelllm.problems import sizes
from kernelllm.suites import contract, file
from kernelllm.suites.file import FolderSuite

_INPUTS = '''

# The case of the suite's file.
{constants}

_case = {case}


def get_inputs():
    return get_input_groups()[0]
'''


class MultiKernelBench(FolderSuite):
    """References below a checkout, by category: ``activation/relu``, ``npukernelbench_level1/9_mul/3`` for the third case of a file.

    ``PATH?cases=first`` takes the first case of each file alone. Raises UsageError where there is no such folder.
    """

    name = "multikernelbench"
    summary = "the references of a MultiKernelBench checkout: multikernelbench/PATH"

    def __init__(self, spec: str = ".") -> None:
        path, _, query = spec.partition("?")
        if query not in ("", "cases=first", "cases=all"):
            raise UsageError(f"Unknown option {query!r}.", fix="Write multikernelbench/PATH?cases=first or ?cases=all.")
        super().__init__(path or ".")
        self.most = 1 if query == "cases=first" else None
        self.root = self.root / "reference" if (self.root / "reference").is_dir() else self.root

    @property
    def version(self) -> str:
        """``git:<commit>`` of the checkout; "" where the folder is none."""
        return next((f"git:{commit}" for top in (self.root, self.root.parent) if (commit := contract.commit(top.resolve()))), "")

    def read(self, path: Path, name: str) -> Iterator[Problem]:
        """The problem of a file, or one for each of its cases."""
        cases = path.with_suffix(".json")
        if not cases.is_file():
            yield from super().read(path, name)
            return
        source = _with_case(file.read(path), str(path))
        for number, line in enumerate([text for text in file.read(cases).splitlines() if text.strip()][: self.most], 1):
            yield Problem(
                name=f"{name}/{number}", source=source.rstrip("\n") + "\n" + _described(line, str(cases)), path=str(path.resolve()),
                origin=f"multikernelbench:{name}#{number}", tags=tuple(name.split("/")[:-1]),
            )  # fmt: skip


class _OneCase(ast.NodeTransformer):
    """A function that reads its cases from a file, with the one that the module holds."""

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        """Where the file lies is no longer asked."""
        return None if "__file__" in ast.unparse(node.value) else self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """``open(path)`` gives one line, and ``json.loads`` of it the case."""
        match ast.unparse(node.func):
            case "open":
                return syntax_tree('__import__("contextlib").nullcontext(["case"])', mode="eval").body
            case "json.loads":
                return ast.Name("_case", ast.Load())
        return self.generic_visit(node)


def _with_case(source: str, where: str) -> str:
    tree = sizes.parse(source, where)
    reader = next((n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "get_input_groups"), None)
    if reader is None:
        raise ProblemError("The file defines no get_inputs and no get_input_groups.", where=where)
    lines = source.splitlines(keepends=True)
    lines[reader.lineno - 1 : reader.end_lineno] = [ast.unparse(ast.fix_missing_locations(_OneCase().visit(reader))) + "\n"]
    return "".join(lines)


def _described(line: str, where: str) -> str:
    """A case as constants and the dictionary that the reader gets."""
    try:
        case = json.loads(line)
    except json.JSONDecodeError as error:
        raise ProblemError(f"A case is not JSON: {error.msg}.", where=where) from error
    constants: dict[str, str] = {}

    def named(name: str, value: Any) -> str:
        plain = isinstance(value, int) and not isinstance(value, bool)
        if not plain and not (isinstance(value, list) and value and all(type(v) is int for v in value)):
            return repr(value)
        constants[name] = repr(value) if plain else f"({', '.join(map(str, value))},)"
        return name if plain else f"list({name})"

    inputs: list[str] = []
    for given in case.get("inputs", []):
        name = "case_" + file.problem_name(str(given.get("name", len(inputs)))).replace("-", "_").replace(".", "_")
        called = {"shape": f"{name}_shape", "value": name}
        parts = (f"{k!r}: {named(called[k], v) if k in called else repr(v)}" for k, v in given.items())
        inputs.append("{" + ", ".join(parts) + "}")
    text = f'{{"inputs": [{", ".join(inputs)}]}}'
    return _INPUTS.format(constants="\n".join(f"{k} = {v}" for k, v in constants.items()), case=text)
