"""A simulation of TensorFlow's allocator: best fit with coalescing.

A tensor gets the smallest free block that is large enough. The rest of the block is split off only
if it is at least as large as the tensor. Otherwise it stays unused until the tensor is freed, so a
tensor can occupy up to twice its size.
"""

from __future__ import annotations

import bisect
import dataclasses

_ALIGNMENT = 256
_FIRST_REGION = 2 << 20
_LARGEST_UNUSED = 128 << 20


def aligned_size(size: int) -> int:
    """Returns the bytes that TensorFlow's allocator uses for a tensor of a size."""
    return -(-size // _ALIGNMENT) * _ALIGNMENT


@dataclasses.dataclass
class _Block:
    size: int
    is_free: bool = True
    before: int | None = None  # addresses of its neighbors in the same region
    after: int | None = None


class BlockAllocator:
    """Tracks blocks without allocating memory.

    Attributes:
        in_use: The bytes of all blocks that are in use, with their unused ends.
    """

    def __init__(self) -> None:
        self.in_use = 0
        self._blocks: dict[int, _Block] = {}
        self._free: list[tuple[int, int]] = []  # size and address, in order
        self._next_region = _FIRST_REGION
        self._end = 0

    def allocate(self, size: int) -> int:
        """Returns the address of a block for a tensor."""
        size = max(aligned_size(size), _ALIGNMENT)
        place = bisect.bisect_left(self._free, (size, -1))
        if place == len(self._free):
            self._grow(size)
            place = bisect.bisect_left(self._free, (size, -1))
        _, address = self._free.pop(place)
        block = self._blocks[address]
        if block.size >= 2 * size or block.size - size >= _LARGEST_UNUSED:
            self._split(address, block, size)
        block.is_free = False
        self.in_use += block.size
        return address

    def release(self, address: int) -> None:
        """Frees a block, and joins it with free neighbors."""
        block = self._blocks[address]
        block.is_free = True
        self.in_use -= block.size
        for left, right in ((address, block.after), (block.before, address)):
            if left is not None and right is not None:
                address = self._join(left, right, address)
        bisect.insort(self._free, (self._blocks[address].size, address))

    def _grow(self, size: int) -> None:
        """Adds a region. Regions double in size, and blocks of different regions do not join."""
        if size <= self._next_region:
            length, self._next_region = self._next_region, 2 * self._next_region
        else:
            while self._next_region < size:
                self._next_region *= 2
            length = self._next_region
        self._blocks[self._end] = _Block(length)
        bisect.insort(self._free, (length, self._end))
        self._end += length

    def _split(self, address: int, block: _Block, size: int) -> None:
        rest = address + size
        self._blocks[rest] = _Block(block.size - size, before=address, after=block.after)
        if block.after is not None:
            self._blocks[block.after].before = rest
        bisect.insort(self._free, (block.size - size, rest))
        block.size, block.after = size, rest

    def _join(self, left: int, right: int, current: int) -> int:
        """Joins a block that is being freed with a neighbor; returns the address of the result."""
        one, other = self._blocks[left], self._blocks[right]
        if not (one.is_free and other.is_free):
            return current
        neighbor = right if current == left else left
        self._free.remove((self._blocks[neighbor].size, neighbor))
        one.size += other.size
        one.after = other.after
        if one.after is not None:
            self._blocks[one.after].before = left
        del self._blocks[right]
        return left
