from __future__ import annotations

import numpy as np
import pytest
from rich.console import Console

import fedrelay as fr
from fedrelay.errors import RunFolderError
from fedrelay.report.drawing import compose
from fedrelay.report.figure_files import save_figures
from fedrelay.report.figure_specs import forgetting
from fedrelay.report.forgetting import _checked, forgetting_table, last_forgetting
from fedrelay.runtime.run_folder_reader import RunFolderReader

LINE = {
    "round": 4,
    "clients": [7, 2, 5],
    "matrix": [[0.9], [0.7, 0.8], [0.6, 0.75, 1.0]],
    "backward_transfer": -0.175,
    "forgetting": [0.3, 0.05],
}


def shown(chain):
    console = Console(width=80)
    with console.capture() as captured:
        console.print(forgetting_table(chain))
    return [line.rstrip() for line in captured.get().splitlines()]


def test_the_matrix_and_what_it_says():
    lines = shown(LINE)
    assert lines[0].split() == ["chain", "round", "4,", "3", "hops"]
    assert "-17.5 %" in lines[1]
    numbers = [line.split() for line in lines[-6:]]
    assert numbers[0][-3:] == ["7", "2", "5"]
    assert numbers[-3] == ["after", "client", "2", "70.0", "80.0"]
    assert numbers[-2] == ["after", "client", "5", "60.0", "75.0", "100.0"]
    assert numbers[-1] == ["forgotten", "30.0", "5.0"]


def test_a_chain_of_one_hop_cannot_forget():
    alone = _checked({"round": 1, "clients": [3], "matrix": [[0.5]], "backward_transfer": None, "forgetting": None})
    assert alone["backward_transfer"] is None
    assert "–" in shown(alone)[1]


def test_long_chains_are_left_to_the_picture():
    rows = [[1.0] * hop for hop in range(1, 31)]
    long = {**LINE, "clients": list(range(30)), "matrix": rows}
    assert "--plot" in shown(long)[-1]


def test_the_figure_has_the_matrix(tmp_path):
    figure = forgetting(LINE)
    axes = compose([figure]).axes[0]
    picture = axes.images[0].get_array()
    np.testing.assert_array_equal(picture.mask, np.triu(np.ones((3, 3), bool), 1))
    np.testing.assert_array_equal(picture.compressed(), [0.9, 0.7, 0.8, 0.6, 0.75, 1.0])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["7", "2", "5"]
    assert axes.get_title(loc="left") == figure["title"] == "Forgetting along a chain, round 4"
    assert figure["note"] == "Backward transfer -17.5 points: on average, the model forgets earlier clients."
    many = {**LINE, "clients": list(range(40)), "matrix": [[0.5] * hop for hop in range(1, 41)]}
    save_figures(tmp_path / "many.png", [forgetting(many)])
    assert (tmp_path / "many.png").stat().st_size > 0


@pytest.mark.parametrize("damage", ['{"round": 1}', '{"round": 1, "clients": [1, 2], "matrix": [[0.1]]}'])
def test_a_damaged_line_is_one_message(tmp_path, damage):
    run = tmp_path / "run"
    fr.run("fedcyclic", data="digits", clients=4, rounds=1, workers=1, out=run, **{"eval.forgetting": 1})
    assert last_forgetting(RunFolderReader.open(run)) is not None
    (run / "forgetting.jsonl").write_text(damage + "\n")
    (run / "checksums.jsonl").unlink()
    with pytest.raises(RunFolderError, match=r"forgetting\.jsonl: is damaged"):
        last_forgetting(RunFolderReader.open(run))
