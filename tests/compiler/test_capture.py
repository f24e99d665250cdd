"""Capture: sizes become symbols by where they come from, everything the graph needs is described."""

import gc
import math
import sys
from functools import lru_cache
from types import SimpleNamespace

import pytest
import torch
from compiled import ATTENTION, CONV, LAYER_NORM, LINEAR, LSTM, captured, problem

from kernelllm.compiler import emit
from kernelllm.compiler.capture.capture import capture, captured_for
from kernelllm.compiler.capture.fx_trace import symbolic
from kernelllm.compiler.capture.torch_export import exported
from kernelllm.compiler.capture.untraceable import Untraceable
from kernelllm.compiler.compiler_writer import Compiler
from kernelllm.compiler.options import Options
from kernelllm.core.errors import CaptureError, ProblemError


def targets(result):
    return [str(n.target) for n in result.graph.graph.nodes if n.op == "call_function"]


def graph_inputs(result):
    return {s.name: s for s in result.graph_inputs}


def test_equal_values_of_distinct_constants_stay_apart():
    result = captured(LINEAR)
    assert result.symbolic
    assert not result.specialized
    by_constant = {s.constant: s.symbol for s in result.sizes}
    assert len(set(by_constant.values())) == 3
    shapes = {n: s.shape for n, s in graph_inputs(result).items()}
    assert shapes["x"] == (by_constant["batch"], by_constant["width"])
    assert shapes["fc.weight"] == (by_constant["hidden"], by_constant["width"])


def test_graph_inputs_name_kinds_positions_and_arguments():
    result = captured(LINEAR)
    assert result.forward_arguments == ("x",)
    assert [s.kind for s in result.graph_inputs] == ["size"] * 3 + ["parameter"] * 2 + ["input"]
    assert graph_inputs(result)["x"].index == 0
    assert graph_inputs(result)["fc.bias"].variable == "fc_bias"


def test_inputs_may_come_in_a_dictionary_or_alone():
    for given in ('{"x": torch.rand(batch, width)}', "torch.rand(batch, width)"):
        found = captured(LINEAR.replace("[torch.rand(batch, width)]", given))
        assert [i.name for i in found.graph_inputs if i.kind == "input"] == ["x"]


def test_sources_say_where_a_size_can_be_read():
    sources = {s.constant: s.sources[0] for s in captured(LINEAR).sizes}
    assert (sources["batch"].kind, sources["batch"].name, sources["batch"].dim) == ("input", "x", 0)
    assert (sources["hidden"].kind, sources["hidden"].name, sources["hidden"].dim) == ("parameter", "fc.weight", 0)


def test_integer_attributes_of_modules_are_not_baked_in():
    result = captured(LAYER_NORM)
    assert {s.constant: s.hint for s in result.sizes} == {"batch": 16, "rows": 24, "width": 777}
    assert "777" not in result.graph.code


def test_sizes_divided_by_a_number_are_multiples_of_their_symbol():
    result = captured(ATTENTION)
    assert {s.constant: s.hint for s in result.sizes} == {"batch": 4, "steps": 100, "width_over_6": 16}
    width = next(s for s in result.sizes if s.constant == "width_over_6")
    assert width.sources[0].expression == f"6*{width.symbol}"


def test_computed_sizes_have_a_symbol_and_an_expression():
    result = captured(CONV)
    size = next(s for s in result.sizes if s.constant == "size")
    after = next(s for s in result.sizes if s.expression)
    assert after.hint == 32
    assert eval(after.expression, {size.symbol: 65}) == 32
    assert eval(after.expression, {size.symbol: 8}) == 3


def test_running_statistics_are_written_as_in_train_mode():
    result = captured(CONV)
    assert {s.name for s in result.graph_inputs if s.mutated} == {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}


def test_whole_layers_and_heavy_operators_become_templates():
    assert any("kernelllm.attention" in t for t in targets(captured(ATTENTION)))
    assert sum("kernelllm.lstm" in t for t in targets(captured(LSTM))) == 1
    assert any("kernelllm.conv" in t for t in targets(captured(CONV)))
    assert any("kernelllm.matmul" in t for t in targets(captured(LINEAR)))


