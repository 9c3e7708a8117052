"""Code of the user's own: what is wrong with it is said in one line."""

from __future__ import annotations

import pytest
from torch import nn

import fedrelay as fr

SMALL = {"clients": 4, "rounds": 1, "workers": 1}


@pytest.fixture
def modules(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_nets.py").write_text(
        "from torch import nn\n\nWIDTH = 3\n\n\ndef make():\n    return nn.Linear(1, 1)\n"
    )
    (tmp_path / "my_broken.py").write_text("def make():\n    pass\n\n\n1 / 0\n")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("my_nets:", "'my_nets:': must be MODULE:FUNCTION, such as mylab.nets:make_net"),
        (":make", "':make': must be MODULE:FUNCTION"),
        ("my_nets.py:make", "must be MODULE:FUNCTION"),
        ("my_nets:nope", "my_nets:nope: my_nets has no function 'nope'; it has make"),
        ("my_nets:WIDTH", "my_nets has no function 'WIDTH'; it has make"),
        ("my_nope:f", "my_nope:f: cannot import my_nope (ModuleNotFoundError: No module named 'my_nope'); install it"),
        ("my_broken:make", "my_broken failed when it was imported: ZeroDivisionError: division by zero (line 5 of"),
        (3, "model: must be a model of the zoo, 'module:function', a mapping of settings or an nn.Module, got int"),
        (nn.ReLU, "or an nn.Module, got the class ReLU; call it"),
    ],
)
def test_a_model_that_cannot_be_found_is_refused_in_one_line(modules, model, message):
    with pytest.raises(fr.SpecError) as refused:
        fr.run("fedavg", model=model, **SMALL)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
