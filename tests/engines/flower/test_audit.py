"""The audit trail: every hop is in it, signed by its node, and whatever is changed in it is noticed and named."""

from __future__ import annotations

import hashlib
import json
import random
from itertools import pairwise

import numpy as np
import pytest
import yaml

import fedrelay as fr
from fedrelay.cli import main
from fedrelay.engines.flower.messages import AUDIT, Message

pytest.importorskip("cryptography", reason="the extra 'flower' is not installed")

from fedrelay.engines.flower.audit_entries import SERVER_PURPOSE, AuditEntry, read_journal, written_line
from fedrelay.engines.flower.audit_verification import TrustedKeys, verify_audit
from fedrelay.engines.flower.credentials import make_server_folder, public_keys, public_text, requests_key
from fedrelay.engines.flower.reply_signatures import REPLY_PURPOSE
from fedrelay.engines.flower.sealing import sign

USUAL = {"rounds": 2, "batch_size": 64, "seed": 3, "fraction": 1.0, "recovery.timeout": 0.05, "checkpoint.seconds": 0.0}
GROUPS = {"grouping.max_clients": 3, "grouping.min_samples": 5000, "grouping.assign": "random"}


@pytest.fixture
def make_three(digit_nodes, tmp_path):
    def make(**options):
        make_server_folder(tmp_path / "server", ["localhost"])
        return digit_nodes(3, server=tmp_path / "server", **({"signed": True} | options))

    return make


@pytest.fixture
def three(make_three):
    return make_three()


def run(folder, **settings):
    engine = {"name": "flower", "folder": folder.parent / "server"}
    return fr.run("fedseq", engine=engine, data="nodes", out=folder, **{**USUAL, **GROUPS, **settings})


def trusted(folder, **changes):
    server = folder.parent / "server"
    return TrustedKeys(**{"nodes": public_keys(server), "authority": (server / "ca.pem").read_bytes()} | changes)


def verified(folder, journals=(), **changes):
    run_id = json.loads((folder / "run.json").read_text())["name"]
    return verify_audit(folder / "audit.jsonl", trusted(folder, **changes), run_id, journals)


def lines(folder):
    return (folder / "audit.jsonl").read_bytes().splitlines(keepends=True)


def hops(report):
    return [row for row in report.rows if row["event"] != "start"]


def test_every_hop_is_in_it_from_model_to_model(three, tmp_path):
    result = run(tmp_path / "run")
    report = verified(tmp_path / "run")
    assert report.whole
    assert not report.remarks
    found = hops(report)
    assert [(row["round"], row["route"], row["position"]) for row in found] == [
        (r, 0, p) for r in (1, 2) for p in range(3)
    ]
    assert sorted(row["node"] for row in found[:3]) == ["n00", "n01", "n02"]
    for before, after in pairwise(found):
        assert before["model_out"] == after["model_in"]  # one route, so the server's merge is that model
        assert before["time"] <= after["time"]
    assert found[-1]["model_out"] == result.weights_sha256
    held = {name: three.connection.services[name].data.sample_count(0) for name in three.names}
    assert all(row["samples"] == held[row["node"]] for row in found)
    assert all(row["time"].endswith("Z") and row["loss"] > 0 for row in found)


def test_whatever_byte_is_changed_its_line_is_named(three, tmp_path):
    run(tmp_path / "run", rounds=1)
    path, before = tmp_path / "run" / "audit.jsonl", (tmp_path / "run" / "audit.jsonl").read_bytes()
    chance = random.Random(5)
    for place in [0, len(before) - 1, len(before) - 3, *chance.sample(range(len(before)), 60)]:
        changed = bytearray(before)
        changed[place] ^= chance.choice([1, 2, 32])  # 32 makes capital letters small
        path.write_bytes(bytes(changed))
        report = verified(tmp_path / "run")
        assert report.problem.startswith(f"line {before[:place].count(10) + 1}: "), (place, report.problem)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_line_that_is_removed_or_moved_is_named(number, three, tmp_path):
    run(tmp_path / "run", rounds=1)
    path, before = tmp_path / "run" / "audit.jsonl", lines(tmp_path / "run")
    path.write_bytes(b"".join(before[: number - 1] + before[number:]))
    assert verified(tmp_path / "run").problem.startswith(f"line {number}: ")
    swapped = [*before[: number - 1], before[number], before[number - 1], *before[number + 1 :]]
    path.write_bytes(b"".join(swapped))
    assert verified(tmp_path / "run").problem.startswith(f"line {number}: ")


