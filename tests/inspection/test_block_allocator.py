"""The blocks of the allocator, by hand and against TensorFlow's own."""

from __future__ import annotations

import json
import random
import subprocess
import sys

import pytest

from orbit_runner.inspection.memory.block_allocator import BlockAllocator, aligned_size

KIB = 1024
SCRIPT = """
import json, os, sys
os.environ.update(TF_CPU_ALLOCATOR_USE_BFC="true", TF_CPP_MIN_LOG_LEVEL="3")
import tensorflow as tf
live, found = {}, []
for size, name in json.loads(sys.argv[1]):
    if size:
        live[name] = tf.raw_ops.Empty(shape=[size], dtype=tf.uint8)
    else:
        del live[name]
    found.append(tf.config.experimental.get_memory_info("CPU:0")["current"])
print(json.dumps(found))
"""


def test_block_is_split_if_the_rest_is_as_large_as_the_tensor() -> None:
    allocator = BlockAllocator()

    allocator.allocate(KIB)

    assert allocator.in_use == KIB


def test_sizes_are_rounded_to_256_bytes() -> None:
    allocator = BlockAllocator()

    allocator.allocate(1)
    allocator.allocate(257)

    assert allocator.in_use == 256 + 512
    assert (aligned_size(0), aligned_size(256), aligned_size(257)) == (0, 256, 512)


def test_rest_that_is_smaller_than_the_tensor_stays_unused() -> None:
    allocator = BlockAllocator()
    block = allocator.allocate(10 * KIB)
    allocator.allocate(KIB)
    allocator.release(block)

    assert allocator.allocate(6 * KIB) == block
    assert allocator.in_use == 11 * KIB


def test_smallest_free_block_that_is_large_enough_is_used() -> None:
    allocator = BlockAllocator()
    blocks = [allocator.allocate(size * KIB) for size in (8, 1, 5, 1, 6, 1)]
    for block in blocks[::2]:
        allocator.release(block)

    assert allocator.allocate(5 * KIB) == blocks[2]
    assert allocator.allocate(5 * KIB) == blocks[4]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (0, 2, 1), (1, 0, 2)])
def test_free_neighbors_join(order: tuple[int, ...]) -> None:
    allocator = BlockAllocator()
    blocks = [allocator.allocate(KIB) for _ in range(3)]
    allocator.allocate(KIB)
    for n in order:
        allocator.release(blocks[n])

    assert allocator.allocate(3 * KIB) == blocks[0]
    assert allocator.in_use == 4 * KIB


def test_large_rest_is_split_off_even_if_the_tensor_is_larger() -> None:
    allocator = BlockAllocator()

    allocator.allocate(300 << 20)

    assert allocator.in_use == 300 << 20  # of a region of 512 MiB


@pytest.mark.sample(1)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_bytes_in_use_are_those_of_the_allocator_of_tensorflow(seed: int) -> None:
    steps = _random_steps(random.Random(seed))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(steps)], check=True, stdout=subprocess.PIPE
    )
    allocator, found = BlockAllocator(), []
    live: dict[int, int] = {}
    for size, name in steps:
        if size:
            live[name] = allocator.allocate(size)
        else:
            allocator.release(live.pop(name))
        found.append(allocator.in_use)

    measured = json.loads(done.stdout)
    # TensorFlow also keeps the shapes of some tensors.
    assert found == pytest.approx(measured, abs=1024)
    requested = sum(size for size, name in steps if name in live)
    assert found[-1] > 1.05 * requested


def _random_steps(choose: random.Random) -> list[tuple[int, int]]:
    """Returns (size, name) of tensors to allocate; the size is 0 if the tensor is freed."""
    steps, live = [], []
    for name in range(300):
        if live and choose.random() < 0.45:
            steps.append((0, live.pop(choose.randrange(len(live)))))
        else:
            steps.append((choose.randrange(100_000, 3_000_000), name))
            live.append(name)
    return steps
