from __future__ import annotations

import json
import re
import signal
import urllib.request

import pytest

pytestmark = pytest.mark.usefixtures("no_drawing")


@pytest.fixture
def compared(program, tiny):
    ended = program("compare", "fedavg", "fedseq", *tiny, "--seeds", "1,2", "--out", "here", "-q")
    assert ended.code == 0, ended.err


def test_a_report_is_one_file_beside_the_runs(compared, program, tmp_path):
    ended = program("report", "here")
    assert ended.code == 0, ended.err
    assert "here/report.html" in ended.out
    assert "open it with" in ended.out
    page = (tmp_path / "here/report.html").read_text()
    found = json.loads(re.search(r'id="document">(.*?)</script>', page, re.S)[1])
    assert found["title"] == "fedavg, fedseq on digits"
    assert found["states"] == {"complete": 4}
    assert program("resume", "here", "-q").code == 0  # the file does not disturb the comparison


def test_tables_and_figures_on_request(program, tiny, tmp_path):
    assert program("run", "fedavg", *tiny, "--out", "here", "-q").code == 0
    folders = ["--csv", "tables", "--png", "figures", "--svg", "figures", "--pdf", "figures"]
    ended = program("report", "here", "--out", "new/page.html", *folders, "--json")
    assert ended.code == 0, ended.err
    assert ended.json["report"] == "new/page.html"
    assert "tables/curves.csv" in ended.json["csv"]
    for kind in ("png", "svg", "pdf"):
        assert f"figures/curves-accuracy.{kind}" in ended.json[kind]
    files = [name for kind in ("csv", "png", "svg", "pdf") for name in ended.json[kind]]
    for name in (ended.json["report"], *files):
        assert (tmp_path / name).stat().st_size > 0


def test_single_runs_side_by_side(program, tiny, tmp_path):
    for method in ("fedavg", "fedseq"):
        assert program("run", method, *tiny, "--out", method, "-q").code == 0
    ended = program("report", "fedavg", "fedseq", "--out", ".", "--json")
    assert ended.json["methods"] == ["fedavg", "fedseq"]
    assert (tmp_path / "report.html").is_file()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["report", "nowhere"], 4, "nowhere: there is no such run folder"),
        (["report", "."], 4, r".: is not a run folder \(run.json is missing\)"),
        (["watch", "file"], 4, "file: "),
        (["watch", "other"], 4, r"other: is not a run folder \(run.json is missing\)"),
        (["watch", ".", "--port", "70000"], 2, "--port.*70000"),
    ],
)
def test_bad_folders_and_ports_get_one_message(program, tmp_path, words, code, message):
    (tmp_path / "other").mkdir()
    for name in ("file", "other/file"):
        (tmp_path / name).write_text("")
    ended = program(*words)
    assert ended.code == code
    assert re.search(message, ended.err)
    assert "Traceback" not in ended.err


def test_a_page_that_cannot_be_written_is_named(compared, program, tmp_path):
    (tmp_path / "file").write_text("")
    ended = program("report", "here", "--out", "file/page.html")
    assert ended.code == 4
    assert "file: cannot be created" in ended.err


def test_watching_says_where_and_ends_with_a_message(compared, warm_python, tmp_path):
    command = ["-m", "fedrelay", "watch", "here", "later", "--port", "0"]
    watching = warm_python.start(*command, folder=tmp_path)
    try:
        watching.says("later, which does not exist yet")
        address = re.search(r"http://127\.0\.0\.1:\d+/", watching.out.splitlines()[0])[0]
        with urllib.request.urlopen(f"{address}document.json", timeout=20) as answer:
            found = json.load(answer)
        assert found["states"] == {"complete": 4}
        assert found["missing"] == ["later"]
        watching.send_signal(signal.SIGINT)
        watching.wait(20)
    finally:
        watching.kill()  # whatever happens, nobody waits for it any longer
    assert watching.returncode == 0
    assert "Stopped watching. To keep the page, run:  fedrelay report here later" in watching.out
    assert watching.err == ""


def test_run_and_resume_write_tensorboard_logs(program, tiny, tmp_path):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    assert program("run", "fedavg", *tiny, "--out", "here", "-q", "--tensorboard").code == 0
    [events] = (tmp_path / "here/tensorboard").iterdir()
    assert events.stat().st_size > 100
    assert program("resume", "here", "-q", "--tensorboard").code == 0
    assert len(list((tmp_path / "here/tensorboard").iterdir())) == 1
