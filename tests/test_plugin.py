"""A package from outside adds a route and a term; every command and engine finds them by name."""

import json
import os
import re
import socket
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import numpy as np
import pytest
import yaml
from pydantic import Field

import fedrelay as fr
from fedrelay.experiment import method_catalogue
from fedrelay.experiment.method_catalogue import METHODS
from fedrelay.merge.last_route import LastRoute
from fedrelay.merge.mean import Mean
from fedrelay.report.page_sections import best_method
from fedrelay.report.report_content import document
from fedrelay.routes.alone import Alone
from fedrelay.routes.centralized import Centralized
from fedrelay.routes.chains import Chains
from fedrelay.routes.singletons import Singletons

PLUGIN = Path(__file__).parents[1] / "examples" / "plugin"
SETTINGS = [
    "--clients",
    "7",
    "--rounds",
    "4",
    "--fraction",
    "0.8",
    "--workers",
    "1",
    "--set",
    "terms.l1prox.strength=0.01",
]
DIES = """
import os, fedrelay as fr

class Dies(fr.Callback):
    def on_round_end(self, context):
        if context.round == 2:
            os._exit(9)

fr.run("pairs+l1prox", clients=7, rounds=4, fraction=0.8, workers=1, terms={"l1prox": {"strength": 0.01}},
       checkpoint={"seconds": 0}, out="run", callbacks=Dies())
"""


def with_packages_in(folder):
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "COLUMNS": "200"}


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """The environment of a machine on which the plug-in is installed: its modules are there, and its entry points."""
    folder, project = tmp_path_factory.mktemp("installed"), tomllib.loads((PLUGIN / "pyproject.toml").read_text())
    name, version = (project["project"][fact] for fact in ("name", "version"))
    (folder / "fedrelay_pairs").symlink_to(PLUGIN / "src" / "fedrelay_pairs")
    about = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    points = project["project"]["entry-points"][method_catalogue.ENTRY_POINTS].items()
    lines = [f"[{method_catalogue.ENTRY_POINTS}]", *(f"{method} = {module}" for method, module in points)]
    (about / "entry_points.txt").write_text("\n".join(lines))
    return with_packages_in(folder)


@pytest.fixture
def fedrelay(environment, warm_python, tmp_path):
    def call(*arguments, code=0):
        done = warm_python.run("-m", "fedrelay", *arguments, folder=tmp_path, environment=environment)
        assert done.returncode == code, done.err
        return done.out if code == 0 else done.err

    return call


@pytest.fixture(scope="module")
def whole(environment, warm_python, tmp_path_factory):
    """What a run says at its end."""
    command = ["-m", "fedrelay", "run", "pairs+l1prox", *SETTINGS, "--json"]
    return json.loads(warm_python.run(*command, folder=tmp_path_factory.mktemp("whole"), environment=environment).out)


@pytest.mark.slow
def test_pip_installs_it(whole, tmp_path):
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--no-build-isolation", "--target", tmp_path / "installed", PLUGIN], check=True)
    command = [sys.executable, "-m", "fedrelay", "run", "pairs+l1prox", *SETTINGS, "--json"]
    environment = with_packages_in(tmp_path / "installed")
    found = json.loads(subprocess.check_output(command, env=environment, cwd=tmp_path, stderr=subprocess.DEVNULL))
    assert found["weights_sha256"] == whole["weights_sha256"]


@pytest.mark.slow
def test_methods_of_installed_packages_are_listed_without_importing_them(fedrelay, environment, warm_python, tmp_path):
    assert "plug-in of fedrelay-pairs 0.1.0" in fedrelay("methods")
    code = "import fedrelay as fr, sys; print('pairs' in fr.methods(), 'fedrelay_pairs' in sys.modules)"
    asked = warm_python.run("-c", code, folder=tmp_path, environment=environment)
    assert asked.out.split() == ["True", "False"]
    page = fedrelay("methods", "show", "pairs+l1prox")
    assert "route: One route for every pair of sampled clients." in page
    assert "--set terms.l1prox.strength=0.001" in page


