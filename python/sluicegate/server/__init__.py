"""Running the gateway: one process, its addresses and threads, its signals, its end."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sluicegate.config import Config

if TYPE_CHECKING:
    from sluicegate.server.running import Tell


def serve(
    config: Config,
    config_path: Path | None = None,
    *,
    ports: Sequence[int] = (),
    tell: "Tell | None" = None,
) -> int:
    """See `sluicegate.server.serve.serve`."""
    from sluicegate.server.serve import serve as run

    return run(config, config_path, ports=ports, tell=tell)


__all__ = ["serve"]
