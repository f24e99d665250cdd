"""Modules of several statements: formulas of tensors, parameters and numbers, halves, masks, rows of tables, losses by row, blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kernelllm.suites.synth.blocks import BLOCKS
from kernelllm.suites.synth.formula_parts import any_number, bracketed, called, channel_parameter
from kernelllm.suites.synth.grammar import POINTWISE
from kernelllm.suites.synth.module_text import Dim, Kind, ModuleText, Value
from kernelllm.suites.synth.operator_parts import LARGE, SMALL, start

_OTHERS: Final = ("y", "other", "residual", "skip", "context", "b", "right", "end", "shift", "add", "second", "delta")
_FUNCTIONS: Final = ("relu", "gelu", "silu", "tanh", "sigmoid", "abs", "square", "sin", "cos", "exp", "log", "sqrt", "softplus", "softsign",
                     "elu", "mish", "hardswish", "leaky_relu", "erf", "reciprocal", "neg", "atan", "selu")  # fmt: skip


def composed(m: ModuleText) -> Value:
    """A module of one of the families."""
    return m.rng.choices(list(FAMILIES), list(FAMILIES.values()))[0](m)


def _beside(m: ModuleText, v: Value) -> str:
    """What stands at the other side of an operator: a number, a parameter, another input, or the value's own function."""
    way = m.rng.random()
    if way < 0.38:
        return any_number(m)
    if way < 0.7:
        return channel_parameter(m, v)
    if way < 0.93 and len(m.inputs) < 4 and all(d.constant for d in v.dims):
        dims = v.dims
        if v.kind == "rows" and m.rng.random() < 0.3:
            dims = m.rng.choice(((v.dims[0], Dim(1)), (v.dims[1],)))
        return m.input(called(m, _OTHERS), dims)
    return _function(m, v.text)


def _function(m: ModuleText, text: str) -> str:
    ways = [w for w in POINTWISE[m.rng.choice(_FUNCTIONS)] if not w.startswith("nn.") and w.count("{x}") == 1]
    way = m.rng.choice(ways or ["torch.tanh({x})"])
    return way.format(x=text if way.startswith(("torch.", "F.")) and way.endswith("({x})") else bracketed(text), c="1.0")


def _joined(m: ModuleText, left: str, right: str) -> str:
    """Two sides with an operator; a quotient stays away from zero."""
    form = m.rng.choice(("{a} + {b}", "{a} + {b}", "{a} * {b}", "{a} * {b}", "{a} - {b}", "{b} - {a}", "{b} * {a}", "{b} + {a}",
                         "{a} / ({b} + 4.0)", "torch.maximum({a}, {b})"))  # fmt: skip
    if form.startswith("torch.max") and not right.isidentifier():
        form = "{a} + {b}"
    return form.format(a=bracketed(left), b=bracketed(right))


def formula(m: ModuleText) -> Value:
    """Sums and products of a tensor with numbers, parameters and other tensors, in one expression or in several."""
    v = start(m, "rows", "rows", "sequence", "sequence", "image", "signal")
    text = v.text
    for _ in range(m.rng.choices((2, 3, 4, 5), (0.3, 0.35, 0.25, 0.1))[0]):
        text = _function(m, text) if m.rng.random() < 0.2 else _joined(m, text, _beside(m, v))
        if m.rng.random() < 0.25:
            v = m.step(m.rng.choice(("affine", "combine", "mix", "scale")), text, v)
            text = v.text
    if m.rng.random() < 0.15:
        form = m.rng.choice(("torch.clamp({x}, {a}, {b})", "{x}.clamp(min={a}, max={b})"))
        text = form.format(x=bracketed(text), a="-1.0", b=any_number(m))
    return v if text == v.text else m.step("formula", text, v)


# -- halves, masks, rows of tables -------------------------------------------------------------


