"""Attention maps as bytes: lower triangles of 16-bit weights, compressed; read without torch, and never trusted.

Little endian. A header of 24 bytes, then zlib of the body:

    magic "ATTNMAPS" · u16 version · u16 pool · u32 n_maps · u32 side · u32 tokens

The body is the high bytes of all values, then their low bytes, which compresses better than pairs. Values stand map
by map, each a lower triangle with its diagonal, row by row: weight · 65534 rounded, or 65535 where there is no number.
A cell of a pooled map is the largest weight of its pool x pool block.
"""

import struct
import zlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from transformer.errors import NewerFormatError, UserError

MAGIC = b"ATTNMAPS"
VERSION = 1
HEADER = struct.Struct("<8sHHIII")
SCALE, NO_NUMBER = 65534, 65535

MAX_VALUES = 2**26
"""A file says how much it unpacks to; more than this (128 MiB) is refused before anything is unpacked."""

Maps = npt.NDArray[np.float32]


@dataclass(frozen=True)
class MapsHeader:
    """The shape of encoded maps: `n_maps` squares of `side` cells, for `tokens` tokens pooled by `pool`."""

    pool: int
    n_maps: int
    side: int
    tokens: int

    @property
    def n_values(self) -> int:
        """Values of all lower triangles."""
        return self.n_maps * self.side * (self.side + 1) // 2


def pool_maps(weights: Maps, pool: int) -> Maps:
    """The largest weight of every pool x pool block: (n, T, T) -> (n, side, side), side = T / pool rounded up.

    A block with a weight that is no number has none.
    """
    n_maps, tokens, _ = weights.shape
    if pool == 1:
        return weights
    side = -(-tokens // pool)
    padded = np.pad(weights, ((0, 0), (0, side * pool - tokens), (0, side * pool - tokens)))
    finite = np.where(np.isfinite(padded), padded, np.float32(np.nan))
    pooled: Maps = finite.reshape(n_maps, side, pool, side, pool).max(axis=(2, 4))
    return pooled


def smallest_pool(n_maps: int, tokens: int, *, max_values: int) -> int:
    """The smallest pool with which the maps have at most so many values, or one cell each."""
    sizes = ((pool, -(-tokens // pool)) for pool in range(1, tokens + 1))
    return next((pool for pool, side in sizes if n_maps * side * (side + 1) // 2 <= max_values), tokens)


def encode_maps(weights: Maps, *, pool: int = 1) -> bytes:
    """Maps (n, T, T) from query to key as bytes; what is above the diagonal is left out.

    Weights are clipped to [0, 1] and kept to 1/131068; NaN and infinity are kept as NaN.
    Raises UserError where there are more than MAX_VALUES.
    """
    n_maps, tokens, _ = weights.shape
    pooled = pool_maps(weights.astype(np.float32, copy=False), pool)
    header = MapsHeader(pool, n_maps, pooled.shape[1], tokens)
    if header.n_values > MAX_VALUES:
        raise UserError(
            f"{header.n_values:,} attention weights are more than the {MAX_VALUES:,} that one page or file can hold; "
            "look at fewer tokens, or keep fewer heads in full resolution (--heads)"
        )
    values = pooled[:, *np.tril_indices(header.side)]
    finite = np.isfinite(values)
    scaled = np.rint(np.where(finite, values, 0).clip(0, 1) * SCALE)
    codes = np.where(finite, scaled, NO_NUMBER).astype(np.uint16)
    body = (codes >> 8).astype(np.uint8).tobytes() + (codes & 0xFF).astype(np.uint8).tobytes()
    return HEADER.pack(MAGIC, VERSION, pool, n_maps, header.side, tokens) + zlib.compress(body)


def read_header(content: bytes) -> MapsHeader:
    """The shape that encoded maps claim to have. Raises ValueError where it is impossible, too large or newer."""
    if len(content) < HEADER.size or content[: len(MAGIC)] != MAGIC:
        raise ValueError("holds no attention maps")
    _, version, pool, n_maps, side, tokens = HEADER.unpack_from(content)
    if version > VERSION:
        raise NewerFormatError(f"has format {version}, and this version reads up to {VERSION}; upgrade attn")
    header = MapsHeader(pool, n_maps, side, tokens)
    if min(version, pool, n_maps, tokens) < 1 or side != -(-tokens // pool):
        raise ValueError(f"names an impossible shape: {n_maps} maps of {side} cells for {tokens} tokens, pool {pool}")
    if header.n_values > MAX_VALUES:
        raise ValueError(f"claims to hold {header.n_values} weights, more than the {MAX_VALUES} that are read")
    return header


def decode_maps(content: bytes) -> tuple[MapsHeader, Maps]:
    """The shape of encoded maps, and the maps (n, side, side): 0 above the diagonal, NaN where there is no number.

    Raises ValueError where the bytes are none, damaged, too large or newer.
    """
    header = read_header(content)
    unpacking = zlib.decompressobj()
    try:
        body = unpacking.decompress(content[HEADER.size :], 2 * header.n_values)
        rest = unpacking.decompress(unpacking.unconsumed_tail, 1)  # lets the checksum be read
    except zlib.error as error:
        raise ValueError(f"is damaged: {error}") from error
    if len(body) != 2 * header.n_values or rest or not unpacking.eof or unpacking.unused_data:
        raise ValueError("is damaged: it holds more or fewer weights than it names")
    high, low = np.frombuffer(body, np.uint8).reshape(2, header.n_maps, -1).astype(np.uint16)
    codes = high << 8 | low
    weights = np.where(codes == NO_NUMBER, np.float32(np.nan), codes / np.float32(SCALE))
    maps = np.zeros((header.n_maps, header.side, header.side), np.float32)
    maps[:, *np.tril_indices(header.side)] = weights
    return header, maps
