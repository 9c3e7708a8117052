"""Claims: the files that come with FedRelay, what a file must have, and how experiments build on each other."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import fedrelay as fr
import fedrelay_reproduce.claims
from fedrelay_reproduce import Check, Claim, ClaimExperiment, Results, tuning
from fedrelay_reproduce.catalogue import chosen, load_claims
from fedrelay_reproduce.claim import merged
from fedrelay_reproduce.scaled_claim import scaled_claim

CLAIMS = load_claims()
TEXT = """One is better.

Source: somebody

In short: 2 > 1

Published: 2 against 1

Holds if: it is
"""
ONLY = ClaimExperiment("01/only", {"methods": ["fedavg", "fedseq"], "rounds": 3}, smoke={"rounds": 1})


def criterion(only: Results) -> list[Check]:
    return [Check("better", only["fedseq"].accuracy, ">", only["fedavg"].accuracy)]


def test_there_are_29_claims_in_order():
    assert list(CLAIMS) == list(range(1, 30))
    files = sorted(Path(fedrelay_reproduce.claims.__path__[0]).glob("c*.py"))
    for number, path in enumerate(files, start=1):
        assert path.name.startswith(f"c{number:02}_")
        assert importlib.import_module(f"fedrelay_reproduce.claims.{path.stem}").CLAIM is CLAIMS[number]


@pytest.mark.parametrize(
    ("claim", "scale"),
    [
        pytest.param(claim, scale, id=f"{number:02}-{scale}")
        for number, claim in CLAIMS.items()
        for scale in claim.scales
    ],
)
def test_every_claim_can_be_run_at_its_scales(claim, scale, tmp_path, monkeypatch):
    monkeypatch.setattr(tuning, "tuned_settings", lambda name: {"methods": {}})
    monkeypatch.setenv("FEDRELAY_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    scaled = scaled_claim(claim, scale, tmp_path)
    assert all(experiment.names and experiment.runs for experiment in scaled.experiments.values())
    data = {experiment.data.name for experiment in scaled.experiments.values()}
    assert "not found" in scaled.obstacle if scaled.obstacle else data == {"digits"}


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=lambda claim: f"{claim.number:02}")
def test_digits_can_be_partitioned_as_claims_ask_for(claim, tmp_path):
    for experiment in scaled_claim(claim, "smoke", tmp_path).experiments.values():
        if experiment.data.name == "digits":
            settings = experiment.data.model_dump(exclude={"name"}, exclude_defaults=True)
            assert fr.load_data("digits", **settings).client_count == (experiment.data.clients or 100)


def test_settings_of_scales_and_of_the_base_are_merged():
    changed = ONLY.but("02/changed", {"methods": ["fedavg", "fedseq", "ida"]}, full={"rounds": 9})
    assert {scale: changed.spec(scale)["rounds"] for scale in changed.scales} == {"smoke": 1, "small": 3, "full": 9}
    assert ONLY.but("02/medium", {}, medium={"rounds": 5}).spec("medium")["rounds"] == 5
    assert changed.spec("small") == {"methods": ["fedavg", "fedseq", "ida"], "rounds": 3}
    assert (changed.kind, ONLY.but("02/other", {}, kind="transfers").kind) == ("comparison", "transfers")


def test_a_claim_has_the_scales_of_the_experiments_that_its_criterion_uses():
    assert CLAIMS[14].scales == ("smoke", "small", "full")
    with pytest.raises(fr.SpecError, match="claim 14: has no scale medium; it has smoke, small, full"):
        CLAIMS[14].experiments_at("medium")
    assert set(CLAIMS[17].experiments_at("medium")) == {"shards", "ewc_all", "wfsl_adam"}  # one is only shown at small
    assert set(CLAIMS[17].experiments_at("small")) == {"shards", "ewc_all", "connections"}


def test_merged():
    base = {"a": {"b": 1, "c": 2}, "d": [1], "e": 5}
    assert merged(base, {"a": {"b": 3}, "d": [2], "e": None}) == {"a": {"b": 3, "c": 2}, "d": [2]}
    assert base == {"a": {"b": 1, "c": 2}, "d": [1], "e": 5}


@pytest.mark.parametrize("number", CLAIMS)
def test_no_word_waits_to_be_filled_in(number):
    """Where a reading waits for an experiment, the name of its constant stands in the text."""
    module = importlib.import_module(CLAIMS[number].criterion.__module__)
    constants = {name for name in vars(module) if name.isupper()} - {"SCAFFOLD", "LEAF"}  # words of the field
    assert not constants & set(re.findall(r"\w+", module.__doc__))


def test_the_docstring_holds_the_words():
    after = "\nReading (small, holds): as\nhoped\n\nRemark (small, holds): of little use\n"
    claim = Claim(1, TEXT + after, criterion, {"only": ONLY})
    assert claim.title == "One is better"
    assert claim.sections["Published"] == "2 against 1"
    assert claim.reading("small", "holds") == "as hoped"
    assert claim.reading("small", "inconclusive") is None
    assert claim.remark("small", "holds") == "of little use"
    assert claim.remark("medium", "holds") is None


def test_it_is_known_what_a_criterion_uses(tmp_path):
    used = scaled_claim(CLAIMS[6], "smoke", tmp_path).used()
    assert used == {
        "alpha_0": {"fedseq": []}, "centralised": {"centralized": ["accuracy_last"]},
        "dyn": {"fedseq+feddyn": [], "feddyn": []},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"text": None}, "the docstring must begin with the claim"),
        ({"text": TEXT + "\nSauce: x"}, "docstring: unknown paragraph 'Sauce'; allowed: Source"),
        ({"text": TEXT + "\nShows: los"}, "docstring: Shows: unknown measure 'los' (did you mean 'loss'?)"),
        ({"text": TEXT.replace("Holds if", "Scale small")}, "the paragraph 'Holds if: …' is required"),
        ({"experiments": {}}, "experiments: must not be empty"),
        ({"experiments": {"onli": ONLY}}, "criterion: unknown experiment 'only' (did you mean 'onli'?)"),
        ({"supplements": {"only": ONLY}}, "supplements: 'only' is the name of an experiment"),
        ({"seeds": {"small": 0}}, "seeds: must be at least 1, got 0"),
        ({"criterion": lambda only: [only["fedsec"].loss]}, "claim 1: criterion: unknown method or grouping 'fedsec'"),
        ({"criterion": lambda only: [only["fedseq"].los]}, "criterion: unknown measure 'los' (did you mean 'loss'?)"),
        ({"criterion": lambda only: [only["fedseq"].loss < 1]}, "criterion: '<' not supported"),
        ({"experiments": {"only": ONLY.but("1/x", {"roundz": 3})}}, "experiment 1/x: roundz: unknown key 'roundz'"),
        (
            {"experiments": {"only": ClaimExperiment("1/x", {"groupings": {"r": {"assign": "g"}}}, kind="groups")}},
            "experiment 1/x: groupings.r.assign",
        ),
    ],
)
def test_mistakes_get_one_clear_message(change, message, tmp_path):
    def made() -> None:
        given = {"text": TEXT, "criterion": criterion, "experiments": {"only": ONLY}, **change}
        scaled_claim(Claim(1, **given), "small", tmp_path)

    with pytest.raises(fr.SpecError) as refused:
        made()
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("folder", "kind", "message"),
    [("/x", "groups", "folder: "), ("../x", "groups", "folder: "), ("x", "gruops", "unknown kind 'gruops'")],
)
def test_experiments_stay_in_their_folder(folder, kind, message):
    with pytest.raises(fr.SpecError, match=message):
        ClaimExperiment(folder, {}, kind=kind)


OWN = '''"""{title}

