"""The page in a real browser: Chromium, without a display."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.report.folders import SMALL, add_event, failed, ran, stopped
from tests.report.test_palette import contrast

import fedrelay as fr
from fedrelay.report import web_page as web_page_module
from fedrelay.report.client_gains import hull
from fedrelay.report.comparison_files import write_comparison_files
from fedrelay.report.csv_tables import csv_rows
from fedrelay.report.format import as_csv, factor, moment
from fedrelay.report.load_runs import load_runs
from fedrelay.report.page_limits import EVERYTHING
from fedrelay.report.page_sections import with_sections
from fedrelay.report.report_content import document, report_data
from fedrelay.report.tuning_page import tuning_document
from fedrelay.report.watch_server import WatchServer
from fedrelay.report.web_page import web_page

PATIENCE = 30.0
FIGURES = [
    "curves",
    "routes",
    "targets",
    "results",
    "differences",
    "clients",
    "groups",
    "forgetting",
    "communication",
    "faults",
]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One page with every way of travelling."""
    folder = tmp_path_factory.mktemp("ways")
    methods = ("spfl", "fedseqinter", "fedgsp", "fedstar", "fedcyclic", "fedavg")
    runs = [ran(folder / method, method, rounds=2, **{"eval.forgetting": 1}) for method in methods]
    page = folder / "page.html"
    page.write_text(web_page(document(runs)))
    return page


@pytest.fixture
def written(comparison_folder: Path, tmp_path: Path) -> Path:
    page = tmp_path / "page.html"
    page.write_text(web_page(document([comparison_folder])))
    return page


