"""What people begin with: functions, norms, losses and gradients written out, layers with a function behind, ways around, gates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kernelllm.suites.synth.everyday_layers import LAYERED
from kernelllm.suites.synth.formula_parts import any_number, bracketed, called, channel_parameter
from kernelllm.suites.synth.grammar import POINTWISE
from kernelllm.suites.synth.module_text import Dim, ModuleText, Value
from kernelllm.suites.synth.operator_parts import LARGE, SMALL, start
from kernelllm.suites.synth.written_out import ACTIVATIONS, GRADIENTS, NORMS, PAIRED_LOSSES, ROW_LOSSES, TRIPLES, some_function, written_out

_PAIRS: Final = (("pred", "target"), ("prediction", "label"), ("a", "b"), ("x", "y"), ("logits", "target"), ("student", "teacher"),
                 ("output", "truth"), ("mu", "logvar"), ("query", "key"))  # fmt: skip
_AFFINE: Final = ("{x} + {c}", "{x} * {c}", "{c} * {x}", "{x} - {c}", "{x} / {c}", "{c} - {x}", "{x} * {c} + {d}", "{c} * {x} - {d}")


def everyday(m: ModuleText) -> Value:
    """A module of one of the families."""
    return m.rng.choices(list(FAMILIES), list(FAMILIES.values()))[0](m)


def _affine(m: ModuleText, text: str) -> str:
    return written_out(m, m.rng.choice(_AFFINE), x=bracketed(text))


def activation(m: ModuleText) -> Value:
    """A function of elements that is written out; a number, a parameter or another function behind it now and then."""
    v = start(m, "rows", "rows", "sequence", "image", "signal")
    name = m.rng.choice(list(ACTIVATIONS))
    if m.rng.random() < 0.35:
        name = m.rng.choice(list(POINTWISE))
        text = some_function(m, v.text, [w for w in POINTWISE[name] if "{c}" not in w])
    else:
        text = written_out(m, m.rng.choice(ACTIVATIONS[name]), x=v.text)
    way = m.rng.random()
    if way < 0.4:
        if m.rng.random() < 0.5:
            v = m.step(name, text, v)
            text = v.text
        return m.step("affine", _affine(m, text), v)
    if way < 0.6 and not m.style.fresh_names:
        other = some_function(m, v.text)
        form = m.rng.choice(("{a} + {b}", "{a} * {b}", "{a} - {b}", "{b} + {c} * {a}", "torch.maximum({a}, {b})"))
        text = form.format(a=bracketed(text), b=bracketed(other), c=any_number(m) if "{c}" in form else "")
        return m.step("two functions", text, v)
    if way < 0.75:
        v = m.step(name, text, v)
        return m.step("function", some_function(m, v.text), v)
    if way < 0.85:
        return m.step("scaled", f"{bracketed(text)} * {channel_parameter(m, v)}", v)
    return m.step(name, text, v)


def norm(m: ModuleText) -> Value:
    """A norm that is written out, with weights, a function, a sum or a way around."""
    v = start(m, "rows", "sequence", "sequence", "image")
    if v.kind == "image":
        over = m.rng.choice(("(2, 3)", "1", "(1, 2, 3)"))
        name = m.rng.choice(("layer norm", "rms norm"))
        ways = [w.replace("dim=-1", f"dim={over}").replace("(-1,", f"({over},") for w in NORMS[name] if ".norm" not in w and "std" not in w]
    else:
        name = m.rng.choice(("layer norm", "layer norm", "rms norm", "rms norm", *NORMS))
        ways = list(NORMS[name])
    if m.rng.random() < 0.2 and all(d.constant for d in v.dims):
        v = m.step("sum", f"{v.text} + {m.input(called(m, ('residual', 'y', 'skip')), v.dims)}", v)
    keep = ""
    if (around := m.rng.random() < 0.25) and not m.style.fresh_names:
        keep = m.name(called(m, ("residual", "identity", "shortcut")))
        m.steps.append(f"{keep} = {v.text}")
    elif around:
        keep = v.text
    text = written_out(m, m.rng.choice(ways), x=v.text)
    if m.rng.random() < 0.55:
        if m.rng.random() < 0.4:
            normed = m.name(called(m, ("normed", "x_hat", "xn", "normalized")))
            m.steps.append(f"{normed} = {text}")
            text = normed
        text = f"{bracketed(text) if '/' in text else text} * {channel_parameter(m, v)}"
        text = f"{text} + {channel_parameter(m, v)}" if m.rng.random() < 0.6 else text
    elif m.rng.random() < 0.3:
        text = _affine(m, text)
    v = m.step(name, text, v)
    if m.rng.random() < 0.3:
        v = m.step("function", some_function(m, v.text), v)
    return m.step("residual", m.rng.choice((f"{keep} + {v.text}", f"{v.text} + {keep}")), v) if keep else v


def _reduced(m: ModuleText, text: str, v: Value) -> Value:
    """The mean of what a loss gives, mostly."""
    if m.rng.random() < 0.4:
        v = m.step("each", text, v)
        text = v.text
    if m.rng.random() < 0.12:
        return m.step("affine", _affine(m, text), v)
    ways = ("{x}.mean()", "torch.mean({x})", "{x}.mean()", "{x}.sum()", "torch.sum({x}) * {c}", "{x}.mean() * {c}", "{x}.sum() / {n}")
    names = {"x": bracketed(text), "n": f"{m.inputs[0][0]}.shape[0]"}
    way = m.rng.choice(ways)
    if way.startswith("torch."):
        names["x"] = text
    return m.step("mean", written_out(m, way, **names), Value("loss", "scalar", ()))


def loss(m: ModuleText) -> Value:
    """A loss that is written out: by elements, by rows, of three tensors, of all pairs of rows."""
    way = m.rng.random()
    if way < 0.5:
        v = start(m, "rows", "rows", "rows", "sequence", "image")
        name = m.rng.choice(list(PAIRED_LOSSES))
        draw = m.rng.choice(("", "torch.rand({shape})", "torch.randint(0, 2, ({shape},)).float()"))
        if name == "hinge":
            draw = "torch.randint(0, 2, ({shape},)).float() * 2 - 1"
        y = m.input(m.rng.choice(_PAIRS)[1], v.dims, draw)
        text = written_out(m, m.rng.choice(PAIRED_LOSSES[name]), x=v.text, y=y)
        if m.rng.random() < 0.15:
            text = f"{bracketed(text)} * {m.input(called(m, ('weight', 'w', 'mask')), v.dims, 'torch.rand({shape})')}"
        return _reduced(m, text, Value("each", v.kind, v.dims))
    n = m.constant(m.rng.choice(("batch_size", "N", "B")), m.rng.choice(LARGE[:7]))
    width = m.constant(m.rng.choice(("dim", "features", "classes", "embed_dim")), m.rng.choice(LARGE[:9]))
    rows = Value("out", "vector", (n,))
    if way < 0.78:
        x, y = (m.input(called(m, (hint,)), (n, width)) for hint in m.rng.choice(_PAIRS))
        text = written_out(m, m.rng.choice(ROW_LOSSES[m.rng.choice(list(ROW_LOSSES))]), x=x, y=y)
        return m.step("by rows", text, rows) if m.rng.random() < 0.4 else _reduced(m, text, rows)
    if way < 0.92:
        hints = m.rng.choice((("anchor", "positive", "negative"), ("a", "p", "n"), ("x", "near", "far"), ("query", "good", "bad")))
        x, y, z = (m.input(hint, (n, width)) for hint in hints)
        return _reduced(m, written_out(m, m.rng.choice(TRIPLES), x=x, y=y, z=z), rows)
    return _all_pairs(m, n, width)


def _all_pairs(m: ModuleText, n: Dim, width: Dim) -> Value:
    """Each row against each other one."""
    x, y = (m.input(hint, (n, width)) for hint in m.rng.choice((("image", "text"), ("a", "b"), ("z1", "z2"), ("queries", "keys"))))
    if m.rng.random() < 0.6:
        names = [m.name(hint) for hint in m.rng.choice((("za", "zb"), ("first", "second"), ("u", "v"), ("left", "right")))]
        ways = ("F.normalize({t}, dim=-1)", "{t} / {t}.norm(dim=-1, keepdim=True)", "F.normalize({t}, dim=1)")
        length = m.rng.choice(ways)
        m.steps += [f"{name} = {length.format(t=t)}" for name, t in zip(names, (x, y), strict=True)]
        x, y = names
    form = m.rng.choice(("{x} @ {y}.T / {c}", "torch.matmul({x}, {y}.t()) * {c}", "{x} @ {y}.T", "torch.mm({x}, {y}.t()) / {c}"))
    v = m.step("all pairs", written_out(m, form, x=x, y=y), Value(m.rng.choice(("logits", "scores", "sim")), "rows", (n, n)))
    way = m.rng.random()
    if way < 0.3:
        return m.step("softmax", m.rng.choice(("F.softmax({x}, dim=-1)", "torch.log_softmax({x}, dim=1)")).format(x=v.text), v)
    if way < 0.7:
        count = n.value if m.style.inline else n.constant
        target = m.input(m.rng.choice(("labels", "target")), (n,), f"torch.randint(0, {count}, ({{shape}},))")
        return m.step("cross entropy", f"F.cross_entropy({v.text}, {target})", Value("loss", "scalar", ()))
    return v if way < 0.85 else m.step("function", some_function(m, v.text), v)


def gradient(m: ModuleText) -> Value:
    """A gradient that is written out, or a step of an optimiser."""
    name = m.rng.choice(list(GRADIENTS))
    v = start(m, "rows") if name == "product" else start(m, "rows", "rows", "sequence")
    g = m.input(m.rng.choice(("grad", "grad_output", "g", "dy", "grad_out", "upstream")), v.dims)
    if m.rng.random() < 0.35:
        m.inputs.reverse()
    text = written_out(m, m.rng.choice(GRADIENTS[name]), x=v.text, g=g)
    v = Value(m.name(called(m, ("grad_input", "dx", "out", "result"))), v.kind, v.dims)
    if m.rng.random() < 0.2:
        return m.step("gradient", _affine(m, text), v)
    return m.step("gradient", text, v)


def scan(m: ModuleText) -> Value:
    """Running sums from either end, with or without the present element, of a function or before one."""
    v = start(m, "rows", "rows", "sequence")
    text = v.text
    if m.rng.random() < 0.5:
        v = m.step("function", _affine(m, text) if m.rng.random() < 0.4 else some_function(m, text), v)
        text = v.text
    d = m.rng.choice((1, 1, -1)) if v.kind == "rows" else m.rng.choice((1, -1, 2))
    ways = (
        "torch.cumsum({x}.flip({k}), dim={k}).flip({k})", "torch.flip(torch.cumsum(torch.flip({x}, [{k}]), dim={k}), [{k}])",
        "{x}.flip(dims=[{k}]).cumsum(dim={k}).flip(dims=[{k}])", "torch.cumsum({x}, dim={k}) - {x}",
        "torch.cat([torch.zeros_like({x}[:, :1]), torch.cumsum({x}, dim=1)[:, :-1]], dim=1)", "torch.cumsum({x}, dim={k})",
        "torch.cumsum({x}, dim={k}) / {c}", "torch.logcumsumexp({x}, dim={k})",
        "{x}.sum(dim={k}, keepdim=True) - torch.cumsum({x}, dim={k})",
        "torch.cumsum(torch.cat((torch.zeros_like({x}[:, :1]), {x}), dim=1)[:, :-1], dim=1)", "torch.cumprod({x} * 0.1 + 1.0, dim={k})",
        "torch.exp(torch.cumsum({x}, dim={k}))", "torch.cumsum({x} * {y}, dim={k})",
    )  # fmt: skip
    way = m.rng.choice(ways)
    other = m.input(called(m, ("mask", "weights", "y")), v.dims) if "{y}" in way else ""
    v = m.step("running sum", written_out(m, way, x=text, k=str(d), y=other), v)
    return m.step("affine", _affine(m, v.text), v) if m.rng.random() < 0.4 else v


def rotated(m: ModuleText) -> Value:
    """Positions by rotations of halves, and by rows of tables; shifts and scales that inputs bring."""
    half = m.constant(m.rng.choice(("half", "half_dim", "width")), m.rng.choice((16, 32, 64)))
    first = (m.constant("batch_size", m.rng.choice(SMALL[:7])), m.constant("seq_len", m.rng.choice((8, 16, 32))))
    whole = (*first, Dim(2 * half.value))
    v = m.start("sequence", whole, called(m, ("x", "q", "k", "h")))
    if m.rng.random() < 0.45:
        scale, shift = (m.input(hint, (first[0], Dim(2 * half.value))) for hint in m.rng.choice((("scale", "shift"), ("gamma", "beta"))))
        wide = m.rng.choice(("{t}[:, None]", "{t}.unsqueeze(1)", "{t}[:, None, :]"))
        if m.rng.random() < 0.5:
            v = m.step("layer norm", f"{m.layer('norm', f'nn.LayerNorm({whole[-1].value}, elementwise_affine=False)')}({v.text})", v)
        form = m.rng.choice(("{x} * (1 + {a}) + {b}", "{x} * {a} + {b}", "(1.0 + {a}) * {x} + {b}"))
        return m.step("modulated", form.format(x=v.text, a=wide.format(t=scale), b=wide.format(t=shift)), v)
    dims = m.rng.choice((whole, whole[1:]))
    cos, sin = (m.input(hint, dims) for hint in m.rng.choice((("cos", "sin"), ("c", "s"))))
    names = [m.name(hint) for hint in m.rng.choice((("x1", "x2"), ("a", "b"), ("first", "second")))]
    h = half.value
    cut = m.rng.choice((f"{v.text}.chunk(2, dim=-1)", f"{v.text}[..., :{h}], {v.text}[..., {h}:]", f"{v.text}.split({h}, dim=-1)"))
    if "], " in cut:
        m.steps += [f"{name} = {part}" for name, part in zip(names, (f"{v.text}[..., :{h}]", f"{v.text}[..., {h}:]"), strict=True)]
    else:
        m.steps.append(f"{', '.join(names)} = {cut}")
    turned = m.name(called(m, ("rotated", "turned", "rot")))
    m.steps.append(f"{turned} = torch.cat({m.rng.choice(('({b}, {a})', '[{b}, {a}]')).format(a=names[0], b=f'-{names[1]}')}, dim=-1)")
    form = m.rng.choice(("{x} * {c} + {t} * {s}", "({x} * {c}) + ({t} * {s})"))
    return m.step("rotary", form.format(x=v.text, c=cos, t=turned, s=sin), v)


FAMILIES: Final[dict[Callable[[ModuleText], Value], float]] = {
    activation: 15, norm: 15, loss: 15, gradient: 6, scan: 6, rotated: 4, **LAYERED,
}  # fmt: skip
"""Families, with how often."""
