"""What the server refuses of parts of the user's own."""

from __future__ import annotations

import json
from typing import ClassVar

import pytest
from tests.conftest import make_federation
from torch import nn

import fedrelay as fr
from fedrelay.experiment.method_catalogue import METHODS, MethodEntry


class Spoil(fr.Merge):
    """Multiplies the first arrival by a number."""

    factor: str = "nan"

    def apply(self, inputs):
        return fr.MergeResult(inputs.arrivals[0].weights * float(self.factor))


class Late(fr.Term):
    """Returns non-finite values, or another server state, from round 2 on."""

    tensors: ClassVar = (fr.ServerState("mean"), fr.Payload("sum"))
    does: str = ""

    def adjust_merged_model(self, merged, before, layout):
        return merged / 0 if self.does == "weights" else merged

    def after_merge(self, round):
        state = {"mean": round.arrivals[0].weights * 0}
        match self.does:
            case "state":
                state["mean"] = state["mean"] / 0
            case "undeclared":
                state["more"] = state["mean"]
            case "short":
                state["mean"] = state["mean"][:3]
        return fr.TermResult(state)


class Watch(fr.Term):
    """Notes how many samples arrivals count for when the server state is updated."""

    counted: ClassVar[list[list[int]]] = []

    def after_merge(self, round):
        self.counted.append([arrival.samples for arrival in round.arrivals])
        return fr.TermResult()


@pytest.fixture(autouse=True)
def own_methods(monkeypatch):
    monkeypatch.setitem(METHODS, "spoil", MethodEntry("", merge=Spoil))
    monkeypatch.setitem(METHODS, "late", MethodEntry("", terms={"late": Late}))
    monkeypatch.setitem(METHODS, "watch", MethodEntry("", terms={"watch": Watch}))


@pytest.mark.parametrize("on_divergence", ["stop", "skip"])
@pytest.mark.parametrize("factor", ["nan", "inf"])
def test_a_merge_that_returns_non_finite_weights_ends_the_run(tmp_path, factor, on_divergence):
    with pytest.raises(fr.DivergedError) as ended:
        fr.run(
            "spoil",
            clients=4,
            rounds=2,
            workers=1,
            merge={"factor": factor},
            guard={"on_divergence": on_divergence},
            out=tmp_path / "run",
        )
    message = "round 1: merge 'Spoil' returned non-finite values, though all models that arrived are finite"
    assert str(ended.value) == f"spoil: {message}"
    assert not (tmp_path / "run" / "result.json").exists()
    [event] = map(json.loads, (tmp_path / "run" / "events.jsonl").read_text().splitlines())
    assert (event["round"], event["what"], event["done"]) == (1, "diverged", message)


@pytest.mark.parametrize(
    ("does", "error", "message"),
    [
        ("weights", fr.DivergedError, "round 1: term 'Late', adjust_merged_model, returned non-finite values"),
        ("state", fr.DivergedError, "round 1: term 'Late', after_merge, returned non-finite values"),
        (
            "undeclared",
            fr.SpecError,
            "'more', which it does not declare; add ServerState('more') to 'tensors'",
        ),
        ("short", fr.SpecError, "'mean' must be a tensor with "),
    ],
)
def test_a_server_state_that_cannot_be_kept_is_refused(does, error, message):
    with pytest.raises(error) as ended:
        fr.run("late", clients=4, rounds=2, workers=1, terms={"late": {"does": does}})
    assert message in str(ended.value)
    assert fr.run("late", clients=4, rounds=2, workers=1).rounds == 2


@pytest.mark.parametrize(("guard", "counted"), [({}, [5, 5, 90]), ({"largest_share": 0.5}, [5, 5, 10])])
def test_the_server_state_of_terms_sees_capped_shares_too(guard, counted, monkeypatch):
    monkeypatch.setattr(Watch, "counted", [])
    data = make_federation([5, 5, 90])
    fr.run("watch", data=data, model=nn.Linear(4, 3), rounds=1, fraction=1.0, workers=1, guard=guard)
    assert [sorted(each) for each in Watch.counted] == [counted]
