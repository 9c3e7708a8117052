"""Fine-tune a language model across clients: LoRA adapters against all weights.

python examples/lora/lora.py [--clients 10] [--rounds 5] [--pretraining 600]
python examples/lora/lora.py --smoke     one tiny round of each method

A small GPT-2 over characters learns from some of Shakespeare's roles at the server. Then the roles with the most text
are clients, and FedAvg, FedSeq, SPFL and FedGSP fine-tune it: once only its LoRA adapters, once all of its weights.
Frozen weights are sent to every client once, before round 1; after that, only what is trained travels.

Without Shakespeare below $FEDRELAY_DATA, a few lines of each role in this file are the data.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import fedrelay as fr

METHODS = {"fedavg": {}, "fedseq": {}, "spfl": {}, "fedgsp": {"beta": 2}}
"""Name → options of the route. FedGSP would begin with one group of all clients here: that is FedCyclic."""

LENGTH, PADDING, IGNORED = 80, 0, -100
BATCH = 16
MOST_WINDOWS = 120
"""Of a client; SPFL takes as many models through all clients as there are clients."""

RATES = {"adapters": 3e-3, "all weights": 1e-3}

OF_THE_SERVER = """Shall I compare thee to a summer's day?
Thou art more lovely and more temperate:
Rough winds do shake the darling buds of May,
And summer's lease hath all too short a date:
Sometime too hot the eye of heaven shines,
And often is his gold complexion dimmed;
And every fair from fair sometime declines,
By chance or nature's changing course untrimmed;"""

OF_ROLES = {
    "Hamlet": """To be, or not to be, that is the question:
Whether 'tis nobler in the mind to suffer
The slings and arrows of outrageous fortune,
Or to take arms against a sea of troubles""",
    "Macbeth": """Tomorrow, and tomorrow, and tomorrow,
Creeps in this petty pace from day to day,
To the last syllable of recorded time;
And all our yesterdays have lighted fools""",
    "Juliet": """O Romeo, Romeo, wherefore art thou Romeo?
Deny thy father and refuse thy name.
Or if thou wilt not, be but sworn my love
And I'll no longer be a Capulet.""",
    "Portia": """The quality of mercy is not strained,
It droppeth as the gentle rain from heaven
Upon the place beneath: it is twice blest,
It blesseth him that gives and him that takes.""",
}


class Windows(Dataset[tuple[dict[str, Tensor], Tensor]]):
    """Rows of tokens. A model reads all but the last, and predicts the next one at every position."""

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> tuple[dict[str, Tensor], Tensor]:
        tokens, following = self.rows[row, :-1], self.rows[row, 1:]
        inputs = {"input_ids": tokens, "attention_mask": (tokens != PADDING).long()}
        return inputs, following.masked_fill(following == PADDING, IGNORED)


@dataclass(frozen=True)
class Text:
    """What the server and the clients have, and what models are tested on."""

    vocabulary: int
    server: Windows
    clients: dict[str, Windows]
    test: Windows

    def federation(self) -> fr.Federation:
        return fr.federate_datasets(
            self.clients, self.test, classes=self.vocabulary, task="language-model", name="Shakespeare's roles"
        )


