# The pictures of pages in docs/. Run in an empty directory, after `source .venv/bin/activate`, as
# bash PATH/docs/images/pages.sh; at most a quarter of an hour on two cores.
images=$(dirname "$(realpath "$0")")
set -o errexit -o xtrace
runner --experiment=digits --model_dir=runs/a --quiet
runner --experiment=digits --model_dir=runs/c --task.model.dropout_rate=0.2 --quiet
runner compare runs/a runs/c --html=comparison.html
runner sweep configs/sweeps/digits_mlp.yaml --model_dir=runs/sweep --jobs=2
# Batches of two rows of pictures, so that the schedule is in the picture, too.
runner inspect digits --html=inspect.html \
    --task.train_data.global_batch_size=18 --task.validation_data.global_batch_size=18
python "$images/screenshot.py" runs/a/report.html "$images/report.png" 1150
python "$images/screenshot.py" comparison.html "$images/comparison.png"
python "$images/screenshot.py" runs/sweep/sweep.html "$images/sweep.png" 1800
python "$images/screenshot.py" inspect.html "$images/inspect.png" 2600
