"""Ways to build and call a class or a factory that nobody has told about: by names, annotations, and what its layers take."""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch
from torch import nn

WIDTH: Final = 32
BATCH: Final = 2
LENGTH: Final = 16
CONSTRUCTORS: Final = 12
CALLS: Final = 80
"""Combinations that are tried for one class."""

_BY_NAME: Final[tuple[tuple[str, tuple[Any, ...]], ...]] = (
    (r"head_dim|dim_head|head_size|d_k$|d_v$", (8, 16)),
    (r"^(n|num)_?heads?$|heads?$|nhead|num_attention_heads|n_head", (4, 2)),
    (r"num_key_value_heads|kv_heads", (2, 4)),
    (r"kernel|window|ks$", (3, 4, (3, 3))),
    (r"patch", (4, (4, 4), 2)),
    (r"spatial_dims|^ndim|n_dims|num_dims|dimension$", (2, 3, 1)),
    (r"^n_modes|modes", ((4, 4), 4, (4,))),
    (r"stride|dilation|groups|num_layers|depth$|n_?layers$|num_blocks|blocks$|repeat", (1, 2, 4)),
    (r"expansion|ratio|factor|scale$|reduction|rate|upscale", (1, 2, 4)),
    (r"padding", (1, 0)),
    (r"drop|^p$|prob", (0.0,)),
    (r"eps", (1e-5,)),
    (r"bias|affine|use_|with_|is_|enable|causal", (True, False)),
    (r"act|nonlin", ("relu", nn.ReLU, "gelu", nn.ReLU())),
    (r"norm_layer|norm", (nn.BatchNorm2d, nn.LayerNorm, "batch")),
    (r"conv_layer|conv$", (nn.Conv2d,)),
    (r"depths|layers", ([1, 1, 1, 1], 2)),
    (r"channels$|dims$|sizes$|features$", (WIDTH, [16, 32, 64, 128])),
    (r"max_.*(len|pos)|seq_?len|length|num_patches|num_tokens|positions|context|horizon|^h$|input_size", (LENGTH, 64)),
    (r"layer_idx|layer_id|index", (0,)),
    (r"vocab|num_embeddings|num_classes|classes|num_tokens|n_class", (10, WIDTH)),
    (r"img_?size|image_?size|resolution|height|width", (32, (32, 32), 224)),
    (r"device|dtype", (None,)),
)
_TINY: Final[tuple[tuple[str, int], ...]] = (
    (r"intermediate|ffn|ff_dim|mlp_dim|d_ff|n_inner|inner", 64),
    (r"num_key_value_heads|num_kv_heads", 2),
    (r"head_dim|d_kv", 8),
    (r"heads?$|n_head", 4),
    (r"experts_per|top_k", 2),
    (r"experts", 4),
    (r"layers?$|n_layer|depth$|num_blocks|layers_", 2),
    (r"vocab", 99),
    (r"max_.*position|n_positions|max_.*len", 64),
    (r"image_size|img_size", 32),
    (r"patch", 4),
    (r"hidden_size|d_model|embed_dim|embedding_size|n_embd|^dim$|width|hidden_dim|_dim$|^dim|_size$|rank", 32),
)
"""Settings' names to small values, for numbers above these."""
_WIDTHS: Final = re.compile(r"in_channels|in_features|input_size|in_dim|^dim$|embed_dim|hidden_size|num_features|^channels$")
"""Settings that may be None where another says the same."""
_IDS: Final = re.compile(r"(^|_)ids?$|indices|index|tokens?$|labels?$|positions|timesteps?$|^t$|input_ids|target")
_KEPT: Final = re.compile(
    r"_token_id|_idx|_id$|type_vocab|num_channels|version|kernel|stride|conv_|label|image_token|window|initializer|group"
)


