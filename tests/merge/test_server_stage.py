from __future__ import annotations

import pytest
import torch
from tests.merge.conftest import server_steps
from torch import nn

from fedrelay.errors import SpecError
from fedrelay.experiment.method import build_method
from fedrelay.experiment.spec import experiment, validate
from fedrelay.merge.server_momentum import ServerMomentum
from fedrelay.merge.server_stage import NO_STAGE, ServerStage
from fedrelay.models.flat_layout import FlatLayout

ONE = FlatLayout.of(nn.Linear(1, 1, bias=False).double())


def after_merges(stage, merged, layout=ONE):
    """What is sent and what is evaluated after each merge, where merges do not depend on what was sent."""
    sent, state = torch.zeros(layout.size, dtype=layout.dtype), {}
    found = []
    for model in merged:
        result = torch.as_tensor(model, dtype=layout.dtype).reshape(layout.size)
        sent, state = stage.after_merge(result, sent, state, layout)
        memory = [tensor.untyped_storage().data_ptr() for tensor in (sent, *state.values())]
        assert len(set(memory)) == len(memory)  # a checkpoint cannot hold tensors that share memory
        found.append((sent, stage.evaluated_model(sent, state, layout)))
    return found


def numbers(found):
    return [(sent.item(), evaluated.item()) for sent, evaluated in found]


def test_without_options_the_merged_model_is_sent_and_evaluated():
    merged = torch.tensor([3.0], dtype=torch.float64)
    sent, state = NO_STAGE.after_merge(merged, torch.zeros(1, dtype=torch.float64), {}, ONE)
    assert sent is merged
    assert not state
    assert NO_STAGE.evaluated_model(sent, state, ONE) is merged
    assert NO_STAGE.settings_in_use == ()


def test_look_ahead_sends_the_model_beyond_the_one_that_is_evaluated():
    found = numbers(after_merges(ServerStage(lookahead=0.5), [4, 6, 5]))
    assert found == [(4 + 0.5 * 4, 4), (6 + 0.5 * 2, 6), (5 - 0.5 * 1, 5)]


def test_look_ahead_after_a_mean_is_fedacg():
    """FedACG keeps a momentum: m ← λm + Δ, w ← w + m, and sends w + λm; here clients come halfway from it to 8."""
    weight, momentum, published = 0.0, 0.0, []
    for _ in range(6):
        start = weight + 0.85 * momentum
        momentum = 0.85 * momentum + (8 - start) / 2
        weight += momentum
        published.append(weight)
    stage, sent, state, found = ServerStage(lookahead=0.85), torch.zeros(1, dtype=torch.float64), {}, []
    for _ in range(6):
        sent, state = stage.after_merge((sent + 8) / 2, sent, state, ONE)
        found.append(stage.evaluated_model(sent, state, ONE).item())
    assert found == pytest.approx(published, rel=1e-12)


def test_with_a_ramp_the_look_ahead_grows_with_the_merges():
    found = numbers(after_merges(ServerStage(lookahead=0.45, ramp=True), [4, 8, 18, 28, 38]))
    shares = [(sent - evaluated) / step for (sent, evaluated), step in zip(found, [4, 4, 10, 10, 10], strict=True)]
    assert shares == pytest.approx([0, 1 / 4, 2 / 5, 0.45, 0.45])


def test_momentum_is_that_of_fedavgm():
    changes = [0.1, 0.4, -0.3, 0.2]
    steps, _ = server_steps(ServerMomentum(beta=0.9), changes)
    stage, sent, state, found = ServerStage(momentum=0.9), torch.zeros(1, dtype=torch.float64), {}, []
    for change in changes:
        before = sent
        sent, state = stage.after_merge(sent + change, sent, state, ONE)
        found.append((sent - before).item())
    assert found == pytest.approx(steps, rel=1e-12)


def test_look_ahead_follows_momentum():
    # w: 2, then 3 + (0.5·2 + 1) = 5 from what was sent, 3.
    stage, sent, state = ServerStage(momentum=0.5, lookahead=0.5), torch.zeros(1, dtype=torch.float64), {}
    sent, state = stage.after_merge(sent + 2, sent, state, ONE)
    assert (sent.item(), state["merged"].item()) == (3, 2)
    sent, state = stage.after_merge(sent + 1, sent, state, ONE)
    assert (sent.item(), state["merged"].item(), state["velocity"].item()) == (5 + 0.5 * 3, 5, 2)


def test_a_window_is_evaluated_and_not_sent():
    found = numbers(after_merges(ServerStage(average={"window": 3}), [3, 6, 9, 12, 30]))
    assert found == [(3, 3), (6, 4.5), (9, 6), (12, 9), (30, 17)]


def test_a_moving_average_starts_with_the_first_model():
    found = numbers(after_merges(ServerStage(average={"ema": 0.75}), [4, 8, 0]))
    assert found == [(4, 4), (8, 5), (0, 3.75)]


def test_an_average_is_of_models_before_the_look_ahead():
    found = numbers(after_merges(ServerStage(lookahead=0.5, average={"window": 2}), [4, 6, 8]))
    assert found == [(6, 4), (7, 5), (9, 7)]


def test_buffers_are_not_moved_and_counters_not_averaged(batch_norm):
    stage = ServerStage(lookahead=0.5, momentum=0.5, average={"ema": 0.5})
    models = [[2, 2, 1, 1, 1], [2, 2, 5, 3, 2]]  # two parameters, two buffers, a counter
    (_, _), (sent, evaluated) = after_merges(stage, models, batch_norm)
    # Merged to 2 both times, from 0 and from 3: w is 2, then 3 + (0.5·2 − 1) = 3.
    assert sent.tolist() == [3.5, 3.5, 5, 3, 2]
    assert evaluated.tolist() == [2.5, 2.5, 3, 2, 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lookahead": 1}, "server.lookahead: must be less than 1, got 1"),
        ({"ramp": True}, "server.ramp: has no effect without lookahead"),
        ({"average": {"window": 2, "ema": 0.5}}, "server.average.ema: has no effect with a window; keep one"),
        ({"average": {"window": 1}}, "server.average.window: must be greater than or equal to 2, got 1"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(SpecError) as refused:
        validate(ServerStage, options, "server.")
    assert message in str(refused.value)


def test_names_join_what_they_ask_of_the_server():
    stage = build_method(experiment("fedseq+lookahead+wima+fedadam", server={"lookahead": 0.5})).server
    assert stage == ServerStage(lookahead=0.5, average={"window": 10})
    relay = build_method(experiment("relay+fedprox"))
    assert (relay.server.lookahead, relay.sampling, relay.grouping.assign) == (0.9, "passes", "icg")
    with pytest.raises(SpecError, match=r"'lookahead' and 'fedacg' both set server.lookahead; keep one"):
        build_method(experiment("lookahead+fedacg"))
    with pytest.raises(SpecError, match=r"server.lookahead: models of method 'fedstar' are never merged"):
        build_method(experiment("fedstar", server={"lookahead": 0.5}))
