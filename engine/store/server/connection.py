"""Connections to Redis or Valkey, and what must hold before a worker writes.

Nothing here retries a write: a commit whose answer was lost is resolved by reading
(docs/commit.md), and redis-py's own retries would send it twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeAlias
from urllib.parse import SplitResult, parse_qs, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.connection import SSLConnection
from redis.driver_info import DriverInfo
from redis.exceptions import (
    AskError,
    AuthenticationError,
    ClusterDownError,
    ConnectionError as RedisConnectionError,
    InvalidResponse,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
    TimeoutError as RedisTimeoutError,
)
from redis.retry import Retry

from lethe.engine.errors import CorruptState, InvalidData, StoreUnavailable
from lethe.engine.store.layout.reading import parse_text
from lethe.engine.store.server.cluster import Cluster, every_server, primaries
from lethe.engine.store.server.tls import NO_TLS, Access, advice

Fields: TypeAlias = Any
"""A mapping for HSET: redis-py's own type is invariant and refuses dict[str, bytes]."""

_REFUSES_WRITES = (OutOfMemoryError, ReadOnlyError, ClusterDownError)
_REFUSES_WRITES_CODES = ("MISCONF", "NOREPLICAS", "BUSY ", "UNKILLABLE")  # redis-py has no class

_CLUSTER = {"redis+cluster": "redis", "rediss+cluster": "rediss"}
_NO_ADDRESS = (
    "--redis (LETHE_REDIS_URL) is not a usable address; write redis://HOST:PORT/DB, "
    "rediss://HOST:PORT/DB, unix:///PATH, or redis+cluster://HOST:PORT,HOST:PORT,..."
)
_CONNECT_SECONDS = 5.0
_DRIVER = DriverInfo(name="lethe", lib_version=None)  # what CLIENT LIST shows
_ANSWER_SECONDS = 30.0


def connect(url: str, access: Access | None = None) -> redis.Redis:
    """Return a client for ``redis://``, ``rediss://`` or ``unix://`` that never retries.

    For ``redis+cluster://`` or ``rediss+cluster://`` with the addresses of some nodes, it is a
    `Cluster`. ``access`` holds the files and the password that are not in the address.

    Raises
    ------
    InvalidData
        The address has unknown options, or a file cannot be used.
    """
    if url.partition(":")[0].lower() in _CLUSTER:
        try:
            parts = urlsplit(url)
        except ValueError as error:
            raise InvalidData(f"the address of the store cannot be used: {error}") from None
        return _connect_cluster(parts, access or Access())
    return _connect_server(url, access or Access())


def _connect_cluster(parts: SplitResult, access: Access) -> Cluster:
    user, at, nodes = parts.netloc.rpartition("@")

    def open_server(address: str) -> redis.Redis:
        server = parts._replace(scheme=_CLUSTER[parts.scheme], netloc=f"{user}{at}{address}")
        return _connect_server(server.geturl(), access)

    if parts.path.strip("/") not in ("", "0"):
        raise InvalidData(
            f"LETHE_REDIS_URL names database {parts.path.strip('/')}: a cluster has database 0 "
            "only; leave it out"
        )
    addresses = nodes.split(",")
    if not all(addresses):
        raise InvalidData(_NO_ADDRESS)
    return Cluster(open_server, addresses)


def _connect_server(url: str, access: Access) -> redis.Redis:
    try:
        client = redis.Redis.from_url(
            url,
            socket_connect_timeout=_CONNECT_SECONDS,
            socket_timeout=_ANSWER_SECONDS,
            retry=Retry(NoBackoff(), 0),
            health_check_interval=0,
            decode_responses=False,
            driver_info=_DRIVER,
            password=access.password,  # one in the address comes first
        )
        secure(client, url, access)
        client.connection_pool.make_connection()  # does not connect yet; refuses bad options
    except InvalidData:  # a ValueError, too, and more exact
        raise
    except (TypeError, ValueError):
        # The address is not repeated: if it does not parse, its password cannot be removed.
        raise InvalidData(_NO_ADDRESS) from None
    return client


