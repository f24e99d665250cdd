"""Every cheat is caught for what it is, every honest kernel passes. Fixtures: ``tests/cheats/<family>/{cheat,honest}*.py``.

A fixture names its problem (``PROBLEM``), what it expects (``EXPECT``: ``correct``, another status, or the check whose finding
must decide; several mean any of them) and, where it matters, its ``TRACK``. ``EXPECT_ON_A_GPU``: where that may differ.
``BACKWARD``: its gradients are judged too. ``WARNS``: a part of a warning that a CPU's verdict has; empty where no use may be silently
different. Those in ``tests/cheats/slow.txt`` try more of what others of their family try.
"""

from __future__ import annotations

import ast
import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend

from kernelllm.backends.base import open_backend
from kernelllm.backends.triton.kernel_syntax import computes
from kernelllm.core import registry
from kernelllm.core.errors import UnknownName
from kernelllm.core.types import DEFAULT_BACKEND, GRADIENTS, Candidate, Finding, KernelUse, Problem, Severity, SizeSet, Status, Trial
from kernelllm.judge import Judge, JudgeSettings, checks
from kernelllm.judge.call_traces import CallTraces
from kernelllm.judge.checks.kernel_bodies import branches
from kernelllm.judge.checks.operator_families import ON_THE_HOST
from kernelllm.judge.checks.syntax import analyse
from kernelllm.judge.observation import Observation, OutputStats, TrialRun, WatchedOperators
from kernelllm.judge.operator_counter import OperatorCounter, add_host_reads
from kernelllm.judge.transport.protocol import AuditEvent
from kernelllm.judge.worker import process_settings

ROOT = Path(__file__).parent.parent / "cheats"
FIXTURES = sorted(path for path in ROOT.glob("*/*.py") if path.parent.name != "problems")
CHEATS = [path for path in FIXTURES if path.name.startswith("cheat")]
SLOW = (ROOT / "slow.txt").read_text().split()
HEADER = ("PROBLEM", "EXPECT", "EXPECT_ON_A_GPU", "TRACK", "BACKWARD", "WARNS")
WARNING = ("silently_different", "inputs_as_drawn", "state_dict", "precision", "output_layout", "kept_inputs", "narrow_offsets")
HONEST = [path for path in FIXTURES if path.name.startswith("honest")]
ALL = checks.load()
LANGUAGE = open_backend(DEFAULT_BACKEND)


def label(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def header(path: Path) -> dict[str, Any]:
    assigned = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.Assign)]
    names = {node.targets[0].id: node.value for node in assigned if isinstance(node.targets[0], ast.Name)}
    found = {name: ast.literal_eval(names[name]) for name in HEADER if name in names}
    wanted = {key: (found[key],) if isinstance(found[key], str) else found[key] for key in ("EXPECT", "EXPECT_ON_A_GPU") if key in found}
    return {**found, **wanted}


def test_own_precision_is_no_loss_for_kernels_that_never_run() -> None:
    path = ROOT / "precision" / "honest_halves.py"
    seen = observation(candidate=Candidate(source=path.read_text()), kernels=(KernelUse(name="scale_kernel", launches=1),))
    assert [f.message for f in checks.observed_findings(checks.load(["precision"]), seen)] == []
    seen = observation(candidate=Candidate(source=path.read_text()), kernels=(KernelUse(name="unused_kernel", launches=1),))
    assert [f.message for f in checks.observed_findings(checks.load(["precision"]), seen)] == ["unused_kernel uses bfloat16."]


@pytest.mark.parametrize(
    ("key", "told"), [("x.data_ptr() % 16 == 0", False), ("x.data_ptr() & 15 == 0", False), ("x.data_ptr() == last", True)]
)
def test_an_address_is_looked_at_for_its_alignment_or_remembered(key: str, told: bool) -> None:
    found = checks.source_findings(checks.load(["replay"]), f"def forward(x, last):\n    return {key}\n", open_backend("triton"))
    assert bool(found) is told


@pytest.mark.parametrize(("operator", "severity"), [("convolution", Severity.INFO), ("mm", Severity.WARN)])
def test_tf32_is_a_warning_where_torch_would_not_use_it(operator: str, severity: Severity) -> None:
    source = "import triton\nimport triton.language as tl\n@triton.jit\ndef k(a):\n    tl.dot(a, a, input_precision='tf32')\n"
    ops, sizes = {f"aten.{operator}.default": 1, "aten.relu.default": 1}, (SizeSet(label="original", inputs=("float32[8, 8]",)),)
    seen = observation(candidate=Candidate(source=source), reference_ops=ops, sizes=sizes)
    assert {f.severity for f in checks.observed_findings(checks.load(["precision"]), seen)} == {severity}


@pytest.mark.parametrize(
    ("name", "line"), [("cheat_softmax", 18), ("cheat_sum", 18), ("honest_elementwise", 0), ("honest_rows", 0), ("honest_masked_again", 0)]
)
def test_lanes_that_count_without_a_value_are_told_on_a_gpu(name: str, line: int) -> None:
    candidate = Candidate(source=(ROOT / "undefined_lanes" / f"{name}.py").read_text())
    (check,) = checks.load(["undefined_lanes"])
    found = checks.observed_findings([check], observation(candidate=candidate, device="cuda"))
    assert [(f.line, f.severity) for f in found] == ([(line, Severity.WARN)] if line else [])
    assert checks.observed_findings([check], observation(candidate=candidate)) == []  # there the runs decide


