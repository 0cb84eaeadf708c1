"""Public translation datasets.

Sizes and SHA-256 checksums of WMT are those recorded by TensorFlow Datasets 4.9.10
(`url_checksums/wmt1*.txt`). Those of Multi30k were computed from files with the MD5 checksums that
torchtext publishes.
"""

from __future__ import annotations

from collections.abc import Mapping

from orbit_runner.datasets.public_dataset import Archive, PublicDataset, RemoteFile

_MULTI30K = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"
_MULTI30K_SUMS = {
    "train.de.gz": (
        637044, "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6"),
    "train.en.gz": (
        568929, "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f"),
    "val.de.gz": (
        24681, "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a"),
    "val.en.gz": (
        21650, "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28"),
    "test_2016_flickr.de.gz": (
        22890, "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8"),
    "test_2016_flickr.en.gz": (
        21077, "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9"),
}  # fmt: skip


def _pair(stem: str, folder: str = "") -> dict[str, str]:
    """Returns the two files of a corpus: name in the archive to name in the directory."""
    return {f"{folder}{stem}.de-en.{end}": f"{stem}.de-en.{end}" for end in ("en", "de")}


def _archive(
    url: str, size: int, sha256: str, limit: int, members: Mapping[str, str]
) -> RemoteFile:
    archive = Archive(limit=limit, members=members)
    return RemoteFile(url=url, size=size, sha256=sha256, archive=archive)


_EUROPARL = _archive(
    "https://www.statmt.org/wmt13/training-parallel-europarl-v7.tgz",
    657632379,
    "0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
    1_000_000_000,
    _pair("europarl-v7", "training/"),
)
_COMMONCRAWL = _archive(
    "https://www.statmt.org/wmt13/training-parallel-commoncrawl.tgz",
    918311367,
    "c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
    1_500_000_000,
    _pair("commoncrawl"),
)
_DEV = _archive(
    "https://data.statmt.org/wmt19/translation-task/dev.tgz",
    38654961,
    "7a7deccf82ebb05ba508dba5eb21356492224e8f630ec4f992132b029b4b25e7",
    20_000_000,
    {
        "dev/newstest2013.en": "newstest2013.en",
        "dev/newstest2013.de": "newstest2013.de",
        "dev/newstest2014-deen-ref.en.sgm": "newstest2014.en",
        "dev/newstest2014-deen-src.de.sgm": "newstest2014.de",
    },
)
_NEWS = {
    "v9": _archive(
        "https://www.statmt.org/wmt14/training-parallel-nc-v9.tgz",
        80418416,
        "cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485",
        200_000_000,
        _pair("news-commentary-v9", "training/"),
    ),
    "v12": _archive(
        "https://data.statmt.org/wmt17/translation-task/training-parallel-nc-v12.tgz",
        168591139,
        "2b45f30ef1d550d302fd17dd3a5cbe19134ccc4c2cf50c2dae534aee600101a2",
        200_000_000,
        _pair("news-commentary-v12", "training/"),
    ),
    "v13": _archive(
        "https://data.statmt.org/wmt18/translation-task/training-parallel-nc-v13.tgz",
        113157482,
        "17992b7e919cfb754c60f4e754148bc23b80706ad0ed7b34150831a554b40c91",
        200_000_000,
        _pair("news-commentary-v13", "training-parallel-nc-v13/"),
    ),
}


def _wmt(year: str, news: str, what: str, experiments: tuple[str, ...] = ()) -> PublicDataset:
    files = (_EUROPARL, _COMMONCRAWL, _NEWS[news], _DEV)
    archives = [file.archive for file in files if file.archive]
    return PublicDataset(
        name=f"wmt{year}_ende",
        help=f"WMT en-de {what}: Europarl, Common Crawl, News Commentary {news}",
        terms=f"see each corpus at https://www.statmt.org/wmt{year}/translation-task.html",
        files=files,
        results=tuple(name for archive in archives for name in (archive.members or {}).values()),
        folder=f"data/wmt{year}_ende",
        experiments=experiments,
    )


TEXTS = (
    PublicDataset(
        name="multi30k",
        help="Multi30k, task 1, English-German: 29,000 + 1,014 + 1,000 captions and translations",
        terms="see https://github.com/multi30k/dataset; cite Elliott et al. 2016",
        files=tuple(
            RemoteFile(url=f"{_MULTI30K}/{name}", size=size, sha256=sha256)
            for name, (size, sha256) in _MULTI30K_SUMS.items()
        ),
        results=tuple(_MULTI30K_SUMS),
        folder="data/multi30k",
        experiments=("transformer_multi30k", "text_language"),
    ),
    _wmt("14", "v9", "as in Vaswani et al. 2017", ("transformer_wmt_ende",)),
    _wmt("17", "v12", "as in the official Transformer"),
    _wmt("18", "v13", "as in Tensor2Tensor"),
)
