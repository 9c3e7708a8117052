"""Experiments as validated data: the same names everywhere, and one clear message for every mistake."""

from __future__ import annotations

import contextlib

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from fedrelay.errors import SpecError
from fedrelay.experiment.spec import (
    Comparison,
    Experiment,
    comparison,
    experiment,
    load_file,
    nested,
    parse_assignment,
    set_path,
    shortcuts,
    validate,
)


def test_short_dotted_and_nested_names_say_the_same():
    short = experiment("fedseq", data="digits", clients=7, lr=0.3, workers=2)
    dotted = experiment("fedseq", **{"data.name": "digits", "data.clients": 7, "train.lr": 0.3, "engine.workers": 2})
    deep = experiment("fedseq", data={"name": "digits", "clients": 7}, train={"lr": 0.3}, engine={"workers": 2})
    assert short == dotted == deep


def test_an_experiment_survives_yaml():
    original = experiment(
        "fedseq+fedprox", clients=7, hidden=[3, 4], shifts=["none", "noise"], terms={"prox": {"mu": 0.5}}
    )
    again = validate(Experiment, yaml.safe_load(yaml.safe_dump(original.model_dump(mode="json"))))
    assert again == original


def test_an_experiment_cannot_be_changed():
    with pytest.raises(ValidationError):
        experiment("fedavg").rounds = 3  # type: ignore[misc]


def test_every_short_name_leads_to_one_setting():
    short = shortcuts()
    assert short["clients"] == "data.clients"
    assert short["lr"] == "train.lr"
    assert short["every"] == "eval.every"
    assert not {"name", "rounds", "seed", "fraction", "out"} & set(short)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"data": {"alfa": 1}},
            "data.alfa: unknown key 'alfa' (did you mean 'alpha'?); allowed: name, path, clients",
        ),
        ({"alfa": 1}, "alfa: unknown key 'alfa' (did you mean 'alpha'?); allowed: data, model, task, train"),
        ({"rouds": 1}, "rouds: unknown key 'rouds' (did you mean 'rounds'?)"),
        ({"lr": -1}, "train.lr: must be greater than 0, got -1"),
        ({"lr": "fast"}, "train.lr: must be a number, got 'fast'"),
        ({"rounds": 0}, "rounds: must be greater than or equal to 1, got 0"),
        ({"rounds": 2.5}, "rounds: must be a whole number, got 2.5"),
        ({"rounds": True}, "rounds: must not be true or false, got True"),
        ({"rounds": None}, "rounds: must be a whole number, got None"),
        ({"fraction": 0}, "fraction: must be greater than 0, got 0"),
        ({"fraction": 1.5}, "fraction: must be less than or equal to 1, got 1.5"),
        ({"momentum": 1}, "train.momentum: must be less than 1, got 1"),
        ({"momentum": float("nan")}, "train.momentum: must be a finite number, got nan"),
        ({"alpha": float("inf")}, "data.alpha: must be a finite number, got inf"),
        ({"alpha": -0.1}, "data.alpha: must be greater than or equal to 0, got -0.1"),
        ({"clients": 0}, "data.clients: must be greater than or equal to 1, got 0"),
        ({"seed": -1}, "seed: must be greater than or equal to 0, got -1"),
        ({"partition": "dirichlt"}, "got 'dirichlt' (did you mean 'dirichlet'?)"),
        ({"hidden": [0]}, "model.hidden.0: must be greater than or equal to 1, got 0"),
        ({"targets": [1.2]}, "eval.targets.0: must be less than or equal to 1, got 1.2"),
        ({"train": 3}, "train: must be a mapping of settings, got 3"),
        ({"engine": "cloud"}, "engine.name: must be 'local', 'ray' or 'flower', got 'cloud'"),
        ({"route": 3}, "route: must be a mapping of settings, got 3"),
        ({"train.lr.x": 3}, "train.lr: must be a number, got {'x': 3}"),
        (
            {"partition": "iid", "alpha": 1},
            "data.alpha: has no effect with the partition 'iid'; only with dirichlet,",
        ),
        ({"shard_size": 3}, "data.shard_size: has no effect with the partition 'dirichlet'; only with shards"),
        ({"data": "synthetic", "min_samples": 3}, "data.min_samples: has no effect with synthetic data"),
        ({"beta": 3}, "data.beta: has no effect with the partition 'dirichlet'; only with synthetic"),
        ({"rounds": 3, "rounds.x": 1}, "rounds: is a value (3), it has no 'x'"),
    ],
)
def test_mistakes_get_one_clear_message(settings, message):
    with pytest.raises(SpecError) as refused:
        experiment("fedseq", **settings)
    assert message in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


def test_several_mistakes_are_named_together():
    with pytest.raises(SpecError) as refused:
        experiment("fedseq", lr=-1, rounds=0)
    assert str(refused.value).splitlines() == [
        "train.lr: must be greater than 0, got -1",
        "rounds: must be greater than or equal to 1, got 0",
    ]