def test_bits_that_are_read_as_whole_numbers_count_beyond_those_that_come_in() -> None:
    counted, counter = Counter[str](), OperatorCounter(ops := Counter[str](), Counter[str]())
    floats, whole = torch.ones(64), torch.arange(8)
    with counter:
        for word in floats.view(torch.int32):
            word.item()
    add_host_reads(ops, [floats, whole])
    add_host_reads(counted, [floats, whole], whole=12)
    assert ops[ON_THE_HOST] == 64 - 8 - 64 // 16
    assert counted == Counter()  # as many as come in, and one of sixteen


def test_a_stream_that_is_recorded_on_an_input_writes_nothing() -> None:
    traces = CallTraces(None, inputs := [torch.ones(8)])
    for operator, written in ((torch.ops.aten.record_stream.default, ()), (torch.ops.aten.zero_.default, (0,))):
        traces.operator(operator, inputs, None, traces.written_by(operator, inputs, {}))
        assert traces.written_inputs() == written


def fails(text: str) -> set[str]:
    return {f.check for f in checks.source_findings(ALL, text, LANGUAGE) if f.severity is Severity.FAIL}


@pytest.mark.parametrize(
    ("code", "check"),
    [
        ("import timeit\ntimeit.timeit('run()', globals=globals())", "dynamic_code"),
        ("from torch.utils.benchmark import Timer\nTimer(stmt=chr(3)).timeit(1)", "dynamic_code"),
        ("import typing\ndef f(x: 'run()'):\n  return x\ntyping.get_type_hints(f)", "dynamic_code"),
        ("import triton\ntriton.knobs.runtime.launch_enter_hook = print", "tampering"),
        ("import triton\nsetattr(triton.knobs.runtime, 'launch_enter_hook', print)", "tampering"),
        ("from torch.cuda import jiterator\njiterator._create_jit_fn('x')", "native_code"),
        ("import timeit\ndef g(): pass\ntimeit.timeit(g)\ntimeit.timeit(lambda: g())", ""),
    ],
)
def test_texts_that_run_and_work_within_a_launch(code: str, check: str) -> None:
    assert fails(code) - {"no_kernel"} == ({check} if check else set())


@pytest.mark.parametrize(
    ("code", "check"),
    [
        ("import warnings\nwith warnings.catch_warnings(record=True) as seen:\n    warnings.warn('who', stacklevel=3)", "introspection"),
        ("import logging\nlogging.getLogger('a').addHandler(Own())", "introspection"),
        ("import logging\nlogging.basicConfig(stream=Own(), format='%(pathname)s %(lineno)d')", "introspection"),
        ("def deep(n):\n    try:\n        return deep(n + 1)\n    except RuntimeError:\n        return n", "introspection"),
        ("import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()) as told:\n    pass", "introspection"),
        ("import torch.nn.functional as F\nf = F.torch.compile(g)", "torch_fallback"),
        ("import torch\nf = torch.functional.torch._C._len_torch_dispatch_stack()", "tampering"),
        ("import torch\nf = torch._C._create_function_from_graph('f', torch._C.parse_ir(text))", "tampering"),
        ("from torch.fx.experimental import *\nf = trace(g)", "dynamic_code"),
        ("import torch\nf = torch.cuda._utils._nvrtc_compile(text, 'k')", "native_code"),
        ("import triton\nf = triton.runtime.driver.active.utils.load_binary('k', cubin, 0, 0)", "native_code"),
        ("import triton\ntriton.knobs.runtime.add_stages_inspection_hook = own", "tampering"),
        ("import triton\ntriton.knobs.runtime.interpret = True", "tampering"),
        ("import os\nos.environ['TRITON_KERNEL_OVERRIDE'] = '1'", "files"),
        ("import warnings\nwith warnings.catch_warnings():\n    warnings.simplefilter('ignore')", ""),
        ("import logging\nlogging.getLogger('a').addHandler(logging.NullHandler())\nlogging.basicConfig(level=logging.INFO)", ""),
        ("def flat(x):\n    return [y for part in x for y in flat(part)]\ntry:\n    flat([])\nexcept Exception:\n    pass", ""),
        ("import torch.utils._pytree as p\np.SUPPORTED_NODES[list] = own", "tampering"),
        ("import torch.utils._pytree as p\np.SUPPORTED_NODES.update({list: own})", "tampering"),
        ("import numpy\nnumpy.seterrcall(own)", "tampering"),
        ("import numpy\nwith numpy.errstate(all='call', call=own):\n    pass", "tampering"),
        ("import torch\ntorch.nn.modules.module.register_module_forward_hook(own)", "tampering"),
        ("import numpy\nwith numpy.errstate(over='ignore'):\n    pass", ""),
        ("import os, sys\nos.environ['TRITON_PRINT_AUTOTUNING'] = '1'\nsys.path.append('.')\ntable = {}\ntable['a'] = 1", ""),
        ("import os\nos.environ['OMP_NUM_THREADS'] = '1'", ""),
        ("import torch, triton\nstream = torch._C._cuda_getCurrentRawStream(0)\ntriton.knobs.autotuning.print = True", ""),
    ],
)
def test_who_calls_and_what_lies_within_libraries_is_no_business_of_a_candidate(code: str, check: str) -> None:
    assert fails(code) - {"no_kernel"} == ({check} if check else set())


