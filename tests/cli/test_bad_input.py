"""Whatever is wrong with the input, one clear message, the right exit code, no traceback, nothing half done."""

from __future__ import annotations

import shutil

import pytest

from fedrelay.cli import main

FILES = {
    "nothing.yaml": "method: ''\n",
    "broken.yaml": "method: [fedseq\n",
    "binary.yaml": "\x00\x01",
    "list.yaml": "- fedseq\n",
    "empty.yaml": "",
    "nomethod.yaml": "rounds: 3\n",
    "both.yaml": "method: fedavg\nmethods: [fedavg]\n",
    "one.yaml": "method: fedavg\n",
    "many.yaml": "methods: [fedavg, fedseq]\n",
    "unknown.yaml": "method: fedavg\nlearning_rate: 3\n",
    "short.yaml": "method: fedavg\nalpha: 0\n",
    "typed.yaml": "method: fedavg\nrounds: soon\n",
    "nested.yaml": "method: fedavg\ntrain: {lrr: 3}\n",
    "section.yaml": "method: fedavg\ntrain: 3\n",
    "entry.yaml": "methods: [{method: fedavg, colour: red}]\n",
    "plain.txt": "occupied",
}
CASES = {
    "unknown command": ("rnu fedseq", 2, "rnu"),
    "no method": ("run", 2, "METHOD|FILE"),
    "unknown option": ("run fedseq --clinets 3", 2, "--clinets"),
    "option without value": ("run fedseq --lr", 2, "--lr"),
    "option of the wrong type": ("run fedseq --clients ten", 2, "--clients"),
    "unknown method": ("run fedsec", 2, "did you mean 'fedseq'"),
    "unknown part of a method": ("run fedseq+fedprux", 2, "did you mean 'fedprox'"),
    "two routes": ("run fedavg+fedseq", 2, "both bring a route"),
    "empty method": ("run fedseq+", 2, "a name is missing"),
    "missing file": ("run missing.yaml", 2, "missing.yaml: cannot be read"),
    "broken YAML": ("run broken.yaml", 2, "broken.yaml, line 2: not valid YAML"),
    "binary file": ("run binary.yaml", 2, "binary.yaml: not valid YAML"),
    "a list": ("run list.yaml", 2, "list.yaml: an experiment must be a mapping"),
    "empty file": ("run empty.yaml", 2, "empty.yaml"),
    "file without method": ("run nomethod.yaml", 2, "needs either 'method'"),
    "both method and methods": ("compare both.yaml", 2, "needs either 'method'"),
    "comparison given to run": ("run many.yaml", 2, "fedrelay compare many.yaml"),
    "comparison given to plan": ("plan many.yaml", 2, "is a comparison"),
    "run given to compare": ("compare one.yaml", 2, "fedrelay run one.yaml"),
    "file among methods": ("compare fedavg many.yaml", 2, "many.yaml: cannot be combined with other methods"),
    "folder given to run": ("run finished", 2, "fedrelay resume finished"),
    "unknown key": ("run unknown.yaml", 2, "learning_rate: unknown key"),
    "short name in a file": ("run short.yaml", 2, "alpha: in a file, put it into the section 'data'"),
    "unknown key in a section": ("run nested.yaml", 2, "train.lrr: unknown key 'lrr' (did you mean 'lr'?)"),
    "wrong type in a file": ("run typed.yaml", 2, "rounds: must be a whole number"),
    "value for a section": ("run section.yaml", 2, "train"),
    "unknown key of a method": ("compare entry.yaml", 2, "colour"),
    "the same method twice": ("compare fedavg fedavg", 2, "fedavg is listed twice"),
    "seeds that are none": ("compare fedavg --seeds 1,x", 2, "--seeds"),
    "seed and seeds": ("compare fedavg --seed 1 --seeds 1,2", 2, "--seed and --seeds"),
    "negative seed": ("run fedavg --seed -1", 2, "seed: must be greater"),
    "set without value": ("run fedavg --set lr", 2, "--set lr: must be KEY=VALUE"),
    "set of an unknown path": ("run fedavg --set trian.lr=1", 2, "did you mean 'train'"),
    "set below a value": ("run fedavg --set rounds.x=1", 2, "rounds"),
    "set with broken YAML": ("run fedavg --set lr=[", 2, "--set lr=[: the value is not valid YAML"),
    "option of a part that is not there": ("run fedavg --set grouping.max_clients=3", 2, "forms no groups"),
    "unknown option of a part": ("run fedseq --set route.lops=2", 2, "route.lops: unknown key"),
    "term that is not there": ("run fedseq --set terms.prox.mu=1", 2, "terms.prox"),
    "impossible option of a part": ("run fedseq --set route.loops=0", 2, "route.loops: must be greater"),
    "option that no compared method takes": ("compare fedavg --set route.loops=2", 2, "route: no method"),
    "option of a route as a setting": (
        "run fedseq --set loops=2",
        2,
        "loops: is an option of a part of 'fedseq'; use",
    ),
    "option of a term as a setting": ("compare fedavg fedseq+fedprox --set mu=0.3", 2, "use terms.prox.mu"),
    "the same names in another order": (
        "compare fedseq+fedprox fedprox+fedseq",
        2,
        "'fedprox+fedseq' is 'fedseq+fedprox' in another order",
    ),
    "a name twice": ("run fedprox+fedprox", 2, "duplicate name 'fedprox'"),
    "a term twice": ("run feddc+scaffold", 2, "'feddc' and 'scaffold' both bring the term 'control'"),
    "a warm-up longer than the run": (
        "run wfsl --rounds 3",
        2,
        "takes 50 (warmup.cycles), got 3; lower",
    ),
    "unknown option of a selector": ("run wfsl --set warmup.select.kind=x", 2, "allowed: by, count, population"),
    "half a retry": ("run fedavg --set recovery.retries=1.5", 2, "recovery.retries: must be a whole number, got 1.5"),
    "no list": ("run fedavg --set targets=x", 2, "eval.targets: must be a list such as [a, b], got 'x'"),
    "no method at all": ("run nothing.yaml", 2, "method: must not be empty, got ''"),
    "no seeds": ("compare fedavg --set seeds=[]", 2, "seeds: must not be empty, got []"),
    "no targets": ("compare fedavg --set targets=[]", 2, "eval.targets: must not be empty, got []"),
    "rounds 0": ("run fedavg --rounds 0", 2, "rounds: must be greater than or equal to 1"),
    "truth for a number": ("run fedavg --set rounds=true", 2, "rounds: must not be true or false"),
    "clients 0": ("run fedavg --clients 0", 2, "data.clients: must be greater than or equal to 1"),
    "fraction above 1": ("run fedavg --fraction 1.5", 2, "fraction: must be less than or equal to 1"),
    "learning rate 0": ("run fedavg --lr 0", 2, "train.lr: must be greater than 0"),
    "learning rate not a number": ("run fedavg --lr nan", 2, "train.lr"),
    "negative alpha": ("run fedavg --alpha -1", 2, "data.alpha: must be greater than or equal to 0"),
    "column as a score": ("run fedavg --target ill", 2, "'ill' is not a number: the score at which to stop; for"),
    "misspelt class weights": (
        "run fedavg --set task.class_weights=balance",
        2,
        "task.class_weights: must be 'none' or 'balanced', or a list such as [a, b], "
        "got 'balance' (did you mean 'balanced'?)",
    ),
    "unknown partition": ("run fedavg --partition shard", 2, "did you mean 'shards'"),
    "no natural clients": ("run fedavg --partition natural", 2, "no natural clients"),
    "more clients than samples": ("run fedavg --clients 5000", 3, "1438 samples are too few for 5000 clients"),
    "unknown data set": ("run fedavg --data mnits", 2, "unknown data set 'mnits' (did you mean 'mnist'?)"),
    "missing data": ("run fedavg --data mnist", 3, "data set 'mnist' not found"),
    "missing data file": ("run fedavg --data gone.npz", 3, "gone.npz"),
    "damaged data": ("run fedavg --data npz --data-path plain.txt", 3, "plain.txt"),
    "model without its module": ("run fedavg --model make_net", 2, "a model of your own is MODULE:FUNCTION"),
    "misspelt run folder": ("resume finishd", 4, "there is no such run folder (did you mean 'finished'?)"),
    "unknown model": ("run fedavg --model mlpp", 2, "unknown model 'mlpp' (did you mean 'mlp'?)"),
    "model that does not fit": ("run fedavg --model char-lstm", 2, "char-lstm"),
    "unusable device": ("run fedavg --set device=warp:9", 2, "train.device: 'warp:9' cannot be used"),
    "start beyond the clients": ("run fedcyclic --set route.start=500", 2, "route.start"),
    "out folder occupied": ("run fedavg --out finished", 4, "finished: holds a run; continue it with"),
    "out folder is a file": ("run fedavg --out plain.txt", 4, "plain.txt: cannot be created"),
    "out folder of a comparison occupied": ("compare fedavg --out finished", 4, "finished: is not empty"),
    "round beyond the last": ("plan fedseq --rounds 5 --round 6", 2, "--round: must be between 1 and"),
    "unknown method to show": ("methods show fedsek", 2, "did you mean 'fedseq'"),
    "unknown data set to show": ("data show digit", 2, "did you mean 'digits'"),
    "setting without effect on data": ("data show --set lr=1", 2, "train: has no effect here"),
    "picture of unknown kind": ("data show --clients 10 --plot mix.bmp", 2, "mix.bmp: a figure must end in"),
    "picture where none can be": ("data show --clients 10 --plot gone/mix.png", 4, "gone/mix.png: cannot be written"),
    "run folder that is not there": ("resume nowhere", 4, "nowhere: there is no such run folder"),
    "foreign folder": ("resume foreign", 4, "foreign: is not a run folder"),
    "run of another format": ("resume later", 4, "run.json has format 99"),
    "damaged checkpoint": ("resume damaged", 4, "is damaged (its checksum differs"),
    "damaged spec": ("resume misspelt", 4, "spec.yaml: is not what the run was started with"),
    "damaged comparison": ("resume mixed", 4, "comparison.yaml is damaged"),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A finished run, and what can become of one."""
    place = tmp_path_factory.mktemp("folders")
    finished = place / "finished"
    words = ["run", "fedavg", "--clients", "10", "--rounds", "1", "--batch-size", "64", "--workers", "1"]
    assert main([*words, "--out", str(finished), "-q"]) == 0
    for name in ("later", "damaged", "misspelt"):
        shutil.copytree(finished, place / name)
    (place / "later/run.json").write_text('{"format": 99}')
    checkpoint = place / "damaged/round-1.safetensors"
    checkpoint.write_bytes(checkpoint.read_bytes()[:-1] + b"?")
    (place / "misspelt/spec.yaml").write_text("method: fedavg\nruonds: 3\n")
    (place / "foreign").mkdir()
    (place / "foreign/photo.jpg").write_bytes(b"")
    (place / "mixed").mkdir()
    (place / "mixed/comparison.yaml").write_text("methods: 3\n")
    for name, text in FILES.items():
        (place / name).write_text(text)
    return place


def contents(folder):
    return {path: path.is_file() and path.read_bytes() for path in folder.rglob("*") if path.name != ".lock"}


@pytest.mark.parametrize(("command", "code", "message"), CASES.values(), ids=CASES.keys())
def test_bad_input_gets_one_clear_message(program, folders, monkeypatch, command, code, message):
    monkeypatch.chdir(folders)
    before = contents(folders)
    ended = program(*command.split(" "))
    assert ended.code == code, ended.err
    assert message in ended.err
    assert ended.err.count("fedrelay: ") == 1
    assert "Traceback" not in ended.err + ended.out
    assert ended.out == ""
    assert contents(folders) == before, "something was written"


def test_there_are_many_kinds_of_bad_input():
    assert len(CASES) >= 20
