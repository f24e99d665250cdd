"""What a loop becomes while a module is traced: operators for its steps, and gradients that go back through them.

What the gradient of the state needs goes from the last step to the first, in a kernel as well. All other gradients follow for all steps at
once, by what ``torch.vmap`` makes of a step.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.nn.utils.stateless import _reparametrize_module

from kernelllm.compiler import scored_operators
from kernelllm.compiler.capture.fx_trace import functional
from kernelllm.compiler.capture.intercept import decompositions
from kernelllm.compiler.capture.patching import patch
from kernelllm.compiler.recurrences import small_sums
from kernelllm.compiler.recurrences.step_graphs import (
    PRODUCTS,
    SAME,
    SLICED,
    Like,
    NoLoopOperator,
    StepPart,
    ahead_parts,
    ancestors,
    fixed_parts,
    hint_of,
    is_tensor,
    kinds_of,
    like,
    mode_of,
    need,
    part,
    traced,
)
from kernelllm.compiler.recurrences.step_lists import as_slice, cated, counts, filled, grown, slice_at, slices, stacked
from kernelllm.compiler.recurrences.time_loop_text import TimeLoop, time_loop

log = logging.getLogger(__name__)
Tensors = tuple[torch.Tensor, ...]
_INDUCTORS = ("addcmul", "addcdiv", "lerp", "hypot", "softplus", "silu", "elu", "hardtanh", "leaky_relu", "logaddexp", "_softmax",
              "_log_softmax", "rsub", "frac", "trunc", "mish", "hardsigmoid", "hardswish", "threshold_backward", "logit",
              "xlogy")  # fmt: skip
"""Operators that Inductor has as they are, or that are taken apart for it in some releases alone."""
_MOST_IN_TURN = 64
"""Steps of a loop that is unrolled beside others that are operators."""
_MOST_MULTIPLICATIONS = 2**29
"""Of a step's products by matrices of the module, in float32; half as many in half precision. A program reads a matrix for its own row, as
fast as a multiprocessor loads: some 70 us for so many. A library and its launches take about half of that."""
_DECOMPOSED = [torch.ops.aten.native_layer_norm, torch.ops.aten.native_group_norm, torch.ops.aten.gelu]
"""Operators for which torch.vmap has rules that fix sizes."""


def run(
    model: torch.nn.Module | None, step: Callable[..., Any], steps: Any, carried: Sequence[Any], sliced: Sequence[torch.Tensor],
    fixed: Sequence[Any], results: int, fewest: int = 0, among: bool = False,
) -> Tensors:  # fmt: skip
    """The loop's results: what it carries, as the last step leaves it, and what each step makes, stacked along the first dimension.

    ``step`` takes what is carried, a slice of each of ``sliced``, and ``fixed``; it gives what is carried, and ``results`` more.
    ``fewest``: steps from which on it is an operator. ``among``: one of several loops, which may be unrolled where it is none.
    """
    count = hint_of(steps)
    try:
        need(count >= fewest, "it has few steps")
        # a loop without gradients has another form, however many steps it has
        light = fewest > 0 or count <= _MOST_IN_TURN
        return _operator(model, step, steps, carried, sliced, fixed, results, light=light, gradients=fewest == 0)
    except NoLoopOperator as error:
        if not among or count > _MOST_IN_TURN:
            raise
        log.info("one of several loops is unrolled: %s", error)
        return _in_turn(step, int(steps), carried, sliced, fixed, results)


def _operator(
    model: torch.nn.Module | None, step: Callable[..., Any], steps: Any, carried: Sequence[Any], sliced: Sequence[torch.Tensor],
    fixed: Sequence[Any], results: int, *, light: bool, gradients: bool,
) -> Tensors:  # fmt: skip
    need(all(isinstance(v, torch.Tensor) for v in (*carried, *sliced)), "it carries what is no tensor")
    fixed = [torch.full((), v) if isinstance(v, torch.SymFloat) else v for v in fixed]  # type: ignore[call-overload]
    state = _state_of(model)
    tensors = [v for v in fixed if isinstance(v, torch.Tensor)]
    given: list[torch.Tensor] = [*carried, *sliced, *tensors, *state.values()]

    def flat(*values: torch.Tensor) -> tuple[Any, ...]:
        rest = iter(values[len(carried) + len(sliced) :])
        others = [next(rest) if isinstance(v, torch.Tensor) else v for v in fixed]
        named = dict(zip(state, rest, strict=True))
        with _reparametrize_module(model, named) if model is not None and named else nullcontext():
            return tuple(step(*values[: len(carried) + len(sliced)], *others))

    mode = mode_of(given)
    if mode is None:
        return _in_turn(step, steps, carried, sliced, fixed, results)
    examples = [like(t, sliced=len(carried) <= i < len(carried) + len(sliced)) for i, t in enumerate(given)]
    with ExitStack() as stack:
        if gradients:  # a function with a backward of its own: its graph would have another one
            patch(stack, torch.autograd.Function, "apply", _refused)
        graph = traced(functional(flat), examples, mode, torch._decomp.get_decompositions(_DECOMPOSED))
    loop = _Loop(graph, given, len(carried), len(sliced), steps, mode)
    need(not light or loop.multiplications() <= _MOST_MULTIPLICATIONS, "a library is faster at its products")
    try:
        return loop.results(own=True)
    except NoLoopOperator:
        if not loop.own:
            raise
    return _Loop(graph, given, len(carried), len(sliced), steps, mode).results(own=False)


def _in_turn(
    step: Callable[..., Any], steps: int, carried: Sequence[Any], sliced: Sequence[torch.Tensor], fixed: Sequence[Any], results: int
) -> Tensors:  # fmt: skip
    """The loop as a loop, where nothing is traced."""
    states: tuple[Any, ...] = tuple(carried)
    stacks: list[list[torch.Tensor]] = [[] for _ in range(results)]
    for i in range(steps):
        made = step(*states, *(s[i] for s in sliced), *fixed)
        states = tuple(made[: len(states)])
        for stack, value in zip(stacks, made[len(states) :], strict=True):
            stack.append(value)
    return (*states, *(torch.stack(stack) for stack in stacks))


def _state_of(model: torch.nn.Module | None) -> dict[str, torch.Tensor]:
    return {} if model is None else {**dict(model.named_parameters()), **dict(model.named_buffers())}


def _refused(*_: Any, **__: Any) -> Any:
    need(False, "its step has a gradient of its own")


class _Loop:
    def __init__(self, graph: GraphModule, given: list[torch.Tensor], carried: int, sliced: int, steps: Any, mode: Any) -> None:
        self.graph, self.carried, self.steps, self.mode = graph, carried, steps, mode
        self.places = list(graph.graph.find_nodes(op="placeholder"))
        self.values: dict[Node, torch.Tensor] = dict(zip(self.places, given, strict=True))
        self.stacked = set(self.places[carried : carried + sliced])
        """Nodes whose value has all steps along its first dimension."""
        self.own: set[Node] = set()
        self.kinds = kinds_of(graph, carried, sliced)
        self.made: list[Any] = list(graph.graph.output_node().args[0])
        need(all(isinstance(n, Node) and is_tensor(n) for n in self.made), "a result of its step is no tensor")

    def multiplications(self) -> int:
        """Of products, in a step, of what is carried by matrices that all rows share; those in half precision count twice."""
        found = 0
        for node in ancestors(self.made[: self.carried]):
            product = node.target in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default) and self.kinds[node] > SLICED
            operands: Any = node.args[-2:] if product else ()
            if any(self.kinds[a] == SAME for a in operands):
                sizes = [*node.meta["val"].shape, operands[0].meta["val"].shape[1]]
                found += math.prod(map(hint_of, sizes)) * (1 if node.meta["val"].dtype == torch.float32 else 2)
        return found

    def results(self, *, own: bool) -> Tensors:
        """``own``: products of what each step has of its own stay in the loop, so that nobody keeps the states that they read."""
        fixed = fixed_parts(self.kinds)
        if fixed:
            self._note(fixed, part(self.graph, fixed, ()), stacked=False)
        ahead = ahead_parts(self.kinds)
        if ahead:
            self._note(ahead, part(self.graph, ahead, fixed), stacked=True)
        states, outs = self.made[: self.carried], self.made[self.carried :]
        known = [*fixed, *ahead]
        inside = ancestors(states)
        apart = [n for n, kind in self.kinds.items() if n.target in PRODUCTS and n not in inside and kind > SLICED]
        self.own = {n for n in apart if all(self.kinds[a] > SAME for a in n.all_input_nodes if is_tensor(a))} if own else set()
        behind = [n for n in outs if any(a in apart and a not in self.own for a in ancestors([n]))]
        later = part(self.graph, behind, [*known, *states, *self._crossing(behind, inside)]) if behind else None
        kept = [n for n in outs if n not in behind]
        more = [n for n in (later.inputs if later else []) if n not in self.values and n not in states and self.kinds[n] > SLICED]
        kept = [n for n in kept if n not in states]
        self.later = set(later.inputs if later else [])
        self.read = {*outs, *self.later}
        core = part(self.graph, [*states, *kept, *more], known, self.places[: self.carried])
        histories, stacks = self._core(core, len(kept) + len(more))
        for node, history in zip(self.places, histories, strict=False):
            self.values[node] = history[:-1]
            self.stacked.add(node)
        for node, history in zip(states, histories, strict=True):
            if node not in self.values:
                self.values[node] = history[1:]
                self.stacked.add(node)
        for node, stack in zip([*kept, *more], stacks, strict=True):
            self.values[node] = stack
            self.stacked.add(node)
        if later:
            self._note(behind, later, stacked=True)
        return (*(h[-1] for h in histories), *(self.values[n] for n in outs))

    def _crossing(self, behind: list[Node], inside: set[Node]) -> list[Node]:
        """What the steps compute for their state and what is computed behind them reads, too."""
        after = ancestors(behind) - inside
        return [n for n in inside if n.op == "call_function" and is_tensor(n) and any(u in after for u in n.users)]

    def _note(self, nodes: list[Node], piece: StepPart, *, stacked: bool) -> None:
        """Compute values outside of the loop: for all steps at once, where they are not the same in every one."""
        given = [self.values[n] for n in piece.inputs]
        dims = tuple(0 if n in self.stacked else None for n in piece.inputs)
        made = torch.vmap(piece.graph, in_dims=dims)(*given) if stacked else piece.graph(*given)
        self.values |= dict(zip(nodes, made, strict=True))
        self.stacked |= set(nodes) if stacked else set()

    def _core(self, core: StepPart, outs: int) -> tuple[Tensors, Tensors]:
        order = [*core.inputs[: self.carried], *(n for n in core.inputs[self.carried :] if n in self.stacked)]
        sliced = len(order) - self.carried
        order += [n for n in core.inputs if n not in order]
        shown = {i for i, n in enumerate(self.made[: self.carried]) if n in self.read}
        values = [self.values[n] for n in order]
        whole = torch.is_grad_enabled() and any(v.requires_grad for v in values)
        known = {i for i, n in enumerate(self.places[: self.carried]) if whole or i in shown or n in self.later}
        found = _Core(_reordered(core, order), self.carried, sliced, self.mode, shown, known)
        made: Tensors = _Recurrence.apply(  # type: ignore[no-untyped-call]
            found, self.steps, *values
        )
        return made[: self.carried], made[self.carried :]


def _reordered(core: StepPart, order: list[Node]) -> Callable[..., Any]:
    places = [order.index(n) for n in core.inputs]

    def call(*values: Any) -> Any:
        return core.graph(*(values[i] for i in places))

    return call


class _Core:
    """A step as a function of what it carries, slices and what is the same in every step, and its operators.

    ``shown``: what is carried and read behind the loop as all steps leave it. ``known``: of which all steps are kept.
    """

    def __init__(self, step: Callable[..., Any], carried: int, sliced: int, mode: Any, shown: set[int], known: set[int]) -> None:
        self.step, self.carried, self.sliced, self.mode, self.shown, self.known = step, carried, sliced, mode, shown, known

    def operator(self, values: Sequence[torch.Tensor]) -> Any:
        """The operator of the loop."""
        examples = [like(v, sliced=self.carried <= i < self.carried + self.sliced) for i, v in enumerate(values)]
        graph = traced(functional(self.step), examples, self.mode, _rules())
        loop = time_loop(graph, self.carried, self.sliced, known=self.known)
        return _registered(loop, graph, self.carried)

    def back(self, wanted: list[int], outs: list[int], shown: list[int], given: list[torch.Tensor], sliced: int) -> Any:
        """The operator of the gradients of what is carried, of the numbers ``wanted``. ``given``: those of the last state, slices (what
        is carried, and the step's, and gradients of the results ``outs``), and what is the same in every step."""
        count = len(wanted)

        def vjp(*values: torch.Tensor) -> Any:
            grads, states = values[:count], [v.detach() for v in values[count : count + self.carried]]
            states = [v.requires_grad_() if i in wanted else v for i, v in enumerate(states)]
            own = values[count + self.carried : count + self.carried + self.sliced]
            more = values[count + self.carried + self.sliced : count + sliced]
            direct = dict(zip(shown, more[len(outs) :], strict=True))
            made = self.step(*states, *own, *values[count + sliced :])
            pairs = [(made[i], g) for i, g in zip(wanted, grads, strict=True)]
            pairs += [(made[self.carried + k], g) for k, g in zip(outs, more, strict=False)]
            pairs = [(m, g) for m, g in pairs if m.requires_grad]
            sources = [states[i] for i in wanted]
            found = torch.autograd.grad([m for m, _ in pairs], sources, [g for _, g in pairs], allow_unused=True)
            total = [torch.zeros_like(s) if g is None else g for s, g in zip(sources, found, strict=True)]
            return tuple(g + direct[i] if i in direct else g for i, g in zip(wanted, total, strict=True))

        examples = [like(v, sliced=count <= i < count + sliced) for i, v in enumerate(given)]
        graph = traced(functional(vjp), examples, self.mode, _rules(), grad=True)
        return _registered(time_loop(graph, count, sliced, backwards=True), graph, count)


def _rules() -> dict[Any, Any]:
    more = torch._decomp.get_decompositions([getattr(torch.ops.aten, name) for name in _INDUCTORS])
    return {**more, **decompositions(), **small_sums.rules()}


def _registered(loop: TimeLoop, graph: GraphModule, carried: int) -> Any:
    made = [n.meta["val"] for n in graph.graph.output_node().args[0][carried:]]
    forms = [Like(tuple(m.shape), (), m.dtype) for m in made]

    def fake(*values: Any) -> Any:
        *tensors, steps = values
        results = [t.new_empty((steps + 1 if i in loop.known else 1, *t.shape)) for i, t in enumerate(tensors[:carried])]
        results += [tensors[0].new_empty((steps, *form.shape), dtype=form.dtype) for form in forms]
        return tuple(results) if len(results) > 1 else results[0]

    return scored_operators.register_loop(loop, fake)


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, core: _Core, steps: Any, *values: torch.Tensor) -> Any:
        made = core.operator(values)(*values, steps)
        made = made if isinstance(made, tuple) else (made,)
        ctx.core, ctx.steps, ctx.made = core, steps, len(made)
        ctx.save_for_backward(*values, *made[: core.carried])
        ctx.mark_non_differentiable(*(m for m in made if not m.is_floating_point()))
        ctx.set_materialize_grads(False)
        return tuple(made)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> Any:
        core, steps = ctx.core, ctx.steps
        carried = core.carried
        saved = ctx.saved_tensors
        values, histories = saved[:-carried], saved[-carried:]
        states = [h[:-1] for h in histories]
        wanted = [i for i in range(carried) if values[i].is_floating_point()]
        outs = [k for k in range(ctx.made - carried) if grads[carried + k] is not None]
        out_grads: list[torch.Tensor] = [grads[carried + k] for k in outs]
        last = [torch.zeros_like(values[i]) if grads[i] is None else grads[i][-1] for i in wanted]  # type: ignore[index]
        shown = [i for i in wanted if i in core.shown and grads[i] is not None]
        sliced = [*states, *values[carried : carried + core.sliced], *out_grads, *(grads[i][:-1] for i in shown)]  # type: ignore[index]
        given = [*last, *sliced, *values[carried + core.sliced :]]
        made = core.back(wanted, outs, shown, given, len(sliced))(*given, steps)
        made = made if isinstance(made, tuple) else (made,)
        found: list[torch.Tensor | None] = [None] * len(values)
        for i, g in zip(wanted, made, strict=True):
            found[i] = g[0]
        _others(ctx, found, values, states, wanted, [g[1:] for g in made], outs, out_grads)
        return (None, None, *found)


