"""Flags candidates that replace functions of torch, of the kernel language, of Python or of the harness."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernelllm.backends.base import Backend
from kernelllm.core.types import Finding, Severity
from kernelllm.judge.checks.attribute_names import own_object
from kernelllm.judge.checks.syntax import Source, analyse, starts
from kernelllm.judge.observation import OF_ALL, RANDOM_NUMBERS, Observation

_GUARDED = (
    "torch", "time", "builtins", "sys", "gc", "inspect", "os", "types", "typing", "math", "numpy", "ctypes", "kernelllm",
    "random", "warnings", "logging",
)  # fmt: skip
_SETTINGS = (
    "torch.backends", "torch._dynamo.config", "torch._inductor.config", "os.environ", "sys.setrecursionlimit",
    "torch._C._jit_set_profiling_mode", "torch.set_float32_matmul_precision", "numpy.random", "sys.path",
)  # fmt: skip
_DISABLE = (
    "torch._C._DisableTorchDispatch", "torch._C.DisableTorchFunction", "torch._C.DisableTorchFunctionSubclass",
    "torch.utils._python_dispatch._disable_current_modes", "torch.utils._python_dispatch", "torch.overrides",
    "torch._C._ExcludeDispatchKeyGuard", "torch._C._set_torch_function_mode", "torch._C._pop_torch_dispatch_stack",
    "torch._C._len_torch_dispatch_stack", "unittest.mock", "forbiddenfruit", "torch.library.impl_abstract", "sys.settrace",
    "sys.setprofile", "sys.addaudithook", "threading.settrace", "threading.setprofile", "sys.monitoring", "sys.setswitchinterval",
    "torch.nn.modules.module.register_module_forward_hook", "torch.nn.modules.module.register_module_forward_pre_hook",
    "torch.nn.modules.module.register_module_backward_hook", "torch.nn.modules.module.register_module_full_backward_hook",
    "torch.nn.modules.module.register_module_full_backward_pre_hook", "torch.nn.modules.module.register_module_buffer_registration_hook",
    "torch.nn.modules.module.register_module_module_registration_hook", "copyreg.pickle",
    "torch.nn.modules.module.register_module_parameter_registration_hook", "torch.utils._pytree.register_pytree_node",
    "torch.utils._mode_utils", "torch._subclasses", "torch._functorch", "torch._custom_op", "torch._library.fake_class_registry",
    "torch.sparse._semi_structured_ops", "torch.fx.experimental.proxy_tensor", "torch.testing._internal", "torch._dynamo.utils",
    "torch._dynamo.backends", "torch._export", "torch.distributed.fsdp", "torch.distributed._tools", "torch.distributed._local_tensor",
    "torch.accelerator.Graph", "torch.accelerator.graphs", "torch.cuda.green_contexts", "torch.cuda.GreenContext", "torch.cuda._gpu_trace",
    "torch.cuda._sanitizer",
    "gc.callbacks", "numpy.seterrcall", "numpy.seterrobj", "threading.settrace_all_threads", "threading.setprofile_all_threads",
)  # fmt: skip
_INSIDE = (
    "_get_", "_is_", "_has", "_cuda_get", "_cuda_is", "_nn", "_linalg", "_fft", "_special", "_sparse", "_nested", "_nvtx", "_functions",
    "_dynamo.guards", "_VariableFunctions", "_log_api_usage_once", "_mps_is", "_set_grad_enabled", "_jit_set_", "_jit_override_",
    "_are_functorch", "_set_cudnn", "_set_cublas", "_set_deterministic", "_set_math_sdp", "_set_sdp", "_set_mkldnn",
    "_disabled_torch_function_impl",
)  # fmt: skip
"""Names below torch._C that ask, set numbers, or are ordinary functions. The rest builds, loads or runs what nothing here can read."""
_BUILDS = ("parse_ir", "parse_schema", "import_ir", "CompilationUnit", "Graph", "ScriptModule", "ScriptFunction", "AliasDb", "fork", "wait")
"""Public ones that build or run graphs."""
_DISPATCH = ("dispatch", "torch_function", "torchfunction", "_mode_stack")
"""In names of torch._C: how it finds what to run, and whether it is watched."""
_CHANGES = {"update", "setdefault", "pop", "popitem", "clear", "__setitem__", "__delitem__", "__ior__"}
_FILLS = {*_CHANGES, "append", "extend", "insert", "remove", "appendleft"}
_AROUND = {
    "redispatch", "add_pre_run_hook", "pre_run_hooks", "launch_enter_hook", "launch_exit_hook", "kernel_load_start_hook",
    "kernel_load_end_hook", "jit_cache_hook", "jit_post_compile_hook", "_op_dk", "py_kernels", "_dispatch_cache",
    "_backend_fns", "_init_fn", "_opoverload",
}
_DEPTH = 3
_BY_NAME = ("builtins.getattr", "builtins.setattr", "builtins.object.__setattr__", "inspect.getattr_static")
_SETTERS = ("builtins.setattr", "builtins.delattr", "builtins.type.__setattr__")
_OVERRIDES = ("torch.library.Library", "torch.library.register_kernel", "torch.library.impl")


_ITS_PARTS = frozenset({
    "parameters", "named_parameters", "buffers", "named_buffers", "modules", "named_modules", "children", "named_children",
})  # fmt: skip
"""Methods of torch.nn.Module that tell what it is made of."""
_MOVES = frozenset({"_apply", "to", "cuda", "cpu", "half", "float", "double", "bfloat16", "type", "requires_grad_", "zero_grad",
                    "share_memory"})  # fmt: skip
"""Methods that change all of a model; a model's own method of that name that never calls torch's leaves it as it was."""


class Tampering:
    name = "tampering"
    describe = "replaces functions of torch, the kernel language, Python or the harness, or hides from what watches them"

    def source(self, tree: ast.Module, backend: Backend) -> list[Finding]:
        """Assignments into modules that are not the candidate's own, and calls that switch watching off."""
        known, guarded = analyse(tree), (*_GUARDED, *backend.libraries)
        disable = (*_DISABLE, *backend.forbidden.get(self.name, ()))
        found = []
        for use in known.stores():
            setting = starts(use.path, *_SETTINGS, *backend.settings) and not starts(use.path, *disable)
            if starts(use.path, *guarded) and "." in use.path and not setting:
                found.append(Finding(check=self.name, message=f"Replaces {use.path}.", line=use.line))
        for path, line in _filled(known):
            if starts(path, *guarded) and not starts(path, *_SETTINGS, *backend.settings):
                found.append(Finding(check=self.name, message=f"Changes what {path} holds.", line=line))
        for use in known.uses():
            if starts(use.path, *disable):
                found.append(Finding(check=self.name, message=f"Uses {use.path}, which hides work from the judge.", line=use.line))
            elif use.path.startswith(("torch._C.", "torch._ops._")) and _of_the_inside(use.path.split(".", 2)[2]):
                found.append(Finding(check=self.name, message=f"Uses {use.path}: the inside of torch is not a candidate's.", line=use.line))
            elif ".__dict__." in use.path and use.path.rpartition(".")[2] in _CHANGES and starts(use.path, *guarded):
                found.append(Finding(check=self.name, message=f"Replaces members of {use.path.partition('.__dict__')[0]}.", line=use.line))
        for node in known.attributes():
            if not isinstance(node.ctx, ast.Load) and _class_of_another(known, node.value):
                message = f"Changes {node.attr!r} of a class that it reaches through an object."
                found.append(Finding(check=self.name, message=message, line=node.lineno))
            if node.attr in _AROUND:
                found.append(Finding(check=self.name, message=f"Uses {node.attr!r}, which goes around what watches.", line=node.lineno))
        for own in (node for node in known.nodes if isinstance(node, ast.FunctionDef) and node.name in _ITS_PARTS):
            if isinstance(known.parents.get(own), ast.ClassDef):
                message = f"Has a {own.name}() of its own: whoever trains, moves or copies the model gets what that gives."
                found.append(Finding(check=self.name, message=message, severity=Severity.WARN, line=own.lineno))
        for own in (node for node in known.nodes if isinstance(node, ast.FunctionDef) and node.name in _MOVES):
            beside = getattr(known.parents.get(own), "body", ())
            called = any(isinstance(node, ast.Name) and node.id == "super" for node in ast.walk(own))
            if not called and any(isinstance(other, ast.FunctionDef) and other.name == "forward" for other in beside):
                message = f"Has a {own.name}() of its own that calls no other: whoever moves or converts the model leaves it as it was."
                found.append(Finding(check=self.name, message=message, severity=Severity.WARN, line=own.lineno))
        for call, path in known.calls():
            named = (known.texts(call.args[1]) or set()) & _AROUND if len(call.args) > 1 and path in _BY_NAME else set()
            if named:
                found.append(Finding(check=self.name, message=f"Uses {min(named)!r}, which goes around what watches.", line=call.lineno))
            if path == "numpy.errstate" and any(keyword.arg in ("call", None) for keyword in call.keywords):
                found.append(Finding(check=self.name, message="Has NumPy call a function of its own within kernels.", line=call.lineno))
            if path in _SETTERS and call.args and _class_of_another(known, call.args[0]):
                message = "Changes a class that it reaches through an object."
                found.append(Finding(check=self.name, message=message, line=call.lineno))
            if path in _OVERRIDES and call.args and (target := known.text(call.args[0])) and target.startswith(("aten", "prim")):
                found.append(Finding(check=self.name, message=f"Replaces an operator of torch itself ({target}).", line=call.lineno))
        return found

    def observed(self, seen: Observation) -> list[Finding]:
        """What the worker found replaced."""
        settings = [name.removeprefix(OF_ALL) for name in seen.tampered if name.startswith(OF_ALL)]
        settings = [name for name in settings if not (seen.reference_draws and name == RANDOM_NUMBERS)]
        replaced = [name for name in seen.tampered if not name.startswith(OF_ALL)]
        text = f"Changed {', '.join(settings)} and left it so, for all other code of the process."
        found = [Finding(check=self.name, message=text, severity=Severity.WARN)] if settings else []
        return found + [Finding(check=self.name, message=f"{name} was replaced while the candidate ran.") for name in replaced]