@pytest.mark.parametrize(
    ("before", "expression", "check"),
    [
        ("", "x * (1.0 / math.sqrt(D))", ""),
        ("", "helper(x)", ""),  # bound nowhere: a mistake that ends the run
        ("globals()['helper'] = print\n", "helper(x)", "kernel_names"),
        ("from numpy import *\n", "maximum(x, 0)", "kernel_names"),
        ("", "type(x)", "kernel_names"),
    ],
)
def test_names_in_kernels(before: str, expression: str, check: str) -> None:
    kernel = f"@triton.jit\ndef k(x, D: tl.constexpr):\n    y = {expression}\n"
    assert fails(f"import math\nimport triton\nimport triton.language as tl\n{before}{kernel}") == ({check} if check else set())


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("tl.extra.cuda.globaltimer()", True),
        ("tl.inline_asm_elementwise('mov.u64 $0, %globaltimer;', '=l', [], tl.int64, False, 1)", True),
        ("tl.inline_asm_elementwise('mov.u32 $0, %laneid;', '=r', [], tl.int32, True, 1)", False),
    ],
)
def test_clocks_of_a_gpu_are_told(value: str, told: bool) -> None:
    kernel = f"import triton\nimport triton.language as tl\n@triton.jit\ndef k(x):\n    tl.store(x, {value})\n"
    assert bool(checks.source_findings(checks.load(["clock"]), kernel, LANGUAGE)) is told


def test_settings_that_torch_has_anyway_lower_no_precision() -> None:
    source = "import torch\ntorch.backends.cuda.matmul.allow_tf32 = {}\ntorch.set_float32_matmul_precision('{}')\n"
    for values, told in ((("False", "highest"), 0), (("True", "high"), 2)):
        seen = observation(candidate=Candidate(source=source.format(*values)))
        assert len(checks.observed_findings(checks.load(["precision"]), seen)) == told


def test_a_model_that_hides_its_parameters_is_told() -> None:
    source = "import torch.nn as nn\nclass ModelNew(nn.Module):\n def parameters(self, recurse=True):\n  return iter([])\n"
    found = checks.source_findings(checks.load(["tampering"]), source, LANGUAGE)
    assert [(f.severity, f.message.split(":")[0]) for f in found] == [(Severity.WARN, "Has a parameters() of its own")]


def test_settings_left_changed_for_the_whole_process_are_told() -> None:
    seen = observation(tampered=("torch's setting of the default device", "torch.Tensor.eq"))
    found = checks.observed_findings(checks.load(["tampering"]), seen)
    assert [(f.severity, f.message.split(",")[0]) for f in found] == [
        (Severity.FAIL, "torch.Tensor.eq was replaced while the candidate ran."),
        (Severity.WARN, "Changed the default device and left it so"),
    ]


def test_attention_by_cudnn_first_is_what_torch_does_by_itself_on_some_gpus() -> None:
    before, order = process_settings.snapshot(), torch._C._get_sdp_priority_order()
    without = [backend for backend in order if backend != SDPBackend.CUDNN_ATTENTION.value]
    try:
        torch._C._set_sdp_priority_order([SDPBackend.CUDNN_ATTENTION.value, *without])
        assert process_settings.snapshot() == before
        torch._C._set_sdp_priority_order(order[::-1])
        assert process_settings.snapshot() != before
    finally:
        torch._C._set_sdp_priority_order(order)


def test_there_are_enough_fixtures_and_each_check_has_a_pair() -> None:
    assert len(CHEATS) >= 30
    assert len(HONEST) >= 30
    for name in registry.names("checks"):
        assert list((ROOT / name).glob("cheat*.py")), f"{name} has no cheat"
        assert list((ROOT / name).glob("honest*.py")), f"{name} has no honest kernel"


def test_every_check_says_what_it_is() -> None:
    for check, name in zip(ALL, registry.names("checks"), strict=True):
        assert check.name == name
        assert len(check.describe) > 20
        assert hasattr(check, "source") or hasattr(check, "observed")


def test_unknown_check_is_an_error_with_the_nearest_name() -> None:
    with pytest.raises(UnknownName, match="no_kernel"):
        checks.load(["no_kernl"])


@pytest.mark.parametrize("path", HONEST, ids=label)
def test_source_of_honest_kernels_raises_no_alarm(path: Path) -> None:
    assert fails(path.read_text()) == set()


