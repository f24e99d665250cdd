"""What a worker may send, and what the judge makes of anything else."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
import types
from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Iterator
from dataclasses import make_dataclass

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.overrides import TorchFunctionMode

from kernelllm.judge.transport import arenas, protocol, trusted_torch, values, wire
from kernelllm.judge.transport.protocol import ProtocolError, TensorSpec, WorkerGone, WorkerTimeout

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4) | st.lists(inner, max_size=3).map(tuple),
    max_leaves=12,
)


@given(PLAIN)
@settings(max_examples=60)
def test_values_survive_the_wire(value: object) -> None:
    tree = msgspec.msgpack.decode(msgspec.msgpack.encode(values.encode(value, [])))
    assert values.decode(tree, lambda index: None) == value


def test_tensors_dtypes_and_sizes_in_values() -> None:
    x = torch.randn(2, 3)
    found: list[torch.Tensor] = []
    tree = values.encode([x, {"k": x, "d": torch.float16, "s": x.shape, "v": torch.device("cpu")}], found)
    assert found == [x]
    decoded = values.decode(tree, found.__getitem__)
    assert decoded[0] is decoded[1]["k"]
    assert decoded[1]["d"] is torch.float16
    assert decoded[1]["s"] == x.shape
    with pytest.raises(values.ValueProblem, match="object"):
        values.encode(object(), [])


@given(st.recursive(st.none() | st.text(max_size=2) | st.integers(), lambda inner: st.lists(inner, max_size=3), max_leaves=10))
@settings(max_examples=100)
def test_malformed_trees_raise_nothing_else(tree: object) -> None:
    with contextlib.suppress(values.ValueProblem):
        values.decode(tree, lambda index: None)


def test_deep_trees_are_refused() -> None:
    tree: list[object] = ["n", 0]
    for _ in range(200):
        tree = ["l", [tree]]
    with pytest.raises(values.ValueProblem):
        values.decode(tree, lambda index: None)


@pytest.mark.parametrize(
    "body",
    [b"", b"\xc1", b"junk" * 10, msgspec.msgpack.encode({"type": "ran"}), msgspec.msgpack.encode({"type": "os.system", "id": 1}),
     msgspec.msgpack.encode(protocol.Done(id=2)), msgspec.msgpack.encode({"type": "done", "id": "1"})],
)  # fmt: skip
def test_forged_replies(body: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(struct.pack(">I", len(body)) + body)
        with pytest.raises(ProtocolError):
            wire.receive_reply(ours, 1, time.monotonic() + 5)


def test_endless_silent_and_closed_workers() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(struct.pack(">I", 2**31))
        with pytest.raises(ProtocolError):
            wire.receive_reply(ours, 1, time.monotonic() + 5)
        with pytest.raises(WorkerTimeout):
            wire.receive_reply(ours, 1, time.monotonic() + 0.05)
        theirs.close()
        with pytest.raises(WorkerGone):
            wire.receive_reply(ours, 1, time.monotonic() + 5)


@pytest.mark.parametrize(
    "spec",
    [
        TensorSpec("float32", (1024,), (1,), 2**20 - 4), TensorSpec("float32", (4,), (1,), 2), TensorSpec("float32", (-1,), (1,), 0),
        TensorSpec("float32", (4,), (2**61,), 0), TensorSpec("float32", (4, 4), (1,), 0), TensorSpec("Tensor", (4,), (1,), 0),
        TensorSpec("float32", (2**40, 2**40), (0, 0), 0), TensorSpec("float32", (1,) * 60, (1,) * 60, 0),
        TensorSpec("float32", (4,), (1,), -8),
    ],
)  # fmt: skip
def test_tensors_outside_of_their_arena(spec: TensorSpec) -> None:
    arena = arenas.HostArena(2**20)
    try:
        with pytest.raises(ProtocolError):
            arenas.take(arena, spec)
    finally:
        arena.close()


class Late(list[torch.Tensor]):
    """Computes while it is read."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter([torch.ones(1)])


@pytest.mark.parametrize("value", [Late(), (1, Late()), {"a": [Late()]}, types.MappingProxyType({})])
def test_containers_with_ways_of_their_own_are_not_handed_over(value: object) -> None:
    with pytest.raises(values.ValueProblem, match="cannot be handed over"):
        values.encode(value, [], strict=True)


class Lazy(torch.Tensor):
    """Computes when it is asked for its numbers."""

    def detach(self) -> torch.Tensor:
        raise AssertionError("a method of the candidate's was called")


