"""The messages of a run, and the time of each of its phases."""

from orbit_runner.utils.log import PlainMessages, log_scope, note, phase, phase_times_scope


def test_times_are_added_up_by_the_first_word_of_the_phase(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    with log_scope(PlainMessages(lambda text: None)), phase_times_scope("importing") as times:
        for name, seconds in (
            ("building the model", 3.0),
            ("training", 1.0),
            ("saving at step 5", 10.0),
            ("training", 0.5),
            ("evaluating at step 6", 20.0),
        ):
            now[0] += seconds
            phase(name, minor=True)
            note("not a phase")
        now[0] += 4.0
        assert times.seconds() == {
            "importing": 3.0, "building": 1.0, "training": 30.0, "saving": 0.5, "evaluating": 4.0,
        }  # fmt: skip
    now[0] += 7.0
    phase("exporting")
    assert "exporting" not in times.seconds()
