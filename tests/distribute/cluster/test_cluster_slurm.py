"""Slurm clusters, read from the environment variables that `srun` sets for its tasks."""

import pytest

from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute.cluster.description import ClusterError
from orbit_runner.distribute.cluster.slurm import expand_counts, expand_nodes, from_slurm, is_slurm

MIRRORED = RuntimeConfig(distribution_strategy="multi_worker_mirrored")
SERVED = RuntimeConfig(
    distribution_strategy="parameter_server", num_parameter_servers=2, num_evaluators=1
)


def _environ(**more):
    return {
        "SLURM_PROCID": "0",
        "SLURM_STEP_NUM_TASKS": "3",
        "SLURM_STEP_NODELIST": "n[1-2]",
        "SLURM_STEP_TASKS_PER_NODE": "2,1",
        "SLURM_JOB_ID": "42",
        "SLURM_STEP_ID": "3",
        **{f"SLURM_{name}": value for name, value in more.items()},
    }


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("n1", "n1"),
        ("n1,m2", "n1 m2"),
        ("n[1-3]", "n1 n2 n3"),
        ("n[01-03,7]", "n01 n02 n03 n7"),
        ("n[01-03,7]-ib,gpu1", "n01-ib n02-ib n03-ib n7-ib gpu1"),
        ("n[01-03,7]-[1-2]", "n01-1 n01-2 n02-1 n02-2 n03-1 n03-2 n7-1 n7-2"),
        ("a[1,10],n2", "a1 a10 n2"),
        ("n[098-101]", "n098 n099 n100 n101"),
        ("n[9-11]", "n9 n10 n11"),
    ],
)
def test_node_list_is_expanded(text, nodes):
    assert expand_nodes(text) == nodes.split()


@pytest.mark.parametrize(
    ("text", "counts"),
    [("1", [1]), ("2(x3),1", [2, 2, 2, 1]), ("1,2(x2)", [1, 2, 2]), ("4(x1)", [4])],
)
def test_task_counts_are_expanded(text, counts):
    assert expand_counts(text) == counts


@pytest.mark.parametrize(
    ("more", "addresses"),
    [
        # 20000 + (42 · 100 + 3) mod 10000
        ({}, "n1:24203 n1:24204 n2:24203"),
        ({"DISTRIBUTION": "block:cyclic"}, "n1:24203 n1:24204 n2:24203"),
        ({"DISTRIBUTION": "*"}, "n1:24203 n1:24204 n2:24203"),
        ({"DISTRIBUTION": "cyclic"}, "n1:24203 n2:24203 n1:24204"),
        (
            {"DISTRIBUTION": "cyclic", "STEP_TASKS_PER_NODE": "1,3", "STEP_NUM_TASKS": "4"},
            "n1:24203 n2:24203 n2:24204 n2:24205",
        ),
        ({"JOB_ID": "199", "STEP_ID": "0"}, "n1:29900 n1:29901 n2:29900"),
        (
            {"STEP_NODELIST": "n[9-10]", "STEP_TASKS_PER_NODE": "1(x2)"},
            "n9:24203 n10:24203",
        ),
    ],
)
def test_each_rank_gets_the_expected_node_and_port(more, addresses):
    environ, expected = _environ(**more), addresses.split()

    for rank, address in enumerate(expected):
        cluster = from_slurm(MIRRORED, {**environ, "SLURM_PROCID": str(rank)})
        assert cluster.jobs == {"worker": tuple(expected)}
        assert (cluster.me.index, cluster.me.address) == (rank, address)
        assert cluster.source == "Slurm"


@pytest.mark.parametrize(
    ("runtime", "more", "said"),
    [
        (MIRRORED, {"PROCID": ""}, "SLURM_PROCID is not set; start the tasks with `srun runner"),
        (MIRRORED, {"JOB_ID": "x"}, "SLURM_JOB_ID is 'x', expected a number"),
        (MIRRORED, {"PROCID": "3"}, "has 3 tasks on 2 nodes, and SLURM_PROCID is 3"),
        (MIRRORED, {"STEP_TASKS_PER_NODE": "2"}, "has 2 nodes, SLURM_STEP_TASKS_PER_NODE has 2"),
        (MIRRORED, {"DISTRIBUTION": "plane=2"}, "distributed as 'plane=2', allowed: block, cyclic"),
        (
            SERVED, {},
            "got 3 processes, too few for a worker in addition to 1 chief, 2 ps, 1 evaluator",
        ),
    ],
)  # fmt: skip
def test_invalid_slurm_variables_are_rejected(runtime, more, said):
    with pytest.raises(ClusterError) as caught:
        from_slurm(runtime, _environ(**more))

    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        ({}, False),
        ({"SLURM_JOB_ID": "1", "SLURM_STEP_NUM_TASKS": "2"}, False),
        ({"SLURM_PROCID": "0"}, False),
        ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}, False),
        ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2"}, True),
    ],
)
def test_slurm_is_detected_only_with_several_tasks(environ, found):
    assert is_slurm(environ) is found


@pytest.mark.parametrize(
    ("runtime", "tasks", "roles"),
    [
        (SERVED, 6, ["chief 0", "ps 0", "ps 1", "worker 0", "worker 1", "evaluator 0"]),
        (MIRRORED.replace(num_evaluators=1), 3, ["worker 0", "worker 1", "evaluator 0"]),
        # By default, there is one parameter server.
        (
            RuntimeConfig(distribution_strategy="parameter_server"),
            3,
            ["chief 0", "ps 0", "worker 0"],
        ),
    ],
)
def test_roles_are_assigned_by_rank(runtime, tasks, roles):
    environ = _environ(
        STEP_NODELIST="n1", STEP_TASKS_PER_NODE=str(tasks), STEP_NUM_TASKS=str(tasks)
    )
    ranks = [{**environ, "SLURM_PROCID": str(rank)} for rank in range(tasks)]

    assert [str(from_slurm(runtime, variables).me) for variables in ranks] == roles
