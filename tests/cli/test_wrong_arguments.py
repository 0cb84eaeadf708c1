"""Wrong words on the command line, or in files that they name: one error, and nothing is written.

Commands that need a run test what is wrong with it in their own files.
"""
# ruff: noqa: E501 (one line a case)

from __future__ import annotations

import shlex

import pytest

from tests.support.problems import error_of, fails

FILES = {
    "exits.py": "import sys\nsys.exit(3)\n",
    "raises.py": "raise RuntimeError('x' * 4000)\n",
    "empty_import.yaml": "imports: ['']\n",
    "plain.txt": "a\n",
    "run/config.yaml": "base: digits\nnot: a config\n",
    "d.yaml/a": "",
    "d/a": "",
}
LONG = "a" * 300
WORKERS = "--experiment=digits --distribution_strategy=multi_worker_mirrored"
CASES = [
    # Commands and flags.
    ("shwo", "unknown-command", ""),
    ("''", "unknown-command", ""),
    ("data gett", "wrong-usage", ""),
    ("-", "unknown-flag", ""),
    ("--", "unknown-flag", ""),
    ("run digits", "unknown-flag", ""),
    ("show --exp=digits", "unknown-flag", ""),
    ("show --schema digits", "no-effect", "FILE"),
    ("show --experiment=digits --SECTION.NAME=1", "unknown-flag", ""),
    ("show --experiment=digits --tusk.x=1", "unknown-flag", ""),
    ("run --experiment=digits --trainer.=5", "unknown-flag", ""),
    ("--version extra", "unknown-flag", ""),
    ("reproduce a --runtime.seed=3", "unknown-flag", "--runtime.seed"),
    ("launch --runtime.seed=3 -- --experiment=digits", "unknown-flag", "--runtime.seed"),
    ("launch", "wrong-usage", ""),
    ("data get", "not-set", "NAME"),
    ("data", "wrong-usage", ""),
    ("--completion", "wrong-usage", ""),
    ("--completion tcsh", "wrong-usage", ""),
    ("help trainer.train_step", "unknown-setting", ""),
    ("show --experiment", "wrong-usage", ""),
    ("show --experiment=digits --diff", "wrong-usage", ""),
    ("show --experiment=digits --diff=digits_mlp --schema", "wrong-usage", ""),
    ("run --experiment=digits --resume=maybe", "wrong-usage", ""),
    ("clean run --keep_last=x", "wrong-usage", ""),
    (f"batch digits --step={'9' * 25}", "wrong-usage", ""),
    (f"replay run --step={'9' * 5000}", "wrong-usage", ""),
    ("run --experiment=digits --stop_at_step=0", "out-of-range", "--stop_at_step"),
    ("run --experiment=digits --train_steps=5 --stop_at_step=6", "unknown-step", "--stop_at_step"),
    ("run --experiment=digits --pretrain_steps=3", "no-effect", "--pretrain_steps"),
    ("run --experiment=digits --mode=x", "not-allowed", "--mode"),
    ("server", "not-set", ""),
    ("server --role=chief", "wrong-usage", ""),
    ("server '--cluster=worker=a:1;ps=b:1'", "not-set", "--role"),
    ("server --role=worker '--cluster=worker=a:1,c:1;ps=b:1'", "not-set", "--index"),
    ("server --role=ps --index=2 '--cluster=worker=a:1;ps=b:1,c:1'", "bad-cluster", "--cluster"),
    ("server --role=worker --index=0 '--cluster=worker=a;ps=b:1'", "bad-cluster", "--cluster"),
    ("server --role=worker --index=0 --cluster=worker", "bad-cluster", "--cluster"),
    ("server --role=worker --cluster=worker=a:b", "bad-cluster", "--cluster"),
    ("launch --workers=2", "wrong-usage", ""),
    ("launch --workers=2 --experiment=digits", "unknown-flag", ""),
    ("launch --workers=2 -- --experiment=digits --sed=1", "unknown-flag", ""),
    ("launch --workers=2 -- --experiment=digits", "not-supported", "runtime.distribution_strategy"),
    (f"launch -- {WORKERS}", "not-set", "--workers"),
    (f"launch --workers=2 --ps=1 -- {WORKERS}", "not-supported", "--ps"),
    (f"launch --workers=-1 -- {WORKERS}", "out-of-range", "--workers"),
    (f"launch --workers=2 --restarts=-1 -- {WORKERS}", "out-of-range", "--restarts"),
    ("launch --workers=100000 -- --experiment=digits", "out-of-range", "--workers"),
    ("launch --restarts=10000000 -- --experiment=digits", "out-of-range", "--restarts"),
    ("predict x y --batch_size=100000000000000000000", "out-of-range", "--batch_size"),
    ("predict x y --top_k=-1", "out-of-range", "--top_k"),
    ("run --experiment=digits --mode=continuous_train_and_eval --pretrain_steps=0", "out-of-range", "--pretrain_steps"),
    (f"launch --workers=3 -- {WORKERS} --task.validation_data.global_batch_size=129", "not-divisible", "task.train_data.global_batch_size"),
    (f"launch --workers=2 --evaluator -- {WORKERS} '--trainer.early_stopping={{metric: accuracy, patience: 2}}'", "not-supported", "trainer.early_stopping"),
    (f"launch --workers=2 -- {WORKERS} --model_dir=plain.txt/a", "not-writable", "--model_dir"),
    # The examples of steps, inspections, published fingerprints.
    ("batch digits", "wrong-usage", ""),
    ("batch digits --step=5:4", "wrong-usage", ""),
    ("batch digits --step=1:2 --images=x.png", "conflict", "--images"),
    ("batch digits --step=1 --example=1", "wrong-usage", ""),
    ("batch digits --step=1 --until=5", "no-effect", "--until"),
    ("batch digits --example=1 --text", "no-effect", "--text"),
    ("batch digits --experiment=digits_mlp --step=1", "conflict", "--experiment"),
    ("batch digit --step=1", "unknown-name", "--experiment"),
    ("batch mnist --data_dir=nowhere --step=1", "missing-file", "task.train_data.data_dir"),
    ("batch digits --example=99999", "unknown-example", "--example"),
    ("batch digits --example=a/b.png", "unknown-example", "--example"),
    ("batch digits --example=1 --until=0", "wrong-usage", ""),
    ("batch digits --example=1 --train_epochs=0", "not-set", "--until"),
    ("batch digits --example=1 --until=2000000000", "out-of-range", "--until"),
    ("inspect digit", "unknown-name", "--experiment"),
    ("inspect digits --experiment=digits_mlp", "conflict", "--experiment"),
    ("inspect digits --trainer.train_epochs=0", "not-set", "trainer.train_steps"),
    ("inspect --workers=0", "out-of-range", "--workers"),
    ("inspect digits --workers=abc", "wrong-usage", ""),
    ("inspect digits --workers=2 --gpus_per_worker=0", "out-of-range", "--gpus_per_worker"),
    ("inspect digits --gpus_per_worker=2", "no-effect", "--gpus_per_worker"),
    ("inspect digits --workers=3 --runtime.logical_replicas=4", "not-divisible", "runtime.logical_replicas"),
    ("inspect transformer_multi30k --config_file=configs/data/synthetic.yaml --workers=16", "not-divisible", "task.train_data.batch_rows_multiple"),
    ("reproduce mnist", "not-a-run", "RUN"),
    ("reproduce digit", "not-a-run", "RUN"),
    ("reproduce digits --runtime.intra_op_threads=2", "conflict", "--runtime.intra_op_threads"),
    # Names.
    ("show --experiment=", "not-set", "--experiment"),
    ("show --experiment=.", "unknown-name", "--experiment"),
    ("show --experiment=digit", "unknown-name", "--experiment"),
    ("show --experiment=plain.txt", "unknown-name", "--experiment"),
    ("show --experiment=digits --diff=no_such", "unknown-name", "--experiment"),
    ("show --check official/resnet_imagenat", "unknown-name", "--experiment"),
    ("show --experiment=" + "a" * 3000, "unknown-name", "--experiment"),
    ("show --experiment=d", "unknown-name", "--experiment"),
    ("data get mnits", "unknown-name", ""),
    ("data get mnist --from=", "not-set", "--from"),
    ("data get mnist --from=ftp://x/y", "wrong-type", "--from"),
    ("show --experiment=digits --import=no_such", "import-failed", "imports"),
    ("show --experiment=digits --import=raises", "import-failed", "imports"),
    ("list --import=exits", "import-failed", "imports"),
    # Settings.
    ("show --experiment=digits --trainer.train_steps", "not-set", "--trainer.train_steps"),
    ("show --experiment=digits --task.init_checkpoint --runtime.seed=1", "not-set", "--task.init_checkpoint"),
    ("run --experiment=digits --train_steps=0 --train_epochs=0", "not-set", "trainer.train_steps"),
    ("run --experiment=digits --train_steps=abc", "wrong-type", "trainer.train_steps"),
    ("show --check configs/runtime/cpu.yaml --params_override=trainer.train_steps=x", "wrong-type", "trainer.train_steps"),
    ("run --experiment=digits --gin_param=a", "bad-syntax", ""),
    ("show --check transformer_multi30k --task.model.encoder.activation=foo", "not-allowed", "task.model.encoder.activation"),
    ("show --check digits --distribution_strategy=mirrored --runtime.num_virtual_devices=3 --task.validation_data.global_batch_size=129", "not-divisible", "task.train_data.global_batch_size"),
    ("run --experiment=digits '--task.train_data.exclude=[3, 1500]'", "unknown-example", "task.train_data.exclude"),
    ("run --experiment=digits --task.train_data.exclude=[1.5]", "wrong-type", "task.train_data.exclude"),
    ("run --experiment=digits --task.validation_data.exclude=[3]", "not-allowed", "task.validation_data.exclude"),
    # Files of settings.
    ("show --experiment=digits --config_file=x.yaml", "missing-file", ""),
    ("show --experiment=digits --config_file='a\0b'", "missing-file", ""),
    (f"show --experiment=digits --config_file={'a/' * 3000}", "missing-file", ""),
    ("show --experiment=digits --config_file=d", "wrong-file-type", ""),
    ("show --experiment=digits --config_file=d.yaml", "wrong-file-type", ""),
    ("show --experiment=digits --config_file=/dev/stdin", "wrong-file-type", ""),
    ("show --experiment=digits --gin_file=d", "wrong-file-type", ""),
    ("show --experiment=digits --gin_file=/dev/zero", "wrong-file-type", ""),
    ("show --experiment=digits --config_file=empty_import.yaml", "import-failed", "imports"),
    ("show --experiment=run", "unknown-setting", "not"),
    ("reproduce run", "unknown-setting", "not"),
    # Places.
    (f"predict {LONG} x", "bad-path", ""),
    (f"export {LONG}", "bad-path", ""),
    (f"runs {LONG}", "bad-path", ""),
    ("runs missing", "missing-file", "DIR"),
    ("runs gs://bucket/runs", "bad-path", "DIR"),
    ("runs run --limit=0", "out-of-range", "--limit"),
    ("compare run/config.yaml", "not-a-run", "RUN"),
    ("report .", "not-a-run", "RUN"),
    ("report missing", "not-a-run", "RUN"),
    ("report gs://bucket/run", "bad-path", "RUN"),
    ("verify missing", "no-checkpoint", "RUN"),
    ("verify plain.txt", "no-checkpoint", "RUN"),
    ("run --experiment=digits --mode=eval --model_dir=empty", "no-checkpoint", "--model_dir"),
    ("run --experiment=digits --model_dir=plain.txt", "bad-path", "--model_dir"),
    ("run --experiment=digits --model_dir=plain.txt/below", "not-writable", "--model_dir"),
    ("run --experiment=digits --model_dir=/proc/x", "not-writable", "--model_dir"),
    (f"run --experiment=digits --model_dir={LONG}", "not-writable", "--model_dir"),
    ("data get mnist --dir=", "bad-path", "--dir"),
    ("report run --html=run", "bad-path", "--html"),
    (f"report run --html={LONG}", "not-writable", ""),
    ("report run --html=plain.txt/a.html", "bad-path", "--html"),
    ("inspect digits --html=.", "bad-path", "--html"),
    ("inspect digits --html=", "bad-path", "--html"),
    ("batch digits --step=1 --images=", "bad-path", "--images"),
    ("export run --to=plain.txt/a", "bad-path", "--to"),
    # Object stores.
    ("--experiment=digits --model_dir=hdfs://b/x", "bad-path", "--model_dir"),
    ("--experiment=digits --config_file=hdfs://b/x.yaml", "bad-path", "--config_file"),
    ("--experiment=digits --task.init_checkpoint=hdfs://b/x", "bad-path", "task.init_checkpoint"),
    ("verify hdfs://b/x", "bad-path", "RUN"),
    ("export runs/a --to=hdfs://b/x", "bad-path", "--to"),
    ("branch runs/a --at=1 --model_dir=gs://b/x", "bad-path", "--model_dir"),
    (f"launch --workers=2 -- {WORKERS} --model_dir=gs://b/x", "bad-path", "--model_dir"),
]  # fmt: skip


@pytest.fixture
def folder(here, monkeypatch):
    for name, text in FILES.items():
        (here / name).parent.mkdir(exist_ok=True)
        (here / name).write_text(text)
    monkeypatch.syspath_prepend(str(here))
    return here


@pytest.mark.promise("configs", "errors of a config are reported before TensorFlow is imported")
@pytest.mark.usefixtures("no_tensorflow")
@pytest.mark.parametrize(("words", "code", "path"), CASES)
def test_wrong_words_are_one_error_and_nothing_is_written(folder, words, code, path):
    before = {file.name for file in folder.iterdir()} | {"__pycache__"}

    error = fails(shlex.split(words), code, path)

    assert len(str(error)) < 4000
    assert {file.name for file in folder.iterdir()} <= before


@pytest.mark.parametrize(
    ("flag", "hint"),
    [
        ("--profile_steps=5", "'--trainer.profile_steps'?"),
        ("--enable_xla=true", "'--runtime.enable_xla'?"),
    ],
)
def test_flag_that_is_a_setting_is_named_with_its_section(flag, hint):
    assert f"did you mean {hint}" in str(error_of(["--experiment=digits", flag]))
