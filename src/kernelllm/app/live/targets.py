"""A name on the command line becomes a live module with inputs: a Hugging Face folder, a submodule, a class in a mode or dtype."""

from __future__ import annotations

import difflib
import inspect
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.utils._pytree as pytree

from kernelllm.app.live.call_arguments import BoundCalls, Call, flatten, input_sets
from kernelllm.app.live.module_capture import captured, in_mode, problem_of
from kernelllm.app.live.optimize_module import check_module, materialize
from kernelllm.compiler.capture.modes import same_in_both
from kernelllm.core.errors import ProblemError, UsageError
from kernelllm.core.types import Problem
from kernelllm.models.extras import need
from kernelllm.problems import wrap
from kernelllm.problems.instance import Instance, import_root, importable
from kernelllm.problems.seeds import own_generators, seed_all
from kernelllm.suites.file import open_problem

_CONFIG = "config.json"
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
_TOKENS = 16


@dataclass(frozen=True)
class TargetOptions:
    """What a command line says of a target beside its inputs."""

    submodule: str | None = None
    model_dtype: str | None = None
    train: bool | None = None
    """None: eval() mode where a layer depends on it."""


def is_hugging_face(spec: str) -> bool:
    """Whether it is a folder with a Hugging Face configuration, or such a file."""
    path = Path(spec).expanduser()
    return (path / _CONFIG).is_file() or (path.suffix == ".json" and path.is_file())


def opened(spec: str, described: wrap.Arguments, options: TargetOptions) -> tuple[Problem, str]:
    """The problem that a command line names, and a remark. Raises UsageError, ProblemError, CaptureError.

    A class stays a problem of its own source as long as that says the same: sizes of its constructor may vary then.
    """
    if is_hugging_face(spec):
        module, call = _hugging_face(Path(spec).expanduser(), described)
        name = type(module).__name__
        return _problem(module, [call], name, options)
    problem = open_problem(spec, **vars(described))
    named = problem.origin.startswith("file:")
    asked = options != TargetOptions()
    if not named and asked:
        raise UsageError("--submodule, --model-dtype, --eval and --train are for a module, and this is a problem.", where=spec,
                         fix=f"Name its class: {spec}:Model.")  # fmt: skip
    if not named:
        return problem, ""
    instance = Instance(problem)
    module = _made(instance)
    given = _given(instance, module, described)
    depends = options.train is None and any(_depends(m) for m in module.modules())
    if not (depends or _needs_names(module, given) or options.submodule or options.model_dtype or options.train is False):
        return problem, ""
    with importable(import_root(problem.path)[0]):
        return _problem(module, given, problem.name, options)


def _made(instance: Instance) -> torch.nn.Module:
    """The module. Raises ProblemError, which says so where the class is made of a configuration, as those of transformers are."""
    try:
        return instance.model(0)
    except ProblemError as error:
        kind = instance.namespace["Model"]
        if "config" not in inspect.signature(kind).parameters:
            raise
        fix = (
            f"{kind.__name__} is made of a configuration: name a folder or a config.json and a part of its model "
            "(--submodule model.layers.0.mlp), or call kernelllm.optimize(module, inputs) in Python."
        )
        raise ProblemError(error.what, where=error.where, fix=fix) from error


def _problem(module: torch.nn.Module, given: list[Call], name: str, options: TargetOptions) -> tuple[Problem, str]:
    """The problem of a live module. Of several sets of inputs the first counts; the others must fit it."""
    check_module(module)
    materialize(module, given[0])
    if options.model_dtype:
        dtype = getattr(torch, options.model_dtype)
        module = module.to(dtype)
        given = [_in_dtype(call, dtype) for call in given]
    with in_mode(module, bool(options.train)):
        if options.submodule:
            given = [recorded(module, call, options.submodule) for call in given]
            module, name = module.get_submodule(options.submodule), f"{name}_{options.submodule.replace('.', '_')}"
        with own_generators():
            graph = captured(module, given[0])
        for call in given[1:]:
            if why := graph.signature.unfit(module, call):
                raise UsageError(f"The sets of inputs do not fit one file: {why}.", fix="Give one set for each call of kernelllm.")
        problem = problem_of(module, graph, name)
    remark = ""
    if graph.fills is not None:
        remark = "The forward fills an argument that it is given: what it puts there is among the file's results. "
    if graph.signature.modes and options.train is None:
        remark += "Some layers depend on the mode: written for eval() mode (--train for the other)."
    return problem, remark


def _given(instance: Instance, module: torch.nn.Module, described: wrap.Arguments) -> list[Call]:
    """The sets of inputs as the file's callable returns them."""
    names = (wrap.DRAW, described.inputs) if described.inputs else ("get_inputs",)
    draw = next(instance.namespace[n] for n in names if n in instance.namespace)
    with instance.running("the inputs"):
        seed_all(0)
        value = draw()
    return input_sets(module, tuple(value) if described.shapes else value)


