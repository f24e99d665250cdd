"""Loops over chunks that carry a matrix: its states come first, by one kernel, then what each chunk gives, all at once."""

from collections.abc import Iterator

import pytest
import torch
from compiled import problem

from kernelllm.compiler import template_ops
from kernelllm.compiler.compiler_writer import compiled
from kernelllm.compiler.loops.chunk_states import with_chunk_states
from kernelllm.compiler.options import Options
from kernelllm.core.types import Candidate
from kernelllm.judge.judging import Judge

INPUTS = """
b, h, n, c, d, e = 2, 3, 4, 16, 24, 40
def get_inputs():
    q, k, w = (torch.randn(b, h, n, c, d) / 5 for _ in range(3))
    return [q, k, torch.randn(b, h, n, c, e), w, torch.randn(b, h, n, c, c) / 5, -torch.rand(b, h, n, c).cumsum(-1)]
def get_init_inputs(): return []
"""
FORMS = {
    "gated delta rule, filled": """
        state = torch.zeros(b, h, d, e, device=q.device, dtype=q.dtype)
        out = torch.zeros_like(v)
        for i in range(n):
            q_i, k_i, v_i = q[:, :, i], k[:, :, i], v[:, :, i]
            new = v_i - w[:, :, i] @ state
            scores = q_i @ k_i.transpose(-1, -2) * a[:, :, i]
            out[:, :, i] = (q_i * g[:, :, i, :, None].exp()) @ state + scores @ new
            state = state * g[:, :, i, -1, None, None].exp()
            state = state + (k_i * (g[:, :, i, -1, None] - g[:, :, i]).exp()[..., None]).transpose(-1, -2) @ new
        return out, state""",
    "filled, as long as another than what the steps read": """
        u = v * 2
        out = torch.empty_like(v)
        state = v.new_zeros(b, h, d, e)
        for i in range(n):
            new = u[:, :, i] - w[:, :, i] @ state
            out[:, :, i] = q[:, :, i] @ state + new
            state = state + k[:, :, i].mT @ new
        return out, state""",
    "one decay, listed": """
        decay = torch.linspace(0.8, 0.99, h, device=q.device)[:, None, None]
        state, outs = q.new_zeros(b, h, d, e), []
        for i in range(n):
            outs.append(torch.matmul(q[:, :, i], state) * 0.5)
            state = decay * state + k[:, :, i].mT @ v[:, :, i]
        return torch.stack(outs, dim=2)""",
    "transposed, by einsum": """
        state, outs = torch.zeros(b, h, e, d, device=q.device), []
        for i in range(n):
            outs.append(torch.einsum("bhck,bhvk->bhcv", q[:, :, i], state))
            state = state * torch.exp(g[:, :, i, 0])[..., None, None]
            state = state + torch.einsum("bhcv,bhck->bhvk", v[:, :, i], k[:, :, i])
        return torch.stack(outs, 2), state""",
    "transposed, by products": """
        state, outs = torch.zeros(b, h, e, d, device=q.device), []
        for i in range(n):
            new = a[:, :, i] @ (v[:, :, i] - w[:, :, i] @ state.transpose(-1, -2))
            outs.append(q[:, :, i] @ state.mT + new)
            state += new.mT @ k[:, :, i]
        return torch.stack(outs, 2)""",
    "a gate for each row, a part of the chunks": """
        state, outs = torch.ones(b, h, d, e, device=q.device), []
        for i in range(1, n):
            new = torch.sub(v[:, :, i], torch.ops.aten.matmul.default(w[:, :, i], state))
            outs.append(new.float().cumsum(-1))
            state = torch.mul(state, q[:, :, i, 0, :, None].sigmoid()) + torch.matmul(k[:, :, i].mT, new)
        return torch.stack(outs)""",
}
OTHERS = {
    "of another form": "state = torch.tanh(state) + k[:, :, i].mT @ v[:, :, i]",
    "multiplied from the other side": "state = state @ (k[:, :, i].mT @ w[:, :, i]).new_ones(e, e) + k[:, :, i].mT @ v[:, :, i]",
    "squared": "state = state * state + k[:, :, i].mT @ v[:, :, i]",
    "used twice": "state = state + state * 0.5 + k[:, :, i].mT @ v[:, :, i]",
}


def source_of(body: str) -> str:
    start = "b, h, n, c, d = q.shape\n        e = v.shape[-1]"
    return f"class Model(nn.Module):\n    def forward(self, q, k, v, w, a, g):\n        {start}{body}\n{INPUTS}"


@pytest.fixture(scope="module")
def states() -> Iterator[None]:
    """The operator by torch, which the compiler never needs."""

    def run(first: torch.Tensor, gate: torch.Tensor | None, k: torch.Tensor, v: torch.Tensor, w: torch.Tensor | None) -> torch.Tensor:
        found = [first]
        for t in range(v.shape[0]):
            new = v[t] if w is None else v[t] + w[t] @ found[-1]
            found.append(found[-1] * (1 if gate is None else gate[t][:, :, None]) + k[t].mT @ new)
        return torch.stack(found)

    template_ops.register()
    library = torch.library.Library("kernelllm", "IMPL")
    library.impl("matrix_states", run, "CPU")
    yield
    library._destroy()


def run(source: str) -> tuple[torch.Tensor, ...]:
    scope: dict = {}
    exec(source, scope)
    torch.manual_seed(0)
    made = scope["Model"]()(*scope["get_inputs"]())
    return made if isinstance(made, tuple) else (made,)


@pytest.mark.parametrize("form", FORMS)
def test_states_come_first(form: str, states: None) -> None:
    old = problem(source_of(FORMS[form]))
    new = with_chunk_states(old)
    assert new is not None
    assert "for i in" not in new.source
    torch.testing.assert_close(run(new.source), run(old.source), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", OTHERS)
def test_a_matrix_that_is_not_affine_stays_in_its_loop(form: str) -> None:
    body = f"""
        state, outs = torch.zeros(b, h, d, e), []
        for i in range(n):
            outs.append(q[:, :, i] @ state)
            {OTHERS[form]}
        return torch.stack(outs, 2)"""
    assert with_chunk_states(problem(source_of(body))) is None


def test_a_loop_that_fills_a_part_of_a_tensor_is_told_from_one_that_fills_it(states: None) -> None:
    body = """
        u = v * 2
        out = torch.zeros_like(v)
        state = v.new_zeros(b, h, d, e)
        for i in range(n - 1):
            out[:, :, i] = q[:, :, i] @ state
            state = state + k[:, :, i].mT @ u[:, :, i]
        return out, state"""
    new = with_chunk_states(problem(source_of(body)))
    assert new is not None
    with pytest.raises(RuntimeError, match="is invalid for input of size"):
        run(new.source)


def test_a_written_file_has_one_kernel_for_the_states_and_takes_other_numbers_of_chunks(hybrid: Judge) -> None:
    case = problem(source_of(FORMS["gated delta rule, filled"]))
    source = compiled(case, Options(extern="allow"))
    assert source.count("matrix_states_kernel[") == 1
    assert "for i in" not in source.split("def forward")[1]
    verdict = hybrid.judge(case, Candidate(source=source))
    assert verdict.correct, verdict.message


def test_chunks_of_single_rows_stay_in_their_loop() -> None:
    """Their states would be as many as there are rows."""
    case = problem(source_of(FORMS["one decay, listed"]).replace("4, 16, 24, 40", "4, 1, 24, 40"))
    assert "matrix_states" not in compiled(case, Options(extern="allow"))
