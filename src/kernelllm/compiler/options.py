"""Options of the compiler: what is left to torch, known sizes, tiles, TF32; candidates of one problem differ in them."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Extern = Literal["allow", "auto", "avoid", "forbid"]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """One way to compile a problem. The defaults are the first candidate of every problem."""

    extern: Extern = "avoid"
    """Heavy operators: ``allow`` leaves them to torch, ``avoid`` uses Triton templates where one exists,
    ``forbid`` raises CaptureError where none exists; ``auto`` writes candidates of both of the first two ways."""
    target: str = "sm_90"
    """Compile target whose device figures Inductor sees."""
    trace: Literal["make_fx", "export"] = "make_fx"
    """The way of tracing that is tried first."""
    symbolic: bool = True
    """Sizes stay symbols; False bakes the problem's own sizes in."""
    fixed: bool = False
    """The file has a path of its own for the problem's sizes, with the layouts and library calls of ``torch.compile``, ahead of the
    general one."""
    mixed: bool = False
    """On the path for the problem's sizes, a template stands for what it is known to do faster than torch's library, and kernels are
    tuned for which Inductor would try several block sizes."""
    attention: Literal["torch", "cudnn"] = "torch"
    """Attention on the path for the problem's sizes: by the backend of torch's choice, or by cuDNN's where it can do it."""
    backward: bool = False
    """Write the backward as well: gradients of floating inputs and of parameters. Without it the file is for inference."""
    unroll: bool = False
    """A loop over a dimension is unrolled for the problem's own length, as ``torch.compile`` does."""
    persistent: Literal["auto", "always", "never"] = "auto"
    """Reductions that hold a whole row in registers: by Inductor's rule, wherever the row fits, or never (a loop)."""
    fusion: bool = True
    """False gives every operator its own kernel."""
    split_reductions: bool = True
    """False keeps each reduction in one kernel even when it has too few rows to fill the device."""
    tile: Literal["auto", "small", "large"] = "auto"
    """Block sizes the emitter picks: Inductor's heuristic, a quarter of it, or four times it."""
    autotune: bool = False
    """The emitter writes ``triton.autotune`` over a few block sizes instead of one fixed choice, in a file with a path for the problem's
    sizes on that path."""
    any_dtype: bool = True
    """One file serves float32 and half precision where the reference does; False writes it for the inputs' own dtypes."""
    short: bool = False
    """One way for all sizes and settings, by plain templates where they serve, without the checks of what a call brings, sizes named by
    their place: a file to learn from, not a fast one. It is for the inputs' own dtypes."""
    steps: bool = False
    """The file goes through the module step by step, with one host function for each layer and kernels of one step a line, where that is
    known for all that the module has; otherwise it is ``short``."""
    conv_tf32: bool = True
    """fp32 convolutions may round their inputs to TF32, as torch's default (``torch.backends.cudnn.allow_tf32``) does."""
    write_time: float = 60.0
    """Seconds of work that writing may take. Each way of capture may take half of what is left, the last one all."""
    matmul_tf32: bool = False
    """fp32 matrix products may round their inputs to TF32; torch's default does not."""

    @property
    def library(self) -> bool:
        """Whether the graph is lowered as ``torch.compile`` lowers it: fixed sizes, Inductor's layouts and its library calls."""
        return self.extern == "allow" and not self.symbolic and not self.backward

    @property
    def settled(self) -> Options:
        """With what follows from ``short``."""
        return msgspec.structs.replace(self, persistent="never", split_reductions=False, short=True) if self.short or self.steps else self

    def differences(self) -> dict[str, Any]:
        """The fields that differ from the defaults, for a candidate's ``params``."""
        default = Options()
        return {f: getattr(self, f) for f in self.__struct_fields__ if getattr(self, f) != getattr(default, f)}