def _needs_names(module: torch.nn.Module, given: list[Call]) -> bool:
    """Whether arguments cannot be passed by position alone, or there are several sets."""
    names = BoundCalls(module.forward)
    return len(given) > 1 or any(names.call(names.named(*call))[1] for call in given)


def _depends(module: torch.nn.Module) -> bool:
    """Whether a layer in train() mode asks for its mode and computes something else in the other."""
    code = getattr(type(module).forward, "__code__", None)
    return module.training and code is not None and "training" in code.co_names and not same_in_both(module)


def _in_dtype(call: Call, dtype: torch.dtype) -> Call:
    def cast(value: Any) -> Any:
        return value.to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value

    found: Call = pytree.tree_map(cast, call)
    return found


def recorded(module: torch.nn.Module, call: Call, path: str) -> Call:
    """The arguments of a submodule's first call in one run of the whole. Raises UsageError where there is none."""
    paths = [name for name, _ in module.named_modules() if name]
    if path not in paths:
        near = difflib.get_close_matches(path, paths, n=1)
        hint = f"Did you mean {near[0]}?" if near else f"It has: {', '.join(paths[:8])}."
        raise UsageError(f"The module has no submodule {path!r}.", fix=hint)
    found: list[Call] = []
    handle = module.get_submodule(path).register_forward_pre_hook(
        lambda _, *given: found.append(_as_they_are(*given)), with_kwargs=True
    )
    try:
        with torch.no_grad():
            module(*call[0], **call[1])
    finally:
        handle.remove()
    if not found:
        raise UsageError(f"The submodule {path} is not called when the module runs.", fix="Name one that is.")
    return found[0]


def _as_they_are(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    """Arguments in lists and dictionaries of their own: the forward that comes may fill the caller's."""
    tensors: list[torch.Tensor] = []
    try:
        nest = flatten((args, dict(kwargs)), tensors, "An argument")
    except UsageError:  # said when they are captured
        return args, dict(kwargs)
    copied: Call = nest.build([t.clone() for t in tensors])
    return copied


def _hugging_face(path: Path, described: wrap.Arguments) -> tuple[torch.nn.Module, Call]:
    """The model of a folder or a configuration: with its weights where there are some, else random ones."""
    if described.inputs or described.init:
        raise UsageError("--inputs and --init are for classes.", where=str(path), fix="Give --shape 2,16:int64, once for each input.")
    transformers = need("transformers", "hf")
    file = path / _CONFIG if path.is_dir() else path
    try:
        config = transformers.AutoConfig.from_pretrained(str(file.parent if file.name == _CONFIG else file))
        names = json.loads(file.read_text(encoding="utf-8")).get("architectures") or ()
        kind = next((getattr(transformers, n) for n in names if hasattr(transformers, n)), None)
        if hasattr(config, "use_cache"):
            config.use_cache = False  # a cache is no result
        with own_generators():
            seed_all(0)
            if any(next(file.parent.glob(pattern), None) for pattern in _WEIGHTS):
                model = (kind or transformers.AutoModel).from_pretrained(str(file.parent), config=config)
            else:
                model = kind._from_config(config) if kind else transformers.AutoModel.from_config(config)
    except (OSError, ValueError, KeyError) as error:
        text = str(error).strip().splitlines()[0][:300]
        raise UsageError(f"No model can be made of it: {text}", where=str(path), fix="Check its config.json.") from error
    return model, _usual_inputs(model, config, described)


def _usual_inputs(model: Any, config: Any, described: wrap.Arguments) -> Call:
    """By ``--shape`` in the order of forward's parameters, else what the model is usually given."""
    first = str(getattr(model, "main_input_name", "input_ids"))
    text = getattr(config, "get_text_config", lambda: config)()
    vocabulary, image = getattr(text, "vocab_size", 100), getattr(config, "image_size", 224)
    height, width = image if isinstance(image, list | tuple) else (image, image)
    usual = {"input_ids": f"2,{_TOKENS}:int64:{vocabulary}", "pixel_values": f"2,{getattr(config, 'num_channels', 3)},{height},{width}"}
    shapes = list(described.shapes) or [usual[n] for n in (first,) if n in usual]
    if not shapes:
        raise UsageError(f"Nothing says what {first} looks like.", fix="Give --shape, once for each input.")
    if first == "input_ids" and described.shapes and ":" in shapes[0] and shapes[0].count(":") == 1:
        shapes[0] += f":{vocabulary}"
    with own_generators():
        seed_all(0)
        drawn = [eval(wrap.tensor_call(shape, described.dtype, "--shape"), {"torch": torch}) for shape in shapes]
    names = [first, *(n for n in BoundCalls(model.forward).positional if n != first)]
    found = dict(zip(names, drawn, strict=False))
    if getattr(config, "is_encoder_decoder", False) and first == "input_ids":
        found.setdefault("decoder_input_ids", drawn[0].clone())
    return (), found
