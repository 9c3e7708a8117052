"""More rounds for a run: the same bits as if it had been that long from the start."""

from __future__ import annotations

import json
from contextlib import nullcontext

import pytest
import torch
import yaml
from tests.runtime.eight_clients import GROUPS, Dies, federation, network

import fedrelay as fr
from fedrelay.experiment.method_catalogue import METHODS
from fedrelay.runtime.run_folder_reader import RunFolderReader
from fedrelay.runtime.run_status import RunStatus

SETTINGS = {"fraction": 0.6, "batch_size": 2, "workers": 1, "seed": 5, "checkpoint": {"seconds": 1000}}
WITH_STATE = {
    "fedavg": {},
    "fedseq": GROUPS,
    "fedseqinter": {**GROUPS, "route.period": 3},
    "fedasyncseq": {**GROUPS, "route.period": 3, "clock.profile": "log-normal"},
    "scaffold": {},
    "feddyn": {},
    "feddc": {},
    "moon": {},
    "fedadam": {},
    "fedavgm": {},
    "spfl+scaffold": {},
    "fedcyclic+ewc": {},
    "wfsl+fedprox": {"warmup.cycles": 2},
    "fedseq+fedprox": {**GROUPS, "optimizer": "adam"},
    "wfsl": {"warmup.cycles": 4},  # the warm-up takes all rounds of the short run
    "fedgsp": {"route.beta": 2, "route.alpha": 2.0},
    "fedseq2par": {"route.beta": 2, "route.alpha": 0.5},
    "fedavg+dp": {"terms.dp.noise": 0.5, "terms.dp.epsilon": 60.0},
    "fedseqinter+fedprox": {
        **GROUPS,
        "route.period": "never",
        "faults": [{"what": "dropout", "rate": 0.2}, {"what": "nan", "rate": 0.2}],
        "guard": {"on_divergence": "skip", "norm": 2.0},
        "schedule": {"name": "step", "factor": 0.9},
    },
}


@pytest.fixture(scope="module")
def data():
    return federation()


def start(method, data, out, **settings):
    return fr.run(method, data=data, model=network(), out=out, **(SETTINGS | settings))


def more(out, data, rounds, **settings):
    return fr.resume(out, rounds=rounds, data=data, model=network(), **settings)


def records(folder, *names):
    return {name: (folder / name).read_bytes() for name in names if (folder / name).exists()}


@pytest.mark.parametrize("method", WITH_STATE)
def test_four_and_four_rounds_are_eight(tmp_path, data, method):
    settings = WITH_STATE[method]
    whole = start(method, data, tmp_path / "whole", rounds=8, every=3, **settings)
    first = start(method, data, tmp_path / "run", rounds=4, every=3, **settings)
    assert [row["round"] for row in first.history] == [3, 4]
    result = more(tmp_path / "run", data, 8)
    assert result.weights_sha256 == whole.weights_sha256
    assert result.rounds == 8
    assert result.experiment.rounds == 8
    # The evaluation of round 4, which was the last, is not part of a run of eight rounds.
    assert result.history == whole.history
    names = ("metrics.jsonl", "ledger.jsonl", "events.jsonl", "model.safetensors", "spec.yaml")
    assert records(tmp_path / "run", *names) == records(tmp_path / "whole", *names)
    leave = ("seconds", "selection_seconds", "run")
    short, long = ({k: v for k, v in each.summary().items() if k not in leave} for each in (result, whole))
    assert short == long


def test_a_run_can_be_extended_again_and_again(tmp_path, data):
    whole = start("scaffold", data, tmp_path / "whole", rounds=7)
    first = start("scaffold", data, tmp_path / "run", rounds=2)
    middle, last = (more(tmp_path / "run", data, rounds) for rounds in (5, 7))
    assert last.weights_sha256 == whole.weights_sha256
    extensions = RunFolderReader.open(tmp_path / "run").extensions
    assert [(each["from"], each["to"], each["done"], each["stopped"]) for each in extensions] == [
        (2, 5, 2, None),
        (5, 7, 5, None),
    ]
    assert [each["weights_sha256"] for each in extensions] == [first.weights_sha256, middle.weights_sha256]
    assert yaml.safe_load((tmp_path / "run" / "spec.yaml").read_text())["rounds"] == 7


