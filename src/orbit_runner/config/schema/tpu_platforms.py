"""The known types of TPU, by name, with the layout of their chips and the number of devices.

Shapes are the defaults on Google Cloud's pages "TPU v2", "TPU v3", "TPU v4", "TPU v5e" and
"TPU v5p" (cloud.google.com/tpu/docs/v2 and so on). A v2 or v3 chip appears as two devices, one for
each core. A v4 or v5p chip also has two cores, which its name counts but which form one device: a
v4-32 lists sixteen devices, from (0,0,0) to (1,1,3)
(github.com/huggingface/transformers/issues/20252; github.com/jax-ml/jax/issues/19493 for v5p).
A v5e chip has one core.
"""

from __future__ import annotations

import dataclasses
import math
from types import MappingProxyType

from orbit_runner.errors import nearest_name_hint

Shape = tuple[int, int, int]

_TORUS: tuple[Shape, ...] = (
    *((2, 2, 1), (2, 2, 2), (2, 2, 4), (2, 4, 4), (4, 4, 4), (4, 4, 8), (4, 8, 8), (8, 8, 8)),
    *((8, 8, 16), (8, 16, 16)),
)


@dataclasses.dataclass(frozen=True)
class Family:
    """One generation of TPUs."""

    counted: int  # What names count per chip: its cores, or 1.
    devices: int  # TensorFlow devices per chip.
    host: Shape  # Most chips of one host, along x, y and z.
    shapes: tuple[Shape, ...]  # Chips of each slice, along x, y and z.


FAMILIES: MappingProxyType[str, Family] = MappingProxyType(
    {
        "v2": Family(2, 2, (2, 2, 1), ((2, 2, 1), (4, 4, 1), (8, 8, 1), (8, 16, 1), (16, 16, 1))),
        "v3": Family(
            *(2, 2, (2, 2, 1)),
            shapes=(
                *((2, 2, 1), (4, 4, 1), (4, 8, 1), (8, 8, 1), (8, 16, 1), (16, 16, 1)),
                *((16, 32, 1), (32, 32, 1)),
            ),
        ),
        "v4": Family(2, 1, (2, 2, 1), _TORUS),
        "v5e": Family(
            *(1, 1, (2, 2, 1)),
            shapes=(
                *((1, 1, 1), (2, 2, 1), (2, 4, 1), (4, 4, 1), (4, 8, 1), (8, 8, 1), (8, 16, 1)),
                (16, 16, 1),
            ),
        ),
        "v5p": Family(2, 1, (2, 2, 1), (*_TORUS, (16, 16, 16), (16, 16, 24))),
    }
)


@dataclasses.dataclass(frozen=True)
class Platform:
    """One type of TPU."""

    name: str  # Such as `v3-8`.
    # Chips along x, y and z, and devices per chip: TensorFlow's `Topology.mesh_shape`.
    mesh: tuple[int, int, int, int]
    host: Shape  # Chips of one host, along x, y and z.

    @property
    def devices(self) -> int:
        """The number of devices that TensorFlow lists."""
        return math.prod(self.mesh)


def _create_platforms() -> dict[str, Platform]:
    platforms = {}
    for generation, family in FAMILIES.items():
        for shape in family.shapes:
            name = f"{generation}-{math.prod(shape) * family.counted}"
            x, y, z = (min(limit, size) for limit, size in zip(family.host, shape, strict=True))
            platforms[name] = Platform(name, (*shape, family.devices), (x, y, z))
    return platforms


PLATFORMS = MappingProxyType(_create_platforms())


def find_platform(name: str) -> Platform | None:
    """Returns the TPU type with this name, or None if it is unknown.

    `v5litepod-8`, the name on Google Cloud, is accepted for `v5e-8`.
    """
    return PLATFORMS.get(name.replace("v5litepod-", "v5e-"))


def unknown_platform_message(name: str) -> str:
    """Returns the message for an unknown TPU type."""
    ranges = []
    for generation in FAMILIES:
        names = [known for known in PLATFORMS if known.startswith(f"{generation}-")]
        ranges.append(f"{names[0]} to {names[-1]}")
    return (
        f"unknown TPU type {name!r}{nearest_name_hint(name, PLATFORMS)}\n"
        f"allowed: {', '.join(ranges)}; null: detected from the TPU"
    )