def test_a_run_is_planned_killed_resumed_and_reported(fedrelay, environment, warm_python, whole, tmp_path):
    assert whole["client_updates"] == 4 * 5
    plan = json.loads(fedrelay("plan", "pairs+l1prox", *SETTINGS, "--json"))
    assert sorted(len(clients) for clients in plan["routes"]) == [1, 2, 2]
    assert warm_python.run("-c", DIES, folder=tmp_path, environment=environment).returncode == 9
    resumed = json.loads(fedrelay("resume", "run", "--json"))
    assert resumed["weights_sha256"] == whole["weights_sha256"]
    fedrelay("report", "run", "--out", "report.html")
    assert "pairs+l1prox" in (tmp_path / "report.html").read_text()


@pytest.mark.slow
def test_a_ray_cluster_finds_it(fedrelay, whole):
    pytest.importorskip("ray")
    there = json.loads(fedrelay("run", "pairs+l1prox", *SETTINGS, "--engine", "ray", "--out", "there", "--json"))
    assert there["weights_sha256"] == whole["weights_sha256"]


@pytest.fixture
def start(environment, warm_python, tmp_path):
    """Starts programs in the background; each is ended by its id."""
    processes = []

    def begin(*arguments):
        log = tmp_path / f"{len(processes)}.log"
        started = warm_python.start("-m", "fedrelay", *arguments, folder=tmp_path, environment=environment, log=log)
        processes.append(started)
        return started

    yield begin
    for process in reversed(processes):
        process.terminate()
    for process in processes:
        process.wait(30)


@pytest.mark.slow
def test_a_node_runs_it_if_its_owner_allows_it(fedrelay, start, tmp_path):
    pytest.importorskip("flwr")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    fedrelay("certificates", "server", "-q")
    digits = fr.load_data("digits", clients=2, partition="iid")
    for client, name in enumerate("ab"):
        fedrelay("key", f"{name}.key", "-q")
        (tmp_path / f"{name}.key.pub").rename(tmp_path / "server" / "nodes" / f"{name}.pub")
        x, y = digits.train_samples(client)
        np.savez(tmp_path / f"{name}.npz", x=x.numpy(), y=y.numpy())

    def node(name, *options):
        where = ["--superlink", f"127.0.0.1:{port}", "--ca", "server/ca.pem", "--holdout", "0.2"]
        return start("node", "--data", f"{name}.npz", "--key", f"{name}.key", *where, *options)

    start("superlink", "server", "--port", port)
    node("a", "--plugin", "fedrelay_pairs.l1prox")
    stubborn = node("b")
    run = ["run", "pairs+l1prox", "--engine", "flower", "--data", "ours", "--rounds", "1", "--fraction", "1"]
    run += ["--set", f"engine.superlink=127.0.0.1:{port}", "--set", "engine.folder=server", "--set", "engine.wait=120"]
    refused = " ".join(fedrelay(*run, "--out", "refused", "-q", code=6).split())
    assert "the server needs plug-ins fedrelay_pairs.l1prox, the node allows none" in refused
    stubborn.terminate()
    stubborn.wait(30)
    node("b", "--plugin", "fedrelay_pairs.l1prox")
    result = json.loads(fedrelay(*run, "--out", "run", "--json"))
    assert (result["client_updates"], result["fault_events"]) == (2, {})


@pytest.fixture
def without(warm_python, tmp_path):
    """Calls the program where the plug-in is not installed."""

    def call(*arguments, code=0):
        environment = {**os.environ, "COLUMNS": "200"}
        done = warm_python.run("-m", "fedrelay", *arguments, folder=tmp_path, environment=environment)
        assert done.returncode == code, done.err
        return done.out if code == 0 else done.err

    return call


def test_without_an_installation_a_spec_names_its_modules(without, tmp_path):
    source = PLUGIN / "src"
    (tmp_path / "spec.yaml").write_text(
        "method: pairs\nplugins: [fedrelay_pairs.pairs]\nrounds: 1\ndata: {name: digits, clients: 6}\n"
    )
    command = ["run", "spec.yaml", "--out", "run", "--json"]
    refused = without(*command, code=2)
    assert refused.count("\n") == 1
    assert "plugins: cannot import fedrelay_pairs.pairs" in refused
    (tmp_path / "fedrelay_pairs").symlink_to(source / "fedrelay_pairs")  # the current folder is searched
    assert json.loads(without(*command))["rounds"] == 1