def test_a_run_that_is_as_long_is_only_read(tmp_path, data):
    first = start("fedavg", data, tmp_path / "run", rounds=3)
    before = records(tmp_path / "run", "run.json", "checkpoint.json", "result.json")
    assert more(tmp_path / "run", data, 3).weights_sha256 == first.weights_sha256
    assert records(tmp_path / "run", "run.json", "checkpoint.json", "result.json") == before
    assert RunFolderReader.open(tmp_path / "run").extensions == []


def test_a_run_that_died_can_become_longer_or_shorter(tmp_path, data):
    for rounds in (4, 9):
        out = tmp_path / str(rounds)
        with pytest.raises(KeyboardInterrupt):
            start("scaffold", data, out, rounds=6, callbacks=Dies(3), checkpoint={"seconds": 0}, every=2)
        whole = start("scaffold", data, None, rounds=rounds, every=2)
        found = more(out, data, rounds)
        assert (found.weights_sha256, found.history) == (whole.weights_sha256, whole.history)


@pytest.mark.parametrize("after", [5, 7])
@pytest.mark.parametrize("seconds", [0, 1000])
def test_an_extended_run_that_died_continues_to_its_new_end(tmp_path, data, after, seconds):
    whole = start("spfl+scaffold", data, None, rounds=8, every=3)
    start("spfl+scaffold", data, tmp_path / "run", rounds=4, every=3, checkpoint={"seconds": seconds})
    with pytest.raises(KeyboardInterrupt):
        more(tmp_path / "run", data, 8, callbacks=Dies(after))
    assert RunStatus.of(RunFolderReader.open(tmp_path / "run")).state == "stopped"
    assert (tmp_path / "run" / "model.safetensors").exists()  # that of four rounds, until there is a better one
    found = fr.resume(tmp_path / "run", data=data, model=network())
    assert (found.weights_sha256, found.history) == (whole.weights_sha256, whole.history)


@pytest.mark.parametrize("written", range(5))
def test_a_process_that_dies_while_it_extends_a_run_leaves_a_sound_folder(tmp_path, data, monkeypatch, written):
    """It dies before the first, second, … file is written."""
    from fedrelay import files

    class Stops(fr.Callback):
        def on_round_end(self, context):
            return fr.StopRun("enough") if context.round == 4 else None

    whole = start("scaffold", data, None, rounds=8, every=3)
    start("scaffold", data, tmp_path / "run", rounds=6, every=3, callbacks=Stops())
    calls = []

    def write(path, content):
        calls.append(path.name)
        if len(calls) > written:
            raise KeyboardInterrupt
        files.write_atomically(path, content)

    with monkeypatch.context() as patched:
        # what `restore` writes before is the same as what is there
        patched.setattr("fedrelay.runtime.run_folder.RunFolder.extend", _dying(write))
        with pytest.raises(KeyboardInterrupt):
            more(tmp_path / "run", data, 8)
    reader = RunFolderReader.open(tmp_path / "run")
    assert reader.experiment.rounds == (6 if written < 2 else 8)
    assert len(reader.extensions) == (0 if written < 2 else 1)
    found = more(tmp_path / "run", data, 8)
    assert (found.weights_sha256, found.history) == (whole.weights_sha256, whole.history)
    assert len(RunFolderReader.open(tmp_path / "run").extensions) == (1 if written < 2 or written > 3 else 2)


def _dying(write):
    from fedrelay.runtime import run_folder

    extend = run_folder.RunFolder.extend

    def dying(self, experiment, state):
        real, run_folder.write_atomically = run_folder.write_atomically, write
        try:
            extend(self, experiment, state)
            raise KeyboardInterrupt
        finally:
            run_folder.write_atomically = real

    return dying


