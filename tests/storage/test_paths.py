"""What kind of location a path names."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbit_runner.storage.paths import (
    is_remote,
    local_path,
    path_problem,
    redact,
    scheme_of,
)
from tests.support.problems import raises


@pytest.mark.parametrize(
    ("text", "scheme", "remote"),
    [
        ("runs/a", "", False),
        ("/data/x", "", False),
        ("C:/data", "", False),
        ("file:///data/x", "file", True),
        ("gs://bucket/x", "gs", True),
        ("S3://bucket/x", "s3", True),
        ("hdfs://host/x", "hdfs", True),
        (Path("gs://bucket/x"), "gs", True),
        ("gs:/bucket/x", "gs", True),
    ],
)
def test_scheme_determines_whether_a_path_is_remote(text, scheme, remote):
    assert scheme_of(text) == scheme
    assert is_remote(text) is remote


@pytest.mark.parametrize(
    ("text", "remote", "message"),
    [
        ("gs://bucket/x", False, "got 'gs://bucket/x', expected a local path"),
        ("hdfs://h/x", True, "hdfs:// is not supported\nallowed: a local path, gs://"),
        ("file:///x", False, "file:// is not supported\nallowed: a local path"),
        ("s3:///x", True, "expected s3://bucket/path"),
        ("s3://me:secret@bucket/x", True, "got 's3://…@bucket/x' with a user name or password"),
    ],
)
def test_unusable_path_is_reported_without_its_credentials(text, remote, message):
    problem = path_problem(text, remote=remote)

    assert message in problem
    assert "secret" not in problem


def test_a_remote_path_never_becomes_a_local_directory():
    with raises("bad-path", "--model_dir"):
        local_path(Path("gs://b/x"), "--model_dir")


def test_credentials_are_removed_from_messages():
    assert redact("GET https://u:p@host/x?X-Amz-Signature=abc") == "GET https://…@host/x?…"