def test_an_option_names_modules_too(without, tmp_path):
    """In addition to those of a file; a method wins over the plug-in's folder of the same name."""
    source = "import fedrelay as fr\n\n\nclass {}(fr.Term):\n    pass\n\n\n"
    source += "fr.register('{}', summary='does nothing', terms={{'{}': {}}})\n"
    (tmp_path / "lazy").mkdir()
    (tmp_path / "lazy" / "__init__.py").write_text(source.format("Lazy", "lazy", "lazy", "Lazy"))
    (tmp_path / "idle.py").write_text(source.format("Idle", "idle", "idle", "Idle"))
    (tmp_path / "spec.yaml").write_text("method: idle+lazy\nplugins: idle\n")
    small = ["--clients", "4", "--rounds", "1", "--workers", "1", "--json"]

    assert "does nothing" in without("methods", "--plugin", "lazy")
    assert json.loads(without("plan", "lazy", "--plugin", "lazy", *small))["routes"]
    both = ["--plugin", "lazy", "--plugin", "idle"]
    assert json.loads(without("compare", "lazy", "idle", *both, *small, "--out", "compared"))
    assert json.loads(without("run", "spec.yaml", "--plugin", "lazy", *small, "--out", "run"))["complete"]
    assert "plugins:\n- idle\n- lazy\n" in (tmp_path / "run" / "spec.yaml").read_text()
    assert json.loads(without("resume", "run", "--json"))["complete"]
    refused = without("run", "lazy", "--plugin", "nobody_has_this", code=2)
    assert (refused.count("\n"), refused.count("--plugin: cannot import nobody_has_this")) == (1, 1)


def test_reports_import_no_plug_in(without, tmp_path):
    """A folder from somebody else must not run code, and a plug-in that is not here must not prevent a report."""
    (tmp_path / "own.py").write_text(
        "from pathlib import Path\nimport fedrelay as fr\n\nPath('imported').touch()\n\n\nclass Own(fr.Term):\n"
        "    pass\n\n\nfr.register('own', summary='nothing', terms={'own': Own})\n"
    )

    without("run", "fedseq+own", "--set", "plugins=own", "--clients", "4", "--rounds", "1", "--out", "run", "-q")
    (tmp_path / "imported").unlink()
    without("report", "run", "--out", "page.html", "-q")
    without("show", "run", "-q")
    assert not (tmp_path / "imported").exists()
    assert "fedseq+own" in (tmp_path / "page.html").read_text()
    (tmp_path / "own.py").unlink()
    without("report", "run", "--out", "page.html", "-q")


class Lacking(fr.Merge):
    pass


class Misspelt(fr.Term):
    def add_gradiant(self, gradient, theta, context):
        gradient.zero_()


class Short(fr.Term):
    def add_gradient(self, gradient):
        gradient.zero_()


class Swapped(fr.Term):
    def add_gradient(self, theta, gradient, context):
        gradient.zero_()


class Waits(fr.Term):
    async def add_gradient(self, gradient, theta, context):
        gradient.zero_()


class Hasty(fr.Term):
    def adjust_received_model(self, model, context):
        model.flat.zero_()


class Endless(fr.Warmup):
    cycles: int = 3

    def phases(self):
        return ()


class Models(fr.Routing):
    models: int = Field(2, ge=1)
    needed: int

    def plan(self, context, round):
        return fr.RoundPlan(round, (fr.Route((0,)),))


class Former(fr.Grouping):
    def form_groups(self, inputs, profiles=None, *, count=None, key=1):
        return ((0, 1), (1, 99))


