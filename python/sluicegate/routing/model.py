"""A public model and the routes that serve it."""

from dataclasses import dataclass

from sluicegate._core import Route


@dataclass(frozen=True, slots=True)
class Model:
    """`name` is what clients ask for, `routes` are in the order of the configuration."""

    name: str
    routes: tuple[Route, ...]
