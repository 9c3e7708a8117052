"""Where a module comes from: how to build it anew elsewhere, from plain data. Its weights travel in another way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal

from torch import nn

from fedrelay.experiment.serialize import from_plain
from fedrelay.experiment.spec import Section
from fedrelay.local.terms.base import Term
from fedrelay.models.net import Kind
from fedrelay.models.zoo import build_model


class ModuleBuilder(Section, ABC):
    """A way to build a module; its first weights mean nothing."""

    @abstractmethod
    def build(self) -> nn.Module:
        """A module of the right form."""


class ZooModelBuilder(ModuleBuilder):
    """A model of the zoo, in the form that the terms of a method need."""

    name: str
    shape: tuple[int, ...]
    classes: int
    kind: Kind
    hidden: tuple[int, ...] | None = None
    stem: Literal["cifar", "imagenet"] | None = None
    terms: tuple[dict[str, Any], ...] = ()

    def build(self) -> nn.Module:
        """The model, adapted by one term after another."""
        module: nn.Module = build_model(
            self.name, self.shape, self.classes, kind=self.kind, hidden=self.hidden, stem=self.stem
        )
        for term in self.terms:
            module = from_plain(Term, term).adapt(module)
        return module
