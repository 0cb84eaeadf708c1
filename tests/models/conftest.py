from __future__ import annotations

from collections.abc import Iterator

import pytest
import tf_keras


@pytest.fixture(params=["float32", "mixed_float16", "mixed_bfloat16"])
def policy(request: pytest.FixtureRequest) -> Iterator[tf_keras.mixed_precision.Policy]:
    before = tf_keras.mixed_precision.global_policy()
    tf_keras.mixed_precision.set_global_policy(request.param)
    yield tf_keras.mixed_precision.global_policy()
    tf_keras.mixed_precision.set_global_policy(before)
