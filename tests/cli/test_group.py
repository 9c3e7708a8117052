from __future__ import annotations

import pytest

DATA = ["--clients", "40", "--alpha", "0"]


def test_help_has_examples(program):
    ended = program("group", "--help")
    assert ended.code == 0
    assert "$ fedrelay group --clients 100 --alpha 0" in ended.out


def test_all_ways_in_one_table(program, tmp_path):
    ended = program("group", "--data", "digits", *DATA)
    assert ended.code == 0
    for name in ("single clients", "random", "kmeans", "greedy/kl", "icg"):
        assert f" {name} " in ended.out
    assert "fedrelay run fedseq --set grouping.assign=" in ended.out
    assert list(tmp_path.iterdir()) == []


def test_one_way_against_random_groups_and_single_clients(program):
    facts = program("group", *DATA, "--assign", "greedy", "--distance", "cosine", "--max-clients", "10", "--json").json
    names = [way["name"] for way in facts["groupings"]]
    assert names == ["single clients", "random", "greedy/cosine"]
    single, random, greedy = facts["groupings"]
    assert greedy["median_cpd"] < random["median_cpd"] < single["median_cpd"]
    assert greedy["options"] == {"assign": "greedy", "max_clients": 10, "distance": "cosine"}
    assert len(greedy["groups"]) == 4


def test_several_ways_share_the_options_that_have_an_effect_on_them(program):
    words = ["--assign", "greedy/kl", "--assign", "icg/counts", "--assign", "kl/greedy", "--assign", "random"]
    facts = program("group", *DATA, *words, "--groups", "8", "--set", "grouping.max_clients=4", "--json").json
    assert {way["name"]: way["options"] for way in facts["groupings"]} == {
        "single clients": None,
        "random": {"max_clients": 4},
        "greedy/kl": {"assign": "greedy", "max_clients": 4, "distance": "kl"},
        "icg/counts": {"assign": "icg", "profile": "counts", "groups": 8},
    }


TRAINED = ["--clients", "12", "--alpha", "0", "--batch-size", "16", "--workers", "1", "--set", "grouping.epochs=2"]


def test_profiles_that_are_trained(program):
    words = ["--profile", "conf", "--assign", "greedy", "--assign", "gini/greedy/conf", "--assign", "kmeans/clf"]
    ended = program("group", *TRAINED, *words, "--set", "grouping.max_clients=4", "--json")
    assert ended.code == 0, ended.err
    assert ended.err.count("profiling clients: 12/12") == 2  # conf and clf, whoever asks for them
    options = {way["name"]: way["options"] for way in ended.json["groupings"][2:]}
    common = {"epochs": 2, "max_clients": 4}
    assert options == {
        "greedy/kl/conf": {**common, "assign": "greedy", "profile": "conf"},
        "greedy/gini/conf": {**common, "assign": "greedy", "profile": "conf", "distance": "gini"},
        "kmeans/clf": {**common, "assign": "kmeans", "profile": "clf"},
    }


@pytest.mark.parametrize("profile", ["conf", "clf"])
def test_groups_of_trained_profiles_are_those_of_a_run(program, profile):
    facts = program("group", *TRAINED, "--assign", f"icg/{profile}", "--json").json
    words = ["--fraction", "1", "--set", "grouping.assign=icg", "--set", f"grouping.profile={profile}", "--json"]
    plan = program("plan", "fedseq", *TRAINED, *words).json
    assert sorted(map(sorted, plan["routes"])) == sorted(map(sorted, facts["groupings"][2]["groups"]))
    assert plan["setup"]["transfers"] == {"s2c": 12, "c2s": 12, "c2c": 0}
    assert plan["setup"]["client_updates"] == 12
    assert plan["total"]["transfers"]["s2c"] == 12 + 100 * len(plan["routes"])
    assert plan["total"]["bytes"] > 100 * plan["bytes"]


def test_a_plan_shows_the_pass_apart(program):
    words = ["--rounds", "5", "--set", "grouping.assign=greedy", "--set", "grouping.profile=conf"]
    text = program("plan", "fedseq", *TRAINED, *words).out
    assert "setup, before round 1" in text
    assert "all 5 rounds and setup" in text


def test_long_names_fit_a_narrow_terminal(program):
    ended = program("group", "--clients", "5", "--assign", "greedy/norm-cosine/counts")
    assert "greedy/norm-cosine/" in ended.out
    assert max(map(len, ended.out.splitlines())) <= 80


