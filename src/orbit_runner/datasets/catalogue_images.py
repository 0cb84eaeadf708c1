"""Public image datasets.

Sizes and SHA-256 checksums are those recorded by TensorFlow Datasets 4.9.10
(`url_checksums/mnist.txt`, `fashion_mnist.txt`, `cifar10.txt`,
`datasets/imagenet2012/checksums.tsv`).
"""

from __future__ import annotations

from orbit_runner.datasets.public_dataset import Archive, PublicDataset, RemoteFile

_MNIST = "https://storage.googleapis.com/cvdf-datasets/mnist"
_MNIST_COPY = "https://ossci-datasets.s3.amazonaws.com/mnist"
_FASHION = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion"
# The address in its README, which does not support HTTPS.
_FASHION_COPY = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
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
_IMAGENET = "https://image-net.org/data/ILSVRC/2012"
_IMAGENET_STEPS = """\
1. Create an account at https://image-net.org and accept its terms.
2. Download the files below from its ILSVRC 2012 page, and compare their sizes and checksums
   (`sha256sum FILE`).
3. Create one directory per class under train/ and val/: the training archive contains one archive
   per class; the development kit on that page lists the class of each validation image."""


def _idx_files(base: str, copy: str, sums: tuple[tuple[int, str], ...]) -> tuple[RemoteFile, ...]:
    return tuple(
        RemoteFile(url=f"{base}/{name}", others=(f"{copy}/{name}",), size=size, sha256=sha256)
        for name, (size, sha256) in zip(_IDX, sums, strict=True)
    )


IMAGES = (
    PublicDataset(
        name="mnist",
        help="MNIST: 60,000 + 10,000 handwritten digits of 28×28 pixels, IDX",
        terms="none stated by its authors; cite LeCun et al. 1998",
        files=_idx_files(_MNIST, _MNIST_COPY, _MNIST_SUMS),
        results=_IDX,
        folder="data/mnist",
        experiments=("mnist",),
    ),
    PublicDataset(
        name="fashion_mnist",
        help="Fashion-MNIST: 60,000 + 10,000 pieces of clothing of 28×28 pixels, IDX",
        terms="MIT license; cite Xiao, Rasul and Vollgraf 2017",
        files=_idx_files(_FASHION, _FASHION_COPY, _FASHION_SUMS),
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
                # Six files of 10,000 records of 3,073 bytes, the class names and a readme.
                archive=Archive(limit=6 * 30_730_000 + 100_000),
            ),
        ),
        results=_CIFAR_BATCHES,
        folder="data/cifar10",
        experiments=("resnet_cifar", "resnet_cifar_v2"),
    ),
    PublicDataset(
        name="imagenet",
        help="ImageNet, ILSVRC 2012: 1,281,167 + 50,000 photos of 1,000 classes; manual download",
        terms="requires an account; research and teaching only: https://image-net.org/download",
        files=(
            RemoteFile(
                url=f"{_IMAGENET}/ILSVRC2012_img_train.tar",
                size=147897477120,
                sha256="b08200a27a8e34218a0e58fde36b0fe8f73bc377f4acea2d91602057c3ca45bb",
            ),
            RemoteFile(
                url=f"{_IMAGENET}/ILSVRC2012_img_val.tar",
                size=6744924160,
                sha256="c7e06a6c0baccf06d8dbeb6577d71efff84673a5dbdd50633ab44f8ea0456ae0",
            ),
        ),
        results=("train", "val"),
        folder="data/imagenet",
        experiments=("resnet50_imagenet", "vit_base_imagenet", "efficientnet_imagenet"),
        manual_steps=_IMAGENET_STEPS,
    ),
)
