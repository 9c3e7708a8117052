from __future__ import annotations

import http.client
import json
import shutil
import socket
import threading

import pytest
from tests.report.folders import ran, stopped

import fedrelay as fr
from fedrelay.report import watch_server
from fedrelay.report.report_content import document
from fedrelay.report.watch_server import LOOPBACK, WatchServer, current_document, missing_folders
from fedrelay.report.web_page import as_json
from fedrelay.runtime.run_folder import RunFolder


@pytest.fixture
def serve():
    servers = []

    def start(*paths, **options):
        server = WatchServer(paths, 0, **options)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        servers.append((server, thread))
        return server

    yield start
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()


def ask(server, path="/", method="GET", host=None, **headers):
    connection = http.client.HTTPConnection(LOOPBACK, server.server_port, timeout=20)
    headers |= {"Host": f"{LOOPBACK}:{server.server_port}" if host is None else host}
    connection.putrequest(method, path, skip_host=True)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer, content


def test_page_and_document(serve, slots_folder):
    server = serve(slots_folder)
    answer, page = ask(server)
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert b"connect-src 'self'" in page
    answer, content = ask(server, "/document.json")
    assert json.loads(content)["states"] == {"complete": 1}
    again, nothing = ask(server, "/document.json", If_None_Match=answer.headers["ETag"])
    assert (again.status, nothing) == (304, b"")
    head, nothing = ask(server, method="HEAD")
    assert (head.status, nothing) == (200, b"")
    assert server.address == f"http://127.0.0.1:{server.server_port}/"


def test_the_page_is_never_older_than_the_folders(serve, tmp_path):
    server = serve(tmp_path / "sweep" / "cell" / "fedavg" / "seed-1")
    ran(tmp_path / "sweep" / "cell" / "fedavg" / "seed-1", "fedavg", rounds=1)
    assert b"fedavg on digits" in ask(server)[1]
    places = [entry[0] for entry in watch_server.folder_state([tmp_path / "sweep"])]
    assert any(place.endswith("metrics.jsonl") for place in places)  # a sweep has runs three levels down


def test_it_listens_on_this_machine_alone(serve, slots_folder):
    assert serve(slots_folder).server_address[0] == "127.0.0.1"


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "", "127.0.0.1", "localhost:1", "127.0.0.1.evil:80"]
)
def test_other_hosts_are_refused(serve, slots_folder, host):
    server = serve(slots_folder)
    for path in ("/", "/document.json"):
        answer, content = ask(server, path, host=host)
        assert answer.status == 421
        assert b"fedseqinter" not in content
    assert ask(server, host=f"localhost:{server.server_port}")[0].status == 200


@pytest.mark.parametrize(
    "path", ["/run.json", "/../run.json", "/%2e%2e/etc/passwd", "//etc/passwd", "/document.json/../../x", "/?x"]
)
def test_nothing_else_is_served(serve, slots_folder, path):
    assert ask(serve(slots_folder), path)[0].status == 404


def test_other_methods_are_refused(serve, slots_folder):
    assert ask(serve(slots_folder), method="POST")[0].status == 501


def test_it_follows_a_run_to_its_end(serve, tmp_path):
    run = stopped(tmp_path / "run", "fedavg", after=1)
    server = serve(run)

    def seen():
        found = json.loads(ask(server, "/document.json")[1])
        return found["methods"][0]["runs"][0]["state"], found["methods"][0]["curves"]["round"]

    assert seen() == ("stopped", [1])
    fr.resume(run)
    assert seen() == ("complete", [1, 2, 3])


def test_a_folder_may_come_later(serve, slots_folder, tmp_path):
    run = tmp_path / "run"
    server = serve(run, slots_folder)
    found = json.loads(ask(server, "/document.json")[1])
    assert (found["missing"], found["states"]) == ([str(run)], {"complete": 1})
    run.mkdir()
    assert json.loads(ask(server, "/document.json")[1])["missing"] == [str(run)]
    shutil.copytree(slots_folder, run, dirs_exist_ok=True)
    found = json.loads(ask(server, "/document.json")[1])
    assert (found["missing"], found["states"]) == ([], {"complete": 2})
    alone = current_document([tmp_path / "elsewhere"])
    assert alone["title"] == f"Waiting for {tmp_path / 'elsewhere'}"
    assert alone["methods"] == []


def test_a_run_that_is_being_created_is_missing(serve, slots_folder, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    for name in (".lock", ".spec.yaml.7.tmp", "spec.yaml", "plan.json"):
        (run / name).write_text("")
        assert missing_folders([run]) == [run]
        assert current_document([run])["missing"] == [str(run)]
    RunFolder.check(run)  # a new run can begin there
    (run / "notes.txt").write_text("")
    with pytest.raises(fr.RunFolderError, match="is not a run folder"):
        current_document([run])


def test_an_unchanged_document_is_written_out_once(serve, slots_folder, monkeypatch):
    written = []

    def noted(found):
        written.append(1)
        return as_json(found)

    monkeypatch.setattr(watch_server, "as_json", noted)
    server = serve(slots_folder)
    answers = [ask(server, "/document.json") for _ in range(3)]
    assert len({content for _, content in answers}) == 1
    assert len({answer.headers["ETag"] for answer, _ in answers}) == 1
    assert len(written) == 1


def test_a_folder_that_breaks_is_reported_and_the_page_lives_on(serve, slots_folder, tmp_path):
    run = shutil.copytree(slots_folder, tmp_path / "run")
    server = serve(run)
    metrics = run / "metrics.jsonl"
    whole = metrics.read_bytes()
    metrics.write_text("{]\n")
    assert "is damaged" in json.loads(ask(server, "/document.json")[1])["error"]
    assert ask(server)[0].status == 200
    metrics.write_bytes(whole)
    assert json.loads(ask(server, "/document.json")[1])["states"] == {"complete": 1}


def test_folders_are_only_read_again_where_something_is_new(slots_folder, tmp_path):
    run = shutil.copytree(slots_folder, tmp_path / "run")
    looks = []

    def look(paths):
        looks.append(1)
        return document(paths)

    with WatchServer([run], 0, look=look) as server:
        assert server.current() is server.current()
        assert len(looks) == 1
        with (run / "metrics.jsonl").open("a") as file:
            file.write("{")  # half a line is no news to tell, but is looked at
        assert server.current().document["states"] == {"complete": 1}
        assert len(looks) == 2


def test_a_port_in_use_is_named(slots_folder):
    with socket.socket() as other:
        other.bind((LOOPBACK, 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(fr.SpecError, match=f"--port: {port} is in use by another program; choose another one"):
            WatchServer([slots_folder], port)
