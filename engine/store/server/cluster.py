"""A store on a Redis or Valkey Cluster: each command goes to the node that has its key's slot.

redis-py's own cluster client refuses scripts in pipelines, and sends writes again whose answers
were lost. This one sends a command again only if the cluster has refused it (MOVED, ASK, TRYAGAIN):
then nothing happened. A node that cannot be reached is an unavailable store, as a single server is:
whoever called forgets what it knows, and reads again once a replica has taken over.

All keys of a model share a hash tag (`engine.store.layout.keys`), so that scripts and transactions
find them on one node; across nodes, commands of one pipeline happen in any order. What concerns
servers and not keys (the barrier, rewriting files, memory policies, versions) goes to `primaries`
or `every_server`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from itertools import count
from typing import Any, TypeAlias

import redis
from redis.client import Pipeline
from redis.crc import key_slot
from redis.exceptions import (
    AskError,
    ClusterDownError,
    ConnectionError as RedisConnectionError,
    MovedError,
    ResponseError,
    TimeoutError as RedisTimeoutError,
    TryAgainError,
)

from lethe.engine.errors import InvalidData, StoreUnavailable

SLOTS = 16384

_TRIES = 8
"""Times a command is sent that the cluster refuses because a slot moves. With the pauses below, a
second and a half: longer moves (a slot's keys one by one) are an unavailable store."""

_PAUSE_SECONDS = 0.05
_ASK_SECONDS = 3.0  # for what any node answers at once
_KEY_AT = {"EVAL": 3, "EVALSHA": 3}  # elsewhere it is the first argument
_ANYWHERE = ("TIME", "PING")  # to one and the same node, so that all workers read one clock

_AWAY = frozenset(("fail", "fail?", "noaddr", "handshake"))

_Command: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]
_Redirect = (AskError, TryAgainError)  # MovedError is an AskError
_Lost = (RedisConnectionError, RedisTimeoutError)


