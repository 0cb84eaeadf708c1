"""The kinds of errors. Each error has the code of its kind, which `--json` prints.

Texts of errors may change in any release, codes do not: scripts and tests rely on them.
"""

from __future__ import annotations

# The code of an error that names no other, such as one of a user's own task.
UNSPECIFIC = "error"

# What each code means and, unless the message says it better, what to do. docs/errors.md lists them
# in this order.
CODES: dict[str, dict[str, str]] = {
    "Settings and flags": {
        "unknown-setting": "No setting or section has this name. The message names a similar one.",
        "unknown-flag": "The command has no such flag, or accepts no such setting.",
        "unknown-name": "No experiment, task, dataset, metric, loss, layer or macro has this name.",
        "wrong-type": "The value is of another type or form than the setting or flag expects.",
        "out-of-range": "The number is below the smallest or above the largest allowed value.",
        "not-allowed": "The value is not one of those that are allowed here.",
        "not-set": "The setting, flag or variable is required, and is not set or is empty.",
        "no-effect": "The setting or flag has no effect with the others. Remove it.",
        "conflict": "Two settings or flags exclude each other. Set one of them.",
        "not-supported": "The combination of settings, data or devices is not supported.",
        "not-divisible": "The number has to be a multiple of another, such as that of replicas.",
        "set-twice": "The name is set or listed twice, or another thing already has it.",
        "bad-syntax": "The file or text cannot be parsed.",
        "bad-reference": "A `base` names nothing, itself, or what cannot be used here.",
        "bad-arguments": "The arguments do not fit the signature of the function or class.",
        "import-failed": "A module, function or class cannot be imported, or is of another kind.",
        "missing-package": "A Python package that is needed is not installed.",
    },
    "Files and paths": {
        "missing-file": "The file or directory does not exist.",
        "wrong-file-type": "A directory instead of a file, the reverse, or another suffix.",
        "unreadable-file": "The file exists, but the operating system cannot read it.",
        "damaged-file": "The contents of the file are truncated, corrupt or of another format.",
        "not-writable": "The file or directory cannot be written.",
        "already-exists": "The command would overwrite files. Use a new directory.",
        "bad-path": "The path or URL is empty, too long, or cannot be used here.",
    },
    "Data": {
        "bad-record": "A record, row, line, image or cell cannot be read, or has a wrong value.",
        "empty-data": "There are no examples, or none is left.",
        "bad-data": "The arrays, columns or files of a dataset are not as the task expects them.",
        "unknown-column": "The data has no such column, array or feature.",
        "unknown-class": "The training data and other data or a list do not have the same classes.",
        "unknown-part": "The dataset has no such split or part.",
        "unknown-example": "The dataset has no example with this ID.",
        "data-mismatch": "Two sources, or data and training, differ in their columns or arrays.",
        "data-changed": "The data is not what the run was trained on. Restore it.",
        "download-failed": "A dataset or weights could not be downloaded, copied or unpacked.",
        "wrong-checksum": "The file differs from the published one.",
    },
    "Runs and checkpoints": {
        "not-a-run": "The directory is not a run directory, or lacks its `config.yaml`.",
        "no-checkpoint": "There is no checkpoint, or none that can be used.",
        "damaged-checkpoint": "It cannot be read, or has changed: see `runner verify RUN`.",
        "checkpoint-mismatch": "It has other variables than the model or the optimizer.",
        "other-config": "The directory has a run or sweep with another config. Use another one.",
        "other-code": "A function is not the one that the run was trained with. Restore it.",
        "other-assets": "What the run learned from its data differs from what is there now.",
        "run-locked": "Another process uses the directory.",
        "run-removed": "The run directory was removed while the run trained.",
        "unknown-step": "The run has no such step, or none that can be used.",
        "not-comparable": "The runs have nothing in common that could be compared.",
        "not-repeatable": "The steps of the run cannot be repeated or observed here.",
        "nothing-selected": "No run matches, or no flag says what to do.",
        "failed-trial": "A trial of a sweep cannot be started, or failed.",
    },
    "Models and training": {
        "model-mismatch": "The model, its losses or its metrics do not fit the data or each other.",
        "bad-model": "The model, layer, loss, metric or optimizer cannot be built or used.",
        "missing-method": "The task or class does not define a method that is needed.",
        "diverged": "The loss or the weights are NaN, infinite or above the bound.",
        "out-of-memory": "The model or the data does not fit into memory.",
        "interrupted": "A signal ended the run. Start it again to continue.",
        "save-failed": "A checkpoint or other file of the run could not be saved.",
        "export-failed": "The model cannot be exported in this format, or its export not loaded.",
        "export-mismatch": "The exported model returns other values than the run.",
        "bad-item": "The item to predict is not of the kind that the model accepts.",
        "too-late": "TensorFlow has already started in this process with another setting.",
    },
    "Devices, clusters and storage": {
        "missing-device": "The machine does not have the GPUs or TPUs that the settings name.",
        "bad-cluster": "The description of the cluster is wrong or incomplete.",
        "member-lost": "Another member of the cluster does not respond or has ended.",
        "unreachable": "An address, service or object store does not answer.",
        "server-failed": "A server or process cannot be started, or has failed.",
        "unsupported-version": "TensorFlow or Keras lacks something internal that is needed.",
    },
    "Commands": {
        "unknown-command": "There is no such command.",
        "wrong-usage": "The arguments of the command are incomplete or cannot be read.",
        "output-lost": "The results could not be written to standard output.",
        UNSPECIFIC: "An error without a code of its own, for example of your own task.",
    },
}

MEANINGS: dict[str, str] = {code: text for codes in CODES.values() for code, text in codes.items()}
