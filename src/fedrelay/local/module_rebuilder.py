"""How a module is built again elsewhere, from plain data. Its weights are sent separately."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Literal

from pydantic import BeforeValidator, PlainSerializer
from torch import nn

from fedrelay.experiment.part_serialization import from_plain, to_plain
from fedrelay.experiment.spec import Section
from fedrelay.local.terms.base import Term
from fedrelay.models.two_part_classifier import Kind
from fedrelay.models.zoo import build_model

SentTerm = Annotated[
    Term,
    PlainSerializer(to_plain),
    BeforeValidator(lambda term: term if isinstance(term, Term) else from_plain(Term, term)),
]
"""A term that becomes plain data when its section does."""


class ModuleRebuilder(Section, ABC):
    """Builds a module of the right structure; its initial weights are not used."""

    @abstractmethod
    def build(self) -> nn.Module: ...


class ZooModelRebuilder(ModuleRebuilder):
    """Builds a model of the zoo and lets the terms of a method adapt it, in order."""

    name: str
    shape: tuple[int, ...]
    classes: int
    kind: Kind
    hidden: tuple[int, ...] | None = None
    stem: Literal["cifar", "imagenet"] | None = None
    terms: tuple[SentTerm, ...] = ()

    def build(self) -> nn.Module:
        module: nn.Module = build_model(
            self.name, self.shape, self.classes, kind=self.kind, hidden=self.hidden, stem=self.stem
        )
        for term in self.terms:
            module = term.adapt_model(module)
        return module