def halves(m: ModuleText) -> Value:
    """The last dimension in parts: gated, rotated, put together again."""
    kind: Kind = m.rng.choice(("rows", "sequence"))
    half = m.constant(m.rng.choice(("half", "hidden_dim", "width", "half_dim", "features")), m.rng.choice((16, 32, 64, 128)))
    first: tuple[Dim, ...] = (m.constant("batch_size", m.rng.choice(SMALL)),)
    if kind == "sequence":
        first += (m.constant("seq_len", m.rng.choice((8, 16, 32))),)
    whole = (*first, Dim(2 * half.value))
    v = m.start(kind, whole, called(m, ("x", "x", "x", "t", "h", "states")))
    a, b = (m.name(called(m, (n,))) for n in m.rng.choice((("gate", "value"), ("a", "b"), ("first", "second"), ("x1", "x2"), ("u", "v"))))
    cut = ("{x}.chunk(2, dim=-1)", "torch.chunk({x}, 2, dim=-1)", "{x}[..., :{h}], {x}[..., {h}:]", "{x}.split({h}, dim=-1)",
           "{x}[..., 0::2], {x}[..., 1::2]")  # fmt: skip
    way = m.rng.choice(cut)
    if way.count(", {x}"):
        for name, text in zip((a, b), way.split(", {x}"), strict=True):
            m.steps.append(f"{name} = {(text if text.startswith('{x}') else '{x}' + text).format(x=v.text, h=half.value)}")
    else:
        m.steps.append(f"{a}, {b} = {way.format(x=v.text, h=half.value)}")
    if m.rng.random() < 0.45:
        gate = _function(m, a) if m.rng.random() < 0.8 else f"torch.sigmoid({a} * {any_number(m)})"
        form = m.rng.choice(("{g} * {b}", "{b} * {g}", "{g} * ({b} + 1.0)", "{g} + {b}", "{g} * {b} + {a}"))
        return m.step("gated halves", form.format(g=bracketed(gate), a=a, b=b), v, dims=(*first, half))
    angles = (half,) if m.rng.random() < 0.3 else (first[-1], half) if kind == "sequence" else (*first, half)
    c, s = (m.input(called(m, (n,)), angles) for n in m.rng.choice((("cos", "sin"), ("c", "s"), ("p", "q"))))
    one, two = m.rng.choice(((f"{a} * {c} - {b} * {s}", f"{b} * {c} + {a} * {s}"), (f"{a} * {c} + {b} * {s}", f"{b} * {c} - {a} * {s}"),
                             (f"{a} + {b} * {c}", f"{b} * {s}"), (f"-{b} * {c}", f"{a} * {s}")))  # fmt: skip
    join = m.rng.choice(("torch.cat([{o}, {t}], dim=-1)", "torch.cat(({o}, {t}), dim=-1)", "torch.stack([{o}, {t}], dim=-1)"))
    if m.rng.random() < 0.4:
        names = [m.name(n) for n in ("left_part", "right_part")]
        m.steps += [f"{names[0]} = {one}", f"{names[1]} = {two}"]
        one, two = names
    return m.step("rotated halves", join.format(o=one, t=two), v, dims=whole)


def masked(m: ModuleText) -> Value:
    """Places that a mask, or a comparison, chooses: filled, clamped, left out of a softmax or a sum."""
    v = start(m, "rows", "rows", "sequence")
    drawn = m.rng.choice(("torch.rand({shape}) < 0.3", "torch.rand({shape}) > 0.5", "torch.randint(0, 2, ({shape},)).bool()"))
    dims = (*v.dims[:-1], Dim(1)) if v.kind == "sequence" and m.rng.random() < 0.2 else v.dims
    if m.rng.random() < 0.2:
        told = f"{v.text} {m.rng.choice('<>')} {any_number(m)}"
    else:
        told = m.input(called(m, ("mask", "mask", "keep", "valid", "dropped")), dims, drawn)
    fill = any_number(m) if m.rng.random() < 0.6 else m.rng.choice(("0.0", "-1e4", "1.0"))
    made = v.text
    if (way := m.rng.random()) < 0.75:
        made = _function(m, v.text) if way < 0.25 else m.rng.choice(("{x} * {c}", "{x}.clamp(-0.5, {c})")).format(x=v.text, c=any_number(m))
    like = f"torch.full_like({v.text}, {fill})"
    forms = [f"torch.where({told}, {made}, {like})", f"torch.where({told}, {like}, {made})"]
    if told.isidentifier():
        forms += [f"{bracketed(made)}.masked_fill({told}, {fill})", f"{bracketed(made)} * {told}"]
    v = m.step("masked", m.rng.choice(forms), v)
    way = m.rng.random()
    if way < 0.25:
        return m.step("softmax", m.rng.choice(("torch.softmax({x}, dim=-1)", "F.softmax({x}, dim=-1)")).format(x=v.text), v)
    if way < 0.5:
        text = m.rng.choice(("{x}.sum(dim=-1)", "torch.mean({x}, dim=-1)", "{x}.sum(dim=1, keepdim=True)", "{x}.amax(dim=-1)"))
        return m.step("reduced", text.format(x=v.text), Value(v.text, "scalar", ()))
    return v


