"""Files over HTTP: whole, in parts, from servers of all manners, and not at all."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orbit_runner.datasets.download.errors import DownloadError
from orbit_runner.datasets.download.sources import Source, source
from orbit_runner.datasets.published import PublicSet
from orbit_runner.errors import RunnerError

Bring = Callable[..., Path]
CONTENT = bytes(range(251)) * 4000
HALF = len(CONTENT) // 2


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_whole_file(server: Any, bring: Bring) -> None:
    folder = bring()

    assert (folder / "set.bin").read_bytes() == CONTENT
    assert names(folder) == ["set.bin"]
    assert server.ranges_asked() == [""]


def test_what_is_there_and_right_is_not_asked_for(
    server: Any, bring: Bring, capsys: pytest.CaptureFixture[str]
) -> None:
    bring()
    server.asked.clear()

    bring()

    assert server.asked == []
    assert "set.bin: already there, and right" in capsys.readouterr().err


def test_a_broken_connection_is_taken_up_where_it_broke(
    server: Any, bring: Bring, capsys: pytest.CaptureFixture[str]
) -> None:
    server.cuts = [300_000, 200_000]

    folder = bring()

    assert (folder / "set.bin").read_bytes() == CONTENT
    assert server.ranges_asked() == ["", "bytes=300000-", "bytes=500000-"]
    assert [headers.get("if-range") for headers in server.asked] == [None, '"one"', '"one"']
    assert "ended after 300,000 of 1,004,000 bytes; again in" in capsys.readouterr().err


def test_the_next_call_goes_on_where_the_last_one_gave_up(server: Any, bring: Bring) -> None:
    server.cuts = [HALF, 0, 0]
    with pytest.raises(DownloadError, match="ended after 502,000 of 1,004,000 bytes"):
        bring()
    folder = bring()

    assert server.ranges_asked()[-1] == f"bytes={HALF}-"
    assert (folder / "set.bin").read_bytes() == CONTENT
    assert names(folder) == ["set.bin"]


def test_a_server_without_ranges_sends_all_anew(server: Any, bring: Bring) -> None:
    server.ranges, server.cuts = False, [HALF]

    assert (bring() / "set.bin").read_bytes() == CONTENT


def test_a_server_without_ranges_that_always_breaks_off_is_given_up(
    server: Any, bring: Bring
) -> None:
    server.ranges, server.cuts = False, [HALF] * 20

    with pytest.raises(DownloadError, match="ended after"):
        bring()

    assert len(server.asked) == 1 + 2


def test_a_file_that_changed_meanwhile_is_fetched_anew(server: Any, bring: Bring) -> None:
    server.files["set.bin"], server.cuts = b"x" * len(CONTENT), [HALF, 0, 0]
    with pytest.raises(DownloadError):
        bring()
    server.files["set.bin"], server.tag = CONTENT, '"two"'

    folder = bring()

    assert (folder / "set.bin").read_bytes() == CONTENT
    assert server.asked[-1]["if-range"] == '"one"'


@pytest.mark.parametrize("tag", ["", 'W/"weak"'])
def test_without_a_strong_tag_the_date_says_whether_it_is_the_same(
    server: Any, bring: Bring, tag: str
) -> None:
    date = "Wed, 21 Oct 2015 07:28:00 GMT"
    server.tag, server.modified, server.cuts = tag, date, [HALF]

    bring()

    assert server.asked[1]["if-range"] == date


def test_parts_that_do_not_fit_together_are_fetched_whole_once(
    server: Any, bring: Bring, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "got").mkdir()
    (tmp_path / "got" / "set.bin.part").write_bytes(b"something else")

    folder = bring()

    assert (folder / "set.bin").read_bytes() == CONTENT
    assert server.ranges_asked() == ["bytes=14-", ""]
    assert "the parts do not fit together" in capsys.readouterr().err


def test_a_part_that_is_longer_than_the_file_is_thrown_away(
    server: Any, bring: Bring, tmp_path: Path
) -> None:
    (tmp_path / "got").mkdir()
    (tmp_path / "got" / "set.bin.part").write_bytes(CONTENT + b"!")

    assert (bring() / "set.bin").read_bytes() == CONTENT
    assert server.ranges_asked() == [""]


def test_a_whole_part_needs_no_server(bring: Bring, tmp_path: Path) -> None:
    (tmp_path / "got").mkdir()
    (tmp_path / "got" / "set.bin.part").write_bytes(CONTENT)

    folder = bring(source=Source(base="http://127.0.0.1:9"))

    assert names(folder) == ["set.bin"]


def test_a_wrong_sum_names_both_and_leaves_nothing(server: Any, bring: Bring) -> None:
    server.files["set.bin"] = b"x" * len(CONTENT)

    with pytest.raises(DownloadError) as failure:
        bring()

    text = str(failure.value)
    assert text.count("SHA-256") == 2
    assert "not the published file, and removed" in text


def test_a_wrong_sum_leaves_an_empty_folder(server: Any, bring: Bring, tmp_path: Path) -> None:
    server.files["set.bin"] = b"x" * len(CONTENT)

    with pytest.raises(DownloadError):
        bring()

    assert names(tmp_path / "got") == []


@pytest.mark.parametrize(
    ("habits", "said"),
    [
        ({"files": {}}, "the server answered 404"),
        ({"status": [403]}, "403 Forbidden: it wants an account"),
        ({"status": [500, 503, 500]}, "the server answered 500"),
        ({"files": {"set.bin": b"short"}}, "has 5 bytes, the published one 1,004,000$"),
        ({"files": {"set.bin": b"<html>"}, "kind": "text/html"}, "the page of a login or a proxy"),
        ({"files": {"set.bin": CONTENT + b"!"}, "length": False}, "has more than the 1,004,000"),
        ({"cuts": [9, 0, 0], "wrong_range": True}, "another part than was asked for"),
    ],
)
def test_servers_that_do_not_give_the_file(
    server: Any, bring: Bring, habits: dict[str, Any], said: str
) -> None:
    for name, value in habits.items():
        setattr(server, name, value)

    with pytest.raises(DownloadError) as failure:
        bring()

    first, address = str(failure.value).split("\n")
    assert first.startswith("127.0.0.1:")
    assert said.removesuffix("$") in first
    assert address == f"  {server.base}/set.bin"


def test_passing_troubles_pass(server: Any, bring: Bring) -> None:
    server.status = [503, 429]

    assert (bring() / "set.bin").read_bytes() == CONTENT


def test_a_refused_connection_is_told_at_once(bring: Bring) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"

        with pytest.raises(DownloadError, match="the connection was refused"):
            bring(source=Source(base=address), pauses=(60.0,))


def test_a_name_that_does_not_resolve_is_told_at_once(bring: Bring) -> None:
    with pytest.raises(DownloadError, match=r"nowhere.invalid: the name of the host does not res"):
        bring(source=Source(), pauses=(60.0,))


def test_a_silent_server_is_given_up(bring: Bring, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "orbit_runner.datasets.download.transfer.transfer.__defaults__", (0.2,), raising=True
    )
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"

        with pytest.raises(DownloadError, match="the host does not answer"):
            bring(source=Source(base=address))


def test_the_second_address_is_tried(server: Any, bring: Bring, publish: Any) -> None:
    data: PublicSet = publish("set.bin", CONTENT)
    object.__setattr__(data.files[0], "others", (f"{server.base}/set.bin",))

    assert (bring(data, source=Source()) / "set.bin").read_bytes() == CONTENT


def test_a_proxy_is_asked(server: Any, bring: Bring, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", server.base)
    monkeypatch.delenv("no_proxy", raising=False)

    assert (bring(source=Source()) / "set.bin").read_bytes() == CONTENT
    assert server.asked[0]["path"] == "http://nowhere.invalid/set.bin"


def test_what_came_from_another_address_is_kept(server: Any, bring: Bring, tmp_path: Path) -> None:
    part = tmp_path / "got/set.bin.part"
    part.parent.mkdir()
    part.write_bytes(CONTENT[:HALF])
    kept = {"url": "http://elsewhere/set.bin", "validator": '"other"'}
    part.with_name("set.bin.part.json").write_text(json.dumps(kept))

    folder = bring()

    assert server.ranges_asked() == [f"bytes={HALF}-"]
    assert "if-range" not in server.asked[0]
    assert names(folder) == ["set.bin"]


def test_a_folder_in_place_of_a_server(bring: Bring, tmp_path: Path) -> None:
    (tmp_path / "set.bin").write_bytes(CONTENT)

    folder = bring(source=source(str(tmp_path)))

    assert (folder / "set.bin").read_bytes() == CONTENT
    assert (tmp_path / "set.bin").is_file()


def test_a_folder_that_lacks_the_file(bring: Bring, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=r"set.bin: cannot be copied \(No such file"):
        bring(source=source(str(tmp_path)))


@pytest.mark.parametrize("text", ["ftp://a/b", "/no/such/folder", "http://", "file:///etc"])
def test_sources_that_are_none(text: str) -> None:
    with pytest.raises(RunnerError, match=r"--from: got .* expected http://…, https://… or a fol"):
        source(text)


def test_a_name_that_something_else_has_is_not_written_over(
    server: Any, bring: Bring, tmp_path: Path
) -> None:
    mine = tmp_path / "got/set.bin"
    mine.parent.mkdir()
    mine.write_bytes(b"mine")

    with pytest.raises(RunnerError, match="is not the published file"):
        bring()
    assert mine.read_bytes() == b"mine"
    assert server.asked == []

    bring(replace=True)
    assert mine.read_bytes() == CONTENT
