# The pictures of pages in docs/. Run in an empty directory, after `source .venv/bin/activate`, as
# bash PATH/docs/images/pages.sh; a quarter of an hour on two cores.
images=$(dirname "$(realpath "$0")")
set -o errexit -o xtrace
runner --experiment=digits --model_dir=runs/a --quiet
runner --experiment=digits --model_dir=runs/c --task.model.dropout_rate=0.2 --quiet
runner compare runs/a runs/c --html=comparison.html
for seed in 17 18 19 20 21; do
  runner --experiment=digits --runtime.seed=$seed --model_dir=runs/base/seed-$seed --quiet
  runner --experiment=digits --runtime.seed=$seed --task.model.dropout_rate=0.2 --model_dir=runs/dropout/seed-$seed --quiet
done
runner compare --paired runs/base runs/dropout --metric=accuracy --html=paired.html
runner sweep configs/sweeps/digits_mlp.yaml --model_dir=runs/sweep --jobs=2
# Batches of two rows of pictures, so that the schedule is in the picture, too.
runner inspect digits --html=inspect.html \
    --task.train_data.global_batch_size=18 --task.validation_data.global_batch_size=18
python "$images/screenshot.py" runs/a/report.html "$images/report.png" 1150
python "$images/screenshot.py" comparison.html "$images/comparison.png"
python "$images/screenshot.py" paired.html "$images/paired.png"
python "$images/screenshot.py" runs/sweep/sweep.html "$images/sweep.png" 1800
python "$images/screenshot.py" inspect.html "$images/inspect.png" 2600