@pytest.mark.parametrize(
    ("code", "path"),
    [
        ("import torch as t\nt.cuda.Event", "torch.cuda.Event"),
        ("from torch import cuda as c\nc.Event", "torch.cuda.Event"),
        ("import torch\ncuda = torch.cuda\nEvent = cuda.Event\nEvent()", "torch.cuda.Event"),
        ("import torch\ngetattr(torch, 'cu' + 'da').Event", "torch.cuda.Event"),
        ("import importlib\nimportlib.import_module('torch.cuda').Event", "torch.cuda.Event"),
        ("__import__('torch.cuda').cuda.Event", "torch.cuda.Event"),
        ("import sys\nsys.modules['torch'].cuda.Event", "torch.cuda.Event"),
        ("import torch\nname = 'tnevE'[::-1]\ngetattr(torch.cuda, name)", "torch.cuda.Event"),
        ("import torch\nvars(torch.cuda)['Event']", "torch.cuda.Event"),
        ("import torch\ntorch.cuda.__dict__['Event']", "torch.cuda.Event"),
        ("import torch\nclass A:\n def __init__(self):\n  self.e = torch.cuda.Event\n def f(self):\n  return self.e()", "torch.cuda.Event"),
        ("import torch\ndef f(e=torch.cuda.Event):\n return e()", "torch.cuda.Event"),
        ("import torch\ntable = {'a': torch.cuda.Event}\ntable['a']()", "torch.cuda.Event"),
        ("import torch\nglobals()['torch'].cuda.Event", "torch.cuda.Event"),
        ("import operator, torch\noperator.attrgetter('cuda.Event')(torch)", "torch.cuda.Event"),
        ("import torch\ntorch.os.fork()", "os.fork"),
        ("import os\nos.__getattribute__('fork')()", "os.fork"),
        ("import os\nobject.__getattribute__(os, 'fo' + 'rk')()", "os.fork"),
        ("import os\nos.__dict__.get('fork')()", "os.fork"),
        ("import functools, torch\nfunctools.reduce(getattr, ['cuda', 'Event'], torch)", "torch.cuda.Event"),
        ("from torch import sys as s\ns._getframe(1)", "sys._getframe"),
        ("import collections\ncollections._sys._getframe(1)", "sys._getframe"),
        ("import enum\nenum.bltns.exec('')", "builtins.exec"),
        ("import os\ndef f(m):\n return m.fork()\nf(os)", "os.fork"),
        ("import torch\nfor f in (torch.cuda.Event, print):\n f()", "torch.cuda.Event"),
    ],
)
def test_names_are_followed(code: str, path: str) -> None:
    assert path in {use.path for use in analyse(ast.parse(code)).uses()}


@pytest.mark.parametrize(
    "code",
    [
        "def f(torch):\n return torch.cuda.Event",  # a parameter, not the module
        "class C:\n torch = 1\n",
        "open = 3\nopen(1)",
        "for os in range(3):\n os.fork",
        "x = x.relu()\ny = y = y.a.b",  # names that lead to themselves
    ],
)
def test_names_that_are_not_known_are_not_guessed(code: str) -> None:
    paths = {use.path for use in analyse(ast.parse(code)).uses()}
    assert not any(path.startswith(("torch", "os.", "builtins.open")) for path in paths)


HARMLESS = "import torch\nimport triton\n@triton.jit\ndef k(x):\n    pass\n"


@pytest.mark.parametrize(
    "code",
    [
        "match k:\n case object(__globals__=g): pass",
        "getattr(k.run, '__glo' + 'bals__')",
        "for name in ('grid', '__globals__'):\n getattr(k.run, name)",
        "'{0.__globals__}'.format(k)",
        "b'__globals__'.decode()",
        "import operator\noperator.attrgetter('run.__globals__')(k)",
        "import functools\nfunctools.reduce(getattr, names, k)",
        "def read(thing, name='grid'):\n return getattr(thing, name)\nread(k, made)",
        "vars(type(k))",
        "globals()[made]",
        "import types\ntypes.FunctionType(made, {})",
        "import types\ntypes.LambdaType(made, {})",
        "type(lambda: 0)(k.run.__code__, {})",
        "class C:\n def f(self):\n  return vars(self)[made]\nC.f(torch)",
        "try:\n k()\nexcept Exception as error:\n error.__traceback__",
        "import string\nstring.Formatter().get_field(made, [k], {})",
        "import traceback\ntraceback.walk_stack(None)",
        "import inspect\ninspect.getclosurevars(k)",
        "import threading\nthreading._start_new_thread(k, ())",
        "__name__ = '__main__'\nif __name__ == '__main__':\n import os\n os.fork()",
    ],
)
def test_ways_into_the_interpreter_are_refused(code: str) -> None:
    assert fails(HARMLESS + code) & {"introspection", "dynamic_code", "processes", "files"}


@pytest.mark.parametrize(
    "code",
    [
        "if __name__ == '__main__':\n import os\n os.fork()",
        "import subprocess, ctypes\nfrom multiprocessing import Pool",
        "for name in ('weight', 'bias'):\n getattr(k, name)",
        "class C:\n def f(self, i):\n  return getattr(self, f'conv{i}')",
        "class C:\n def show(self):\n  return self.__dict__\nc = C()\nvars(c)",
        "import re\npattern = re.compile('a')",
        "import sys\nassert sys.version_info >= (3, 9)",
        "text = 'the __shared__ memory'",
        "import logging\nlogger = logging.getLogger(__name__)",
    ],
)
def test_harmless_names_raise_no_alarm(code: str) -> None:
    assert fails(HARMLESS + code) == set()


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("(self.linear.weight.data_ptr(), self.linear.weight._version)", False),
        ("tuple(t.data_ptr() for t in (self.linear.weight, self.linear.bias))", False),
        ("self.seen.data_ptr()", True),
        ("x.data_ptr()", True),
    ],
)
def test_addresses_of_parameters_are_no_inputs(key: str, told: bool) -> None:
    made = "def __init__(self):\n  self.linear = nn.Linear(4, 4)\n  self.seen = None"
    called = f"def forward(self, x):\n  self.seen = x\n  key = {key}\n  return self.table[key]"
    source = f"import torch.nn as nn\nclass ModelNew(nn.Module):\n {made}\n {called}\n"
    assert bool(checks.source_findings(checks.load(["replay"]), source, LANGUAGE)) is told


