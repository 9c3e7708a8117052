"""Runs on cells and their kept results."""

from dataclasses import dataclass, replace

import pytest

from fedrelay.runtime.side_by_side import RunWorkers


@pytest.fixture(scope="module")
def kept(load_benchmark):
    return load_benchmark("kept_results")


@pytest.fixture
def worker():
    with RunWorkers(1) as found:
        yield found


@pytest.fixture(scope="module")
def cells(load_benchmark):
    return load_benchmark("contest_cells")


@dataclass(frozen=True)
class Counted:
    """A run that must not be done twice."""

    key: str
    score: float | None = 0.5

    def measure(self):
        return {"score": self.score}


class Refused(Counted):
    def measure(self):
        raise AssertionError("its result is known")


def test_what_is_kept_is_not_done_again(kept, worker, tmp_path, capsys):
    path = tmp_path / "new" / "cell.jsonl"
    first = kept.KeptResults(path, worker).of([Counted("a"), Counted("b", None), Counted("a")])
    assert [each["score"] for each in first] == [0.5, None, 0.5]
    assert len(path.read_text().splitlines()) == 2
    assert kept.KeptResults(path, worker).of([Refused("b"), Refused("a")]) == [first[1], first[0]]
    assert sorted(capsys.readouterr().out.splitlines()) == ["  cell: a: 50.0", "  cell: b: None"]


def test_half_a_line_is_done_again(kept, worker, tmp_path):
    path = tmp_path / "cell.jsonl"
    kept.KeptResults(path, worker).of([Counted("a")])
    path.write_text(path.read_text() + '{"run": "b", "sco')
    results = kept.KeptResults(path, worker)
    assert [*results.known] == ["a"]
    results.of([Counted("b")])
    assert [*kept.KeptResults(path, worker).known] == ["a", "b"]


def test_a_run_has_another_key_if_anything_is_different(cells):
    run = cells.CellRun(cells.CELLS[0], "name", "fedseq", {}, {"train.lr": 0.1}, 1, 60)
    others = (
        replace(run, cell=cells.CELLS[1]),
        replace(run, method="fedavg"),
        replace(run, settings={"sampling": "passes"}),
        replace(run, chosen={"train.lr": 0.3}),
        replace(run, seed=2),
        replace(run, rounds=30),
        replace(run, keeps_curve=True),
    )
    assert len({run.key, *(each.key for each in others)}) == 1 + len(others)
    assert replace(run).key == run.key


def test_the_defaults_of_a_method_are_part_of_the_key(cells, monkeypatch):
    run = cells.CellRun(cells.CELLS[0], "name", "relay", {}, {"train.lr": 0.1}, 1, 60)
    before = run.key
    changed = replace(cells.parse_method("relay"), clip=2.0)
    monkeypatch.setattr(cells, "parse_method", lambda method: changed)
    assert run.key != before