class Cluster(redis.Redis):
    """A client of a cluster; commands that name no key are refused, but for TIME and PING.

    Parameters
    ----------
    open_server
        Returns a client of the node at an address, ``HOST:PORT``; it does not connect yet.
    addresses
        Of some nodes; they tell of all others.
    """

    def __init__(self, open_server: Callable[[str], redis.Redis], addresses: Sequence[str]) -> None:
        self._open_server = open_server
        self._prepare: Callable[[redis.Redis], None] | None = None
        self._named = list(addresses)
        self._nodes: dict[str, redis.Redis] = {}
        self._owners: list[str] = []  # by slot; empty: to be read before the next command
        self._replicas: dict[str, list[str]] = {}
        self._lost: str | None = None
        # The pool is never used: it says in messages where the cluster is.
        first, *_ = [self.node(address) for address in addresses]
        super().__init__(connection_pool=first.connection_pool)

    # -- nodes --------------------------------------------------------------------------------

    def node(self, address: str) -> redis.Redis:
        """Return the client of one node."""
        known = self._nodes.get(address)
        if known is None:
            known = self._open_server(address)
            if self._prepare is not None:
                self._prepare(known)
            self._nodes[address] = known
        return known

    def prepare_each(self, prepare: Callable[[redis.Redis], None]) -> None:
        """Do something to the client of each node, also of those that are not known yet."""
        self._prepare = prepare
        for known in self._nodes.values():
            prepare(known)

    def owners(self) -> list[str]:
        """Return the address of each slot's primary.

        Raises
        ------
        StoreUnavailable
            Slots have none.
        InvalidData
            The server is no node of a cluster.
        """
        return self._owners or self._read_slots()

    def _read_slots(self) -> list[str]:
        answer, asked = self._ask_any("CLUSTER SLOTS")
        owners = [""] * SLOTS
        replicas: dict[str, list[str]] = {}
        for first, last, *nodes in answer:
            primary, *others = [_address(node[0], node[1], asked) for node in nodes]
            owners[first : last + 1] = [primary] * (last + 1 - first)
            replicas[primary] = others
        if missing := [slot for slot, owner in enumerate(owners) if not owner]:
            raise StoreUnavailable(
                f"the cluster at {asked} has no node for {len(missing)} of its {SLOTS} slots, the "
                f"first of them {missing[0]}; give them to a node (valkey-cli --cluster fix "
                f"{asked}), and run this again"
            )
        self._owners, self._replicas = owners, replicas
        return owners

    def _ask_any(self, *command: str) -> tuple[Any, str]:
        """Return any node's answer, and its address; what was just lost is asked last.

        Primaries first, where they are known, and not for long: one that hangs must not hold up
        those who would learn that another has taken its place.
        """
        known = list(self._replicas)
        random.shuffle(known)  # one that the others have left behind would answer for ever
        copies = [one for others in self._replicas.values() for one in others]
        addresses = list(dict.fromkeys([*known, *copies, *self._named]))
        addresses.sort(key=lambda address: address == self._lost)
        for address in addresses:
            try:
                with self._open_server(address) as server:
                    server.connection_pool.connection_kwargs["socket_timeout"] = _ASK_SECONDS
                    answer = server.execute_command(*command)
            except _Lost:
                if address == addresses[-1]:
                    raise
            except ResponseError as error:
                if "cluster support disabled" not in str(error):
                    raise
                raise InvalidData(
                    f"LETHE_REDIS_URL names a cluster, but {address} is a single server: write "
                    "redis:// or rediss:// instead of redis+cluster:// or rediss+cluster://"
                ) from None
            else:
                return answer, address
        raise AssertionError("a cluster has a node")

    def primaries(self) -> dict[str, redis.Redis]:
        """Return the nodes that have slots, by address."""
        return {address: self.node(address) for address in sorted(set(self.owners()))}

    def replicas(self) -> dict[str, list[str]]:
        """Return the addresses of each primary's replicas that are not known to be away."""
        self.owners()
        return self._replicas

    def every_address(self) -> list[str] | None:
        """Return the addresses of all nodes, also of those without slots; None if one is away."""
        answer, asked = self._ask_any("CLUSTER NODES")
        if any(_AWAY.intersection(node["flags"].split(",")) for node in answer.values()):
            return None
        places = (place.rpartition(":") for place in answer)
        return [_address(host, port, asked) for host, _, port in places]

    def keys_on_each(self, prefix: str) -> dict[str, str]:
        """Return a key for each primary, by its address, that it has; it begins with ``prefix``."""
        owners, found = self.owners(), dict[str, str]()
        wanted = set(owners)
        for number in count():
            if found.keys() == wanted:
                break
            key = f"{prefix}:{number}"
            found.setdefault(owners[key_slot(key.encode())], key)
        return found

    # -- commands -----------------------------------------------------------------------------

    def address_of(self, args: Sequence[Any]) -> str:
        """Return the address of the node that a command is for."""
        return self.owners()[slot_of(args)]

    def learn(self, error: AskError) -> str:
        """Return where a command is to go instead; a slot that has moved is remembered."""
        address = _address(error.host, error.port, self._named[0])
        if isinstance(error, MovedError) and self._owners:
            self._owners[error.slot_id] = address
            self._replicas.setdefault(address, [])
        return address

    def forget(self, lost: str | None = None) -> None:
        """Read anew who has which slots, before the next command; ``lost``: who did not answer."""
        self._owners, self._lost = [], lost

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Send a command to the node that has its key."""
        pipeline = self.pipeline(transaction=False)
        pipeline.command_stack.append((args, options))
        [answer] = pipeline.execute(raise_on_error=False)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def pipeline(self, transaction: Any = True, shard_hint: Any = None) -> ClusterPipeline:
        """Return a pipeline; in a transaction, all keys have one slot."""
        return ClusterPipeline(self, transaction, shard_hint)

    def script_load(self, script: Any) -> Any:
        """Have each primary know a script."""
        return [one.script_load(script) for one in self.primaries().values()][-1]

    def ping(self, **options: Any) -> bool:
        """Return whether each primary answers."""
        self.forget(self._lost)
        return all(one.ping(**options) for one in self.primaries().values())

    def scan_iter(self, *args: Any, **options: Any) -> Iterator[Any]:
        """Yield the keys of each primary; a key whose slot moves meanwhile may come twice."""
        for one in self.primaries().values():
            yield from one.scan_iter(*args, **options)

    def hscan_iter(self, name: Any, *args: Any, **options: Any) -> Iterator[Any]:
        """Yield the fields of a hash, all from one node: another's cursor has no meaning there."""
        self.hlen(name)  # follows a slot that has moved
        yield from self.node(self.address_of(("HSCAN", name))).hscan_iter(name, *args, **options)

    def close(self) -> None:
        """Close the connections to all nodes."""
        for known in self._nodes.values():
            known.close()


