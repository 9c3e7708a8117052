"""Claims as files: what they must have, how they refer to each other, and those that come with FedRelay."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from fedrelay.claims.cases import build_case
from fedrelay.claims.claim import SCALES, Claims, load_claim, load_claims, merged
from fedrelay.data.open import open_federation
from fedrelay.errors import SpecError

OURS = Path(__file__).parents[2] / "examples" / "claims"
CLAIMS = load_claims(OURS)
PLAIN = {
    "claim": 1,
    "title": "one is better",
    "sources": "somebody",
    "paper": "2 > 1",
    "published": "2 against 1",
    "criterion": "it is",
    "holds_if": "fedseq.accuracy > fedavg.accuracy",
    "experiments": {"only": {"methods": ["fedavg", "fedseq"], "rounds": 3, "scales": {"smoke": {"rounds": 1}}}},
}


def claims_of(folder: Path, *trees: dict) -> Claims:
    for number, tree in enumerate(trees, start=1):
        (folder / f"{number:02}.yaml").write_text(yaml.safe_dump({**PLAIN, "claim": number, **tree}))
    return load_claims(folder)


def test_there_are_29_claims_in_order():
    assert [claim.claim for claim in CLAIMS] == list(range(1, 30))
    for path in sorted(OURS.glob("*.yaml")):
        number = load_claim(path).claim
        assert path.name.startswith(f"{number:02}-")
        assert path.read_text().startswith(f"# fedrelay reproduce {number}\n")


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("claim", list(CLAIMS), ids=lambda claim: f"{claim.claim:02}")
def test_every_claim_can_be_made_concrete(claim, scale, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDRELAY_DATA", str(tmp_path))
    case = build_case(CLAIMS, claim, scale, tmp_path)
    assert all(study.subjects for study in case.studies.values())
    assert all(study.pieces for study in case.studies.values())
    assert "not found" in case.obstacle if case.obstacle else {s.data.name for s in case.studies.values()} == {"digits"}


@pytest.mark.parametrize("claim", list(CLAIMS), ids=lambda claim: f"{claim.claim:02}")
def test_digits_can_be_dealt_out_as_claims_ask_for(claim, tmp_path):
    for study in build_case(CLAIMS, claim, "smoke", tmp_path).studies.values():
        if study.data.name == "digits":
            assert open_federation(study.data, seed=1).clients == (study.data.clients or 100)


def test_settings_of_scales_are_laid_over_each_other(tmp_path):
    claims = claims_of(
        tmp_path,
        {},
        {
            "experiments": {
                "only": {"like": "1/only", "methods": ["fedavg", "fedseq", "ida"], "scales": {"full": {"rounds": 9}}}
            }
        },
    )
    rounds = {scale: claims.experiments(claims.by_number[2], scale)["only"].settings["rounds"] for scale in SCALES}
    assert rounds == {"smoke": 1, "small": 3, "full": 9}
    found = claims.experiments(claims.by_number[2], "small")["only"]
    assert (found.owner, found.kind, found.settings["methods"]) == (2, "compare", ["fedavg", "fedseq", "ida"])


def test_an_experiment_that_is_used_stays_where_it_is(tmp_path):
    claims = claims_of(tmp_path, {}, {"experiments": {"mine": {"use": "1/only"}}})
    found = claims.experiments(claims.by_number[2], "small")["mine"]
    assert (found.owner, found.name) == (1, "only")


def test_merged():
    base = {"a": {"b": 1, "c": 2}, "d": [1], "e": 5}
    assert merged(base, {"a": {"b": 3}, "d": [2], "e": None}) == {"a": {"b": 3, "c": 2}, "d": [2]}
    assert base == {"a": {"b": 1, "c": 2}, "d": [1], "e": 5}


def test_names_in_criteria_may_say_the_experiment(tmp_path):
    both = dict.fromkeys(("one", "two"), PLAIN["experiments"]["only"])
    claims = claims_of(tmp_path, {"experiments": both, "holds_if": "one.fedseq.accuracy > two.fedavg.accuracy"})
    assert build_case(claims, claims.by_number[1], "smoke", tmp_path).obstacle is None
    claims = claims_of(tmp_path, {"experiments": both})
    with pytest.raises(SpecError, match="'fedseq' is in several experiments; say which: one, two"):
        build_case(claims, claims.by_number[1], "smoke", tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"holds_if": "fedsec.accuracy > 0"}, "unknown subject 'fedsec' (did you mean 'fedseq'?)"),
        ({"holds_if": "fedseq.acuracy > 0"}, "unknown measure 'acuracy' (did you mean 'accuracy'?)"),
        ({"holds_if": "onli.fedseq.accuracy > 0"}, "unknown experiment 'onli' (did you mean 'only'?)"),
        ({"holds_if": "a.b.fedseq.accuracy > 0"}, "must be SUBJECT or EXPERIMENT.SUBJECT"),
        ({"holds_if": "import os"}, "holds_if: criterion 'import os'"),
        ({"titel": "x"}, "unknown key 'titel' (did you mean 'title'?)"),
        ({"title": ""}, "title: "),
        ({"experiments": {}}, "experiments: "),
        ({"experiments": {"Not A Name": {}}}, "a name has small letters, digits and _"),
        ({"experiments": {"only": {"use": "2/only"}}}, "unknown claim '2'"),
        ({"experiments": {"only": {"use": "only"}}}, "'only' names no experiment"),
        ({"experiments": {"only": {"like": "1/only"}}}, "refers to itself"),
        ({"experiments": {"only": {"use": "1/other"}}}, "unknown experiment 'other'; allowed: only"),
        ({"experiments": {"only": {"use": "1/only", "rounds": 3}}}, "has no settings of its own; take 'like'"),
        ({"experiments": {"only": {"scales": {"small": {}}}}}, "scales.small: is what stands outside 'scales'"),
        ({"experiments": {"only": {"methods": ["fedseq"], "roundz": 3}}}, "claim 1/only: roundz: unknown key 'roundz'"),
        ({"experiments": {"only": {"kind": "group", "ways": {"r": {"assign": "greddy"}}}}}, "ways.r.assign"),
        ({"experiments": {"only": {"methods": ["ida", {"method": "fedavg", "label": "IDA!"}]}}}, "are both ida"),
        ({"seeds": {"small": 0}}, "seeds: must be at least 1"),
    ],
)
def test_mistakes_get_one_clear_message(change, message, tmp_path):
    def made() -> None:
        claims = claims_of(tmp_path, change)
        build_case(claims, claims.by_number[1], "small", tmp_path)

    with pytest.raises(SpecError) as refused:
        made()
    assert message in str(refused.value)


def test_folders_without_claims_are_refused(tmp_path):
    with pytest.raises(SpecError, match="there is no such folder"):
        load_claims(tmp_path / "none")
    with pytest.raises(SpecError, match="has no claims"):
        load_claims(tmp_path)
    (tmp_path / "01.yaml").write_text("[1")
    with pytest.raises(SpecError, match="not valid YAML"):
        load_claims(tmp_path)


def test_numbers_are_unique_and_known(tmp_path):
    claims = claims_of(tmp_path, {})
    assert [claim.claim for claim in claims.chosen([])] == [1]
    with pytest.raises(SpecError, match="there is no claim 7; there are 1"):
        claims.chosen([7])
    (tmp_path / "02.yaml").write_text(yaml.safe_dump(PLAIN))
    with pytest.raises(SpecError, match="two claims with the number 1"):
        load_claims(tmp_path)
