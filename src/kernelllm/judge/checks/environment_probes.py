"""Lists what a file can ask of the process that it runs in, and of what stands around it.

A kernel needs none of that, and it may tell a judge from a user.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernelllm.judge.checks.call_counts import orders_versions
from kernelllm.judge.checks.syntax import Source

MACHINE = (
    "torch.version", "torch.__version__", "torch.backends.cuda.is_built", "torch.__config__", "importlib.metadata",
    "torch.compiler.is_compiling", "torch.compiler.is_dynamo_compiling", "torch.jit.is_scripting", "torch.jit.is_tracing",
)  # fmt: skip
"""Which machine and versions: asked by many honest kernels."""
_OF_TORCH = (
    "initial_seed", "random.initial_seed", "get_rng_state", "random.get_rng_state", "default_generator", "random.default_generator",
    "cuda.initial_seed", "cuda.get_rng_state", "backends.cpu", "get_num_threads", "get_num_interop_threads", "is_warn_always_enabled",
    "utils.data.get_worker_info", "autograd._profiler_enabled", "multiprocessing", "cuda.memory_allocated", "cuda.max_memory_allocated",
    "cuda.memory_reserved", "cuda.max_memory_reserved", "cuda.memory_stats", "cuda.memory_snapshot", "cuda.memory_summary",
    "cuda.mem_get_info", "cuda.memory", "cuda.memory_usage", "cuda.list_gpu_processes", "cuda.utilization", "cuda.temperature",
    "cuda.power_draw", "cuda.clock_rate", "cuda.is_initialized", "cuda._is_in_bad_fork", "_C._get_tracing_state",
    "utils.deterministic", "backends.mkldnn", "backends.mkl", "backends.openmp", "backends.nnpack", "backends.opt_einsum",
    "backends.quantized", "backends.cuda.flash_sdp_enabled", "backends.cuda.mem_efficient_sdp_enabled", "backends.cuda.math_sdp_enabled",
    "backends.cuda.cudnn_sdp_enabled", "backends.cuda.preferred_linalg_library", "backends.cuda.preferred_blas_library",
    "backends.cuda.matmul.allow_fp16_reduced_precision_reduction", "backends.cuda.matmul.allow_bf16_reduced_precision_reduction",
    "backends.cuda.matmul.allow_fp16_accumulation", "backends.cuda.cufft_plan_cache",
)  # fmt: skip
_OF_PYTHON = (
    "platform", "os.cpu_count", "os.process_cpu_count", "os.sched_getaffinity", "os.getpid", "os.getcwd", "os.uname", "os.getloadavg",
    "os.getlogin", "os.getuid", "os.geteuid", "os.getgid", "os.getegid", "os.getrandom", "os.isatty", "os.times", "os.getpriority",
    "os.nice", "os.sysconf", "os.stat", "os.umask", "os.get_terminal_size", "os.path.exists", "os.path.isfile", "os.path.isdir",
    "os.path.getmtime", "os.path.expanduser", "os.path.abspath", "os.path.realpath", "pathlib.Path.home", "pathlib.Path.cwd",
    "tempfile.gettempdir", "os.path.getsize", "sys.argv", "sys.executable", "sys.prefix", "sys.flags", "sys.stdin", "sys.stdout.isatty",
    "sys.stderr.isatty", "sys.getrefcount", "sys.getrecursionlimit", "gc.isenabled", "weakref.getweakrefcount", "builtins.__file__",
    "builtins.__package__", "warnings.filters", "logging.root", "logging.lastResort", "threading.current_thread", "threading.main_thread",
    "threading.active_count", "threading.enumerate", "threading.get_ident", "threading.get_native_id", "random", "numpy.random",
    "secrets", "uuid", "os.urandom", "locale", "calendar", "zoneinfo", "getpass", "socket.gethostname",
)  # fmt: skip
PROCESS = (*(f"torch.{name}" for name in _OF_TORCH), *_OF_PYTHON)
"""Which process, with which seed, how it stands, and numbers that differ from process to process: no kernel needs them."""
_NAMES = ("__name__", "__module__", "__qualname__", "__package__")
_VERSIONS = "how often a tensor was written into (_version)"
_HOOKS = frozenset({
    "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "_compiled_call_impl", "_state_dict_hooks",
    "_load_state_dict_pre_hooks", "_is_full_backward_hook",
})  # fmt: skip
_MEMORY = frozenset({"is_shared", "is_pinned", "_shared_filename_cpu", "_share_filename_cpu_", "_share_fd_cpu_"})
"""A judge without a GPU hands its inputs over in shared memory."""
_WHICH_GPU = "which GPU of several it runs on"
_LEFT_TO_FILES = frozenset({"__main__"})


def own_names(known: Source) -> Iterator[ast.expr]:
    """Where a file asks under which name it, or a class or function of it, was loaded; other than ``__name__ == "__main__"``."""
    for node in known.nodes:
        sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        texts = {text for side in sides if (text := known.text(side)) is not None}
        asked = [side for side in sides if _own_name(side)]
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "__name__":
            asked = [node]  # __name__.startswith
        if asked and not (texts and texts <= _LEFT_TO_FILES):
            yield asked[0]


def circumstances(known: Source) -> Iterator[tuple[str, int]]:
    """What else a file asks that is one thing where it is judged and may be another where it is used: what it asks, and the line."""
    for node in known.nodes:
        what = ""
        match node:
            case ast.Name(id="__debug__"):
                above = known.parents.get(node)
                guards = isinstance(above, ast.If) and all(isinstance(statement, ast.Assert | ast.Raise) for statement in above.body)
                what = "" if guards else "whether Python leaves out assertions (__debug__)"
            case ast.Attribute(attr=name, ctx=ast.Load()) if name in _HOOKS:
                what = f"which hooks and calls the model has ({name})"
            case ast.FunctionDef(name="__init_subclass__"):
                what = "whether a class was derived from its own"
            case ast.FunctionDef(name="__init__") if any(map(_compares_type, ast.walk(node))):
                what = "while it is built, of which type its own tensors are"
            case ast.FunctionDef() if orders_versions(ast.walk(node)):
                what = _VERSIONS
            case ast.Call(func=ast.Name(id="hash"), args=[text]) if known.text(text) is not None:
                what = "for the hash of a text, another one in each process"
            case ast.Call(func=ast.Name(id="hash" | "id"), args=[ast.Call(func=ast.Name(id="object"))]):
                what = "for the address of an object, another one in each process"
            case ast.BinOp(op=ast.Mod() | ast.BitAnd() | ast.RShift(), left=left) if any(map(_is_address, ast.walk(left))):
                what = "for a part of an object's address or hash, another one in each process"
            case ast.Call(func=ast.Attribute(attr=name), args=[]) if name in _MEMORY:
                what = f"in which kind of memory a tensor lies ({name})"
            case ast.Call(func=ast.Attribute(attr="query"), args=[], keywords=[]):
                what = "whether work is still under way (query)"
            case ast.Call(func=ast.Attribute(attr="seed"), args=[], keywords=[]):
                what = "for a seed that nobody knows"
            case ast.Call(func=ast.Name(id="iter" | "next" | "list" | "tuple"), args=[ast.Set(), *_]) | ast.For(iter=ast.Set()):
                what = "for the order of a set, another one in each process"
            case ast.If(test=test) | ast.IfExp(test=test) if _is_gpu(test):
                what = _WHICH_GPU
            case ast.Compare(left=left, comparators=others):
                what = _compared([left, *others])
            case ast.Try() if _goes_on_without_launch(known, node):
                what = "whether a launch fails, and gives another result where it does"
        if what:
            yield what, getattr(node, "lineno", 0)


def _goes_on_without_launch(known: Source, node: ast.Try) -> bool:
    """Whether a launch, or a call of a function that has one, lies in a try whose handler gives a result."""
    launching = {f.name for f in known.nodes if isinstance(f, ast.FunctionDef) and any(map(_is_launch, ast.walk(f)))}
    calls = [inner for statement in node.body for inner in ast.walk(statement) if isinstance(inner, ast.Call)]
    if not any(_is_launch(call) or (isinstance(call.func, ast.Name) and call.func.id in launching) for call in calls):
        return False
    inside = [[inner for statement in handler.body for inner in ast.walk(statement)] for handler in node.handlers]
    return any(
        any(isinstance(inner, ast.Return) and inner.value is not None for inner in nodes)
        and not any(isinstance(inner, ast.Raise) or _is_launch(inner) for inner in nodes)
        for nodes in inside
    )


def _is_address(node: ast.AST) -> bool:
    """``hash(x)``, ``id(x)``."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("hash", "id")


