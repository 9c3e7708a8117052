"""The words of the page: headlines, captions and tables."""

from __future__ import annotations

import pytest
from tests.report.folders import ran

from fedrelay.report.drawing import compose
from fedrelay.report.load_runs import load_runs
from fedrelay.report.page_sections import _file_names, figure_files, with_sections, write_figures
from fedrelay.report.report_content import report_data


@pytest.fixture(scope="module")
def data(comparison_folder):
    return report_data(load_runs([comparison_folder]))


def with_costs(data, *costs):
    """The data with (rounds, seconds) to each target, method by method."""
    names = ("round", "client_updates", "bytes", "virtual_seconds")
    methods = [
        {
            **method,
            "summary": {
                **method["summary"],
                "costs_to": [
                    dict(zip(names, (rounds, rounds, rounds, seconds), strict=True)) for rounds, seconds in own
                ],
            },
        }
        for method, own in zip(data["methods"], costs, strict=True)
    ]
    return {**data, "methods": methods, "targets": [{"share": each, "accuracy": each} for each in (0.1234, 2 / 3, 0.9)]}


def lead(data, section):
    return next(each["lead"] for each in with_sections(data)["sections"] if each["id"] == section)


def test_leads_speak_only_of_what_is_there(data):
    assert "Factors" in lead(data, "targets")
    assert "every seed" in lead(data, "targets")
    method = {**data["methods"][0], "runs": data["methods"][0]["runs"][:1]}
    single = {**data, "methods": [method], "differences": None, "runs": data["runs"][:1], "faults": []}
    assert lead(single, "targets") == "The cost until each target accuracy was first reached."
    assert lead(single, "results").startswith("Test accuracy in percent, and total costs. Nothing was tuned")
    assert "mean" not in lead(single, "communication")


def test_stopped_runs_can_be_continued(data):
    *_, (number, text) = headlines({**data, "states": {"complete": 4, "stopped": 2}})
    assert (number, text) == ("4 of 6", "runs complete, 2 stopped; fedrelay resume continues them")


def headlines(data):
    return [(each["number"], each["text"]) for each in with_sections(data)["headlines"]]


def card(document, name):
    return next(card for section in document["sections"] for card in section["cards"] if card["name"] == name)


def test_sections_have_plain_titles(data):
    assert [section["title"] for section in with_sections(data)["sections"]] == [
        "Learning curves", "Route map", "Cost to target", "Final results", "What every client gains", "Clients",
        "Forgetting", "Communication", "Fault events", "Reproduce",
    ]  # fmt: skip


def test_the_headline_names_the_hardest_target_and_the_time(data):
    found = with_costs(
        data,
        [(40, 4.0), (60, 5.0), (None, None)],
        [(2, 1.0), (20, 10.0), (30, 15.0)],
        [(1, None), (2, None), (3, None)],
    )
    assert headlines(found)[1] == (
        "3.0×",
        "fewer rounds with fedseq than with fedavg to 66.7 %, the hardest target that fedavg reached; "
        "but 2.0× more virtual time",
    )


def test_the_headline_compares_with_the_baseline(data):
    found = with_costs(data, [(10, 1.0)] * 3, [(20, 4.0)] * 3, [(1, None)] * 3)
    assert [text for number, text in headlines(found) if "fewer" in text] == []
    [(factor, text)] = [each for each in headlines({**found, "baseline": 1}) if "fewer" in each[1]]
    assert (factor, text.split(" to ")[0]) == ("2.0×", "fewer rounds with fedavg than with fedseq")


def test_the_headline_if_the_baseline_reached_no_target(data):
    found = with_costs(data, [(None, None)] * 3, [(2, 1.0)] * 3, [(4, 1.0)] * 3)
    averaged, chained, last = found["methods"]
    other = {**last, "name": "other", "training": "federated"}  # centralised training is no entry
    assert headlines({**found, "methods": [averaged, chained, other]})[1] == (
        "2.0×",
        "fewer rounds with fedseq than with other to 90.0 %, the hardest target that several methods reached; "
        "the same virtual time",
    )


def test_methods_with_failed_seeds_win_nothing(data):
    averaged, chained, central = data["methods"]
    higher = {**chained["summary"]["accuracy_last"], "mean": averaged["summary"]["accuracy_last"]["mean"] + 0.1}
    chained = {**chained, "summary": {**chained["summary"], "accuracy_last": higher}}
    ahead = with_sections({**data, "methods": [averaged, chained, central]})
    assert "of fedseq" in ahead["headlines"][0]["text"]
    runs = [chained["runs"][0], {**chained["runs"][1], "state": "diverged", "reason": "round 2"}]
    found = with_sections({**data, "methods": [averaged, {**chained, "runs": runs}, central]})
    final, mean = (averaged["summary"][name]["mean"] for name in ("accuracy", "accuracy_last"))
    assert found["headlines"][0] == {
        "number": f"{100 * final:.1f} %",
        "text": f"accuracy of fedavg in the last evaluation; {100 * mean:.1f} % in the mean of all 4 evaluations",
    }
    assert found["failures"] == ["fedseq, seed 2: diverged, round 2."]
    assert card(found, "results")["table"]["columns"][1] == "accuracy, last 4"  # of eval.last = 10
    rows = card(found, "results")["table"]["rows"]
    assert [row[0]["text"] for row in rows if row[1]["bold"]] == ["fedavg"]
    assert [chip["text"] for chip in rows[1][0]["chips"]] == ["seed 2 diverged, round 4 of 4"]
    assert not any("the least" in each["text"] for each in found["headlines"])


