"""Asking the admin API of a gateway."""

from typing import Any

import httpx

from harness.gateway_process import GatewayProcess

API = "/admin/api/v1"
OPERATOR, VIEWER = "operator-token-0001", "viewer-token-00001"
TOKENS = [
    {"name": "ops", "token": OPERATOR, "role": "operate"},
    {"name": "scraper", "token": VIEWER},
]


def admin_client(address: str, token: str | None, **options: Any) -> httpx.AsyncClient:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    return httpx.AsyncClient(base_url=address, headers=headers, timeout=30.0, **options)


async def admin_address(gateway: GatewayProcess) -> str:
    return str((await gateway.wait_line(event="admin_listening"))["address"])


def asked(model: str, **more: Any) -> dict[str, Any]:
    """A chat completion."""
    return {"model": model, "messages": [{"role": "user", "content": "Say something."}], **more}


async def listed(client: httpx.AsyncClient, path: str, cursor: str, **params: Any) -> list[dict[str, Any]]:
    """All of a list, page by page. `cursor`: the parameter that goes on."""
    found: list[dict[str, Any]] = []
    while True:
        response = await client.get(API + path, params=params)
        assert response.status_code == 200, response.text
        body = response.json()
        assert body["object"] == "list"
        assert body["has_more"] is (body["next"] is not None)
        found += body["data"]
        if not body["has_more"]:
            return found
        params = {**params, cursor: body["next"]}
