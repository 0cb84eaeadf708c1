"""Published weights of the image networks, and the pixels that they expect. No TensorFlow.

The addresses and digests of the applications are those in the source code of tf_keras, which a test
compares. EfficientNetB0 to B7 are missing: without `weights="imagenet"`, tf_keras builds another
network, and its normalization layer does not restore its statistics from checkpoints.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from orbit_runner.data.images.statistics import NATURAL_MEAN, NATURAL_STD
from orbit_runner.datasets.catalogue import PublishedFile

# The value of `task.model.weights` that stands for published weights.
IMAGENET = "imagenet"
# The layer of a network that weights files of Keras are loaded into.
BACKBONE = "backbone"
KERAS_SUFFIXES = (".h5", ".hdf5", ".keras")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pixels:
    """What a network expects of RGB pixels of 0 to 255."""

    mean: tuple[float, ...] | None = None  # subtracted, of each channel or of all
    std: tuple[float, ...] | None = None  # divided by, likewise
    is_bgr: bool = False  # whether the order of the channels is reversed, after that


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublishedWeights:
    """The files of one set of weights.

    The first one is loaded: a weights file of Keras, or the index of a checkpoint.
    """

    name: str  # of their directory in the cache
    files: tuple[PublishedFile, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Application:
    """A network of `tf_keras.applications`."""

    pixels: Pixels  # what `preprocess_input` of its module returns
    min_size: int  # of height and width
    weights: PublishedWeights  # without those of the classifier


MODEL_GARDEN_PIXELS = Pixels(mean=NATURAL_MEAN, std=NATURAL_STD)
_RESNET_50 = "https://storage.googleapis.com/cloud-tpu-checkpoints/vision-2.0/resnet50_imagenet"
# Of version 1.5, by depth. The checkpoint that configs of Model Garden's detectors begin with, such
# as `official/vision/configs/retinanet.py`.
RESNETS = {
    50: PublishedWeights(
        name="model_garden_resnet50",
        files=tuple(
            PublishedFile(url=f"{_RESNET_50}/ckpt-28080.{end}")
            for end in ("index", "data-00000-of-00001")
        ),
    )
}

# The modes of `tf_keras.applications.imagenet_utils.preprocess_input`, and none.
_CAFFE = Pixels(mean=(123.68, 116.779, 103.939), is_bgr=True)
_TORCH = Pixels(mean=NATURAL_MEAN, std=NATURAL_STD)
_TF = Pixels(mean=(127.5,), std=(127.5,))
_RAW = Pixels()
_BASE = "https://storage.googleapis.com/tensorflow/keras-applications"
_ORDERED = "_weights_tf_dim_ordering_tf_kernels_notop.h5"


def _family(
    pixels: Pixels, path: str, files: Mapping[str, str], min_size: int = 32
) -> dict[str, Application]:
    """Returns the applications of one module; a file is its part of `path` and its digest."""
    applications = {}
    for name, file in files.items():
        part, _, digest = file.partition(" ")
        published = PublishedFile(url=f"{_BASE}/{path.format(part)}", digest=digest)
        weights = PublishedWeights(name=name.lower(), files=(published,))
        applications[name] = Application(pixels=pixels, min_size=min_size, weights=weights)
    return applications


APPLICATIONS: Mapping[str, Application] = {
    **_family(
        _RAW,
        "convnext/convnext_{}_notop.h5",
        {
            "ConvNeXtBase": "base 40a20c5548a5e9202f69735ecc06c990e6b7c9d2de39f0361e27baeb24cb7c45",
            "ConvNeXtLarge": (
                "large 96f02b6f0753d4f543261bc9d09bed650f24dd6bc02ddde3066135b63d23a1cd"
            ),
            "ConvNeXtSmall": (
                "small 6fc8009faa2f00c1c1dfce59feea9b0745eb260a7dd11bee65c8e20843da6eab"
            ),
            "ConvNeXtTiny": "tiny d547c096cabd03329d7be5562c5e14798aa39ed24b474157cef5e85ab9e49ef1",
            "ConvNeXtXLarge": (
                "xlarge de3f8a54174130e0cecdc71583354753d557fcf1f4487331558e2a16ba0cfe05"
            ),
        },
    ),
    **_family(
        _TORCH,
        f"densenet/densenet{{}}{_ORDERED}",
        {
            "DenseNet121": "121 30ee3e1110167f948a6b9946edeeb738",
            "DenseNet169": "169 b8c4d4c20dd625c148057b9ff1c1176b",
            "DenseNet201": "201 c13680b51ded0fb44dff2d8f86ac8bb1",
        },
    ),
    **_family(
        _RAW,
        "efficientnet_v2/efficientnetv2-{}_notop.h5",
        {
            "EfficientNetV2B0": "b0 893217f2bb855e2983157299931e43ff",
            "EfficientNetV2B1": "b1 0e80663031ca32d657f9caa404b6ec37",
            "EfficientNetV2B2": "b2 1dfe2e7a5d45b6632553a8961ea609eb",
            "EfficientNetV2B3": "b3 f6abf7b5849ac99a89b50dd3fd532856",
            "EfficientNetV2L": "l b0b66b5c863aef5b46e8608fe1711615",
            "EfficientNetV2M": "m 1b8dc055df72dde80d614482840fe342",
            "EfficientNetV2S": "s af0682fb74e8c54910f2d4393339c070",
        },
    ),
    **_family(
        _TF,
        f"inception_resnet_v2/{{}}{_ORDERED}",
        {"InceptionResNetV2": "inception_resnet_v2 d19885ff4a710c122648d3b5c3b684e4"},
        min_size=75,
    ),
    **_family(
        _TF,
        f"inception_v3/{{}}{_ORDERED}",
        {"InceptionV3": "inception_v3 bcbd6486424b2319ff4ef7d526e38f63"},
        min_size=75,
    ),
    **_family(
        _TF,
        "mobilenet/mobilenet_{}_tf_no_top.h5",
        {"MobileNet": "1_0_224"},
    ),
    **_family(
        _TF,
        "mobilenet_v2/mobilenet_v2_weights_tf_dim_ordering_tf_kernels_{}_no_top.h5",
        {"MobileNetV2": "1.0_224"},
    ),
    **_family(
        _RAW,
        "mobilenet_v3/weights_mobilenet_v3_{}_no_top_v2.h5",
        {
            "MobileNetV3Large": "large_224_1.0_float 07fb09a5933dd0c8eaafa16978110389",
            "MobileNetV3Small": "small_224_1.0_float d3e8ec802a04aa4fc771ee12a9a9b836",
        },
    ),
    **_family(
        _TF,
        "nasnet/NASNet-{}-no-top.h5",
        {
            "NASNetLarge": "large d81d89dc07e6e56530c4e77faddd61b5",
            "NASNetMobile": "mobile 1ed92395b5b598bdda52abe5c0dbfd63",
        },
    ),
    **_family(
        _RAW,
        "regnet/regnet{}_notop.h5",
        {
            "RegNetX002": "x002 5445b66cd50445eb7ecab094c1e78d4d3d29375439d1a7798861c4af15ffff21",
            "RegNetX004": "x004 de139bf07a66c9256f2277bf5c1b6dd2d5a3a891a5f8a925a10c8a0a113fd6f3",
            "RegNetX006": "x006 a43ec97ad62f86b2a96a783bfdc63a5a54de02eef54f26379ea05e1bf90a9505",
            "RegNetX008": "x008 3c7e4b0917359304dc18e644475c5c1f5e88d795542b676439c4a3acd63b7207",
            "RegNetX016": "x016 1b8e3d545d190271204a7b2165936a227d26b79bb7922bac5ee4d303091bf17a",
            "RegNetX032": "x032 9cd4522806c0fcca01b37874188b2bd394d7c419956d77472a4e072b01d99041",
            "RegNetX040": "x040 b4ed0ca0b9a98e789e05000e830403a7ade4d8afa01c73491c44610195198afe",
            "RegNetX064": "x064 3e706fa416a18dfda14c713423eba8041ae2509db3e0a611d5f599b5268a46c4",
            "RegNetX080": "x080 7b1ce8e29ceefec10a6569640ee329dba7fbc98b5d0f6346aabade058b66cf29",
            "RegNetX120": "x120 36174ddd0299db04a42631d028abcb1cc7afec2b705e42bd28fcd325e5d596bf",
            "RegNetX160": "x160 9d1485050bdf19531ffa1ed7827c75850e0f2972118a996b91aa9264b088fd43",
            "RegNetX320": "x320 9db7eacc37b85c98184070e1a172e6104c00846f44bcd4e727da9e50d9692398",
            "RegNetY002": "y002 f63221f63d625b8e201221499682587bfe29d33f50a4c4f4d53be00f66c0f12c",
            "RegNetY004": "y004 45e6ba8309a17a77e67afc05228454b2e0ee6be0dae65edc0f31f1da10cc066b",
            "RegNetY006": "y006 b70261cba4e60013c99d130cc098d2fce629ff978a445663b6fa4f8fc099a2be",
            "RegNetY008": "y008 b11f5432a216ee640fe9be6e32939defa8d08b8d136349bf3690715a98752ca1",
            "RegNetY016": "y016 d7404f50205e82d793e219afb9eb2bfeb781b6b2d316a6128c6d7d7dacab7f57",
            "RegNetY032": "y032 eb3ac1c45ec60f4f031c3f5180573422b1cf7bebc26c004637517372f68f8937",
            "RegNetY040": "y040 b5be2a5e5f072ecdd9c0b8a437cd896df0efa1f6a1f77e41caa8719b7dfcb05d",
            "RegNetY064": "y064 885c4b7ed7ea339daca7dafa1a62cb7d41b1068897ef90a5a3d71b4a2e2db31a",
            "RegNetY080": "y080 3d119577e1e3bf8d153b895e8ea9e4ec150ff2d92abdca711b6e949c3fd7115d",
            "RegNetY120": "y120 4a6fa387108380b730b71feea2ad80b5224b5ea9dc21dc156c93fe3c6186485c",
            "RegNetY160": "y160 ead1e6b568be8f34447ec8941299a9df4368736ba9a8205de5427fa20a1fb316",
            "RegNetY320": "y320 cad78f74a586e24c61d38be17f3ae53bb9674380174d2585da1a526b8c20e1fd",
        },
    ),
    **_family(
        _CAFFE,
        f"resnet/resnet{{}}{_ORDERED}",
        {
            "ResNet50": "50 4d473c1dd8becc155b73f8504c6f6626",
            "ResNet101": "101 88cf7a10940856eca736dc7b7e228a21",
            "ResNet152": "152 ee4c566cf9a93f14d82f913c2dc6dd0c",
        },
    ),
    **_family(
        _RAW,
        "resnet_rs/resnet-rs-{}_notop.h5",
        {
            "ResNetRS50": "50-i160 90daa68cd26c95aa6c5d25451e095529",
            "ResNetRS101": "101-i192 f9a0f6b85faa9c3db2b6e233c4eebb5b",
            "ResNetRS152": "152-i256 fa79794252dbe47c89130f65349d654a",
            "ResNetRS200": "200-i256 bbdb3994718dfc0d1cd45d7eff3f3d9c",
            "ResNetRS270": "270-i256 2c42ecb22e35f3e23d2f70babce0a2aa",
            "ResNetRS350": "350-i320 ab0c1f9079d2f85a9facbd2c88aa6079",
            "ResNetRS420": "420-i320 fe6217c32be8305b1889657172b98884",
        },
    ),
    **_family(
        _TF,
        f"resnet/resnet{{}}{_ORDERED}",
        {
            "ResNet50V2": "50v2 fac2f116257151a9d068a22e544a4917",
            "ResNet101V2": "101v2 c0ed64b8031c3730f411d2eb4eea35b5",
            "ResNet152V2": "152v2 ed17cf2e0169df9d443503ef94b23b33",
        },
    ),
    **_family(
        _CAFFE,
        f"vgg16/{{}}{_ORDERED}",
        {"VGG16": "vgg16 6d6bbae143d832006294945121d1f1fc"},
    ),
    **_family(
        _CAFFE,
        f"vgg19/{{}}{_ORDERED}",
        {"VGG19": "vgg19 253f8cb515780f3b799900260a226db6"},
    ),
    **_family(
        _TF,
        f"xception/{{}}{_ORDERED}",
        {"Xception": "xception b0042744bf5b25fce3cb969f33bebb97"},
        min_size=71,
    ),
}