def constructors(make: Callable[..., Any]) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Arguments with which a class or a function might work."""
    try:
        parameters = list(inspect.signature(make).parameters.values())
    except (TypeError, ValueError):
        return
    needed = [p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if len(needed) > 8:
        return
    settings = [p for p in needed if "config" in p.name.lower() or p.name in ("cfg", "args")]
    kinds = [_settings_class(p.annotation, make) for p in settings]
    if any(k is None for k in kinds):
        return
    rest = [p for p in needed if p not in settings]
    tries = list(itertools.islice(itertools.product(*(_values(p) for p in rest)), CONSTRUCTORS))
    first: dict[str, Any] = {}
    for values in tries:
        try:
            made = dict(zip((p.name for p in settings), map(tiny, kinds), strict=True))
        except Exception:  # noqa: BLE001 - settings of others refuse what they like
            return
        given = {**made, **dict(zip((p.name for p in rest), values, strict=True))}
        first = first or given
        yield (), {p.name: given[p.name] for p in needed}
    widths = [p.name for p in parameters if p.default is None and _WIDTHS.search(p.name)]
    for names in (widths, *([name] for name in widths[:3])):
        yield (), {**first, **dict.fromkeys(names, WIDTH)}


def _settings_class(annotation: Any, make: Any) -> Any:
    """The class of a parameter that takes settings."""
    if isinstance(annotation, str):
        module = inspect.getmodule(make)
        annotation = getattr(module, annotation.split("|")[0].strip(" '\""), None)
    told = (annotation, *getattr(annotation, "__args__", ()))
    found = next((a for a in told if isinstance(a, type) and a is not type(None)), None)
    return found if found not in (None, inspect.Parameter.empty, int, str, dict) else getattr(make, "config_class", None)


def tiny(kind: Any) -> Any:
    """Settings with small numbers; those that they hold likewise."""
    inner = getattr(kind, "sub_configs", None) or {}
    parameters = inspect.signature(kind.__init__).parameters
    chosen: dict[str, Any] = {}
    for name, p in parameters.items():
        if isinstance(p.default, bool) or _KEPT.search(name):
            continue
        least = next((small for pattern, small in _TINY if re.search(pattern, name)), None)
        if "drop" in name and isinstance(p.default, float):
            chosen[name] = 0.0
        elif isinstance(p.default, int) and least and p.default > least:
            chosen[name] = least
    for name, sub in inner.items():
        try:
            chosen[name] = tiny(sub)
        except Exception:  # noqa: BLE001 - the default stays
            continue
    made = None
    for given in (chosen, {k: v for k, v in chosen.items() if re.search("hidden_size|d_model|layers|inter|heads$", k)}, {}):
        try:
            made = kind(**given)
            break
        except Exception:  # noqa: BLE001 - settings of others refuse what they like
            continue
    if made is None:
        made = kind()
    if hasattr(made, "_attn_implementation"):
        made._attn_implementation = "eager"
        for name in inner:
            if hasattr(getattr(made, name, None), "_attn_implementation"):
                getattr(made, name)._attn_implementation = "eager"
    return made


def _values(p: inspect.Parameter) -> tuple[Any, ...]:
    told = str(p.annotation)
    for pattern, values in _BY_NAME:
        if re.search(pattern, p.name):
            if "List" in told or "Sequence" in told or "list[" in told or "tuple[" in told:
                return tuple(v for v in values if isinstance(v, list | tuple)) or ([1, 1], [16, 32], [16, 32, 64, 128])
            return values
    if "bool" in told:
        return (False, True)
    if "float" in told:
        return (0.5,)
    if "str" in told:
        return ("relu", "mean", "same")
    if "Module" in told or p.name in ("fn", "net", "module", "layer", "block", "backbone", "encoder", "decoder", "model"):
        return (nn.Identity(), nn.Linear(WIDTH, WIDTH), nn.Conv2d(WIDTH, WIDTH, 3, padding=1))
    if "List" in told or "list[" in told or "Sequence" in told or "tuple[" in told or "Tuple" in told:
        return ([WIDTH, WIDTH], [16, 32, 64, 128], (2, 2))
    return (WIDTH, 16)


def inputs(model: nn.Module) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    """Inputs that its forward might take, the most likely first. To be drawn where the model is (fake or real tensors)."""
    try:
        parameters = list(inspect.signature(type(model).forward).parameters.values())[1:]
    except (TypeError, ValueError):
        return
    needed = [p for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    if not needed:
        main = getattr(model, "main_input_name", "")
        needed = [p for p in parameters if p.name == main] or [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD][:1]
        needed += [p for p in parameters if p.name == "decoder_input_ids"]
    if not needed or len(needed) > 6:
        return
    for shape in itertools.islice(_shapes(model), CALLS // 2):
        for others in ("same", "likely", "vector") if len(needed) > 1 else ("same",):
            yield [], {p.name: _draw(p, shape, first=i == 0, others=others) for i, p in enumerate(needed)}


def _draw(p: inspect.Parameter, shape: tuple[Any, ...], *, first: bool, others: str) -> Any:
    told, name = str(p.annotation), p.name
    rows, length = shape[0], shape[1] if len(shape) > 1 else LENGTH
    if "bool" in told and "Tensor" not in told:
        return False
    if told in ("<class 'int'>", "int") or name in ("h", "w", "H", "W", "height", "width"):
        return 4
    if re.search("timestep|^t$|time_?step", name) and not first:
        return torch.randint(0, 7, (rows,))
    if re.search("_lens?$|lengths?$|ilens$", name) and not first:
        return torch.full((rows,), length if isinstance(length, int) else LENGTH)
    if (shape and shape[-1] == "ids") or (_IDS.search(name) and "float" not in told.lower()):
        whole = shape[:-1] if shape[-1] == "ids" else shape[:2] if len(shape) == 3 else shape[:1]
        return torch.randint(0, 7, whole)
    if "pixel" in name or "image" in name or name in ("img", "imgs", "sample"):
        return torch.randn(shape) if len(shape) > 3 else torch.randn(rows, 3, 32, 32)
    if "mask" in name and not first:
        return torch.ones(rows, length if isinstance(length, int) else LENGTH, dtype=torch.bool if others == "same" else torch.float32)
    if ("list" in told.lower() or "sequence" in told.lower()) and "Tensor" in told:
        return [torch.randn(shape), torch.randn(shape)]
    if first or others == "same":
        return torch.randn(shape)
    if others == "vector":
        return torch.randn(rows, shape[-1] if len(shape) < 4 else shape[1])
    return torch.randn(rows, LENGTH, shape[-1] if len(shape) < 4 else shape[1])


def _shapes(model: nn.Module) -> Iterator[tuple[Any, ...]]:
    """Shapes of a first input, each once, by the first layers that have a width."""
    yielded: set[tuple[Any, ...]] = set()
    for shape in itertools.chain(_of_layers(model), _of_numbers(model)):
        if shape not in yielded and all(n == "ids" or 0 < n < 5000 for n in shape):
            yielded.add(shape)
            yield shape


def _of_layers(model: nn.Module) -> Iterator[tuple[Any, ...]]:
    image = next((v for n in ("img_size", "image_size", "input_size", "input_resolution") if (v := getattr(model, n, None))), None)
    side = image[0] if isinstance(image, tuple | list) and isinstance(image[0], int) else image if isinstance(image, int) else 0
    found = 0
    for layer in model.modules():
        if found >= 4:
            return
        found += 1
        match layer:
            case nn.Conv1d() | nn.ConvTranspose1d():
                yield (BATCH, layer.in_channels, 64)
                yield (BATCH, layer.in_channels, 1024)
            case nn.Conv2d() | nn.ConvTranspose2d():
                yield from ((BATCH, layer.in_channels, s, s) for s in (side, 64, 224, 32, 16) if s)
            case nn.Conv3d() | nn.ConvTranspose3d():
                yield from ((BATCH, layer.in_channels, s, s, s) for s in (8, 16, 32))
            case nn.Linear():
                c = layer.in_features
                yield from ((BATCH, LENGTH, c), (BATCH, c), (BATCH, 8, 8, c), (BATCH, 4, LENGTH, c), (BATCH, c, 8, 8))
            case nn.LayerNorm() | nn.RMSNorm():
                c = layer.normalized_shape[-1]
                yield from ((BATCH, LENGTH, c), (BATCH, c), (BATCH, 8, 8, c), (BATCH, c, 8, 8))
            case nn.BatchNorm1d() | nn.InstanceNorm1d():
                yield from ((BATCH, layer.num_features, LENGTH), (BATCH, layer.num_features), (BATCH, LENGTH, layer.num_features))
            case nn.BatchNorm2d() | nn.InstanceNorm2d():
                yield (BATCH, layer.num_features, 16, 16)
            case nn.BatchNorm3d() | nn.InstanceNorm3d():
                yield (BATCH, layer.num_features, 8, 8, 8)
            case nn.GroupNorm():
                yield from ((BATCH, layer.num_channels, 16, 16), (BATCH, layer.num_channels, LENGTH))
            case nn.Embedding():
                yield (BATCH, LENGTH, "ids")
            case nn.RNNBase():
                yield (BATCH, LENGTH, layer.input_size)
            case nn.MultiheadAttention():
                yield (LENGTH, BATCH, layer.embed_dim)
            case _:
                own = list(layer.parameters(recurse=False))
                found -= not own
                for c in dict.fromkeys(n for p in own[:2] for n in (*p.shape[-1:], *p.shape[1:2], *p.shape[:1]) if n > 1):
                    yield from ((BATCH, LENGTH, c), (BATCH, c, 16, 16), (BATCH, c), (BATCH, 4, LENGTH, c), (BATCH, c, LENGTH))


def _of_numbers(model: nn.Module) -> Iterator[tuple[Any, ...]]:
    numbers = [v for v in vars(model).values() if isinstance(v, int) and not isinstance(v, bool) and v > 2]
    for c in (*dict.fromkeys(numbers), WIDTH, 3):
        yield from ((BATCH, c, 16, 16), (BATCH, LENGTH, c), (BATCH, c), (BATCH, c, 64), (BATCH, 8, 8, c), (BATCH, 4, LENGTH, c))
        yield (BATCH, c, 8, 8, 8)
