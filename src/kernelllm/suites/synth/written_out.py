"""Functions that people write out as formulas: statements separated by ``;``, the last one is the result.

``{x}`` is the value, ``{c}`` and ``{d}`` are numbers of the problem, ``{e}`` a small one; other names in braces are of the forward's own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from kernelllm.suites.synth.formula_parts import any_number, bracketed, called
from kernelllm.suites.synth.grammar import POINTWISE, written
from kernelllm.suites.synth.module_text import ModuleText

_LOCALS: Final[dict[str, tuple[str, ...]]] = {
    "mean": ("mean", "mu", "m", "avg", "centre"), "var": ("var", "variance", "v", "sigma2"), "std": ("std", "sigma", "spread"),
    "centred": ("centred", "xc", "diff", "x_centered", "delta"), "norm": ("norm", "rms", "inv", "scale_t", "denom", "length"),
    "diff": ("diff", "error", "err", "delta", "d", "residuals"), "each": ("each", "loss", "term", "value", "cost", "out"),
    "p": ("p", "probs", "prob", "soft", "weights"), "s": ("s", "sig", "gate", "g1", "act"), "logp": ("logp", "log_p", "log_probs", "lp"),
    "first": ("first", "near", "d_pos", "pos_dist", "small"), "second": ("second", "far", "d_neg", "neg_dist", "large"),
    "total": ("total", "summed", "dot", "inner_sum", "acc"), "h": ("h", "hidden", "t", "u", "y1"),
}  # fmt: skip


def written_out(m: ModuleText, template: str, **given: str) -> str:
    """The last expression of a template; the statements before it become steps of the module."""
    for field in dict.fromkeys(re.findall(r"{(\w+)}", template)):
        if field in given:
            continue
        if field in ("c", "d"):
            given[field] = any_number(m)
        elif field == "e":
            eps = m.rng.choice((1e-5, 1e-6, 1e-8, 1e-3))
            given[field] = repr(eps) if m.rng.random() < 0.6 else m.kept(m.parameter("eps", eps))
        else:
            given[field] = m.name(called(m, _LOCALS[field]))
    *statements, last = template.split("; ")
    m.steps += [statement.format(**given) for statement in statements]
    return last.format(**given)


ACTIVATIONS: Final[dict[str, tuple[str, ...]]] = {
    "hardswish": ("{x} * torch.clamp({x} + 3.0, 0.0, 6.0) / 6.0", "{x} * F.relu6({x} + 3) / 6", "{x} * ({x} + 3).clamp(0, 6) / 6",
                  "{s} = torch.clamp({x} + 3, min=0, max=6) / 6; {x} * {s}"),
    "hardsigmoid": ("torch.clamp({x} / 6 + 0.5, 0.0, 1.0)", "F.relu6({x} + 3) / 6", "torch.clamp(0.2 * {x} + 0.5, min=0.0, max=1.0)"),
    "mish": ("{x} * torch.tanh(F.softplus({x}))", "{x} * torch.tanh(torch.log1p(torch.exp({x})))", "{x} * F.softplus({x}).tanh()",
             "{s} = F.softplus({x}); {x} * torch.tanh({s})"),
    "quick gelu": ("{x} * torch.sigmoid(1.702 * {x})", "{s} = torch.sigmoid({x} * 1.702); {x} * {s}", "torch.sigmoid(1.702 * {x}) * {x}"),
    "gelu": ("0.5 * {x} * (1.0 + torch.erf({x} / 1.4142135623730951))", "{x} * 0.5 * (1 + torch.erf({x} / math.sqrt(2.0)))",
             "0.5 * {x} * (1 + torch.tanh(0.7978845608 * ({x} + 0.044715 * {x} ** 3)))",
             "{h} = 0.7978845608028654 * ({x} + 0.044715 * {x} * {x} * {x}); 0.5 * {x} * (1.0 + torch.tanh({h}))"),
    "swish": ("{x} * torch.sigmoid({c} * {x})", "{x} / (1 + torch.exp(-{x}))", "{x} / (1.0 + torch.exp(-{c} * {x}))",
              "{s} = 1 / (1 + torch.exp(-{x})); {x} * {s}"),
    "softsign": ("{x} / (1 + torch.abs({x}))", "{x} / (1.0 + {x}.abs())", "{c} * {x} / (1 + {x}.abs())"),
    "sigmoid": ("1 / (1 + torch.exp(-{x}))", "1.0 / (1.0 + torch.exp(-{x} * {c}))", "torch.sigmoid({x} / {c})"),
    "tanh": ("2 * torch.sigmoid(2 * {x}) - 1", "torch.tanh({c} * {x})", "{c} * torch.tanh({x} / {c})", "1.7159 * torch.tanh(0.6667 * {x})"),
    "elu": ("torch.where({x} > 0, {x}, {c} * (torch.exp({x}) - 1))", "torch.where({x} > 0, {x}, torch.exp({x}) - 1)",
            "torch.where({x} >= 0, {x}, {c} * torch.expm1({x}))"),
    "selu": ("1.0507 * torch.where({x} > 0, {x}, 1.6733 * (torch.exp({x}) - 1))",),
    "leaky": ("torch.where({x} > 0, {x}, {c} * {x})", "torch.where({x} >= 0, {x}, {x} * {c})", "torch.maximum({x}, 0.1 * {x})",
              "torch.relu({x}) - 0.1 * torch.relu(-{x})", "torch.clamp({x}, min=0) + 0.05 * torch.clamp({x}, max=0)"),
    "softplus": ("torch.log1p(torch.exp({x}))", "torch.log(1 + torch.exp({x}))", "torch.relu({x}) + torch.log1p(torch.exp(-{x}.abs()))",
                 "torch.log1p(torch.exp({c} * {x})) / {c}"),
    "squared relu": ("torch.relu({x}) ** 2", "F.relu({x}).pow(2)", "torch.square(torch.relu({x}))", "{h} = F.relu({x}); {h} * {h}"),
    "snake": ("{x} + torch.sin({c} * {x}) ** 2 / {c}", "{x} + torch.square(torch.sin({x}))",
              "{x} + (1.0 / {c}) * torch.sin({c} * {x}).pow(2)"),
    "gaussian": ("torch.exp(-{x} ** 2)", "torch.exp(-({x} * {x}) / (2 * {c} * {c}))", "torch.exp(-{c} * {x}.pow(2))"),
    "shrink": ("torch.sign({x}) * torch.clamp({x}.abs() - {c}, min=0)", "{x} - torch.tanh({x})",
               "torch.where({x}.abs() > {c}, {x}, 0.0 * {x})"),
    "saturation": ("{x} / torch.sqrt(1 + {x} ** 2)", "{x} * torch.rsqrt(1 + {x} * {x})", "torch.sign({x}) * torch.log1p({x}.abs())",
                   "{x}.clamp(-{c}, {c})", "torch.atan({x}) * 0.63662"),
    "smooth": ("{x} * (1 + torch.tanh({x})) / 2", "0.5 * ({x} + torch.sqrt({x} ** 2 + {c}))", "{x} * torch.exp(-{x}.abs())",
               "torch.log(torch.cosh({x}))", "{x} * torch.log1p({x}.abs())", "torch.sqrt({x} ** 2 + {c}) - {c}"),
}  # fmt: skip

NORMS: Final[dict[str, tuple[str, ...]]] = {
    "layer norm": (
        "{mean} = {x}.mean(dim=-1, keepdim=True); {var} = {x}.var(dim=-1, keepdim=True, unbiased=False); "
        "({x} - {mean}) / torch.sqrt({var} + {e})",
        "{mean} = {x}.mean(-1, keepdim=True); {var} = ({x} - {mean}).pow(2).mean(-1, keepdim=True); "
        "({x} - {mean}) * torch.rsqrt({var} + {e})",
        "{mean} = torch.mean({x}, dim=-1, keepdim=True); {centred} = {x} - {mean}; "
        "{var} = torch.mean({centred} ** 2, dim=-1, keepdim=True); {centred} / torch.sqrt({var} + {e})",
        "{mean} = {x}.mean(-1, keepdim=True); {std} = {x}.std(-1, keepdim=True); ({x} - {mean}) / ({std} + {e})",
        "{centred} = {x} - {x}.mean(dim=-1, keepdim=True); {centred} * ({centred} * {centred}).mean(dim=-1, keepdim=True).add({e}).rsqrt()",
    ),
    "rms norm": (
        "{x} * torch.rsqrt({x}.pow(2).mean(-1, keepdim=True) + {e})",
        "{x} * torch.rsqrt(torch.mean({x} * {x}, dim=-1, keepdim=True) + {e})",
        "{norm} = torch.rsqrt({x}.pow(2).mean(dim=-1, keepdim=True) + {e}); {x} * {norm}",
        "{norm} = torch.sqrt(({x} ** 2).mean(-1, keepdim=True) + {e}); {x} / {norm}",
        "{var} = {x}.square().mean(-1, keepdim=True); {x} * torch.rsqrt({var} + {e})",
        "{norm} = {x}.norm(dim=-1, keepdim=True) * {x}.shape[-1] ** -0.5; {x} / ({norm} + {e})",
    ),
    "l2 norm": (
        "{x} / ({x}.norm(dim=-1, keepdim=True) + {e})", "{norm} = torch.sqrt(({x} * {x}).sum(-1, keepdim=True) + {e}); {x} / {norm}",
        "{x} * torch.rsqrt({x}.pow(2).sum(dim=-1, keepdim=True) + {e})", "{x} / {x}.norm(p=2, dim=-1, keepdim=True).clamp(min={e})",
    ),
    "softmax": (
        "{h} = torch.exp({x} - {x}.amax(dim=-1, keepdim=True)); {h} / {h}.sum(dim=-1, keepdim=True)",
        "{h} = torch.exp({x} - {x}.max(dim=-1, keepdim=True).values); {h} / {h}.sum(-1, keepdim=True)",
        "torch.softmax({x} / {c}, dim=-1)", "F.softmax({x} * {c}, dim=-1)", "F.log_softmax({x} / {c}, dim=-1)",
        "{x} - torch.logsumexp({x}, dim=-1, keepdim=True)", "torch.softmax({x} - {x}.mean(-1, keepdim=True), dim=-1)",
    ),
    "min max": (
        "{first} = {x}.amin(dim=-1, keepdim=True); {second} = {x}.amax(dim=-1, keepdim=True); ({x} - {first}) / ({second} - {first} + {e})",
        "{x} / ({x}.abs().amax(dim=-1, keepdim=True) + {e})", "{x} / ({x}.abs().mean(-1, keepdim=True) + {e})",
    ),
}  # fmt: skip

PAIRED_LOSSES: Final[dict[str, tuple[str, ...]]] = {
    "huber": (
        "{diff} = torch.abs({x} - {y}); torch.where({diff} < {c}, 0.5 * {diff} ** 2, {c} * ({diff} - 0.5 * {c}))",
        "{diff} = {x} - {y}; torch.where({diff}.abs() <= {c}, 0.5 * {diff} * {diff}, {c} * ({diff}.abs() - 0.5 * {c}))",
        "{diff} = ({x} - {y}).abs(); torch.where({diff} < 1.0, 0.5 * {diff}.pow(2), {diff} - 0.5)",
    ),
    "pinball": ("{diff} = {y} - {x}; torch.maximum(0.3 * {diff}, -0.7 * {diff})",
                "{diff} = {y} - {x}; torch.where({diff} > 0, {c} * {diff}, -{diff})"),
    "charbonnier": ("torch.sqrt(({x} - {y}) ** 2 + {e})", "{diff} = {x} - {y}; torch.sqrt({diff} * {diff} + {c})"),
    "log cosh": ("torch.log(torch.cosh({x} - {y}))", "{diff} = {x} - {y}; {diff} + F.softplus(-2.0 * {diff}) - 0.6931"),
    "hinge": ("torch.clamp({c} - {x} * {y}, min=0)", "F.relu(1.0 - {x} * {y}) ** 2",
              "{diff} = 1 - {x} * {y}; torch.clamp({diff}, min=0.0) * {c}",
              "torch.relu({c} - {y} * {x})"),
    "logits": ("torch.clamp({x}, min=0) - {x} * {y} + torch.log1p(torch.exp(-{x}.abs()))", "F.softplus({x}) - {x} * {y}",
               "F.softplus(-{x} * {y})",
               "{p} = torch.sigmoid({x}); -({y} * torch.log({p} + 1e-6) + (1 - {y}) * torch.log(1 - {p} + 1e-6))"),
    "focal": ("{p} = torch.sigmoid({x}); {each} = F.softplus({x}) - {x} * {y}; {each} * (1 - {p}) ** 2",
              "{p} = torch.sigmoid({x}); -{c} * (1 - {p}) ** 2 * {y} * torch.log({p} + 1e-6)",
              "{each} = F.binary_cross_entropy_with_logits({x}, {y}, reduction='none'); {p} = torch.exp(-{each}); "
              "(1 - {p}).pow(2) * {each}"),
    "contrastive": ("{diff} = torch.abs({x} - {y}); {diff} ** 2 + torch.clamp({c} - {diff}, min=0) ** 2",),
    "squares": ("{c} * ({x} - {y}) ** 2", "{diff} = {x} - {y}; {diff} * {diff}", "({x} - {y}).pow(2) + {c} * ({x} - {y}).abs()",
                "({x} - {y}) ** 2 / ({y}.abs() + {c})", "({x} - {y}).abs() / ({x}.abs() + {y}.abs() + {c})"),
    "gaussian likelihood": ("0.5 * ({y} + ({x} ** 2) * torch.exp(-{y}))", "{diff} = {x} - {y}; 0.5 * {diff} * {diff} / ({c} * {c})"),
    "divergence to a normal": ("-0.5 * (1 + {y} - {x}.pow(2) - {y}.exp())", "0.5 * ({x} ** 2 + torch.exp({y}) - {y} - 1)"),
}  # fmt: skip
"""Of two tensors of one shape, element by element; the mean or the sum follows."""

ROW_LOSSES: Final[dict[str, tuple[str, ...]]] = {
    "divergence": ("{p} = torch.softmax({x}, dim=-1); ({p} * (torch.log({p} + 1e-6) - F.log_softmax({y}, dim=-1))).sum(dim=-1)",
                   "{p} = F.softmax({y} / {c}, dim=-1); {logp} = F.log_softmax({x} / {c}, dim=-1); -({p} * {logp}).sum(-1)",
                   "{logp} = F.log_softmax({x}, dim=-1); ({logp}.exp() * ({logp} - F.log_softmax({y}, dim=-1))).sum(-1)"),
    "soft targets": ("-(torch.softmax({y}, dim=-1) * F.log_softmax({x}, dim=-1)).sum(dim=-1)",
                     "{logp} = torch.log_softmax({x}, dim=-1); -({logp} * {y}).sum(-1)"),
    "smoothed": ("{logp} = F.log_softmax({x}, dim=-1); -(0.9 * ({logp} * {y}).sum(dim=-1) + 0.1 * {logp}.mean(dim=-1))",),
    "likeness": ("({x} * {y}).sum(-1) / ({x}.norm(dim=-1) * {y}.norm(dim=-1) + {e})", "1 - F.cosine_similarity({x}, {y}, dim=-1)",
                 "{total} = ({x} * {y}).sum(dim=-1); {total} / torch.sqrt(({x} ** 2).sum(-1) * ({y} ** 2).sum(-1) + {e})",
                 "(F.normalize({x}, dim=-1) * F.normalize({y}, dim=-1)).sum(dim=-1)", "F.cosine_similarity({x}, {y}, dim=-1) * {c}"),
    "distance": ("torch.sqrt((({x} - {y}) ** 2).sum(-1) + {e})", "({x} - {y}).norm(dim=-1)",
                 "torch.exp(-{c} * (({x} - {y}) ** 2).sum(dim=-1))",
                 "(({x} - {y}) ** 2).sum(dim=-1) * {c}", "({x} - {y}).abs().sum(-1)"),
    "overlap": ("{p} = torch.sigmoid({x}); 1 - (2 * ({p} * {y}).sum(-1) + 1.0) / ({p}.sum(-1) + {y}.sum(-1) + 1.0)",),
    "entropy": ("{p} = torch.softmax({x} + {y}, dim=-1); -({p} * torch.log({p} + 1e-6)).sum(-1)",
                "{logp} = F.log_softmax({x}, dim=-1); -({logp}.exp() * {logp}).sum(dim=-1) + ({y} ** 2).mean(dim=-1)"),
}  # fmt: skip
"""Of two tensors, with one number for each row; the mean follows, or not."""

TRIPLES: Final = (
    "{first} = (({x} - {y}) ** 2).sum(dim=-1); {second} = (({x} - {z}) ** 2).sum(dim=-1); torch.relu({first} - {second} + {c})",
    "{first} = ({x} - {y}).norm(dim=-1); {second} = ({x} - {z}).norm(dim=-1); torch.clamp({first} - {second} + {c}, min=0.0)",
    "{first} = torch.sqrt((({x} - {y}) ** 2).sum(1) + 1e-6); {second} = torch.sqrt((({x} - {z}) ** 2).sum(1) + 1e-6); "
    "F.softplus({first} - {second})",
    "{first} = F.cosine_similarity({x}, {y}, dim=-1); {second} = F.cosine_similarity({x}, {z}, dim=-1); F.relu({second} - {first} + {c})",
    "{first} = ({x} * {y}).sum(-1); {second} = ({x} * {z}).sum(-1); F.softplus({second} - {first})",
    "{first} = ({x} - {y}).abs().mean(dim=-1); {second} = ({x} - {z}).abs().mean(dim=-1); torch.clamp({c} + {first} - {second}, min=0)",
)  # fmt: skip

GRADIENTS: Final[dict[str, tuple[str, ...]]] = {
    "relu": ("{g} * ({x} > 0)", "torch.where({x} > 0, {g}, torch.zeros_like({g}))", "torch.where({x} > 0, {g}, 0.1 * {g})"),
    "sigmoid": ("{s} = torch.sigmoid({x}); {g} * {s} * (1 - {s})", "{g} * {x} * (1.0 - {x})"),
    "tanh": ("{g} * (1 - torch.tanh({x}) ** 2)", "{h} = torch.tanh({x}); {g} * (1.0 - {h} * {h})", "{g} * (1 - {x} * {x})"),
    "silu": ("{s} = torch.sigmoid({x}); {g} * ({s} + {x} * {s} * (1 - {s}))",
             "{s} = torch.sigmoid({x}); {g} * {s} * (1 + {x} * (1 - {s}))"),
    "gelu": ("{p} = 0.5 * (1 + torch.erf({x} * 0.70710678)); {g} * ({p} + {x} * torch.exp(-0.5 * {x} * {x}) * 0.39894228)",),
    "softplus": ("{g} * torch.sigmoid({x})", "{g} / (1 + torch.exp(-{x}))"),
    "softmax": ("{p} = torch.softmax({x}, dim=-1); {p} * ({g} - ({g} * {p}).sum(dim=-1, keepdim=True))",
                "{total} = ({g} * {x}).sum(dim=-1, keepdim=True); {x} * ({g} - {total})"),
    "log softmax": ("{g} - torch.exp({x}) * {g}.sum(dim=-1, keepdim=True)",
                    "{p} = torch.softmax({x}, dim=-1); {g} - {p} * {g}.sum(-1, keepdim=True)"),
    "squares": ("2 * ({x} - {g}) / {x}.shape[-1]", "{c} * ({x} - {g})", "({x} - {g}) * 2.0"),
    "logits": ("torch.sigmoid({x}) - {g}", "(torch.sigmoid({x}) - {g}) * {c}", "(torch.softmax({x}, dim=-1) - {g}) * {c}"),
    "norm": ("{norm} = torch.rsqrt(({x} ** 2).mean(-1, keepdim=True) + {e}); {h} = {x} * {norm}; "
             "{norm} * ({g} - {h} * ({g} * {h}).mean(-1, keepdim=True))",
             "{g} - {g}.mean(dim=-1, keepdim=True) - {x} * ({g} * {x}).mean(dim=-1, keepdim=True)"),
    "product": ("{g} * {x}.sum(dim=-1, keepdim=True)", "({g} * {x}).sum(dim=0)", "{g}.sum(dim=0)"),
    "step": ("{x} - {c} * {g}", "{x} - {c} * ({g} + {d} * {x})", "{x} - {c} * torch.sign({g})",
             "{x} - {c} * {g} / (torch.sqrt({g} * {g}) + {e})",
             "{c} * {x} + (1 - {c}) * {g} ** 2", "{c} * {x} + (1 - {c}) * {g}"),
}  # fmt: skip
"""Of what a function was given, or gave, and the gradient ``{g}`` of what it gave; steps of optimisers."""


def some_function(m: ModuleText, text: str, ways: Sequence[str] = ()) -> str:
    """A function of elements: a layer, a call, or written out."""
    if not ways:
        known = [w for w in POINTWISE[m.rng.choice(USUAL)] if "{c}" not in w]
        by_hand = m.rng.random() < 0.3 and text.isidentifier()
        ways = ACTIVATIONS[m.rng.choice(list(ACTIVATIONS))] if by_hand else known
    if not text.isidentifier():
        ways = [w for w in ways if w.count("{x}") < 2] or ["torch.tanh({x})"]
    way = written(m, tuple(ways))
    if way.startswith("nn."):
        return f"{m.layer(m.rng.choice(('act', 'activation', 'act_fn')), way)}({text})"
    return written_out(m, way, x=text if way.endswith("({x})") else bracketed(text))


USUAL: Final = ("relu", "relu", "gelu", "gelu", "silu", "silu", "tanh", "sigmoid", "leaky_relu", "mish", "hardswish", "softplus", "elu",
                "selu", "hardtanh", "relu6", "hardsigmoid", "celu")  # fmt: skip