def rewritten(folder, keep):
    """What a dishonest server can do: drop, move or add lines, and sign and chain those that follow again."""
    key, previous, found = requests_key(folder.parent / "server"), "", b""
    for line in keep(lines(folder)):
        row = json.loads(line)
        if row["previous"] != previous or not row.get("signature"):
            row = {name: value for name, value in row.items() if name != "signature"} | {"previous": previous}
            line = written_line(row, lambda content: sign(key, SERVER_PURPOSE, content))
        found, previous = found + line, hashlib.sha256(line[:-1]).hexdigest()
    (folder / "audit.jsonl").write_bytes(found)


@pytest.mark.parametrize(
    ("keep", "problem"),
    [
        (lambda all: all[:2] + all[3:], "was told of a line that is not here"),  # a hop before the end
        (lambda all: [all[0], all[2], all[1], *all[3:]], "was told of a line that is not here"),
        (lambda all: all[:-2] + all[-1:], "was told of a line that is not here"),
    ],
)
def test_a_server_that_signs_everything_again_cannot_drop_or_move_a_hop(keep, problem, three, tmp_path):
    run(tmp_path / "run")
    rewritten(tmp_path / "run", keep)
    assert problem in verified(tmp_path / "run").problem


def test_a_server_cannot_add_a_hop_that_a_node_has_not_signed(three, tmp_path):
    run(tmp_path / "run", rounds=1)
    key = requests_key(tmp_path / "server")

    def invented(all):
        row = json.loads(all[-1])
        del row["signature"]
        entry = AuditEntry.from_plain(row["entry"])
        stated = {**entry.header[AUDIT], "number": 2, "previous": entry.digest}
        entry = AuditEntry({**entry.header, AUDIT: stated}, entry.arrays)
        signature = sign(key, REPLY_PURPOSE, entry.digest.encode()).hex()
        row["entry"] = AuditEntry({**entry.header, "signature": signature}, entry.arrays).plain()
        return [*all, json.dumps(row).encode()]

    rewritten(tmp_path / "run", invented)
    assert "line 5: node" in verified(tmp_path / "run").problem
    assert "has not signed this entry with the key in the roster" in verified(tmp_path / "run").problem


def test_a_server_that_drops_the_end_is_found_out_by_a_journal(three, tmp_path):
    run(tmp_path / "run")
    journals = [path for name in three.names for path in (three.folder / name / "audit").iterdir()]
    assert len(journals) == 3
    assert verified(tmp_path / "run", journals).whole
    last = json.loads(lines(tmp_path / "run")[-1])["node"]
    rewritten(tmp_path / "run", lambda all: all[:-1])
    assert verified(tmp_path / "run").whole  # from the file alone it cannot be seen
    problem = verified(tmp_path / "run", journals).problem
    assert f"/{last}/" in problem
    assert "entry 2 (round 2, " in problem


def test_the_whole_trail_of_another_run_is_not_taken_for_this_one(three, tmp_path, capsys):
    for name in ("run", "other"):
        run(tmp_path / name, rounds=1)
    (tmp_path / "run" / "audit.jsonl").write_bytes((tmp_path / "other" / "audit.jsonl").read_bytes())
    assert main(["audit", str(tmp_path / "run")]) == 4
    assert "line 1: is of another run, " in " ".join(capsys.readouterr().err.split())