def test_every_way_of_travelling_has_its_caption(data):
    def caption(**changes):
        found = {"round": 1, "handover": "direct", "merges": True, "routes": [[1, 2], [3, 4]], **changes}
        run = {**data["runs"][0], "rounds": [found]}
        return with_sections({**data, "runs": [run]})["runs"][0]["rounds"][0]["caption"]

    assert caption() == "fedavg: 2 models visit 2 clients each one after another, then the server merges them."
    assert caption(routes=[[1], [2]]) == "fedavg: 2 models visit one client each, then the server merges them."
    assert (
        caption(routes=[[1, 2, 3]])
        == "fedavg: 1 model visits 3 clients one after another, then the server receives it."
    )
    assert "2 to 3 clients" in caption(routes=[[1, 2], [3, 4, 5]])
    assert "through the server" in caption(handover="server")
    assert caption(merges=False, slots=[0, 1]).endswith("then wait in their slots.")
    assert caption(handover="peers").endswith("2 clients train their own models and send them to all others.")
    assert caption(handover="none") == "fedavg: all data are in one place, no model travels."
    assert caption(routes=[[], []]) == "fedavg: no model came back from a client."
    assert caption(fault_counts={"nan": 2}, faults=[]).endswith(" Fault events, marked with !: 2 nan.")


@pytest.mark.parametrize("kind", ["png", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("svg", "pdf"))])
def test_every_figure_is_a_file(data, tmp_path, kind):
    faults = [{"method": 1, "what": "nan", "done": "refused", "times": 3}]
    written = write_figures(with_sections({**data, "faults": faults}), tmp_path, kind)
    assert {path.name for path in written} == {
        f"{name}.{kind}"
        for name in (
            "curves-accuracy", "curves-loss", "targets", "results", "differences", "communication", "payloads",
            "faults", "clients", "clients-2", "groups-fedseq", "routes-fedavg", "routes-fedseq", "routes-centralized",
            "forgetting-fedseq",
        )
    }  # fmt: skip
    start = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[kind]
    assert all(path.read_bytes().startswith(start) for path in written)


def test_a_document_without_results_has_no_figures(data, tmp_path):
    empty = with_sections({**data, "methods": [], "federations": [], "runs": [], "specs": []})
    assert write_figures(empty, tmp_path, "png") == []


def test_no_two_methods_share_a_file():
    assert _file_names(["a b", "a_b", "A_B", "a_b-2", ".."]) == ["a_b", "a_b-2", "A_B-3", "a_b-2-2", "_"]


def test_names_that_look_like_references_are_only_names(data):
    names = [f"@methods/{place}" for place in range(len(data["methods"]))]
    methods = [{**method, "name": name} for method, name in zip(data["methods"], names, strict=True)]
    document = with_sections({**data, "methods": methods})
    shown = {name: [panel for panel in panels if panel["marks"]] for name, panels, _ in figure_files(document)}
    drawn = {name: compose(panels, document) for name, panels in shown.items() if panels}
    assert len(drawn) > 10
    assert names == [text.get_text() for text in drawn["curves-accuracy"].legends[0].get_texts()][: len(names)]


def test_unknown_classes_are_explained(data):
    runs = [{**run, "federation": None, "unknown": "why", "group_counts": []} for run in data["runs"]]
    found = with_sections({**data, "federations": [], "runs": runs})
    assert card(found, "clients")["empty"] == "The classes of clients are not known: why."
    assert card(found, "routes")["notes"]["0"] == "The classes of clients are not known: why."


def test_early_stops_and_best_models_are_marked(tmp_path):
    settings = {"rounds": 9, "validation": 0.2, "stop": {"max_updates": 15}}
    data = with_sections(report_data(load_runs([ran(tmp_path / "run", "fedavg", **settings)])))
    first, second = card(data, "results")["table"]["rows"][0][0]["chips"]
    assert first["text"] == "seed 1 stopped early, round 2 of 9"
    assert first["title"].startswith("stop.max_updates: 20 client updates")
    assert second["text"] in ("seed 1 best in round 1", "seed 1 best in round 2")
    assert second["title"].startswith("validation_accuracy 0.")
    assert data["states"] == {"complete": 1}
