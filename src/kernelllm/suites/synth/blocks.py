"""Blocks of several layers: networks of rows, gated and plain, heads of attention, weighed channels, convolutions with a way around."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kernelllm.suites.synth.grammar import POINTWISE
from kernelllm.suites.synth.module_text import Dim, Kind, ModuleText, Value

_ACTIVATIONS: Final = ("relu", "gelu", "silu", "tanh", "sigmoid", "leaky_relu", "mish", "softplus", "elu", "hardswish")


def _activated(m: ModuleText, text: str) -> str:
    """A function of elements, as a layer or as a call."""
    name = m.rng.choice(_ACTIVATIONS)
    layers = [w for w in POINTWISE[name] if w.startswith("nn.")]
    if layers and m.style.prefer == "layers":
        return f"{m.layer(m.rng.choice(('act', 'activation', name)), layers[0])}({text})"
    plain = [w for w in POINTWISE[name] if not w.startswith("nn.") and w.count("{x}") == 1]
    return m.rng.choice(plain).format(x=text, c="1.0")


def _rows(m: ModuleText) -> tuple[Value, Dim]:
    kind: Kind = m.rng.choice(("rows", "rows", "sequence"))
    n = m.constant(m.rng.choice(("batch_size", "B", "N")), m.rng.choice((2, 4, 8, 16)))
    width = m.constant(m.rng.choice(("dim", "d_model", "in_features", "input_size", "n_in")), m.rng.choice((16, 32, 64, 96)))
    dims = (n, width) if kind == "rows" else (n, m.constant("seq_len", m.rng.choice((4, 8, 12))), width)
    return m.start(kind, dims), width


def _linear(m: ModuleText, hint: str, a: Dim, b: Dim) -> str:
    bias = m.rng.choice(("", "", ", bias=False"))
    return m.layer(hint, f"nn.Linear({m.of_constructor(a)}, {m.of_constructor(b)}{bias})")


def network(m: ModuleText) -> Value:
    """Two to four linear layers of different sizes with functions between them, and a way around now and then."""
    v, width = _rows(m)
    whole, last = v, width
    around = m.rng.random() < 0.4
    names = m.rng.choice((("fc1", "fc2", "fc3", "fc4"), ("up", "mid", "mid2", "down"), ("linear1", "linear2", "linear3", "linear4"),
                          ("encode", "inner", "inner2", "decode"), ("proj_in", "proj", "proj2", "proj_out")))  # fmt: skip
    if around:
        skip = m.name(m.rng.choice(("skip", "identity", "residual", "shortcut")))
        m.steps.append(f"{skip} = {v.text}")
    count = m.rng.choice((2, 2, 3, 4))
    if m.rng.random() < 0.4:
        v = _normed(m, v, last)
    for place in range(count):
        final = place == count - 1
        out = width
        if not (final and around):
            out = m.constant(m.rng.choice(("hidden", "hidden_dim", "inner", "out_features")), m.rng.choice((16, 24, 32, 48, 64)))
        made = f"{_linear(m, names[0 if not place else -1 if final else place], last, out)}({v.text})"
        last = out
        if not final and m.rng.random() < 0.5:
            made = _activated(m, made)
            v = m.step("linear", made, v, dims=(*v.dims[:-1], out))
            continue
        v = m.step("linear", made, v, dims=(*v.dims[:-1], out))
        if not final:
            v = m.step("activation", _activated(m, v.text), v)
    if not around:
        return v if m.rng.random() < 0.7 else _normed(m, v, last)
    scale = f" * {m.kept(m.parameter('scale', m.rng.choice((0.1, 0.5, 0.7))))}" if m.rng.random() < 0.35 else ""
    v = m.step("residual", m.rng.choice(("{s} + {x}{c}", "{x}{c} + {s}")).format(x=v.text, s=skip, c=scale), whole)
    return v if m.rng.random() < 0.7 else _normed(m, v, width)


def _normed(m: ModuleText, v: Value, width: Dim) -> Value:
    kind = m.rng.choice(("LayerNorm", "LayerNorm", "RMSNorm"))
    return m.step("norm", f"{m.layer(m.rng.choice(('norm', 'ln')), f'nn.{kind}({m.of_constructor(width)})')}({v.text})", v)


def gated_network(m: ModuleText) -> Value:
    """One product gates another, and a third leads back; or a product of low rank."""
    v, width = _rows(m)
    if m.rng.random() < 0.3:
        rank = m.constant("rank", m.rng.choice((2, 4, 8)))
        first, last = m.of_constructor(width), m.of_constructor(rank)
        down = m.layer(m.rng.choice(("A", "down", "lora_a")), f"nn.Parameter(torch.randn({first}, {last}) * 0.1)")
        up = m.layer(m.rng.choice(("B", "up", "lora_b")), f"nn.Parameter(torch.randn({last}, {first}) * 0.1)")
        text = m.rng.choice((f"({v.text} @ {down}) @ {up}", f"torch.matmul(torch.matmul({v.text}, {down}), {up})"))
        if m.rng.random() < 0.6:
            text = f"{text} * {m.kept(m.parameter(m.rng.choice(('scaling', 'alpha', 'scale')), m.rng.choice((0.5, 2.0, 4.0))))}"
        return m.step("low rank", f"{v.text} + {text}" if m.rng.random() < 0.5 else text, v)
    inner = m.constant(m.rng.choice(("hidden", "hidden_dim", "intermediate")), m.rng.choice((32, 48, 64)))
    a, b, c = m.rng.choice((("gate_proj", "up_proj", "down_proj"), ("w1", "w3", "w2"), ("gate", "value", "out")))
    gate, up = _linear(m, a, width, inner), _linear(m, b, width, inner)
    text = f"{_activated(m, f'{gate}({v.text})')} * {up}({v.text})"
    v = m.step("gated", text, v, dims=(*v.dims[:-1], inner))
    return m.step("linear", f"{_linear(m, c, inner, width)}({v.text})", v, dims=(*v.dims[:-1], width)) if m.rng.random() < 0.8 else v


def heads(m: ModuleText) -> Value:
    """Attention of a sequence to itself, with products before and behind it."""
    n, length = m.constant("batch_size", m.rng.choice((1, 2, 4))), m.constant("seq_len", m.rng.choice((16, 32, 48)))
    count, each = m.rng.choice((2, 4)), m.rng.choice((16, 32))
    width = m.constant(m.rng.choice(("embed_dim", "d_model", "dim")), count * each)
    v = m.start("sequence", (n, length, width))
    q, k, w = m.rng.choice((("q_proj", "k_proj", "v_proj"), ("query", "key", "value"), ("wq", "wk", "wv"), ("to_q", "to_k", "to_v")))
    names = [m.name(n) for n in ("q", "k", "v")]
    h = m.kept(m.parameter(m.rng.choice(("num_heads", "heads", "n_head")), count)) if m.rng.random() < 0.7 else str(count)
    if m.rng.random() < 0.3:
        for name, layer in zip(names, (q, k, w), strict=True):
            m.steps.append(f"{name} = {_linear(m, layer, width, width)}({v.text})")
    else:
        for name, layer in zip(names, (q, k, w), strict=True):
            cut = f".view({v.text}.shape[0], {v.text}.shape[1], {h}, -1).transpose(1, 2)"
            m.steps.append(f"{name} = {_linear(m, layer, width, width)}({v.text}){cut}")
        causal = m.rng.choice(("", ", is_causal=True"))
        v = m.step("attention", f"F.scaled_dot_product_attention({', '.join(names)}{causal})", Value("out", "sequence", v.dims))
        ways = ("{x}.transpose(1, 2).flatten(2)", "{x}.permute(0, 2, 1, 3).flatten(2)")
        v = m.step("heads together", m.rng.choice(ways).format(x=v.text), v)
        return m.step("linear", f"{_linear(m, m.rng.choice(('out_proj', 'proj', 'wo')), width, width)}({v.text})", v)
    causal = m.rng.choice(("", ", is_causal=True"))
    v = m.step("attention", f"F.scaled_dot_product_attention({', '.join(names)}{causal})", Value("out", "sequence", v.dims))
    return v if m.rng.random() < 0.5 else m.step("linear", f"{_linear(m, 'out_proj', width, width)}({v.text})", v)


def _image(m: ModuleText) -> tuple[Value, Dim]:
    c = m.constant(m.rng.choice(("channels", "in_channels", "dim")), m.rng.choice((8, 16, 32)))
    sides = [m.constant(name, m.rng.choice((8, 12))) for name in ("height", "width")]
    return m.start("image", (m.constant("batch_size", m.rng.choice((2, 4))), c, *sides), "x"), c


def channels_weighed(m: ModuleText) -> Value:
    """Each channel times a number that a small network makes of the channels' means; or means and maxima side by side."""
    v, c = _image(m)
    if m.rng.random() < 0.35:
        names = [m.name(n) for n in m.rng.choice((("mean", "peak"), ("avg", "top"), ("low", "high")))]
        ways = m.rng.sample(("{x}.mean(dim=(2, 3))", "{x}.amax(dim=(2, 3))", "{x}.amin(dim=(2, 3))", "{x}.sum(dim=(2, 3))"), 2)
        m.steps += [f"{name} = {way.format(x=v.text)}" for name, way in zip(names, ways, strict=True)]
        return m.step("side by side", f"torch.cat([{', '.join(names)}], dim=1)", Value("out", "rows", (v.dims[0], Dim(2 * c.value))))
    inner = Dim(c.value // 4)
    s = m.name(m.rng.choice(("s", "w", "weights", "se")))
    m.steps.append(f"{s} = {m.rng.choice(('{x}.mean(dim=(2, 3))', 'F.adaptive_avg_pool2d({x}, 1).flatten(1)')).format(x=v.text)}")
    first = f"{_linear(m, 'fc1', c, inner)}({s})"
    m.steps.append(f"{s} = {_activated(m, first)}")
    m.steps.append(f"{s} = torch.sigmoid({_linear(m, 'fc2', inner, c)}({s}))")
    m.operators.append("channel weights")
    return m.step("weighed", f"{v.text} * {s}{m.rng.choice(('[:, :, None, None]', '.unsqueeze(-1).unsqueeze(-1)'))}", v)


def around(m: ModuleText) -> Value:
    """Convolutions with norms and functions behind them, and a way around."""
    v, c = _image(m)
    out = c if m.rng.random() < 0.6 else m.constant("out_channels", m.rng.choice((8, 16, 24)))
    skip = m.name(m.rng.choice(("identity", "shortcut", "skip")))
    if out is c:
        m.steps.append(f"{skip} = {v.text}")
    else:
        made = f"nn.Conv2d({m.of_constructor(c)}, {m.of_constructor(out)}, 1)"
        m.steps.append(f"{skip} = {m.layer('project', made)}({v.text})")
    last = c
    for place in range(m.rng.choice((1, 2, 2))):
        more = m.rng.choice((", bias=False", "", ""))
        made = f"nn.Conv2d({m.of_constructor(last)}, {m.of_constructor(out)}, 3, padding=1{more})"
        v = m.step("conv", f"{m.layer(f'conv{place + 1}', made)}({v.text})", v, dims=(v.dims[0], out, *v.dims[2:]))
        last = out
        if m.rng.random() < 0.6:
            norm = m.rng.choice((f"nn.BatchNorm2d({m.of_constructor(out)})", f"nn.GroupNorm(4, {m.of_constructor(out)})"))
            v = m.step("norm", f"{m.layer(f'norm{place + 1}', norm)}({v.text})", v)
        if m.rng.random() < 0.7:
            v = m.step("activation", _activated(m, v.text), v)
    v = m.step("residual", m.rng.choice((f"{v.text} + {skip}", f"{skip} + {v.text}")), v)
    return v if m.rng.random() < 0.5 else m.step("activation", _activated(m, v.text), v)


BLOCKS: Final[dict[Callable[[ModuleText], Value], float]] = {network: 9, gated_network: 7, heads: 4, channels_weighed: 4, around: 4}
"""Families, with how often."""