class ClusterPipeline(Pipeline):
    """Commands in one round trip to each node, or a transaction on one."""

    def __init__(self, cluster: Cluster, transaction: Any, shard_hint: Any) -> None:
        super().__init__(
            cluster.connection_pool, cluster.response_callbacks, transaction, shard_hint
        )
        self._cluster = cluster
        self._atomic = bool(transaction)

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        """Send the commands; those that the cluster refused because a slot moves, again."""
        if self.watching:
            return super().execute(raise_on_error)
        commands = list(self.command_stack)
        if not commands:
            return []
        if self._atomic:
            return self._in_transaction(commands, raise_on_error)
        self.reset()
        answers = self._in_turn(commands)
        if raise_on_error:
            self.raise_first_error(commands, answers)  # type: ignore[no-untyped-call]
        return answers

    def immediate_execute_command(self, *args: Any, **options: Any) -> Any:
        """Send WATCH, or a command after it, to the node that has the key."""
        if self.connection is None:
            self._cluster.exists(args[1])  # follows a slot that has moved
            address = self._cluster.address_of(args)
            self.connection_pool = self._cluster.node(address).connection_pool
        return super().immediate_execute_command(*args, **options)  # type: ignore[no-untyped-call]

    def _in_transaction(self, commands: list[_Command], raise_on_error: bool) -> list[Any]:
        slots = {slot_of(args) for args, _ in commands}
        if len(slots) > 1:
            raise TypeError(f"a transaction on a cluster has keys of {len(slots)} slots")
        for attempt in range(_TRIES):
            address = self._cluster.owners()[slots.pop()]
            self.connection_pool = self._cluster.node(address).connection_pool
            self.command_stack = list(commands)
            try:
                return super().execute(raise_on_error)
            except _Lost:
                self._cluster.forget(address)
                raise
            except ClusterDownError:
                self._cluster.forget()
                raise
            except MovedError as error:
                self._cluster.learn(error)
            except _Redirect:
                pass  # half of the keys have moved: they all will have
            time.sleep(attempt * _PAUSE_SECONDS)
            slots = {slot_of(commands[0][0])}
        raise self._given_up()

    def _in_turn(self, commands: list[_Command]) -> list[Any]:
        """Return the answers; errors among them, but none that says that a slot moves."""
        answers: list[Any] = [None] * len(commands)
        left = dict.fromkeys(range(len(commands)), "")  # where the cluster said to ask, if it did
        for attempt in range(_TRIES):
            batches: dict[str, list[int]] = {}
            for i, asked in left.items():
                address = asked or self._cluster.address_of(commands[i][0])
                batches.setdefault(address, []).append(i)
            asking = frozenset(i for i, asked in left.items() if asked)
            for i, answer in self._exchange(commands, batches, asking):
                answers[i] = answer
            for answer in answers:
                if isinstance(answer, ClusterDownError):
                    self._cluster.forget()
                    raise answer
            refused = {i: answers[i] for i in left if isinstance(answers[i], _Redirect)}
            if not refused:
                return answers
            left = {}
            for i, error in refused.items():
                address = self._cluster.learn(error) if isinstance(error, AskError) else ""
                left[i] = "" if isinstance(error, MovedError) else address
            time.sleep(attempt * _PAUSE_SECONDS)
        raise self._given_up()

    def _exchange(
        self,
        commands: Sequence[_Command],
        batches: Mapping[str, Sequence[int]],
        asking: frozenset[int],
    ) -> list[tuple[int, Any]]:
        """Send each node its commands, then return the answers by the commands' numbers."""
        open_connections: dict[str, Any] = {}
        answers: list[tuple[int, Any]] = []
        address = ""
        with ExitStack() as stack:
            try:
                for address, batch in batches.items():
                    pool = self._cluster.node(address).connection_pool
                    connection: Any = pool.get_connection()
                    open_connections[address] = connection
                    stack.callback(pool.release, connection)
                    sent = []
                    for i in batch:
                        sent += [("ASKING",)] if i in asking else []
                        sent.append(commands[i][0])
                    connection.send_packed_command(connection.pack_commands(sent))
                for address, batch in batches.items():
                    connection = open_connections[address]
                    answers += [
                        (i, self._answer(connection, commands[i], i in asking)) for i in batch
                    ]
            except BaseException as error:
                for connection in open_connections.values():
                    connection.disconnect()  # an answer that nobody reads would be the next one's
                if isinstance(error, _Lost):
                    self._cluster.forget(address)
                    if address not in str(error):
                        error.args = (f"node {address}: {error}",)
                raise
        return answers

    def _answer(self, connection: Any, command: _Command, asking: bool) -> Any:
        args, options = command
        read: Any = self.parse_response
        if asking:
            with suppress(ResponseError):  # then the command is refused as well
                read(connection, "ASKING")
        try:
            return read(connection, args[0], **options)
        except ResponseError as error:
            return error

    def _given_up(self) -> RedisConnectionError:
        self._cluster.forget()
        return RedisConnectionError(f"slots of the cluster moved while it was asked {_TRIES} times")


