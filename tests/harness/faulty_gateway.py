"""Starting a gateway that breaks when it is told to."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.gateway_process import GatewayProcess


async def faulty_gateway(
    config: Mapping[str, Any], directory: Path, *, patience: float = 15.0
) -> GatewayProcess:
    """One that follows the commands of `harness.faulty_launcher`, given by `tell`.

    `patience`: how long its engines wait for a decision, in seconds.
    """
    launcher = ("harness.faulty_launcher", str(patience))
    return await GatewayProcess.start(config, directory, launcher=launcher)
