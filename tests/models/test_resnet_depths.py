from __future__ import annotations

import subprocess
import sys

import pytest

from orbit_runner.models.resnet_depths import blocks_per_stage, is_valid_depth, nearest_depths


@pytest.mark.parametrize(
    ("depth", "version", "blocks"),
    [(8, 1, 1), (20, 1, 3), (110, 1, 18), (1202, 1, 200), (11, 2, 1), (164, 2, 18), (1001, 2, 111)],
)
def test_valid_depths_give_the_blocks_per_stage(depth, version, blocks):
    assert is_valid_depth(depth, version)
    assert nearest_depths(depth, version) == (depth,)
    assert blocks_per_stage(depth, version) == blocks


@pytest.mark.parametrize(
    ("depth", "version", "nearest"),
    [
        (21, 1, (20, 26)),
        (50, 1, (50,)),
        (164, 1, (164,)),
        (25, 1, (20, 26)),
        (20, 2, (20,)),
        (110, 2, (110,)),
        (111, 2, (110, 119)),
        (1000, 2, (992, 1001)),
        (7, 1, (8,)),
        (2, 1, (8,)),
        (0, 2, (11,)),
        (-4, 1, (8,)),
        (20, 3, ()),
    ],
)
def test_nearest_valid_depths_are_found(depth, version, nearest):
    assert nearest_depths(depth, version) == nearest
    assert is_valid_depth(depth, version) == (depth in nearest)


@pytest.mark.parametrize(
    ("depth", "version", "message"),
    [
        (21, 1, r"`depth` \(21\) must be 6n\+2 with n >= 1 in version 1; nearest: 20 and 26\."),
        (163, 2, r"`depth` \(163\) must be 9n\+2 with n >= 1 in version 2; nearest: 155 and 164\."),
        (2, 1, r"`depth` \(2\) must be 6n\+2 .* nearest: 8\."),
        (20, 3, r"`version` \(3\) must be 1 or 2\."),
    ],
)
def test_invalid_depth_or_version_is_rejected(depth, version, message):
    with pytest.raises(ValueError, match=message):
        blocks_per_stage(depth, version)


def test_module_is_imported_without_tensorflow():
    code = "import sys, orbit_runner.models.resnet_depths; assert 'tensorflow' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