Named = type("Tensor", (Lazy,), {})


def _with(**attributes: object) -> torch.Tensor:
    tensor = torch.ones(3)
    tensor.__dict__.update(attributes)
    return tensor


@pytest.mark.parametrize(
    "tensor",
    [
        torch.ones(3).as_subclass(Lazy), torch.ones(3).as_subclass(Named), _with(detach=lambda: torch.zeros(3)), _with(shape=(4,)),
        torch.eye(3).to_sparse(), torch.empty(3, device="meta"), torch.nn.UninitializedParameter(),
    ],
)  # fmt: skip
def test_only_plain_tensors_are_handed_over(tensor: torch.Tensor) -> None:
    for value in (tensor, [tensor], {"out": (1, tensor)}):
        with pytest.raises(trusted_torch.NotPlain):
            values.encode(value, [], strict=True)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.nn.Parameter(torch.ones(3)), torch.ones(2, 3).t(), torch.ones(1).expand(4), _with(note="mine"),
        torch.ones(3, dtype=torch.complex64).conj(),
    ],
)  # fmt: skip
def test_plain_tensors_are_handed_over_as_they_are(tensor: torch.Tensor) -> None:
    found: list[torch.Tensor] = []
    assert values.encode((tensor, [tensor]), found, strict=True) == ["u", [["t", 0], ["l", [["t", 0]]]]]
    assert found[0] is tensor


class Watching(TorchFunctionMode):
    """Sees every function that is called on a tensor."""

    def __torch_function__(self, func: object, types: object, args: tuple[object, ...] = (), kwargs: object = None) -> object:
        raise AssertionError("a mode of the candidate's was called")


def test_no_mode_of_a_candidate_is_called_at_delivery() -> None:
    outputs = [torch.randn(3, 5).t(), torch.tensor([1 + 2j]).conj(), torch.nn.Parameter(torch.ones(2))]
    arena = arenas.HostArena(2**16)
    found: list[torch.Tensor] = []
    with Watching():
        values.encode(outputs, found, strict=True)
        specs, _ = arenas.layout(found, contiguous=True)
        arenas.put(arena, specs, found)
    arenas.check_delivered(arena, specs)
    for spec, output in zip(specs, outputs, strict=True):
        assert torch.equal(arenas.take(arena, spec), output)
    arena.close()


@pytest.mark.parametrize("value", [1, "text", None, 2.5, (1, [2.0, {"a": b"x"}]), torch.Size([1]), torch.float32, True])
def test_plain_values_are_handed_over(value: object) -> None:
    assert values.encode(value, [], strict=True) == values.encode(dict(value) if isinstance(value, dict) else value, [])


class Number(int):
    """Computes when it is turned into a number."""

    def __int__(self) -> int:
        raise AssertionError("a method of the candidate's was called")


class Pretender:
    """Says that it is a list."""

    @property
    def __class__(self) -> type:  # type: ignore[override]
        raise AssertionError("a property of the candidate's was called")


@pytest.mark.parametrize("kind", ["number", "key", "pretender", "many"])
def test_values_with_ways_of_their_own_are_not_handed_over(kind: str) -> None:
    value = {"number": Number(1), "key": {Number(1): 2}, "pretender": [Pretender()], "many": [[0] * (values.MAX_NODES + 1)]}[kind]
    with pytest.raises(values.ValueProblem):
        values.encode(value, [], strict=True)


@pytest.mark.parametrize(
    "value",
    [
        torch.max(torch.ones(3, 3), 0), OrderedDict(a=1), defaultdict(list, a=1), namedtuple("Out", "values items")(1, 2),
        torch.Size((1, 2)), [(1, {"a": None})],
        make_dataclass("Out", ["y", "loss"])(torch.ones(2), None), type("Out", (dict,), {"items": None})(y=1),
    ],
)  # fmt: skip
def test_plain_containers_are(value: object) -> None:
    assert values.encode(value, [], strict=True) == values.encode(dict(value) if isinstance(value, dict) else value, [])


