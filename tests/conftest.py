"""What the tests share: which of them run, virtual CPUs, and the runner as a separate process."""

import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import warm_runner

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
pytest.register_assert_rewrite("tests.support.problems")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--clusters", action="store_true", help="run the whole matrix of clusters too")
    parser.addoption("--wide", action="store_true", help="run every case and experiment file")
    parser.addoption("--emulated", action="store_true", help="run all runs on emulated processors")
    parser.addoption("--quick", action="store_true", help="leave out slow tests and cases")
    parser.addoption("--slow", action="store_true", help="run only what --quick leaves out")
    parser.addoption(
        "--slow-sample", type=int, default=0, metavar="N", help="run every Nth of the slow tests"
    )


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Names contents by their length: protocol buffers and archives differ from process to process.

    All workers have to collect the same names.
    """
    return f"{argname} of {len(val)} bytes" if isinstance(val, bytes) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects tests that others are a sample of, unless options request them."""
    options = {"matrix": "--clusters", "wide": "--wide", "emulated": "--emulated"}
    selected = {name: config.getoption(option) for name, option in options.items()}
    left_out = {
        item
        for item in items
        if any(item.get_closest_marker(name) for name, wanted in selected.items() if not wanted)
    }
    if not config.getoption("--wide"):
        left_out |= repeated_cases(items)
    quick, slow = config.getoption("--quick"), config.getoption("--slow")
    sample = config.getoption("--slow-sample")
    if quick or slow or sample:
        costly = slow_tests([item for item in items if item not in left_out])
        left_out |= {item for item in items if (item in costly) is quick}
    if sample:
        tests = [item for item in items if item not in left_out]
        left_out |= {*tests} - {*tests[::sample]}
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=[*left_out])


