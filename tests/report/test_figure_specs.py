"""Figures as values, and what matplotlib makes of them."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.image import imread

from fedrelay.data.client_class_counts import ClientClassCounts, merge_classes
from fedrelay.errors import SpecError
from fedrelay.report import figure_specs
from fedrelay.report.drawing import compose
from fedrelay.report.figure_files import save_figures
from fedrelay.report.figure_specs import (
    client_classes,
    comparison_curves,
    cost_to_target,
    fault_events,
    final_results,
    learning_curves,
    legend,
    partition_figures,
    privacy_curves,
    resolve,
    routes,
    traffic,
)
from fedrelay.report.palette import LIGHT, SHADES
from fedrelay.report.report_content import document


@pytest.fixture(scope="module")
def doc(comparison_folder):
    return document([comparison_folder])


def partition_of(clients, classes, seed=0):
    counts = np.random.default_rng(seed).integers(0, 5, (clients, classes))
    return ClientClassCounts("toy", classes, counts.sum(axis=1), np.arange(clients), counts, 20)


def test_curves_refer_to_the_document(doc):
    figure = learning_curves(doc, "accuracy", "bytes")
    assert figure["title"] == "Accuracy over traffic"
    line = next(mark for mark in figure["marks"] if mark["name"] == "fedseq" and "layer" not in mark)
    assert resolve(line["y"], doc) == doc["methods"][1]["curves"]["accuracy"]["mean"]
    assert resolve(line["error"], doc) == doc["methods"][1]["curves"]["accuracy"]["std"]
    assert resolve(line["x"], doc) == doc["methods"][1]["curves"]["bytes"]
    assert [mark["name"] for mark in figure["marks"] if mark.get("layer") == "seeds"] == [
        "fedavg", "fedavg", "fedseq", "fedseq", "centralized", "centralized",
    ]  # fmt: skip
    assert [mark["y"] for mark in figure["marks"] if mark["kind"] == "rule"] == [doc["reference"]["accuracy"]]


def test_axes_fit_the_data(doc):
    axes = compose([learning_curves(doc, "accuracy", "round")], doc).axes[0]
    means = [line.get_ydata() for line in axes.lines[:3]]
    low, high = axes.get_ylim()
    assert 0 < min(map(np.min, means)) - low < 0.2
    assert high < 1.05


def test_comparison_curves_have_two_panels_and_a_reference(outcome, tmp_path):
    done = outcome(
        {
            "fedavg": [[0.2, 0.4, 0.5], [0.3, 0.4, 0.7]],
            "fedseq": [[0.6, 0.7, 0.8], [0.6, 0.7, 0.9]],
            "centralized": [[0.9, 0.9, 0.9], [0.9, 0.9, 0.9]],
        }
    )
    panels = comparison_curves(done)
    save_figures(tmp_path / "curves.png", panels, columns=2)
    assert imread(tmp_path / "curves.png").shape[1] == 1440
    canvas = compose(panels, columns=2)
    left, right = canvas.axes
    assert (left.get_xlabel(), left.get_ylabel(), right.get_xlabel()) == ("Rounds", "Accuracy", "Traffic")
    names = ["fedavg", "fedseq", "centralised training"]
    assert [line.get_label() for line in left.lines] == names
    np.testing.assert_allclose(left.lines[0].get_xydata(), [[1, 0.25], [2, 0.4], [3, 0.6]])
    assert right.lines[0].get_xdata().tolist() == [1000, 2000, 3000]
    assert left.lines[2].get_linestyle() == "--"
    assert left.lines[2].get_ydata() == [0.9, 0.9]
    assert len(left.collections) == 2
    assert [text.get_text() for text in canvas.legends[0].get_texts()] == names


def test_curves_without_traffic_go_over_client_updates(outcome):
    panels = comparison_curves(outcome({"centralized": [[0.5, 0.6]]}))
    assert panels[1]["x"]["label"] == "Client updates"
    assert panels[1]["marks"][0]["x"] == [2, 4]
    assert "error" not in panels[1]["marks"][0]


def test_accuracy_over_privacy_spent(outcome):
    done = outcome({"fedavg+dp": [[0.2, 0.4], [0.4, 0.6]], "fedavg": [[0.7, 0.9], [0.7, 0.9]]})
    for result in done["fedavg+dp"].results:
        for row in result.history:
            row["epsilon"] = 2.0 * row["round"]
    figure = privacy_curves(done)
    axes = compose([figure]).axes[0]
    np.testing.assert_allclose(axes.lines[0].get_xydata(), [[2, 0.3], [4, 0.5]])
    assert axes.lines[1].get_ydata() == pytest.approx([0.8, 0.8])
    assert axes.lines[1].get_label() == "fedavg, not private"
    assert axes.get_xscale() == "log"
    ticks = [label.get_text() for label in axes.get_xticklabels()]
    assert any(ticks)
    assert not any("$" in tick for tick in ticks)
    assert privacy_curves(outcome({"fedprox": [[0.7]]})) is None


def test_no_curves_if_every_run_diverged(outcome):
    assert comparison_curves(outcome({"fedavg": []})) == []


def test_results_have_the_colours_of_the_curves_also_if_a_method_failed(doc):
    failed = {**doc["methods"][0], "curves": {**doc["methods"][0]["curves"], "round": []}}
    figure = final_results({**doc, "methods": [failed, *doc["methods"][1:]]})
    assert [row["colour"] for row in figure["marks"][0]["rows"]] == ["method-1", "method-2"]
    axes = compose([figure]).axes[0]
    assert axes.lines[0].get_color() == LIGHT["method-1"]


def test_a_mean_over_some_seeds_says_so(doc):
    runs = [{"state": "complete"}, {"state": "diverged"}]
    figure = final_results({**doc, "methods": [{**doc["methods"][0], "runs": runs}]})
    assert figure["marks"][0]["rows"][0]["remark"] == "1 of 2 seeds"


def test_costs_that_are_missing_say_why(doc):
    nowhere = dict.fromkeys(("round", "client_updates", "bytes", "virtual_seconds"))
    costs = {"round": 2, "client_updates": 4, "bytes": 10, "virtual_seconds": None}
    one, two = (
        {**method, "summary": {**method["summary"], "costs_to": [found, nowhere]}}
        for method, found in zip(doc["methods"][:2], (costs, nowhere), strict=True)
    )
    data = {**doc, "methods": [one, two], "targets": [{"share": 0.5, "accuracy": 0.5}, {"share": 0.9, "accuracy": 0.9}]}
    figure = cost_to_target(data, "virtual_seconds")
    [group] = figure["marks"][0]["groups"]
    assert group["title"] == "to 50.0 %"
    assert [row["missing"] for row in group["rows"]] == ["not recorded", "not reached"]
    assert figure["note"].startswith(
        "No method reached 90.0 % with every seed. The highest mean accuracy over seeds was "
    )
    assert figure["marks"][0]["ratio_to"] == one["name"]  # nobody reached it within a recorded time
    texts = [text.get_text() for text in compose([figure]).axes[0].texts]
    assert texts == ["to 50.0 %", " not recorded", " not reached"]


def test_traffic_is_split_by_direction(doc):
    [mark] = traffic(doc, "bytes")["marks"]
    assert [part["name"] for part in mark["parts"]] == ["server to client", "client to server", "client to client"]
    assert [sum(values) for values in mark["values"]] == [method["summary"]["bytes"] for method in doc["methods"]]
    [payloads] = traffic(doc, "payloads")["marks"]
    assert payloads["parts"] == [{"name": "model", "colour": "kind-3"}]  # not the colour of a direction


def test_absent_clients_are_in_the_list_of_routes():
    faults = [
        {"route": 0, "hop": 2, "client": 7, "what": "dropout", "done": "skipped"},
        {"route": 0, "hop": 0, "client": 5, "what": "dropout", "done": "skipped"},
        {"route": 1, "hop": 0, "client": 8, "what": "nan", "done": "refused"},
        {"route": -1, "client": -1, "what": "round", "done": "repeated"},
    ]
    found = {"routes": [[1, 2], [8]], "faults": faults, "handover": "direct", "merges": True, "caption": "a round"}
    data = {"runs": [{"rounds": [found], "names": [], "federation": None}]}
    [mark] = routes(data, 0, 0)["marks"]
    assert mark["rows"] == [[5, 1, 7, 2], [8]]
    assert sorted((flag["row"], flag["place"], flag.get("absent", False)) for flag in mark["flags"]) == [
        (0, 0, True), (0, 2, True), (1, 0, False),
    ]  # fmt: skip
    texts = [text.get_text() for text in compose([routes(data, 0, 0)], data).axes[0].texts]
    assert texts.count("!") == 3
    assert {"5", "7"} <= set(texts)


def test_nodes_have_names_in_the_list_of_routes():
    found = {"routes": [[1, 0]], "handover": "server", "merges": True, "caption": "a round"}
    data = {"runs": [{"rounds": [found], "names": ["north", "east"], "federation": None}]}
    texts = [text.get_text() for text in compose([routes(data, 0, 0)], data).axes[0].texts]
    assert [text for text in texts if text in ("north", "east")] == ["east", "north"]


def test_rare_handlings_share_a_colour():
    faults = [{"what": "nan", "done": f"way {each}", "times": 9 - each} for each in range(8)]
    [mark] = fault_events({"faults": faults})["marks"]
    assert [part["name"] for part in mark["parts"]] == [*(f"way {each}" for each in range(5)), "other"]
    assert mark["values"] == [[9, 8, 7, 6, 5, 4 + 3 + 2]]


@pytest.mark.parametrize(("clients", "classes"), [(1, 2), (10, 10), (61, 62), (150, 70)])
def test_partitions_of_any_size(tmp_path, monkeypatch, clients, classes):
    monkeypatch.setattr(figure_specs, "MOST_COLUMNS", 100)
    panels = partition_figures(partition_of(clients, classes))
    save_figures(tmp_path / "mix.png", panels)
    assert (tmp_path / "mix.png").read_bytes().startswith(b"\x89PNG")
    assert panels[1]["x"]["label"] == "Client" if clients <= 60 else "Clients, ordered by their most frequent class"
    assert len(panels[1]["marks"][0]["rows"]) <= 100
    assert ("merged to 64 shades" in panels[1]["title"]) == (classes > SHADES)
    assert ("neighbouring classes share one" in panels[1]["note"]) == (classes > SHADES)


def test_many_clients_are_ordered_by_their_most_frequent_class():
    main = [np.argmax(counts) for counts in partition_figures(partition_of(200, 5))[1]["marks"][0]["counts"]]
    assert (np.diff(main) >= 0).all()
    assert partition_figures(partition_of(10, 5))[1]["marks"][0]["names"] == list(range(10))


def test_many_clients_are_few_shapes():
    counts = [[client % 3 + 1, 2, 3, 4] for client in range(2000)]
    federation = {"name": "toy", "counts": counts, "clients": 5000, "samples": 55_000, "classes": 4, "median_cpd": None}
    federation |= {"smallest": 10, "largest": 12}
    names = ["0", "1", "2", "3"]
    data = {"federations": [{**federation, "class_names": names, "parts": figure_specs.class_parts(names)}]}
    figure = client_classes(data, 0)
    assert len(compose([figure], data).axes[0].patches) == 4
    assert figure["note"].startswith(
        "5,000 clients, 55,000 samples, 4 classes. The smallest has 10 samples, the largest 12."
    )
    assert "1,000 of them are drawn. Classes of 3,000 more clients were not counted." in figure["note"]


def test_merged_classes_lose_no_sample():
    counts = partition_of(3, 1000).counts
    merged, names = merge_classes(counts, SHADES)
    assert merged.shape == (3, SHADES)
    assert (merged.sum(axis=1) == counts.sum(axis=1)).all()
    assert (names[0], names[-1]) == ("0–14", "984–999")


def test_a_client_without_samples_is_an_empty_column(tmp_path):
    partition = ClientClassCounts("toy", 2, np.array([3, 0]), np.arange(2), np.array([[1, 2], [0, 0]]), 5)
    save_figures(tmp_path / "mix.svg", partition_figures(partition))
    assert (tmp_path / "mix.svg").stat().st_size > 1000


def test_the_same_figure_has_the_same_bytes(tmp_path):
    for name in ("a.svg", "b.svg", "a.png", "b.png", "a.pdf", "b.pdf"):
        save_figures(tmp_path / name, partition_figures(partition_of(3, 3)))
    for kind in ("svg", "png", "pdf"):
        assert (tmp_path / f"a.{kind}").read_bytes() == (tmp_path / f"b.{kind}").read_bytes()


def test_other_formats_are_refused(tmp_path):
    with pytest.raises(SpecError, match=r"a figure must end in \.png, \.pdf, \.svg"):
        save_figures(tmp_path / "mix.jpg", partition_figures(partition_of(2, 2)))


def test_a_legend_names_everything_once(doc):
    panels = [learning_curves(doc, "accuracy", cost) for cost in ("round", "bytes")]
    assert [key["name"] for key in legend(panels)] == ["fedavg", "fedseq", "centralized", "centralised training"]
