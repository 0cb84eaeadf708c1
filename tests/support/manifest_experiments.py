"""Experiments that manifests are printed for, and what a cluster makes of them."""

from __future__ import annotations

from typing import Any

from orbit_runner.cli.flags.config_flags import (
    add_config_flags,
    build_request,
    make_parser,
    parse_flags,
)
from orbit_runner.config.resolve import ResolvedConfig, resolve

MIRRORED = "--distribution_strategy=multi_worker_mirrored"
SERVED = "--distribution_strategy=parameter_server"

# Flags, and the number of processes of each role.
ORDERS: dict[str, tuple[list[str], dict[str, int]]] = {
    "one process": (["--experiment=digits"], {"worker": 1}),
    "mirrored": (
        ["--experiment=digits", "--distribution_strategy=mirrored", "--gpus_per_worker=4"],
        {"worker": 1},
    ),
    "workers": (["--experiment=digits", MIRRORED, "--workers=2"], {"worker": 2}),
    "workers of the config": (
        ["--experiment=digits", MIRRORED, "--runtime.num_workers=4", "--num_gpus=2"],
        {"worker": 4},
    ),
    "with evaluator": (
        ["--experiment=digits", MIRRORED, "--workers=2", "--evaluator"],
        {"worker": 2, "evaluator": 1},
    ),
    "servers": (
        ["--experiment=digits", SERVED, "--workers=3", "--ps=2", "--gpus-per-worker=1"],
        {"chief": 1, "ps": 2, "worker": 3},
    ),
    "all roles": (
        ["--experiment=digits_mlp", SERVED, "--workers=1", "--evaluator"],
        {"chief": 1, "ps": 1, "worker": 1, "evaluator": 1},
    ),
}
# Texts that a shell, YAML, Kubernetes or the script itself could read as something else.
# In a config, `$${` stands for `${`.
TRICKY = "it's \"$HOME\" $(date) `x` ${y} \\n: # - 'a', %x 1e3 ünï 日本 END_OF_EXPERIMENT"


def resolved_of(*arguments: str) -> ResolvedConfig:
    """Returns what `runner run` resolves from arguments without those of manifests."""
    to = make_parser("run", "")
    to.add_argument("--model_dir")
    to.add_argument("--mode", default="")
    add_config_flags(to)
    return resolve(build_request(parse_flags(to, list(arguments))))


def settings(flags: list[str], roles: dict[str, int]) -> Any:
    """Returns the config that an entry of `ORDERS` must resolve to, from settings alone."""
    own = ("--workers", "--ps", "--evaluator", "--gpus")
    given = [flag for flag in flags if not flag.startswith(own)]
    for flag in flags:
        name, _, value = flag.partition("=")
        if name in ("--gpus-per-worker", "--gpus_per_worker"):
            given.append(f"--runtime.num_gpus={value}")
    workers = next((f.partition("=")[2] for f in flags if f.startswith("--workers")), None)
    servers = next((f.partition("=")[2] for f in flags if f.startswith("--ps")), None)
    given += [f"--runtime.num_workers={workers}"] if workers else []
    given += [f"--runtime.num_parameter_servers={servers}"] if servers else []
    given += ["--runtime.num_evaluators=1"] if "evaluator" in roles else []
    return resolved_of(*given).config