def with_tensors(*tensors):
    return {"terms": {"t": type("Own", (fr.Term,), {"tensors": tensors})}}


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({}, "brings no part"),
        ({"merge": Lacking}, "Lacking must define apply"),
        ({"terms": {"t": Misspelt}}, "Misspelt.add_gradiant is no hook; did you mean add_gradient?"),
        ({"terms": {"t": Short}}, "Short.add_gradient must take (self, gradient, theta, context)"),
        ({"terms": {"t": Swapped}}, "Swapped.add_gradient must take (self, gradient, theta, context)"),
        (with_tensors("visits"), "Own.tensors must hold ClientState, ServerState or Payload, got 'visits'"),
        (with_tensors(fr.ClientState("a"), fr.ClientState("a")), "Own.tensors: duplicate name 'a'"),
        (
            with_tensors(fr.ClientState("a", until_merge=True, added_at_merge_to="b"), fr.ServerState("b")),
            "'a' is added at a merge to 'b', so it needs until_merge=True, and 'b' must be a ClientState",
        ),
        (with_tensors(fr.ClientState("a", added_at_merge_to="b"), fr.ClientState("b")), "'a' is added at a merge to"),
        (with_tensors(fr.ServerState("merge/x")), "Own.tensors: names must be letters, digits, - and _, got 'merge/x'"),
        ({"terms": {"t": type("One", (fr.Term,), {"tensors": 3})}}, "One.tensors must be a tuple, got 3"),
        ({"terms": {"a.b": Lacking}}, "the name of a term must be letters, digits, - and _, got 'a.b'"),
        ({"defaults": {"routes": {}}}, "defaults must be like {'route': {'loops': 2}}, got 'routes': {}"),
        ({"defaults": {"route": 3}}, "got 'route': 3"),
        ({"merge": Mean, "profiler": Short}, "profiler must be a subclass of ClientProfiler"),
        ({"terms": [Short]}, "terms must be a mapping by name"),
        ({"route": Short}, "route must be a subclass of Routing"),
        ({"merge": 3}, "merge must be a subclass of Merge, got 3"),
        ({"terms": {"t": Waits}}, "Waits.add_gradient must not be async; nobody would await it"),
        ({"terms": {"t": Hasty}}, "Hasty.adjust_received_model is only called for models that are trained one by one"),
        ({"warmup": Endless}, "Endless.length must name its option with the rounds (cycles)"),
        ({"grouping": Former}, "Former must override assign_groups instead of form_groups"),
        (
            {"route": Models, "defaults": {"route": {"modles": 3}}},
            "defaults: route: unknown key 'modles' (did you mean 'models'?); allowed: models, needed",
        ),
        (
            {"route": Models, "defaults": {"route": {"models": 0, "needed": 1}}},
            "defaults: route.models: must be greater than or equal to 1, got 0",
        ),
        ({"route": Models, "defaults": {"merge": {"weights": "sample"}}}, "defaults: merge.weights: must be 'samples'"),
        ({"route": Models, "defaults": {"terms.prox": {"nu": 1}}}, "defaults: terms.prox: unknown key 'nu'"),
        ({"route": Models, "training": "local"}, "training must be one of federated, alone, pooled, got 'local'"),
        ({"defaults": {"server": {"momentum": 0.9}}}, "no defaults; use server={'momentum': 0.9}"),
        ({"server": {"momentun": 0.9}}, "server: unknown key 'momentun' (did you mean 'momentum'?)"),
        ({"server": {"momentum": 2}}, "server.momentum: must be less than 1, got 2"),
        ({"route": Models, "schedule": "cosin"}, "method 'wrong': schedule.name: must be constant, step, cosine"),
        ({"route": Models, "schedule": "step"}, "factor: is required with 'step'"),
        ({"route": Models, "schedule": ""}, "method 'wrong': schedule.name: must be constant, step, cosine"),
        (
            {"route": Models, "schedule": {"name": "cosine"}},
            "schedule must be the name of a schedule, such as 'cosine'",
        ),
        ({"route": Models, "clip": "much"}, "method 'wrong': clip: must be a number"),
        ({"route": Models, "clip": -1}, "method 'wrong': clip: must be greater than or equal to 0, got -1"),
        ({"route": Models, "sampling": None}, "sampling must be one of random, passes, got None"),
    ],
)
def test_parts_that_cannot_work_are_refused_when_registered(parts, message):
    with pytest.raises(fr.SpecError) as refused:
        fr.register("wrong", summary="", **parts)
    assert message in str(refused.value)
    assert "wrong" not in fr.methods()


