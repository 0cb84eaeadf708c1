"""Sample sentences for the report: source, reference and translation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orbit_runner.data.text.source import PairSource
from orbit_runner.data.text.tokenizer.vocabulary import Vocabulary
from orbit_runner.tasks.report_examples import ReportExamples

_SENTENCES = 10


def translation_examples(
    translations: Mapping[int, str],
    references: Sequence[str],
    pairs: PairSource,
    vocabulary: Vocabulary,
) -> ReportExamples:
    """Returns sentences at equal distances in the validation data, always the same ones.

    Args:
        translations: The translations of the last evaluation by the number of the sentence.
        references: The references of all sentences.
        pairs: The validation data.
        vocabulary: The vocabulary of the sources.
    """
    chosen = pick_evenly(sorted(translations), _SENTENCES)
    sources = vocabulary.decode(pairs.sources.row(n).tolist() for n in chosen)
    return ReportExamples(
        note=f"{len(chosen)} of the {len(translations):,} sentences that were translated",
        head=("source", "reference", "translation"),
        rows=[
            (source, references[n], translations[n])
            for n, source in zip(chosen, sources, strict=True)
        ],
    )


def pick_evenly(numbers: Sequence[int], count: int) -> list[int]:
    """Returns at most `count` of the numbers: the middle of each of as many equal parts."""
    count = min(count, len(numbers))
    return [numbers[(2 * index + 1) * len(numbers) // (2 * count)] for index in range(count)]
