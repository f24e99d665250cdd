"""What template operators take over from around them."""

from collections import Counter

import torch
import torch.nn.functional as F
from compiled import captured, problem

from kernelllm.compiler.capture.rewrites import faster_templates
from kernelllm.compiler.compiler_writer import Compiler, compiled
from kernelllm.compiler.options import Options
from kernelllm.core.types import Candidate
from kernelllm.judge import Judge

MODULE = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.pair = nn.Linear(width, 4 * width, dtype=torch.bfloat16)
        self.gate, self.up = (nn.Linear(width, 2 * width, bias=False, dtype=torch.bfloat16) for _ in range(2))
        self.down = nn.Linear(2 * width, width, dtype=torch.bfloat16)

    def forward(self, x, k, row, packed):
        value, gate = self.pair(x).chunk(2, dim=-1)
        y = self.down(value * F.gelu(gate)) + self.down(F.silu(self.gate(x)) * self.up(x))
        q = F.gelu(F.dropout(self.down(self.up(-x)), 0.1, training=False), approximate="tanh")
        heads = k[:, :, None].expand(-1, -1, 2, -1, -1).reshape(k.shape[0], 2 * k.shape[1], k.shape[2], k.shape[3])
        out = F.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
        wide = F.log_softmax(row, dim=-1)
        return y, q, out, wide, row @ ((packed.bfloat16() - 8) * 0.1)
batch, tokens, width, heads, length, columns = 2, 24, 64, 2, 2048, 32
def get_inputs():
    k = torch.randn(batch, heads, tokens, 16, dtype=torch.bfloat16)
    return [torch.randn(batch, tokens, width, dtype=torch.bfloat16), k, torch.randn(1, length, dtype=torch.bfloat16),
            torch.randint(0, 16, (length, columns), dtype=torch.uint8)]
def get_init_inputs(): return [width]
"""


def test_activations_gates_repeated_heads_wide_rows_and_integers() -> None:
    calls = [n for n in captured(MODULE).graph.graph.nodes if n.op == "call_function"]
    found = Counter(str(n.target).removeprefix("kernelllm.").removesuffix(".default") for n in calls)
    assert found["gated_matmul"] == 2
    assert found["half_attention"] == 1
    assert found["row_logsumexp"] == 1
    assert not any("amax" in name or "erf" in name or "tanh" in name for name in found)
    (attention,) = (n for n in calls if "half_attention" in str(n.target))
    query, key, value, *_ = attention.args
    assert len({str(n.meta["val"].shape[1]) for n in (key, value)} | {str(query.meta["val"].shape[1])}) == 2
    assert Counter(n.kwargs.get("activation") for n in calls if "half_matmul" in str(n.target))["gelu_tanh"] == 1
    assert sum("half_matmul" in str(n.target) for n in calls) == 4  # two ends of gates, and the pair before q


TEMPERATURE = """
class Model(nn.Module):
    def __init__(self, width, words):
        super().__init__()
        self.head = nn.Linear(width, words, bias=False)
    def forward(self, x, z, y):
        loss = F.kl_div(F.log_softmax(z / 2, -1), F.softmax(z * 0.5, -1), reduction="batchmean") * 4
        return torch.softmax(self.head(x) / 0.7, -1) @ self.head.weight, F.cross_entropy(z * 3, y) + loss
rows, width, words = 8, 32, 4000
def get_inputs(): return [torch.randn(rows, width), torch.randn(rows, words), torch.randint(0, words, (rows,))]
def get_init_inputs(): return [width, words]
"""


def test_a_number_that_wide_rows_are_multiplied_with_is_taken_along(quick: Judge) -> None:
    calls = [n for n in captured(TEMPERATURE).graph.graph.nodes if str(n.target).startswith("kernelllm.row_")]
    assert sorted(n.args[1] for n in calls) == [0.5, 1 / 0.7, 3.0]
    verdict = quick.judge(problem(TEMPERATURE), Candidate(source=compiled(problem(TEMPERATURE), Options())))
    assert verdict.correct, verdict.message


LOW_RANK = """
class Model(nn.Module):
    def __init__(self, width, out, rank):
        super().__init__()
        self.base, self.scale = nn.Linear(width, out), 2.5
        self.down, self.up = nn.Linear(width, rank, bias=False), nn.Linear(rank, out, bias=False)
    def forward(self, x):
        return self.base(x) + self.up(self.down(x)) * self.scale