class _CheckedConnection(SSLConnection):
    """A TLS connection that trusts our CA file alone.

    redis-py's own class would also trust every authority of the system.
    """

    def __init__(self, *, lethe_context: Any, **options: Any) -> None:
        super().__init__(**options)
        self._lethe_context = lethe_context

    def _wrap_socket_with_ssl(self, sock: Any) -> Any:
        usual_timeout = sock.gettimeout()
        sock.settimeout(_CONNECT_SECONDS)  # a server without TLS waits for more input
        try:
            tls_socket = self._lethe_context.wrap_socket(sock, server_hostname=self.host)
        except TimeoutError:
            raise OSError(NO_TLS) from None
        tls_socket.settimeout(usual_timeout)
        return tls_socket


def secure(client: redis.Redis, url: str, access: Access) -> None:
    """Give a client of a ``rediss://`` address our TLS context; refuse unused files."""
    parts = urlsplit(url)
    options = [name for name in parse_qs(parts.query) if name.startswith("ssl_")]
    settings = access.tls.given()
    if settings and parts.scheme != "rediss":
        raise InvalidData(
            f"{settings[0]} is set, but the address in LETHE_REDIS_URL has no TLS: write "
            f"rediss:// (of a cluster, rediss+cluster://), or unset {settings[0]}"
        )
    if settings and options:
        raise InvalidData(
            f"{settings[0]} is set, and the address in LETHE_REDIS_URL has {options[0]} as well: "
            "set it in one place only"
        )
    if parts.scheme == "rediss" and not options:
        pool = client.connection_pool
        pool.connection_class = _CheckedConnection
        pool.connection_kwargs["lethe_context"] = access.tls.context()


def surface_breaks(client: redis.Redis) -> None:
    """Make a client's pool raise when an idle connection has broken, once, instead of repairing it.

    A failover between an append and its apply must not go unnoticed. In single-node mode it may
    have lost the append with the rest: a silent reconnection would apply a commit that the log does
    not have.
    """
    if isinstance(client, Cluster):
        client.prepare_each(surface_breaks)
        return
    pool = client.connection_pool
    pool.connection_class = _surfacing(pool.connection_class)
    pool.disconnect()  # idle connections are of the old class
    pool.reset()


@cache
def _surfacing(base: type[Any]) -> type[Any]:
    class SurfacingConnection(base):  # type: ignore[misc]  # redis-py's classes are untyped
        _broken = False

        def can_read(self, timeout: float = 0) -> bool:
            """Return whether a reply is pending; an idle connection that has one is broken."""
            try:
                pending = bool(super().can_read(timeout))
            except (RedisConnectionError, RedisTimeoutError, OSError):
                self._broken = True
                raise
            self._broken = pending and timeout == 0
            return pending

        def connect(self) -> None:
            """Connect, but raise first if the previous connection was broken."""
            if self._broken:
                self._broken = False
                raise RedisConnectionError("the server closed the connection")
            super().connect()

    return SurfacingConnection