@pytest.mark.parametrize(
    ("rounds", "message"),
    [
        (2, "rounds: 3 rounds of .* are done; must be more than that, got 2"),
        (0, "rounds: 3 rounds of .* are done; must be more than that, got 0"),
        (-5, "must be more than that, got -5"),
        ("9", "rounds: must be a whole number, got '9'"),
        (True, "rounds: must be a whole number, got True"),
        (4.0, r"rounds: must be a whole number, got 4\.0"),
    ],
)
def test_impossible_numbers_of_rounds_are_refused(tmp_path, data, rounds, message):
    start("fedavg", data, tmp_path / "run", rounds=3)
    before = records(tmp_path / "run", "run.json", "checkpoint.json", "result.json", "spec.yaml")
    with pytest.raises(fr.SpecError, match=f"^.*{message}$"):
        more(tmp_path / "run", data, rounds)
    assert records(tmp_path / "run", "run.json", "checkpoint.json", "result.json", "spec.yaml") == before


@pytest.mark.parametrize(
    ("method", "settings", "setting"),
    [
        ("fedseq2par", {"route.beta": 2}, "route.alpha"),
        ("fedgsp", {"route.growth": "exp", "route.alpha": None, "route.beta": 2}, "route.alpha"),
        ("fedavg", {"schedule": "cosine"}, "train.schedule"),
        ("fedavg", {"schedule": {"name": "warmup", "rounds": 1, "then": "cosine"}}, "train.schedule"),
    ],
)
def test_what_depends_on_the_number_of_rounds_is_refused(tmp_path, data, method, settings, setting):
    start(method, data, tmp_path / "run", rounds=3, **settings)
    ways = {"route.alpha": "give route.alpha a number", "train.schedule": "set train.schedule=constant"}
    advice = f"; in a run to extend later, {ways[setting]}" if setting in ways else ""
    why = f"because {setting} depends on the number of rounds"
    message = f"^rounds: cannot be changed, {why}: .* start a new run{advice}$"
    with pytest.raises(fr.SpecError, match=message):
        more(tmp_path / "run", data, 6)
    assert fr.resume(tmp_path / "run", data=data, model=network()).rounds == 3


def test_fedgsp_is_extended_unless_its_growth_would_have_been_another(tmp_path, data):
    """α is 2 for up to 5 rounds of eight clients; in 60 rounds, groups of two would then be reached too early."""
    start("fedgsp", data, tmp_path / "run", rounds=3)
    message = "because the route of 'fedgsp' plans round 2 in another way if the run has 60 rounds; start a new run; "
    with pytest.raises(fr.SpecError, match=f"{message}in a run to extend later, give route.alpha a number$"):
        more(tmp_path / "run", data, 60)
    assert more(tmp_path / "run", data, 5).rounds == 5


def test_a_fixed_alpha_makes_fedgsp_extendable(tmp_path, data):
    start("fedgsp", data, tmp_path / "run", rounds=2, **{"route.alpha": 2})
    whole = start("fedgsp", data, tmp_path / "whole", rounds=60, **{"route.alpha": 2})
    assert more(tmp_path / "run", data, 60).weights_sha256 == whole.weights_sha256


def test_an_own_route_that_plans_by_the_number_of_rounds_is_refused(tmp_path, data):
    class Halves(fr.Routing):
        """Everybody in the second half of the run, the first client before."""

        def plan(self, context, round):
            clients = range(context.client_count) if 2 * round > context.rounds else [0]
            return fr.RoundPlan(round, tuple(fr.Route((client,)) for client in clients))

    fr.register("halves", summary="halves", route=Halves)
    try:
        start("halves", data, tmp_path / "run", rounds=4)
        message = "because the route 'Halves' of 'halves' plans round 3 in another way if the run has 8 rounds"
        with pytest.raises(fr.SpecError, match=f"{message}; start a new run$"):
            more(tmp_path / "run", data, 8)
    finally:
        del METHODS["halves"]