def shakespeare(clients: int) -> Text:
    """The roles with the most text as clients, each with its last fifth for the test; the next ones at the server."""
    roles = fr.load_data("shakespeare")
    by_size = roles.sample_counts().argsort()[::-1].tolist()
    rows = {role: windows_of_role(roles, role) for role in by_size[: 3 * clients]}
    parts = {role: rows[role].split(-(-4 * len(rows[role]) // 5)) for role in by_size[:clients]}
    return Text(
        roles.class_count,
        Windows(torch.cat([rows[role] for role in by_size[clients : 3 * clients]])),
        {f"role {role}": Windows(part[0]) for role, part in parts.items()},
        Windows(torch.cat([part[1] for part in parts.values()])),
    )


def windows_of_role(roles: fr.Federation, role: int) -> Tensor:
    """Every eighth window of a role: the data set has one every 10 characters, so these do not overlap."""
    x, y = roles.train_samples(role).load()
    return torch.cat([x, y.unsqueeze(1)], dim=1)[:: LENGTH // 10][:MOST_WINDOWS]


def a_few_lines() -> Text:
    """The lines of this file, one window for each; the last line of every role is for the test."""
    clients = {role: windows_of_lines(lines) for role, lines in OF_ROLES.items()}
    return Text(
        128,
        Windows(windows_of_lines(OF_THE_SERVER)),
        {role: Windows(rows[:-1]) for role, rows in clients.items()},
        Windows(torch.cat([rows[-1:] for rows in clients.values()])),
    )


def windows_of_lines(lines: str) -> Tensor:
    rows = [torch.tensor(list(line.encode("ascii")))[: LENGTH + 1] for line in lines.splitlines()]
    return torch.stack([F.pad(row, (0, LENGTH + 1 - len(row)), value=PADDING) for row in rows])


def new_model(vocabulary: int) -> nn.Module:
    """A GPT-2 of two layers."""
    from transformers import GPT2Config, GPT2LMHeadModel

    ends = {"bos_token_id": PADDING, "eos_token_id": PADDING}
    config = GPT2Config(
        vocab_size=vocabulary, n_positions=LENGTH, n_embd=64, n_layer=2, n_head=4, use_cache=False, **ends
    )
    return GPT2LMHeadModel(config)


def with_adapters(model: nn.Module) -> nn.Module:
    """A copy of the model whose weights are frozen, with LoRA adapters in every attention layer."""
    from peft import LoraConfig, get_peft_model

    return get_peft_model(copy.deepcopy(model), LoraConfig(r=4, target_modules=["c_attn"], fan_in_fan_out=True))


def losses(model: nn.Module, windows: Windows, *, shuffle: bool) -> Iterator[tuple[Tensor, int]]:
    """The summed loss of each batch, and its number of predictions."""
    for inputs, targets in DataLoader(windows, BATCH, shuffle=shuffle):
        logits = model(**inputs).logits.flatten(0, 1)
        yield F.cross_entropy(logits, targets.flatten(), reduction="sum"), int((targets != IGNORED).sum())


def pretrain(model: nn.Module, windows: Windows, steps: int) -> None:
    """Train the model at the server, before there are clients."""
    optimiser = torch.optim.AdamW(model.train().parameters(), lr=3e-3)
    while steps > 0:
        for loss, predictions in losses(model, windows, shuffle=True):
            optimiser.zero_grad()
            (loss / predictions).backward()
            optimiser.step()
            steps -= 1
            if steps == 0:
                break


def perplexity(model: nn.Module, windows: Windows) -> float:
    with torch.no_grad():
        sums = [(float(loss), predictions) for loss, predictions in losses(model.eval(), windows, shuffle=False)]
    total, predictions = map(sum, zip(*sums, strict=True))
    return math.exp(total / predictions)


def compare(model: nn.Module, text: Text, rounds: int, workers: int) -> None:
    """Fine-tune with every method and print a table."""
    data = text.federation()
    trained = {"adapters": with_adapters(model), "all weights": model}
    print(f"{'method':8}{'what is trained':>17}{'bytes/transfer':>16}{'sent in all':>13}{'hops':>7}{'perplexity':>12}")
    for method, route in METHODS.items():
        for what, module in trained.items():
            result = fr.run(
                method, data=data, model=copy.deepcopy(module), rounds=rounds, fraction=1.0, batch_size=BATCH,
                optimizer="adam", lr=RATES[what], workers=workers, route=route,
            )  # fmt: skip
            transfer = result.weights.numel() * result.weights.element_size()
            sent = f"{result.bytes / 1e6:.2f} MB"
            print(f"{method:8}{what:>17}{transfer:>16,}{sent:>13}{result.client_updates:>7}{result.score:>12.3f}")
    frozen = sum(each.nbytes for each in trained["adapters"].parameters() if not each.requires_grad)
    print(f"With adapters, {frozen:,} bytes of frozen weights went to each client once; 'sent in all' contains them.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pretraining", type=int, default=600, help="steps at the server")
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    if not all(map(importlib.util.find_spec, ("transformers", "peft"))):
        sys.exit("transformers and peft are not installed (pip install 'fedrelay[hf]')")
    rounds, steps = (1, 3) if options.smoke else (options.rounds, options.pretraining)
    try:
        text = a_few_lines() if options.smoke else shakespeare(options.clients)
    except fr.DataError as error:
        print(f"{error}\nThe data are a few lines instead.")
        text = a_few_lines()
    torch.manual_seed(1)
    model = new_model(text.vocabulary)
    pretrain(model, text.server, steps)
    print(
        f"{len(text.clients)} clients; perplexity after {steps} steps at the server: {perplexity(model, text.test):.3f}"
    )
    compare(model, text, rounds, workers=1 if options.smoke else 0)


if __name__ == "__main__":
    main()