def test_defaults_may_leave_options_to_the_user_and_name_terms_of_others(monkeypatch):
    defaults = {"route": {"models": 3}, "terms.prox": {"mu": 1.0}, "terms.unknown": {"x": 1}}
    monkeypatch.setitem(METHODS, "models", None)
    del METHODS["models"]  # and again when the test ends
    fr.register("models", summary="", route=Models, defaults=defaults)
    assert METHODS["models"].defaults == defaults


@pytest.fixture
def own_baselines(monkeypatch):
    for name in ("hermits", "one-place"):
        monkeypatch.setitem(METHODS, name, None)
        del METHODS[name]  # and again when the test ends
    fr.register("hermits", summary="", route=Alone, training="alone", defaults={"merge": {"weights": "uniform"}})
    fr.register("one-place", summary="", route=Centralized, default_merge=LastRoute, training="pooled")


def test_a_registered_baseline_takes_the_place_of_the_built_in_ones(own_baselines, small, tmp_path):
    names = ["fedavg", "hermits", "one-place"]
    settings = {**small, "rounds": 2, "workers": 1, "holdout": 0.2, "per_client": 2}
    outcome = fr.compare(names, **settings, out=tmp_path / "own")
    with_built_in = fr.compare(["fedavg", "local", "centralized"], **settings)
    assert outcome.clients.alone == "hermits"
    assert [each.gain for each in outcome.clients.gains["fedavg"]] == [
        each.gain for each in with_built_in.clients.gains["fedavg"]
    ]
    assert outcome.reference == outcome["one-place"].results[0].accuracy_last == with_built_in.reference
    for name in names[1:]:
        del METHODS[name]  # reports import no plug-ins
    found = document([tmp_path / "own"])
    assert [method["training"] for method in found["methods"]] == ["federated", "alone", "pooled"]
    assert best_method(found)["name"] == "fedavg"


def test_a_registered_method_may_sample_in_passes(monkeypatch, small):
    monkeypatch.setitem(METHODS, "everyone", None)
    del METHODS["everyone"]
    fr.register("everyone", summary="", route=Singletons, sampling="passes")
    settings = {**small, "rounds": 3, "workers": 1, "fraction": 0.4}
    own, built_in = fr.run("everyone", **settings), fr.run("fedavg", **settings, sampling="passes")
    assert own.summary()["weights_sha256"] == built_in.summary()["weights_sha256"]
    assert own.summary()["weights_sha256"] != fr.run("fedavg", **settings).summary()["weights_sha256"]


def test_a_registered_method_may_say_how_to_train(monkeypatch, small, tmp_path):
    monkeypatch.setitem(METHODS, "careful", None)
    del METHODS["careful"]
    fr.register("careful", summary="", route=Singletons, schedule="cosine", clip=0.1)
    settings = {**small, "rounds": 3, "workers": 1}
    own = fr.run("careful", **settings, out=tmp_path / "own")
    written_out = fr.run("fedavg", **settings, schedule="cosine", clip=0.1)
    assert own.summary()["weights_sha256"] == written_out.summary()["weights_sha256"]
    overruled = fr.run("careful", **settings, schedule="constant", clip=0)
    assert overruled.summary()["weights_sha256"] == fr.run("fedavg", **settings).summary()["weights_sha256"]
    stored = yaml.safe_load((tmp_path / "own/spec.yaml").read_text())["train"]
    assert (stored["schedule"]["name"], stored["clip"]) == ("cosine", 0.1)


def test_entry_points_that_cannot_work_are_refused(monkeypatch):
    points = [("gone", "my_gone.module"), ("twice", "my_one"), ("twice", "my_two"), ("silent", "json")]
    found = EntryPoints(EntryPoint(name, module, method_catalogue.ENTRY_POINTS) for name, module in points)
    monkeypatch.setattr(method_catalogue, "entry_points", found.select)
    assert {"gone", "twice", "silent"} <= set(fr.methods())
    for name, message in {
        "gone": r"method 'gone' \(entry point 'my_gone.module'\): cannot import my_gone.module",
        "twice": r"method 'twice': several packages list it \(my_one, my_two\); uninstall all but one",
        "silent": "method 'silent': json does not register it",
    }.items():
        with pytest.raises(fr.SpecError, match=message):
            fr.run(name)


