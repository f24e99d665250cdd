"""Layers as people put them together first: one and its function, ways around, gates, attention written out, tables of positions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from kernelllm.suites.synth.formula_parts import any_number, bracketed, called
from kernelllm.suites.synth.grammar import POINTWISE, SPATIAL
from kernelllm.suites.synth.module_text import Dim, Kind, ModuleText, Value
from kernelllm.suites.synth.operator_parts import Option, layer_with
from kernelllm.suites.synth.written_out import NORMS, USUAL, some_function, written_out


def _rows(m: ModuleText) -> tuple[Value, Dim]:
    kind: Kind = m.rng.choice(("rows", "rows", "sequence"))
    n = m.constant(m.rng.choice(("batch_size", "B", "N")), m.rng.choice((2, 4, 8, 16)))
    width = m.constant(m.rng.choice(("dim", "d_model", "in_features", "hidden_size", "features")), m.rng.choice((16, 32, 64, 96, 128)))
    if kind == "rows":
        return m.start(kind, (n, width)), width
    return m.start(kind, (n, m.constant(m.rng.choice(("seq_len", "T", "tokens")), m.rng.choice((4, 8, 10, 12))), width)), width


def _image(m: ModuleText) -> tuple[Value, Dim]:
    kind: Kind = m.rng.choices(("image", "signal", "volume"), (0.75, 0.15, 0.1))[0]
    n = m.constant("batch_size", m.rng.choice((2, 4)))
    c = m.constant(m.rng.choice(("channels", "in_channels")), m.rng.choice((4, 8, 12, 16)))
    sides = {"image": ("height", "width"), "signal": ("length",), "volume": ("depth", "height", "width")}[kind]
    return m.start(kind, (n, c, *(m.constant(s, m.rng.choice((6, 8, 10, 12))) for s in sides))), c


def _linear_text(m: ModuleText, a: Dim, b: Dim) -> str:
    return f"nn.Linear({m.of_constructor(a)}, {m.of_constructor(b)}{m.rng.choice(('', '', '', ', bias=False'))})"


def _function_layer(m: ModuleText) -> str:
    return next(w for w in POINTWISE[m.rng.choice(USUAL)] if w.startswith("nn.") and "{" not in w)


def _dropout(m: ModuleText) -> str:
    """A layer that does nothing here; for one with a probability the module is set to inference (see :func:`_finished`)."""
    return f"nn.Dropout({m.rng.choice(('0.0', '0.1', '0.2', 'p=0.1'))})"


def _finished(m: ModuleText) -> None:
    """Layers that draw numbers while they train do not train."""
    drawing = any("Dropout" in line and "0.0)" not in line for line in m.layers)
    if drawing or (any("BatchNorm" in line for line in m.layers) and m.rng.random() < 0.4):
        m.layers.append("self.eval()")


def _in_a_row(m: ModuleText, v: Value, layers: Sequence[str], dims: tuple[Dim, ...], hints: Sequence[str]) -> Value:
    """Layers one after another: as one ``nn.Sequential``, in one expression or in several lines."""
    if m.rng.random() < 0.25:
        name = m.rng.choice(("net", "layers", "mlp", "block", "body", "ffn"))
        row = m.layer(name, f"nn.Sequential({', '.join(layers)})")
        return m.step("layers", f"{row}({v.text})", v, dims=dims)
    text = v.text
    for place, (layer, hint) in enumerate(zip(layers, hints, strict=True)):
        plain = hint == "act" and m.style.prefer != "layers"
        text = some_function(m, text) if plain else f"{m.layer(hint, layer)}({text})"
        if place < len(layers) - 1 and m.rng.random() < 0.5:
            v = m.step("layer", text, v, dims=dims)
            text = v.text
    return m.step("layer", text, v, dims=dims)


def _network(m: ModuleText, v: Value, width: Dim) -> Value:
    """One or two products with a function between them; as wide as the value."""
    if m.rng.random() < 0.3:
        layers, hints = [_linear_text(m, width, width)], [m.rng.choice(("linear", "fc", "proj"))]
        if m.rng.random() < 0.7:
            layers, hints = [*layers, _function_layer(m)], [*hints, "act"]
    else:
        inner = m.constant(m.rng.choice(("hidden_dim", "hidden", "d_ff", "mlp_dim")), m.rng.choice((24, 32, 48, 64, 128)))
        names = m.rng.choice((("fc1", "fc2"), ("up", "down"), ("linear1", "linear2"), ("w1", "w2"), ("lin1", "lin2"), ("c_fc", "c_proj")))
        layers = [_linear_text(m, width, inner), _function_layer(m), _linear_text(m, inner, width)]
        hints = [names[0], "act", names[1]]
    if m.rng.random() < 0.25:
        layers, hints = [*layers, _dropout(m)], [*hints, m.rng.choice(("drop", "dropout"))]
    return _in_a_row(m, v, layers, v.dims, hints)


def _gated(m: ModuleText, v: Value, width: Dim) -> Value:
    """A gated network, with two products or one that is cut in halves."""
    inner = m.constant(m.rng.choice(("hidden_dim", "hidden", "d_ff")), m.rng.choice((24, 32, 48, 64)))
    ways = [w for w in POINTWISE[m.rng.choice(("silu", "silu", "gelu", "gelu", "sigmoid", "relu"))] if w.count("{x}") < 2]
    act = some_function(m, "{g}", ways)
    names = m.rng.choice((("gate_proj", "up_proj", "down_proj"), ("w1", "w3", "w2"), ("w_gate", "w_up", "w_down"),
                          ("gate", "value", "out")))  # fmt: skip
    wide = (*v.dims[:-1], inner)
    if m.rng.random() < 0.4:
        made = f"nn.Linear({m.of_constructor(width)}, 2 * {m.of_constructor(inner)})"
        both = m.layer(m.rng.choice(("proj", "fc1", "w12", "in_proj")), made)
        a, b = (m.name(n) for n in m.rng.choice((("gate", "value"), ("a", "b"), ("u", "g"), ("x1", "x2"))))
        m.steps.append(f"{a}, {b} = {both}({v.text}).chunk(2, dim=-1)")
        if m.rng.random() < 0.4:
            a, b = b, a
        v = m.step("gated", m.rng.choice(("{a} * {b}", "{b} * {a}")).format(a=act.replace("{g}", a), b=b), v, dims=wide)
    else:
        gate, up = (f"{m.layer(name, _linear_text(m, width, inner))}({v.text})" for name in names[:2])
        if m.rng.random() < 0.5:
            kept = [m.name(n) for n in m.rng.choice((("gate_out", "up_out"), ("g", "h"), ("a", "b")))]
            m.steps += [f"{kept[0]} = {act.replace('{g}', gate)}", f"{kept[1]} = {up}"]
            v = m.step("gated", m.rng.choice((f"{kept[0]} * {kept[1]}", f"{kept[1]} * {kept[0]}")), v, dims=wide)
        else:
            v = m.step("gated", f"{act.replace('{g}', gate)} * {up}", v, dims=wide)
    return m.step("layer", f"{m.layer(names[2], _linear_text(m, inner, width))}({v.text})", v, dims=(*v.dims[:-1], width))


def _normed(m: ModuleText, v: Value, width: Dim) -> Value:
    if m.rng.random() < 0.35:
        return m.step("norm", written_out(m, m.rng.choice(NORMS[m.rng.choice(("layer norm", "rms norm"))]), x=v.text), v)
    kind = m.rng.choice(("LayerNorm", "LayerNorm", "RMSNorm"))
    return m.step("norm", f"{m.layer(m.rng.choice(('norm', 'ln', 'norm1')), f'nn.{kind}({m.of_constructor(width)})')}({v.text})", v)


def gated_network(m: ModuleText) -> Value:
    """A gated network, alone."""
    v, width = _rows(m)
    return _gated(m, v, width)


def residual(m: ModuleText) -> Value:
    """A norm and a network with a way around, scaled now and then."""
    v, width = _rows(m)
    whole = v
    keep = v.text
    if not m.style.fresh_names:  # the value's name is given to what comes
        keep = m.name(called(m, ("residual", "identity", "shortcut", "skip")))
        m.steps.append(f"{keep} = {v.text}")
    first = m.rng.random() < 0.75
    if first:
        v = _normed(m, v, width)
    v = m.rng.choices((_network, _gated, lambda m, v, width: v), (0.6, 0.25, 0.15))[0](m, v, width)
    if v.text == whole.text and not first:
        v = _network(m, v, width)
    text = v.text
    way = m.rng.random()
    if way < 0.25:
        scale = m.rng.choice(("torch.ones({w})", "torch.full(({w},), 0.1)", "torch.randn({w})", "torch.rand({w})"))
        made = m.layer(m.rng.choice(("gamma", "layer_scale", "ls", "alpha")), f"nn.Parameter({scale.format(w=m.of_constructor(width))})")
        text = m.rng.choice((f"{made} * {text}", f"{text} * {made}"))
    elif way < 0.45:
        text = m.rng.choice(("{c} * {x}", "{x} * {c}")).format(x=text, c=any_number(m))
    v = m.step("residual", m.rng.choice((f"{keep} + {text}", f"{text} + {keep}")), whole)
    if not first and m.rng.random() < 0.7:
        v = _normed(m, v, width)
    _finished(m)
    return v


def layer_and_function(m: ModuleText) -> Value:
    """A product, a norm or a convolution with a function behind it; one more of them now and then."""
    if m.rng.random() < 0.45:
        v, width = _rows(m)
        out = m.constant(m.rng.choice(("out_features", "hidden_size", "output_dim")), m.rng.choice((16, 32, 64, 100, 128)))
        dims = (*v.dims[:-1], out)
        layers, hints = [_linear_text(m, width, out)], [m.rng.choice(("fc", "linear", "proj", "dense"))]
        if m.rng.random() < 0.25:
            layers, hints = [*layers, f"nn.{m.rng.choice(('LayerNorm', 'RMSNorm'))}({m.of_constructor(out)})"], [*hints, "norm"]
        layers, hints = [*layers, _function_layer(m)], [*hints, "act"]
        if m.rng.random() < 0.3:
            layers, hints = [*layers, _dropout(m)], [*hints, "dropout"]
        if m.rng.random() < 0.4:
            layers, hints = [*layers, _linear_text(m, out, out)], [*hints, m.rng.choice(("fc2", "head", "out"))]
        v = _in_a_row(m, v, layers, dims, hints)
    else:
        v, width = _image(m)
        v = _of_images(m, v, width)
    if m.rng.random() < 0.2:
        v = m.step("affine", written_out(m, m.rng.choice(("{x} * {c}", "{x} + {c}", "{x} - {c}")), x=v.text), v)
    _finished(m)
    return v


def _of_images(m: ModuleText, v: Value, c: Dim) -> Value:
    d = SPATIAL[v.kind]
    layers: list[str] = []
    hints: list[str] = []
    out, dims = c, v.dims
    if m.rng.random() < 0.5:
        out = m.constant("out_channels", m.rng.choice((4, 8, 16)))
        size = m.rng.choice((1, 3, 3, 5))
        more = m.rng.choice((", bias=False", "", ""))
        layers.append(f"nn.Conv{d}d({m.of_constructor(c)}, {m.of_constructor(out)}, {size}, padding={size // 2}{more})")
        hints.append(m.rng.choice(("conv", "conv1")))
        dims = (v.dims[0], out, *v.dims[2:])
    if not layers or m.rng.random() < 0.7:
        o = m.of_constructor(out)
        affine = m.rng.choice(("", ", affine=True", ", affine=True", ", eps=1e-3"))
        layers.append(m.rng.choice((f"nn.BatchNorm{d}d({o})", f"nn.BatchNorm{d}d({o})", f"nn.GroupNorm({m.rng.choice((1, 2, 4))}, {o})",
                                    f"nn.InstanceNorm{d}d({o}{affine})")))  # fmt: skip
        hints.append(m.rng.choice(("bn", "norm")))
    layers.append(_function_layer(m))
    hints.append("act")
    if m.rng.random() < 0.15:
        layers.append(_dropout(m).replace("Dropout(", "Dropout2d(") if d == 2 else _dropout(m))
        hints.append("dropout")
    return _in_a_row(m, v, layers, dims, hints)


def gate(m: ModuleText) -> Value:
    """Channels or places that are weighed by what a small function makes of their means."""
    v, c = _image(m)
    d = SPATIAL[v.kind]
    over = "2" if d == 1 else str(tuple(range(2, d + 2)))
    way = m.rng.random()
    if way < 0.35:
        forms = ("{x} * torch.sigmoid({x}.mean(dim={o}, keepdim=True))", "{x} * F.softmax({x}.mean(dim={o}, keepdim=True), dim=1)",
                 "{x} * torch.sigmoid({x}.mean(dim=1, keepdim=True))", "{x} * torch.tanh({x}.amax(dim={o}, keepdim=True) * {c})",
                 "{x} + {x}.mean(dim={o}, keepdim=True) * {c}", "{x} * F.hardsigmoid({x}.mean(dim={o}, keepdim=True) + {c})",
                 "{x} / (1 + {x}.abs().mean(dim={o}, keepdim=True))", "({x} - {x}.mean(dim={o}, keepdim=True)) * {c}")  # fmt: skip
        return m.step("gate", written_out(m, m.rng.choice(forms), x=v.text, o=over), v)
    s = m.name(called(m, ("s", "w", "weights", "attn", "scale_t")))
    if way < 0.6:
        made = f"nn.Conv{d}d({m.of_constructor(c)}, {m.rng.choice((m.of_constructor(c), '1'))}, 1)"
        conv = m.layer(m.rng.choice(("conv", "fc", "proj")), made)
        m.steps.append(f"{s} = torch.sigmoid({conv}({m.rng.choice((v.text, f'{v.text}.mean(dim={over}, keepdim=True)'))}))")
        return m.step("gate", m.rng.choice((f"{v.text} * {s}", f"{s} * {v.text}", f"{v.text} + {v.text} * {s}")), v)
    inner = Dim(max(c.value // m.rng.choice((2, 4)), 2))
    m.steps.append(f"{s} = {v.text}.mean(dim={over})")
    first, second = m.rng.choice((("fc1", "fc2"), ("squeeze", "excite"), ("reduce", "expand")))
    m.steps.append(f"{s} = {some_function(m, f'{m.layer(first, _linear_text(m, c, inner))}({s})')}")
    m.steps.append(f"{s} = {m.rng.choice(('torch.sigmoid', 'F.hardsigmoid'))}({m.layer(second, _linear_text(m, inner, c))}({s}))")
    return m.step("gate", f"{v.text} * {s}[:, :{', None' * d}]", v)


def attention(m: ModuleText) -> Value:
    """Attention that is written out: products, a scale, a mask, a softmax."""
    n, length = m.constant("batch_size", m.rng.choice((1, 2, 4))), m.constant("seq_len", m.rng.choice((8, 16, 24, 32)))
    each = m.constant(m.rng.choice(("head_dim", "dim", "d_k", "d_model")), m.rng.choice((16, 32, 64)))
    several = m.rng.random() < 0.35
    dims = (n, m.constant("num_heads", m.rng.choice((2, 4))), length, each) if several else (n, length, each)
    names = m.rng.choice((("q", "k", "v"), ("Q", "K", "V"), ("query", "key", "value")))
    if not several and m.rng.random() < 0.4:
        x = m.start("sequence", dims)
        layers = m.rng.choice((("q_proj", "k_proj", "v_proj"), ("wq", "wk", "wv"), ("to_q", "to_k", "to_v"), ("query", "key", "value")))
        q, k, v = (m.name(name) for name in ("q", "k", "v"))
        m.steps += [f"{a} = {m.layer(b, _linear_text(m, each, each))}({x.text})" for a, b in zip((q, k, v), layers, strict=True)]
    else:
        q, k, v = (m.input(name, dims) for name in names)
    scores = m.name(called(m, ("scores", "attn", "logits", "w")))
    product = m.rng.choice((f"torch.matmul({q}, {k}.transpose(-2, -1))", f"{q} @ {k}.transpose(-2, -1)", f"{q} @ {k}.transpose(-1, -2)"))
    root = each.value**0.5
    scale = m.rng.choice((f" / math.sqrt({q}.shape[-1])", f" * {1 / root:.6g}", f" / {root:.6g}", f" * {any_number(m)}", ""))
    m.steps.append(f"{scores} = {product}{scale}")
    if (way := m.rng.random()) < 0.35:
        size = m.of_constructor(length)
        upper = m.rng.random() < 0.5
        ones = f"torch.ones({size}, {size})"
        m.layers.append(f"self.register_buffer('mask', {f'torch.triu({ones}, diagonal=1).bool()' if upper else f'torch.tril({ones})'})")
        fill = m.rng.choice(("float('-inf')", "-1e9", "-1e4"))
        m.steps.append(f"{scores} = {scores}.masked_fill({'self.mask' if upper else 'self.mask == 0'}, {fill})")
    elif way < 0.5:
        bias = m.input(m.rng.choice(("bias", "mask")), (length, length))
        m.steps.append(f"{scores} = {scores} + {bias}")
    soft = m.rng.choice((f"torch.softmax({scores}, dim=-1)", f"F.softmax({scores}, dim=-1)", f"{scores}.softmax(dim=-1)"))
    if m.rng.random() < 0.5:
        weights = m.name(called(m, ("weights", "probs", "p", "alpha")))
        m.steps.append(f"{weights} = {soft}")
        soft = weights
    out = m.step("attention", m.rng.choice((f"torch.matmul({soft}, {v})", f"{bracketed(soft)} @ {v}")), Value("out", "sequence", dims))
    if not several and m.rng.random() < 0.4:
        return m.step("layer", f"{m.layer(m.rng.choice(('out_proj', 'proj', 'wo')), _linear_text(m, each, each))}({out.text})", out)
    return out


def transposed(m: ModuleText) -> Value:
    """A transposed convolution over one, two or three dimensions, with settings; a norm or a function behind it."""
    kind: Kind = m.rng.choice(("signal", "signal", "image", "volume"))
    d = SPATIAL[kind]
    n, c = m.constant("batch_size", m.rng.choice((2, 4))), m.constant("in_channels", m.rng.choice((3, 4, 8, 16)))
    sides = {"image": ("height", "width"), "signal": ("length",), "volume": ("depth", "height", "width")}[kind]
    v = m.start(kind, (n, c, *(m.constant(s, m.rng.choice((5, 6, 8, 10) if d > 1 else (16, 32, 50, 64))) for s in sides)))
    out = m.constant("out_channels", m.rng.choice((4, 6, 8, 16)))
    stride = m.rng.choice((1, 2, 2, 3))
    options: dict[str, Option] = {"stride": (stride, 1), "padding": (m.rng.choice((0, 1, 1, 2)), 0)}
    if stride > 1 and m.rng.random() < 0.4:
        options["output_padding"] = (1, 0)
    if m.rng.random() < 0.35:
        options["dilation"] = (m.rng.choice((1, 2, 3)), 1)
    common = [g for g in (2, 4) if c.value % g == 0 and out.value % g == 0]
    if common and m.rng.random() < 0.25:
        options["groups"] = (m.rng.choice(common), 1)
    options["bias"] = (m.rng.random() < 0.5, True)
    needed = [m.of_constructor(c), m.of_constructor(out), m.parameter("kernel_size", m.rng.choice((3, 3, 4, 5)))]
    layer = layer_with(m, f"ConvTranspose{d}d", needed, options, m.rng.choice(("conv", "deconv", "conv1d_transpose", "upsample")))
    v = m.step("transposed", f"{layer}({v.text})", v, dims=(n, out, *(Dim(0) for _ in sides)))
    way = m.rng.random()
    if way < 0.3:
        return v
    if way < 0.5:
        norm = m.rng.choice((f"nn.BatchNorm{d}d({m.of_constructor(out)})", f"nn.InstanceNorm{d}d({m.of_constructor(out)})"))
        v = m.step("norm", f"{m.layer('norm', norm)}({v.text})", v)
    v = m.step("function", some_function(m, v.text), v)
    _finished(m)
    return v


def tokens(m: ModuleText) -> Value:
    """Rows of a table with positions, and a norm or a product behind them."""
    entries = m.constant(m.rng.choice(("vocab_size", "num_embeddings")), m.rng.choice((50, 100, 500)))
    width = m.constant(m.rng.choice(("dim", "embed_dim", "d_model")), m.rng.choice((16, 32, 64)))
    n, length = m.constant("batch_size", m.rng.choice((2, 4, 8))), m.constant("seq_len", m.rng.choice((4, 8, 16)))
    count = entries.value if m.style.inline else entries.constant
    ids = m.input(called(m, ("ids", "input_ids", "idx", "tokens")), (n, length), f"torch.randint(0, {count}, ({{shape}}))")
    w, top = m.of_constructor(width), m.of_constructor(length)
    table = m.layer(m.rng.choice(("tok", "embed", "token_embedding", "wte")), f"nn.Embedding({m.of_constructor(entries)}, {w})")
    place = m.rng.choice((f"torch.randn(1, {top}, {w})", f"torch.zeros({top}, {w})", f"torch.randn({top}, {w}) * 0.02"))
    pos = m.layer(m.rng.choice(("pos", "pos_embed", "position", "wpe")), f"nn.Parameter({place})")
    scale = m.rng.choice(("", "", f" * {width.value**0.5:.6g}", f" * {any_number(m)}"))
    v = Value(m.name(called(m, ("x", "h", "emb"))), "sequence", (n, length, width))
    v = m.step("tokens", f"{table}({ids}){scale} + {pos}", v)
    way = m.rng.random()
    if way < 0.4:
        v = _normed(m, v, width)
    elif way < 0.65:
        return m.step("layer", f"{m.layer('head', _linear_text(m, width, width))}({v.text})", v)
    return m.step("mean", f"{v.text}.mean(dim=1)", v, "rows", (n, width)) if m.rng.random() < 0.25 else v


LAYERED: Final[dict[Callable[[ModuleText], Value], float]] = {
    residual: 16, layer_and_function: 15, gated_network: 6, gate: 6, attention: 8, transposed: 6, tokens: 3,
}  # fmt: skip
"""Families, with how often."""