def slot_of(args: Sequence[Any]) -> int:
    """Return the slot of a command's key, of the first if it has several.

    Raises
    ------
    TypeError
        It is for a server, not for a key.
    """
    name = str(args[0])
    if name in _ANYWHERE:
        return 0
    place = _KEY_AT.get(name, 1)
    if name in _FOR_SERVERS or len(args) <= place:
        raise TypeError(f"{name} names no key: on a cluster, ask a server")
    key = args[place]
    return key_slot(key if isinstance(key, bytes) else str(key).encode())


_FOR_SERVERS = frozenset(
    [
        *("INFO", "CONFIG GET", "CONFIG SET", "SCRIPT LOAD", "SCRIPT EXISTS", "SCRIPT FLUSH"),
        *("BGREWRITEAOF", "BGSAVE", "WAIT", "WAITAOF", "SCAN", "KEYS", "DBSIZE", "RANDOMKEY"),
        *("FLUSHALL", "FLUSHDB", "XREAD", "XREADGROUP"),
    ]
)


def primaries(client: redis.Redis) -> list[redis.Redis]:
    """Return the servers that take a store's writes: of a single server, its own client."""
    return list(client.primaries().values()) if isinstance(client, Cluster) else [client]


def every_server(client: redis.Redis) -> list[redis.Redis] | None:
    """Return the servers that hold a store's data, replicas too; None if one of them is away.

    Replicas of a single server are its operator's, as are the replicas' files.
    """
    if not isinstance(client, Cluster):
        return [client]
    addresses = client.every_address()
    return None if addresses is None else [client.node(address) for address in addresses]


def _address(host: Any, port: Any, asked: str) -> str:
    """Return ``HOST:PORT``; a node that does not know its own host is where it was asked."""
    name = host.decode() if isinstance(host, bytes) else host
    if not name or name == "?":
        name = asked.rpartition(":")[0]
    elif ":" in name and not name.startswith("["):
        name = f"[{name}]"
    return f"{name}:{int(port)}"
