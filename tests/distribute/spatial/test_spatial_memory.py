"""What a device holds at once, as the benchmark measures it: what people partition for."""

from __future__ import annotations

from benchmarks import partition


def test_each_device_holds_its_part(monkeypatch):
    monkeypatch.setattr(partition, "SIZE", 64)
    model, steps = partition.steps()
    most = {name: max(partition.peaks(step).values()) for name, step in steps.items()}
    assert model.count_params() > 0  # Alive: graphs do not keep their variables.
    assert most["1 x 2"] < 0.56 * most["whole"]
    assert most["2 x 2"] < 0.30 * most["whole"]