def test_a_journal_that_shows_nothing_is_no_proof(three, tmp_path, capsys):
    run(tmp_path / "run", rounds=1)
    run(tmp_path / "other", rounds=1)
    run_id = json.loads((tmp_path / "run" / "run.json").read_text())["name"]
    folder = three.folder / three.names[0] / "audit"
    [other] = [path for path in folder.iterdir() if path.stem != run_id]
    assert "has no entry of this run" in verified(tmp_path / "run", [other]).problem
    for path, problem in ((tmp_path / "none.jsonl", "No such file"), (folder, "not a regular file")):
        assert main(["audit", str(tmp_path / "run"), "--journal", str(path)]) == 4
        assert f"{path}: cannot be read ({problem}" in " ".join(capsys.readouterr().err.split())


def test_a_journal_cannot_accuse_the_server_of_what_no_node_has_signed(three, tmp_path):
    run(tmp_path / "run", rounds=1)
    [journal] = (three.folder / three.names[0] / "audit").iterdir()
    entry = json.loads(journal.read_text())
    entry["header"][AUDIT]["number"] = 2
    journal.write_text(journal.read_text() + json.dumps(entry) + "\n")
    assert "entry 2 is signed by no node of this run" in verified(tmp_path / "run", [journal]).problem


def test_another_key_than_that_of_the_roster_is_named(three, tmp_path):
    run(tmp_path / "run", rounds=1)
    keys = public_keys(tmp_path / "server")
    other = keys | {"n01": keys["n00"]}
    assert (
        verified(tmp_path / "run", nodes=other).problem == "line 1: the key of node 'n01' is not the one in the roster"
    )
    report = verified(tmp_path / "run", nodes={}, authority=None)
    assert report.whole
    assert len(report.remarks) == 2
    make_server_folder(tmp_path / "other", ["localhost"])
    report = verified(tmp_path / "run", authority=(tmp_path / "other" / "ca.pem").read_bytes())
    assert report.problem.startswith("line 1: the certificate of the server is not valid")


def test_resume_repeats_nothing_and_leaves_no_gap(three, tmp_path):
    """The server dies after a node has replied, and before it has read the reply; then it resumes."""

    class Killed(BaseException):
        pass

    def die(request, reply):
        if request.header["hop"][0] == 2 and request.header["hop"][2] == 1:
            raise Killed
        return reply

    undisturbed = run(tmp_path / "undisturbed", rounds=3).weights_sha256
    three.connection.reply_faults = dict.fromkeys(three.names, die)
    with pytest.raises(Killed):
        run(tmp_path / "run", rounds=3)
    with (tmp_path / "run" / "audit.jsonl").open("ab") as file:
        file.write(b'{"time": "2026-')  # a line that a loss of power has left in part
    before = lines(tmp_path / "run")[:-1]
    three.connection.reply_faults, three.connection.pending = {}, {}
    three.restart()
    assert fr.resume(tmp_path / "run").weights_sha256 == undisturbed
    report = verified(tmp_path / "run")
    assert report.whole, report.problem
    assert lines(tmp_path / "run")[: len(before)] == before
    journals = [read_journal(path) for name in three.names for path in (three.folder / name / "audit").iterdir()]
    run_id = report.rows[0] and json.loads(before[0])["run"]
    trained = [entry.digest for journal in journals for entry in journal if entry.statement.run == run_id]
    recorded = [row["entry_sha256"] for row in report.rows if "entry_sha256" in row]
    assert sorted(trained) == sorted(recorded)
    assert len(set(recorded)) == len(recorded) == 9 + 2  # round 2 began twice, and its second hop was trained twice
    assert [row["note"] for row in report.rows if row["event"] == "earlier"] == ["came late"]


def test_refusals_failures_and_silence_are_entries(three, tmp_path):
    three.connection.reply_faults["n00"] = lambda request, reply: None
    three.connection.services["n01"].respond = _declining(three.connection.services["n01"])
    run(tmp_path / "run", **{"guard.on_divergence": "skip"}, rounds=1)
    report = verified(tmp_path / "run")
    assert report.whole, report.problem
    found = {row["node"]: row for row in hops(report)}
    assert found["n00"]["note"] == "no reply in 0.05 s"
    assert "entry_sha256" not in found["n00"]
    assert found["n01"]["note"] == "failed: not today"
    assert found["n01"]["entry_sha256"]  # it has signed that
    assert found["n02"]["note"] == ""