def test_extern_allow_leaves_heavy_operators_to_torch():
    names = targets(captured(LINEAR, Options(extern="allow")))
    assert "aten.addmm.default" in names
    assert not any("kernelllm" in n for n in names)


def test_extern_forbid_refuses_what_has_no_template():
    body = """
class Model(nn.Module):
    def forward(self, a, b): return torch.mm(a, b)
n = 64
def get_inputs(): return [torch.ones(n, n, dtype=torch.uint8), torch.ones(n, n, dtype=torch.uint8)]
def get_init_inputs(): return []
"""
    with pytest.raises(CaptureError, match=r"aten\.mm"):
        captured(body, Options(extern="forbid"))


def test_precision_follows_torchs_defaults():
    def tf32(body):
        return [n.kwargs["allow_tf32"] for n in captured(body).graph.graph.nodes if "kernelllm" in str(n.target)]

    assert tf32(CONV) == [True]
    assert tf32(LINEAR) == [False]


@pytest.mark.parametrize(
    ("result", "template"),
    [
        ("x", "{0}"),
        ("(x + 1,)", "({0},)"),
        ("{'a': x + 1, 'n': [None, 2.5, x.shape[0]]}", "{{'a': {0}, 'n': [None, 2.5, {1}]}}"),
    ],
)
def test_results_are_rebuilt_in_their_structure(result, template):
    body = f"""
class Model(nn.Module):
    def forward(self, x): return {result}
n = 32
def get_inputs(): return [torch.rand(n, n)]
def get_init_inputs(): return []
"""
    assert captured(body).output == template


def test_inputs_may_be_nested_or_no_tensors_and_state_may_be_plain_attributes():
    body = """
class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.scale = torch.rand(n)
        self.layer = nn.Linear(n, n)
        self.again = self.layer
    def forward(self, pair, factor, flag=None):
        return self.again(pair[0] * self.scale + pair[1]) * factor
n = 48
def get_inputs(): return [[torch.rand(n, n), torch.rand(n, n)], 0.5, None]
def get_init_inputs(): return [n]
"""
    result = captured(body)
    assert result.forward_arguments == ("pair", "factor", "flag")
    assert [(s.kind, s.name) for s in result.graph_inputs if s.kind != "size"] == [
        ("parameter", "layer.weight"), ("parameter", "layer.bias"), ("attribute", "scale"),
        ("input", "pair[0]"), ("input", "pair[1]"), ("input", "factor"),
    ]  # fmt: skip


def test_sizes_that_must_agree_are_one():
    body = """
class Model(nn.Module):
    def forward(self, a, b): return a + b
n, m = 40, 40
def get_inputs(): return [torch.rand(n), torch.rand(m)]
def get_init_inputs(): return []
"""
    assert len(captured(body).sizes) == 1


def test_python_numbers_that_shape_the_program_are_pinned():
    body = """
class Model(nn.Module):
    def __init__(self, width, count):
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(width, width) for _ in range(count)])
    def forward(self, x): return self.layers(x)
width, count = 40, 3
def get_inputs(): return [torch.rand(7, width)]
def get_init_inputs(): return [width, count]
"""
    result = captured(body)
    assert result.specialized.get("count") == 3
    assert sum("matmul" in t for t in targets(result)) == 3


def test_sizes_in_a_list_of_shapes_and_numbers_of_classes_stay_symbols():
    body = """
class Model(nn.Module):
    def forward(self, tensors, index):
        return [t * 2 for t in tensors], F.one_hot(index % 5, int(1.25 * index.shape[0] / 4)) * 2
shapes = [(64, 32), (48,)]
def get_inputs(): return [[torch.rand(*s) for s in shapes], torch.randint(0, 9, (160,))]
def get_init_inputs(): return []
"""
    result = captured(body)
    assert result.way == "make_fx"
    assert not result.specialized
    assert not result.fixed
    assert {s.constant for s in result.sizes if not s.expression} >= {"shapes[0][0]", "shapes[0][1]", "shapes[1][0]"}
    assert all(not d.isdigit() for g in result.graph_inputs if g.kind == "input" for d in g.shape)