def test_names_that_are_taken_are_refused():
    with pytest.raises(fr.SpecError, match=r"method 'fedavg': this name is taken by fedrelay\.routes"):
        fr.register("fedavg", summary="", terms={"t": type("Mine", (fr.Term,), {})})
    with pytest.raises(fr.SpecError, match="plugins: must be a list of modules"):
        fr.run("fedavg", plugins=3)
    with pytest.raises(fr.SpecError, match=r"must be names of modules such as mylab\.pairs, without \.py"):
        fr.run("fedavg", plugins=["own.py"])


class Nowhere(fr.Routing):
    client: int = 999

    def plan(self, context, round):
        return fr.RoundPlan(round, (fr.Route((self.client,)),)) if self.client else None


class Broken(fr.Merge):
    def apply(self, inputs):
        return inputs.global_model[:3]


class Shrink(fr.Term):
    def add_gradient(self, gradient, theta, context):
        self.x = 1


class Lost(fr.Term):
    def add_gradient(self, gradient, theta, context):
        return gradient + theta


class Grow(fr.Term):
    fails: str = "write_state_and_payload"

    def adapt_model(self, module):
        return module if self.fails != "adapt_model" else None

    def write_state_and_payload(self, context, outcome):
        if self.fails == "write_state_and_payload":
            self._helper(context)

    def _helper(self, context):
        context.payload["nothing"].zero_()

    def adjust_merged_model(self, merged, before, layout):
        return merged if self.fails != "adjust_merged_model" else merged[:3]

    def after_merge(self, round):
        return fr.TermResult() if self.fails != "after_merge" else None


class Ungrouped(Chains):
    pass


OWN = {
    "ungrouped": {"route": Ungrouped},
    "nowhere": {"route": Nowhere},
    "broken": {"merge": Broken},
    "shrink": {"terms": {"shrink": Shrink}},
    "lost": {"terms": {"lost": Lost}},
    "grow": {"terms": {"grow": Grow}},
}


@pytest.fixture
def own_methods():
    for name, parts in OWN.items():
        fr.register(name, summary="", **parts)
    yield
    for name in OWN:
        del METHODS[name]


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("nowhere", {}, "round 1: route 'Nowhere', plan: IndexError: client 999 does not exist"),
        (
            "nowhere",
            {"route": {"client": 0}},
            "round 1: route 'Nowhere', plan: TypeError: must return a RoundPlan, got None",
        ),
        ("broken", {}, "round 1: merge 'Broken', apply: TypeError: must return a MergeResult, got Tensor"),
        ("ungrouped", {}, "method 'ungrouped': 'ungrouped' needs groups; register it with grouping=fedrelay.Grouping"),
        (
            "shrink",
            {},
            "TRAINING: term 'Shrink', add_gradient: x cannot be set: parts are frozen",
        ),
        (
            "lost",
            {},
            "TRAINING: term 'Lost', add_gradient: must change its first tensor in place and return nothing, got a",
        ),
        ("grow", {}, "TRAINING: term 'Grow', write_state_and_payload: KeyError: 'nothing' (line "),
        *(
            ("grow", {"terms": {"grow": {"fails": hook}}}, f"{place}term 'Grow', {hook}: TypeError: must return ")
            for hook, place in {
                "adapt_model": "",
                "adjust_merged_model": "round 1: ",
                "after_merge": "round 1: ",
            }.items()
        ),
    ],
)
@pytest.mark.parametrize("workers", [1, 2])
def test_failures_of_own_parts_are_one_line(own_methods, method, options, message, workers):
    with pytest.raises(fr.SpecError) as refused:
        fr.run(method, clients=4, rounds=1, fraction=1.0, workers=workers, **options)
    found = re.sub(r"^round 1: training on client \d(, \d)*", "TRAINING", str(refused.value))
    assert found.startswith(message)
    assert "\n" not in found
    assert ".py)" not in str(refused.value) or f"of {__file__})" in str(refused.value)
