# The terminal in the README. Run in an empty directory, after `source .venv/bin/activate`.
runner --experiment=digits --model_dir=runs/a --quiet | grep weights
timeout --signal=KILL 7 runner --experiment=digits --model_dir=runs/b --quiet
runner --experiment=digits --model_dir=runs/b 2>&1 | grep --extended-regexp 'restored|weights'
runner --experiment=digits --model_dir=runs/c --task.model.dropout_rate=0.2 --quiet | grep weights
runner why runs/a runs/c