Source: x

In short: x

Published: x

Holds if: x
"""
from fedrelay_reproduce import Check, Claim, ClaimExperiment

ONLY = ClaimExperiment("{folder}", {{"methods": ["fedavg"], "rounds": {rounds}}})
CLAIM = Claim({number}, __doc__, lambda only: [Check("x", only["fedavg"].loss, "<", 9)], {{"only": ONLY}})
'''


def own_claim(path: Path, number: int = 1, folder: str = "1/only", rounds: int = 1) -> Path:
    path.write_text(OWN.format(title="Mine", number=number, folder=folder, rounds=rounds))
    return path


def test_own_claims_are_a_file_or_a_folder_whose_files_may_import_each_other(tmp_path):
    file = own_claim(tmp_path / "one.py", number=7)
    assert [claim.title for claim in load_claims(file).values()] == ["Mine"]
    text = own_claim(tmp_path / "another.py", number=2).read_text()
    (tmp_path / "another.py").write_text(text.replace("\nCLAIM", "\nfrom one import ONLY\nCLAIM"))
    (tmp_path / "_shared.py").write_text("raise ValueError")
    assert list(load_claims(tmp_path)) == [2, 7]


def test_files_that_cannot_be_claims_are_refused(tmp_path):
    with pytest.raises(fr.SpecError, match="is not a Python file"):
        load_claims(tmp_path / "none")
    with pytest.raises(fr.SpecError, match="has no claims"):
        load_claims(tmp_path)
    for text, message in (
        ("1 +", "wrong.py: SyntaxError: "),
        ("", "wrong.py: must define CLAIM"),
        ("1 / 0", "wrong.py: ZeroDivisionError"),
        ("from fedrelay_reproduce import Claim\nClaim(1, '', print, {})", "wrong.py: the docstring must begin"),
    ):
        (tmp_path / "wrong.py").write_text(text)
        with pytest.raises(fr.SpecError, match=message):
            load_claims(tmp_path / "wrong.py")


def test_numbers_and_folders_are_unique(tmp_path):
    claims = load_claims(own_claim(tmp_path / "a.py"))
    assert [claim.number for claim in chosen(claims, [])] == [1]
    with pytest.raises(fr.SpecError, match="there is no claim 7; there are 1"):
        chosen(claims, [7])
    own_claim(tmp_path / "b.py")
    with pytest.raises(fr.SpecError, match=r"b\.py: there are two claims with the number 1"):
        load_claims(tmp_path)
    (tmp_path / "b.py").unlink()
    own_claim(tmp_path / "c.py", number=2, rounds=5)  # not b.py: Python may have kept what that was
    with pytest.raises(fr.SpecError, match=r"c\.py: another experiment has the folder '1/only' too"):
        load_claims(tmp_path)