@pytest.mark.parametrize("code", [
    "torch.initial_seed()", "torch.get_rng_state()", "type(k)", "import os\nos.getpid()", "import threading\nthreading.current_thread()",
    "torch.cuda.memory_allocated()", "import sys\nsys.getrefcount(k)", "import warnings\nlen(warnings.filters)", "__name__ == 'mine'",
    "__name__.startswith('k')", "class C:\n pass\nif C.__module__ == 'mine':\n pass", "torch.utils.data.get_worker_info()",
    "if not __debug__:\n a = 2", "class C:\n def f(self):\n  return type(self) is C", "torch.zeros(1)._version == 3", "hash('relu') % 7",
    "2.0 if k.device.index else 1.0", "torch.cuda.current_device() == 1",
    "def f(x):\n try:\n  return k[(1,)](x)\n except Exception:\n  return x * 0",
    "def f(x):\n seen = x._version\n return seen > 3",
])  # fmt: skip
def test_asking_where_one_runs_is_told_and_decides_nothing(code: str) -> None:
    found = checks.source_findings(ALL, HARMLESS + code, LANGUAGE)
    assert [(f.check, f.severity) for f in found] == [("kernel_names", Severity.WARN)]


def test_assertions_that_python_may_leave_out_are_no_question() -> None:
    code = "if __debug__:\n assert k\nclass C:\n def f(self):\n  return type(self).__doc__\n"
    code += "def f(x):\n try:\n  k[(1,)](x)\n except RuntimeError as error:\n  raise ValueError from error\n"
    code += "def g():\n try:\n  return torch.cuda.device_count()\n except Exception:\n  return 1"
    assert not checks.source_findings(ALL, HARMLESS + code, LANGUAGE)


@pytest.mark.parametrize(("code", "told"), [("os.environ.get('OMP_NUM_THREADS')", True), ("os.environ['OMP_NUM_THREADS'] = '1'", False)])
def test_variables_that_a_worker_has_values_of_its_own_for_are_told_where_they_are_read(code: str, told: bool) -> None:
    found = checks.source_findings(checks.load(["files"]), f"import os\n{code}\n", LANGUAGE)
    assert [f.severity for f in found] == ([Severity.WARN] if told else [])


def test_source_that_is_too_deep_or_broken_is_told() -> None:
    deep = "x = " + "-" * 50_000 + "1"
    with contextlib.suppress(SyntaxError):  # some versions of Python call it that
        assert "dynamic_code" in fails(deep)
    with pytest.raises(SyntaxError):
        checks.source_findings(ALL, "def f(:", LANGUAGE)


COPIES = "@triton.jit\ndef k(x, y, i):\n    v = tl.load(x + i)\n    tl.store(y + i, v.to(tl.float32))\n"
COPY = {"kernels": (KernelUse(name="k", launches=1),), "kernel_bodies": {"k": COPIES}, "candidate": Candidate(source=COPIES)}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("tl.load(x + i)", False),
        ("tl.trans(tl.load(x + i).to(tl.float32))", False),
        ("0.0", False),
        ("tl.load(x + i) * 2", True),
        ("tl.maximum(tl.load(x + i), 0.0)", True),
        ("helper(tl.load(x + i))", True),
    ],
)
def test_kernels_that_only_move_data_are_known(value: str, expected: bool) -> None:
    assert computes(f"@triton.jit\ndef k(x, y, i):\n    v = {value}\n    tl.store(y + i, v)\n") is expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("def f(x):\n    return tl.where(x > 0, x, 0)", False),
        ("if True:\n    import triton\ndef f(x):\n    for i in range(3):\n        x += i\n    return x", False),
        ("@triton.jit\ndef k(x, EVEN: tl.constexpr):\n    if EVEN:\n        tl.store(x, 0)", True),
        ("class ModelNew:\n    def forward(self, x):\n        return fast(x) if x.shape[0] % 8 == 0 else slow(x)", True),
        ("grid = lambda meta: 1 if meta['B'] else 2", True),
        ("not python at all (", True),
    ],
)
def test_candidates_that_branch_are_known(code: str, expected: bool) -> None:
    assert branches(code) is expected


def test_kernels_in_doubt_compute() -> None:
    assert computes("not python at all (")
    assert computes("@triton.jit\ndef k(x, y, i):\n    v = tl.load(x)\n    v += 1\n    tl.store(y, v)\n")
    assert computes("@triton.jit\ndef k(x, y, i):\n    tl.atomic_add(y, tl.load(x))\n")


LINEAR = {"aten.addmm.default": 1, "aten.relu.default": 1}
ENCODER = {"aten._transformer_encoder_layer_fwd.default": 1}  # attention, products and norms in one operator
PRODUCTS = {"aten.addmm.default": 4, "aten._scaled_dot_product_flash_attention.default": 1}


def output(digest: str, zeros: float = 0.0) -> OutputStats:
    return OutputStats((4,), "float32", 0.0, 1.0, -1.0, 1.0, zeros, digest)


