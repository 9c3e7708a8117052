"""Data that are dealt anew for every seed, by a function of the user's own."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import fedrelay as fr
from fedrelay.data.own_data_per_seed import OwnDataPerSeed

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(60, 4)).astype(np.float32), RNG.integers(0, 3, 60)
SETTINGS = {"rounds": 2, "fraction": 1.0, "batch_size": 4, "workers": 1}


def dealt(seed: int) -> fr.Federation:
    return fr.federate(X[:40], Y[:40], X[40:], Y[40:], clients=5, alpha=0.3, seed=seed)


def test_every_seed_has_its_own_partition_and_all_methods_of_a_seed_the_same():
    calls = Counter()

    def counted(seed):
        calls[seed] += 1
        return dealt(seed)

    outcome = fr.compare(["fedavg", "fedseq"], data=counted, seeds=[3, 4], **SETTINGS)
    assert calls == {3: 2, 4: 2}  # once for every run
    for method in ("fedavg", "fedseq"):
        for result, seed in zip(outcome[method].results, (3, 4), strict=True):
            alone = fr.run(method, data=dealt(seed), seed=seed, **SETTINGS)
            assert result.weights_sha256 == alone.weights_sha256
            assert (result.experiment.data.name, result.experiment.data.clients) == ("own data", 5)
    fixed = fr.run("fedavg", data=dealt(3), seed=4, **SETTINGS)
    assert outcome["fedavg"].results[1].weights_sha256 != fixed.weights_sha256


def test_runs_resume_with_the_same_function(tmp_path):
    whole = fr.compare(["fedavg"], data=dealt, seeds=[1, 2], **SETTINGS)
    fr.compare(["fedavg"], data=dealt, seeds=[1, 2], out=tmp_path / "out", **SETTINGS)
    again = fr.compare(["fedavg"], data=dealt, seeds=[1, 2], out=tmp_path / "out", **SETTINGS)
    for one, other in zip(whole["fedavg"].results, again["fedavg"].results, strict=True):
        assert one.weights_sha256 == other.weights_sha256
    run = tmp_path / "out" / "fedavg" / "seed-2"
    assert fr.resume(run, data=dealt).weights_sha256 == whole["fedavg"].results[1].weights_sha256
    with pytest.raises(fr.RunFolderError, match=r"data=…\)"):
        fr.resume(run)
    with pytest.raises(fr.RunFolderError, match="the data are not those the run was started with"):
        fr.resume(run, data=lambda seed: dealt(seed + 1))


def test_plans_and_public_samples(tmp_path):
    assert len(fr.plan("fedavg", data=dealt, fraction=1.0, seed=2).routes) == 5
    result = fr.run("fedavg", data=dealt, public=2, out=tmp_path / "run", **SETTINGS)
    assert result.experiment.data.public == 2


def impatient(seed):
    return 1 // 0


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (lambda: dealt(1), r"data: lambda must take the seed of a run, as in data=lambda seed: fr\.federate"),
        (lambda seed: X, r"data: lambda\(1\): must return a federation, got ndarray"),
        (impatient, r"data: impatient\(1\): ZeroDivisionError: .*\(line \d+ of .*test_own_data_per_seed\.py\)"),
        (7, "data: must be a name, a mapping of settings, a federation or a function of the seed, got int"),
    ],
)
def test_what_is_no_function_of_the_seed_is_refused_in_one_line(data, message):
    with pytest.raises(fr.SpecError, match=message) as refused:
        fr.run("fedavg", data=data, **SETTINGS)
    assert "\n" not in str(refused.value)


def test_settings_of_data_have_no_effect():
    with pytest.raises(fr.SpecError, match="clients: has no effect on data of your own"):
        fr.run("fedavg", data=dealt, clients=3)


def test_a_seed_gives_the_same_data_every_time():
    seeds = iter(range(10))
    moving = OwnDataPerSeed(lambda seed: dealt(next(seeds)))
    moving.federation(1)
    moving.federation(2)
    with pytest.raises(fr.DataError, match=r"lambda\(1\): returned other data than before"):
        moving.federation(1)
