"""Running the gateway: one process, its addresses and threads, its signals, its end."""

from pathlib import Path

from sluicegate.config import Config


def serve(config: Config, config_path: Path | None = None) -> int:
    """See `sluicegate.server.serve.serve`."""
    from sluicegate.server.serve import serve as run

    return run(config, config_path)


__all__ = ["serve"]
