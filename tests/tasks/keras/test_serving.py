"""Export and predictions of the task `keras`, in memory and from a SavedModel."""

import csv
import json

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.cli.commands.predict import print_predictions
from orbit_runner.tasks.keras.label_checks import LossKind
from orbit_runner.tasks.keras.serving import ArrayPredictor, ArrayRow, make_serving
from orbit_runner.tasks.keras.task import KerasTask
from tests.support import keras_models
from tests.support.configs import in_both_sections
from tests.support.images import write_folder
from tests.support.keras_models import ADDER, NO_ARRAYS, keras_config
from tests.support.problems import raises


def _exported(model, serving, folder):
    """Returns the signatures of a SavedModel."""
    module = tf.Module()
    module.model = model
    tf.saved_model.save(module, str(folder), signatures=dict(serving.signatures))
    return tf.saved_model.load(str(folder)).signatures


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A model, and the signatures of its export; those in memory are the same."""
    task = KerasTask(keras_config().task)
    model = task.build_model()
    return model, _exported(model, task.serving(model), tmp_path_factory.mktemp("export"))


@pytest.fixture
def classifier(served):
    model, signatures = served
    return model, ArrayPredictor(signatures)


def _predicted(predictor, *arguments, lines=()):
    return [
        prediction.data for prediction in predictor.predict(list(predictor.items(arguments, lines)))
    ]


def test_classes_and_probabilities_are_predicted(classifier, tmp_path):
    model, predictor = classifier
    x, _ = keras_models.classes(3)
    np.savez(tmp_path / "rows.npz", x=x)
    predictions = _predicted(predictor, str(tmp_path / "rows.npz"))

    logits = model(x.astype(np.float32), training=False).numpy()
    assert [row["row"] for row in predictions] == [0, 1, 2]
    assert [row["class"] for row in predictions] == logits.argmax(axis=1).tolist()
    np.testing.assert_allclose([row["outputs"] for row in predictions], logits, rtol=1e-4)
    np.testing.assert_allclose(
        [row["probabilities"] for row in predictions], tf.nn.softmax(logits), rtol=1e-4
    )


def test_rows_are_json_arguments_files_and_lines(classifier, tmp_path):
    _, predictor = classifier
    (tmp_path / "rows.jsonl").write_text('[1, 2, 3, 4]\n\n{"x": [1, 2, 3, 4]}\n')
    predictions = _predicted(
        predictor, "[1, 2, 3, 4]", str(tmp_path / "rows.jsonl"), "-", lines=["[1,2,3,4]\n"]
    )

    assert len(predictions) == 4
    assert len({json.dumps(row["outputs"]) for row in predictions}) == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[1, 2]", "x: got shape [2], expected [4]"),
        ('{"y": [1, 2, 3, 4]}', "has no input 'x'; expected x"),
        ('["a", "b", "c", "d"]', 'x: got "a", expected float32'),
        ("[1, null, 3, 4]", "x: got null, expected float32"),
        ("[1, true, 3, 4]", "x: got true, expected float32"),
        ("[1, NaN, 3, 4]", "x: expected finite numbers in the range of float32"),
        (f"[1, 2, 1{'0' * 400}, 4]", "x: expected finite numbers in the range of float32"),
        ("[[1], [2, 3], 4, 5]", "x: got [1], expected float32"),
        ("[1, 2,", "not JSON: "),
        ("1" * 5000, "not JSON: "),
        ("[" * 5000, "not JSON: "),
        ("\udcff", "is not valid UTF-8"),
    ],
)
def test_unusable_row_is_reported_in_its_place(classifier, line, message):
    predictions = _predicted(classifier[1], "-", lines=["[0, 0, 0, 0]", line, "[0, 0, 0, 0]"])

    assert [row["row"] for row in predictions] == [0, 1, 2]
    assert {**predictions[0], "row": 2} == predictions[2]
    assert predictions[1]["error"].startswith("standard input:2: ")
    assert message in predictions[1]["error"]


@pytest.mark.parametrize(
    ("argument", "code"),
    [
        ("no_such_file", "bad-item"),
        ("no.npz", "damaged-file"),
        ("other.npz", "bad-item"),
        ("a.PNG", "bad-item"),
    ],
)
def test_unusable_file_is_an_error(classifier, argument, code, tmp_path):
    np.savez(tmp_path / "other.npz", z=np.zeros([2, 4]))
    (tmp_path / "a.PNG").write_bytes(b"\x89PNG")
    with raises(code):
        _predicted(classifier[1], str(tmp_path / argument))


def test_several_inputs_keep_their_names(tmp_path):
    task = KerasTask(keras_config(**ADDER).task)
    model = task.build_model()
    predictor = task.predictor(_exported(model, task.serving(model), tmp_path))
    (prediction,) = _predicted(predictor, '{"right": [1, 2], "left": [3, 4]}')

    features = {"left": tf.constant([[3.0, 4.0]]), "right": tf.constant([[1.0, 2.0]])}
    np.testing.assert_allclose(prediction["outputs"], model(features)[0], rtol=1e-4)
    assert "class" not in prediction
    (row,) = _predicted(predictor, "[1, 2]")
    assert row["error"] == "got [1, 2], expected an object with the inputs left, right"
    np.savez(tmp_path / "rows.npz", left=np.zeros([3, 2]), right=np.zeros([2, 2]))
    with raises("bad-item"):
        _predicted(predictor, str(tmp_path / "rows.npz"))


class _Echo(tf.Module):
    """A model that returns a sum, so that only its input decides what can be predicted."""

    def __init__(self, shape, dtype):
        super().__init__()
        spec = tf.TensorSpec([None, *shape], dtype, name="x")
        self.predict = tf.function(self._predict, input_signature=[spec])

    def _predict(self, x):
        values = tf.strings.length(x) if x.dtype == tf.string else x
        return {"outputs": tf.reshape(tf.cast(values, tf.float64), [tf.shape(x)[0], -1])}


def _echo(shape, dtype):
    model = _Echo(shape, dtype)
    model.predict.get_concrete_function()
    return ArrayPredictor({"predict": model.predict})


@pytest.mark.parametrize(
    ("dtype", "line", "outcome"),
    [
        ("int32", "[3.0, 4e1]", [3, 40]),
        ("int32", "[1.7, 2]", "expected integers in the range of int32"),
        ("int32", f"[1{'0' * 40}, 2]", "expected integers in the range of int32"),
        ("int32", "[true, 2]", "got true, expected int32"),
        ("int64", "[9007199254740993, 1.0]", [9007199254740993, 1]),
        ("uint8", "[256, 0]", "expected integers in the range of uint8"),
        ("bool", "[true, false]", [1, 0]),
        ("bool", "[1, 0]", "got 1, expected bool"),
        ("float16", "[1.5, 70000]", "expected finite numbers in the range of float16"),
        ("string", '["abc", "\u00e4\u2028"]', [3, 5]),
        ("string", '["abc", null]', "got null, expected string"),
        ("string", '["abc", "\\ud800"]', "expected string"),
        ("string", '["abc"]', "got shape [1], expected [2]"),
    ],
)
def test_only_values_of_the_type_of_an_input_are_predicted(dtype, line, outcome):
    (row,) = _predicted(_echo([2], dtype), "-", lines=[f"{line}\n"])
    if isinstance(outcome, str):
        assert outcome in row["error"]
    else:
        assert row["outputs"] == [float(f"{value:.6g}") for value in outcome]


@pytest.mark.parametrize(
    ("dtype", "array", "outcomes"),
    [
        ("int32", np.array([[1, 2], [2**31, 4]], np.int64), [[1, 2], "expected integers in"]),
        ("uint8", np.array([[1, 255], [0.5, 1]]), [[1, 255], "expected integers in"]),
        ("float32", np.array([[1, 2], [np.nan, 4]]), [[1, 2], "expected finite numbers"]),
        ("float32", np.array([[True, False]]), ["got true, expected float32"]),
        ("int32", np.array([[True, False]]), ["got true, expected int32"]),
        ("string", np.array([[b"ab", b"\xff"]]), [[2, 1]]),
    ],
)
def test_rows_of_an_array_of_another_type(dtype, array, outcomes, tmp_path):
    np.savez(tmp_path / "rows.npz", x=array)
    rows = _predicted(_echo([2], dtype), str(tmp_path / "rows.npz"))
    for row, outcome in zip(rows, outcomes, strict=True):
        if isinstance(outcome, str):
            assert outcome in row["error"]
        else:
            assert row["outputs"] == outcome


@pytest.mark.parametrize("where", ["memory", "export"])
def test_id_that_the_embedding_does_not_have_is_reported_in_its_place(where, tmp_path):
    inputs = tf_keras.Input([2], dtype="int32", name="x")
    model = tf_keras.Model(inputs, tf_keras.layers.Embedding(5, 3)(inputs))
    serving = make_serving(model, {"x": ((2,), "int32")}, {"": LossKind("", "other")})
    is_export = where == "export"
    signatures = _exported(model, serving, tmp_path) if is_export else serving.signatures
    rows = _predicted(ArrayPredictor(signatures), "[1, 2]", "[1, 99]", "[-1, 0]", "[4, 0]")

    assert ["error" in row for row in rows] == [False, True, True, False]
    assert rows[1]["error"] == "indices[0,1] = 99 is not in [0, 5)"
    np.testing.assert_allclose(rows[3]["outputs"][0], model(tf.constant([[4, 0]]))[0, 0], rtol=1e-4)


def test_output_that_is_nan_is_reported_in_its_place():
    model = tf_keras.Sequential([tf_keras.Input([1]), tf_keras.layers.Lambda(tf.math.log)])
    serving = make_serving(model, {"x": ((1,), "float32")}, {"": LossKind("", "binary", True)})
    rows = _predicted(ArrayPredictor(serving.signatures), "[1]", "[-1]")
    assert rows == [
        {"row": 0, "outputs": [0.0], "probabilities": [0.5]},
        {"row": 1, "error": "an output of the model is NaN"},
    ]


def test_inputs_keep_names_that_are_no_identifiers(tmp_path):
    left, right = tf_keras.Input([1], name="left-eye"), tf_keras.Input([1], name="class")
    model = tf_keras.Model({"left-eye": left, "class": right}, left - right)
    specs = {"x.left-eye": ((1,), "float32"), "x.class": ((1,), "float32")}
    signatures = _exported(model, make_serving(model, specs, {"": LossKind()}), tmp_path / "export")
    np.savez(tmp_path / "rows.npz", **{"left-eye": [[5.0]], "input_class": [[2.0]]})
    rows = _predicted(
        ArrayPredictor(signatures), '{"left-eye": [5], "class": [2]}', str(tmp_path / "rows.npz")
    )
    assert [row["outputs"] for row in rows] == [[3.0], [3.0]]


@pytest.mark.parametrize(("kind", "width"), [("sparse", 3), ("binary", 1)])
def test_predictions_have_the_names_of_classes(kind, width):
    model = tf_keras.Sequential([tf_keras.layers.Input([2]), tf_keras.layers.Dense(width)])
    names = ("cat", "dog", "owl")
    specs = {"x": ((2,), "float32")}
    serving = make_serving(model, specs, {"": LossKind("", kind, True)}, {"": names})
    points = tf.constant(np.random.default_rng(0).normal(size=(9, 2)), tf.float32)
    answers = serving.signatures["predict"](x=points)

    logits = model(points).numpy()
    expected = logits.argmax(axis=1) if width == 3 else (logits[:, 0] > 0).astype(int)
    assert [label.decode() for label in answers["label"].numpy()] == [names[k] for k in expected]
    assert serving.labels == {"class": list(names)}
    predicted = ArrayPredictor(serving.signatures).predict(
        [ArrayRow({"x": point}) for point in points.numpy()]
    )
    assert [item.data["label"] for item in predicted] == [names[k] for k in expected]


@pytest.mark.parametrize(
    ("layer", "needs_cpu"),
    [
        (lambda: tf_keras.layers.Embedding(5, 3), True),
        (lambda: tf_keras.layers.Lambda(lambda x: tf.gather([1.0], tf.cast(x, tf.int32))), True),
        # Its graph selects the sizes of tensors by index.
        (lambda: tf_keras.layers.Dense(2), False),
    ],
)
def test_model_that_selects_by_index_needs_the_cpu(layer, needs_cpu):
    inputs = tf_keras.Input([2, 2], name="x")
    model = tf_keras.Model(inputs, layer()(inputs))
    serving = make_serving(model, {"x": ((2, 2), "float32")}, {"": LossKind()})
    assert ArrayPredictor(serving.signatures).needs_cpu == needs_cpu


def picture_net():
    """Returns a classifier of small color images."""
    pixels = tf_keras.Input([10, 12, 3])
    flat = tf_keras.layers.Flatten()(tf_keras.layers.Rescaling(1 / 255)(pixels))
    return tf_keras.Model(pixels, tf_keras.layers.Dense(2)(flat))


def test_image_files_are_predicted_as_evaluation_sees_them(tmp_path):
    write_folder(tmp_path / "train", {"cat": 5, "dog": 4})
    files = sorted(write_folder(tmp_path / "validation", {"cat": 3, "dog": 2}, first=20))
    config = keras_config(
        **NO_ARRAYS | in_both_sections(source="image_folder", data_dir=str(tmp_path)),
        task__model="tests.tasks.keras.test_serving:picture_net",
        task__image_size="[10, 12]",
        task__validation_data__center_crop_fraction="0.5",
    ).task
    task = KerasTask(config)
    model = task.build_model()
    predictor = task.predictor(task.serving(model).signatures)
    odd = tmp_path / "odd.png"
    odd.write_bytes(files[0].read_bytes()[:50])
    lines = ["\n", f"{files[1]}\n", json.dumps(np.zeros([10, 12, 3]).tolist())]
    predictions = _predicted(predictor, str(tmp_path / "validation"), str(odd), "-", lines=lines)

    (batch,) = task.build_inputs(config.validation_data)
    logits = model(batch[0][: len(files)], training=False).numpy()
    assert [row["image"] for row in predictions[:5]] == [*map(str, files)]
    np.testing.assert_allclose([row["outputs"] for row in predictions[:5]], logits, rtol=1e-5)
    assert {row["label"] for row in predictions[:5]} <= {"cat", "dog"}
    assert predictions[5]["error"].startswith("cannot be decoded: ")
    assert predictions[6] == predictions[1]
    assert predictions[7]["row"] == 7
    exported = ArrayPredictor(_exported(model, task.serving(model), tmp_path / "export"))
    assert _predicted(exported, str(files[1]))[0]["label"] == predictions[1]["label"]
    (prediction,) = predictor.predict([*predictor.items([str(files[0])], ())])
    assert prediction.text.startswith(f"{files[0]}: class ")


def table_net():
    """Returns a classifier of two numbers and a text."""
    numbers = tf_keras.Input([2], name="numbers")
    city = tf_keras.Input([], dtype="string", name="home town")
    codes = tf_keras.layers.StringLookup(vocabulary=["Rome", "true"], output_mode="one_hot")
    joined = tf_keras.layers.Concatenate()([numbers, codes(city)])
    return tf_keras.Model([numbers, city], tf_keras.layers.Dense(2)(joined))


@pytest.fixture(scope="module")
def table_predictor(tmp_path_factory):
    """A predictor of random weights for the rows of a table."""
    path = tmp_path_factory.mktemp("table") / "people.csv"
    path.write_text("age,home town,income,kind\n30,Rome,2.5,guest\n41,true,1.5,buyer\n")
    config = keras_config(
        **NO_ARRAYS,
        task__model="tests.tasks.keras.test_serving:table_net",
        task__train_data__source="csv",
        task__train_data__input_path=str(path),
        task__inputs="{numbers: [age, income], home town: home town}",
        task__outputs="kind",
    )
    task = KerasTask(config.task)
    return task.predictor(task.serving(task.build_model()).signatures), path


def test_rows_of_a_table_are_read_by_the_names_of_its_columns(table_predictor, tmp_path):
    predictor, path = table_predictor
    expected = _predicted(predictor, str(path))
    assert [row["row"] for row in expected] == [f"{path}, row 1", f"{path}, row 2"]
    assert {row["label"] for row in expected} <= {"buyer", "guest"}

    columns = {"age": 30, "income": 2.5, "home town": "Rome"}
    (tmp_path / "rows.jsonl").write_text(f"{json.dumps(columns)}\n")
    np.savez(tmp_path / "rows.npz", **{name: np.array([value]) for name, value in columns.items()})
    predictions = _predicted(
        predictor,
        json.dumps(columns),
        str(tmp_path / "rows.jsonl"),
        str(tmp_path / "rows.npz"),
        "-",
        lines=["income,age,home town\n", "2.5,30, Rome \n"],
    )
    assert len(predictions) == 4
    assert [row["outputs"] for row in predictions] == [expected[0]["outputs"]] * 4
    (true,) = _predicted(predictor, '{"age": 41, "income": 1.5, "home town": true}')
    assert true["outputs"] == expected[1]["outputs"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"age": 3, "home town": "Rome"}', "column 'income' has no value, expected a number"),
        ('{"age": null, "income": 1, "home town": ""}', "column 'age' has no value, expected a"),
        ('{"age": "old", "income": 1, "home town": ""}', "column 'age': got 'old', expected a"),
        ('{"age": 3, "income": 1e60, "home town": ""}', "column 'income': got 1e+60, expected a"),
        ('{"age": 3, "income": 1, "home town": ["a"]}', "got ['a'], expected a text"),
        ('{"age": [3], "income": 1, "home town": ""}', "'age': got [3], expected a number"),
    ],
)
def test_unusable_row_of_a_table_is_reported_in_its_place(table_predictor, line, message):
    good = '{"age": 3, "income": 1, "home town": ""}'
    predictions = _predicted(
        table_predictor[0], "-", lines=[f"{text}\n" for text in (good, line, good)]
    )
    assert [row["row"] for row in predictions] == [f"standard input, row {n}" for n in (1, 2, 3)]
    assert {**predictions[0], "row": ""} == {**predictions[2], "row": ""}
    assert message in predictions[1]["error"]


def test_arguments_that_are_no_rows_of_a_table(table_predictor):
    (row,) = _predicted(table_predictor[0], '{"age": 3')
    assert row == {"error": """got '{"age": 3', expected a JSON object"""}
    for argument in ("absent.csv", "[1, 2]"):
        with raises("bad-item"):
            _predicted(table_predictor[0], argument)


def text_net():
    """Returns a classifier of a text."""
    city = tf_keras.Input([], dtype="string")
    codes = tf_keras.layers.StringLookup(vocabulary=["Rome", "true"], output_mode="one_hot")
    return tf_keras.Model(city, tf_keras.layers.Dense(2)(codes(city)))


def test_model_of_one_text_reads_sentences_and_lines(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("home town,kind\nRome,guest\nOslo,buyer\n")
    (tmp_path / "towns.txt").write_text("Rome\nOslo\n")
    config = keras_config(
        **NO_ARRAYS,
        task__model="tests.tasks.keras.test_serving:text_net",
        task__train_data__source="csv",
        task__train_data__input_path=str(path),
        task__outputs="kind",
    )
    task = KerasTask(config.task)
    predictor = task.predictor(task.serving(task.build_model()).signatures)
    rows = [
        _predicted(predictor, str(path)),
        _predicted(predictor, str(tmp_path / "towns.txt")),
        _predicted(predictor, "Rome", '{"home town": "Oslo"}'),
        _predicted(predictor, "-", lines=["Rome\n", "Oslo\n"]),
    ]
    outputs = [[row["outputs"] for row in part] for part in rows]
    assert outputs == outputs[:1] * 4
    assert outputs[0][0] != outputs[0][1]
    sentences = ['"Rome" is a town.', "[Rome]", "nan", "Rome"]
    assert [item.values["home town"] for item in predictor.items(sentences, ())] == sentences
    (broken,) = _predicted(predictor, '{"home town": "Rome"')
    assert "expected a JSON object" in broken["error"]


def test_scored_table_has_the_outputs_as_columns(table_predictor, tmp_path):
    predictor, path = table_predictor
    scored = tmp_path / "scored.csv"
    assert not print_predictions(predictor, [str(path)], as_json=False, batch_size=1, to=scored)

    rows = [*csv.DictReader(scored.read_text().splitlines())]
    answers = _predicted(predictor, str(path))
    assert [row["kind"] for row in rows] == ["guest", "buyer"]
    for row, answer in zip(rows, answers, strict=True):
        assert row["predicted_label"] == answer["label"]
        assert float(row["predicted_probabilities_1"]) == answer["probabilities"][1]