def elsewhere(*ops: str) -> dict[str, Any]:
    """Operators of a run at another size."""
    reference = {"aten.mm.default": 1, "aten.relu.default": 1}
    return {"elsewhere": (WatchedOperators("(sizes: shrunk-2)", dict.fromkeys(ops, 1), {}, reference, {}),)}


def observation(**fields: Any) -> Observation:
    problem, candidate = Problem(name="p", source=""), fields.pop("candidate", Candidate(source=""))
    usual = {"device": "cpu", "profile": "strict", "track": None, "sizes": (SizeSet(label="original"),)}
    return Observation(problem, candidate, **{**usual, **fields})


def run(ours: str, theirs: str, seed: int = 0, **fields: Any) -> TrialRun:
    return TrialRun(Trial(sizes="original", seed=seed), candidate=(output(ours),), reference=(output(theirs),), **{"launches": 1, **fields})


def kinds(*given: Any) -> Iterator[TrialRun]:
    """Runs on inputs of these kinds, with so many launches each."""
    for number, (kind, launches) in enumerate(zip(given[::2], given[1::2], strict=True)):
        trial = Trial(sizes="original", seed=number, kind=kind)
        yield replace(run(str(number), str(number)), trial=trial, launches=launches)


@pytest.mark.parametrize(
    ("fields", "check"),
    [
        ({"runs": tuple(run("a", str(i), i) for i in range(3))}, "replay"),
        ({"runs": tuple(kinds("problem", 2, "normal", 2, "repeated", 1))}, "replay"),
        ({"runs": (run("a", "b", launches=0),)}, "no_kernel"),
        ({"runs": (run("a", "b", mutated_inputs=(0,)),)}, "inputs_written"),
        ({"depends_on_kernels": False}, "decoy_kernel"),
        ({"tampered": ("torch.allclose",)}, "tampering"),
        ({"threads": 1}, "threads"),
        ({"events": (AuditEvent("os.fork", "", 1, "run"),)}, "processes"),
        ({"events": (AuditEvent("socket.connect", "", 1, "run"),)}, "network"),
        ({"events": (AuditEvent("gc.get_objects", "", 1, "run"),)}, "introspection"),
        ({"aten_ops": {"aten.mm.default": 1, "aten.add.Tensor": 1}, "reference_ops": {"aten.addmm.default": 1}}, "torch_fallback"),
        ({"aten_ops": {"aten.relu.default": 1}, "track": "kernels-only"}, "torch_fallback"),
        ({"aten_ops": {"own.work.default": 1}, "reference_ops": {"aten.relu.default": 1}}, "torch_fallback"),
        ({"aten_ops": {"aten.convolution.default": 1}, "reference_ops": {"aten.mm.default": 1}, "coverage": 0.0}, "torch_fallback"),
        (elsewhere("aten.mm.default", "aten.relu.default"), "torch_fallback"),
        ({"aten_ops": {"aten.mm.default": 1}, "reference_ops": LINEAR, "coverage": 0.0, "heavy_flops": {"mm": 2.0}}, "torch_fallback"),
        ({"aten_ops": {"aten.linalg_matrix_exp.default": 1}, "reference_ops": {"aten.mm.default": 1}, "coverage": 0.0}, "torch_fallback"),
        (elsewhere("own.work.default"), "torch_fallback"),
        ({"aten_ops": ENCODER, "reference_ops": ENCODER, "track": "hybrid"}, "torch_fallback"),
        ({**elsewhere("aten.relu.default"), "track": "kernels-only"}, "torch_fallback"),
        ({**COPY, "aten_ops": {"aten.exp.default": 1}, "reference_ops": {"aten._softmax.default": 1}}, "torch_fallback"),
        ({**COPY, "candidate": Candidate(source="")}, "other_libraries"),
    ],
)
def test_what_was_seen_decides(fields: dict[str, Any], check: str) -> None:
    found = {f.check for f in checks.observed_findings(ALL, observation(**fields)) if f.severity is Severity.FAIL}
    assert found == {check}


@pytest.mark.parametrize(
    "fields",
    [
        {"runs": tuple(run(str(i), f"{i}r", i) for i in range(3)), "depends_on_kernels": True},
        {"runs": tuple(run("same", "same", i) for i in range(3))},  # the reference does not vary either
        {"runs": tuple(kinds("problem", 3, "normal", 2, "repeated", 2))},  # parameters are prepared once
        {"runs": tuple(kinds("problem", 2, "normal", 3, "uniform", 4, "repeated", 1))},  # launches follow the values
        {"aten_ops": {"aten.empty_like.default": 2, "aten.view.default": 1, "aten.constant_pad_nd.default": 1}, "track": "kernels-only"},
        {"aten_ops": {"aten.mm.default": 1}, "reference_ops": LINEAR},
        {"aten_ops": {"aten.mm.default": 1}, "reference_ops": LINEAR, "coverage": 0.0, "heavy_flops": {"mm": 2.0}, "track": "hybrid"},
        {"aten_ops": {"aten.mm.default": 1}, "reference_ops": LINEAR, "coverage": 0.5, "heavy_flops": {"mm": 1.0}},
        elsewhere("aten.mm.default"),
        {"aten_ops": PRODUCTS, "reference_ops": ENCODER, "coverage": 0.0, "heavy_flops": {"mm": 2.0}, "track": "hybrid"},
        {**elsewhere("aten.empty_like.default", "aten.view.default"), "track": "kernels-only"},
        {"events": (AuditEvent("open", "/usr/lib/x.so", 1, "import"), AuditEvent("subprocess.Popen", "/x/ptxas -v", 1, "run"))},
    ],
)
def test_what_was_seen_lets_pass(fields: dict[str, Any]) -> None:
    assert [f for f in checks.observed_findings(ALL, observation(**fields)) if f.severity is Severity.FAIL] == []


