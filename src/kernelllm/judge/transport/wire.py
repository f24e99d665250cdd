"""Sends the messages of :mod:`kernelllm.judge.transport.protocol`: a length, msgpack, and descriptors beside them."""

from __future__ import annotations

import math
import select
import socket
import struct
import time
from typing import Any, TypeVar

import msgspec

from kernelllm.core.text import printable
from kernelllm.judge.transport.protocol import MAX_COMMAND, MAX_REPLY, Command, ProtocolError, Reply, WorkerGone, WorkerTimeout

_LARGEST = 2**62
_OUTPUTS = ("tree", "trees", "tensors")
"""Fields that hold outputs: the judge compares them, and checks where they lie when it takes them."""
R = TypeVar("R", bound=msgspec.Struct)
_HEADER = struct.Struct(">I")
_encoder = msgspec.msgpack.Encoder()
_replies = msgspec.msgpack.Decoder(Reply)
_commands = msgspec.msgpack.Decoder(Command)


def send(sock: socket.socket, message: Command | Reply, fds: tuple[int, ...] = (), deadline: float | None = None) -> None:
    """Write one message. ``deadline`` by ``time.monotonic``. Raises WorkerGone, WorkerTimeout."""
    try:
        body = _encoder.encode(message)
    except UnicodeEncodeError:  # a candidate's text may hold halves of surrogate pairs
        body = _encoder.encode(checked(message))
    if len(body) > MAX_COMMAND:
        raise ProtocolError(f"A message of {len(body)} bytes is too long for the worker protocol.")
    header = _HEADER.pack(len(body))
    try:
        _set_timeout(sock, deadline)
        if fds:
            sent = socket.send_fds(sock, [header], list(fds))
            header = header[sent:]
        sock.sendall(header + body)
    except TimeoutError as error:
        raise WorkerTimeout("The worker did not take a command in time.") from error
    except OSError as error:
        raise WorkerGone(f"The worker closed its end of the socket ({error}).") from error


def receive_reply(sock: socket.socket, expected_id: int, deadline: float, watch: int = -1) -> Reply:
    """Judge's side: the reply to command ``expected_id``. ``watch``: a descriptor that turns readable when the worker
    has ended (its socket alone does not tell: a child may hold it open). Raises WorkerGone, WorkerTimeout, ProtocolError."""
    body = _receive_body(sock, deadline, MAX_REPLY, watch)
    try:
        reply: Reply = _replies.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ProtocolError(f"The worker sent a reply that breaks the protocol ({error}).") from error
    if reply.id != expected_id:
        raise ProtocolError("The worker answered a command that was not asked.")
    return checked(reply)


def receive_command(sock: socket.socket) -> tuple[Command, list[int]]:
    """Worker's side: the next command and its descriptors. Raises WorkerGone at the end."""
    sock.settimeout(None)
    header, fds, _, _ = socket.recv_fds(sock, _HEADER.size, 16)
    if not header:
        raise WorkerGone("The judge closed the socket.")
    header += _read_exactly(sock, _HEADER.size - len(header))
    body = _read_exactly(sock, _HEADER.unpack(header)[0])
    return _commands.decode(body), fds


def _receive_body(sock: socket.socket, deadline: float, limit: int, watch: int) -> bytes:
    (length,) = _HEADER.unpack(_read_exactly(sock, _HEADER.size, deadline, watch))
    if length > limit:
        raise ProtocolError(f"The worker announced a reply of {length} bytes; the limit is {limit}.")
    return _read_exactly(sock, length, deadline, watch)


def _read_exactly(sock: socket.socket, count: int, deadline: float | None = None, watch: int = -1) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        try:
            if deadline is not None:
                _wait_readable(sock, deadline, watch)
            piece = sock.recv(min(count - len(parts), 2**20))
        except TimeoutError as error:
            raise WorkerTimeout("The worker did not answer in time.") from error
        except OSError as error:
            raise WorkerGone(f"The worker's socket failed ({error}).") from error
        if not piece:
            raise WorkerGone("The worker closed its end of the socket.")
        parts += piece
    return bytes(parts)


def _wait_readable(sock: socket.socket, deadline: float, watch: int) -> None:
    _set_timeout(sock, deadline)
    poll = select.poll()
    poll.register(sock.fileno(), select.POLLIN)
    if watch >= 0:
        poll.register(watch, select.POLLIN)
    ready = {fd for fd, _ in poll.poll(max(0.0, deadline - time.monotonic()) * 1000)}
    if not ready:
        raise TimeoutError
    if sock.fileno() not in ready:
        raise WorkerGone("The worker ended.")


def _set_timeout(sock: socket.socket, deadline: float | None) -> None:
    if deadline is None:
        sock.settimeout(None)
        return
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    sock.settimeout(left)


def checked(reply: R) -> R:
    """The reply with printable text. Raises ProtocolError for a number that is negative, not finite or beyond any use."""
    changed = {name: _checked(getattr(reply, name)) for name in reply.__struct_fields__ if name not in _OUTPUTS}
    return msgspec.structs.replace(reply, **changed)


def _checked(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, int | float):
        if not 0 <= value <= _LARGEST or not math.isfinite(value):
            raise ProtocolError("The worker sent a number that cannot be.")
        return value
    if isinstance(value, tuple):
        return tuple(_checked(item) for item in value)
    if isinstance(value, dict):
        return {_checked(key): _checked(item) for key, item in value.items()}
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(value, **{name: _checked(getattr(value, name)) for name in value.__struct_fields__})
    return value