def test_a_size_of_which_a_condition_leaves_one_value_is_said_to_be_fixed():
    body = """
class Model(nn.Module):
    def forward(self, x):
        return torch.cat([x[: x.shape[0] // 2]] * len(range(x.shape[0] // 2)))
rows, columns = 40, 30
def get_inputs(): return [torch.rand(rows, columns)]
def get_init_inputs(): return []
"""
    result = captured(body)
    assert result.symbolic
    assert result.fixed == {"rows": 40}
    always = body.replace("* len(range(x.shape[0] // 2))", "* len(range((3 * x.shape[0] - 1) // x.shape[0]))")
    assert not captured(always).fixed


def test_an_einsum_of_many_operands_keeps_its_sizes_where_opt_einsum_orders_the_products():
    assert torch.backends.opt_einsum.is_available()
    source = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, a, b, c):
        return torch.einsum("bij,bjk,bkl->bil", a, b, c)

batch, rows, inner, wide, columns = 3, 5, 6, 70, 7

def get_inputs():
    return [torch.randn(batch, rows, inner), torch.randn(batch, inner, wide), torch.randn(batch, wide, columns)]

def get_init_inputs():
    return []
"""
    result = captured(source)
    assert result.symbolic
    assert {s.constant for s in result.sizes} == {"batch", "rows", "inner", "wide", "columns"}
    assert not result.specialized


def test_nothing_is_allocated():
    body = """
class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.w = nn.Parameter(torch.randn(n, n))
    def forward(self, x): return x @ self.w
n = 200_000
def get_inputs(): return [torch.rand(n, n)]
def get_init_inputs(): return [n]
"""
    assert captured(body).sizes[0].hint == 200_000


def test_a_decision_on_values_is_reported_with_its_line():
    body = """