def test_the_method_is_required():
    with pytest.raises(SpecError, match="method: is required"):
        validate(Experiment, {})
    with pytest.raises(SpecError, match="method: "):
        experiment("")


class TestComparison:
    def test_names_and_entries_mix(self):
        found = comparison(
            ["fedavg", {"method": "fedseq", "label": "pairs", "grouping": {"max_clients": 2}}], seeds=[1, 2]
        )
        assert [entry.name for entry in found.methods] == ["fedavg", "pairs"]

    @pytest.mark.parametrize(
        ("methods", "settings", "message"),
        [
            (["fedavg", "fedavg"], {}, "methods: fedavg is listed twice; give each its own label"),
            (["fedavg"], {"seeds": [1, 1]}, "seeds: 1 is listed twice"),
            ([], {}, "methods: "),
            (["fedavg"], {"seeds": []}, "seeds: "),
            (
                [{"method": "fedavg", "lable": "x"}],
                {},
                "methods.0.lable: unknown key 'lable' (did you mean 'label'?)",
            ),
            ([3], {}, "methods.0: "),
            (
                [{"method": "fedavg", "label": "a b"}, {"method": "fedseq", "label": "A b"}],
                {},
                "the labels 'a b' and 'A b' would share a folder",
            ),
        ],
    )
    def test_mistakes(self, methods, settings, message):
        with pytest.raises(SpecError) as refused:
            comparison(methods, **settings)
        assert message in str(refused.value)

    @pytest.mark.parametrize(
        ("label", "folder"),
        [("fedseq+fedprox", "fedseq+fedprox"), ("..", "_"), ("../x", "_x"), ("a/b", "a_b"), ("µ=1", "µ_1")],
    )
    def test_folders_stay_inside(self, label, folder):
        (entry,) = comparison([{"method": "fedavg", "label": label}]).methods
        assert entry.folder == folder

    def test_methods_must_be_a_list(self):
        with pytest.raises(SpecError, match="methods: "):
            validate(Comparison, {"methods": "fedavg"})


class TestAssignments:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("train.lr=0.1", ("train.lr", 0.1)),
            ("a=b=c", ("a", "b=c")),
            ("model.hidden=[3, 4]", ("model.hidden", [3, 4])),
            ("out=", ("out", "")),
            ("clip=null", ("clip", None)),
        ],
    )
    def test_values_are_yaml(self, text, expected):
        assert parse_assignment(text) == expected

    @pytest.mark.parametrize("text", ["lr", "=3", "a=[1"])
    def test_mistakes(self, text):
        with pytest.raises(SpecError, match="--set"):
            parse_assignment(text)

    def test_paths_merge(self):
        tree = nested({"data": "digits", "data.clients": 3, "train": {"lr": 1}, "train.momentum": 0.5})
        assert tree == {"data": {"name": "digits", "clients": 3}, "train": {"lr": 1, "momentum": 0.5}}
        set_path(tree, "data", "mnist")
        assert tree["data"] == {"name": "mnist", "clients": 3}


class TestFiles:
    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("method: [", "line 1: not valid YAML"),
            ("- fedavg", "must be a mapping of names to values"),
            ("", "must be a mapping of names to values"),
            ("1: 2", "must be a mapping of names to values"),
            ("rounds: 3", "needs either 'method' (one run) or 'methods' (a comparison)"),
            ("method: a\nmethods: [b]", "needs either 'method'"),
            ("method: a\nrounds: 2\nrounds: 3", "line 3: not valid YAML (duplicate key 'rounds')"),
            ("method: !!python/object/apply:os.system ['true']", "not valid YAML"),
        ],
    )
    def test_mistakes(self, tmp_path, content, message):
        path = tmp_path / "spec.yaml"
        path.write_text(content)
        with pytest.raises(SpecError) as refused:
            load_file(path)
        assert message in str(refused.value)
        assert str(path) in str(refused.value)

    def test_missing_and_binary_files(self, tmp_path):
        with pytest.raises(SpecError, match="cannot be read"):
            load_file(tmp_path / "none.yaml")
        (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
        with pytest.raises(SpecError, match="not valid YAML"):
            load_file(tmp_path / "binary")


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
some_key = st.sampled_from([*Experiment.model_fields, *shortcuts(), "train.lr", "route.loops", "x", "data.x.y", ""])


@settings(max_examples=300)
@given(st.dictionaries(some_key, json_like, max_size=4))
def test_any_settings_are_accepted_or_refused_with_a_message(values):
    values.pop("method", None)
    with contextlib.suppress(SpecError):
        assert experiment("fedavg", **values).method == "fedavg"


def test_a_setting_of_older_versions_names_its_successor():
    message = r"^route\.relay: this setting is now called route\.handover$"
    with pytest.raises(SpecError, match=message):
        experiment("fedseq", **{"route.relay": "server"})
    with pytest.raises(SpecError, match=message):
        comparison(["fedavg", "fedseq"], route={"relay": "server"})
