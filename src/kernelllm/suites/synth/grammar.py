"""The operators of the sampler: what each takes, what it makes, and the ways in which people write it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kernelllm.suites.synth.module_text import Dim, Kind, ModuleText, Value

Operator = Callable[[ModuleText, Value], "Value | None"]
"""Adds itself to the module; None where it does not fit the value."""

POINTWISE: Final[dict[str, tuple[str, ...]]] = {
    "relu": ("nn.ReLU()", "F.relu({x})", "{x}.relu()", "torch.relu({x})", "{x}.clamp(min=0)", "torch.clamp({x}, min=0.0)"),
    "leaky_relu": ("nn.LeakyReLU(0.1)", "F.leaky_relu({x}, negative_slope=0.2)", "torch.where({x} > 0, {x}, 0.05 * {x})"),
    "gelu": ("nn.GELU()", "F.gelu({x})", "F.gelu({x}, approximate='tanh')"),
    "silu": ("nn.SiLU()", "F.silu({x})", "{x} * torch.sigmoid({x})", "{x} * {x}.sigmoid()", "torch.sigmoid({x}) * {x}"),
    "mish": ("nn.Mish()", "F.mish({x})", "{x} * torch.tanh(F.softplus({x}))"),
    "elu": ("nn.ELU(alpha=0.5)", "F.elu({x})"),
    "selu": ("nn.SELU()", "F.selu({x})"),
    "celu": ("nn.CELU(1.5)", "F.celu({x})"),
    "softplus": ("nn.Softplus()", "F.softplus({x})", "F.softplus({x}, beta=2.0)"),
    "softsign": ("nn.Softsign()", "F.softsign({x})", "{x} / (1 + {x}.abs())", "{x} / (1 + torch.abs({x}))", "{x} / (1.0 + torch.abs({x}))"),
    "hardtanh": ("nn.Hardtanh(-2.0, 2.0)", "F.hardtanh({x})", "{x}.clamp(-1.0, 1.0)"),
    "hardswish": ("nn.Hardswish()", "F.hardswish({x})", "{x} * F.relu6({x} + 3) / 6"),
    "hardsigmoid": ("nn.Hardsigmoid()", "F.hardsigmoid({x})"),
    "relu6": ("nn.ReLU6()", "F.relu6({x})"),
    "logsigmoid": ("nn.LogSigmoid()", "F.logsigmoid({x})"),
    "tanhshrink": ("nn.Tanhshrink()", "F.tanhshrink({x})", "{x} - torch.tanh({x})"),
    "tanh": ("nn.Tanh()", "torch.tanh({x})", "{x}.tanh()"),
    "sigmoid": ("nn.Sigmoid()", "torch.sigmoid({x})", "{x}.sigmoid()"),
    "abs": ("torch.abs({x})", "{x}.abs()"),
    "square": ("{x} * {x}", "{x} ** 2", "torch.square({x})", "{x}.pow(2)"),
    "neg": ("-{x}", "torch.neg({x})"),
    "sin": ("torch.sin({x})", "{x}.sin()"),
    "cos": ("torch.cos({x})",),
    "atan": ("torch.atan({x})",),
    "erf": ("torch.erf({x})",),
    "exp": ("torch.exp(-{x}.abs())", "torch.exp(-({x} ** 2))"),
    "log": ("torch.log1p({x}.abs())", "torch.log({x} ** 2 + 1.0)"),
    "sqrt": ("torch.sqrt({x}.abs() + 1e-3)", "torch.sqrt({x} * {x} + 1.0)"),
    "reciprocal": ("1.0 / (1.0 + {x} ** 2)", "torch.reciprocal({x}.abs() + 0.5)"),
    "add_constant": ("{x} + {c}", "torch.add({x}, {c})"),
    "multiply_constant": ("{x} * {c}", "torch.mul({x}, {c})", "{c} * {x}"),
    "divide_constant": ("{x} / {c}",),
    "subtract_constant": ("{x} - {c}", "{c} - {x}"),
    "clamp": ("torch.clamp({x}, -{c}, {c})", "{x}.clamp(min=-{c})", "torch.clamp({x}, max={c})"),
    "where": ("torch.where({x} > {c}, {x}, torch.zeros_like({x}))", "torch.where({x}.abs() < {c}, {x}, {x} * 0.5)"),
    "sign": ("torch.sign({x}) * torch.sqrt({x}.abs() + 0.01)",),
}
"""Name to the ways of writing it. ``nn....()`` becomes a layer; ``{c}`` is a number."""

TWO: Final = {
    "add": ("{x} + {y}", "torch.add({x}, {y})"), "multiply": ("{x} * {y}", "torch.mul({x}, {y})"), "subtract": ("{x} - {y}", "{y} - {x}"),
    "maximum": ("torch.maximum({x}, {y})",), "minimum": ("torch.minimum({x}, {y})",), "lerp": ("torch.lerp({x}, {y}, 0.3)",),
    "gate": ("{x} * torch.sigmoid({y})", "F.silu({x}) * {y}"), "divide": ("{x} / ({y}.abs() + 1.0)",), "distance": ("({x} - {y}) ** 2",),
}  # fmt: skip

REDUCTIONS: Final = {
    "sum": ("torch.sum({x}, dim={d}{k})", "{x}.sum(dim={d}{k})"), "mean": ("torch.mean({x}, dim={d}{k})", "{x}.mean({d}{k})"),
    "max": ("torch.max({x}, dim={d}{k})[0]", "{x}.amax(dim={d}{k})"), "min": ("torch.min({x}, dim={d}{k}).values", "{x}.amin(dim={d}{k})"),
    "logsumexp": ("torch.logsumexp({x}, dim={d}{k})",), "norm": ("torch.norm({x}, p=2, dim={d}{k})", "{x}.norm(dim={d}{k})"),
    "variance": ("torch.var({x}, dim={d}{k})",), "standard_deviation": ("{x}.std(dim={d}, unbiased=False{k})",),
    "argmax": ("torch.argmax({x}, dim={d}{k})",),
}  # fmt: skip

LOSSES: Final = {
    "mse_loss": "F.mse_loss({x}, {y})", "l1_loss": "F.l1_loss({x}, {y})", "smooth_l1_loss": "F.smooth_l1_loss({x}, {y}, beta=0.5)",
    "huber_loss": "F.huber_loss({x}, {y})", "hinge_loss": "torch.mean(torch.clamp(1 - {x} * {y}, min=0))",
    "bce_with_logits": "F.binary_cross_entropy_with_logits({x}, torch.sigmoid({y}))", "log_cosh": "torch.log(torch.cosh({x} - {y})).mean()",
    "kl_divergence": "F.kl_div(F.log_softmax({x}, dim=-1), F.softmax({y}, dim=-1), reduction='batchmean')",
    "cosine_loss": "(1 - F.cosine_similarity({x}, {y}, dim=-1)).mean()", "soft_margin": "torch.log1p(torch.exp(-{x} * {y})).mean()",
}  # fmt: skip

CHANNEL_AXIS: Final[dict[Kind, int]] = {"rows": 1, "sequence": 2, "signal": 1, "image": 1, "volume": 1}
SPATIAL: Final[dict[Kind, int]] = {"signal": 1, "image": 2, "volume": 3}


def written(m: ModuleText, ways: tuple[str, ...]) -> str:
    """One of the ways, more often in the style of the module."""
    liked = {"layers": "nn.", "functional": "F.", "methods": "{x}"}[m.style.prefer]
    fitting = [w for w in ways if w.startswith(liked)]
    return m.rng.choice(fitting if fitting and m.rng.random() < 0.7 else list(ways))


def number(m: ModuleText) -> str:
    """A factor or a bound, as text."""
    return str(m.rng.choice((0.1, 0.25, 0.5, 1.5, 2.0, 3.0, round(m.rng.uniform(0.05, 4), 2))))


def pointwise(m: ModuleText, v: Value) -> Value | None:
    """A function of each element."""
    name = m.rng.choice(list(POINTWISE))
    way = written(m, POINTWISE[name])
    if way.startswith("nn."):
        return m.step(name, f"{m.layer(m.rng.choice((name, 'activation', 'act')), way)}({v.text})", v)
    return m.step(name, way.format(x=v.text, c=number(m)), v)


def two_inputs(m: ModuleText, v: Value) -> Value | None:
    """A function of each element of two tensors."""
    y = m.other(v)
    name = m.rng.choice(list(TWO))
    return None if y is None else m.step(name, m.rng.choice(TWO[name]).format(x=v.text, y=y), v)


def learned(m: ModuleText, v: Value) -> Value | None:
    """A parameter for each channel, added or multiplied."""
    if v.kind not in CHANNEL_AXIS:
        return None
    after = len(v.dims) - 1 - CHANNEL_AXIS[v.kind]
    shape = ", ".join([m.of_constructor(v.dims[CHANNEL_AXIS[v.kind]]), *["1"] * after])
    name, form = m.rng.choice((("bias", "{x} + {p}"), ("scale", "{x} * {p}"), ("shift", "{x} - {p}")))
    made = m.layer(name, f"nn.Parameter(torch.{m.rng.choice(('randn', 'rand'))}({shape}))")
    return m.step(name, form.format(x=v.text, p=made), v)


def softmax(m: ModuleText, v: Value) -> Value | None:
    """Softmax or log-softmax over the channels or the last dimension."""
    if v.kind in ("scalar", "vector"):
        return None
    dim = m.rng.choice((-1, CHANNEL_AXIS[v.kind]))
    log = m.rng.random() < 0.3
    layer, plain = ("nn.LogSoftmax", "log_softmax") if log else ("nn.Softmax", "softmax")
    ways = (f"{layer}(dim={dim})", f"F.{plain}({{x}}, dim={dim})", f"torch.{plain}({{x}}, dim={dim})", f"{{x}}.{plain}({dim})")
    way = written(m, ways)
    made = f"{m.layer(plain, way)}({v.text})" if way.startswith("nn.") else way.format(x=v.text)
    return m.step(plain, made, v)


def normalize(m: ModuleText, v: Value) -> Value | None:
    """A normalisation that fits the kind."""
    if v.kind not in CHANNEL_AXIS:
        return None
    channels = v.dims[CHANNEL_AXIS[v.kind]]
    c = m.of_constructor(channels)
    made: list[tuple[str, str]] = []
    if v.kind in ("rows", "sequence"):
        made += [("layer_norm", f"nn.LayerNorm({c})"), ("rms_norm", f"nn.RMSNorm({c})")]
        made.append(("l2_normalize", "F.normalize({x}, dim=-1)"))
        made.append(("rms", "{x} * torch.rsqrt({x}.pow(2).mean(-1, keepdim=True) + 1e-6)"))
    else:
        d = SPATIAL[v.kind]
        made += [("batch_norm", f"nn.BatchNorm{d}d({c})"), ("instance_norm", f"nn.InstanceNorm{d}d({c})")]
        if channels.value % 8 == 0:
            made.append(("group_norm", f"nn.GroupNorm({{groups}}, {c})"))
    if v.kind == "rows":
        made.append(("batch_norm", f"nn.BatchNorm1d({c})"))
    name, text = m.rng.choice(made)
    if name == "group_norm":
        text = text.format(groups=m.parameter("num_groups", m.rng.choice((4, 8))))
    return m.step(name, f"{m.layer(name, text)}({v.text})" if text.startswith("nn.") else text.format(x=v.text), v)


def linear(m: ModuleText, v: Value) -> Value | None:
    """A linear layer over the last dimension, or a product with a parameter or a second input."""
    if v.kind not in ("rows", "sequence"):
        return None
    inner = v.dims[-1]
    hint = m.rng.choice(("out_features", "hidden_size", "hidden_features", "dim_out"))
    out = m.constant(hint, m.rng.choice((64, 128, 256, 512, 1024, 2048)))
    way = m.rng.random()
    if way < 0.15 and inner.constant and v.kind == "rows":
        w = m.input(m.rng.choice(("weight", "w", "B")), (inner, out))
        made = m.rng.choice((f"torch.matmul({v.text}, {w})", f"{v.text} @ {w}", f"torch.mm({v.text}, {w})"))
        return m.step("matmul", made, v, dims=(*v.dims[:-1], out))
    a, b = m.of_constructor(inner), m.of_constructor(out)
    if way < 0.3:
        w = m.layer("weight", f"nn.Parameter(torch.randn({b}, {a}) * 0.05)")
        made = m.rng.choice((f"F.linear({v.text}, {w})", f"torch.matmul({v.text}, {w}.T)", f"{v.text} @ {w}.t()"))
        return m.step("linear", made, v, dims=(*v.dims[:-1], out))
    bias = m.rng.choice(("", "", ", bias=False"))
    layer = m.layer(m.rng.choice(("linear", "fc", "proj", "gemm")), f"nn.Linear({a}, {b}{bias})")
    return m.step("linear", f"{layer}({v.text})", v, dims=(*v.dims[:-1], out))


def convolve(m: ModuleText, v: Value) -> Value | None:
    """A convolution, plain, grouped by channel, or transposed."""
    if v.kind not in SPATIAL:
        return None
    d = SPATIAL[v.kind]
    c = v.dims[1]
    kernel = m.rng.choice((1, 3, 3, 3, 5) if d < 3 else (1, 3, 3))
    if min(s.value for s in v.dims[2:]) < kernel + 2:
        return None
    k = m.parameter("kernel_size", kernel)
    kind = m.rng.choices(("conv", "depthwise", "transposed"), (0.7, 0.15, 0.15))[0]
    a = m.of_constructor(c)
    pad = m.rng.choice((0, kernel // 2))
    stride = m.rng.choice((1, 1, 2))
    extra = (f", stride={stride}" if stride > 1 else "") + (f", padding={pad}" if pad else "") + m.rng.choice(("", "", ", bias=False"))
    if kind == "depthwise":
        out, text = c, f"nn.Conv{d}d({a}, {a}, {k}{extra}, groups={a})"
    else:
        out = m.constant(m.rng.choice(("out_channels", "channels", "width")), m.rng.choice((16, 32, 64, 128)))
        text = f"nn.Conv{'Transpose' if kind == 'transposed' else ''}{d}d({a}, {m.of_constructor(out)}, {k}{extra})"
    layer = m.layer(m.rng.choice(("conv", f"conv{d}d")), text)
    if kind == "transposed":
        sizes = [Dim((s.value - 1) * stride - 2 * pad + kernel) for s in v.dims[2:]]
    else:
        sizes = [Dim((s.value + 2 * pad - kernel) // stride + 1) for s in v.dims[2:]]
    return m.step(f"{kind}{d}d", f"{layer}({v.text})", v, dims=(v.dims[0], out, *sizes))


def pool(m: ModuleText, v: Value) -> Value | None:
    """Pooling with a window of two or three."""
    if v.kind not in SPATIAL or min(s.value for s in v.dims[2:]) < 6:
        return None
    d, window = SPATIAL[v.kind], m.rng.choice((2, 3))
    name = m.rng.choice(("max_pool", "avg_pool"))
    ways = (f"nn.{'MaxPool' if name == 'max_pool' else 'AvgPool'}{d}d({window})", f"F.{name}{d}d({{x}}, {window})")
    way = written(m, ways)
    made = f"{m.layer(m.rng.choice(('pool', name)), way)}({v.text})" if way.startswith("nn.") else way.format(x=v.text)
    return m.step(name, made, v, dims=(*v.dims[:2], *(Dim(s.value // window) for s in v.dims[2:])))


def global_pool(m: ModuleText, v: Value) -> Value | None:
    """The mean over all places, as rows."""
    if v.kind not in SPATIAL:
        return None
    d = SPATIAL[v.kind]
    over = ", ".join(str(2 + i) for i in range(d))
    ways = (f"F.adaptive_avg_pool{d}d({{x}}, 1).flatten(1)", f"torch.mean({{x}}, dim=[{over}])", f"{{x}}.mean(dim=({over},))")
    return m.step("global_average_pool", m.rng.choice(ways).format(x=v.text), v, "rows", v.dims[:2])


def reduce(m: ModuleText, v: Value) -> Value | None:
    """A reduction over one dimension."""
    if v.kind in ("scalar", "vector"):
        return None
    name = m.rng.choice(list(REDUCTIONS))
    dim = m.rng.randrange(1, len(v.dims))
    keep = m.rng.random() < 0.4 and name != "argmax"
    axis = dim if m.rng.random() < 0.6 else dim - len(v.dims)
    text = written(m, REDUCTIONS[name]).format(x=v.text, d=axis, k=", keepdim=True" if keep else "")
    dims = tuple(Dim(1) if i == dim else d for i, d in enumerate(v.dims) if keep or i != dim)
    if keep:
        return m.step(name, text, v, dims=dims)
    kinds: dict[Kind, Kind] = {"rows": "vector", "sequence": "rows", "signal": "rows", "image": "signal", "volume": "image"}
    if name == "argmax":  # nothing but an end can follow whole numbers
        return m.step(name, text, v, "scalar", ())
    return m.step(name, text, v, kinds[v.kind], dims)


def scan(m: ModuleText, v: Value) -> Value | None:
    """A cumulative sum."""
    if v.kind not in ("rows", "sequence"):
        return None
    dim = m.rng.randrange(1, len(v.dims))
    return m.step("cumsum", m.rng.choice((f"torch.cumsum({v.text}, dim={dim})", f"{v.text}.cumsum({dim})")), v)


def gated(m: ModuleText, v: Value) -> Value | None:
    """The last dimension in two halves, one of which gates the other."""
    if v.kind not in ("rows", "sequence") or v.dims[-1].value % 2 or v.dims[-1].value < 16:
        return None
    ways = (f"F.glu({v.text}, dim=-1)", f"{v.text}.chunk(2, dim=-1)[0] * torch.sigmoid({v.text}.chunk(2, dim=-1)[1])")
    return m.step("glu", m.rng.choice(ways), v, dims=(*v.dims[:-1], Dim(v.dims[-1].value // 2)))


def transpose(m: ModuleText, v: Value) -> Value | None:
    """Positions and features change places."""
    if v.kind not in ("sequence", "signal"):
        return None
    ways = (f"{v.text}.transpose(1, 2)", f"{v.text}.permute(0, 2, 1)", f"torch.transpose({v.text}, 1, 2).contiguous()")
    return m.step("transpose", m.rng.choice(ways), v, "signal" if v.kind == "sequence" else "sequence", (v.dims[0], v.dims[2], v.dims[1]))


def attention(m: ModuleText, v: Value) -> Value | None:
    """Attention of a sequence to itself."""
    if v.kind != "sequence" or not all(d.constant for d in v.dims):
        return None
    k, w = m.input("key", v.dims), m.input("value", v.dims)
    causal = m.rng.choice(("", ", is_causal=True"))
    ways = [f"F.scaled_dot_product_attention({v.text}, {k}, {w}{causal})"]
    if not causal:
        ways.append(f"torch.softmax({v.text} @ {k}.transpose(-2, -1) / {v.dims[2].value ** 0.5:.4g}, dim=-1) @ {w}")
    return m.step("attention", m.rng.choice(ways), v)


def shortcut(m: ModuleText, v: Value) -> Value | None:
    """A function of the value, added to the value itself."""
    name = m.rng.choice(("relu", "gelu", "silu", "tanh", "sigmoid"))
    way = m.rng.choice([w for w in POINTWISE[name] if not w.startswith("nn.")])
    return m.step("residual", f"{v.text} + {way.format(x=v.text, c='1.0')}", v)


def loss(m: ModuleText, v: Value) -> Value | None:
    """A loss against a second input: the end of a module."""
    if v.kind not in ("rows", "sequence", "image", "signal"):
        return None
    y = m.other(v)
    name = m.rng.choice(list(LOSSES))
    return None if y is None else m.step(name, LOSSES[name].format(x=v.text, y=y), v, "scalar", ())


def cross_entropy(m: ModuleText, v: Value) -> Value | None:
    """Cross entropy against labels: the end of a module."""
    if v.kind != "rows" or not all(d.constant for d in v.dims):
        return None
    classes = v.dims[1].value if m.style.inline else v.dims[1].constant
    target = m.input("target", v.dims[:1], f"torch.randint(0, {classes}, ({{shape}},))")
    return m.step("cross_entropy", f"F.cross_entropy({v.text}, {target})", v, "scalar", ())


OPERATORS: Final[dict[Operator, float]] = {
    pointwise: 9, two_inputs: 3, learned: 2, softmax: 2, normalize: 3, linear: 5, convolve: 6, pool: 2, global_pool: 1, reduce: 2, scan: 1,
    gated: 1, transpose: 1, attention: 1, shortcut: 1,
}  # fmt: skip
"""What may come at any place, with how often."""
ENDS: Final[dict[Operator, float]] = {loss: 3, cross_entropy: 2, reduce: 3, softmax: 1}
"""What may come last."""


def applied(m: ModuleText, value: Value, table: dict[Operator, float]) -> Value | None:
    """What an operator makes, drawn by the table's weights, out of those that fit the value. None: none of them fits."""
    left = dict(table)
    while left:
        operator = m.rng.choices(list(left), list(left.values()))[0]
        made = operator(m, value)
        if made is not None:
            return made
        del left[operator]
    return None
