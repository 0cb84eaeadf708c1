"""What affects the bits of the weights besides the config."""

import os
import sys
from importlib import metadata

import numpy
import pytest

from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.determinism import numerics_record
from orbit_runner.determinism.numerics_record import (
    describe_changes,
    describe_numerics,
    environment_of,
)
from tests.support.processes import printed_by

VARIABLES = (
    "TF_ENABLE_ONEDNN_OPTS",
    "ONEDNN_MAX_CPU_ISA",
    "DNNL_MAX_CPU_ISA",
    "TF_NUM_INTRAOP_THREADS",
    "XLA_FLAGS",
    "TF_XLA_FLAGS",
    "TENSORFLOW_USE_CUSTOM_CONTRACTION_KERNEL",
    "TF_SET_ONEDNN_FPMATH_MODE",
    "TF_DETERMINISTIC_OPS",
    "TF_CUDNN_DETERMINISTIC",
    "NVIDIA_TF32_OVERRIDE",
    "TF_CUDNN_USE_AUTOTUNE",
    "CUDA_VISIBLE_DEVICES",
)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def described(**settings):
    return describe_numerics(RuntimeConfig(**settings))


def elsewhere(code):
    """Runs code in a separate process and returns the lines that it prints."""
    setup = (
        "import sys\n"
        "from orbit_runner.config.schema.runtime import RuntimeConfig\n"
        "from orbit_runner.determinism.numerics_record import describe_numerics\n"
        "found = describe_numerics(RuntimeConfig())\n"
    )
    return printed_by(setup + code)


def test_numerics_record_is_reproducible_and_has_only_strings():
    record = described()
    assert all(isinstance(text, str) and text for item in record.items() for text in item)
    assert described() == record
    assert record["tensorflow"] == metadata.version("tensorflow")
    assert record["numpy"] == numpy.__version__
    assert record["python"] == f"{sys.version_info.major}.{sys.version_info.minor}"
    assert describe_changes(record, record) == []


@pytest.mark.parametrize("numerics", ["native", "portable"])
def test_packages_are_recorded_only_in_runs_that_use_them(numerics):
    runtime = RuntimeConfig(numerics=numerics)
    now = describe_numerics(runtime)
    assert now["keras"] == metadata.version("keras")

    record = describe_numerics(runtime, ["scipy"])
    assert record["scipy"] == metadata.version("scipy")
    assert not {"keras", "sentencepiece"} & {*record}
    assert describe_changes({**record, "scipy": "1.0"}, {**now, "keras": "3.0"}) == [
        f"scipy: 1.0 → {now['scipy']} (install scipy==1.0)"
    ]


def test_neither_tensorflow_nor_other_packages_are_imported():
    names = "{'tensorflow', 'keras', 'scipy', 'sentencepiece'}"
    assert elsewhere(f"print({names} & {{*sys.modules}})") == ["set()"]


def test_libraries_of_gpus_are_recorded_with_the_gpus():
    assert {"nvidia-cublas-cu12", "nvidia-cudnn-cu12"} <= {*described(num_gpus=1)}
    assert "nvidia-cudnn-cu12" not in described()


def test_threads_come_from_config_then_environment_then_cores(monkeypatch):
    assert described()["intra-op threads"] == str(len(os.sched_getaffinity(0)))
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", " 5 ")
    assert described()["intra-op threads"] == "5"
    assert described(intra_op_threads=3)["intra-op threads"] == "3"
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "0")
    assert described()["intra-op threads"] == str(len(os.sched_getaffinity(0)))


@pytest.mark.slow
@pytest.mark.parametrize("value", [None, "0", "TRUE", "perhaps"])
def test_onednn_state_matches_tensorflow(value, monkeypatch):
    if value is not None:
        monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", value)
    recorded, tensorflow = elsewhere(
        "print(found['oneDNN'])\n"
        "from tensorflow.python.util import _pywrap_util_port as port\n"
        "print('on' if port.IsMklEnabled() else 'off')\n"
    )
    assert recorded == tensorflow


@pytest.mark.parametrize(
    ("sets", "machine", "expected"),
    [
        ({"avx2", "fma"}, "x86_64", "off"),
        ({"avx2", "avx_vnni"}, "x86_64", "on"),
        ({"avx512f", "amx_tile"}, "x86_64", "on"),
        ({"asimd", "bf16"}, "aarch64", "the platform's default"),
    ],
)
def test_onednn_default_depends_on_the_processor(sets, machine, expected, monkeypatch):
    monkeypatch.setattr(numerics_record, "_instruction_sets", lambda: sets)
    monkeypatch.setattr(numerics_record.platform, "machine", lambda: machine)
    record = described()
    assert record["oneDNN"] == expected
    assert record["processor"] == " ".join([machine, *sorted(sets)])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "processor\t: 0\nflags\t\t: fpu sse4_2 avx avx2 smep fma f16c avx512_vnni amx_int8\n"
            "processor\t: 1\nflags\t\t: fpu avx avx2 fma f16c amx_int8\nbugs\t: avx512f\n",
            {"avx", "avx2", "fma", "f16c", "amx_int8"},
        ),
        (
            "Features\t: fp asimd evtstrm asimddp sve svebf16 sme2 i8mm bf16 smep\n",
            {"asimd", "asimddp", "sve", "svebf16", "sme2", "i8mm", "bf16"},
        ),
        ("model name: none\n", set()),
        (None, set()),
    ],
    ids=["x86", "arm", "other", "no file"],
)
def test_instruction_sets_are_read_from_cpuinfo(text, expected, tmp_path):
    if text is not None:
        (tmp_path / "cpuinfo").write_text(text)
    assert numerics_record._instruction_sets(tmp_path / "cpuinfo") == expected


