"""A public model and the routes that serve it."""

from dataclasses import dataclass

from sluicegate._core import Route


@dataclass(frozen=True, slots=True)
class Model:
    """`name` is what clients ask for, `routes` are in the order of the configuration."""

    name: str
    routes: tuple[Route, ...]
    listed: bool = True
    """False: nobody has said that there is such a model. Its name is the client's, and no metric's label."""

    @property
    def label(self) -> str:
        """For metrics."""
        return self.name if self.listed else ""
