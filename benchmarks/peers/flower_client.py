"""The client of the Flower contender; a module of its own, so that Ray's actors find it by name and keep its caches."""

from __future__ import annotations

from functools import lru_cache

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import Tensor, nn
from workload import CASES, local_pass

app = ClientApp()


@lru_cache
def workplace(case: str) -> tuple[nn.Module, Tensor, Tensor]:
    """Model and data, made once in every process."""
    torch.set_num_threads(1)
    return CASES[case].model(), *CASES[case].data()


@app.train()
def train(message: Message, context: Context) -> Message:
    """One client update."""
    model, x, y = workplace(message.content["config"]["case"])
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    client = int(context.node_config["partition-id"])
    steps = local_pass(model, x[client], y[client])
    reply = {
        "arrays": ArrayRecord(model.state_dict()),
        "metrics": MetricRecord({"num-examples": len(y[client]), "steps": steps}),
    }
    return Message(RecordDict(reply), reply_to=message)
