"""Pairs again under other names and at other sizes, in the module and in its kernel alike: what is to be copied is not known by heart."""

from __future__ import annotations

import ast
import keyword
import random
import re
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from kernelllm.core.text import syntax_tree
from kernelllm.train.parallel import parallel_map

if TYPE_CHECKING:
    from kernelllm.pairs.row import Pair

_TENSORS: Final = (
    "x", "y", "z", "a", "b", "A", "B", "X", "t", "inp", "inputs", "data", "feats", "hidden", "tensor", "src", "left", "right", "features",
    "first", "second", "values", "scores", "target", "targets", "preds", "predictions", "mask", "query", "key", "value", "q", "k", "v", "Q",
    "K", "V", "input_tensor", "hidden_states", "logits", "labels", "anchor", "other", "residual", "x1", "x2", "u", "w", "output",
    "positive", "negative", "s", "scale", "c", "batch", "images", "signal", "mat1", "mat2", "lhs", "rhs", "keys", "h", "e", "p",
)  # fmt: skip
_NUMBERS: Final = (
    "n", "m", "k", "dim", "dim1", "dim2", "features", "num_features", "channels", "width", "hidden_size", "size", "in_features", "c_in",
    "out_features", "in_channels", "out_channels", "c_out", "kernel_size", "window", "stride", "padding", "pad", "dilation", "groups",
    "num_groups", "eps", "epsilon", "alpha", "negative_slope", "axis", "reduce_dim", "bias", "margin", "normalized_shape", "d_model", "p",
)  # fmt: skip
_LAYERS: Final = (
    "conv", "conv1", "conv2d", "conv3d", "conv1d", "conv_layer", "convolution", "deconv", "transpose", "norm", "norm1", "gn", "bn",
    "ln", "in_norm", "batch_norm", "group_norm", "layer_norm", "instance_norm", "rms", "fc", "fc1",
    "linear", "lin", "proj", "gemm", "dense", "head", "pool",
    "avg_pool", "max_pool", "maxpool", "avgpool", "act", "activation", "relu", "gelu", "softmax", "loss_fn", "loss", "criterion", "layer",
    "layer1", "op", "block", "net", "core", "mod", "f", "m1", "down", "up", "out", "inner", "gate", "dw", "pw", "depthwise", "pointwise",
)  # fmt: skip
_OF_LAYER: Final = r"(?=_(?:weight|bias|out|running_mean|running_var|num_batches_tracked)(?:_|\b))"
"""What kernels and local names put behind a layer's name."""
_GAP: Final = "\n\n\n"
"""Between the functions and classes of a file."""
_SHAPE: Final = re.compile(r"^ +((?:\w+, )+\w+|\w+,) = (\w+)\.shape$", re.MULTILINE)
_SIZE: Final = re.compile(r"^ +(\w+) = (\w+)\.shape\[(\d+)\]$", re.MULTILINE)
_NUMBER: Final = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:e-?\d+)?(?![\w.])")
_FLOAT: Final = re.compile(r"\d\.\d{1,2}")
_BLOCKS: Final = re.compile(r"\b(?:BLOCK\w*|num_warps)=\d+|, \d+\),\]\(")
"""How a kernel is started: numbers of its own."""
_USUAL: Final = ("0.0", "0.5", "1.0", "2.0", "3.0", "6.0", "20.0")
"""Floats that kernels have of their own."""
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
_KEYWORDS: Final = frozenset(keyword.kwlist)
_Names = dict[str, str]


def renamed_copies(rows: Sequence[Pair], times: int, seed: int = 0) -> list[Pair]:
    """Up to ``times`` copies of each pair and repair that differ from it and from each other."""
    chosen = [row for row in rows if row.kind in ("pair", "repair")] if times else []
    texts = [(row.uuid, row.python_code, row.triton_code, row.before_code, row.before_verdict) for row in chosen]
    found = parallel_map(partial(_copies, times, seed), texts)
    return [
        msgspec.structs.replace(row, python_code=module, triton_code=kernel, before_code=before, before_verdict=verdict)
        for row, made in zip(chosen, found, strict=True)
        for module, kernel, before, verdict in made
    ]


def _copies(times: int, seed: int, row: tuple[str, str, str, str, str]) -> list[tuple[str, str, str, str]]:
    uuid, module, kernel, before, verdict = row
    rng = random.Random(f"{seed}/{uuid}")
    made: list[tuple[str, str, str, str]] = []
    for _ in range(times):
        if not before:
            other_module, other_kernel = _under_other_names(module, [kernel], rng)
            made.append((*resized(other_module, other_kernel, rng), "", ""))
            continue
        try:  # the verdict tells sizes, which therefore stay
            new, right, wrong, told = _under_other_names(module, [kernel, before], rng, verdict)
        except SyntaxError:
            break
        made.append((new, right, wrong, told))
    return list({one[0]: one for one in made if one[0] != module}.values())