@pytest.mark.parametrize(
    ("stop", "reason"),
    [
        ({"max_updates": 8}, r"stop\.max_updates: 8 client updates were done, the limit is 8"),
        ({"max_bytes": 1}, r"stop\.max_bytes: .*, the limit is 1"),
        ({"max_wall": 1e-9}, r"stop\.max_wall: .*, the limit is 1e-09"),
        ({"target": 0.01}, r"stop\.target: accuracy is .*, the target is 0\.01"),
    ],
)
def test_a_run_at_its_limit_is_not_extended(tmp_path, data, stop, reason):
    start("fedavg", data, tmp_path / "run", rounds=9, stop=stop)
    message = rf"^rounds: more of them do not help, the run would stop again \({reason}\); start a new run$"
    with pytest.raises(fr.SpecError, match=message):
        more(tmp_path / "run", data, 20)


def test_a_stopped_run_goes_on_and_keeps_its_patience(tmp_path, data):
    """Without any gain, the next evaluation stops it again."""
    first = start("fedavg", data, tmp_path / "run", rounds=9, stop={"patience": 2, "min_gain": 5.0}, every=2)
    assert (first.rounds, first.stopped) == (6, "stop.patience: no gain of more than 5 in accuracy in 2 evaluations")
    found = more(tmp_path / "run", data, 9)
    assert (found.rounds, found.stopped) == (8, first.stopped)
    assert json.loads((tmp_path / "run" / "result.json").read_bytes())["rounds"] == 8
    [change] = RunFolderReader.open(tmp_path / "run").extensions
    assert (change["from"], change["to"], change["done"], change["stopped"]) == (9, 9, 6, first.stopped)
    plain = start("fedavg", data, None, rounds=8)
    assert found.weights_sha256 == plain.weights_sha256


def test_a_run_that_a_callback_stopped_goes_on(tmp_path, data):
    class Stops(fr.Callback):
        def on_round_end(self, context):
            return fr.StopRun("enough") if context.round == 2 else None

    start("scaffold", data, tmp_path / "run", rounds=5, every=3, callbacks=Stops())
    whole = start("scaffold", data, None, rounds=5, every=3)
    found = more(tmp_path / "run", data, 5)
    assert (found.weights_sha256, found.history, found.stopped) == (whole.weights_sha256, whole.history, "")


def test_a_folder_in_place_of_the_summary_is_refused_in_one_line(tmp_path, data):
    start("fedavg", data, tmp_path / "run", rounds=2)
    (tmp_path / "run" / "result.json").unlink()
    (tmp_path / "run" / "result.json").mkdir()
    with pytest.raises(fr.RunFolderError, match=r"result\.json: cannot be removed \(Is a directory\)$"):
        more(tmp_path / "run", data, 4)


def biased_at(layer):
    """A network with as many parameters wherever its bias is."""
    return torch.nn.Sequential(
        torch.nn.Linear(4, 3, bias=layer == 0), torch.nn.ReLU(), torch.nn.Linear(3, 3, bias=layer == 2)
    )


@pytest.mark.parametrize("rounds", [None, 4])
@pytest.mark.parametrize("died", [True, False])
def test_another_model_with_as_many_parameters_is_refused(tmp_path, data, died, rounds):
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt) if died else nullcontext():
        fr.run("fedavg", data=data, model=biased_at(0), out=out, rounds=2, callbacks=Dies(1 if died else 3), **SETTINGS)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    message = r"the model does not fit the model of the run, which has 0\.bias \[3\]; this has 2\.weight \[3, 3\]$"
    with pytest.raises(fr.RunFolderError, match=message):
        fr.resume(out, rounds=rounds, data=data, model=biased_at(2))
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert fr.resume(out, rounds=rounds, data=data, model=biased_at(0)).history[-1]["round"] == (rounds or 2)