def rows_of_table(m: ModuleText) -> Value:
    """Rows of a table by their numbers: embeddings, with positions, summed in bags, weighted, scaled."""
    entries = m.constant(m.rng.choice(("vocab", "vocab_size", "num_embeddings", "entries")), m.rng.choice((50, 100, 500, 1000)))
    width = m.constant(m.rng.choice(("dim", "embed_dim", "width", "hidden")), m.rng.choice((16, 32, 64, 128)))
    n = m.constant("batch_size", m.rng.choice((2, 4, 8, 16)))
    length = m.constant(m.rng.choice(("seq_len", "tokens", "bag", "length")), m.rng.choice((3, 4, 8, 16)))
    ids = m.input(called(m, ("ids", "indices", "input_ids", "idx", "tokens_in", "numbers")), (n, length),
                  f"torch.randint(0, {entries.value if m.style.inline else entries.constant}, ({{shape}}))")  # fmt: skip
    size = f"{m.of_constructor(entries)}, {m.of_constructor(width)}"
    if m.rng.random() < 0.5:
        table = m.layer(called(m, ("table", "weight", "embeddings")), f"nn.Parameter(torch.randn({size}))")
        text = m.rng.choice((f"{table}[{ids}]", f"F.embedding({ids}, {table})"))
    elif m.rng.random() < 0.7:
        text = f"{m.layer(called(m, ('embedding', 'emb', 'embed', 'tok')), f'nn.Embedding({size})')}({ids})"
    else:
        text = f"{m.input(called(m, ('table', 'rows', 'source')), (entries, width))}[{ids}]"
    v = m.step("rows of a table", text, Value(called(m, ("x", "h", "out", "e")), "sequence", (n, length, width)))
    way = m.rng.random()
    if way < 0.3:
        place = m.layer("positions", f"nn.Parameter(torch.randn({m.of_constructor(length)}, {m.of_constructor(width)}))")
        v = m.step("positions", f"{v.text} + {place}", v)
    elif way < 0.55:
        w = m.input(called(m, ("weights", "w", "scores")), (n, length))
        v = m.step("weighted", f"{v.text} * {w}{m.rng.choice(('[..., None]', '.unsqueeze(-1)', '[:, :, None]'))}", v)
    elif way < 0.8:
        v = m.step("scaled", _joined(m, v.text, _beside(m, v)), v)
    if way >= 0.8 or m.rng.random() < 0.4:
        text = m.rng.choice(("{x}.sum(dim=1)", "{x}.mean(dim=1)", "torch.sum({x}, dim=1)", "{x}.amax(dim=1)"))
        v = m.step("bag", text.format(x=v.text), v, "rows", (n, width))
    return v if m.rng.random() < 0.7 else m.step("formula", _joined(m, v.text, any_number(m)), v)


# -- losses by row, several results ------------------------------------------------------------

_EACH: Final = (
    "F.mse_loss({x}, {y}, reduction='none')", "F.smooth_l1_loss({x}, {y}, reduction='none')", "F.l1_loss({x}, {y}, reduction='none')",
    "F.huber_loss({x}, {y}, reduction='none', delta=0.5)", "({x} - {y}) ** 2", "({x} - {y}).abs()", "torch.abs({x} - {y})",
    "F.binary_cross_entropy_with_logits({x}, torch.sigmoid({y}), reduction='none')", "torch.exp({x}) - {y} * {x}",
    "F.kl_div(torch.log_softmax({x}, dim=1), torch.softmax({y}, dim=1), reduction='none')", "torch.relu(1.0 - {x} * {y})", "{x} * {y}",
    "torch.log1p(torch.exp(-{x} * {y}))",
)  # fmt: skip
_PAIRS: Final = (("prediction", "target"), ("pred", "label"), ("a", "b"), ("x", "y"), ("logits", "target"), ("estimate", "truth"),
                 ("out", "ref"), ("student", "teacher"), ("left", "right"))  # fmt: skip