def _is_launch(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript)


def _compared(sides: list[ast.expr]) -> str:
    if any(map(_own_class, sides)):
        return "whether a class was derived from its own"
    if not any(isinstance(side, ast.Constant) and type(side.value) is int for side in sides):
        return ""
    if any(map(_is_gpu, sides)):
        return _WHICH_GPU
    return _VERSIONS if any(isinstance(side, ast.Attribute) and side.attr == "_version" for side in sides) else ""


def _compares_type(node: ast.AST) -> bool:
    """``self.weight.dtype == torch.float32``, ``torch.get_default_dtype() is torch.float32``."""
    if not isinstance(node, ast.Compare):
        return False
    for side in (node.left, *node.comparators):
        match side:
            case ast.Attribute(attr="dtype") | ast.Call(func=ast.Attribute(attr="get_default_dtype")):
                return True
    return False


def _is_gpu(node: ast.expr) -> bool:
    """``x.device.index`` or ``x.get_device()``."""
    match node:
        case ast.Attribute(value=ast.Attribute(attr="device"), attr="index") | ast.Call(func=ast.Attribute(attr="get_device"), args=[]):
            return True
        case ast.Call(func=ast.Attribute(attr="current_device"), args=[]):
            return True
    return False


def _own_class(node: ast.expr) -> bool:
    """``type(self)`` or ``self.__class__``."""
    match node:
        case ast.Call(func=ast.Name(id="type"), args=[ast.Name(id="self")]) | ast.Attribute(value=ast.Name(id="self"), attr="__class__"):
            return True
    return False


def _own_name(node: ast.expr) -> bool:
    return (isinstance(node, ast.Name) and node.id in ("__name__", "__package__")) or (
        isinstance(node, ast.Attribute) and node.attr in _NAMES[1:]
    )
