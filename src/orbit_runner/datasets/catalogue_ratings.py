"""Public rating datasets.

Sizes and SHA-256 checksums are those recorded by TensorFlow Datasets 4.9.10
(`url_checksums/movielens.txt`).
"""

from __future__ import annotations

from orbit_runner.datasets.public_dataset import Archive, PublicDataset, RemoteFile

_BASE = "https://files.grouplens.org/datasets/movielens"
_TERMS = "research only, no redistribution; see its README for all terms"


def _movielens(
    size_name: str, count: str, ratings: str, size: int, sha256: str, limit: int
) -> PublicDataset:
    name = f"ml-{size_name}"
    return PublicDataset(
        name=name,
        help=f"MovieLens {size_name.upper()}: {count} movie ratings",
        terms=_TERMS,
        files=(
            RemoteFile(
                url=f"{_BASE}/{name}.zip",
                size=size,
                sha256=sha256,
                archive=Archive(limit=limit),
            ),
        ),
        results=(f"{name}/{ratings}",),
        folder=f"data/{name}",
        experiments=("ncf_movielens",),
    )


RATINGS = (
    _movielens(
        "100k", "100,000", "u.data", 4924029,
        "50d2a982c66986937beb9ffb3aa76efe955bf3d5c6b761f4e3a7cd717c6a3229", 50_000_000,
    ),
    _movielens(
        "1m", "1,000,209", "ratings.dat", 5917549,
        "a6898adb50b9ca05aa231689da44c217cb524e7ebd39d264c56e2832f2c54e20", 50_000_000,
    ),
    _movielens(
        "20m", "20,000,263", "ratings.csv", 198702078,
        "96f243c338a8665f6bcc89c53edf6ee39162a846940de6b7c8c48aeada765ff3", 1_500_000_000,
    ),
)  # fmt: skip