def by_rows(m: ModuleText) -> Value:
    """A loss or a likeness with one number for each row, weighted now and then."""
    n = m.constant("batch_size", m.rng.choice(LARGE[:8]))
    width = m.constant(m.rng.choice(("features", "classes", "dim")), m.rng.choice(LARGE[:9]))
    x, y = (m.input(called(m, (name,)), (n, width)) for name in m.rng.choice(_PAIRS))
    v = Value("loss", "rows", (n, width))
    if m.rng.random() < 0.18:
        text = m.rng.choice(("F.cosine_similarity({x}, {y}, dim=1)", "1 - F.cosine_similarity({x}, {y}, dim=-1)")).format(x=x, y=y)
    else:
        each = m.rng.choice(_EACH).format(x=x, y=y)
        if m.rng.random() < 0.35:
            each = f"{bracketed(each)} * {any_number(m)}"
        end = m.rng.choice((".sum(dim=1)", ".mean(dim=1)", ".mean(dim=-1)", ".sum(-1)", ".mean(dim=0)", ".amax(dim=1)"))
        if m.rng.random() < 0.4:
            v = m.step("each", each, Value("each", "rows", (n, width)))
            each = v.text
        text = f"{bracketed(each)}{end}"
    v = m.step("loss by row", text, Value("loss", "vector", (n,)))
    way = m.rng.random()
    if way < 0.25:
        return m.step("formula", m.rng.choice(("{x} * {c}", "{x} + {c}", "{c} - {x}")).format(x=v.text, c=any_number(m)), v)
    if way < 0.45:
        return m.step("mean", m.rng.choice(("{x}.mean()", "{x}.sum()", "torch.mean({x})")).format(x=v.text), Value("loss", "scalar", ()))
    return v


def several(m: ModuleText) -> Value:
    """Two results: a value and what it was made of."""
    v = start(m, "rows", "rows", "sequence")
    if m.rng.random() < 0.25:
        names = [m.name(n) for n in m.rng.choice((("values", "indices"), ("best", "where"), ("top", "at"), ("peak", "index")))]
        text = _joined(m, v.text, _beside(m, v)) if m.rng.random() < 0.5 else v.text
        ways = ["torch.max({x}, dim={d})", "torch.min({x}, dim={d})"]
        ways += ["{x}.min(dim={d})", "{x}.max({d})"] if text == v.text else []
        m.operators.append("extremes and their places")
        m.steps.append(f"{', '.join(names)} = {m.rng.choice(ways).format(x=text, d=m.rng.choice((1, -1)))}")
        return Value(", ".join(names), "scalar", ())
    total = m.name(called(m, ("total", "summed", "hidden", "pre", "mixed")))
    m.steps.append(f"{total} = {_joined(m, v.text, _beside(m, v))}")
    inner = Value(total, v.kind, v.dims)
    form = m.rng.choice((
        "{x} * torch.rsqrt({x}.pow(2).mean(dim=-1, keepdim=True) + {e})", "{x} - {x}.mean(dim=-1, keepdim=True)",
        "{x} / ({x}.abs().sum(dim=-1, keepdim=True) + {e})", "torch.sigmoid({x})", "{x}.sum(dim=-1)", "{x}.amax(dim=-1)",
        "torch.cumsum({x}, dim=-1)", "torch.softmax({x}, dim=-1)", "torch.relu({x})", "{x}.mean(dim=1)", "torch.tanh({x})",
    ))  # fmt: skip
    eps = m.kept(m.parameter("eps", 1e-6)) if m.rng.random() < 0.6 and "{e}" in form else "1e-5"
    out = m.name(called(m, ("out", "normed", "result", "y_out")))
    text = form.format(x=inner.text, e=eps)
    if m.rng.random() < 0.35 and "dim=1)" not in form and "sum(dim=-1)" not in form and "amax" not in form:
        text = f"{bracketed(text)} * {channel_parameter(m, v)}"
    m.operators += ["sum of two", "two results"]
    m.steps.append(f"{out} = {text}")
    return Value(m.rng.choice((f"{out}, {total}", f"{total}, {out}")), "scalar", ())


FAMILIES: Final[dict[Callable[[ModuleText], Value], float]] = {
    formula: 30, halves: 12, masked: 10, rows_of_table: 10, by_rows: 12, several: 7, **BLOCKS,
}  # fmt: skip
"""Families, with how often."""
