"""Four virtual CPUs for every test of this folder, set before TensorFlow starts."""

import pytest
import tensorflow as tf


@pytest.fixture(scope="session", autouse=True)
def virtual_cpus() -> None:
    (cpu,) = tf.config.list_physical_devices("CPU")
    if len(tf.config.get_logical_device_configuration(cpu) or []) < 4:
        parts = [tf.config.LogicalDeviceConfiguration()] * 4
        tf.config.set_logical_device_configuration(cpu, parts)


@pytest.fixture(params=["off", "one_device", "mirrored2", "mirrored4"])
def strategy(request: pytest.FixtureRequest) -> tf.distribute.Strategy:
    if request.param == "off":
        return tf.distribute.get_strategy()
    if request.param == "one_device":
        return tf.distribute.OneDeviceStrategy("CPU:0")
    count = int(request.param.removeprefix("mirrored"))
    return tf.distribute.MirroredStrategy([f"CPU:{index}" for index in range(count)])