@pytest.mark.parametrize(
    "specs",
    [
        [TensorSpec("float32", (2**30,), (0,), 0)], [TensorSpec("float32", (4,), (2,), 0)], [TensorSpec("float32", (4,), (1,), 512)],
        [TensorSpec("float32", (4,), (1,), 0), TensorSpec("float32", (4,), (1,), 0)], [TensorSpec("float32", (2, 2), (1, 2), 0)],
        [TensorSpec("float32", (2**18 + 1,), (1,), 0)], [TensorSpec("float32", (-4,), (1,), 0)],
        [TensorSpec("uint8", (0,), (1,), 512 * n) for n in range(2**12)],
    ],
)  # fmt: skip
def test_forged_places_of_outputs(specs: list[TensorSpec]) -> None:
    arena = arenas.HostArena(2**20)
    try:
        with pytest.raises(ProtocolError):
            arenas.check_delivered(arena, specs)
    finally:
        arena.close()
        arena.close()  # twice does no harm


@pytest.mark.parametrize(
    "reply",
    [
        protocol.TimedBatch(1, (-1.0,)), protocol.TimedBatch(1, (float("nan"),)), protocol.TimedBatch(1, (float("inf"),)),
        protocol.TimedBatch(1, (1.0,), launches=(-3,)), protocol.Grow(1, -5), protocol.Grow(1, 2**63), protocol.Reported(1, streams=-1),
        protocol.Ran(1, ["n", 0], (), flops={"mm": float("nan")}), protocol.Compiled(1, (protocol.CompiledKernel("k", -1),)),
    ],
)  # fmt: skip
def test_numbers_that_cannot_be(reply: protocol.Reply) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        wire.send(theirs, reply)
        with pytest.raises(ProtocolError):
            wire.receive_reply(ours, 1, time.monotonic() + 5)


def test_text_of_a_worker_is_printable() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        evil = "a\x1b]0;title\x07\tb\n\x9b31m\r\u202ec\udc80"
        wire.send(theirs, protocol.Failed(1, "error", "Odd\x1b", evil, 1, evil))
        failed = wire.receive_reply(ours, 1, time.monotonic() + 5)
        assert isinstance(failed, protocol.Failed)
        assert (failed.error, failed.message, failed.trace) == ("Odd", *["a]0;title\tb\n31mc\ufffd"] * 2)
        seen = protocol.AuditEvent("open\x1b[2J", "x\x00y", 1, "run")
        wire.send(theirs, protocol.Reported(1, (protocol.CompiledKernel("k\x1b", 1),), {"k\x1b": "body\x1b\n"}, events=(seen,)))
        report = wire.receive_reply(ours, 1, time.monotonic() + 5)
        assert isinstance(report, protocol.Reported)
        assert (report.kernels[0].name, report.bodies, report.events[0].detail) == ("k", {"k": "body\n"}, "xy")


def test_who_reads_past_a_tensor_reads_poison() -> None:
    arena = arenas.HostArena(2**16)
    arena.view(TensorSpec("float32", (2**14,), (1,), 0)).fill_(1.0)  # what an earlier, larger set of inputs left behind
    mine = [torch.randn(5, 30), torch.randn(100).bfloat16()]
    specs, _ = arenas.layout(mine, start=arenas.GUARD)
    arenas.put(arena, specs, mine)
    arenas.guard(arena, specs)
    assert arenas.broken(arena, specs) is None
    for spec, tensor in zip(specs, mine, strict=True):
        assert torch.equal(arena.view(spec), tensor)
        size = tensor.dtype.itemsize
        before = arena.view(TensorSpec(spec.dtype, (100,), (1,), spec.offset - 100 * size))
        behind = arena.view(TensorSpec(spec.dtype, (100,), (1,), spec.offset + tensor.numel() * size))
        assert before.isnan().all()
        assert behind.isnan().all()
    before[-1] = 1.0  # the one before the second tensor: behind the first
    assert arenas.broken(arena, specs) == 0
    arenas.guard(arena, specs)
    behind[0] = 1.0
    assert arenas.broken(arena, specs) == 1
    del before, behind
    arena.close()


def test_arenas_keep_strides_and_cannot_be_shrunk() -> None:
    arena = arenas.HostArena(2**20)
    mine = [
        torch.randn(4, 6).t(),
        torch.randn(1, 3).expand(5, 3),
        torch.tensor(7),
        torch.zeros(0, 3),
        torch.randn(3).bfloat16(),
        torch.tensor([True]),
    ]
    specs, size = arenas.layout(mine)
    assert size <= arena.size
    arena.poison()
    arenas.put(arena, specs, mine)
    for spec, tensor in zip(specs, mine, strict=True):
        view = arena.view(spec)
        assert torch.equal(view, tensor)
        assert view.stride() == tensor.stride() or tensor.numel() == 0
    with pytest.raises(OSError):
        os.ftruncate(arena.fd, 0)
    del view
    arena.close()