def test_the_groups_are_those_of_a_run(program):
    facts = program("group", *DATA, "--assign", "icg", "--seed", "5", "--json").json
    words = ["--fraction", "1", "--seed", "5", "--set", "grouping.assign=icg", "--json"]
    plan = program("plan", "fedseq", *DATA, *words).json
    assert sorted(map(sorted, plan["routes"])) == sorted(map(sorted, facts["groupings"][2]["groups"]))


def test_quiet_shows_nothing(program):
    ended = program("group", *DATA, "--assign", "icg", "-q")
    assert (ended.code, ended.out, ended.err) == (0, "", "")


@pytest.mark.parametrize(("place", "file"), [("mix.svg", "mix.svg"), (".", "digits-groups.png")])
def test_a_picture(program, tmp_path, place, file):
    ended = program("group", *DATA, "--assign", "kmeans", "--plot", place)
    assert ended.code == 0
    assert file in ended.out
    assert (tmp_path / file).stat().st_size > 1000


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("--assign gredy", 2, "--assign gredy: unknown word 'gredy' (did you mean 'greedy'?); allowed: random"),
        ("--assign kl", 2, "--assign kl: needs one of random, kmeans, greedy, icg"),
        ("--assign greedy/kl/gini", 2, "'kl' and 'gini' exclude each other"),
        ("--assign greedy/", 2, "unknown word ''"),
        ("--assign kmeans/kl", 2, "grouping.distance: has no effect with assign 'kmeans'"),
        ("--assign greedy/counts/kl", 2, "grouping.distance: 'kl' needs class probabilities"),
        ("--assign icg --distance kl", 2, "grouping.distance: has no effect with assign 'icg'"),
        ("--assign greedy --distance klx", 2, "grouping.distance: must be"),
        ("--assign icg --groups 0", 2, "grouping.groups: must be greater than or equal to 1"),
        ("--set grouping.assign=icg", 2, "grouping.assign: use --assign instead"),
        ("--set grouping.max_client=3", 2, "unknown key 'max_client' (did you mean 'max_clients'?)"),
        ("--set grouping=3", 2, "grouping: must be a mapping of options, got 3"),
        ("--set lr=1", 2, "train: has no effect; only the profiles clf, conf, t2v and weights need training"),
        ("--workers 2", 2, "engine: has no effect; only the profiles"),
        (
            "--set rounds=3 --profile conf",
            2,
            "rounds: has no effect here; 'group' takes only settings of 'grouping', data",
        ),
        ("--profile conf --set train.epochs=2", 2, "train.epochs: has no effect here; set grouping.epochs"),
        ("--profile cnof", 2, "grouping.profile: must be 'hist', 'counts', 'clf', 'conf', 't2v' or 'weights', got"),
        ("--assign greedy/clf/kl", 2, "'kl' needs class probabilities, but profile 'clf' does not give them"),
        ("--assign greedy/conf --set data.public=0", 2, "data.public: must be at least 1 for the profile 'conf'"),
        ("--data synthetic --assign greedy/t2v", 2, "grouping.profile: 't2v' needs images"),
        ("--assign greedy/conf --set train=3", 2, "train: must be a mapping of settings"),
        ("--clients 5000", 3, "are too few for 5000 clients"),
        ("--data mnits", 2, "unknown data set 'mnits'"),
        ("--clients 10 --plot mix.bmp", 2, "mix.bmp: a figure must end in"),
    ],
)
def test_bad_input_gets_one_clear_message(program, tmp_path, words, code, message):
    ended = program("group", *words.split(" "))
    assert ended.code == code, ended.err
    assert message in ended.err
    assert ended.err.count("fedrelay: ") == 1
    assert "Traceback" not in ended.err
    assert ended.out == ""
    assert list(tmp_path.iterdir()) == []


def test_data_without_classes_have_no_class_mix(program, tmp_path):
    rows = "".join(f"{site},{age},{age / 7}\n" for site in "abcd" for age in range(20, 40))
    (tmp_path / "rows.csv").write_text(f"site,age,days\n{rows}")
    table = ("--data", "rows.csv", "--set", "table.client=site", "--set", "table.target=days")
    refused = program("group", *table)
    assert (refused.code, refused.out) == (2, "")
    assert "data: groups are compared by their classes, but 'rows' has none" in refused.err
    assert program("run", "fedseq", *table, "--fraction", "1", "--rounds", "1", "--out", "run").code == 0
    assert program("report", "run").code == 0
    assert "the samples have no classes" in (tmp_path / "run" / "report.html").read_text()
