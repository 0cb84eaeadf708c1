"""Compares the estimated memory of a training step with the measured peak."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys

TITLE = "Memory of a training step: `runner inspect`, estimated and measured"
_SYNTHETIC = "--config_file=configs/data/synthetic.yaml"
_BATCH = "--task.train_data.global_batch_size"
CASES = {
    "digits": ["digits"],
    "digits_mlp, batch 1024": ["digits_mlp", f"{_BATCH}=1024"],
    "resnet_cifar": ["resnet_cifar", _SYNTHETIC],
    "transformer_multi30k": ["transformer_multi30k", _SYNTHETIC],
    "ncf_movielens": ["ncf_movielens", _SYNTHETIC],
    "ncf_movielens, batch 65536": ["ncf_movielens", _SYNTHETIC, f"{_BATCH}=65536"],
    "vit_base_imagenet, ViT-Ti/16, batch 8": [
        "vit_base_imagenet", _SYNTHETIC, f"{_BATCH}=8", "--task.model.model_name=vit-ti16",
        "--task.validation_data.global_batch_size=8", "--trainer.train_steps=100",
        "--trainer.train_epochs=0", "--distribution_strategy=one_device", "--num_gpus=0",
    ],
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Row:
    """The bytes of a step of one experiment."""

    name: str
    estimated: int
    measured: int

    @property
    def deviation(self) -> float:
        """How much larger the estimate is than the measured peak, as a share of the latter."""
        return self.estimated / self.measured - 1.0


def measure(name: str) -> Row:
    """Inspects an experiment in a separate process, because the allocator counts from its start.

    Args:
        name: The name in `CASES`.
    """
    command = [sys.executable, "-m", "orbit_runner", "inspect", *CASES[name]]
    done = subprocess.run(
        [*command, "--measure", "--json", "--quiet"], check=True, stdout=subprocess.PIPE
    )
    found = json.loads(done.stdout)
    return Row(name, found["memory"]["peak"], found["measured"]["peak_bytes"])


def report() -> str:
    """Returns a table of all cases."""
    lines = [
        f"## {TITLE}",
        "",
        "| experiment | estimated MiB | measured MiB | deviation |",
        "|---|---:|---:|---:|",
    ]
    for name in CASES:
        row = measure(name)
        sizes = f"{row.estimated / 2**20:.1f} | {row.measured / 2**20:.1f}"
        lines.append(f"| {name} | {sizes} | {row.deviation:+.1%} |")
        print(lines[-1], file=sys.stderr, flush=True)
    return "\n".join(lines)


if __name__ == "__main__":
    print(report())
