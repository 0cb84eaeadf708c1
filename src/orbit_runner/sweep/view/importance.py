"""The importance of settings: the share of the variance between trials that each explains alone.

Trials are divided into groups by the value of the setting: a group for each category, or up to four
groups of equal size in the order of the numbers, so that a best value in the middle is found, too.
The share is the variance of the trials' ranks between the groups, divided by their total variance:
eta squared of ranks, which is the statistic of Kruskal and Wallis ("Use of ranks in one-criterion
variance analysis", JASA 47, 1952) divided by n - 1. In the ranking, trials that successive halving
stopped are behind those that it kept, and trials that diverged are last. The direction is
Spearman's rank correlation ("The proof and measurement of association between two things", American
Journal of Psychology 15, 1904).

With k groups of n trials, a setting without any effect explains (k - 1) / (n - 1) on average.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from orbit_runner.config.serialize import inline_yaml
from orbit_runner.sweep.results import SweepResults, TrialResult
from orbit_runner.sweep.view.trials import SweptSetting, swept_settings

# With fewer trials, the shares mean nothing.
LEAST_TRIALS = 8
_MOST_GROUPS = 4
_ENDED = ("finished", "stopped")


@dataclasses.dataclass(frozen=True)
class Importance:
    """What one setting explains.

    Attributes:
        setting: The setting.
        trials: How many trials have a rank.
        share: The share of the variance of ranks between groups, from 0 to 1.
        by_chance: The share that a setting without any effect explains on average.
        correlation: Spearman's rank correlation of the number with success: positive if larger
            numbers are better; None for categories.
    """

    setting: SweptSetting
    trials: int
    share: float
    by_chance: float
    correlation: float | None


def importances(results: SweepResults) -> list[Importance]:
    """Returns what each setting explains, the most important one first.

    Empty if fewer than `LEAST_TRIALS` trials have a rank.
    """
    trials = [
        trial
        for trial in results.trials
        if trial.status == "diverged" or (trial.status in _ENDED and trial.objective is not None)
    ]
    keys = [results.rank_key(trial) for trial in trials]
    candidates = (_importance(setting, trials, keys) for setting in swept_settings(results))
    return sorted(filter(None, candidates), key=lambda importance: -importance.share)


def _importance(
    setting: SweptSetting, trials: Sequence[TrialResult], keys: Sequence[tuple[float, ...]]
) -> Importance | None:
    from scipy import stats

    values = [trial.settings[setting.path] for trial in trials]
    places = {key: place for place, key in enumerate(sorted({*keys}))}
    ranks = stats.rankdata([places[key] for key in keys])  # 1 for the best.
    if len(trials) < LEAST_TRIALS or len(places) < 2:
        return None
    names = _groups(setting, values, stats.rankdata)
    groups: dict[str, list[float]] = {}
    for name, rank in zip(names, ranks, strict=True):
        groups.setdefault(name, []).append(rank)
    if not 1 < len(groups) < len(trials):
        return None
    is_numeric = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)
    return Importance(
        setting=setting,
        trials=len(trials),
        share=float(stats.kruskal(*groups.values()).statistic) / (len(trials) - 1),
        by_chance=(len(groups) - 1) / (len(trials) - 1),
        correlation=-float(stats.spearmanr(values, ranks).statistic) if is_numeric else None,
    )


def _groups(
    setting: SweptSetting,
    values: Sequence[float],
    rankdata: Callable[[Sequence[float]], Sequence[float]],
) -> list[str]:
    """Returns the name of the group of each value."""
    if setting.categories:
        return [inline_yaml(value) for value in values]
    count = min(_MOST_GROUPS, len(values) // 4)
    ranks = rankdata(values)  # From 1. Equal values have equal ranks, so they stay together.
    return [str(int((rank - 0.5) / len(values) * count)) for rank in ranks]
