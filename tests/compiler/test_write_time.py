"""Writing is bounded, candidates share it, and wrong ones are followed by other ways of capture; what nothing is left of is refused."""

import time

import pytest
from compiled import problem

from kernelllm.compiler import write_time
from kernelllm.compiler.compiler_writer import Compiler, Lowerings, compiled
from kernelllm.compiler.inductor import lower
from kernelllm.compiler.options import Options
from kernelllm.core.errors import CaptureError
from kernelllm.core.types import Attempt, Finding, Status, Verdict

LONG = """
class Model(nn.Module):
    def forward(self, x):
        i = 0
        while i < 1500:
            x, i = torch.sin(x) + x[..., :1] * i, i + 1
        return x
def get_inputs(): return [torch.randn(8, 16)]
"""

FILTER = """
class Model(nn.Module):
    def forward(self, x, w):
        return torch.fft.irfft(torch.fft.rfft(x, dim=1), dim=1) * w
def get_inputs(): return [torch.randn(4, 2048), torch.randn(2048)]
"""

COUNTS = """
class Model(nn.Module):
    def forward(self, x):
        return torch.bincount(x)
def get_inputs(): return [torch.randint(0, 50, (200,))]
"""

PRODUCT = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(64, 32)
    def forward(self, x):
        return torch.softmax(self.fc(x), dim=1)
def get_inputs(): return [torch.randn(65536, 64)]
"""


def test_candidates_share_what_was_lowered_and_are_as_if_they_did_not(monkeypatch):
    tuned, known = Options(autotune=True), Lowerings()
    alone = compiled(problem(PRODUCT), tuned)
    first = compiled(problem(PRODUCT), Options(), known)
    monkeypatch.setattr(lower, "lower", None)
    assert compiled(problem(PRODUCT), tuned, known) == alone != first
    assert compiled(problem(PRODUCT), Options(), known) == first
    assert known.get(problem(PRODUCT), Options(persistent="never")) is None


def test_writing_ends_in_time():
    start = time.thread_time()
    with pytest.raises(CaptureError, match="longer than it may"):
        list(Compiler(write_time=1.5).write(problem(LONG), 1))
    assert time.thread_time() - start < 20


def test_a_share_of_the_time_ends_before_the_whole():
    with write_time.limited(60):
        with pytest.raises(write_time.OutOfTime), write_time.limited(-1):
            write_time.check()
        write_time.check()


def test_a_part_that_torch_does_is_named():
    (candidate,) = Compiler().write(problem(FILTER), 1)
    assert candidate.note == "Torch does _fft_r2c, _fft_c2r."


def test_where_torch_does_all_it_is_not_compiled():
    with pytest.raises(CaptureError, match=r"is not compiled: nothing is left for a kernel. Torch does bincount"):
        list(Compiler().write(problem(COUNTS), 1))


def test_after_wrong_candidates_come_other_ways_of_capture():
    (first,) = Compiler().write(problem(FILTER), 1)
    verdict = Verdict(status=Status.INCORRECT, message="wrong")
    ways = [c.params for c in Compiler().write(problem(FILTER), 2, [Attempt(problem="case", candidate=first, verdict=verdict)])]
    assert {"symbolic": False} in ways


def test_after_a_file_that_is_wrong_in_a_dtype_it_serves_comes_one_for_the_modules_own() -> None:
    (first,) = Compiler().write(problem(PRODUCT), 1)
    served = Verdict(status=Status.INCORRECT, message="wrong", findings=(Finding(check="silently_different", message="in float16"),))
    (second,) = Compiler().write(problem(PRODUCT), 1, [Attempt(problem="case", candidate=first, verdict=served)])
    assert second.params == {"any_dtype": False}
    assert ("torch.float16" in first.source, "torch.float16" in second.source) == (True, False)
