"""The public datasets by name.

Sizes and SHA-256 checksums are those recorded by TensorFlow Datasets 4.9.10
(`url_checksums/mnist.txt`, `fashion_mnist.txt`, `cifar10.txt`, `movielens.txt`,
`wmt1*.txt`). Those of Multi30k were computed from files with the MD5 checksums that torchtext
publishes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from orbit_runner.errors import RunnerError, unknown_name_message


@dataclasses.dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """A published file."""

    url: str
    size: int  # bytes
    sha256: str  # hexadecimal
    is_archive: bool = False  # whether it is unpacked: `.tgz`, `.tar.gz` or `.zip`
    # Of an archive: name in it to name in the directory; None for all files with their own names.
    # A `.sgm` file is reduced to the text of its segments.
    members: Mapping[str, str] | None = None

    @property
    def name(self) -> str:
        """The file name in the URL."""
        return PurePosixPath(urlsplit(self.url).path).name


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublicDataset:
    """A dataset of the catalog."""

    name: str
    help: str  # one line
    terms: str  # conditions of its owners, and where they are published
    files: tuple[RemoteFile, ...]
    results: tuple[str, ...]  # files that a data source reads
    folder: str  # default directory, and the `data_dir` of its experiments
    experiments: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """The number of bytes to download."""
        return sum(file.size for file in self.files)


def format_bytes(count: int) -> str:
    """Returns a number of bytes as text, such as `1.5 MB`."""
    value = float(count)
    units = ["B", "kB", "MB", "GB", "TB"]
    while value >= 999.5 and len(units) > 1:
        value = value / 1000
        units = units[1:]
    return f"{value:.3g} {units[0]}"


_MNIST = "https://storage.googleapis.com/cvdf-datasets/mnist"
_FASHION = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion"
_IDX = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
_MNIST_SUMS = (
    (9912422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
    (28881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
    (1648877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
    (4542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
)
_FASHION_SUMS = (
    (26421880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
    (29515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
    (4422102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
    (5148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
)
_CIFAR = "cifar-10-batches-bin"
_CIFAR_BATCHES = tuple(
    f"{_CIFAR}/{name}.bin" for name in (*(f"data_batch_{n}" for n in range(1, 6)), "test_batch")
)


def _idx_files(base: str, sums: tuple[tuple[int, str], ...]) -> tuple[RemoteFile, ...]:
    return tuple(
        RemoteFile(url=f"{base}/{name}", size=size, sha256=sha256)
        for name, (size, sha256) in zip(_IDX, sums, strict=True)
    )


IMAGES = (
    PublicDataset(
        name="mnist",
        help="MNIST: 60,000 + 10,000 handwritten digits of 28×28 pixels, IDX",
        terms="none stated by its authors; cite LeCun et al. 1998",
        files=_idx_files(_MNIST, _MNIST_SUMS),
        results=_IDX,
        folder="data/mnist",
        experiments=("mnist",),
    ),
    PublicDataset(
        name="fashion_mnist",
        help="Fashion-MNIST: 60,000 + 10,000 pieces of clothing of 28×28 pixels, IDX",
        terms="MIT license; cite Xiao, Rasul and Vollgraf 2017",
        files=_idx_files(_FASHION, _FASHION_SUMS),
        results=_IDX,
        folder="data/fashion_mnist",
        experiments=("fashion_mnist",),
    ),
    PublicDataset(
        name="cifar10",
        help="CIFAR-10, binary version: 50,000 + 10,000 images of 32×32 pixels",
        terms="none stated by its authors; cite Krizhevsky 2009",
        files=(
            RemoteFile(
                url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                size=170052171,
                sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
                is_archive=True,
            ),
        ),
        results=_CIFAR_BATCHES,
        folder="data/cifar10",
        experiments=("resnet_cifar", "resnet_cifar_v2"),
    ),
)


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


def _pair(stem: str, prefix: str = "") -> dict[str, str]:
    """Returns the two files of a corpus: name in the archive to name in the directory."""
    return {f"{prefix}{stem}.de-en.{end}": f"{stem}.de-en.{end}" for end in ("en", "de")}


def _archive(url: str, size: int, sha256: str, members: Mapping[str, str]) -> RemoteFile:
    return RemoteFile(url=url, size=size, sha256=sha256, is_archive=True, members=members)


_EUROPARL = _archive(
    "https://www.statmt.org/wmt13/training-parallel-europarl-v7.tgz",
    657632379,
    "0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
    _pair("europarl-v7", "training/"),
)
_COMMONCRAWL = _archive(
    "https://www.statmt.org/wmt13/training-parallel-commoncrawl.tgz",
    918311367,
    "c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
    _pair("commoncrawl"),
)
_DEV = _archive(
    "https://data.statmt.org/wmt19/translation-task/dev.tgz",
    38654961,
    "7a7deccf82ebb05ba508dba5eb21356492224e8f630ec4f992132b029b4b25e7",
    {
        "dev/newstest2013.en": "newstest2013.en",
        "dev/newstest2013.de": "newstest2013.de",
        "dev/newstest2014-deen-ref.en.sgm": "newstest2014.en",
        "dev/newstest2014-deen-src.de.sgm": "newstest2014.de",
    },
)
_NEWS_COMMENTARY = _archive(
    "https://www.statmt.org/wmt14/training-parallel-nc-v9.tgz",
    80418416,
    "cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485",
    _pair("news-commentary-v9", "training/"),
)
_WMT = (_EUROPARL, _COMMONCRAWL, _NEWS_COMMENTARY, _DEV)

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
    PublicDataset(
        name="wmt14_ende",
        help="WMT en-de as in Vaswani et al. 2017: Europarl, Common Crawl, News Commentary v9",
        terms="see each corpus at https://www.statmt.org/wmt14/translation-task.html",
        files=_WMT,
        results=tuple(name for file in _WMT for name in (file.members or {}).values()),
        folder="data/wmt14_ende",
        experiments=("transformer_wmt_ende",),
    ),
)


_BASE = "https://files.grouplens.org/datasets/movielens"
_TERMS = "research only, no redistribution; see its README for all terms"


def _movielens(size_name: str, count: str, ratings: str, size: int, sha256: str) -> PublicDataset:
    name = f"ml-{size_name}"
    return PublicDataset(
        name=name,
        help=f"MovieLens {size_name.upper()}: {count} movie ratings",
        terms=_TERMS,
        files=(RemoteFile(url=f"{_BASE}/{name}.zip", size=size, sha256=sha256, is_archive=True),),
        results=(f"{name}/{ratings}",),
        folder=f"data/{name}",
        experiments=("ncf_movielens",),
    )


RATINGS = (
    _movielens(
        "100k", "100,000", "u.data", 4924029,
        "50d2a982c66986937beb9ffb3aa76efe955bf3d5c6b761f4e3a7cd717c6a3229",
    ),
    _movielens(
        "1m", "1,000,209", "ratings.dat", 5917549,
        "a6898adb50b9ca05aa231689da44c217cb524e7ebd39d264c56e2832f2c54e20",
    ),
    _movielens(
        "20m", "20,000,263", "ratings.csv", 198702078,
        "96f243c338a8665f6bcc89c53edf6ee39162a846940de6b7c8c48aeada765ff3",
    ),
)  # fmt: skip


SETS: dict[str, PublicDataset] = {dataset.name: dataset for dataset in (*IMAGES, *TEXTS, *RATINGS)}


def find_dataset(name: str) -> PublicDataset:
    """Returns a dataset of the catalog; raises an error if the name is unknown."""
    if name not in SETS:
        raise RunnerError(
            f"{unknown_name_message('dataset', name, [*SETS])}\nsee `runner data list`",
            code="unknown-name",
        )
    return SETS[name]