def _declining(service):
    from fedrelay.engines.flower.node.owner_privacy_policy import DeclinedByOwner

    def decline(request):
        raise DeclinedByOwner("not today")

    service._hop = decline
    return service.respond


def test_a_reply_that_the_guard_refuses_is_in_it_with_the_reason(three, tmp_path):
    run(tmp_path / "run", rounds=1, faults=[{"what": "nan", "clients": [1]}], **{"guard.on_divergence": "skip"})
    report = verified(tmp_path / "run")
    assert report.whole
    [refused] = [row for row in hops(report) if row["note"]]
    assert refused["node"] == "n01"
    assert "finite" in refused["note"]
    assert refused["model_out"] == ""


def test_a_node_that_withdraws_is_noted_once_and_its_key_may_go(three, tmp_path):
    run(tmp_path / "run", rounds=1)
    fr.resume(tmp_path / "run", rounds=2, without=["n01"])
    fr.resume(tmp_path / "run", rounds=3)
    report = verified(tmp_path / "run")
    assert report.whole
    assert [row["node"] for row in report.rows if row["event"] == "withdrawn"] == ["n01"]
    keys = public_keys(tmp_path / "server")
    del keys["n01"]
    report = verified(tmp_path / "run", nodes=keys)
    assert report.whole
    assert report.remarks == ["the key of node 'n01' is not in the roster, but only in the trail itself"]


def test_sealed_hops_show_digests_of_envelopes_and_of_no_model(make_three, tmp_path):
    three = make_three(sealed=True)
    models = _models_between_clients(three)
    run(tmp_path / "run", **{"route.handover": "sealed"})
    report = verified(tmp_path / "run")
    assert report.whole, report.problem
    first, second, third, *_ = hops(report)
    assert first["model_out"] == second["model_in"]  # the server hands on what it was given
    assert second["model_out"] == third["model_in"]
    text = (tmp_path / "run" / "audit.jsonl").read_text()
    assert len(models) == 4
    assert not any(digest in text for digest in models)
    assert third["model_out"] in text


def _models_between_clients(nodes):
    """Collects the digests of models that clients hand to each other."""
    found = set()
    for service in nodes.connection.services.values():
        open_hop = service._hop

        def hop(request, open_hop=open_hop):
            reply = open_hop(request)
            if request.header["hop"][2] < 2:
                found.add(reply.header[AUDIT]["model_out"])
            return reply

        service._hop = hop
    return found


def test_a_request_that_the_server_did_not_make_leaves_no_entry(three, tmp_path):
    run(tmp_path / "run", rounds=1)
    [journal] = (three.folder / "n00" / "audit").iterdir()
    before = journal.read_bytes()
    request = Message({"kind": "hop", "run": journal.stem, "hop": [9, 0, 0, 0, 0, 1]}, {"models": np.zeros((1, 4))})
    assert three.connection.services["n00"].respond(request).header["reason"].startswith("unsigned request")
    assert journal.read_bytes() == before


def test_a_node_without_its_journal_goes_on_where_the_trail_is(three, tmp_path, caplog):
    run(tmp_path / "run", rounds=1)
    for path in (three.folder / "n00" / "audit").iterdir():
        path.unlink()
    three.restart_one("n00")
    fr.resume(tmp_path / "run", rounds=2)
    assert "is behind the server's; it continues at entry 2" in caplog.text
    assert verified(tmp_path / "run").whole


def test_resume_refuses_a_trail_that_was_changed(three, tmp_path):
    run(tmp_path / "run", rounds=1)
    path = tmp_path / "run" / "audit.jsonl"
    path.write_bytes(b"".join([*lines(tmp_path / "run")[:1], *lines(tmp_path / "run")[2:]]))
    with pytest.raises(fr.FedRelayError, match=r"audit.jsonl, line 2: does not follow line 1"):
        fr.resume(tmp_path / "run", rounds=2)