class Model(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x * 2
        return x[:2]
n = 32
def get_inputs(): return [torch.rand(n)]
def get_init_inputs(): return []
"""
    with pytest.raises(CaptureError, match=r"line 8: if x\.sum\(\) > 0") as refused:
        captured(body)
    assert str(refused.value).count("line 8") == 1  # however many ways of tracing met it
    assert "u0" not in str(refused.value)


def test_a_problem_without_model_is_the_problems_fault():
    with pytest.raises(ProblemError, match="defines no Model"):
        capture(problem("def get_inputs(): return []\n"), Options())


def test_export_is_a_second_way():
    result = exported(problem(CONV), Options())
    assert result.way == "export"
    assert {s.constant for s in result.sizes if not s.expression} == {"x_dim0", "x_dim2", "x_dim3"}
    assert sum(s.mutated for s in result.graph_inputs) == 3


def test_an_export_holds_the_tensors_that_a_part_makes_of_numbers():
    body = """
class Part(nn.Module):
    def forward(self, x): return x.view(-1, 4) * torch.tensor([1.0, 2.0, 3.0, 4.0], device="cpu").to(x.device)
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.part = Part()
    def forward(self, x): return self.part(x)
def get_inputs(): return [torch.rand(3, 8)]
def get_init_inputs(): return []
"""
    held = exported(problem(body), Options()).graph.graph.find_nodes(op="get_attr")
    assert [n.meta["val"].shape for n in held] == [(4,)]


STRICT_CONFIGURATION = """
class Unfit(Exception): pass
class Configuration:
    def __init__(self, width):
        if type(width) is not int: raise Unfit("no plain number")
        self.width = width
class Model(nn.Module):
    def __init__(self, configuration):
        super().__init__()
        self.fc = nn.Linear(configuration.width, configuration.width)
    def forward(self, x): return self.fc(x)
batch, width = 24, 40
def get_inputs(): return [torch.rand(batch, width)]
def get_init_inputs(): return [Configuration(width)]
"""


def test_an_input_whose_size_is_made_of_several_that_nothing_tells_may_have_any_size():
    source = """
import torch, torch.nn as nn
graphs, nodes, edges = 12, 30, 90
class Model(nn.Module):
    def forward(self, x, edge):
        return torch.zeros_like(x).index_add_(0, edge[1], x[edge[0]])
def get_inputs():
    return [torch.randn(graphs * nodes, 40), torch.randint(0, graphs * nodes, (2, graphs * (nodes + edges)))]
def get_init_inputs(): return []
"""
    captured = capture(problem(source), Options())
    assert (captured.way, captured.symbolic) == ("export", True)
    assert not {"graphs", "nodes", "edges"} & captured.fixed.keys()


def test_resized_images_are_computed_in_exports_too():
    body = """
class Model(nn.Module):
    def forward(self, x): return F.interpolate(x, scale_factor=2.0)
def get_inputs(): return [torch.rand(2, 3, 8, 10)]
"""
    assert "nearest2d.vec" not in exported(problem(body), Options()).graph.code


def test_any_failure_of_a_way_leads_to_the_next():
    """What user code raises when it meets a symbol is in no list."""
    result = captured(STRICT_CONFIGURATION)
    assert result.way == "export"
    assert any("Unfit: no plain number" in note for note in result.notes)


def test_what_comes_after_capture_may_fail_too():
    def refuses_symbols(graph):
        if graph.symbolic:
            raise KeyError("not with symbols")
        return graph.way

    assert captured_for(problem(LINEAR), Options(), refuses_symbols) == "static"


def test_a_fault_in_writing_one_way_leads_to_the_next(monkeypatch):
    def emitted(part, lowered):
        if not lowered.options.differences():
            raise IndexError("a fault")
        return usual(part, lowered)

    usual = emit.emit
    monkeypatch.setattr(emit, "emit", emitted)
    (candidate,) = Compiler().write(problem(LAYER_NORM), 1)
    assert candidate.params


def test_a_fault_in_writing_every_way_is_an_error(monkeypatch):
    monkeypatch.setattr(emit, "emit", {}.__getitem__)
    with pytest.raises(CaptureError, match="could not be compiled: TypeError"):
        list(Compiler().write(problem(LAYER_NORM), 1))


def test_an_error_names_each_cause_once():
    def refuses(graph):
        raise KeyError("never")

    with pytest.raises(CaptureError, match="never") as found:
        captured_for(problem(LINEAR), Options(), refuses)
    assert str(found.value).count("never") == 1


def test_capture_leaves_the_process_as_it_was():
    before = (math.sqrt, torch.nn.init.uniform_, torch.nn.functional.scaled_dot_product_attention, torch.lstm)
    captured.__wrapped__(LSTM)
    assert before == (math.sqrt, torch.nn.init.uniform_, torch.nn.functional.scaled_dot_product_attention, torch.lstm)
    assert isinstance(torch.rand(2), torch.Tensor)
    assert type(torch.rand(2)) is torch.Tensor


@lru_cache
def table(n: int) -> torch.Tensor:
    return torch.arange(n)


def test_no_function_keeps_tensors_of_a_trace(monkeypatch):
    monkeypatch.setitem(sys.modules, "tables_of_others", SimpleNamespace(table=table))
    body = LINEAR.replace("class Model", "from tables_of_others import table\nclass Model").replace("self.fc(x)", "self.fc(x) + table(64)")
    assert "iota" in captured(body).graph.code
    assert type(table(64)) is torch.Tensor
    gc.freeze()  # as the command line does
    try:
        assert "iota" in captured(body.replace("F.gelu", "F.relu")).graph.code
    finally:
        gc.unfreeze()
    assert type(table(64)) is torch.Tensor


def test_a_python_float_stays_an_argument_where_nothing_is_decided_by_it():
    body = """
class Model(nn.Module):
    def forward(self, x, scale):
        return x * scale
n = 512
def get_inputs(): return [torch.rand(n), 2.5]
"""
    result = captured(body)
    assert [(g.name, g.dtype, g.shape, g.number) for g in result.graph_inputs if g.kind == "input"] == [
        ("x", "float32", (result.sizes[0].symbol,), False),
        ("scale", "float32", (), True),
    ]
    assert not result.plain_inputs
    decides = captured(body.replace("return x * scale", "return x * scale if scale > 1 else x[:2]"))
    assert decides.plain_inputs == {"scale": 2.5}
    widens = captured(body.replace("x * scale", "x.mean() * -scale").replace("rand(n)", "rand(n, dtype=torch.bfloat16)"))
    assert widens.plain_inputs == {"scale": 2.5}
    assert widens.graph.graph.output_node().args[0][0].meta["val"].dtype is torch.bfloat16


WINDOWS = """
class Model(nn.Module):
    def __init__(self, side, block=4):
        super().__init__()
        tiles = torch.rand(side // block, block, 3)
        self.register_buffer("weight", tiles.view(side, 3))
    def forward(self, x):
        b, n, c = x.shape
        tiles = x.view(b, n // 4, 4, c).transpose(1, 2).reshape(-1, 4, c)
        return torch.softmax(tiles, 1) + self.weight.sum()
batch, side, width = 2, 32, 8
def get_inputs(): return [torch.rand(batch, side, width)]
def get_init_inputs(): return [side]
"""


@pytest.mark.parametrize("view", ["x.view(b, n // 4, 4, c).transpose(1, 2)", "x.mT.reshape(b, c, n // 4, 4).mT.transpose(1, 3)"])
def test_views_have_the_sizes_that_they_were_asked_for(view: str) -> None:
    found = captured(WINDOWS.replace("x.view(b, n // 4, 4, c).transpose(1, 2)", view))
    assert found.way == "make_fx"
    assert all("// (" not in size for given in found.graph_inputs for size in given.shape)
    shape = next(n for n in found.graph.graph.nodes if n.target is torch.ops.aten.view.default).meta["val"].shape
    assert isinstance(shape[2] if view.startswith("x.view") else shape[3], int)


def test_a_root_that_is_rounded_down_fixes_what_it_is_of_alone() -> None:
    text = WINDOWS.replace("tiles = x.view(b, n // 4, 4, c).transpose(1, 2).reshape(-1, 4, c)", "tiles = x * int(n**0.5)")
    found = captured(text.replace("+ self.weight.sum()", ""))
    assert found.way == "make_fx"
    assert found.specialized == {"side": 32}


@pytest.mark.parametrize("opened", ['torch._C._functorch._vmap_increment_nesting(2, "error")', "torch._C._enter_dual_level()"])
def test_a_way_that_fails_inside_of_vmap_or_jvp_leaves_nothing_open_for_the_next(opened: str) -> None:
    """torch.export does so where a rule for a batch asks for sizes that are symbols, and where it has no memory for a tangent of zeros."""
    body = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, width)
    def forward(self, x):
        if isinstance(x.shape[0], torch.SymInt):
            OPENED
            raise RuntimeError("inside of vmap")
        return torch.func.jvp(self.fc, (x,), (x * 2,))[1]
rows, width = 8, 16
def get_inputs(): return [torch.rand(rows, width)]
def get_init_inputs(): return [width]
"""
    assert captured(body.replace("OPENED", opened)).fixed


def test_tensors_and_random_numbers_of_a_constructor_pin_no_size():
    body = """
class Model(nn.Module):
    def __init__(self, fields, hashes, width):
        super().__init__()
        draw = torch.Generator().manual_seed(1)
        self.fields, self.table = fields, nn.Embedding(hashes, width)
        self.register_buffer("limits", torch.tensor(fields))
        self.register_buffer("factors", torch.randint(1, hashes, (len(fields), width), generator=draw))
    def forward(self, x):
        return self.table(x % self.limits[0]) * self.factors[0] + self.fields[1]
rows, first, second, hashes, width = 12, 30, 20, 50, 8
def get_inputs(): return [torch.randint(0, 1000, (rows,))]
def get_init_inputs(): return [[first, second], hashes, width]
"""
    found = captured(body)
    assert found.way == "make_fx"
    assert not found.fixed


def test_gradients_of_each_sample_are_for_any_size():
    """torch's rules for a batch pin the sizes of a GELU, and take no symbols in a layer norm."""
    body = """
class Model(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, hidden), nn.Linear(hidden, width)
    def loss(self, params, x):
        up, down = params
        return (F.gelu(self.norm(x) @ up.T) @ down.T - x).pow(2).mean()
    def forward(self, x):
        return torch.func.vmap(torch.func.grad(self.loss), in_dims=(None, 0))((self.up.weight, self.down.weight), x)
samples, rows, width, hidden = 6, 10, 24, 40
def get_inputs(): return [torch.randn(samples, rows, width)]
def get_init_inputs(): return [width, hidden]
"""
    found = captured(body)
    assert found.way == "make_fx"
    assert not found.fixed


def test_sorted_positions_are_sorted_by_the_template():
    body = """
class Model(nn.Module):
    def forward(self, x):
        return x.gather(1, x.argsort(dim=1, stable=True)[:, 3:].sort(dim=1)[0])
rows, columns = 12, 30
def get_inputs(): return [torch.randn(rows, columns)]
"""
    assert not [target for target in targets(captured(body)) if target.startswith("aten.sort")]


def test_halves_that_must_be_alike_are_multiples():
    """``chunk`` makes ``(n + 1) // 2`` and the rest of n: that they are equal says that n is even."""
    body = """
class Model(nn.Module):
    def __init__(self, width, units):
        super().__init__()
        self.up, self.down = nn.Linear(width, units), nn.Linear(units // 2, width)
        self.conv = nn.Conv1d(units // 2, units // 2, 3, padding=1, groups=units // 2)
    def forward(self, x):
        left, right = self.up(x).chunk(2, dim=-1)
        return self.down(left * self.conv(right.transpose(1, 2)).transpose(1, 2))
batch, rows, width, units = 4, 20, 16, 48
def get_inputs(): return [torch.randn(batch, rows, width)]
def get_init_inputs(): return [width, units]
"""
    found = captured(body)
    assert found.way == "make_fx"
    shapes = {given.name: given.shape for given in found.graph_inputs}
    assert "//" not in shapes["down.weight"][1]
    assert shapes["up.weight"][0] == f"2*{shapes['down.weight'][1]}"


SAVED = """
class Model(nn.Module):
    def forward(self, x):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            return torch.autograd.grad(F.normalize(x).square().cos().sum(), x)[0]
pairs, views, width = 6, 2, 16
def get_inputs(): return [torch.randn(pairs * views, width)]
def get_init_inputs(): return []
"""


def test_what_autograd_saved_is_no_constant_of_an_exported_graph() -> None:
    with pytest.raises(Untraceable, match="needs the constant lifted"):  # decomposing such a graph can crash
        exported(problem(SAVED), Options())


def test_sizes_of_parameters_that_nothing_tells_fix_no_other_size() -> None:
    found = captured("""
class Model(nn.Module):
    def __init__(self, length, hidden, rate):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(length, hidden), nn.ReLU(), nn.Linear(hidden, max(hidden // rate, 1)))
    def forward(self, x):
        return self.layers(x)
batch, length, hidden, rate = 4, 64, 96, 24
def get_inputs(): return [torch.rand(batch, length)]
def get_init_inputs(): return [length, hidden, rate]
""")
    assert found.way == "make_fx"
    assert "length" not in found.fixed
    assert "hidden" not in found.fixed


UNFLATTENED = """
import torch
class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.query = torch.nn.Sequential(torch.nn.Linear(width, 3 * width), torch.nn.Unflatten(-1, (3, width)))
    def forward(self, x):
        return self.query(x)
batch, width = 5, 24
def get_inputs(): return [torch.rand(batch, width)]
def get_init_inputs(): return [width]
"""


def test_sizes_that_a_layer_unflattens_to_stay_symbols():
    assert symbolic(problem(UNFLATTENED), Options()).symbolic


def test_parameters_of_a_traced_forward_are_parameters():
    body = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
    def forward(self, x):
        x = x.detach().requires_grad_(True)
        with torch.enable_grad():
            chosen = [self.get_parameter(n) for n, p in self.named_parameters() if isinstance(p, nn.Parameter)]
            return torch.autograd.grad((x.tanh() * self.scale).sum(), [x, *chosen])
rows, width = 4, 16
def get_inputs(): return [torch.randn(rows, width)]
def get_init_inputs(): return [width]
"""
    assert captured(body).output.count("{") == 2
