"""A product or a convolution and what people put behind it: functions of elements, parameters, clamps, norms, pools, reductions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kernelllm.suites.synth.grammar import (
    CHANNEL_AXIS,
    POINTWISE,
    SPATIAL,
    Operator,
    applied,
    global_pool,
    learned,
    normalize,
    number,
    pointwise,
    pool,
    reduce,
    shortcut,
    softmax,
    two_inputs,
    written,
)  # fmt: skip
from kernelllm.suites.synth.module_text import Constant, Dim, Kind, ModuleText, Value
from kernelllm.suites.synth.operator_parts import Option, layer_with, windows

_LENGTHS: Final = {1: 0.1, 2: 0.2, 3: 0.25, 4: 0.22, 5: 0.15, 6: 0.08, 7: 0.03}
_ROWS: Final = (("batch_size", "in_features", "out_features"), ("batch_size", "input_size", "hidden_size"), ("N", "in_dim", "out_dim"))
_LAYERS: Final = ("linear", "gemm", "matmul", "fc", "proj", "dense")


def chain(m: ModuleText) -> Value:
    """A product or a convolution with up to six operators behind it."""
    value = _head(m)
    for _ in range(m.rng.choices(list(_LENGTHS), list(_LENGTHS.values()))[0]):
        made = applied(m, value, FOLLOWING)
        value = value if made is None else made
        if value.kind in ("scalar", "vector"):
            break
    return value


_USUAL: Final = ("relu", "relu", "gelu", "tanh", "sigmoid", "leaky_relu", "hardswish", "mish", "silu", "softplus", "hardtanh", "elu")


# -- heads -------------------------------------------------------------------------------------


def _head(m: ModuleText) -> Value:
    kind: Kind = m.rng.choices(("rows", "image", "volume", "signal", "sequence"), (0.36, 0.32, 0.22, 0.05, 0.05))[0]
    if kind in ("rows", "sequence"):
        return _linear(m, kind)
    return _convolution(m, kind)


def _linear(m: ModuleText, kind: Kind) -> Value:
    names = m.rng.choice(_ROWS)
    choices = ((2, 4, 8, 16, 32), (32, 64, 128, 256), (16, 32, 64, 128))
    batch, inner, out = (m.constant(n, m.rng.choice(c)) for n, c in zip(names, choices, strict=True))
    dims = (batch, inner) if kind == "rows" else (batch, m.constant("seq_len", m.rng.choice((4, 8, 10))), inner)
    v = m.start(kind, dims, "x" if m.rng.random() < 0.7 else "")
    a, b = m.of_constructor(inner), m.of_constructor(out)
    if m.rng.random() < 0.15:
        w = m.layer(m.rng.choice(("weight", "w")), f"nn.Parameter(torch.randn({b}, {a}) * 0.1)")
        made = m.rng.choice((f"torch.matmul({v.text}, {w}.T)", f"F.linear({v.text}, {w})", f"{v.text} @ {w}.t()"))
    else:
        bias = m.rng.choice(("", "", "", ", bias=False"))
        made = f"{m.layer(m.rng.choice(_LAYERS), f'nn.Linear({a}, {b}{bias})')}({v.text})"
    return m.step("linear", made, v, dims=(*dims[:-1], out))


def _convolution(m: ModuleText, kind: Kind) -> Value:
    d = SPATIAL[kind]
    sides = {"signal": ("length",), "image": ("height", "width"), "volume": ("depth", "height", "width")}[kind]
    batch, c = m.constant("batch_size", m.rng.choice((2, 4, 8, 16))), m.constant("in_channels", m.rng.choice((3, 4, 8, 16)))
    places = tuple(m.constant(s, m.rng.choice((6, 8, 10, 12) if d == 3 else (10, 12, 16, 20))) for s in sides)
    v = m.start(kind, (batch, c, *places), "x" if m.rng.random() < 0.7 else "")
    out = m.constant("out_channels", m.rng.choice((8, 16, 24, 32)))
    transposed = m.rng.random() < 0.45
    first, last = m.of_constructor(c), m.of_constructor(out)
    size = m.rng.choice((1, 2, 3, 3, 3, 4, 5))
    stride = m.rng.choice((1, 1, 2, 2, 3)) if transposed else m.rng.choice((1, 1, 1, 2))
    pad = m.rng.choice((0, 1)) if size > 1 else 0
    extra = m.rng.choice((0, 0, min(1, stride - 1))) if transposed else 0
    options: dict[str, Option] = {"stride": (stride, 1), "padding": (pad, 0)}
    if extra or (transposed and m.rng.random() < 0.2):
        options["output_padding"] = (extra, 0)
    if m.rng.random() < 0.15:
        options["bias"] = (m.rng.random() < 0.5, True)
    whole = m.rng.random() < 0.12 and d > 1  # a number for each dimension
    kernel: Constant = (size,) * d if whole else size
    if not whole and m.rng.random() < 0.06 and d > 1:
        kernel = windows(m, d, (2, 3))
    text = m.parameter("kernel_size", kernel)
    sizes = kernel if isinstance(kernel, tuple) else (kernel,) * d
    name, hint = ("ConvTranspose", "conv_transpose") if transposed else ("Conv", "conv")
    layer = layer_with(m, f"{name}{d}d", [first, last, text], options, hint)
    if transposed:
        made = tuple(Dim((s.value - 1) * stride - 2 * pad + int(str(k)) + extra) for s, k in zip(places, sizes, strict=True))
    else:
        made = tuple(Dim((s.value + 2 * pad - int(str(k))) // stride + 1) for s, k in zip(places, sizes, strict=True))
    return m.step(f"{'transposed ' if transposed else ''}conv{d}d", f"{layer}({v.text})", v, dims=(batch, out, *made))


# -- what follows ------------------------------------------------------------------------------


def _number(m: ModuleText, *hints: str, value: Constant = None) -> str:
    """A number that the constructor keeps, or one of its own."""
    drawn = m.rng.choice((0.1, 0.5, 1.0, 1.5, 2.0, 3.0, 2, 3, round(m.rng.uniform(0.05, 4), 2))) if value is None else value
    if m.rng.random() < 0.3:
        return repr(drawn)
    return m.kept(m.parameter(m.rng.choice(hints), drawn))


def _arithmetic(m: ModuleText, v: Value) -> Value:
    """Addition, subtraction, product or quotient with a number."""
    name, hints, forms = m.rng.choice((
        ("scale", ("scaling_factor", "scale_factor", "scale", "multiplier", "factor"),
         ("{x} * {c}", "{x} * {c}", "torch.mul({x}, {c})", "{c} * {x}")),
        ("add value", ("add_value", "constant", "offset", "shift"), ("{x} + {c}", "torch.add({x}, {c})")),
        ("subtract value", ("subtract_value", "subtract_value_1", "sub_value", "offset"), ("{x} - {c}", "torch.sub({x}, {c})")),
        ("divide", ("divisor", "divide_by", "divide_value"), ("{x} / {c}", "torch.div({x}, {c})")),
    ))  # fmt: skip
    return m.step(name, m.rng.choice(forms).format(x=v.text, c=_number(m, *hints)), v)


def _clamp(m: ModuleText, v: Value) -> Value | None:
    """Bounds, on one side or both."""
    low, high = round(-m.rng.choice((0.0, 0.5, 1.0, 2.0, 10.0)), 2), m.rng.choice((0.5, 1.0, 2.0, 6.0, 10.0))
    if m.rng.random() < 0.2:
        low, high = -m.rng.choice((0, 1, 2)), m.rng.choice((1, 2))
    way = m.rng.random()
    if way < 0.12:
        a, b = m.parameter(m.rng.choice(("hardtanh_min", "min_val")), low), m.parameter(m.rng.choice(("hardtanh_max", "max_val")), high)
        given = m.rng.choice((f"{a}, {b}", f"min_val={a}, max_val={b}"))
        return m.step("hardtanh", f"{m.layer('hardtanh', f'nn.Hardtanh({given})')}({v.text})", v)
    if way < 0.5:
        a, b = _number(m, "min_value", "clamp_min", "lower", value=low), _number(m, "max_value", "clamp_max", "upper", value=high)
        ways = ("torch.clamp({x}, {a}, {b})", "torch.clamp({x}, min={a}, max={b})", "{x}.clamp({a}, {b})", "F.hardtanh({x}, {a}, {b})",
                "F.hardtanh({x}, min_val={a}, max_val={b})")  # fmt: skip
        return m.step("clamp", m.rng.choice(ways).format(x=v.text, a=a, b=b), v)
    if way < 0.75:
        a = _number(m, "min_value", "constant_value", "lower", value=low)
        return m.step("clamp below", m.rng.choice(("torch.clamp({x}, min={a})", "{x}.clamp(min={a})")).format(x=v.text, a=a), v)
    b = _number(m, "max_value", "constant_value", "upper", value=high)
    forms = ("torch.clamp({x}, max={a})", "torch.min({x}, torch.tensor({a}))", "torch.minimum({x}, torch.tensor({a}))")
    return m.step("clamp above", m.rng.choice(forms).format(x=v.text, a=b), v)


def _parameter(m: ModuleText, v: Value) -> Value | None:
    """A parameter of one number a channel, or one in all, by its shape."""
    if v.kind not in CHANNEL_AXIS:
        return None
    axis = CHANNEL_AXIS[v.kind]
    channel = v.dims[axis]
    after = len(v.dims) - 1 - axis
    name, form = m.rng.choice((("bias", "{x} + {p}"), ("bias", "{x} + {p}"), ("scale", "{x} * {p}"), ("scaling_factor", "{p} * {x}"),
                               ("multiplier", "{x} * {p}"), ("subtract", "{x} - {p}"), ("sum_weight", "{x} + {p}")))  # fmt: skip
    draw = m.rng.choice(("torch.randn", "torch.rand", "torch.ones", "torch.randn"))
    way = m.rng.random()
    if way < 0.15:
        made = f"nn.Parameter(torch.tensor({m.parameter('init_value', m.rng.choice((0.5, 1.0, 1.5, 2.0)))}))"
    elif way < 0.75 and channel.constant:
        if (after and m.rng.random() < 0.6) or m.rng.random() < 0.3:
            shape = f"({', '.join([channel.constant, *['1'] * after])}{',' if not after else ''})"
            shape = m.shape_parameter(f"{name}_shape", shape, (channel.value, *[1] * after))
        else:
            before = ["1"] if m.rng.random() < 0.4 and axis == 1 else []
            shape = ", ".join([*before, m.of_constructor(channel), *["1"] * after])
        made = f"nn.Parameter({draw}({shape}))"
    else:
        made = f"nn.Parameter({draw}({', '.join(['1'] * m.rng.choice((1, len(v.dims))))}) * 0.5)"
    return m.step(name, form.format(x=v.text, p=m.layer(name, made)), v)


def _gate(m: ModuleText, v: Value) -> Value | None:
    """The value times a function of itself."""
    name = m.rng.choice(("sigmoid", "tanh", "hardsigmoid", "softplus", "mish", "hardswish"))
    way = m.rng.choice([w for w in POINTWISE[name] if not w.startswith("nn.")]).format(x=v.text, c="1.0")
    return m.step("gate", m.rng.choice((f"{v.text} * {way}", f"{way} * {v.text}")), v)


def _reduced(m: ModuleText, v: Value) -> Value | None:
    """A reduction over a dimension that stays as one element."""
    if v.kind not in CHANNEL_AXIS or len(v.dims) < 2:
        return None
    dim = m.rng.choice((1, 1, 1, m.rng.randrange(1, len(v.dims))))
    if v.dims[dim].value == 1 and m.rng.random() < 0.6:  # people do reduce what one element is left of
        return None
    name, ways = m.rng.choice((
        ("logsumexp", ("torch.logsumexp({x}, dim={d}{k})",)), ("sum", ("torch.sum({x}, dim={d}{k})", "{x}.sum(dim={d}{k})")),
        ("mean", ("torch.mean({x}, dim={d}{k})", "{x}.mean(dim={d}{k})", "{x}.mean({d}{k})")),
        ("max", ("torch.max({x}, dim={d}{k})[0]", "torch.max({x}, dim={d}{k}).values", "torch.amax({x}, dim={d}{k})")),
        ("min", ("torch.min({x}, dim={d}{k})[0]", "torch.amin({x}, dim={d}{k})", "{x}.min(dim={d}{k})[0]")),
    ))  # fmt: skip
    told = m.kept(m.parameter("dim", dim)) if m.rng.random() < 0.12 else str(dim)
    text = m.rng.choice(ways).format(x=v.text, d=told, k="" if (gone := m.rng.random() < 0.15) else ", keepdim=True")
    if gone:
        return m.step(name, text, v, LESS[v.kind], tuple(d for i, d in enumerate(v.dims) if i != dim))
    return m.step(name, text, v, dims=tuple(Dim(1) if i == dim else d for i, d in enumerate(v.dims)))


def _squeezed(m: ModuleText, v: Value) -> Value | None:
    """Without a dimension of one element."""
    at = next((i for i, d in enumerate(v.dims) if i and d.value == 1), 0)
    if not at or v.kind not in LESS:
        return None
    return m.step("squeeze", f"{v.text}.squeeze({at})", v, LESS[v.kind], tuple(d for i, d in enumerate(v.dims) if i != at))


def _as_signal(m: ModuleText, v: Value) -> Value | None:
    """Rows as one channel of a signal, for a pool or a norm; an image with its places in one row."""
    if v.kind == "rows" and v.dims[1].value >= 8:
        window = m.rng.choice((2, 4))
        kind = m.rng.choice(("MaxPool1d", "AvgPool1d", "InstanceNorm1d"))
        size = "1" if kind == "InstanceNorm1d" else m.parameter("pool_kernel_size", window)
        layer = m.layer("norm" if kind == "InstanceNorm1d" else "pool", f"nn.{kind}({size})")
        dims = v.dims if kind == "InstanceNorm1d" else (v.dims[0], Dim(v.dims[1].value // window))
        return m.step(kind.lower(), f"{layer}({v.text}.unsqueeze(1)).squeeze(1)", v, dims=dims)
    if v.kind == "image" and v.text.isidentifier():
        b, c, h, w = (m.name(n) for n in m.rng.choice((("b", "c", "h", "w"), ("n", "ch", "rows", "cols"), ("batch", "ch", "hh", "ww"))))
        m.steps.append(f"{b}, {c}, {h}, {w} = {v.text}.shape")
        text = m.rng.choice((f"{v.text}.view({b}, {c}, {h} * {w})", f"{v.text}.reshape({b}, {c}, -1)", f"{v.text}.flatten(2)"))
        return m.step("view", text, v, "signal", (*v.dims[:2], Dim(v.dims[2].value * v.dims[3].value)))
    return None


def _over_places(m: ModuleText, v: Value) -> Value | None:
    """A reduction over all places, or all but the batch."""
    if v.kind not in SPATIAL:
        return None
    d = SPATIAL[v.kind]
    name = m.rng.choice(("mean", "mean", "sum"))
    keep = m.rng.random() < 0.5
    first = m.rng.choice((2, 2, 1)) if not keep else 2
    dims, kept = ", ".join(map(str, range(first, d + 2))), ", keepdim=True" if keep else ""
    over = m.rng.choice((f"[{dims}]", f"({dims})")) if "," in dims else dims
    text = m.rng.choice(("torch.{n}({x}, dim={o}{k})", "{x}.{n}(dim={o}{k})")).format(n=name, x=v.text, o=over, k=kept)
    if keep:
        return m.step(name, text, v, dims=(*v.dims[:2], *[Dim(1)] * d))
    return m.step(name, text, v, "rows" if first == 2 else "vector", v.dims[:first])


def _global_pool(m: ModuleText, v: Value) -> Value | None:
    """An adaptive average that leaves one place."""
    if v.kind not in SPATIAL:
        return None
    d = SPATIAL[v.kind]
    size = m.rng.choice(("1", f"({', '.join(['1'] * d)})" if d > 1 else "1"))
    name = m.rng.choice(("global_avg_pool", "pool", "avg_pool", "adaptive_pool"))
    way = m.rng.choice((f"nn.AdaptiveAvgPool{d}d({size})", f"nn.AdaptiveAvgPool{d}d({size})", f"F.adaptive_avg_pool{d}d({{x}}, {size})"))
    made = f"{m.layer(name, way)}({v.text})" if way.startswith("nn.") else way.format(x=v.text)
    return m.step("average pool", made, v, dims=(*v.dims[:2], *[Dim(1)] * d))


def _norm(m: ModuleText, v: Value) -> Value | None:
    """A norm of the channels, with settings."""
    if v.kind not in CHANNEL_AXIS or any(d.value == 1 for d in v.dims):
        return None
    channels, c = v.dims[CHANNEL_AXIS[v.kind]], m.of_constructor(v.dims[CHANNEL_AXIS[v.kind]])
    eps: dict[str, Option] = {"eps": (m.rng.choice((1e-5, 1e-5, 1e-3, 1e-6)), 1e-5)} if m.rng.random() < 0.3 else {}
    if v.kind == "sequence":
        return normalize(m, v)
    d = SPATIAL.get(v.kind, 1)
    kinds = ["BatchNorm", "GroupNorm", *(["InstanceNorm", "LayerNorm"] if v.kind != "rows" else ["LayerNorm"])]
    kind = m.rng.choice(kinds)
    if kind == "GroupNorm":
        groups = m.rng.choice([g for g in (2, 4, 8) if channels.value % g == 0] or [1])
        layer = layer_with(m, kind, [m.parameter(m.rng.choice(("num_groups", "groups")), groups), c], eps, "group_norm")
    elif kind == "LayerNorm":
        if v.kind != "rows" and m.rng.random() < 0.4:
            return m.step("layer norm", f"{m.layer('norm', f'nn.LayerNorm({v.dims[-1].value})')}({v.text})", v)
        shape = c if v.kind == "rows" else f"({', '.join(map(str, (c, *(s.value for s in v.dims[2:]))))})"
        layer = m.layer(m.rng.choice(("norm", "layer_norm")), f"nn.LayerNorm({shape})")
    else:
        more: dict[str, Option] = {"momentum": (m.rng.choice((0.1, 0.2)), 0.1)} if kind == "BatchNorm" and eps else {}
        hint = m.rng.choice(("bn", "batch_norm", "norm")) if kind == "BatchNorm" else "instance_norm"
        layer = layer_with(m, f"{kind}{d}d", [c], {**eps, **more}, hint)
    return m.step(kind.lower(), f"{layer}({v.text})", v)


def _pooled(m: ModuleText, v: Value) -> Value | None:
    """Windows whose size the constructor is given."""
    if v.kind not in SPATIAL or min(s.value for s in v.dims[2:]) < 6:
        return None
    d, window = SPATIAL[v.kind], m.rng.choice((2, 2, 3))
    kind = m.rng.choice(("MaxPool", "AvgPool"))
    size = m.parameter(m.rng.choice(("pool_kernel_size", "pool_size")), window)
    options: dict[str, Option] = {"stride": (m.rng.choice((None, window, 2)), None)} if m.rng.random() < 0.2 else {}
    layer = layer_with(m, f"{kind}{d}d", [size], options, m.rng.choice(("pool", "max_pool" if kind == "MaxPool" else "avg_pool")))
    stride = options["stride"][0] if options else None
    step = stride if isinstance(stride, int) else window
    sides = (Dim((s.value - window) // step + 1) for s in v.dims[2:])
    return m.step(kind.lower(), f"{layer}({v.text})", v, dims=(*v.dims[:2], *sides))


def _residual(m: ModuleText, v: Value) -> Value | None:
    """What was there before is added, or multiplied, behind a function of it."""
    if not v.text.isidentifier():
        return None
    name = m.name(m.rng.choice(("original_x", "identity", "residual", "shortcut", "x_in")))
    m.steps.append(f"{name} = {v.text}{m.rng.choice(('', '', '', '.clone()', '.clone().detach()'))}")
    ways: tuple[Callable[[ModuleText, Value], Value | None], ...] = (pointwise, _activation, _activation, softmax, _norm, _arithmetic)
    made = m.rng.choice(ways)(m, v) or _activation(m, v)
    if m.rng.random() < 0.35:
        made = m.rng.choice((_activation, _arithmetic, _arithmetic))(m, made)
    form = m.rng.choice(("{x} + {y}", "{x} + {y}", "{x} * {y}", "{x} - {y}", "{y} + {x}"))
    return m.step("residual", form.format(x=made.text, y=name), made)


def _centred(m: ModuleText, v: Value) -> Value | None:
    """Less the mean of all places, of the channels or of the last dimension."""
    if v.kind not in CHANNEL_AXIS:
        return None
    d = SPATIAL.get(v.kind, 0)
    over = f"({', '.join(map(str, range(2, d + 2)))})" if d > 1 and m.rng.random() < 0.6 else "1"
    ways = ("{x} - torch.mean({x}, dim={d}, keepdim=True)", "{x} - {x}.mean(dim={d}, keepdim=True)")
    return m.step("subtract mean", m.rng.choice(ways).format(x=v.text, d=over), v)


def _doubled(m: ModuleText, v: Value) -> Value | None:
    """The value and itself."""
    form = m.rng.choice(("{x} + {x}", "{x} + {x}", "{x} * {x}", "torch.add({x}, {x})"))
    return m.step("doubled", form.format(x=v.text), v)


def _twice(m: ModuleText, v: Value) -> Value | None:
    """The same activation two times, now and then three."""
    name = m.rng.choice(_USUAL)
    way = written(m, POINTWISE[name])
    layer = m.layer(m.rng.choice((name, "activation", "act")), way) if way.startswith("nn.") else ""
    for _ in range(m.rng.choice((2, 2, 2, 3))):
        v = m.step(name, f"{layer}({v.text})" if layer else way.format(x=v.text, c="1.0"), v)
    return v


def _product(m: ModuleText, v: Value) -> Value | None:
    """One more layer over the last dimension."""
    if v.kind not in ("rows", "sequence") or v.dims[-1].value == 1:
        return None
    out = m.constant(m.rng.choice(("output_size", "out_features", "hidden_dim")), m.rng.choice((16, 32, 64)))
    made = f"nn.Linear({m.of_constructor(v.dims[-1])}, {m.of_constructor(out)})"
    layer = m.layer(m.rng.choice(("linear2", "fc2", "out_proj", "head")), made)
    return m.step("linear", f"{layer}({v.text})", v, dims=(*v.dims[:-1], out))


def _activation(m: ModuleText, v: Value) -> Value:
    """One of the activations that stand behind layers most often."""
    name = m.rng.choice(_USUAL)
    way = written(m, POINTWISE[name])
    if name == "leaky_relu" and m.rng.random() < 0.5:
        slope = m.parameter("negative_slope", m.rng.choice((0.01, 0.1, 0.2)))
        way = f"nn.LeakyReLU({slope})"
    if way.startswith("nn."):
        return m.step(name, f"{m.layer(m.rng.choice((name, 'activation', 'act')), way)}({v.text})", v)
    return m.step(name, way.format(x=v.text, c=number(m)), v)


LESS: Final[dict[Kind, Kind]] = {"rows": "vector", "sequence": "rows", "signal": "rows", "image": "signal", "volume": "image"}
"""The kind without one dimension."""
FOLLOWING: Final[dict[Operator, float]] = {
    _activation: 10, pointwise: 2.5, _arithmetic: 6, _clamp: 3, _parameter: 5, _gate: 1.5, _reduced: 3, _over_places: 1.2,
    _global_pool: 1.2, _norm: 4, _twice: 1.2, _doubled: 0.5, _product: 0.8,
    _pooled: 2.5, _residual: 1.5, _centred: 0.7, _squeezed: 1.5, _as_signal: 0.5, softmax: 2, two_inputs: 1, shortcut: 0.7, reduce: 1,
    global_pool: 0.5, pool: 0.5, learned: 0.5,
}  # fmt: skip
"""What may stand behind a product or a convolution, with how often."""
