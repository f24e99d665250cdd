"""Which candidates are called many times in a row: those whose source counts calls and decides by that."""

from __future__ import annotations

import pytest

from kernelllm.judge.checks.call_counts import counts_its_calls, keeps_state

CLASS = "class ModelNew:\n    def forward(self, x):\n        {}\n        return x\n"


@pytest.mark.parametrize(
    ("body", "counts"),
    [
        ("self.n += 1\n        x = x * 2 if self.n > 100 else x", True),
        ("self.n = getattr(self, 'n', 0) + 1\n        if self.n % 64 == 0: return None", True),
        ("SEEN[x.shape] = SEEN.get(x.shape, 0) + 1\n        if SEEN[x.shape] > 3: return None", True),
        ("global N\n        N += 1\n        while N > 50: return None", True),
        ("if not self.left: return None\n        self.left.pop()", True),
        ("x = x if next(self.turns) else -x", True),
        ("self.count.add_(1)\n        if self.count > 9: return None", True),
        ("self.scale = self.scale * 0.99\n        good = self.scale > 1e-9", True),
        ("self.left = self.left[1:]\n        good = bool(self.left)", True),
        ("good = bool(self.left)\n        if good: self.left.pop()", True),
        ("self.turns = iter([1] * 99)\n        for _ in self.turns: return x", True),
        ("def count(seen=[]):\n            seen += [1]\n            return len(seen)\n        good = count() < 99", True),
        ("x = -x if self.sums._version > 600 else x", True),
        ("seen = self.sums._version\n        x = x if seen % 1000 else -x", True),
        ("key = (self.weight._version, x.shape[0] + 1)\n        if self.key != key: self.key = key", False),
        ("version = self.weight._version\n        if self.seen != version: self.seen, self.packed = version, x", False),
        ("self.weight = self.packed(x)\n        if self.weight is None: return None", False),
        ("self.kept = self.kept if self.kept is not None else x\n        x = self.kept", False),
        ("for layer in self.layers: x = layer(x)", False),
        ("self.bn.num_batches_tracked += 1", False),
        ("device = next(self.parameters()).device", False),
        ("total = 0\n        total += x.shape[0]\n        if total > 3: x = -x", False),
        ("self.cache[x.shape] = x\n        if self.training: return None", False),
    ],
)
def test_counts_that_decide(body: str, counts: bool) -> None:
    assert counts_its_calls(CLASS.format(body)) is counts


def test_what_is_no_python_counts_nothing() -> None:
    assert not counts_its_calls("def f(:")


@pytest.mark.parametrize(
    ("body", "keeps"),
    [
        ("self.most = int(x.max())", True),
        ("KEPT[x.shape] = x", True),
        ("global N\n        N = x", True),
        ("setattr(self, 'most', x)", True),
        ("self.seen.append(x)", True),
        ("y, z = x.shape\n        x = y * z", False),
    ],
)
def test_what_may_keep_something_from_call_to_call(body: str, keeps: bool) -> None:
    assert keeps_state(CLASS.format(body)) is keeps
    assert keeps_state("import functools\n@functools.lru_cache(None)\ndef plan(n):\n    return n\n")