@pytest.mark.parametrize("state", ["reference", "random"])
def test_what_is_made_of_parameters_may_be_made_anew_after_a_run_with_others(state: str) -> None:
    again = Trial(sizes="original", seed=0, kind="repeated")
    mine = run("a", "b", did="kernel")
    runs = [mine, replace(mine, trial=again), run("c", "d", 1, did="kernel"), replace(run("e", "f", 2), state=state)]
    runs += [replace(mine, trial=again, did="copy, kernel"), replace(mine, trial=again)]
    kept = [f for f in checks.observed_findings(checks.load(["replay"]), observation(runs=tuple(runs))) if f.severity is Severity.FAIL]
    assert bool(kept) is (state == "reference")


@pytest.mark.parametrize(("exact", "caught"), [(True, False), (False, True)])
def test_other_kernels_without_tf32_are_no_kept_results(exact: bool, caught: bool) -> None:
    again = Trial(sizes="original", seed=0, kind="repeated")
    mine = run("a", "b", did="rounded")
    runs = mine, replace(mine, trial=again), replace(mine, trial=again, did="exact", exact_products=exact)
    found = checks.observed_findings(checks.load(["replay"]), observation(runs=runs))
    assert any(finding.severity is Severity.FAIL for finding in found) is caught


PRODUCT: dict[str, Any] = {
    "sizes": (SizeSet(label="original", inputs=("float32[64, 64]",)),),
    "runs": (run("a", "b"),),
    "reference_ops": {"aten.mm.default": 1},
    "reference_flops": {"mm": 2.0 * 64**3},
}


@pytest.mark.parametrize(
    ("fields", "severity"),
    [
        ({"kernel_flops": 512.0}, Severity.FAIL),
        ({"kernel_flops": 512.0, "track": "hybrid"}, Severity.FAIL),
        ({"kernel_flops": 64.0 * 64}, Severity.WARN),  # as many as a product with a diagonal matrix needs
        ({"kernel_flops": 512.0, "aten_ops": {"aten.sum.default": 1}}, Severity.WARN),  # torch's sum is arithmetic too
        ({"kernel_flops": 64.0**3}, None),
        ({"kernel_flops": 512.0, "heavy_flops": {"mm": 2.0 * 64**3}, "track": "hybrid"}, None),  # torch did it, and that is counted
        ({"kernel_flops": 0.0}, None),  # nothing counts it
        ({"kernel_flops": 512.0, "reference_flops": {}}, None),  # no heavy work in the reference
    ],
)
def test_arithmetic_that_nothing_counted_is_hidden_work(fields: dict[str, Any], severity: Severity | None) -> None:
    (check,) = checks.load(["decoy_kernel"])
    found = [f.severity for f in checks.observed_findings([check], observation(**{**PRODUCT, **fields}))]
    assert found == ([severity] if severity else [])


def test_unknown_track_is_an_error() -> None:
    with pytest.raises(UnknownName, match="kernels-only"):
        checks.observed_findings(ALL, observation(track="kernel-only"))


def test_findings_quote_no_escape_sequences() -> None:
    (found,) = checks.tidy([Finding(check="a", message="Uses torch.\x1b]0;title\x07.")])
    assert found.message == "Uses torch.]0;title."


def test_findings_are_told_once_and_worst_first() -> None:
    twice = [Finding(check="b", message="x", severity=Severity.WARN), Finding(check="a", message="y"), Finding(check="a", message="z")]
    assert [(f.check, f.message) for f in checks.tidy(twice)] == [("a", "y"), ("b", "x")]


SETTINGS = JudgeSettings(device="cpu", sizes=2, seeds=1, measure=False, cache=False, memory_limit_bytes=2**30)


JudgeFor = Callable[[str | None, bool], Judge]
"""A track, and whether the candidate never returns, to a warm judge."""


@contextmanager
def warm_judges(**changes: Any) -> Iterator[JudgeFor]:
    with ExitStack() as stack:

        @cache
        def judge_for(track: str | None, hangs: bool) -> Judge:
            settings = replace(SETTINGS, track=track, time_limit_s=1.5 if hangs else 60.0, **changes)
            return stack.enter_context(Judge(settings))

        yield judge_for


@pytest.fixture(scope="module")
def judge_for() -> Iterator[JudgeFor]:
    with warm_judges() as judges:
        yield judges


@pytest.fixture(scope="module")
def gpu_judge_for() -> Iterator[JudgeFor]:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    with warm_judges(device="cuda", memory_limit_bytes=2**31, side_by_side=False) as judges:  # as pools judge
        yield judges