def test_data_and_unified_cache_sizes_are_listed(tmp_path):
    there = [("Data", 1, "48K"), ("Instruction", 1, "32K"), ("Unified", 2, "1M")]
    for index, cache in enumerate(there):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        for name, value in zip(("type", "level", "size"), cache, strict=True):
            (folder / name).write_text(f"{value}\n")
    assert [*numerics_record._caches(tmp_path)] == ["L1 48K", "L2 1M"]
    assert [*numerics_record._caches(tmp_path / "none")] == []


@pytest.mark.parametrize(
    ("variable", "settings", "name", "remedy"),
    [
        ("XLA_FLAGS", {}, "XLA_FLAGS", "XLA_FLAGS"),
        ("ONEDNN_MAX_CPU_ISA", {}, "oneDNN instruction cap", "ONEDNN_MAX_CPU_ISA"),
        ("DNNL_MAX_CPU_ISA", {}, "oneDNN instruction cap", "ONEDNN_MAX_CPU_ISA"),
        ("TF_DETERMINISTIC_OPS", {"deterministic": False}, None, None),
        ("NVIDIA_TF32_OVERRIDE", {"num_gpus": 1}, None, None),
        ("TENSORFLOW_USE_CUSTOM_CONTRACTION_KERNEL", {}, None, None),
    ],
)
def test_changed_environment_variable_is_reported_with_its_remedy(
    variable, settings, name, remedy, monkeypatch
):
    name, remedy = name or variable, remedy or variable
    without = described(**settings)
    monkeypatch.setenv(variable, " a   b ")
    having = described(**settings)
    assert describe_changes(without, having) == [f"{name}: not set → a b (unset {remedy})"]
    assert describe_changes(having, without) == [f"{name}: a b → not set (set {remedy}='a b')"]


def test_variables_overridden_by_the_config_are_omitted():
    assert not {"TF_DETERMINISTIC_OPS", "NVIDIA_TF32_OVERRIDE", "GPU"} & {*described()}


@pytest.mark.parametrize(
    ("asked", "visible", "expected"),
    [
        (1, None, "A, B"),
        (-1, None, "3 × A, B"),
        (-1, "0,2", "2 × A, B"),
        (-1, "", "0 × A, B"),
    ],
)
def test_gpu_entry_lists_visible_count_and_models(asked, visible, expected, tmp_path, monkeypatch):
    for bus, model in (("1", "B"), ("2", "A"), ("3", "A")):
        (tmp_path / bus).mkdir()
        (tmp_path / bus / "information").write_text(f"Model: \t\t {model}\nIRQ:   \t\t 1\n")
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert numerics_record._gpus(asked, tmp_path) == expected
    assert numerics_record._gpus(1, tmp_path / "none") == "unknown"


@pytest.mark.parametrize(
    ("name", "before", "now", "change"),
    [
        ("intra-op threads", "4", "2", "4 → 2 (set runtime.intra_op_threads=4)"),
        ("oneDNN", "on", "off", "on → off (set TF_ENABLE_ONEDNN_OPTS=1)"),
        ("XLA", "on", "off", "on → off (set runtime.enable_xla=true)"),
        ("tensorflow", "2.20.0", "2.20.1", "2.20.0 → 2.20.1 (install tensorflow==2.20.0)"),
        ("numpy", "not installed", "2", "not installed → 2"),
        ("python", "3.10", "3.11", "3.10 → 3.11"),
        (
            "processor",
            "x86_64 avx avx512f fma",
            "x86_64 amx_int8 avx fma",
            "no longer has avx512f; now has amx_int8",
        ),
    ],
)
def test_changes_suggest_how_to_undo_them(name, before, now, change):
    record = described()
    lines = describe_changes({**record, name: before}, {**record, name: now})
    assert lines == [f"{name}: {change}"]


def test_environment_of_a_record_gives_the_same_record(monkeypatch):
    runtime = RuntimeConfig()
    for name, value in (
        ("TF_NUM_INTRAOP_THREADS", "3"),
        ("TF_ENABLE_ONEDNN_OPTS", "0"),
        ("DNNL_MAX_CPU_ISA", "AVX2"),
        ("TF_SET_ONEDNN_FPMATH_MODE", "BF16"),
    ):
        monkeypatch.setenv(name, value)
    record = describe_numerics(runtime)

    for name, value in (
        ("TF_NUM_INTRAOP_THREADS", "5"),
        ("TF_ENABLE_ONEDNN_OPTS", "1"),
        ("DNNL_MAX_CPU_ISA", "SSE41"),
        ("XLA_FLAGS", "--xla_cpu_enable_fast_math"),
    ):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("TF_SET_ONEDNN_FPMATH_MODE")
    assert describe_numerics(runtime) != record
    for name, value in environment_of(record).items():
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    assert describe_numerics(runtime) == record
