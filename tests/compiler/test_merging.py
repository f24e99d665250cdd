"""Files of parts put together as one."""

from kernelllm.compiler.loops.merged_files import merged, renamed

BASE = """import math


def shared(x):
    return x + 1


def kernel(x):
    return shared(x) * 2


def caller(x):
    return kernel(x)


class ModelNew:
    def forward(self, x):
        return caller(x)
"""
OTHER = """import math, json
from collections import Counter as Counts


def shared(x):
    return x + 1


def kernel(x):
    return shared(x) * 3  # another one of this name


def caller(x):
    return kernel(x)


def alone(x):
    return len(json.dumps(x)) + math.floor(caller(x)) + sum(Counts([x]).values())


class ModelNew:
    def forward(self, x):
        return alone(x)
"""


def test_each_part_keeps_its_own_functions_and_what_both_have_alike_is_there_once() -> None:
    source = merged(renamed(BASE, "step"), OTHER, "finish")
    names: dict[str, object] = {}
    exec(source, names)
    model = names["ModelNew"]()  # type: ignore[operator]
    assert model.step(4) == 10
    assert model.finish(4) == 1 + 15 + 1
    assert source.count("def shared") == 1
    assert source.count("import math\n") == 1
    assert source.index("import json") < source.index("def shared")