def _under_other_names(module: str, kernels: Sequence[str], rng: random.Random, verdict: str | None = None) -> list[str]:
    """The module, its kernels and what was said of one, with the same names in all of them."""
    files = [KernelFile(kernel) for kernel in kernels]
    module, layers = relayered(module, files, rng)
    module, arguments = renamed(module, files, rng)
    for old, new in (layers | arguments).items() if verdict else ():
        verdict = re.sub(rf"\b{old}(?=_size\d|_ptr\b|\b)", new, verdict or "")
    return [module, *(file.text() for file in files), *([] if verdict is None else [verdict])]


def resized(module: str, kernel: str, rng: random.Random) -> tuple[str, str]:
    """The same at other sizes, and with another float where both texts have it as a number of its own.

    Judged kernels serve all sizes and refuse other arguments of the constructor where they were written for one: a whole number that
    the class and the kernels that it starts do not have may be any other; templates hold none of the module's.
    """
    cut = module.rfind("\nModel(")
    if cut < 0:
        return module, kernel
    body, calls = module[:cut], module[cut:]
    parts = kernel.split(_GAP)
    at, kernels = _own(parts)
    own = _BLOCKS.sub("", _GAP.join([parts[at], *(parts[i] for i in kernels)])) if at is not None else kernel
    fixed = set(_NUMBER.findall(own)) | set(_NUMBER.findall(body))
    sizes = {n for n in _NUMBER.findall(calls) if n.isdigit() and int(n) >= 5 and n not in fixed}
    new = {n: str(int(n) * rng.choice((1, 1, 1, 2, 3, 4, 6, 8, 16, 64)) // rng.choice((1, 1, 2 - int(n) % 2))) for n in sorted(sizes)}
    calls = _NUMBER.sub(lambda m: new.get(m[0], m[0]), calls)
    floats = {n for n in _NUMBER.findall(body + calls) if _FLOAT.fullmatch(n) and n not in _USUAL} & set(_NUMBER.findall(kernel))
    other = {n: repr(round(float(n) * rng.uniform(0.3, 3), 2) or 0.01) for n in sorted(floats) if rng.random() < 0.5}
    told = {n: to for n, to in other.items() if to not in fixed}
    module, kernel = (_NUMBER.sub(lambda m: told.get(m[0], m[0]), text) for text in (body + calls, kernel))
    return module, kernel


def sizes_by_place(kernel: str) -> str:
    """The same file with ``x_size0`` for what its forward reads off ``x.shape``: files that were written with the problem's own names."""
    parts = kernel.split(_GAP)
    at, kernels = _own(parts)
    if at is None:
        return kernel
    head, forward, body = parts[at].partition("def forward")
    read = [(n, of, i) for m in _SHAPE.finditer(body) for of in [m[2]] for i, n in enumerate(m[1].replace(",", " ").split())]
    read += [(m[1], m[2], int(m[3])) for m in _SIZE.finditer(body)]
    for name, of, place in read:
        new = f"{of}_size{place}"
        texts = "".join((body, *(parts[i] for i in kernels)))
        if name == "_" or re.search(rf"\b{name}=(?!=)|\b{new}\b", texts):
            continue
        word = re.compile(rf"(?<![\w.]){name}\b")
        body = word.sub(new, body)
        for i in kernels:
            parts[i] = word.sub(new, parts[i])
    parts[at] = head + forward + body
    return _GAP.join(parts)


def _own(parts: Sequence[str]) -> tuple[int | None, list[int]]:
    """(the class, the kernels that it starts) among the parts of a file."""
    at = next((i for i, part in enumerate(parts) if part.startswith("class ModelNew")), None)
    started = set(re.findall(r"\b(\w+)\[", parts[at])) if at is not None else set()
    heads = {i: re.search(r"^def (\w+)", part, re.MULTILINE) for i, part in enumerate(parts) if part.startswith("@triton.jit")}
    return at, [i for i, name in heads.items() if name is not None and name[1] in started]


class KernelFile:
    """A kernel's file in its parts: the class, the kernels that it starts, and templates."""

    def __init__(self, kernel: str) -> None:
        self.parts = kernel.split(_GAP)
        self.at, self.kernels = _own(self.parts)

    def text(self) -> str:
        return _GAP.join(self.parts)

    def own(self) -> str:
        """The text of the kernels that the class starts."""
        return "".join(self.parts[i] for i in self.kernels)


def relayered(module: str, files: Sequence[KernelFile], rng: random.Random) -> tuple[str, _Names]:
    """Attributes of the constructor under other names, in the module, in the class of each kernel's file and in kernels that it starts.
    The names follow the first file."""
    if files[0].at is None:
        return module, {}
    taken = set(re.findall(r"[A-Za-z_]\w*", "\n".join((module, *(file.text() for file in files)))))
    found = [n for n in dict.fromkeys(re.findall(r"self\.(\w+) = ", module)) if f"self.{n} = " in files[0].parts[files[0].at]]
    names: _Names = {}
    for name in (n for n in found if rng.random() < 0.6):
        free = [new for new in _LAYERS if new not in taken]
        new = rng.choice(free) if free and rng.random() < 0.8 else "".join(rng.choice(_LETTERS) for _ in range(rng.randint(2, 4)))
        if new not in taken and new not in _KEYWORDS:
            names[name] = new
            taken.add(new)
    for old, new in names.items():
        module = re.sub(rf"\bself\.{old}\b", f"self.{new}", module)
        for file in files:
            if file.at is None:
                continue
            file.parts[file.at] = re.sub(rf"\bself\.{old}\b", f"self.{new}", file.parts[file.at])
            for i in (file.at, *file.kernels):
                file.parts[i] = re.sub(rf"(?<![\w.]){old}{_OF_LAYER}", new, file.parts[i])
    return module, names


def renamed(module: str, files: Sequence[KernelFile], rng: random.Random) -> tuple[str, _Names]:
    """Arguments of the forward, and now and then of the constructor, under other names, in the module and where the kernels' files follow
    them: the class, for the forward's arguments also the kernels that the class starts. What other functions start are templates, the
    same in many files. All texts are as :mod:`kernelllm.lm.plain_module` writes them. Raises SyntaxError where a file is no Python.
    """
    if files[0].at is None:
        return module, {}
    tree = syntax_tree(module)
    taken = set(re.findall(r"[A-Za-z_]\w*", "\n".join((module, *(file.text() for file in files)))))
    tensors, numbers = _chosen(tree, "forward", _TENSORS, 0.7, taken, rng), _chosen(tree, "__init__", _NUMBERS, 0.2, taken, rng)
    fixed = "\n".join(file.own() for file in files)
    tensors = {old: new for old, new in tensors.items() if not re.search(rf"\.{old}\b|\b{old}=(?!=)", fixed)}
    follow = _Follow({"forward": tensors, "__init__": numbers})
    for file in files:
        if file.at is None:
            continue
        file.parts[file.at] = _text(follow.visit(syntax_tree(file.parts[file.at])))
        for old, new in tensors.items():
            for i in file.kernels:
                apart = re.search(rf"(?<![\w.]){old}_\b", file.parts[i])  # where the name means something else in Triton
                alone = r"_\b" if apart else r"(?=_\d+\b|\b)"
                file.parts[i] = re.sub(rf"(?<![\w.]){old}(?:(?=_ptr\b|_size\d+\b)|{alone})", new, file.parts[i])
        file.parts[-1] += "" if file.at < len(file.parts) - 1 else "\n"
    return _text(follow.visit(tree)), tensors | numbers


def _text(tree: ast.Module) -> str:
    return ast.unparse(ast.fix_missing_locations(tree)).replace("\n\n", "\n")


def _chosen(tree: ast.Module, function: str, pool: Sequence[str], share: float, taken: set[str], rng: random.Random) -> _Names:
    """New names for arguments of a method of the model."""
    found: _Names = {}
    models = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Model"]
    for method in (f for m in models for f in m.body if isinstance(f, ast.FunctionDef) and f.name == function):
        for argument in method.args.args[1:]:
            free = [name for name in pool if name not in taken]
            if free and rng.random() < share:
                found[argument.arg] = rng.choice(free)
                taken.add(found[argument.arg])
    return found


class _Follow(ast.NodeTransformer):
    """Names within the methods of a model, and the keywords of the two lines at the end of a plain module."""

    def __init__(self, names: dict[str, _Names]) -> None:
        self.names = names
        self.now: _Names = {}
        self.model = False

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        self.model = node.name in ("Model", "ModelNew")
        self.generic_visit(node)
        self.model = False
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        outer = self.now
        self.now = self.names.get(node.name, {}) if self.model and not outer else outer
        self.generic_visit(node)
        self.now = outer
        return node

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = self._new(node.id)
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.arg = self._new(node.arg)
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.JoinedStr:
        self.generic_visit(node)
        for part in node.values:
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                part.value = re.sub(r"\w+(?==)", lambda m: self._new(m[0]), part.value)
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        if not self.model and isinstance(node.func, ast.Name):
            names = self.names.get({"Model": "__init__"}.get(node.func.id, node.func.id), {})
            for keyword in node.keywords:
                keyword.arg = names.get(keyword.arg or "", keyword.arg)
        return node

    def _new(self, name: str) -> str:
        """``x_size0`` goes with ``x``."""
        if name in self.now:
            return self.now[name]
        base = re.fullmatch(r"(\w+?)(_size\d+|_\d+)", name)
        return self.now[base[1]] + base[2] if base and base[1] in self.now else name