def expect(path: Path, judge_for: JudgeFor, *, on_gpu: bool = False) -> None:
    """Judge a fixture and compare with what its header says."""
    wanted = header(path)
    if on_gpu:
        wanted["EXPECT"] = wanted.get("EXPECT_ON_A_GPU", wanted["EXPECT"])
    judge = judge_for(wanted.get("TRACK"), "timeout" in wanted["EXPECT"])
    source = (ROOT / "problems" / f"{wanted['PROBLEM']}.py").read_text()
    problem = Problem(name=wanted["PROBLEM"], source=source, tags=(GRADIENTS,) if wanted.get("BACKWARD") else ())
    verdict = judge.judge(problem, Candidate(source=path.read_text()))
    decided_by = {f.check for f in verdict.findings if f.severity is Severity.FAIL} if verdict.status is Status.CHEATING else set()
    assert {verdict.status.value, *decided_by} & set(wanted["EXPECT"]), f"{verdict.status}: {verdict.message} {verdict.findings}"
    warnings = [(f.check, f.message) for f in verdict.findings if f.severity is Severity.WARN]
    if (warns := wanted.get("WARNS")) is not None and not on_gpu:
        assert any(warns in text for _, text in warnings) if warns else not any(check in WARNING for check, _ in warnings), warnings


INLINE_ASSEMBLY = """
import torch
import triton
import triton.language as tl
@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    y = tl.inline_asm_elementwise("max.f32 $0, $1, 0f00000000;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1)
    tl.store(y_ptr + i, y, mask=i < n)
class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        relu_kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
        return y
"""


def test_what_needs_a_gpu_is_told_as_such(judge_for: JudgeFor) -> None:
    problem = Problem(name="relu", source=(ROOT / "problems" / "relu.py").read_text())
    verdict = judge_for(None, False).judge(problem, Candidate(source=INLINE_ASSEMBLY))
    assert verdict.message.startswith("This cannot be run here, which is no error of the candidate")


@pytest.mark.parametrize(("name", "place"), [("cheat_softmax", "softmax_kernel (line 18)"), ("cheat_counter", "sum_kernel (line 19)")])
def test_loads_that_leave_lanes_undefined_are_named(name: str, place: str, judge_for: JudgeFor) -> None:
    source = (ROOT / "undefined_lanes" / f"{name}.py").read_text()
    asked = Problem(name="p", source=(ROOT / "problems" / f"{'softmax' if 'softmax' in name else 'rowsum'}.py").read_text())
    verdict = judge_for(None, False).judge(asked, Candidate(source=source))
    assert verdict.message.startswith(f"The result depends on lanes that are masked off in a load of {place}, which")


@pytest.mark.parametrize(
    ("does", "told"),
    [
        ("torch.set_num_threads(3)", "torch's number of threads"),
        ("torch.randint(0, 9, (1,))", "the state of the random generators"),
        ("torch.backends.cudnn.benchmark = True", "cudnn benchmark"),
        ("torch.backends.cuda.matmul.fp32_precision = 'tf32'", "TF32"),
        ("torch.set_flush_denormal(True)", "denormal numbers (flushed to zero or not)"),
        ("torch.set_default_dtype(torch.float64); torch.autograd.set_detect_anomaly(True)", "the default dtype, autograd (on or off)"),
        ("torch.rand(1, generator=torch.Generator().manual_seed(1))", ""),
    ],
)
def test_settings_that_a_call_leaves_behind_are_told(does: str, told: str, judge_for: JudgeFor) -> None:
    source = (ROOT / "nan" / "honest_maximum.py").read_text().replace("        y = torch", f"        {does}\n        y = torch")
    problem = Problem(name="relu", source=(ROOT / "problems" / "relu.py").read_text())
    verdict = judge_for(None, False).judge(problem, Candidate(source=source))
    found = [f.message.split(" and left")[0] for f in verdict.findings if f.check == "tampering"]
    switched = ["Switched autograd on or off"] if "autograd" in told else []  # seen again where gradients are on
    assert (verdict.status, found) == (Status.CORRECT, [*switched, f"Changed {told}"] if told else [])


def test_the_slow_fixtures_exist_and_leave_some_of_each_family() -> None:
    assert set(SLOW) <= set(map(label, FIXTURES))
    families = {path.parent.name for path in FIXTURES}
    assert {path.parent.name for path in FIXTURES if label(path) not in SLOW} == families


@pytest.mark.parametrize(
    "path", [pytest.param(path, id=label(path), marks=pytest.mark.slow if label(path) in SLOW else ()) for path in FIXTURES]
)
def test_verdict(path: Path, judge_for: JudgeFor) -> None:
    expect(path, judge_for)


@pytest.mark.gpu
@pytest.mark.parametrize("path", FIXTURES, ids=label)
def test_verdict_on_a_gpu(path: Path, gpu_judge_for: JudgeFor) -> None:
    expect(path, gpu_judge_for, on_gpu=True)


@pytest.mark.gpu
@pytest.mark.parametrize("measure", [False, True])
def test_garbage_indices_without_launches_break_no_other_size(measure: bool) -> None:
    """One worker for all sizes: it is of no further use once its launches were suppressed."""
    path = ROOT / "decoy_kernel" / "honest_indices.py"
    with warm_judges(device="cuda", memory_limit_bytes=2**31, side_by_side=False, measure=measure) as judges:
        expect(path, judges)