def without_secrets(url: str) -> str:
    """Return the URL without user name and password, for messages."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def address(client: redis.Redis) -> str:
    """Return where a client connects to, without secrets."""
    options = client.connection_pool.connection_kwargs
    if "path" in options:
        return str(options["path"])
    return f"{options.get('host', 'localhost')}:{options.get('port', 6379)}"


@contextmanager
def reachable(client: redis.Redis) -> Iterator[None]:
    """Turn lost connections into `StoreUnavailable`, with one clear line."""
    try:
        yield
    except (AuthenticationError, NoPermissionError) as error:
        raise StoreUnavailable(
            f"the store at {address(client)} {refusal(error, client)}"
        ) from error
    except InvalidResponse as error:
        raise StoreUnavailable(
            f"the server at {address(client)} is not Redis or Valkey; check LETHE_REDIS_URL"
        ) from error
    except AskError as error:  # or MovedError; a `Cluster` follows them
        raise StoreUnavailable(
            f"the store at {address(client)} is a node of a cluster, and does not have this key; "
            f"{_WRITE_CLUSTER}"
        ) from error
    except (RedisConnectionError, RedisTimeoutError) as error:
        raise StoreUnavailable(
            f"the store at {address(client)} cannot be reached ({error}); "
            f"{refusal(error, client) or 'start it, or set LETHE_REDIS_URL'}"
        ) from error
    except ResponseError as error:
        message = without_command(error)
        if isinstance(error, _REFUSES_WRITES) or message.startswith(_REFUSES_WRITES_CODES):
            problem = "does not take writes now"
            if "No space left on device" in message:
                problem = "has a full disk; free some space, and it continues"
            raise StoreUnavailable(
                f"the store at {address(client)} {problem}: {message}"
            ) from error
        if is_wrong_type(error):
            raise CorruptState(
                f"a key in the store at {address(client)} holds a value of a type that Lethe does "
                f"not write there ({message}); run `lethe check`, and restore the store from a "
                "backup"
            ) from error
        error.args = (message,)
        raise


def without_command(error: Exception) -> str:
    """Return the server's message on one line.

    redis-py puts the failing command of a pipeline before it, and with it row ids, which are
    personal data and never logged.
    """
    return re.sub(r"^Command # \d+ \(.*\) of pipeline caused error: ", "", _line(error), count=1)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def refusal(error: Exception, client: redis.Redis) -> str:
    """Return advice for a server that refused this client; empty if it did not."""
    message = without_command(error)
    if isinstance(error, AuthenticationError):
        return (
            "refused the credentials; check the user and the password in LETHE_REDIS_URL or "
            "LETHE_REDIS_PASSWORD_FILE"
        )
    if isinstance(error, NoPermissionError):
        return f"lacks a right for this user ({message}); grant it as in deploy/valkey-users.acl"
    if hint := advice(message, "LETHE_REDIS"):
        without_tls = (
            "; write redis:// in LETHE_REDIS_URL if that is meant" if "speak" in hint else ""
        )
        return hint + without_tls
    if "closed by server" in message.lower() or "reset by peer" in message.lower():
        if issubclass(client.connection_pool.connection_class, SSLConnection):
            return (
                "if it wants a client certificate, set LETHE_REDIS_CERT_FILE and "
                "LETHE_REDIS_KEY_FILE; else look at its log"
            )
        return "if that port wants TLS, write rediss:// in LETHE_REDIS_URL; else look at its log"
    return ""


def is_wrong_type(error: ResponseError) -> bool:
    """Return whether a key holds another type than the command, or one of a pipeline, is for."""
    return without_command(error).startswith("WRONGTYPE")


_WRITE_CLUSTER = "write redis+cluster:// or rediss+cluster:// in its address"


def refuse_cluster_node(client: redis.Redis) -> None:
    """Refuse a node of a cluster that is named as if it were a single server.

    Raises
    ------
    InvalidData
        It is one. Some keys lie there, and would be written; the others do not.
    """
    if isinstance(client, Cluster):
        return
    with reachable(client):
        try:
            enabled = client.info("cluster").get("cluster_enabled")
        except ResponseError:  # not every user, nor every service, has INFO
            return
    if enabled:
        raise InvalidData(
            f"the store at {address(client)} is a node of a cluster; {_WRITE_CLUSTER}"
        )


def memory_policies(client: redis.Redis) -> dict[str, str]:
    """Return what each server removes when its memory is full, by its address.

    From INFO, because CONFIG reveals passwords too: a worker's user may not run it. Replicas of a
    cluster count: one that takes over begins to remove keys.
    """
    with reachable(client):
        servers = every_server(client) or primaries(client)
    policies = {}
    for server in servers:
        with reachable(server):
            policy = server.info("memory").get("maxmemory_policy", "unknown")
        policies[address(server)] = text(policy)
    return policies


def refuse_eviction(client: redis.Redis) -> None:
    """Refuse a store that removes keys when its memory is full.

    Raises
    ------
    InvalidData
        Its ``maxmemory-policy`` evicts: it would lose deletions, and answers to requests.
    """
    for place, policy in memory_policies(client).items():
        if policy not in ("noeviction", "unknown"):
            raise InvalidData(
                f"the store at {place} has maxmemory-policy {policy}: once its memory is full it "
                "removes keys, and deleted rows come back; set 'maxmemory-policy noeviction' there"
            )


def text(value: Any) -> str:
    """Return a reply as text: redis-py's types allow both bytes and str.

    Raises
    ------
    CorruptState
        It is not UTF-8, so Lethe did not write it.
    """
    return parse_text(value, "a stored id") if isinstance(value, bytes) else str(value)
