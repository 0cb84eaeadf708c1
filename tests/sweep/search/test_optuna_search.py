"""TPE proposes the same settings for the same results."""

from orbit_runner.sweep.search import (
    Choice,
    Dimension,
    Integers,
    OptunaSearch,
    TrialOutcome,
    Uniform,
)

SPACE = (
    Dimension("t.rate", Uniform(1e-4, 1e-1, log=True)),
    Dimension("m.name", Choice((["a"], ["b"]))),
    Dimension("m.units", Integers(8, 64, step=8), {"m.name": (["a"],)}),
)


def searched(results: list[TrialOutcome], batch: int = 4) -> list[dict]:
    """Returns the settings of the trials, asked in batches, each told before the next."""
    search = OptunaSearch(SPACE, 3, "min")
    while len(search.settings) < len(results):
        first = len(search.settings)
        for _ in range(batch):
            search.ask()
        for number in range(first, first + batch):
            search.tell(number, results[number])
    return search.settings


def results(count: int) -> list[TrialOutcome]:
    found = [TrialOutcome(abs(number % 7 - 3) / 3) for number in range(count)]
    found[1], found[2], found[5] = (
        TrialOutcome(None),
        TrialOutcome(0.7, 100),
        TrialOutcome(float("nan")),
    )
    return found


def test_same_results_give_the_same_settings() -> None:
    settings = searched(results(20))

    assert settings == searched(results(20))
    assert all(("m.units" in one) == (one["m.name"] == ["a"]) for one in settings)
    assert all(one.get("m.units", 8) % 8 == 0 for one in settings)
    assert len({one["t.rate"] for one in settings}) == 20


def test_search_learns_from_results() -> None:
    others = [TrialOutcome(-one.objective) if one.objective else one for one in results(32)]

    assert searched(results(32)) != searched(others)