def _others(
    ctx: Any, found: list[Any], values: Sequence[torch.Tensor], states: list[torch.Tensor], wanted: list[int], made: list[torch.Tensor],
    outs: list[int], out_grads: list[torch.Tensor],
) -> None:  # fmt: skip
    """Gradients of slices and of what is the same in every step, for all steps at once."""
    core = ctx.core
    sources = [i for i in range(core.carried, len(values)) if ctx.needs_input_grad[i + 2] and values[i].is_floating_point()]
    if not sources:
        return
    with torch.enable_grad():
        fresh = [v.detach().requires_grad_() if i in sources else v for i, v in enumerate(values)]
        dims = tuple(0 if i < core.carried + core.sliced else None for i in range(len(values)))
        results = torch.vmap(core.step, in_dims=dims)(*(s.detach() for s in states), *fresh[core.carried :])
        pairs = [(results[i], g) for i, g in zip(wanted, made, strict=True)]
        pairs += [(results[core.carried + k], g) for k, g in zip(outs, out_grads, strict=True)]
        pairs = [(r, g) for r, g in pairs if r.requires_grad]
        if not pairs:
            return
        grads = torch.autograd.grad([r for r, _ in pairs], [fresh[i] for i in sources], [g for _, g in pairs], allow_unused=True)
    for i, g in zip(sources, grads, strict=True):
        found[i] = g if g is None or not values[i].is_contiguous() else g.contiguous()


__all__ = ["as_slice", "cated", "counts", "filled", "grown", "run", "slice_at", "slices", "stacked"]
