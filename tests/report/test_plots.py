from __future__ import annotations

import numpy as np
import pytest
from matplotlib.image import imread

from fedrelay.errors import SpecError
from fedrelay.report import plots
from fedrelay.report.holdings import MOST_SHADES, HoldingsReport, joined_classes
from fedrelay.report.plots import draw_curves, draw_holdings, draw_privacy


@pytest.fixture
def drawn(monkeypatch):
    """The figure, looked at just before it is written."""
    figures = []
    save = plots.save_figure
    monkeypatch.setattr(plots, "save_figure", lambda figure, path: (figures.append(figure), save(figure, path)))
    return figures


def report_of(clients, classes, seed=0):
    counts = np.random.default_rng(seed).integers(0, 5, (clients, classes))
    return HoldingsReport("toy", classes, counts.sum(axis=1), np.arange(clients), counts, 20)


def test_curves_have_two_panels_and_a_reference(outcome, tmp_path, drawn):
    done = outcome(
        {
            "fedavg": [[0.2, 0.4, 0.5], [0.3, 0.4, 0.7]],
            "fedseq": [[0.6, 0.7, 0.8], [0.6, 0.7, 0.9]],
            "centralized": [[0.9, 0.9, 0.9], [0.9, 0.9, 0.9]],
        }
    )
    draw_curves(done, tmp_path / "curves.png")
    height, width, _ = imread(tmp_path / "curves.png").shape
    assert (width, height) == (1440, 680)
    left, right = drawn[0].axes
    assert (left.get_xlabel(), left.get_ylabel(), right.get_xlabel()) == ("round", "test accuracy", "traffic, MB")
    names = ["fedavg", "fedseq", "centralised training"]
    assert [line.get_label() for line in left.lines] == names
    assert left.lines[0].get_xydata().tolist() == [[1, 0.25], [2, 0.4], [3, 0.6]]
    assert right.lines[0].get_xdata().tolist() == [0.001, 0.002, 0.003]
    assert left.lines[2].get_linestyle() == "--"
    assert left.lines[2].get_ydata() == [0.9, 0.9]
    assert len(left.collections) == 2
    assert [text.get_text() for text in drawn[0].legends[0].get_texts()] == names


def test_curves_without_traffic_go_over_client_updates(outcome, tmp_path, drawn):
    draw_curves(outcome({"centralized": [[0.5, 0.6]]}), tmp_path / "curves.png")
    assert drawn[0].axes[1].get_xlabel() == "client updates"
    assert drawn[0].axes[1].lines[0].get_xdata().tolist() == [2, 4]
    assert len(drawn[0].axes[0].collections) == 0


def test_accuracy_over_what_was_spent(outcome, tmp_path, drawn):
    done = outcome({"fedavg+dp": [[0.2, 0.4], [0.4, 0.6]], "fedavg": [[0.7, 0.9], [0.7, 0.9]]})
    for result in done["fedavg+dp"].results:
        for row in result.history:
            row["epsilon"] = 2.0 * row["round"]
    assert draw_privacy(done, tmp_path / "privacy.png")
    axes = drawn[0].axes[0]
    np.testing.assert_allclose(axes.lines[0].get_xydata(), [[2, 0.3], [4, 0.5]])
    assert axes.lines[1].get_ydata() == pytest.approx([0.8, 0.8])
    assert axes.lines[1].get_label() == "fedavg, not private"
    ticks = [label.get_text() for which in ("major", "minor") for label in axes.get_xticklabels(which=which)]
    assert any(ticks)
    assert not any("$" in tick for tick in ticks)  # formulas are not read, so that labels may look like some
    assert not draw_privacy(outcome({"fedprox": [[0.7]]}), tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()


def test_no_curves_where_everything_diverged(outcome, tmp_path):
    draw_curves(outcome({"fedavg": []}), tmp_path / "curves.png")
    assert not (tmp_path / "curves.png").exists()


@pytest.mark.parametrize(("clients", "classes"), [(1, 2), (10, 10), (31, 62), (150, 70)])
def test_holdings_of_any_size(tmp_path, monkeypatch, drawn, clients, classes):
    monkeypatch.setattr(plots, "MOST_BARS", 100)
    draw_holdings(report_of(clients, classes), tmp_path / "mix.png")
    assert (tmp_path / "mix.png").read_bytes().startswith(b"\x89PNG")
    lower = drawn[0].axes[1]
    assert lower.get_xlim() == (-0.5, min(clients, 100) - 0.5)
    assert (lower.get_xlabel() == "client") == (clients <= 30)


def test_many_clients_are_ordered_by_their_main_class():
    report = report_of(200, 5)
    main = report.histograms[plots._order(report)].argmax(axis=1)
    assert (np.diff(main) >= 0).all()
    assert plots._order(report_of(10, 5)).tolist() == list(range(10))


def test_many_classes_share_shades_and_none_is_lost():
    counts = report_of(3, 1000).histograms
    joined = joined_classes(counts)
    assert joined.shape == (3, MOST_SHADES)
    assert (joined.sum(axis=1) == counts.sum(axis=1)).all()


def test_a_client_without_samples_is_an_empty_bar(tmp_path):
    report = HoldingsReport("toy", 2, np.array([3, 0]), np.arange(2), np.array([[1, 2], [0, 0]]), 5)
    draw_holdings(report, tmp_path / "mix.svg")
    assert (tmp_path / "mix.svg").stat().st_size > 1000


def test_the_same_figure_has_the_same_bytes(tmp_path):
    for name in ("a.svg", "b.svg", "a.png", "b.png", "a.pdf", "b.pdf"):
        draw_holdings(report_of(3, 3), tmp_path / name)
    for kind in ("svg", "png", "pdf"):
        assert (tmp_path / f"a.{kind}").read_bytes() == (tmp_path / f"b.{kind}").read_bytes()


def test_other_formats_are_refused(tmp_path):
    with pytest.raises(SpecError, match=r"a figure must end in \.png, \.pdf, \.svg"):
        draw_holdings(report_of(2, 2), tmp_path / "mix.jpg")
