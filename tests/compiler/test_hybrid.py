"""What ``extern="allow"`` leaves to torch: convolutions that follow every size, and never all that there is to compute."""

from __future__ import annotations

from pathlib import Path

import pytest
from compiled import IMPORTS, captured, lowered, problem
from emitted import agrees_with_reference

from kernelllm.compiler.compiler_writer import compiled
from kernelllm.compiler.emit import emit
from kernelllm.compiler.options import Options
from kernelllm.core.errors import CaptureError

ALLOW = Options(extern="allow")

DOWN_AND_UP = """
class Model(nn.Module):
    def __init__(self, channels, hidden, groups, reduce_1x1):
        super().__init__()
        self.down = nn.Conv2d(channels, hidden, 3, stride=2, padding=1, dilation=2)
        self.norm = nn.BatchNorm2d(hidden)
        self.squeeze = nn.Conv2d(hidden, reduce_1x1, 1)
        self.grow = nn.Conv2d(reduce_1x1, hidden, 1)
        self.up = nn.ConvTranspose2d(hidden, hidden, 4, stride=2, output_padding=1, groups=groups)
        self.mix = nn.Conv1d(hidden, channels, 1, bias=False)
    def forward(self, x):
        h = F.gelu(self.up(self.grow(self.squeeze(torch.relu(self.norm(self.down(x)))))))
        return torch.sigmoid(self.mix(h.mean(3)))
batch, channels, hidden, groups, height, width, reduce_1x1 = 4, 6, 24, 3, 33, 40, 16
def get_inputs(): return [torch.rand(batch, channels, height, width)]
def get_init_inputs(): return [channels, hidden, groups, reduce_1x1]
"""

ONLY = """
class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.conv = nn.Conv2d(n, n, 3)
    def forward(self, x, a, b):
        return {result}
n = 24
def get_inputs(): return [torch.rand(2, n, n, n), torch.rand(n, n), torch.rand(n, n)]
def get_init_inputs(): return [n]
"""


def test_torchs_convolutions_are_right_at_other_sizes(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(IMPORTS + DOWN_AND_UP, encoding="utf-8")
    text = emit(problem(DOWN_AND_UP), lowered(DOWN_AND_UP, ALLOW))
    for function in ("conv1d", "conv2d", "conv_transpose2d"):
        assert f"torch.nn.functional.{function}(" in text
    (tmp_path / "candidate.py").write_text(text, encoding="utf-8")
    sizes = [{}, {"batch": 2, "channels": 5, "hidden": 15, "reduce_1x1": 9, "height": 17, "width": 12}]
    agrees_with_reference(tmp_path, [("net", str(tmp_path / "candidate.py"), sizes)])


@pytest.mark.parametrize("result", ["torch.tril(a @ b.T)", "self.conv(x)", "torch.cat([self.conv(x)[:, :9], x[:, :9, 2:, 2:]])"])
def test_torch_is_not_left_all_that_there_is_to_compute(result: str) -> None:
    with pytest.raises(CaptureError, match=r"Nothing is left to compute once torch does (mm|conv)\."):
        captured(ONLY.format(result=result), ALLOW)


@pytest.mark.parametrize("result", ["torch.tril(a @ b) + 1", "torch.relu(self.conv(x))", "torch.where(a > b, a @ b, b)"])
def test_torch_is_left_a_part(result: str) -> None:
    assert captured(ONLY.format(result=result), ALLOW)


@pytest.mark.parametrize(("rows", "left"), [(2**14, 0), (512, 1)])
def test_norms_of_large_tensors_in_a_list_join_what_makes_them(rows: int, left: int) -> None:
    body = f"""
class Model(nn.Module):
    def forward(self, a, b):
        whole = torch.stack(torch._foreach_norm([a.float(), b.float()])).norm()
        return a / whole, b / whole
rows, columns = {rows}, 128
def get_inputs(): return [torch.randn(rows, columns).half(), torch.randn(rows, columns).half()]
"""
    assert compiled(problem(body), Options(extern="allow")).count("_foreach_norm.Scalar(") == left


TRANSCRIPTS = """
class Model(nn.Module):
    def __init__(self, width, symbols):
        super().__init__()
        self.head = nn.Linear(width, symbols)
    def forward(self, x, labels, lengths, label_lengths):
        with torch.enable_grad():
            scores = F.log_softmax(F.gelu(self.head(x)), -1).transpose(0, 1)
            losses = [F.ctc_loss(scores, labels, lengths, label_lengths, 0, *kind) for kind in (("none", True), ("mean",), ("sum",))]
            total = losses[0].square().mean() + losses[1] + losses[2] * 0.01
            return total.detach(), *torch.autograd.grad(total, list(self.parameters()))
batch, frames, width, symbols, most = 3, 20, 12, 8, 4
def get_inputs(): return [torch.randn(batch, frames, width), torch.randint(1, symbols, (batch, most)),
                          torch.randint(12, frames + 1, (batch,)), torch.randint(1, most + 1, (batch,))]
def get_init_inputs(): return [width, symbols]
"""


def test_gradients_of_a_loss_over_alignments_are_torchs(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(IMPORTS + TRANSCRIPTS, encoding="utf-8")
    text = compiled(problem(TRANSCRIPTS), ALLOW)
    (tmp_path / "candidate.py").write_text(text, encoding="utf-8")
    agrees_with_reference(tmp_path, [("net", str(tmp_path / "candidate.py"), [{}, {"batch": 2, "frames": 17, "symbols": 11, "width": 10}])])
