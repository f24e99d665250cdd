"""Whole models by ``torch.compile(backend="kernelllm")``, beside torch.compile's own modes, in one run on one GPU.

    python benchmarks/models.py [--only NAME ...] [--modes MODE ...] [--ours MODE ...] [--unverified] [--profile] [--tiny] [--seconds 240]

Random weights, sizes of published models (Qwen3-0.6B, ViT-B/16, ResNet-50, BERT-base, a stack of a diffusion U-Net). Each model runs in a
process of its own. Each way is compiled and timed after the other; the median ms of a call counts: by the wall, calls back to back,
forward and backward where the name says ``step``. ``--ours`` are the modes that the backend is given. Results are compared with
eager's. ``--unverified`` runs written files at once, neither judged nor timed beside Inductor's. ``--profile`` adds the kernels' own
time and number, by torch's profiler. ``--tiny`` shrinks all sizes, to try the script without a GPU. Needs transformers.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import kernelllm

Step = Callable[[], Any]
MODES = ("default", "max-autotune-no-cudagraphs", "reduce-overhead")


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


# ---- models


def qwen(tiny: bool, dtype: torch.dtype) -> nn.Module:
    from transformers import Qwen3Config, Qwen3Model

    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
             "intermediate_size": 96, "vocab_size": 128} if tiny else {
             "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
             "intermediate_size": 3072, "vocab_size": 151936}  # fmt: skip
    return Qwen3Model(Qwen3Config(**sizes)).to(dtype).eval()


class DecodingStep(nn.Module):
    """One token for each row, with a cache that is full but for one place."""

    def __init__(self, model: nn.Module, batch: int, length: int) -> None:
        super().__init__()
        from transformers import StaticCache

        self.model, self.length = model, length
        weight = next(model.parameters())
        self.cache = StaticCache(config=model.config, max_cache_len=length)
        heads, size = model.config.num_key_value_heads, model.config.head_dim
        for layer in self.cache.layers:
            state = torch.randn(batch, heads, length - 1, size, dtype=weight.dtype, device=weight.device)
            layer.update(state, state.clone())

    def forward(self, token: torch.Tensor) -> torch.Tensor:
        for layer in self.cache.layers:
            if hasattr(layer, "cumulative_length"):
                layer.cumulative_length.fill_(self.length - 1)
        place = torch.full((1, 1), self.length - 1, device=token.device).expand(token.shape[0], 1)
        return self.model(input_ids=token, position_ids=place, past_key_values=self.cache, use_cache=True).last_hidden_state


class Residual(nn.Module):
    def __init__(self, width: int, made: int) -> None:
        super().__init__()
        self.first, self.second = (
            nn.Sequential(nn.GroupNorm(min(32, i), i), nn.SiLU(), nn.Conv2d(i, made, 3, padding=1)) for i in (width, made)
        )
        self.time = nn.Linear(width, made)
        self.skip = nn.Conv2d(width, made, 1) if width != made else nn.Identity()

    def forward(self, x: torch.Tensor, time_embedding: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x) + self.time(time_embedding)[:, :, None, None]
        return self.skip(x) + self.second(hidden)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm = heads, nn.GroupNorm(min(32, width), width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, c, h, w = x.shape
        tokens = self.norm(x).flatten(2).transpose(1, 2)
        q, k, v = (t.reshape(b, h * w, self.heads, -1).transpose(1, 2) for t in self.qkv(tokens).chunk(3, dim=-1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, h * w, c)
        return x + self.out(mixed).transpose(1, 2).reshape(b, c, h, w)


class UNetStack(nn.Module):
    """Residual and attention blocks of one level of a diffusion model, down and up again."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.width = width
        self.blocks = nn.ModuleList(nn.ModuleList([Residual(width, width), Attention(width, heads)]) for _ in range(2))
        self.down, self.up = nn.Conv2d(width, width, 3, stride=2, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.middle, self.merge = Residual(width, width), nn.Conv2d(2 * width, width, 1)

    def forward(self, x: torch.Tensor, time_embedding: torch.Tensor) -> torch.Tensor:
        for residual, attention in self.blocks:
            x = attention(residual(x, time_embedding))
        low = self.middle(self.down(x), time_embedding)
        raised = self.up(nn.functional.interpolate(low, scale_factor=2.0, mode="nearest"))
        return self.merge(torch.cat([x, raised], dim=1))


class LossOf(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=ids, labels=labels).loss


def made(name: str, tiny: bool, device: str) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The model on its device, and its inputs."""
    half = torch.float32 if tiny and device == "cpu" else torch.float16
    if name == "prefill":
        return qwen(tiny, torch.bfloat16).to(device), (torch.randint(0, 128, (1, 64 if tiny else 2048), device=device),)
    if name in ("decode1", "decode8"):
        batch = int(name[6:])
        model = qwen(tiny, torch.bfloat16).to(device)
        return DecodingStep(model, batch, 64 if tiny else 2048), (torch.randint(0, 128, (batch, 1), device=device),)
    if name == "vit":
        from transformers import ViTConfig, ViTModel

        small = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96}
        small |= {"image_size": 32, "patch_size": 8}
        config = ViTConfig(**(small if tiny else {}))
        shape = (2 if tiny else 64, 3, config.image_size, config.image_size)
        return ViTModel(config).to(device, half).eval(), (torch.randn(shape, device=device, dtype=half),)
    if name == "resnet50":
        from transformers import ResNetConfig, ResNetModel

        resnet = ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1]) if tiny else ResNetConfig()
        side = 32 if tiny else 224
        return ResNetModel(resnet).to(device, half).eval(), (torch.randn(2 if tiny else 64, 3, side, side, device=device, dtype=half),)
    if name == "unet":
        width, heads, batch, side = (16, 2, 1, 8) if tiny else (640, 10, 8, 32)
        values = [torch.randn(s, device=device, dtype=half) for s in ((batch, width, side, side), (batch, width))]
        return UNetStack(width, heads).to(device, half).eval(), (values[0], values[1])
    from transformers import BertConfig, BertForMaskedLM

    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": 128}
    bert = BertForMaskedLM(BertConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **(small if tiny else {})))
    ids = torch.randint(0, 128, (2, 16) if tiny else (16, 256), device=device)
    return LossOf(bert).to(device, torch.bfloat16).train(), (ids, ids)


NAMES = ("prefill", "decode1", "decode8", "vit", "resnet50", "unet", "bert_step")


# ---- one model


def step_of(run: Callable[..., Any], model: nn.Module, inputs: tuple[torch.Tensor, ...], backward: bool) -> Step:
    def forward() -> Any:
        with torch.no_grad():
            return run(*inputs)

    def both() -> Any:
        for p in model.parameters():
            p.grad = None
        loss = run(*inputs)
        loss.backward()
        return loss.detach()

    return both if backward else forward


def first(result: Any) -> torch.Tensor:
    return result if isinstance(result, torch.Tensor) else result[0]


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def timed(step: Step, device: str, seconds: float = 0.25) -> float:
    """ms a call."""
    step()
    wait(device)
    begin = time.perf_counter()
    step()
    wait(device)
    count = max(2, min(200, int(seconds / max(time.perf_counter() - begin, 1e-6))))
    begin = time.perf_counter()
    for _ in range(count):
        step()
    wait(device)
    return (time.perf_counter() - begin) / count * 1e3


def kernels_of(step: Step, most: int = 6) -> dict[str, Any]:
    """Kernels of one call: their time in us, their number, and those that take longest."""
    from torch.profiler import ProfilerActivity, profile

    step()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        step()
        torch.cuda.synchronize()
    events = [e for e in found.key_averages() if e.self_device_time_total > 0]
    events.sort(key=lambda e: -e.self_device_time_total)
    slowest = [f"{e.key[:60]} {e.count}x {e.self_device_time_total:.0f}" for e in events[:most]]
    return {"us": round(sum(e.self_device_time_total for e in events)), "launches": sum(e.count for e in events), "slowest": slowest}


def ours_of(mode: str) -> str:
    """The name of the backend in a mode."""
    return "kernelllm" if mode == "default" else f"kernelllm {mode}"


def one(name: str, modes: list[str], ours: list[str], tiny: bool, unverified: bool = False, profiled: bool = False) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model, inputs = made(name, tiny, device)
    backward = name.endswith("_step")
    steps: dict[str, Step] = {"eager": step_of(model, model, inputs, backward)}
    expected = first(steps["eager"]()).float()
    row: dict[str, Any] = {"model": name, "ms": {}, "first_call_s": {}, "error": {}}
    # torch takes a mode or options, not both
    unjudged = {"verify": "off", "fallback": "eager", "wait_s": 600.0}
    ways: list[tuple[str, dict[str, Any]]] = [
        (ours_of(m), {"backend": "kernelllm", **({"options": {"mode": m, **unjudged}} if unverified else {"mode": m})}) for m in ours
    ]
    ways += [(mode, {"mode": mode}) for mode in modes]
    for mode, options in ways:
        torch.compiler.reset()
        steps[mode] = step_of(torch.compile(model, **options), model, inputs, backward)
        begin = time.perf_counter()
        result = first(steps[mode]()).float()
        if mode.startswith("kernelllm"):
            kernelllm.compile_report().finish()
            for _ in range(70):  # until it is known what is fastest
                steps[mode]()
            result = first(steps[mode]()).float()
            say(f"-- {name}, {mode}\n{kernelllm.compile_report()}")
        wait(device)
        row["first_call_s"][mode] = round(time.perf_counter() - begin, 1)
        row["error"][mode] = float((result - expected).abs().max() / expected.abs().max().clamp(min=1e-9))
        row["ms"][mode] = statistics.median(timed(steps[mode], device) for _ in range(5))
        say(f"-- {name}, {mode}: {row['ms'][mode]:.3f} ms, error {row['error'][mode]:.1e}, first calls {row['first_call_s'][mode]} s")
        if profiled:
            say(f"-- {name}, {mode}, kernels: {json.dumps(kernels_of(steps[mode]))}")
    row["ms"]["eager"] = statistics.median(timed(steps["eager"], device) for _ in range(3))
    say("ROW " + json.dumps(row))


# ---- all of them


def table(rows: list[dict[str, Any]], modes: list[str], ours: list[str]) -> None:
    names = [ours_of(mode) for mode in ours]
    ways = "".join(f"{w[-14:]:>16}" for w in ("eager", *modes, *names))
    say(f"\n{'model':<10}{ways}{'over default':>14}{'over best':>11}{'error':>10}")
    for row in rows:
        ms = row["ms"]
        best, own = min(ms[m] for m in modes), min(ms[w] for w in names)
        say(f"{row['model']:<10}" + "".join(f"{ms[w]:>13.3f} ms" for w in ("eager", *modes, *names))
            + f"{ms[modes[0]] / ms[names[0]]:>13.2f}x{best / own:>10.2f}x{max(row['error'][w] for w in names):>10.1e}")  # fmt: skip
    if rows:
        mean = statistics.geometric_mean(r["ms"][modes[0]] / r["ms"][names[0]] for r in rows)
        say(f"geometric mean of {names[0]} over {modes[0]}: {mean:.2f}x, {len(rows)} models")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=list(NAMES))
    parser.add_argument("--modes", nargs="*", default=list(MODES))
    parser.add_argument("--ours", nargs="*", default=["default"], help="modes that the backend is given")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--seconds", type=float, default=240.0, help="for one model, compiling included")
    parser.add_argument("--unverified", action="store_true", help="run written files at once, without a verdict")
    parser.add_argument("--profile", action="store_true", help="time of the kernels alone, too")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        one(args.one, args.modes, args.ours, args.tiny, args.unverified, args.profile)
        return
    rows = []
    for name in args.only:
        command = [sys.executable, str(Path(__file__)), "--one", name, "--modes", *args.modes, "--ours", *args.ours]
        command += [f"--{flag}" for flag in ("tiny", "unverified", "profile") if getattr(args, flag)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=args.seconds, check=False)
        except subprocess.TimeoutExpired as late:
            said = late.stdout.decode(errors="replace") if isinstance(late.stdout, bytes) else late.stdout or ""
            say(f"{said}-- {name}: not done in {args.seconds:g} s")
            continue
        lines = done.stdout.splitlines()
        found = [json.loads(line[4:]) for line in lines if line.startswith("ROW ")]
        rows += found
        say("\n".join(line for line in lines if not line.startswith("ROW ")) if found else f"-- {name} failed:\n{done.stderr[-1500:]}")
        for row in found:
            say(json.dumps(row))
    table(rows, args.modes, args.ours)


if __name__ == "__main__":
    main()
