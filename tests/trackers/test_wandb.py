"""Weights & Biases in offline mode, with the real package."""

from __future__ import annotations

import json
import struct
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.toy import Notes, records, run, toy_config

pytestmark = pytest.mark.slow
TRACKERS = "[{class_name: wandb, arguments: {mode: offline, project: p, tags: [t]}}]"


def _content(path: Path) -> list[Any]:
    """Returns the records in a file of W&B, which has the format of LevelDB's logs."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, position, parts, entries = path.read_bytes(), 7, b"", []
    while position + 7 <= len(data):
        if 32768 - position % 32768 < 7:  # The rest of a block is padding.
            position += 32768 - position % 32768
            continue
        size, kind = struct.unpack_from("<HB", data, position + 4)
        parts += data[position + 7 : position + 7 + size]
        position += 7 + size
        if kind in (1, 4):  # the whole record, or its last part
            entries.append(Record.FromString(parts))
            parts = b""
    return entries


def _complete_content(path: Path) -> list[Any]:
    """Returns the records once the process of W&B has written the last one."""
    for _ in range(600):
        content = _content(path)
        if content and content[-1].WhichOneof("record_type") == "exit":
            return content
        time.sleep(0.1)
    raise AssertionError(f"{path} has no record of the end")


def _history(content: list[Any]) -> list[dict[str, Any]]:
    return [
        {
            item.key or item.nested_key[0]: json.loads(item.value_json)
            for item in record.history.item
        }
        for record in content
        if record.WhichOneof("record_type") == "history"
    ]


@pytest.mark.usefixtures("patient")
def test_offline_run_is_written_and_resumed_with_the_same_id(tmp_path):
    folder = tmp_path / "a"
    run(toy_config(trainer__train_steps=10, trackers=TRACKERS), folder)
    run_id = json.loads((folder / "trackers.json").read_text())["wandb"]
    (first,) = (folder / "wandb").glob(f"offline-run-*-{run_id}/*.wandb")

    run(toy_config(trackers=TRACKERS), folder)

    (second,) = {*(folder / "wandb").glob(f"offline-run-*-{run_id}*/*.wandb")} - {first}
    content = _complete_content(first)
    (started,) = [record.run for record in content if record.WhichOneof("record_type") == "run"]
    assert (started.run_id, started.project, [*started.tags]) == (run_id, "p", ["t"])
    config = {item.key: item.value_json for item in started.config.update}
    assert config["trainer.train_steps"] == "10"
    assert not [name for name in config if name.startswith("trackers")]
    losses = [
        (line["_step"], line["train/training_loss"])
        for path in (first, second)
        for line in _history(_complete_content(path))
        if "train/training_loss" in line
    ]
    assert [step for step, _ in losses] == [5, 10, 15, 20]
    expected = {line["step"]: line["training_loss"] for line in records(folder, "train")}
    assert dict(losses) == pytest.approx(expected)


def test_missing_key_is_a_warning_and_asks_nothing(tmp_path, monkeypatch):
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    notes = Notes()

    run(toy_config(trackers="[{class_name: wandb, arguments: {mode: online}}]"), tmp_path / "a",
        notes=notes)  # fmt: skip

    (first, last) = [text for text in notes.notes if text.startswith("warning: tracker wandb")]
    assert "found no API key" in first
    assert "WANDB_API_KEY" in first
    assert "8 records could not be sent" in last