def look(browser: Any, address: str, width: int = 1200, theme: str = "light") -> None:
    """Open a page as a reader with such a screen would."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    wishes = [{"name": "prefers-color-scheme", "value": theme}, {"name": "prefers-reduced-motion", "value": "reduce"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": wishes})
    browser.get_log("performance")
    browser.get_log("browser")
    browser.get(address)


def complaints(browser: Any) -> list[str]:
    return [entry["message"] for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


def requests(browser: Any) -> list[str]:
    """Everything the page asked for, but itself and what it holds."""
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    return [url for url in asked if not url.startswith(("file:", "data:", "blob:"))]


def ask(browser: Any, code: str, *arguments: Any) -> Any:
    return browser.execute_script(f"const all = (css) => [...document.querySelectorAll(css)];{code}", *arguments)


def wait_for(browser: Any, code: str) -> Any:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if found := ask(browser, code):
            return found
        time.sleep(0.05)
    raise AssertionError(f"never came true: {code}; the console says {complaints(browser)}")


@pytest.mark.slow
def test_whiskers_are_cut_off_where_no_difference_can_be(browser, tmp_path):
    """Two seeds make intervals of several hundred points; the axis ends at 100."""
    settings = {**SMALL, "clients": 4, "fraction": 1.0, "rounds": 1, "holdout": 0.3, "per_client": 1}
    outcome = fr.compare(["local", "fedavg"], seeds=[1, 2], out=tmp_path / "two", **settings)
    wide = [each for each in outcome.clients.gains["fedavg"] if (hull(each) or (0, 0))[1] > 1]
    assert wide
    page = tmp_path / "page.html"
    page.write_text(web_page(document([tmp_path / "two"])))
    look(browser, page.as_uri())
    ticks = ask(browser, "return all('#gains svg text.soft').map((each) => Number(each.textContent)).filter(Boolean)")
    assert max(map(abs, ticks)) <= 100
    whiskers = ask(browser, "return all('#gains svg g').map((each) => each.querySelectorAll('line').length)")
    assert whiskers.count(3) < 4  # a whole whisker is a line with two ends


@pytest.mark.parametrize("width", [pytest.param(375, marks=pytest.mark.slow), 1200])
def test_it_loads_without_complaint_and_without_a_network(browser, written, width):
    look(browser, written.as_uri(), width)
    assert complaints(browser) == []
    assert requests(browser) == []
    assert ask(browser, "return document.documentElement.scrollWidth - innerWidth") <= 0
    shown = ask(browser, "return all('[data-figure]').map((each) => each.dataset.figure)")
    assert shown == [*FIGURES[:5], "gains", *FIGURES[5:], "reproduce"]
    assert ask(browser, "return all('#curves .line').length") == 3
    assert ask(browser, "return all('#curves .band').length") == 3
    assert ask(browser, "return all('#routes .client').length") == 20
    assert ask(browser, "return all('[data-figure=results] tbody tr').map((row) => row.cells[0].textContent)") == [
        "fedavg", "fedseq", "centralized",
    ]  # fmt: skip
    assert ask(browser, "return all('#clients .column').length") >= 20
    assert ask(browser, "return all('#forgetting .cell').length") > 3
    assert ask(browser, "return all('#communication .bar').length") >= 4


def test_numbers_look_like_those_in_files(browser, written):
    look(browser, written.as_uri())
    folder = Path(web_page_module.__file__).parent / "web"
    scripts = "".join((folder / name).read_text() for name in ("basics.js", "marks.js"))
    seconds, ratios = [0.0324, 0.5, 6.44, 59.97, 187, 3725], [120.4, 10, 1.94, 0.5, 0.0324]
    assert ask(browser, f"{scripts}return arguments[0].map(FORMATS.seconds)", seconds) == [*map(moment, seconds)]
    assert ask(browser, f"{scripts}return arguments[0].map(ratioText)", ratios) == [*map(factor, ratios)]


def test_switches_change_the_curves(browser, written):
    look(browser, written.as_uri())
    drawn = "return all('#curves .line').map((each) => each.getAttribute('d')).join()"
    name = "return document.querySelector('#curves svg[role=img]').getAttribute('aria-label')"
    seen = {ask(browser, drawn)}
    assert ask(browser, name) == "Accuracy over rounds"
    for key, label in (("bytes", "Accuracy over traffic"), ("client_updates", "Accuracy over client updates")):
        ask(browser, f"document.querySelector('#curves [data-value={key}]').click()")
        assert ask(browser, name) == label
        seen.add(ask(browser, drawn))
    ask(browser, "document.querySelector('#curves [data-value=loss]').click()")
    seen.add(ask(browser, drawn))
    ask(browser, "document.querySelector('#curves [data-toggle=log-y]').click()")
    seen.add(ask(browser, drawn))
    assert len(seen) == 5
    ask(browser, "document.querySelector('#curves .legend button').click()")
    assert ask(browser, "return all('#curves .line').length") == 2
    assert (
        ask(browser, "return document.querySelector('#curves .legend button').getAttribute('aria-pressed')") == "false"
    )
    ask(
        browser,
        "all('#curves .legend button').forEach((each) => each.getAttribute('aria-pressed') === 'true' && each.click())",
    )
    assert "All methods are hidden" in ask(browser, "return document.querySelector('#curves .plot').textContent")
    assert ask(browser, "return all('#curves .legend button').length") == 3
    assert complaints(browser) == []


def test_hovering_and_keys_show_values(browser, written, comparison_folder):
    look(browser, written.as_uri())
    code = """const cover = document.querySelector('#curves rect[tabindex]'); cover.focus();
    cover.dispatchEvent(new KeyboardEvent('keydown', { key: 'End', bubbles: true }));
    return document.querySelector('.tip').hidden ? '' : document.querySelector('.tip').textContent"""
    said = ask(browser, code)
    level = document([comparison_folder])["methods"][1]["summary"]["accuracy"]["mean"]
    assert said.startswith("Round 4")
    assert f"fedseq{100 * level:.1f} %" in said


@pytest.mark.slow
def test_light_and_dark(browser, written):
    paper = "return getComputedStyle(document.body).backgroundColor"
    look(browser, written.as_uri(), theme="dark")
    dark = ask(browser, paper)
    ask(browser, "document.querySelector('.theme').click()")
    light = ask(browser, paper)
    assert dark != light
    ask(browser, "localStorage.clear()")
    look(browser, written.as_uri(), theme="light")
    assert ask(browser, paper) == light
    assert complaints(browser) == []


@pytest.mark.slow
def test_a_choice_outlasts_what_the_system_wishes(browser, written):
    look(browser, written.as_uri(), theme="light")
    theme = "return document.documentElement.dataset.theme"
    wish = lambda value: browser.execute_cdp_cmd(  # noqa: E731
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": value}]}
    )
    wish("dark")
    wait_for(browser, f"{theme} === 'dark'")
    wish("light")
    wait_for(browser, f"{theme} === 'light'")
    ask(browser, "document.querySelector('.theme').click()")
    assert ask(browser, theme) == "dark"
    wish("dark")
    wish("light")
    assert ask(browser, f"return new Promise((done) => setTimeout(() => done((() => {{ {theme} }})()), 200))") == "dark"
    ask(browser, "localStorage.clear()")


@pytest.mark.slow
def test_every_way_of_travelling_has_its_map(browser, many):
    look(browser, many.as_uri())
    choose = """const select = document.querySelector('#routes select'); select.value = arguments[0];
    select.dispatchEvent(new Event('change')); document.querySelector(`#routes [data-value=${arguments[1]}]`).click();
    return [document.querySelector('#routes .caption').textContent, all('#routes .track').length,
            all('#routes [data-slot]').length, all('#routes .client').length]"""
    spfl, inter, gsp, star, cyclic, averaged = (ask(browser, choose, str(number), "map") for number in range(6))
    assert spfl[:2] == [
        "spfl: 10 models visit 10 clients each one after another, then the server merges them.",
        10,
    ]
    assert "wait" in inter[0]
    assert inter[2] == inter[1] > 0
    assert "through the server" in gsp[0] or "one client each" in gsp[0]
    assert "clients train their own models and send them to all others" in star[0]
    assert star[1] == 10
    assert cyclic[:2] == ["fedcyclic: 1 model visits 10 clients one after another, then the server receives it.", 1]
    assert averaged[:2] == ["fedavg: 10 models visit one client each, then the server merges them.", 10]
    assert {each[3] for each in (spfl, inter, gsp, star, cyclic, averaged)} == {20}
    assert ask(browser, choose, "0", "routes")[1] == 10
    assert ask(browser, "return all('#routes .client').length") == 100
    assert complaints(browser) == []


def test_the_slider_and_play_go_through_rounds(browser, written):
    look(browser, written.as_uri())
    said = "return document.querySelector('#routes output').textContent"
    assert ask(browser, said) == "round 1 of 4"
    ask(browser, "const s = document.querySelector('#routes input'); s.value = 2; s.dispatchEvent(new Event('input'))")
    assert ask(browser, said) == "round 3 of 4"
    ask(browser, "document.querySelector('#routes .play').click()")
    wait_for(browser, "return document.querySelector('#routes output').textContent === 'round 4 of 4'")
    ask(browser, "document.querySelector('#routes .track').dispatchEvent(new MouseEvent('click', { bubbles: true }))")
    faded = ask(browser, "return all('#routes .track').filter((each) => each.style.opacity === '0.1').length")
    assert faded == ask(browser, "return all('#routes .track').length") - 1
    ask(browser, "document.activeElement.blur(); document.querySelector('#routes .track').focus()")
    ask(browser, "document.activeElement.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true }))")
    assert ask(browser, "return all('#routes .track').filter((each) => each.style.opacity).length") == 0


@pytest.mark.slow
def test_models_move_along_their_way_unless_the_reader_wants_calm(browser, written):
    moving = "return all('#routes .token').map((each) => each.getAttribute('cx'))"
    look(browser, written.as_uri())
    ask(browser, "document.querySelector('#routes .play').click()")
    assert ask(browser, moving) == []
    wishes = [{"name": "prefers-reduced-motion", "value": "no-preference"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": wishes})
    browser.refresh()
    ask(browser, "document.querySelector('#routes .play').click()")
    wait_for(browser, f"{moving}.length")
    first = ask(browser, moving)
    wait_for(browser, f"const now = (() => {{ {moving} }})(); return now.length && now[0] !== '{first[0]}'")
    ask(browser, "document.querySelector('#routes .play').click()")
    wait_for(browser, f"return (() => {{ {moving} }})().length === 0")
    assert complaints(browser) == []


def test_labels_are_text_and_nothing_else(browser, tmp_path):
    labels = ["</script><script>window.hacked = 1</script>", "<img src=x onerror='window.hacked = 2'>"]
    methods = [{"method": "fedavg", "label": label, "route": {}} for label in labels]
    fr.compare(methods, out=tmp_path / "nasty", **(SMALL | {"rounds": 1}))
    page = tmp_path / "page.html"
    page.write_text(web_page(document([tmp_path / "nasty"])))
    look(browser, page.as_uri())
    assert ask(browser, "return window.hacked ?? null") is None
    assert ask(browser, "return all('img').length") == 0
    assert ask(browser, "return all('[data-figure=results] tbody tr').map((row) => row.cells[0].textContent)") == labels
    assert complaints(browser) == []
    assert requests(browser) == []


@pytest.mark.slow
def test_pictures_and_tables_can_be_saved(browser, comparison_folder, tmp_path):
    folder = shutil.copytree(comparison_folder, tmp_path / "three")
    add_event(folder / "fedseq/seed-1", round=1, route=0, hop=0, client=3, what="dropout", done="skipped")
    page = tmp_path / "page.html"
    page.write_text(web_page(document([folder])))
    for name in FIGURES:
        look(browser, page.as_uri())  # Chromium allows a page ten downloads in a row
        for kind in ("png", "csv"):
            saved_file(browser, name, kind, tmp_path)
    assert complaints(browser) == []
    for name in FIGURES:
        with Image.open(tmp_path / f"{name}.png") as picture:
            assert len(picture.getcolors(1 << 24)) > 20, name
    same_numbers(tmp_path, folder)
    same_columns(tmp_path, folder)


def saved_file(browser: Any, name: str, kind: str, folder: Path) -> Path:
    """What a button of a card saves."""
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)})
    card = f"document.querySelector('[data-figure={name}]').closest('.card')"
    ask(browser, f"{card}.querySelector('[data-export={kind}]').click()")
    path = folder / f"{name}.{kind}"
    wait_until(lambda: path.is_file() and path.stat().st_size > 0)
    return path


def same_columns(saved: Path, folder: Path) -> None:
    """The page and `--csv` give the same tables."""
    rows_of = csv_rows(document([folder]))
    assert rows_of.keys() - set(FIGURES) == {"gains"}, "nobody trained alone, so there is nothing to save"
    for name, rows in ((name, rows_of[name]) for name in FIGURES):
        assert (saved / f"{name}.csv").read_text().splitlines()[0] == as_csv(rows).splitlines()[0], name


def same_numbers(saved: Path, folder: Path) -> None:
    """Hold tables that were saved against what the run folders say."""
    tables = {name: list(csv.DictReader((saved / f"{name}.csv").read_text().splitlines())) for name in FIGURES}
    runs = [lines(folder / f"fedseq/seed-{seed}/metrics.jsonl") for seed in (1, 2)]
    ledgers = [lines(folder / f"fedseq/seed-{seed}/ledger.jsonl") for seed in (1, 2)]
    curve = [row for row in tables["curves"] if row["method"] == "fedseq"]
    assert len(tables["curves"]) == 12
    for row, *evaluations in zip(curve, *runs, strict=True):
        for measure in ("accuracy", "loss"):
            assert float(row[f"{measure}_mean"]) == pytest.approx(
                np.mean([each[measure] for each in evaluations]), rel=1e-5
            )
        for cost in ("round", "client_updates", "bytes", "virtual_seconds"):
            assert float(row[cost]) == pytest.approx(np.mean([each[cost] for each in evaluations]), rel=1e-8)
    final = next(row for row in tables["results"] if row["method"] == "fedseq")
    assert float(final["accuracy_mean"]) == pytest.approx(np.mean([run[-1]["accuracy"] for run in runs]))
    sent = {
        (row["counted"], row["kind"]): float(row["value"])
        for row in tables["communication"]
        if row["method"] == "fedseq"
    }
    for way in ("s2c", "c2s", "c2c"):
        for counted, name in (("transfers", way), ("bytes", f"{way}_bytes")):
            assert sent[counted, way] == sum(line[name] for ledger in ledgers for line in ledger) / 2
    hops = [int(row["client"]) for row in tables["routes"] if run_of(row) == ("fedseq", "1", "1")]
    assert hops == [client for route in ledgers[0][0]["routes"] for client in route]
    assert sum(int(row[f"class_{each}"]) for row in tables["clients"] for each in range(10)) == 2 * 1438
    assert tables["faults"][0]["what"] == "dropout"
    followed = lines(folder / "fedseq/seed-1/forgetting.jsonl")[0]
    [first, *_] = [row for row in tables["forgetting"] if row["method"] == "fedseq"]
    assert float(first["accuracy"]) == pytest.approx(followed["matrix"][0][0], abs=1e-4)
    reached = next(row for row in tables["targets"] if row["method"] == "centralized")
    assert float(reached["target"]) == pytest.approx(0.7 * float(tables["results"][2]["accuracy_last_mean"]), rel=1e-5)


def run_of(row: dict[str, str]) -> tuple[str, str, str]:
    return row["method"], row["seed"], row["round"]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
def test_everything_can_be_reached_by_keyboard_and_has_a_name(browser, written):
    look(browser, written.as_uri())
    unnamed = """return all('button, select, input, [tabindex="0"], svg[role=img]')
      .filter((each) => each.checkVisibility())
      .filter((each) => !(each.getAttribute('aria-label') || each.textContent.trim() || each.closest('label')))
      .map((each) => each.outerHTML.slice(0, 80))"""
    assert ask(browser, unnamed) == []
    assert ask(browser, "return all('[tabindex]').filter((each) => each.tabIndex > 0).length") == 0
    reached = set()
    body = browser.find_element("tag name", "body")
    for _ in range(60):
        body.send_keys("\ue004")  # Tab
        reached.add(
            ask(browser, "return document.activeElement.closest('section')?.id ?? document.activeElement.className")
        )
        body = browser.switch_to.active_element
    assert {"theme", "curves", "routes", "targets", "results"} <= reached
    ask(browser, "document.querySelector('#curves [data-value=bytes]').focus()")
    browser.switch_to.active_element.send_keys("\ue007")  # Enter
    assert ask(browser, "return document.querySelector('#curves svg[role=img]').getAttribute('aria-label')") == (
        "Accuracy over traffic"
    )


@pytest.mark.slow
def test_cells_are_readable_in_both_themes(browser, written):
    for theme in ("light", "dark"):
        look(browser, written.as_uri(), theme=theme)
        found = ask(
            browser,
            "return all('#forgetting .cell + text').map((each) => [getComputedStyle(each).fill,"
            "getComputedStyle(each.previousSibling).fill])",
        )
        assert found
        for text, ground in found:
            assert contrast(as_hex(text), as_hex(ground)) >= 4.5


def as_hex(colour: str) -> str:
    return "#" + "".join(f"{int(each):02x}" for each in colour.removeprefix("rgb(").removesuffix(")").split(","))


@pytest.mark.slow
def test_the_legend_names_only_what_is_drawn(browser, tmp_path):
    runs = [ran(tmp_path / "fine", "fedavg"), failed(tmp_path / "diverged", "fedseq", **{"train.lr": 1e18})]
    page = tmp_path / "page.html"
    page.write_text(web_page(document(runs)))
    look(browser, page.as_uri())
    assert ask(browser, "return all('#curves .legend button').map((each) => each.textContent)") == ["fedavg"]


def test_how_a_run_failed_is_said_where_it_would_be_seen(browser, tmp_path):
    runs = [
        failed(tmp_path / "diverged", "fedavg", **{"train.lr": 1e18}),
        failed(tmp_path / "untrained", "fedseq", faults=[{"what": "dropout", "rate": 1.0}]),
    ]
    page = tmp_path / "page.html"
    page.write_text(web_page(document(runs)))
    look(browser, page.as_uri(), 390)
    assert ask(browser, "return all('[data-figure=results] .chip').map((each) => each.className)") == [
        "chip diverged", "chip untrained",
    ]  # fmt: skip
    diverged, untrained = ask(browser, "return all('#top .loss').map((each) => each.textContent)")
    assert "fedavg, seed 1: diverged, round 1: the model left client" in diverged
    assert untrained == "fedseq, seed 1: untrained, no client update was accepted in any round."
    closed = ask(browser, "return all('section.closed').map((each) => each.id)")
    assert closed == ["curves", "targets", "gains", "forgetting", "communication"]
    for place in closed[:2]:
        said = ask(browser, f"return document.querySelector('#{place} .nothing').textContent")
        assert said == "No run has a result; the top of the page says why."
        assert ask(browser, f"return document.querySelector('#{place} .card').checkVisibility()") is False
    assert "2 untrained" not in ask(browser, "return document.querySelector('.headlines').textContent")
    assert ask(browser, "return document.querySelector('#curves .controls').checkVisibility()") is False
    assert ask(browser, "return document.documentElement.scrollWidth - innerWidth") <= 0
    assert complaints(browser) == []


def shown(browser: Any, tmp_path: Path, found: dict[str, Any]) -> None:
    """Open the page of a document that was made up."""
    page = tmp_path / "made-up.html"
    page.write_text(web_page(found))
    look(browser, page.as_uri())


@pytest.mark.slow
def test_costs_are_compared_with_any_method(browser, comparison_folder, tmp_path):
    data = report_data(load_runs([comparison_folder]))
    names = ("round", "client_updates", "bytes", "virtual_seconds")
    costs = [dict.fromkeys(names, value) for value in (40, 20, 4)]
    costs[0]["virtual_seconds"] = None
    methods = [
        {**method, "summary": {**method["summary"], "costs_to": [own, dict.fromkeys(names)]}}
        for method, own in zip(data["methods"], costs, strict=True)
    ]
    targets = [{"share": share, "accuracy": share} for share in (2 / 3, 0.9)]
    shown(browser, tmp_path, with_sections({**data, "methods": methods, "targets": targets}))
    factors = "return all('#targets svg tspan').map((each) => each.textContent)"
    assert ask(browser, factors) == ["2.0×", "10×"]
    choose = """const select = document.querySelector('#targets select'); select.value = 'fedseq';
    select.dispatchEvent(new Event('change'))"""
    ask(browser, choose)
    assert ask(browser, factors) == ["0.5×", "5.0×"]
    ask(browser, "document.querySelector('#targets [data-value=virtual_seconds]').click()")
    assert ask(browser, "return all('#targets svg text').map((each) => each.textContent)").count("not recorded") == 1
    assert "No method reached 90.0 %" in ask(browser, "return document.querySelector('#targets .note').textContent")
    assert complaints(browser) == []


@pytest.mark.slow
def test_numbers_can_be_read_without_a_pointer(browser, comparison_folder, tmp_path):
    data = report_data(load_runs([comparison_folder]))
    faults = [{"method": 1, "what": "dropout", "done": done, "times": times} for done, times in (("a", 70), ("b", 30))]
    found = with_sections({**data, "faults": faults, "events_in_all": 100})
    shown(browser, tmp_path, found)
    assert ask(browser, "return all('thead th:not([scope=col]), tbody th:not([scope=row])').length") == 0
    unfold = "document.querySelector('[data-figure={0}]').closest('.card').querySelector('.numbers summary').click()"
    table = """return [...document.querySelector('[data-figure={0}]').closest('.card').querySelectorAll('.numbers tr')]
      .map((row) => [...row.cells].map((cell) => cell.textContent))"""
    tables = {}
    for name in ("targets", "clients", "groups", "forgetting", "communication", "faults"):
        ask(browser, unfold.format(name))
        tables[name] = wait_for(browser, table.format(name))
    assert tables["faults"] == [["", "a", "b", "total"], ["dropout", "70", "30", "100"]]
    sent = found["methods"][1]["traffic"]["transfers"]
    assert [int(cell.replace(",", "")) for cell in tables["communication"][2][1:]] == [
        round(each) for each in (*(sent[kind] for kind in ("s2c", "c2s", "c2c")), sum(sent.values()))
    ]
    counts = found["federations"][0]["counts"]
    assert [list(map(int, row[1:-1])) for row in tables["clients"][1:]] == counts
    assert len(tables["groups"]) == 1 + len(found["runs"][2]["group_counts"])
    chain = next(each for each in found["runs"] if each["method"] == 1)["forgetting"]["chains"][0]
    assert tables["forgetting"][1][:2] == [str(chain["clients"][0]), f"{100 * chain['matrix'][0][0]:.1f} %"]
    ask(browser, "document.querySelector('.theme').click()")  # a redraw
    assert ask(browser, table.format("faults")) == tables["faults"]
    ask(browser, "localStorage.clear()")
    assert complaints(browser) == []


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


@pytest.mark.slow
def test_a_hundred_classes_are_whole_on_the_page_and_in_files(browser, tmp_path):
    rng = np.random.default_rng(0)
    labels, clients = np.repeat(np.arange(100), 12), np.tile(np.arange(12), 100)
    labels[clients == 3] = rng.integers(0, 100, 100)
    arrays = {"x_train": rng.normal(size=(1200, 4)), "y_train": labels, "client_train": clients}
    np.savez(tmp_path / "hundred.npz", **arrays, x_test=rng.normal(size=(100, 4)), y_test=np.arange(100))
    settings = {"data": str(tmp_path / "hundred.npz"), "partition": "natural", "clients": 12, "rounds": 1, "workers": 1}
    fr.run("fedseq", out=tmp_path / "run", model="logistic", **{"grouping.max_clients": 4}, **settings)
    counted = np.stack([np.bincount(labels[clients == client], minlength=100) for client in range(12)])
    shares = counted / counted.sum(axis=1, keepdims=True)
    gaps = [((shares[one] - shares[other]) ** 2).sum() for one in range(12) for other in range(one)]

    files = csv_rows(document([tmp_path / "run"], EVERYTHING))
    found = document([tmp_path / "run"])
    page = tmp_path / "page.html"
    page.write_text(web_page(found))
    look(browser, page.as_uri(), 1400)
    for name in ("clients", "groups"):
        assert saved_file(browser, name, "csv", tmp_path).read_text() == as_csv(files[name])
    columns = [f"class_{number}" for number in range(100)]
    assert [[row[name] for name in columns] for row in files["clients"]] == counted.tolist()
    for row in files["groups"]:
        members = list(map(int, row["clients"].split()))
        assert [row[name] for name in columns] == counted[members].sum(axis=0).tolist()

    said = ask(browser, "return all('[data-figure=clients] ~ div .note').map((each) => each.textContent).join()")
    assert f"(CPD): {(1 - np.exp(-1)) * np.median(gaps):.3f}." in said
    sums = [counted[list(map(int, row["clients"].split()))].sum(axis=0) for row in files["groups"]]
    assert f"has {np.mean([each.min() / each.max() for each in sums]):.2g} times the samples" in ask(
        browser, "return document.querySelector('[data-figure=groups] ~ div .note').textContent"
    )
    title = ask(browser, "return document.querySelector('[data-figure=clients] svg').getAttribute('aria-label')")
    assert title == "Class mix of clients (neighbouring classes merged to 64 shades)"
    column = "all('[data-figure=clients] .column')[0]"
    assert ask(browser, f"return {column}.children.length") == 64
    assert complaints(browser) == []


def test_unfinished_runs_say_so(browser, comparison_folder, tmp_path):
    folder = shutil.copytree(comparison_folder, tmp_path / "part")
    run = folder / "fedseq/seed-2"
    (run / "result.json").unlink()
    (run / "checksums.jsonl").unlink()  # as in runs of earlier versions
    for stream in ("metrics", "ledger"):
        kept = (run / f"{stream}.jsonl").read_text().splitlines(keepends=True)[:2]
        (run / f"{stream}.jsonl").write_text("".join(kept))
    shutil.rmtree(folder / "centralized")
    page = tmp_path / "page.html"
    page.write_text(web_page(document([folder])))
    look(browser, page.as_uri())
    chips = ask(browser, "return all('[data-figure=results] .chip').map((each) => each.textContent)")
    assert chips == ["seed 2 stopped, round 2 of 4", "seed 1 waiting", "seed 2 waiting"]
    assert "Some seeds have finished more rounds than others" in ask(
        browser, "return document.querySelector('#curves .note').textContent"
    )
    assert complaints(browser) == []


def test_faults_are_listed_and_marked(browser, slots_folder, tmp_path):
    run = shutil.copytree(slots_folder, tmp_path / "run")
    first = document([run])["runs"][0]["rounds"][0]["routes"][0][0]
    add_event(run, round=1, route=0, hop=0, client=first, what="<b>dropped</b>", done="passed over")
    page = tmp_path / "page.html"
    page.write_text(web_page(document([run])))
    look(browser, page.as_uri())
    assert ask(browser, "return all('#faults .each td').map((cell) => cell.textContent)") == [
        "1", "<b>dropped</b>", "passed over", str(first), "0", "0",
    ]  # fmt: skip
    aligned = (
        "return new Set(all('#faults .each th, #faults .each td').map((each) => getComputedStyle(each).textAlign)).size"
    )
    assert ask(browser, aligned) == 1  # heads stand above their columns
    assert ask(browser, "return all('#routes .fault').length") == 1
    assert "Fault events, marked with !: 1 <b>dropped</b>." in ask(
        browser, "return document.querySelector('#routes .caption').textContent"
    )


def test_a_live_page_grows_with_its_run(browser, tmp_path):
    run = tmp_path / "run"
    with WatchServer([run], 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            look(browser, server.address, 390)
            wait_for(browser, "return document.querySelector('.live').textContent === 'waiting'")
            assert ask(browser, "return document.querySelector('h1').textContent") == f"Waiting for {run}"
            assert ask(browser, "return document.documentElement.scrollWidth - innerWidth") <= 0
            stopped(run, "fedseq", after=1)
            wait_for(browser, "return document.querySelector('#routes output')?.textContent === 'round 1 of 1'")
            assert ask(browser, "return document.title") == "fedseq on digits · FedRelay"
            ask(browser, "document.querySelector('#curves [data-value=loss]').click()")
            whole = (run / "checkpoint.json").read_bytes()
            (run / "checkpoint.json").write_text("{]\n")
            wait_for(browser, "return document.querySelector('.live').textContent.includes('is damaged')")
            (run / "checkpoint.json").write_bytes(whole)
            fr.resume(run)
            wait_for(browser, "return document.querySelector('.live').textContent === 'complete'")
            assert ask(browser, "return document.querySelector('#routes output').textContent") == "round 3 of 3"
            label = "return document.querySelector('#curves svg[role=img]').getAttribute('aria-label')"
            assert ask(browser, label) == "Test loss over rounds"  # what was chosen stays
            assert all(url.startswith(server.address) for url in requests(browser))
            assert complaints(browser) == []
        finally:
            server.shutdown()
            thread.join()
    wait_for(browser, "return document.querySelector('.live').textContent === 'the server has stopped'")


@pytest.mark.slow
def test_very_many_clients_and_rounds_still_load(browser, slots_folder, tmp_path):
    data = report_data(load_runs([slots_folder]))
    run = data["runs"][0]
    routes = [[(7 * route + hop) % 5000 for hop in range(40)] for route in range(150)]
    first = {**run["rounds"][0], "routes": routes, "merges": True}
    del first["slots"]
    rounds = [{**first, "round": number} for number in range(1, 31)]
    big = {**run, "clients": 5000, "groups": [], "groups_in_all": 125, "rounds": rounds, "rounds_in_all": 9000}
    page = tmp_path / "page.html"
    page.write_text(web_page(with_sections({**data, "runs": [big]})))
    browser.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
    before = busy_seconds(browser)
    look(browser, page.as_uri())
    wait_for(browser, "return all('#routes .client').length > 1000")
    assert busy_seconds(browser) - before < 5
    said = ask(browser, "return document.querySelector('#routes .note:not([hidden])').textContent")
    assert "30 of 9,000 rounds are in this page" in said
    assert "of 150 routes are drawn" in said
    assert "more clients without a hop are not drawn" in said
    assert complaints(browser) == []


def busy_seconds(browser: Any) -> float:
    """How long the page has kept its thread busy, whatever else the machine does."""
    metrics = browser.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return float(next(each["value"] for each in metrics if each["name"] == "TaskDuration"))


MARKS = {
    "curves": ("#curves .line", "stroke"),
    "routes": ("#routes .track path", "stroke"),
    "targets": ("#targets .bar", "fill"),
    "results": ("[data-figure=results] .point", "fill"),
    "differences": ("[data-figure=differences] .point", "fill"),
    "clients": ("[data-figure=clients] .column rect", "fill"),
    "groups": ("[data-figure=groups] .column rect", "fill"),
    "forgetting": ("#forgetting .cell", "fill"),
    "communication": ("#communication .bar", "fill"),
}


def painted(browser: Any, name: str) -> dict[str, int]:
    """Of each colour that the marks of a figure should have: how many pixels of the picture have it."""
    css, kind = MARKS[name]
    colours = ask(browser, f"return [...new Set(all('{css}').map((each) => getComputedStyle(each).{kind}))]")
    shot = browser.find_element("css selector", f"[data-figure={name}] svg[role=img]").screenshot_as_png
    with Image.open(io.BytesIO(shot)) as picture:
        pixels = np.asarray(picture.convert("RGB")).astype(int)
    wanted = {each: [int(part) for part in re.findall(r"\d+", each)[:3]] for each in colours if each.startswith("rgb(")}
    return {colour: int((abs(pixels - rgb).max(axis=2) <= 8).sum()) for colour, rgb in wanted.items()}


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_figure_is_painted_in_the_colours_of_its_marks(browser, written, theme):
    look(browser, written.as_uri(), theme=theme)
    for name in MARKS:
        found = painted(browser, name)
        assert found, name
        assert min(found.values()) > 10, (name, found)
    ask(browser, "all('main svg > *').forEach((each) => { each.style.visibility = 'hidden'; })")
    assert not any(painted(browser, "communication").values())  # and an empty one is seen to be empty


@pytest.mark.slow
def test_the_page_of_a_tuning_begins_with_the_advice(browser, tuned, tmp_path):
    write_comparison_files(tuned.comparison, tuned.out / "comparison")
    page = tmp_path / "page.html"
    page.write_text(web_page(tuning_document(tuned)))
    look(browser, page.as_uri())
    assert complaints(browser) == []
    assert requests(browser) == []
    names = "return all('[data-figure=advice] tbody tr').map((row) => row.cells[0].firstElementChild.nextSibling.data)"
    assert ask(browser, names) == [each.name for each in tuned.standings]
    assert ask(browser, "return all('[data-figure=advice] .point').length") == 2
    ask(browser, "document.querySelector('#advice [data-value=bytes]').click()")
    assert ask(browser, "return all('[data-figure=advice] .bar').length") == 2
    assert ask(browser, "return all('[data-figure=learning-rates] .line').length") >= 2
    assert ask(browser, "return document.querySelector('.skip').hash") == "#advice"
    assert ask(browser, "return all('#curves .line').length") == 2


@pytest.mark.slow
def test_the_page_of_a_sweep_has_lines_and_heat_maps(browser, tmp_path):
    methods, common = ["fedavg", "fedseq"], {"rounds": 1, "workers": 1, "batch_size": 32}
    fr.compare(methods, sweep={"alpha": [0.1, 1]}, clients=6, seeds=[1, 2], out=tmp_path / "line", **common)
    fr.compare(methods, sweep={"alpha": [0, 1], "clients": [5, 6]}, out=tmp_path / "grid", **common)
    for name in ("line", "grid"):
        (tmp_path / f"{name}.html").write_text(web_page(document([tmp_path / name])))
    look(browser, (tmp_path / "line.html").as_uri())
    assert ask(browser, "return all('#sweep .line').length") == 2
    assert ask(browser, "return all('#sweep .band').length") == 2
    assert ask(browser, "return all('#sweep tbody tr').map((row) => row.cells.length)") == [3, 3]
    assert complaints(browser) == []
    look(browser, (tmp_path / "grid.html").as_uri(), 375)
    assert ask(browser, "return document.documentElement.scrollWidth - innerWidth") <= 0
    assert ask(browser, "return all('#sweep .cell').length") == 4
    ask(browser, "document.querySelectorAll('#sweep .segments button')[2].click()")
    texts = ask(browser, "return all('#sweep svg .cell + text').map((each) => each.textContent)")
    assert len(texts) == 4
    assert all(text.strip("()")[0] in "+-0" for text in texts)
    assert complaints(browser) == []