def repeated_cases(items: list[pytest.Item]) -> set[pytest.Item]:
    """Returns the cases that `alternating` leaves out: all but those on the diagonals.

    If a test has two parameters, each value of the longer one stays once.
    """
    functions: dict[tuple[object, str], list[pytest.Function]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("alternating"):
            functions.setdefault((item.parent, item.originalname), []).append(item)
    repeated: set[pytest.Item] = set()
    for cases in functions.values():
        values: dict[str, list[object]] = {}
        diagonals: dict[pytest.Item, int] = {}
        for case in cases:
            for name, value in case.callspec.params.items():
                if value not in values.setdefault(name, []):
                    values[name].append(value)
                diagonals[case] = diagonals.get(case, 0) + values[name].index(value)
        shortest = min(map(len, values.values()))
        repeated |= {case for case, diagonal in diagonals.items() if diagonal % shortest}
    return repeated


def slow_tests(items: list[pytest.Item]) -> set[pytest.Item]:
    """Returns the tests marked `slow`, and the cases that `sample(n)` does not keep.

    `sample(n)` keeps n cases of a parametrized test, evenly spread, the first among them.
    """
    slow = {item for item in items if item.get_closest_marker("slow")}
    functions: dict[tuple[object, str], list[pytest.Item]] = {}
    for item in items:
        name = getattr(item, "originalname", item.name)
        functions.setdefault((item.parent, name), []).append(item)
    for cases in functions.values():
        if marker := cases[0].get_closest_marker("sample"):
            kept = {index * len(cases) // marker.args[0] for index in range(marker.args[0])}
            slow |= {case for index, case in enumerate(cases) if index not in kept}
    return slow


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Excludes the objects that a test file leaves behind from garbage collection.

    TensorFlow keeps millions of objects, which each collection would visit.
    """
    if "tensorflow" in sys.modules and (nextitem is None or nextitem.path != item.path):
        gc.collect()
        gc.freeze()


def pytest_collection_finish() -> None:
    """Splits the CPU into four and sets one thread per op, before TensorFlow's first op.

    Neither can be changed later in a process. Checked-in experiments set one thread, and two test
    processes with one thread each keep two cores busy. Tests without tensorflow do not import it.
    """
    if "tensorflow" not in sys.modules:
        return
    import tensorflow as tf

    gc.freeze()
    tf.config.threading.set_intra_op_parallelism_threads(1)

    (cpu,) = tf.config.list_physical_devices("CPU")
    parts = [tf.config.LogicalDeviceConfiguration()] * 4
    tf.config.set_logical_device_configuration(cpu, parts)


@pytest.fixture(autouse=True)
def process_as_before() -> Iterator[None]:
    """Seeds each test, so that it fails always or never, and undoes what a config sets.

    Some random weights make an untrained network overflow in float16, for example.
    """
    # Of its own: what a test replaces with the fixture is to be undone before this ends.
    monkeypatch = pytest.MonkeyPatch()
    distributed: list[str] = []
    if "tensorflow" in sys.modules:
        import tf_keras

        tf_keras.utils.set_random_seed(1)
        record_distributed_datasets(monkeypatch, distributed)
    yield
    monkeypatch.undo()
    if "tensorflow" not in sys.modules:
        return
    if distributed:
        gc.collect()  # TensorFlow may block for as long as the iterators of such a dataset live.
    import tensorflow as tf
    import tf_keras

    from orbit_runner.tf_internals import disable_op_determinism

    disable_op_determinism()
    tf.config.run_functions_eagerly(False)
    tf_keras.mixed_precision.set_global_policy("float32")
    if "keras.config" in sys.modules:
        sys.modules["keras"].config.set_dtype_policy("float32")


def record_distributed_datasets(monkeypatch: pytest.MonkeyPatch, names: list[str]) -> None:
    """Adds a name to `names` for each dataset that a test distributes over several replicas."""
    import tensorflow as tf

    def wrap(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def distribute(strategy: tf.distribute.Strategy, *args: Any, **kwargs: Any) -> Any:
            if strategy.num_replicas_in_sync > 1:
                names.append(name)
            return method(strategy, *args, **kwargs)

        return distribute

    for name in ("experimental_distribute_dataset", "distribute_datasets_from_function"):
        monkeypatch.setattr(
            tf.distribute.Strategy, name, wrap(name, getattr(tf.distribute.Strategy, name))
        )


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, which is empty."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keeps what a test caches apart from other tests, and returns the directory."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


# The settings of the finished run that tests share.
FINISHED_RUN = {
    "trainer.train_steps": "30",
    "task.model.hidden_units": "[8]",
    "task.model.dropout_rate": "0.3",
    "trainer.checkpoint_interval": "10",
    "trainer.max_to_keep": "2",
    "trainer.summary_interval": "5",
    "trainer.validation_interval": "30",
    "trainer.best_checkpoint_export_subdir": "best",
    "trainer.best_checkpoint_eval_metric": "accuracy",
    # TensorFlow fixes the thread settings of the test process at its first op.
    "runtime.intra_op_threads": "0",
}


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 30 steps, which tests copy before a change. Its results are beside it, as JSON.

    It has the checkpoints of steps 20 and 30, a best one, and a fingerprint of step 10.
    """
    directory = tmp_path_factory.mktemp("finished")
    settings = [f"--{path}={value}" for path, value in FINISHED_RUN.items()]
    flags = ["--experiment=digits_mlp", "--model_dir=run", "--json", *settings]
    completed = warm_runner.run(*flags, cwd=directory)
    assert completed.returncode == 0, completed.stderr
    (directory / "results.json").write_text(completed.stdout)
    return directory / "run"


@pytest.fixture
def cli(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the `runner` command in `tmp_path`, in a process of its own."""

    def run(*arguments: str, timeout: float = 600.0) -> subprocess.CompletedProcess[str]:
        return warm_runner.run(*arguments, cwd=tmp_path, timeout=timeout)

    return run


@pytest.fixture(params=["off", "one_device", "mirrored2", "mirrored4"])
def strategy(request: pytest.FixtureRequest) -> Any:
    """The strategies that a single process can run here, on virtual CPUs."""
    from tests.support.toy import make_strategy

    return make_strategy(request.param)