def _filled(known: Source) -> Iterator[tuple[str, int]]:
    """Lists and dictionaries of libraries whose items are set, or that a method changes: their path, and the line."""
    for node in known.nodes:
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            yield from ((path, node.lineno) for path in known.paths(node.value))
    for call, path in known.calls():
        owner, _, method = path.rpartition(".")
        name = owner.rpartition(".")[2]
        if method in _FILLS and "." in owner and (name.isupper() or not name[:1].isupper()):  # no method of a class
            yield owner, call.lineno


def _class_of_another(known: Source, node: ast.expr, depth: int = 0) -> bool:
    """``type(x)``, ``x.__class__`` or a name for it, where ``x`` is no object of a class of the candidate's own."""
    match node:
        case ast.Call(args=[of]) if "builtins.type" in known.paths(node.func):
            return not own_object(known, of)
        case ast.Attribute(value=of, attr="__class__"):
            return not own_object(known, of)
        case ast.Name() if depth < _DEPTH:
            return any(isinstance(value, ast.expr) and _class_of_another(known, value, depth + 1) for value in known.bindings(node) or ())
    return False


def _of_the_inside(name: str) -> bool:
    """Whether a name below torch._C is none that candidates need."""
    listed = name.startswith(_INSIDE) or not name.startswith("_")
    return any(word in name.lower() for word in _DISPATCH) or not listed or name.startswith(_BUILDS)