batch, length, width, out, rank = 4, 30, 48, 64, 8
def get_inputs(): return [torch.randn(batch, length, width)]
def get_init_inputs(): return [width, out, rank]
"""


def test_an_update_of_low_rank_is_added_by_the_product_that_makes_it(quick: Judge) -> None:
    """Its factor is multiplied with the few numbers in between."""
    products = [n for n in captured(LOW_RANK).graph.graph.nodes if str(n.target) == "kernelllm.matmul.default"]
    assert [n.kwargs.get("join") for n in products].count("add") == 1
    source = compiled(problem(LOW_RANK), Options())
    verdict = quick.judge(problem(LOW_RANK), Candidate(source=source))
    assert verdict.correct, verdict.message


WRITTEN = """
class Model(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.qkv = heads, nn.Linear(width, 3 * width)

    def forward(self, x, mask):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in self.qkv(x).chunk(3, dim=-1))
        weights = (q @ k.transpose(-2, -1) / math.sqrt(c // self.heads)).masked_fill(mask == 0, float("-inf")).softmax(-1)
        y = (weights @ v).transpose(1, 2).reshape(b, t, c)
        q, k, v = (z.reshape(b * self.heads, t, -1) for z in (q, k, v))
        z = torch.bmm(torch.softmax(torch.bmm(q, k.transpose(1, 2)) * 0.5 + mask, dim=-1), v)
        shown = torch.softmax(q @ k.transpose(-2, -1), dim=-1)
        return y, z, shown, shown @ v
batch, tokens, width, heads = 2, 24, 64, 4
def get_inputs(): return [torch.randn(batch, tokens, width), torch.ones(tokens, tokens)]
def get_init_inputs(): return [width, heads]
"""


def test_attention_that_is_written_out_is_one_operator_where_nothing_else_reads_its_weights() -> None:
    calls = [n for n in captured(WRITTEN).graph.graph.nodes if n.op == "call_function"]
    found = Counter(str(n.target) for n in calls)
    assert found["kernelllm.attention.default"] == 2
    assert found["kernelllm.batched_matmul.default"] == 2  # of the weights that are returned
    masks = [n.args[3].meta["val"].dtype for n in calls if str(n.target) == "kernelllm.attention.default"]
    assert {str(m) for m in masks} == {"torch.bool", "torch.float32"}


MERGED_HEADS = """
class Model(nn.Module):
    def forward(self, q, k, v, mask):
        b, h, t, d = q.shape
        q, k, v = (x.reshape(b * h, -1, d) for x in (q, k, v))
        scores = (torch.bmm(q, k.transpose(1, 2)).view(b, h, t, -1) + mask).view(b * h, t, -1)
        return torch.bmm(scores.softmax(-1), v).view(b, h, t, d).transpose(1, 2).reshape(b, t, h * d)
def get_inputs(): return [*torch.randn(3, 3, 4, 10, 16).unbind(), torch.randn(3, 1, 10, 10)]
"""


def test_a_mask_that_sees_heads_where_products_and_softmax_do_not(quick: Judge) -> None:
    (candidate,) = Compiler().write(problem(MERGED_HEADS), 1)
    verdict = quick.judge(problem(MERGED_HEADS), candidate)
    assert verdict.correct, verdict.message
    assert candidate.source.count("attention_kernel[") == 1
    assert "batched" not in candidate.source


PACKED = """
class Model(nn.Module):
    def forward(self, x, packed, scale, zero):
        weight = torch.stack((packed & 15, packed >> 4), dim=-1).flatten(2).to(x.dtype)
        return F.linear(x, ((weight - zero) * scale).flatten(1))
groups, group, out = 3, 8, 5
def get_inputs():
    return [torch.randn(1, groups * group), torch.randint(0, 256, (out, groups, group // 2), dtype=torch.uint8),
            torch.rand(out, groups, 1), torch.rand(out, groups, 1)]
"""


def test_a_row_times_weights_packed_two_in_a_byte_takes_each_half_where_it_lies() -> None:
    graph = captured(PACKED).graph
    assert not any("cat" in str(n.target) for n in graph.graph.nodes)
    x, packed = torch.randn(1, 24), torch.randint(0, 256, (5, 3, 4), dtype=torch.uint8)
    scale, zero = torch.rand(5, 3, 1), torch.rand(5, 3, 1)
    given = {"x": x, "packed": packed, "scale": scale, "zero": zero, "size_groups": 3, "size_group": 8, "size_out": 5}
    (found,) = graph(*(given[n.target] for n in graph.graph.find_nodes(op="placeholder")))
    weight = torch.stack((packed & 15, packed >> 4), dim=-1).flatten(2)
    torch.testing.assert_close(found, x @ ((weight - zero) * scale).flatten(1).T)


def test_a_reduction_that_reads_along_memory_takes_whole_rows() -> None:
    """Inductor takes it for one across memory: two of its operands are read with a stride."""
    source = compiled(problem(PACKED.replace("groups, group, out = 3, 8, 5", "groups, group, out = 32, 128, 4096")), Options())
    assert "kernel[(out,)]" in source


BYTES = """
class Model(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.register_buffer("weight", torch.randint(-127, 128, (out, width), dtype=torch.int8))
        self.register_buffer("scale", torch.rand(out, 1) * 0.01)
        self.bias = nn.Parameter(torch.randn(out))

    def forward(self, x):
        x = x.bfloat16()
        after = F.linear(x, self.weight.to(x.dtype)) * self.scale[:, 0].to(x.dtype) + self.bias.to(x.dtype)
        return after, F.linear(x, (self.weight.float() * self.scale).to(x.dtype), self.bias.to(x.dtype)), x
batch, tokens, width, out = 2, 5, 1024, 1024
def get_inputs(): return [torch.randn(batch, tokens, width)]
def get_init_inputs(): return [width, out]
"""


def test_few_rows_times_bytes_are_one_product_that_reads_the_bytes() -> None:
    for options in (Options(), Options(extern="allow", symbolic=False, mixed=True)):
        calls = [n for n in captured(BYTES, options).graph.graph.nodes if str(n.target).startswith(("kernelllm.", "aten.mm", "aten.addmm"))]
        assert [str(n.target) for n in calls] == ["kernelllm.quantized_matmul.default"] * 2
        assert all(n.args[1].meta["val"].dtype == torch.int8 and n.args[3] is not None for n in calls)
    many = [str(n.target) for n in captured(BYTES.replace("2, 5, 1024", "2, 500, 1024")).graph.graph.nodes]
    assert "kernelllm.quantized_matmul.default" not in many


HALF_BYTES = """
class Model(nn.Module):
    def __init__(self, width, out, group):
        super().__init__()
        self.register_buffer("packed", torch.randint(0, 256, (out, width // 2), dtype=torch.uint8))
        self.register_buffer("scale", torch.rand(out, width // group, dtype=torch.bfloat16))
        self.register_buffer("zero", torch.randint(0, 16, (out, width // group)).bfloat16())
        self.group = group

    def forward(self, x):
        weight = torch.stack((self.packed & 15, self.packed >> 4), dim=-1).view(self.packed.shape[0], -1, self.group).to(x.dtype)
        given = (weight - self.zero[:, :, None]) * self.scale[:, :, None], (weight - 8) * self.scale[:, :, None], (8 - weight)
        return [x @ each.flatten(1).t() for each in given]
tokens, width, out, group = 8, 1024, 1024, 64
def get_inputs(): return [torch.randn(tokens, width, dtype=torch.bfloat16)]
def get_init_inputs(): return [width, out, group]
"""


def test_weights_of_half_bytes_with_scales_of_groups_are_read_as_they_lie() -> None:
    graph = captured(HALF_BYTES, Options(extern="allow", symbolic=False, mixed=True)).graph.graph
    calls = [n for n in graph.nodes if str(n.target) == "kernelllm.quantized_matmul.default"]
    assert [(n.args[4] is not None, *n.args[5:]) for n in calls] == [(True, 0.0, True), (False, 8.0, True)]  # nothing like 8 - weight


SHARED = """
class Model(nn.Module):
    def forward(self, q, k, v, keep):
        k, v = (x.repeat_interleave(4, 1) for x in (k, v))
        return F.scaled_dot_product_attention(q * 2, k, v, attn_mask=keep), F.scaled_dot_product_attention(q * 2, k, v, is_causal=True)
batch, heads, tokens, size = 2, 2, 128, 64
def get_inputs():
    q, k, v = (torch.randn(batch, h, tokens, size, dtype=torch.float16) for h in (4 * heads, heads, heads))
    return [q, k, v, torch.rand(tokens, tokens) > 0.5]
def get_init_inputs(): return []
"""


def test_on_a_path_for_known_sizes_heads_are_shared() -> None:
    path = compiled(problem(SHARED), Options(fixed=True, mixed=True)).split("def forward_at_known_sizes")[1]
    assert "half_attention(" in path
    assert "enable_gqa=True" in path
    assert "4, 128, 64)" not in path  # no copy of repeated heads


JOINED = """
class Model(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.norm, self.last = nn.LayerNorm(width), nn.LayerNorm(width)
        self.first, self.gate, self.up = nn.Linear(width, width), nn.Linear(width, hidden), nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x):
        x = x + self.first(x)
        y = self.norm(x)
        x = x + self.down(F.silu(self.gate(y)) * self.up(y))
        return x, self.last(self.first(x) + x)
batch, tokens, width, hidden = 2, 24, 64, 128
def get_inputs(): return [torch.randn(batch, tokens, width)]
def get_init_inputs(): return [width, hidden]
"""


def test_residuals_and_gates_are_epilogues_unless_an_elementwise_kernel_reads_them_anyway() -> None:
    products = [n for n in captured(JOINED).graph.graph.nodes if str(n.target) == "kernelllm.matmul.default"]
    joins = Counter((n.kwargs.get("join", ""), n.kwargs.get("activation", "")) for n in products)
    assert joins == {("add", ""): 2, ("mul", "silu"): 1, ("", ""): 2}  # up, and what the last norm's kernel adds itself


THREE = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.query, self.key, self.value, self.more = (nn.Linear(width, n) for n in (width, width // 2, width // 2, width))

    def forward(self, x):
        return self.query(x), self.key(x), self.value(x), self.more(x.mean(1)), self.key(x.exp()), self.value(x.exp())
batch, tokens, width = 2, 24, 64
def get_inputs(): return [torch.randn(batch, tokens, width)]
def get_init_inputs(): return [width]
"""


def test_three_products_of_the_same_rows_are_one_launch() -> None:
    calls = [str(n.target) for n in captured(THREE).graph.graph.nodes]
    assert calls.count("kernelllm.matmul_three.default") == 1
    assert calls.count("kernelllm.matmul.default") == 3
    large = [str(n.target) for n in captured(THREE.replace("24, 64", "2048, 1024")).graph.graph.nodes]
    assert large.count("kernelllm.matmul.default") == 6  # large products have better kernels of their own


DECODING = """
class Model(nn.Module):
    def __init__(self, width, heads, shared, hidden):
        super().__init__()
        self.heads, self.shared = heads, shared
        part = width * shared // heads
        self.query, self.key, self.value = (nn.Linear(width, n, bias=False, dtype=torch.bfloat16) for n in (width, part, part))
        self.out, self.norm = nn.Linear(width, width, bias=False, dtype=torch.bfloat16), nn.LayerNorm(width, dtype=torch.bfloat16)
        self.gate, self.up = (nn.Linear(width, hidden, bias=False, dtype=torch.bfloat16) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False, dtype=torch.bfloat16)

    def forward(self, x, keys, values, mask):
        b = x.shape[0]
        q, k, v = (f(x).view(b, 1, -1, 64).transpose(1, 2) for f in (self.query, self.key, self.value))
        keys, values = torch.cat((keys, k), 2), torch.cat((values, v), 2)
        wide = [t[:, :, None].expand(-1, -1, self.heads // self.shared, -1, -1).reshape(b, self.heads, -1, 64) for t in (keys, values)]
        x = x + self.out(F.scaled_dot_product_attention(q, *wide, mask).transpose(1, 2).reshape(b, 1, -1))
        y = self.norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y)), keys, values
batch, width, heads, shared, hidden = 1, 1024, 16, 8, 3072
def get_inputs():
    past = [torch.randn(batch, shared, 1023, 64, dtype=torch.bfloat16) for _ in range(2)]
    return [torch.randn(batch, 1, width, dtype=torch.bfloat16), *past, torch.rand(1, 1, 1, 1024) > 0.1]
def get_init_inputs(): return [width, heads, shared, hidden]
"""


def test_a_step_of_decoding_at_known_sizes_has_few_launches_and_copies_no_heads() -> None:
    options = Options(extern="allow", symbolic=False, mixed=True)
    graph = captured(DECODING, options).graph
    faster_templates.attend(graph, options, masked=True)
    found = Counter(str(n.target).removeprefix("kernelllm.").partition(".")[0] for n in graph.graph.nodes if "kernelllm." in str(n.target))
    assert found == {"matmul_three": 1, "half_matmul": 2, "gated_matmul": 1, "half_attention": 1}
    products = [n.kwargs.get("join") for n in graph.graph.nodes if "half_matmul" in str(n.target)]
    assert products == ["add", "add"]
    attention = next(n for n in graph.graph.nodes if "half_attention" in str(n.target))
    assert [tuple(n.meta["val"].shape) for n in attention.args[:3]] == [(1, 16, 1, 64), (1, 8, 1024, 64), (1, 8, 1024, 64)]


POOLS = """
class Model(nn.Module):
    def forward(self, x):
        return F.max_pool2d(x, (6, 4), 2, 1, ceil_mode=True), F.max_pool2d(x, 5, 1, 2, 2), F.max_pool3d(x, 3, 1, 1), F.max_pool2d(x, 5, 4)
def get_inputs(): return [torch.randn(2, 3, 9, 11)]
def get_init_inputs(): return []
"""


def test_pools_whose_windows_overlap_are_taken_one_dimension_after_the_other() -> None:
    graph = captured(POOLS, Options(extern="allow", symbolic=False, mixed=True)).graph
    pools = [n for n in graph.graph.nodes if "_low_memory_max_pool" in str(n.target)]
    assert sorted(sum(size > 1 for size in n.args[1]) for n in pools) == [1, 1, 1, 1, 1, 2, 2]
    x = torch.randn(2, 3, 9, 11)
    wanted = (F.max_pool2d(x, (6, 4), 2, 1, ceil_mode=True), F.max_pool2d(x, 5, 1, 2, 2), F.max_pool3d(x, 3, 1, 1), F.max_pool2d(x, 5, 4))
    assert all(map(torch.equal, graph(x), wanted))


APART = """
class Model(nn.Module):
    def forward(self, x):
        return F.max_pool3d(x, 3, 2, 1, 3) + 1
def get_inputs(): return [torch.randn(2, 3, 9, 11, 12)]
def get_init_inputs(): return []
"""


def test_a_window_of_three_dimensions_that_inductor_reduces_is_a_template() -> None:
    graph = captured(APART, Options(extern="allow", symbolic=False, mixed=True)).graph
    assert [str(n.target) for n in graph.graph.nodes if "pool" in str(n.target)] == ["kernelllm.max_pool.default"]


SINKS = """
class Model(nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.sinks = nn.Parameter(torch.randn(heads, dtype=torch.bfloat16))
    def forward(self, q, k, v):
        b, h, t, d = k.shape
        k, v = (x[:, :, None].expand(b, h, 2, t, d).reshape(b, 2 * h, t, d) for x in (k, v))
        i = torch.arange(t, device=q.device)
        hidden = (i[:, None] < i) | (i[:, None] >= i + 5)
        scores = q @ k.transpose(2, 3) * 0.25 + torch.zeros(t, t, dtype=q.dtype, device=q.device).masked_fill(hidden, -3e38)
        scores = torch.cat([scores, self.sinks.view(1, -1, 1, 1).expand(b, -1, t, -1)], -1)
        scores = scores - scores.max(-1, keepdim=True).values
        return torch.softmax(scores, -1, dtype=torch.float32).to(q.dtype)[..., :-1] @ v
batch, heads, tokens, width = 2, 4, 40, 16
def get_inputs(): return [torch.randn(batch, n, tokens, width, dtype=torch.bfloat16) for n in (heads, heads // 2, heads // 2)]
def get_init_inputs(): return [heads]
"""


def test_scores_of_heads_behind_those_of_keys_go_into_attention(quick: Judge) -> None:
    (attention,) = [n for n in captured(SINKS).graph.graph.nodes if str(n.target) == "kernelllm.sink_attention.default"]
    assert attention.args[3].meta["val"].dtype == torch.bool  # the kernel passes over keys that no query sees
    assert attention.args[1].target is torch.ops.aten.squeeze.dim  # a head for two
    verdict = quick.judge(problem(SINKS), Candidate(source=compiled(problem(SINKS), Options())))
    assert verdict.correct, verdict.message


DIFFERENCE = """
class Model(nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.factor, self.heads = nn.Parameter(torch.tensor(0.7)), heads
    def forward(self, q, k, v):
        b, h, t, _ = q.shape
        scores = q * 0.5 @ (k * 0.5).transpose(2, 3) + torch.triu(torch.full((t, t), float("-inf"), device=q.device), 1)
        weights = torch.softmax(scores, -1).view(b, self.heads, 2, t, t)
        return (weights[:, :, 0] - self.factor * weights[:, :, 1]) @ v
batch, heads, tokens, width = 2, 3, 20, 16
def get_inputs(): return [torch.randn(batch, n * heads, tokens, width * 2 // n) for n in (2, 2, 1)]
def get_init_inputs(): return [heads]
"""


def test_the_difference_of_two_maps_of_weights_is_that_of_two_attentions(quick: Judge) -> None:
    (attention,) = [n for n in captured(DIFFERENCE).graph.graph.nodes if str(n.target).startswith("kernelllm.scored_attention")]
    assert (attention.args[0].name, attention.args[5]) == ("q", 0.25)  # numbers that operands are multiplied with are the scale
    source = compiled(problem(DIFFERENCE), Options())
    assert source.count("attention_kernel[") == 1
    assert "batched" not in source
    verdict = quick.judge(problem(DIFFERENCE), Candidate(source=source))
    assert verdict.correct, verdict.message


def test_the_difference_of_weights_may_be_rounded_to_half_precision(quick: Judge) -> None:
    rounded = DIFFERENCE.replace("softmax(scores, -1)", "softmax(scores, -1, dtype=torch.float32)")
    rounded = rounded.replace("1]) @ v", "1]).to(v.dtype) @ v")
    rounded = rounded.replace("// n) for", "// n, dtype=torch.bfloat16) for")
    assert [n for n in captured(rounded).graph.graph.nodes if str(n.target).startswith("kernelllm.scored_attention")]
    verdict = quick.judge(problem(rounded), Candidate(source=compiled(problem(rounded), Options())))
    assert verdict.correct, verdict.message
