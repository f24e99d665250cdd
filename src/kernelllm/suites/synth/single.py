"""One operator with all that may be said about it: layouts, windows, strides, groups, dimensions. Half of the problems are such ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kernelllm.suites.synth.grammar import CHANNEL_AXIS, LOSSES, POINTWISE, REDUCTIONS, SPATIAL, number, written
from kernelllm.suites.synth.module_text import Constant, Dim, Kind, ModuleText, Value
from kernelllm.suites.synth.operator_parts import LARGE, NAMES, SIZES, SMALL, Option, layer_with, setting, start, windows

_PREDICTIONS: Final = (("predictions", "targets"), ("input", "target"), ("pred", "target"), ("x", "y"), ("logits", "labels"), ("a", "b"))


def single(m: ModuleText) -> Value:
    """A module of one operator."""
    return m.rng.choices(list(FAMILIES), list(FAMILIES.values()))[0](m)


def activation(m: ModuleText) -> Value:
    """A function of each element."""
    v = start(m, "rows", "rows", "rows", "sequence", "image", "signal")
    name = m.rng.choice([*POINTWISE, "leaky_relu", "elu", "hardtanh", "softplus", "prelu", "softshrink", "threshold", *["new_gelu"] * 2])
    slope = m.rng.choice((0.01, 0.05, 0.1, 0.2, 0.3, 0.5))
    optional: dict[str, tuple[str, dict[str, Option]]] = {
        "leaky_relu": ("LeakyReLU", {"negative_slope": (slope, 0.01)}), "elu": ("ELU", {"alpha": (m.rng.choice((0.5, 1.0, 1.5)), 1.0)}),
        "hardtanh": ("Hardtanh", {"min_val": (-m.rng.choice((0.5, 1.0, 2.0)), -1.0), "max_val": (m.rng.choice((1.0, 1.5, 3.0)), 1.0)}),
        "softplus": ("Softplus", {"beta": (m.rng.choice((0.5, 1, 2)), 1), "threshold": (20, 20)}),
        "softshrink": ("Softshrink", {"lambd": (slope, 0.5)}), "prelu": ("PReLU", {"init": (slope, 0.25)}),
    }  # fmt: skip
    if name in optional and (name not in POINTWISE or m.rng.random() < 0.5):
        kind, options = optional[name]
        return m.step(name, f"{layer_with(m, kind, (), options, name)}({v.text})", v)
    if name == "threshold":
        return m.step(name, f"F.threshold({v.text}, {setting(m, 'threshold', slope)}, {setting(m, 'value', 0.0)})", v)
    if name == "new_gelu":
        cube = m.rng.choice(("torch.pow({x}, 3.0)", "{x} ** 3", "{x} * {x} * {x}")).format(x=v.text)
        factor = m.rng.choice(("0.7978845608028654", "math.sqrt(2.0 / math.pi)", "math.sqrt(2 / math.pi)"))
        inner = f"{factor} * ({v.text} + 0.044715 * {cube})"
        return m.step(
            name, m.rng.choice((f"0.5 * {v.text} * (1.0 + torch.tanh({inner}))", f"{v.text} * 0.5 * (torch.tanh({inner}) + 1)")), v
        )
    way = written(m, POINTWISE[name])
    if way.startswith("nn."):
        return m.step(name, f"{m.layer(m.rng.choice((name, 'activation', 'act')), way)}({v.text})", v)
    return m.step(name, way.format(x=v.text, c=number(m)), v)


_MATMUL: Final = ("torch.matmul({a}, {b})", "{a} @ {b}")
PRODUCTS: Final[dict[str, tuple[str, str, tuple[str, ...]]]] = {
    "matmul": ("MK", "KN", (*_MATMUL, "torch.mm({a}, {b})", "{a}.matmul({b})", "torch.einsum('ik,kj->ij', {a}, {b})")),
    "matmul of a transposed": ("KM", "KN", ("torch.matmul({a}.T, {b})", "{a}.t() @ {b}", "torch.mm({a}.transpose(0, 1), {b})")),
    "matmul with a transposed": ("MK", "NK", ("torch.matmul({a}, {b}.T)", "{a} @ {b}.t()", "F.linear({a}, {b})", "torch.mm({a}, {b}.T)")),
    "matmul of two transposed": ("KM", "NK", ("torch.matmul({a}.T, {b}.T)", "{a}.t() @ {b}.t()", "({b} @ {a}).T")),
    "batched matmul": ("BMK", "BKN", (*_MATMUL, "torch.bmm({a}, {b})", "torch.einsum('bik,bkj->bij', {a}, {b})")),
    "batched matmul with a transposed": (
        "BMK", "BNK", ("torch.bmm({a}, {b}.transpose(1, 2))", "{a} @ {b}.mT", "torch.einsum('bik,bjk->bij', {a}, {b})"),
    ),
    "batched matmul of a transposed": ("BKM", "BKN", ("torch.bmm({a}.transpose(1, 2), {b})", "torch.matmul({a}.permute(0, 2, 1), {b})")),
    "heads matmul": ("BHMK", "BHKN", ("torch.matmul({a}, {b})", "{a} @ {b}", "torch.einsum('bhik,bhkj->bhij', {a}, {b})")),
    "matmul of three dimensions": ("BMK", "KN", ("torch.matmul({a}, {b})", "{a} @ {b}", "torch.einsum('bmk,kn->bmn', {a}, {b})")),
    "matmul of four dimensions": ("BHMK", "KN", ("torch.einsum('bijl,lk->bijk', {a}, {b})", "torch.matmul({a}, {b})")),
    "matrix-vector product": ("MK", "K", ("torch.mv({a}, {b})", "torch.matmul({a}, {b})", "{a} @ {b}")),
    "product with a column": ("MK", "K1", ("torch.matmul({a}, {b})", "{a} @ {b}")),
    "outer product": ("M", "N", ("torch.outer({a}, {b})", "{a}[:, None] * {b}[None, :]", "torch.einsum('i,j->ij', {a}, {b})")),
    "product with a diagonal": ("M", "MN", ("torch.diag({a}) @ {b}", "{a}.unsqueeze(1) * {b}", "torch.matmul(torch.diag({a}), {b})")),
    "upper triangle of a product": ("MM", "MM", ("torch.triu(torch.matmul({a}, {b}))", "({a} @ {b}).triu()")),
    "lower triangle of a product": ("MM", "MM", ("torch.tril(torch.matmul({a}, {b}))", "torch.tril({a} @ {b})")),
    "matmul of squares": ("MM", "MM", ("torch.matmul({a}, {b})", "{a} @ {b}", "torch.mm({a}, {b})")),
    "sum of rows' products": ("MK", "MK", ("torch.sum({a} * {b}, dim=1)", "torch.einsum('ik,ik->i', {a}, {b})", "({a} * {b}).sum(-1)")),
}  # fmt: skip
"""Dimensions of the first and of the second input, and the ways of writing it."""


def product(m: ModuleText) -> Value:
    """A product of matrices, in one of the layouts that people have."""
    if m.rng.random() < 0.2:
        return m.rng.choice((_linear, _linear, _with_number, _with_number))(m)
    often = ("upper triangle of a product", "lower triangle of a product", "matmul of squares")
    name = m.rng.choice([*PRODUCTS, "matmul", "matmul with a transposed", "matmul of a transposed", "batched matmul", *often])
    left, right, ways = PRODUCTS[name]
    sizes = (16, 32, 50, 64, 100, 128, 205, 256, 333, 512, 1000, 1024, 2048)
    names = {letter: letter for letter in "MNKBH"}
    if m.rng.random() < 0.3:
        names |= {"M": "rows", "N": "cols", "K": "inner", "B": "batch_size", "H": "heads"}
    most = 6 if "B" in left else len(sizes)
    dims = {c: m.constant(names[c], m.rng.choice(SMALL if c in "BH" else sizes[:most])) for c in dict.fromkeys(left + right) if c != "1"}
    dims["1"] = Dim(1)
    a, b = m.rng.choice((("A", "B"), ("A", "B"), ("x", "y"), ("a", "b"), ("x", "weight"), ("left", "right"), ("q", "k")))
    draw = ""
    if left == right == "MM" and m.rng.random() < 0.6:
        part = "triu" if "upper" in name else "tril"
        squares = "(torch.rand({shape}) + torch.rand({shape}).T) / 2"
        draw = squares if name == "matmul of squares" else f"torch.{part}(torch.randn({{shape}}))"
    first, second = (m.input(hint, tuple(dims[c] for c in letters), draw) for hint, letters in ((a, left), (b, right)))
    return m.step(name, m.rng.choice(ways).format(a=first, b=second), Value("out", "rows", ()))


def _with_number(m: ModuleText) -> Value:
    """A tensor and a number that the forward is given."""
    v = start(m, "rows", "rows", "sequence")
    given = m.input(m.rng.choice(("scalar", "factor", "c", "scale", "alpha")), (), str(round(m.rng.uniform(0.2, 5), 2)))
    ways = ("{x} * {s}", "{s} * {x}", "torch.mul({x}, {s})", "{x} + {s}", "{x} / {s}", "{x} - {s}", "torch.clamp({x} * {s}, min=0.0)")
    return m.step("scaled by a number", m.rng.choice(ways).format(x=v.text, s=given), v)


def _linear(m: ModuleText) -> Value:
    v = start(m, "rows", "sequence")
    out = m.constant(m.rng.choice(("out_features", "hidden_size", "dim_out")), m.rng.choice(LARGE))
    needed = (m.of_constructor(v.dims[-1]), m.of_constructor(out))
    return m.step("linear", f"{layer_with(m, 'Linear', needed, {'bias': (m.rng.random() < 0.6, True)}, 'linear')}({v.text})", v)


def norm(m: ModuleText) -> Value:
    """A normalisation."""
    name = m.rng.choice(("batch", "batch", "instance", "instance", "group", "group", "layer", "layer", "rms", "rms", "lp", "lp", "formula"))
    kinds: dict[str, tuple[Kind, ...]] = {"batch": ("rows", "signal", "image", "volume"), "instance": ("signal", "image", "volume")}
    v = start(m, *kinds.get(name, ("image", "sequence", "rows")))
    c = v.dims[CHANNEL_AXIS[v.kind]]
    eps: dict[str, Option] = {"eps": (m.rng.choice((1e-5, 1e-5, 1e-6, 1e-3)), 1e-5)}
    if name in ("batch", "instance"):
        kind = f"{'BatchNorm' if name == 'batch' else 'InstanceNorm'}{SPATIAL.get(v.kind, 1)}d"
        options = eps | ({"affine": (m.rng.random() < 0.5, False)} if name == "instance" else {"affine": (m.rng.random() < 0.8, True)})
        return m.step(f"{name} norm", f"{layer_with(m, kind, [m.of_constructor(c)], options, 'norm')}({v.text})", v)
    if name == "group" and v.kind == "image":
        groups = m.parameter("num_groups", m.rng.choice([g for g in (1, 2, 3, 4, 5, 8) if c.value % g == 0]))
        return m.step("group norm", f"{layer_with(m, 'GroupNorm', [groups, m.of_constructor(c)], eps, 'norm')}({v.text})", v)
    if name == "layer":
        last = v.dims[-m.rng.choice((1, 1, len(v.dims) - 1)) :]
        texts = [m.of_constructor(d) for d in last]
        shape = texts[0] if len(texts) == 1 else f"({', '.join(texts)})"
        return m.step("layer norm", f"{layer_with(m, 'LayerNorm', [shape], eps, 'norm')}({v.text})", v)
    if name == "rms" and v.kind != "image" and m.rng.random() < 0.3:
        return m.step("rms norm", f"{layer_with(m, 'RMSNorm', [m.of_constructor(c)], eps, 'norm')}({v.text})", v)
    dim = setting(m, "dim", m.rng.choice((1, 1, -1) if v.kind == "image" else (-1, 1, len(v.dims) - 1)))
    e = setting(m, "eps", eps["eps"][0])
    inner, outer = m.rng.choice(_DIVIDED[name if name in _DIVIDED else "lp"])
    inner, kind = inner.format(x=v.text, d=dim, e=e), "rms norm" if name == "rms" else "normalize"
    if m.rng.random() < 0.5 and "{n}" in outer:
        given = m.name(m.rng.choice(("norm", "rms", "scale", "denom", "total")))
        m.steps.append(f"{given} = {inner}")
        inner = given
    elif "{n}" in outer:
        inner = f"({inner})" if inner.count(" + ") else inner
    return m.step(kind, outer.format(x=v.text, d=dim, e=e, n=inner), v)


_DIVIDED: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "rms": (
        ("torch.sqrt(torch.mean({x} ** 2, dim={d}, keepdim=True) + {e})", "{x} / {n}"),
        ("torch.rsqrt({x}.pow(2).mean({d}, keepdim=True) + {e})", "{x} * {n}"),
        ("({x} * {x}).mean(dim={d}, keepdim=True).add({e}).sqrt()", "{x} / {n}"),
    ),
    "lp": (
        ("torch.norm({x}, p=2, dim={d}, keepdim=True)", "{x} / {n}"), ("torch.norm({x}, p=1, dim={d}, keepdim=True)", "{x} / {n}"),
        ("torch.mean(torch.abs({x}), dim={d}, keepdim=True)", "{x} / {n}"),
        ("torch.sum(torch.abs({x}), dim={d}, keepdim=True)", "{x} / {n}"),
        ("{x}.norm()", "{x} / {n}"), ("torch.sum({x} ** 2).sqrt()", "{x} / {n}"), ("torch.norm({x}, p='fro')", "{x} / {n}"),
        ("torch.norm({x})", "{x} / ({n} + {e})"), ("{x}.abs().sum(dim={d}, keepdim=True)", "{x} / {n}"),
        ("{x}.norm(p=2, dim={d}, keepdim=True)", "{x} / {n}.clamp(min={e})"), ("{x}.abs().amax(dim={d}, keepdim=True)", "{x} / {n}"),
        ("torch.max(torch.abs({x}))", "{x} / {n}"), ("torch.linalg.norm({x}, dim={d}, keepdim=True)", "{x} / {n}"),
        ("", "F.normalize({x}, p=2.0, dim={d})"), ("", "F.normalize({x}, p=1.0, dim={d})"), ("", "F.normalize({x}, dim={d})"),
    ),
    "formula": (
        ("{x}.mean({d}, keepdim=True)", "({x} - {n}) / ({x}.std({d}, keepdim=True) + {e})"),
        ("{x}.mean({d}, keepdim=True)", "({x} - {n}) * torch.rsqrt({x}.var({d}, unbiased=False, keepdim=True) + {e})"),
        ("{x}.mean(dim={d}, keepdim=True)", "{x} - {n}"), ("{x}.mean()", "({x} - {n}) / ({x}.std() + {e})"),
        ("{x}.amin({d}, keepdim=True)", "({x} - {n}) / ({x}.amax({d}, keepdim=True) - {x}.amin({d}, keepdim=True) + {e})"),
    ),
}  # fmt: skip
"""Norms by hand: what the input is divided by or moved by, and how."""


def pooling(m: ModuleText) -> Value:
    """Pooling of one, two or three dimensions."""
    v = start(m, "signal", "image", "image", "volume")
    d = SPATIAL[v.kind]
    if m.rng.random() < 0.12:
        kind, to = m.rng.choice(("AdaptiveAvgPool", "AdaptiveMaxPool")), m.rng.choice((1, 1, 2, 4))
        return m.step(f"adaptive pooling {d}d", f"{m.layer('pool', f'nn.{kind}{d}d({to})')}({v.text})", v)
    largest = m.rng.random() < 0.5
    size = m.rng.choice((2, 2, 3, 3, 4, 5, 7) if d < 3 else (2, 3))
    pad = m.rng.choice((0, 0, size // 2))
    options: dict[str, Option] = {"stride": (m.rng.choice((None, 1, 2, size)), None), "padding": (pad, 0)}
    if largest:
        options["dilation"] = (m.rng.choice((1, 1, 1, 2, 3)), 1)
    elif pad:
        options["count_include_pad"] = (m.rng.random() < 0.7, True)
    kind = f"{'Max' if largest else 'Avg'}Pool{d}d"
    if m.rng.random() < 0.2:
        given = "".join(f", {k}={o!r}" for k, (o, default) in options.items() if o != default)
        plain = f"F.{'max' if largest else 'avg'}_pool{d}d"
        return m.step(f"{plain[2:]}", f"{plain}({v.text}, {size}{given})", v)
    return m.step(
        f"{'max' if largest else 'average'} pooling {d}d",
        f"{layer_with(m, kind, [m.parameter('kernel_size', size)], options, 'pool')}({v.text})",
        v,
    )


def reduction(m: ModuleText) -> Value:
    """A reduction over one dimension, or several."""
    v = start(m, "rows", "sequence", "sequence", "image")
    whole = ("torch.sum({x})", "{x}.mean()", "torch.max({x})", "{x}.min()", "torch.mean({x} ** 2)", "{x}.abs().sum()", "torch.norm({x})")
    if m.rng.random() < 0.1:
        return m.step("reduction of all", m.rng.choice(whole).format(x=v.text), Value("out", "scalar", ()))
    more = {
        "product": ("torch.prod({x}, dim={d}{k})",), "argmin": ("torch.argmin({x}, dim={d}{k})", "{x}.argmin({d}{k})"),
        "sum of absolutes": ("{x}.abs().sum(dim={d}{k})", "torch.norm({x}, p=1, dim={d}{k})"),
        "maximum": ("torch.amax({x}, dim={d}{k})",),
        "sum of squares": ("torch.sum({x} ** 2, dim={d}{k})", "{x}.square().sum({d}{k})"),
    }  # fmt: skip
    table = {**REDUCTIONS, **more}
    name = m.rng.choice(list(table))
    dim: Constant = m.rng.randrange(1, len(v.dims)) if m.rng.random() < 0.8 else 0
    if name in ("sum", "mean") and len(v.dims) > 3 and m.rng.random() < 0.4:
        return m.step(
            f"{name} over two dimensions", written(m, table[name]).format(x=v.text, d=(2, 3), k=m.rng.choice(("", ", keepdim=True"))), v
        )
    if m.rng.random() < 0.4:
        dim = int(str(dim)) - len(v.dims)
    keep = m.rng.choice(("", "", ", keepdim=True"))
    return m.step(name, written(m, table[name]).format(x=v.text, d=setting(m, m.rng.choice(("dim", "dim", "axis")), dim), k=keep), v)


def convolution(m: ModuleText) -> Value:
    """A convolution: one to three dimensions, plain, by groups, by channel, of single places, transposed."""
    v = start(m, "signal", "image", "image", "image", "volume")
    d, c = SPATIAL[v.kind], v.dims[1]
    way = m.rng.choices(("plain", "transposed", "depthwise", "pointwise", "separable"), (0.36, 0.34, 0.14, 0.08, 0.08))[0]
    out = (
        c
        if way == "depthwise"
        else m.constant(m.rng.choice(("out_channels", "out_channels", "C_out", "filters")), m.rng.choice(SMALL[1:]))
    )
    stride = windows(m, d, (1, 1, 1, 2, 3) if way != "pointwise" else (1,))
    options: dict[str, Option] = {"stride": (stride, 1)}
    if way != "pointwise":
        options["padding"] = (windows(m, d, (0, 0, 1, 2)), 0)
        if way == "transposed" and m.rng.random() < 0.4:
            pairs = stride if isinstance(stride, tuple) else (stride,) * d
            extra = min(int(str(s)) for s in pairs) - 1
            options["output_padding"] = (m.rng.choice((0, extra)), 0)
        options["dilation"] = (windows(m, d, (1, 1, 1, 2) if d == 3 else (1, 1, 1, 2, 3)), 1)
    if way in ("plain", "transposed"):
        common = [g for g in (2, 4, 8) if c.value % g == 0 and out.value % g == 0]
        options["groups"] = (m.rng.choice(common) if common and m.rng.random() < 0.25 else 1, 1)
    elif way != "pointwise":
        options["groups"] = (c.value, 1)
    options["bias"] = (m.rng.random() < 0.4, True)
    kind = f"Conv{'Transpose' if way == 'transposed' else ''}{d}d"
    square = m.rng.random() < 0.2 and d > 1
    first, last = m.of_constructor(c), m.of_constructor(out)
    size = "1" if way == "pointwise" else m.parameter("kernel_size", windows(m, d, (2, 3, 3, 3, 4, 5, 7) if d < 3 else (2, 3, 3, 5)))
    if size.isidentifier() and square and isinstance(m.constants[size], int):
        size = f"({', '.join(m.rng.choice((size, size, size, '1')) if i else size for i in range(d))})"
    if way in ("depthwise", "separable"):
        del options["groups"]
        made = [f"{name}={value!r}" for name, (value, default) in options.items() if value != default]
        layer = m.layer("depthwise", f"nn.{kind}({', '.join([first, first, size, *made, f'groups={first}'])})")
        v = m.step(f"depthwise {kind}", f"{layer}({v.text})", v)
        if way == "depthwise":
            return v
        return m.step("pointwise", f"{m.layer('pointwise', f'nn.{kind}({first}, {last}, 1)')}({v.text})", v)
    return m.step(f"{way} {kind}", f"{layer_with(m, kind, [first, last, size], options, 'conv')}({v.text})", v)


_OF_ROWS: Final = ("cross entropy", "nll", "triplet", "kl_divergence", "kl divergence", "cosine_loss", "cosine distance")
"""Losses over the last dimension of two or more."""
_LOSS_LAYERS: Final[dict[str, tuple[str, dict[str, tuple[Constant, ...]]]]] = {
    "squared error": ("MSELoss", {}), "sum of squared errors": ("MSELoss", {}), "mse_loss": ("MSELoss", {}), "l1_loss": ("L1Loss", {}),
    "smooth_l1_loss": ("SmoothL1Loss", {"beta": (1.0, 0.5, 2.0)}), "huber_loss": ("HuberLoss", {"delta": (1.0, 0.5, 2.0)}),
    "triplet": ("TripletMarginLoss", {"margin": (1.0, 0.3, 0.5, 2.0)}), "bce_with_logits": ("BCEWithLogitsLoss", {}),
    "cross entropy": ("CrossEntropyLoss", {}), "soft_margin": ("SoftMarginLoss", {}), "poisson": ("PoissonNLLLoss", {}),
}  # fmt: skip
"""Losses that are layers as well, with what may be set and its default first."""


def losses(m: ModuleText) -> Value:
    """A loss of two or three inputs."""
    v_kind: Kind = m.rng.choice(("rows", "rows", "rows", "sequence"))
    dims = tuple(m.constant(n, m.rng.choice(s)) for n, s in zip(m.rng.choice(NAMES[v_kind]), SIZES[v_kind], strict=True))
    x, y = m.rng.choice(_PREDICTIONS)
    more = {
        "cross entropy": "F.cross_entropy({x}, {y})", "nll": "F.nll_loss(F.log_softmax({x}, dim=1), {y})",
        "triplet": "F.triplet_margin_loss({x}, {y}, {z}, margin=1.0)", "squared error": "torch.mean(({x} - {y}) ** 2)",
        "kl divergence": "F.kl_div(torch.log({x}), {y}, reduction='batchmean')",
        "sum of squared errors": "F.mse_loss({x}, {y}, reduction='sum')",
        "cosine distance": "torch.mean(1 - F.cosine_similarity({x}, {y}, dim=1))", "margin": "torch.clamp(1 - {x} * {y}, min=0).mean()",
        "hinge": "torch.mean(torch.clamp(1 - {x} * {y}, min=0))", "mean of squares": "(({x} - {y}) ** 2).mean()",
        "squared hinge": "torch.mean(torch.clamp(1 - {x} * {y}, min=0) ** 2)", "huber": "F.huber_loss({x}, {y}, delta=1.0)",
        "smooth l1": "F.smooth_l1_loss({x}, {y})", "root of squares": "torch.sqrt(torch.mean(({x} - {y}) ** 2))",
        "binary cross entropy": "F.binary_cross_entropy(torch.sigmoid({x}), torch.sigmoid({y}))",
        "l1": "torch.nn.functional.l1_loss({x}, {y})",
        "poisson": "F.poisson_nll_loss({x}, {y})", "absolute error": "({x} - {y}).abs().mean()",
    }  # fmt: skip
    table = {**LOSSES, **more}
    name = m.rng.choice(list(table))
    if name not in _OF_ROWS and m.rng.random() < 0.15:
        dims = dims[:1]
    draws = ("torch.softmax(torch.rand({shape}), dim=-1)", "torch.rand({shape}).softmax(dim=-1)")
    draw = m.rng.choice(draws) if name == "kl divergence" else m.rng.choice(("", "", "torch.rand({shape}) * 2.0"))
    first = m.input(x, dims, draw)
    if name in ("cross entropy", "nll"):
        classes = dims[1].value if m.style.inline else dims[1].constant
        second = m.input(y, dims[:1], f"torch.randint(0, {classes}, ({{shape}},))") if v_kind == "rows" else ""
        if not second:
            name, second = "squared error", m.input(y, dims)
    else:
        signs = "torch.randint(0, 2, ({shape},)).float() * 2 - 1"
        whole = name in _OF_ROWS or name == "binary cross entropy"
        like = dims[1:] if len(dims) == 2 and not whole and m.rng.random() < 0.12 else dims  # broadcast
        second = m.input(y, like, signs if name in ("margin", "hinge_loss", "soft_margin") and m.rng.random() < 0.6 else draw)
    third = m.input("negative", dims) if name == "triplet" else ""
    if name in _LOSS_LAYERS and m.rng.random() < 0.35:
        kind, options = _LOSS_LAYERS[name]
        made = layer_with(m, kind, (), {k: (m.rng.choice(values), values[0]) for k, values in options.items()}, "loss")
        return m.step(name, f"{made}({', '.join(filter(None, (first, second, third)))})", Value("loss", "scalar", ()))
    return m.step(name, table[name].format(x=first, y=second, z=third), Value("loss", "scalar", ()))


def scans(m: ModuleText) -> Value:
    """Cumulative sums and their like."""
    v = start(m, "rows", "rows", "sequence")
    dim = setting(m, "dim", m.rng.choice((1, 1, -1)))
    ways = {
        "cumsum": ("torch.cumsum({x}, dim={d})", "{x}.cumsum({d})"), "cumprod": ("torch.cumprod({x}, dim={d})", "{x}.cumprod({d})"),
        "reverse cumsum": ("torch.cumsum({x}.flip({d}), dim={d}).flip({d})",
                           "torch.flip(torch.cumsum(torch.flip({x}, [{d}]), dim={d}), [{d}])"),
        "exclusive cumsum": ("torch.cumsum({x}, dim={d}) - {x}",
                             "torch.cat([torch.zeros_like({x}[:, :1]), torch.cumsum({x}, dim=1)[:, :-1]], dim=1)",
                             "torch.cumsum(F.pad({x}[:, :-1], (1, 0)), dim=1)",
                             "torch.cumsum(torch.cat((torch.zeros_like({x}[:, :1]), {x}[:, :-1]), dim=1), dim=1)"),
        "running maximum": ("torch.cummax({x}, dim={d})[0]",),
        "masked cumsum": ("torch.cumsum({x} * {y}, dim={d})",),
        "log of a cumulative sum": ("torch.logcumsumexp({x}, dim={d})",),
    }  # fmt: skip
    name = m.rng.choice(["cumsum", "cumsum", *ways])
    mask = m.input("mask", v.dims, "torch.randint(0, 2, ({shape},)).bool()") if name == "masked cumsum" else ""
    return m.step(name, m.rng.choice(ways[name]).format(x=v.text, d=dim, y=mask), v)


def attention(m: ModuleText) -> Value:
    """Scaled attention of queries, keys and values."""
    heads = m.rng.random() < 0.7
    names = ("batch_size", "num_heads", "seq_len", "head_dim") if heads else ("batch_size", "seq_len", "dim")
    sizes = (
        ((1, 2, 4, 8, 16, 32), (2, 4, 8, 12, 16), (64, 128, 256, 512, 1024), (16, 32, 64, 128))
        if heads
        else ((2, 4, 8), (64, 128, 256), (32, 64, 128))
    )
    dims = tuple(m.constant(n, m.rng.choice(s)) for n, s in zip(names, sizes, strict=True))
    q, k, v = (m.input(n, dims) for n in m.rng.choice((("q", "k", "v"), ("Q", "K", "V"), ("query", "key", "value"))))
    causal = m.rng.choice(("", "", ", is_causal=True"))
    ways = (f"F.scaled_dot_product_attention({q}, {k}, {v}{causal})",
            f"torch.nn.functional.scaled_dot_product_attention({q}, {k}, {v}{causal})",
            f"torch.softmax({q} @ {k}.transpose(-2, -1) * {dims[-1].value ** -0.5:.6g}, dim=-1) @ {v}",
            f"torch.matmul(F.softmax(torch.matmul({q}, {k}.transpose(-1, -2)) / ({q}.shape[-1] ** 0.5), dim=-1), {v})")  # fmt: skip
    return m.step("attention", m.rng.choice(ways), Value("out", "rows", ()))


def softmaxes(m: ModuleText) -> Value:
    """Softmax, its logarithm, and what is like it."""
    v = start(m, "rows", "rows", "sequence", "image")
    dim = m.rng.choice((-1, 1))
    name = m.rng.choice(("softmax", "softmax", "log_softmax", "softmin"))
    layer = {"softmax": "Softmax", "log_softmax": "LogSoftmax", "softmin": "Softmin"}[name]
    ways = (
        [f"F.{name}({v.text}, dim={setting(m, 'dim', dim)})"]
        if m.rng.random() < 0.5
        else [f"{m.layer(name, f'nn.{layer}(dim={dim})')}({v.text})"]
    )
    if name != "softmin" and m.rng.random() < 0.4:
        ways = [f"torch.{name}({v.text}, dim={dim})", f"{v.text}.{name}({dim})"]
    return m.step(name, m.rng.choice(ways), v)


FAMILIES: Final[dict[Callable[[ModuleText], Value], float]] = {
    activation: 14, product: 12, norm: 24, pooling: 6, reduction: 18, convolution: 8, losses: 22, scans: 12, attention: 8, softmaxes: 8,
}  # fmt: skip
"""Families of single operators, with how often: what has many forms more often than what is one template with settings."""
