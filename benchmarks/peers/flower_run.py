"""Flower: its FedAvg strategy in its simulation on Ray, one actor per core, timed from round end to round end.

Generous to Flower: model and data are made once in every actor, the client does nothing but the local pass.
"""

from __future__ import annotations

import time

from flower_client import app as client_app
from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from workload import POPULATION, STEPS, WARM_UP, report, task


def main() -> None:
    """Train the warm-up rounds and those that are timed."""
    wanted = task()
    case = wanted.case
    rounds = WARM_UP + wanted.rounds
    ends: list[float] = []
    warm = case.model()
    server_app = ServerApp()

    def round_done(round: int, arrays: ArrayRecord) -> None:
        if round == WARM_UP:
            warm.load_state_dict(arrays.to_torch_state_dict())
        ends.append(time.perf_counter())

    @server_app.main()
    def serve(grid: Grid, context: Context) -> None:
        strategy = FedAvg(fraction_train=case.fraction, fraction_evaluate=0.0, min_available_nodes=POPULATION)
        result = strategy.start(
            grid,
            ArrayRecord(case.model().state_dict()),
            num_rounds=rounds,
            train_config=ConfigRecord({"case": case.name}),
            evaluate_fn=round_done,
        )
        assert [dict(metrics)["steps"] for metrics in result.train_metrics_clientapp.values()] == [STEPS] * rounds

    run_simulation(
        server_app,
        client_app,
        num_supernodes=POPULATION,
        backend_config={
            "init_args": {"_node_ip_address": "127.0.0.1"},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )
    seconds = ends[rounds] - ends[WARM_UP]  # the first entry is the model before the first round
    report(case, seconds, wanted.rounds * case.clients, loss=case.loss(warm))


if __name__ == "__main__":
    main()
