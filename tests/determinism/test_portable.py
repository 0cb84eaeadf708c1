"""Portable numerics: what they set, what they record, and where they are refused."""

import os
import sys
from types import ModuleType

import pytest

from orbit_runner.config.errors import ConfigError
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.determinism import portable
from orbit_runner.determinism.numerics_record import (
    describe_changes,
    describe_numerics,
)
from orbit_runner.determinism.portable import (
    VARIABLES,
    machine_problem,
    set_portable_variables,
)
from orbit_runner.distribute.tf_environment import required_variables
from orbit_runner.errors import SettingError
from tests.support.problems import raises

PORTABLE = RuntimeConfig(numerics="portable")


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch):
    for name in (*VARIABLES, "GLIBC_TUNABLES"):
        # Set first, because what was not set before would not be unset after the test.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


@pytest.fixture
def capable(monkeypatch):
    """A machine on which numerics can be portable."""
    monkeypatch.setattr(portable, "machine_problem", lambda: "")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["fpu avx avx2 fma", "fpu avx avx2 fma avx512f"], ""),
        (["fpu avx avx2 fma", "fpu avx fma"], "this processor has no AVX2"),
        (["fpu avx"], "this processor has no AVX2 and no FMA"),
        ([], "this processor has no AVX2 and no FMA"),
    ],
)
def test_every_core_must_have_both_instruction_sets(flags, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(portable.sys, "platform", "linux")
    monkeypatch.setattr(portable.platform, "machine", lambda: "x86_64")
    (tmp_path / "cpuinfo").write_text("\n".join(f"flags\t\t: {line}" for line in flags))
    problem = machine_problem(tmp_path / "cpuinfo")
    assert problem.endswith(expected)
    assert bool(problem) == bool(expected)


@pytest.mark.parametrize(("system", "machine"), [("darwin", "x86_64"), ("linux", "aarch64")])
def test_other_platforms_are_refused(system, machine, monkeypatch):
    monkeypatch.setattr(portable.sys, "platform", system)
    monkeypatch.setattr(portable.platform, "machine", lambda: machine)
    assert f"but this is {system} on {machine}" in machine_problem()


def test_capped_functions_of_the_c_library_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(portable.sys, "platform", "linux")
    monkeypatch.setattr(portable.platform, "machine", lambda: "x86_64")
    (tmp_path / "cpuinfo").write_text("flags : avx2 fma\n")
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.check=1")
    assert machine_problem(tmp_path / "cpuinfo") == ""
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-AVX2")
    assert "GLIBC_TUNABLES does not set hwcaps" in machine_problem(tmp_path / "cpuinfo")


def test_native_numerics_set_no_variable():
    set_portable_variables(RuntimeConfig())
    assert not [name for name in VARIABLES if name in os.environ]
    assert not {*VARIABLES} & {*dict(required_variables(RuntimeConfig()))}


def test_variables_are_set_before_tensorflow_is_imported(capable, monkeypatch):
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "SSE41")
    set_portable_variables(PORTABLE)
    assert {name: os.environ[name] for name in VARIABLES} == VARIABLES
    assert dict(required_variables(PORTABLE)) == VARIABLES


def test_tensorflow_imported_with_other_values_is_an_error(capable, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", ModuleType("tensorflow"))
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    set_portable_variables(PORTABLE)
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "1")
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_max_isa=AVX")
    with pytest.raises(SettingError) as raised:
        set_portable_variables(PORTABLE)
    assert raised.value.path == "runtime.numerics"
    assert "env -u XLA_FLAGS TF_ENABLE_ONEDNN_OPTS=0 python" in raised.value.reason
    assert os.environ["TF_ENABLE_ONEDNN_OPTS"] == "1"


def test_incapable_machine_is_an_error(monkeypatch):
    monkeypatch.setattr(portable, "machine_problem", lambda: "requires AVX2")
    with raises("not-supported", "runtime.numerics"):
        set_portable_variables(PORTABLE)
    set_portable_variables(RuntimeConfig())


def test_record_is_the_same_on_every_processor_and_in_every_environment(monkeypatch):
    record = describe_numerics(PORTABLE)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "SSE41")
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "7")
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_max_isa=AVX")
    assert describe_numerics(PORTABLE) == record
    assert record["processor"] == "x86_64 avx2 fma"
    assert "caches" not in record
    native = describe_numerics(RuntimeConfig(intra_op_threads=1))
    assert {*record} <= {*native}
    assert describe_changes({**record, "C library": "glibc 2.1"}, record) == [
        f"C library: glibc 2.1 → {record['C library']}"
    ]


# The other settings, the blamed field, and a part of the message.
REFUSED = [
    ({"num_gpus": 1}, "numerics", "got 'portable' with num_gpus: 1, but only CPUs"),
    ({"num_gpus": -1}, "numerics", "allowed: native"),
    ({"distribution_strategy": "tpu", "tpu": "local"}, "numerics", "got 'portable' under `tpu`"),
    ({"distribution_strategy": "parameter_server"}, "numerics", "the order of updates varies"),
    ({"deterministic": False}, "deterministic", "got false, but numerics is 'portable'"),
    ({"enable_xla": True}, "enable_xla", "allowed: false; or runtime.numerics: native"),
    ({"intra_op_threads": 2}, "intra_op_threads", "allowed: 1, or 0, which then means 1"),
    ({"numerics": "portabel"}, "numerics", "did you mean 'portable'"),
]


@pytest.mark.parametrize(("settings", "field", "said"), REFUSED)
def test_contradictions_are_reported(settings, field, said):
    all_settings = {"distribution_strategy": "one_device", "numerics": "portable", **settings}
    overrides = tuple(f"runtime.{name}={value}" for name, value in all_settings.items())
    with pytest.raises(ConfigError) as raised:
        resolve(Request(experiment="digits", params_overrides=overrides))
    problems = raised.value.problems
    assert [problem.path for problem in problems] == [f"runtime.{field}"]
    assert said in problems[0].message
