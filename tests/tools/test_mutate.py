"""The tool that breaks the source: the places it changes, the tests it runs, what it reports."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools.mutate import __main__ as mutate
from tools.mutate.nearest_tests import NearestTests
from tools.mutate.places import Place, choose_places, names_that_reach, places_of

SOURCE = '''"""A text is not changed: 1 < 2."""
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    LIMIT = 3


def note(*details):
    pass


def price(count: int, member: bool = False) -> float:
    """Returns 7 euros for each."""
    if count < 0:
        raise ValueError(f"got {count + 1}")
    note("sold", 5)
    return count * 7 - 1 if member else count * 7


def total(counts):
    result = {}
    result["sum"] = sum(price(count) for count in counts if count)
    return result
'''
TEST_OF_PRICE = """
from orbit_runner.shop import price

def test_price():
    assert price(2) == 14
    assert price(2, True) == 13

def test_price_of_nothing():
    assert price(0) == 0
"""
CONFTEST = """
def pytest_addoption(parser):
    parser.addoption("--quick", action="store_true")
    parser.addoption("--slow", action="store_true")


def pytest_collection_modifyitems(config, items):
    quick, slow = config.getoption("--quick"), config.getoption("--slow")
    items[:] = [item for item in items if not ("slow" in item.name and quick)]
    items[:] = [item for item in items if "slow" in item.name or not slow]
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A package of one module, two test files, and a helper of one of them."""
    files = {
        "src/orbit_runner/__init__.py": "",
        "src/orbit_runner/shop.py": SOURCE,
        "src/orbit_runner/till.py": "from orbit_runner.shop import total\n",
        "tests/__init__.py": "",
        "tests/conftest.py": CONFTEST,
        "tests/test_price.py": TEST_OF_PRICE,
        "tests/helper.py": "from orbit_runner import till\n",
        "tests/test_till.py": "import tests.helper\n\ndef test_total():\n    pass\n",
        "tests/test_other.py": "def test_other():\n    pass\n",
    }
    for name, text in files.items():
        path = tmp_path / "repository" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path / "repository"


def place_of(before: str) -> Place:
    (place,) = [place for place in places_of(SOURCE.encode(), "shop.py") if place.before == before]
    return place


def test_places_are_in_code_that_decides_something() -> None:
    changes = {(place.line, place.before, place.after) for place in places_of(SOURCE.encode(), "")}

    assert changes == {
        (12, "False", "True"),
        (14, "count < 0", "(count) <= (0)"),
        (14, "0", "0 + 1"),
        (17, "count * 7 - 1 if member else count * 7", "None"),
        (17, "member", "not (member)"),
        (17, "count * 7 - 1", "(count * 7) + (1)"),
        (17, "count * 7", "(count) / (7)"),
        (17, "7", "7 + 1"),
        (17, "1", "1 + 1"),
        (22, 'result["sum"] = sum(price(count) for count in counts if count)', ""),
        (22, "count", "not (count)"),
        (23, "result", "None"),
    }


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("x = not a", "a"),
        ("x = a and b", "(a) or (b)"),
        ("x = a not in b", "(a) in (b)"),
        ("x = f(a, g(b), c)", "f(g(b), a, c)"),
        ("x = f(é, b)", "f(b, é)"),
        ("x += y", ""),
        ("x.append(y)", ""),
    ],
)
def test_a_change_is_made_at_its_place_alone(text: str, after: str, tmp_path: Path) -> None:
    source = f"é = 'ö'\n{text}  # a comment\n".encode()
    (place,) = [place for place in places_of(source, "") if place.after == after]
    lines = place.apply(source, tmp_path / "mark").decode().splitlines()

    assert after in lines[1]
    assert (lines[0], lines[1].endswith("  # a comment"), len(lines)) == ("é = 'ö'", True, 2)


@pytest.mark.parametrize(
    "text",
    [
        "x: int | None = y",
        "x = 'a' + b",
        "def f(x: Literal[1]) -> Literal[2]: pass",
        "time.sleep(5)",
        "x = connect(timeout=5)",
        "os.kill(process, 0)",
        "assert x == 1",
        "log.info(x, 1)",
        "@cache(5)\ndef f(): pass",
    ],
)
def test_places_that_no_test_can_notice_are_skipped(text: str) -> None:
    assert places_of(text.encode(), "") == []


def test_drawn_places_give_modules_that_compile(tmp_path: Path) -> None:
    root = mutate.ROOT / "src" / mutate.PACKAGE / "data" / "order"
    places = choose_places(root, 60, seed=3)

    for place in places:
        compile(place.apply((root / place.path).read_bytes(), tmp_path), place.path, "exec")
    assert len({(place.path, place.line) for place in places}) == 60
    assert places == choose_places(root, 60, seed=3)
    assert places != choose_places(root, 60, seed=4)


def test_tests_are_found_by_imports_and_names(repository: Path) -> None:
    tests = NearestTests(repository, "orbit_runner")

    assert names_that_reach(SOURCE.encode(), "price") == ["price", "total"]
    assert tests.nearest("orbit_runner.shop", ["price"]) == [
        "tests/test_price.py",
        "tests/test_till.py",
    ]
    assert tests.nearest("orbit_runner.till") == ["tests/test_till.py"]


@pytest.mark.parametrize(
    ("before", "outcome", "test"),
    [
        ("count * 7 - 1", "noticed", "tests/test_price.py::test_price"),
        ("count < 0", "noticed", "tests/test_price.py::test_price_of_nothing"),
        ("False", "noticed", "tests/test_price.py::test_price"),
        ("result", "not reached", ""),
    ],
)
def test_a_change_is_noticed_by_a_test(
    before: str, outcome: str, test: str, repository: Path
) -> None:
    path = repository / "src/orbit_runner/shop.py"
    tests = NearestTests(repository, "orbit_runner")
    result = mutate.try_place(repository, place_of(before), tests, mutate.Limits(8, 60))

    assert (result["outcome"], result["test"]) == (outcome, test)
    assert path.read_text(encoding="utf-8") == SOURCE


def test_a_change_that_runs_and_is_not_noticed_survives(repository: Path) -> None:
    (repository / "tests/test_price.py").write_text(
        "from orbit_runner.shop import price\n\ndef test_price():\n    price(2)\n",
        encoding="utf-8",
    )
    tests = NearestTests(repository, "orbit_runner")
    result = mutate.try_place(repository, place_of("0"), tests, mutate.Limits(8, 60))

    assert (result["outcome"], result["files"]) == ("survived", 2)
    assert mutate.needs_test(result)


def test_slow_tests_run_if_no_quick_test_notices(repository: Path) -> None:
    tests_of_price = repository / "tests/test_price.py"
    text = tests_of_price.read_text(encoding="utf-8")
    slow = text.replace("def test_price", "def test_slow_price")
    tests_of_price.write_text(slow, encoding="utf-8")
    tests = NearestTests(repository, "orbit_runner")
    result = mutate.try_place(repository, place_of("count < 0"), tests, mutate.Limits(8, 60))

    assert result["outcome"] == "noticed"
    assert result["test"] == "tests/test_price.py::test_slow_price_of_nothing"


def test_tests_that_do_not_finish_say_nothing(repository: Path) -> None:
    tests = NearestTests(repository, "orbit_runner")
    result = mutate.try_place(repository, place_of("0"), tests, mutate.Limits(8, 0.0))

    assert (result["outcome"], result["test"]) == ("out of time", "")
    assert mutate.needs_test(result)


@pytest.mark.slow
def test_a_test_that_waits_forever_notices(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutate, "_HANGS_AFTER", 8.0)
    (repository / "tests/test_price.py").write_text(
        "import time\nfrom orbit_runner.shop import price\n\n"
        "def test_price():\n    while price(0, True) > 0:\n        time.sleep(0.1)\n",
        encoding="utf-8",
    )
    tests = NearestTests(repository, "orbit_runner")
    result = mutate.try_place(repository, place_of("count * 7 - 1"), tests, mutate.Limits(8, 60))

    assert (result["outcome"], result["test"]) == (
        "noticed",
        "tests/test_price.py::test_price (hangs)",
    )


@pytest.mark.slow
def test_runs_go_on_and_ask_for_explanations(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(mutate, "ROOT", repository)
    monkeypatch.setattr(mutate, "preload", lambda: None)
    subprocess.run(["git", "init", "-q"], cwd=repository, check=True)
    flags = ["--count=4", "--seed=1", "--seconds=60", f"--results={tmp_path / 'results.json'}"]
    ran = []
    try_place = mutate.try_place
    monkeypatch.setattr(
        mutate, "try_place", lambda *arguments: ran.append(arguments[1]) or try_place(*arguments)
    )

    assert mutate.main(flags) == 1
    assert len(ran) == 4
    results = mutate.read_results(tmp_path / "results.json", 4, 1, mutate.source_digest(repository))
    missed = [each for each in results["mutations"].values() if mutate.needs_test(each)]
    assert missed
    assert "0 of" in capsys.readouterr().out.splitlines()[-1]

    for each in missed:
        each["explanation"] = "nobody calls it"
    mutate.write_results(tmp_path / "results.json", results)
    assert mutate.main([*flags, "--retry"]) == 0
    assert len(ran) == 4
    assert f"{len(missed)} of {len(missed)} explained" in capsys.readouterr().out

    (repository / "src/orbit_runner/till.py").write_text("x = 1\n", encoding="utf-8")
    assert mutate.main([*flags, "--table"]) == 1
    assert "0 of 4 changes" in capsys.readouterr().out


def test_a_test_that_fails_without_a_change_notices_nothing(repository: Path) -> None:
    path = repository / "tests/test_till.py"
    path.write_text("import tests.helper\n\ndef test_total():\n    assert 0\n", encoding="utf-8")
    tests = ["tests/test_price.py::test_price", "tests/test_till.py::test_total"]

    assert mutate.tests_that_fail_anyway(repository, tests) == tests[1:]

    result = mutate.Result(
        place="shop.py:14", function="price", kind="number", before="0", after="1",
        outcome="noticed", test=tests[1], files=1, seconds=1.0, explanation="",
    )  # fmt: skip
    results = mutate.Results(seed=0, count=1, source="", failing=[], mutations={"shop": result})
    mutate.forget_test(results, tests[1])
    assert (results["mutations"], results["failing"]) == ({}, tests[1:])
    assert (
        mutate.run_tests(repository, ["tests/test_till.py"], mutate.Limits(1, 60, (tests[1],)))
        == ""
    )
