"""GRIB's simple packing, which nearly all files use, unpacked for many fields at a time.

    value = (R + X 2^E) / 10^D        X: an unsigned integer of a fixed number of bits per point

The numbers are those of ecCodes; small fields are unpacked fifty times faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Float64

from stonet.errors import DataError
from stonet.io.grib.message_index import NO_BITMAP, PackedField

MAX_BITS = 32  # per value


class SimplePacking(NamedTuple):
    """The parameters of simple packing.

    Args:
        reference: R, the smallest value before decimal scaling.
        binary: E, the power of 2 by which integers are scaled.
        decimal: D, the power of 10 by which values were multiplied.
        bits: of each value.
        number: of packed values; None: unknown, as without bits.
        start: of the packed values in the data section.
    """

    reference: float
    binary: int
    decimal: int
    bits: int
    number: int | None
    start: int


def simple_packing(field: PackedField) -> SimplePacking | None:
    """The packing of a field; None if it is not simple packing.

    Args:
        field: one message, or one of its fields.
    """
    packing = _packing_1(field) if field.edition == 1 else _packing_2(field)
    if packing is None or packing.bits > MAX_BITS:
        return None
    finite = np.isfinite(packing.reference)
    if abs(packing.binary) > 1000 or abs(packing.decimal) > 250 or not finite:
        raise field.window.broken(
            field.start, f"values scaled by 2^{packing.binary} and 10^{-packing.decimal}"
        )
    return packing


def _packing_1(field: PackedField) -> SimplePacking | None:
    """The packing of a field of edition 1."""
    head, length = field.section(4, 11), field.row[9]
    if head[3] >> 4 or (field.has_bitmap and field.section(3, 6)[4:6] != b"\0\0"):
        return None
    bits, unused = head[10], head[3] & 15
    number = (8 * (length - 11) - unused) // bits if bits else None
    decimal = _signed(field.section(1, 28)[26:28])
    return SimplePacking(_ibm(head[6:10]), _signed(head[4:6]), decimal, bits, number, 11)


def _packing_2(field: PackedField) -> SimplePacking | None:
    """The packing of a field of edition 2."""
    head, available = field.section(5, 20), field.row[15] - 5
    if int.from_bytes(head[9:11]) != 0 or len(head) < 20:
        return None
    if field.section(6, 6)[5] not in (0, NO_BITMAP):
        return None
    reference = float(np.frombuffer(head[11:15], ">f4")[0])
    bits, number = head[19], int.from_bytes(head[5:9])
    if 8 * available < bits * number:
        raise field.window.broken(
            field.start, f"{number} values of {bits} bits in {available} bytes"
        )
    return SimplePacking(reference, _signed(head[15:17]), _signed(head[17:19]), bits, number, 5)


def _signed(octets: bytes) -> int:
    """An integer stored as a sign bit and a magnitude."""
    number = int.from_bytes(octets)
    sign = 1 << (8 * len(octets) - 1)
    return sign - number if number & sign else number


def _ibm(octets: bytes) -> float:
    """A floating-point number of edition 1: a power of 16 times a fraction."""
    number = float(int.from_bytes(octets[1:])) * 16.0 ** ((octets[0] & 127) - 70)
    return -number if octets[0] & 128 else number


def bitmap(field: PackedField, points: int) -> Bool[np.ndarray, " node"] | None:
    """Which points have values; None: all.

    Args:
        field: one message, or one of its fields.
        points: number of points of its grid.
    """
    if not field.has_bitmap:
        return None
    section = field.section(3 if field.edition == 1 else 6)
    bits = np.unpackbits(np.frombuffer(section, np.uint8, offset=6))
    if not points <= len(bits) <= points + 64:  # padded to complete words
        raise field.window.broken(field.start, f"a bitmap of {len(bits)} bits, {points} points")
    return bits[:points].astype(bool)


def unpack(
    fields: Sequence[PackedField], packings: Sequence[SimplePacking], points: int
) -> Float32[np.ndarray, "field node"]:
    """The values of fields in simple packing, NaN where missing.

    Args:
        fields: of one grid.
        packings: of each field.
        points: of the grid.
    """
    values = np.empty((len(fields), points), dtype=np.float32)
    groups: dict[tuple[int, int], list[int]] = {}
    for number, (field, packing) in enumerate(zip(fields, packings, strict=True)):
        present = bitmap(field, points)
        count = points if present is None else int(present.sum())
        if packing.number not in (None, count) and not _is_padding(packing, count):
            raise DataError(
                f"'{field.window.path}', message at byte {field.start}: {packing.number} values "
                f"for {count} points. Grid and values do not belong together; download it again."
            )
        if present is None:
            groups.setdefault((packing.bits, packing.start), []).append(number)
        else:
            values[number] = np.nan
            values[number, present] = _unpack_equal([field], [packing], count)[0]
    for numbers in groups.values():
        chosen = [fields[n] for n in numbers], [packings[n] for n in numbers]
        values[numbers] = _unpack_equal(*chosen, points)
    return values


def _is_padding(packing: SimplePacking, count: int) -> bool:
    """Whether surplus values are the padding of edition 1's last bytes."""
    return packing.start == 11 and 0 < (packing.number or 0) - count <= 16 // packing.bits


def _unpack_equal(
    fields: Sequence[PackedField], packings: Sequence[SimplePacking], count: int
) -> Float32[np.ndarray, "field value"]:
    """The values of fields with the same number of bits per value."""
    bits, start = packings[0].bits, packings[0].start
    size = -(-count * bits // 8)
    packed = b"".join(
        field.section(4 if field.edition == 1 else 7)[start:][:size] for field in fields
    )
    octets = np.frombuffer(packed, np.uint8).reshape(len(fields), size)
    columns = [np.array([p[k] for p in packings])[:, None] for k in range(3)]
    reference, binary, decimal = columns
    with np.errstate(over="ignore"):  # too large for float32: infinite, and treated as such
        scaled = _integers(octets, bits, count) * np.ldexp(1.0, binary)
        return ((scaled + reference) * np.power(10.0, -decimal)).astype(np.float32)


def _integers(octets: np.ndarray, bits: int, count: int) -> Float64[np.ndarray, "field value"]:
    """The packed integers, byte by byte if they consist of bytes, otherwise bit by bit."""
    number = np.zeros((len(octets), count))
    by_bytes = bits % 8 == 0
    base, width = (256.0, bits // 8) if by_bytes else (2.0, bits)
    digits = octets if by_bytes else np.unpackbits(octets, axis=1)
    for digit in range(width):
        number *= base
        number += digits[:, digit : count * width : width]
    return number