def test_the_command_prints_the_table_and_its_exit_code(three, tmp_path, capsys):
    run(tmp_path / "run", rounds=1)
    folder = str(tmp_path / "run")
    assert main(["audit", folder, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["whole"]
    assert [row["node"] for row in told["lines"][1:]] == list(told["nodes"])
    assert all(each["entries"] == 1 for each in told["nodes"].values())
    assert main(["audit", folder]) == 0
    assert "The trail is whole: 4 lines" in capsys.readouterr().out
    path, before = tmp_path / "run" / "audit.jsonl", (tmp_path / "run" / "audit.jsonl").read_bytes()
    place = before.index(b'"samples": ', before.index(b"\n", before.index(b"\n") + 1)) + len(b'"samples": ')
    path.write_bytes(before[:place] + b"9" + before[place + 1 :])
    assert main(["audit", folder]) == 4
    assert "line 3: was changed after it was written" in capsys.readouterr().err
    keys = {name: {"key": public_text(key)} for name, key in public_keys(tmp_path / "server").items()}
    path.write_bytes(before)
    keys["n00"] = {"key": public_text(requests_key(tmp_path / "server").public_key())}
    (tmp_path / "roster.yaml").write_text(yaml.safe_dump({"nodes": keys}))
    assert main(["audit", folder, "--roster", str(tmp_path / "roster.yaml")]) == 4
    assert "line 1: the key of node 'n00' is not the one in the roster" in capsys.readouterr().err


def test_a_simulation_has_none(tmp_path, capsys):
    fr.run("fedavg", clients=3, rounds=1, out=tmp_path / "run")
    assert main(["audit", str(tmp_path / "run")]) == 4
    assert "has no audit trail, because its clients are simulated" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ({"run": "0" * 16}, "it is for another run"),
        ({"round": 7}, "it is for another hop"),
        ({"head": "0" * 64}, "its node was told of a line that is not here"),
        ({"number": 5}, "its entry comes with a later reply"),
        ({"round": -1}, "round must be a whole number"),
        ({"x": "x" * 100_000}, "it has more than 65536 bytes"),
    ],
)
def test_a_node_that_states_nonsense_does_not_spoil_the_trail(statement, problem, three, tmp_path):
    service = three.connection.services["n01"]
    stated = service._with_statement

    def nonsense(request, reply):
        found = stated(request, reply)
        return Message({**found.header, AUDIT: {**found.header[AUDIT], **statement}}, found.arrays)

    service._with_statement = nonsense
    run(tmp_path / "run", rounds=1)
    report = verified(tmp_path / "run")
    assert report.whole, report.problem
    [row] = [row for row in hops(report) if row["node"] == "n01"]
    assert problem in row["note"]
    assert "entry_sha256" not in row


def test_earlier_entries_that_a_node_invents_are_not_recorded(three, tmp_path):
    service = three.connection.services["n01"]
    stated = service._with_statement

    def inventing(request, reply):
        found = stated(request, reply)
        invented = {"header": {"kind": "hop", AUDIT: {**found.header[AUDIT], "number": 1}}, "arrays": {}}
        content = np.frombuffer(json.dumps([invented]).encode(), np.uint8)
        return Message({**found.header, AUDIT: {**found.header[AUDIT], "number": 2}}, {**found.arrays, AUDIT: content})

    service._with_statement = inventing
    run(tmp_path / "run", rounds=1)
    report = verified(tmp_path / "run")
    assert report.whole, report.problem
    assert "its entry is not recorded: its node has not signed it" in [row["note"] for row in report.rows]


def test_an_entry_is_the_signed_reply_without_its_arrays(three, tmp_path):
    run(tmp_path / "run", rounds=1)
    entry = AuditEntry.from_plain(json.loads(lines(tmp_path / "run")[1])["entry"])
    [[kind, shape, digest]] = entry.arrays.values()
    assert (kind, len(shape), len(digest)) == ("<f4", 2, 64)
    assert digest == entry.statement.model_out  # the only row of the array is the model
