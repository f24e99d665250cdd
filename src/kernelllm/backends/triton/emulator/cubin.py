"""Registers and stack of a kernel, read out of its cubin (an ELF file) without a driver.

Layout: ELF-64 section headers; the section ``.nv.info`` holds attributes as (format u8, code u8, size u16, payload) where
REGCOUNT (0x2f), FRAME_SIZE (0x11) and MIN_STACK_SIZE (0x12) carry (symbol u32, value u32).
Checked against ``cuobjdump -res-usage``.
"""

from __future__ import annotations

import struct

_REGCOUNT, _FRAME = 0x2F, 0x11
_WITH_SIZE = 4


def resources(binary: bytes, name: str = "") -> tuple[int, int]:
    """Registers a thread and bytes of stack a thread (where spills go). (0, 0) when the file cannot be read."""
    registers = stack = 0
    try:
        for attribute, value in _attributes(binary):
            if attribute == _REGCOUNT:
                registers = max(registers, value)
            elif attribute == _FRAME:
                stack = max(stack, value)
    except (struct.error, IndexError, ValueError):
        return 0, 0
    return registers, stack


def _attributes(binary: bytes) -> list[tuple[int, int]]:
    if binary[:4] != b"\x7fELF":
        raise ValueError("not an ELF file")
    (table,) = struct.unpack_from("<Q", binary, 0x28)
    entry_size, count, names_index = struct.unpack_from("<HHH", binary, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", binary, table + i * entry_size) for i in range(count)]
    names = headers[names_index][4]
    found: list[tuple[int, int]] = []
    for name_at, _, _, _, offset, size in headers:
        start = names + name_at
        if binary[start : binary.index(b"\0", start)] == b".nv.info":
            found += _parse_info(binary[offset : offset + size])
    return found


def _parse_info(data: bytes) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    at = 0
    while at + 4 <= len(data):
        kind, attribute, size = struct.unpack_from("<BBH", data, at)
        at += 4
        if kind == _WITH_SIZE:
            if size == 8:
                found.append((attribute, struct.unpack_from("<II", data, at)[1]))
            at += size
    return found
