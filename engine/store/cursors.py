"""How far the store has come: cursors of commits partitions, watermarks of other topics.

Below the *apply cursor* of a partition the store holds the effects of all commits; below the
*published cursor* their receipts and versions are in the log. Both lie in the same slot as the
models of the partition, so that a store that goes back takes them along. A model that was halted
while others went on has its own pair of cursors (docs/commit.md).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import redis

from lethe.engine.errors import CorruptState
from lethe.engine.store.layout import keys
from lethe.engine.store.layout.keys import ModelKeys, PartitionKeys
from lethe.engine.store.layout.reading import integer, parse_text
from lethe.engine.store.server.connection import reachable
from lethe.engine.store.server.pipeline import Script, run_pipeline

_BEHIND = "behind:"

RAISE = Script("""
local stored = redis.call('GET', KEYS[1]) or '-1'
local offset, read, rest = string.match(stored, '^(%-?%d+) ?(%d*) ?(.*)$')
if tonumber(ARGV[1]) > tonumber(offset) then offset = ARGV[1] end
if ARGV[2] ~= '' and (read == '' or tonumber(ARGV[2]) >= tonumber(read)) then
  read, rest = ARGV[2], ARGV[3]
end
local value = read == '' and offset or (offset .. ' ' .. read .. ' ' .. rest)
if value ~= stored then redis.call('SET', KEYS[1], value) end
""")
"""Sets a watermark and its mark, each unless it would go back."""

MOVE = Script(files("lethe.engine.store").joinpath("cursors.lua").read_text(encoding="utf-8"))
"""``cursors.lua``."""


@dataclass(frozen=True, slots=True)
class Pair:
    """The two cursors: of a partition, or of one model that lags behind its partition."""

    apply: int = 0
    published: int = 0

    @property
    def lower(self) -> int:
        """Where a fold begins."""
        return min(self.apply, self.published)


@dataclass(frozen=True, slots=True)
class PartitionCursors:
    """What the store knows of one commits partition.

    Attributes
    ----------
    topic_id
        Id of the topic of the offsets; empty if nothing was ever applied.
    pair
        How far the partition is applied and published.
    last_digest, epoch
        Digest and leader epoch of the last record applied; empty and -1 if it is not a commit, or
        not known.
    behind
        Cursors of the models that were halted, by model.
    """

    topic_id: str = ""
    pair: Pair = Pair()
    last_digest: str = ""
    epoch: int = -1
    behind: Mapping[str, Pair] = field(default_factory=dict)

    def of_model(self, model_id: str) -> Pair:
        """Return the cursors that apply to a model."""
        return self.behind.get(model_id, self.pair)

    @property
    def lowest(self) -> int:
        """Where a fold of all models begins."""
        return min(self.pair.lower, *(pair.lower for pair in self.behind.values()), 1 << 53)


@dataclass(frozen=True, slots=True)
class Mark:
    """The newest record that was read of a partition: by it a log that has changed is known.

    Attributes
    ----------
    read, digest
        Everything below this offset was read, and the digest of the record just below it.
    answered_ms
        When the log took the newest record up to which all had their final answers; 0 if unknown.
    """

    read: int
    digest: str
    answered_ms: int = 0


@dataclass(frozen=True, slots=True)
class Watermark:
    """The offset below which every record of a partition has its final answer, and its mark."""

    offset: int
    mark: Mark | None = None


class Cursors:
    """The cursors in one Redis or Valkey; one thread uses an instance."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def read(self, partition: PartitionKeys) -> PartitionCursors:
        """Return what is known of a commits partition."""
        return self.read_all([partition])[0]

    def read_all(self, partitions: Sequence[PartitionKeys]) -> list[PartitionCursors]:
        """Return what is known of several commits partitions, in one round trip."""
        stored = run_pipeline(
            self._client, (), lambda pipe: [pipe.hgetall(one.cursors) for one in partitions]
        )
        return [
            self.parsed(partition, fields)
            for partition, fields in zip(partitions, stored, strict=True)
        ]

    @staticmethod
    def parsed(partition: PartitionKeys, stored: Any) -> PartitionCursors:
        """Return a partition's cursors from the stored hash."""
        what = f"the cursors of commits partition {partition.index}"
        named = {parse_text(name, what): parse_text(value, what) for name, value in stored.items()}
        return PartitionCursors(
            named.get("topic", ""),
            Pair(
                _offset(named.get("apply", "0"), what), _offset(named.get("published", "0"), what)
            ),
            named.get("below", ""),
            integer(named.get("epoch", "-1"), what),
            {
                name[len(_BEHIND) :]: _pair(value, what)
                for name, value in named.items()
                if name.startswith(_BEHIND)
            },
        )

    def begin(
        self, partition: PartitionKeys, topic_id: str, offset: int, models: Collection[str] = ()
    ) -> None:
        """Note the topic of a partition's offsets, and where its first commits lie.

        ``models`` existed before this store did, or before it was emptied.
        """
        with reachable(self._client):
            pipeline = self._client.pipeline(transaction=True)
            if models:
                pipeline.sadd(partition.models, *models)
            fields: Any = {"topic": topic_id, "apply": offset, "published": offset}
            pipeline.hset(partition.cursors, mapping=fields)
            pipeline.execute()

    def begin_all(self, topic_ids: Mapping[PartitionKeys, str]) -> None:
        """Note the topics of partitions without models and records, in one round trip."""
        if topic_ids:
            run_pipeline(
                self._client,
                (),
                lambda pipe: [
                    pipe.hset(each.cursors, mapping={"topic": topic_id, "apply": 0, "published": 0})
                    for each, topic_id in topic_ids.items()
                ],
            )

    def list_models(self, partition: PartitionKeys, models: Collection[str]) -> None:
        """Put models back on the list of a partition that lacks some."""
        if models:
            with reachable(self._client):
                self._client.sadd(partition.models, *models)

    def restart(self, partition: PartitionKeys, topic_id: str, at: Pair) -> None:
        """Begin anew: the log lost commits, and an operator chose to go on (`lethe recover`)."""
        with reachable(self._client):
            pipeline = self._client.pipeline(transaction=True)
            pipeline.delete(partition.cursors)
            fields: Any = {"topic": topic_id, "apply": at.apply, "published": at.published}
            pipeline.hset(partition.cursors, mapping=fields)
            pipeline.execute()

    def note_behind(self, partition: PartitionKeys, model_id: str) -> None:
        """Give a model that halts cursors of its own, before the partition's pass its records."""
        self._call(partition, ["behind", 0, 0, "", -1, "", model_id])

    def read_again(self, partition: PartitionKeys, model_id: str, begin: int) -> None:
        """Let the next fold apply all commits of one model from ``begin`` on, publishing none.

        For a model that has lost keys: applying a commit once more restores what is repeatable.
        """
        pair = self.read(partition).of_model(model_id)
        if begin < pair.apply:
            with reachable(self._client):
                value = f"{begin} {pair.published}"
                self._client.hset(partition.cursors, f"behind:{model_id}", value)

    def move_apply(
        self,
        partition: PartitionKeys,
        low: int,
        high: int,
        *,
        last_digest: str = "",
        epoch: int = -1,
        halted: Collection[str] = (),
    ) -> None:
        """Pass void records, and those of halted models, from ``low`` on up to ``high``."""
        if low < high:
            self._call(partition, ["apply", low, high, last_digest, epoch, "", *halted])

    def move_published(
        self, partition: PartitionKeys, low: int, high: int, *, halted: Collection[str] = ()
    ) -> Pair:
        """Note that everything from ``low`` to ``high`` is published; return what was noted before.

        If that is beyond ``high``, the caller was overtaken: compaction may have kept its older
        parameters (`consumers.commits.newest`).
        """
        moved = ["published", low, high, "", -1, "", *halted]
        return self.noted(self._call(partition, moved))

    def move_behind(
        self, partition: PartitionKeys, model_id: str, low: int, high: int, *, published: bool
    ) -> None:
        """Move the cursor of one model that lags behind; its pair goes once it has caught up."""
        which = "published" if published else "apply"
        self._call(partition, [which, low, high, "", -1, model_id])

    @staticmethod
    def queue_published(pipeline: Any, partition: PartitionKeys, low: int, high: int) -> None:
        """Queue `move_published` in a pipeline; `noted` reads its answer."""
        MOVE.queue(pipeline, [partition.cursors], ["published", low, high, "", -1, ""])

    @staticmethod
    def noted(answer: Any) -> Pair:
        """Return the partition's cursors from an answer to `queue_published`."""
        if not isinstance(answer, list) or len(answer) != 2:
            raise CorruptState("the cursor script gave an unknown answer; run `lethe check`")
        return Pair(*(integer(one, "a cursor") for one in answer))

    def _call(self, partition: PartitionKeys, arguments: Sequence[Any]) -> Any:
        [answer] = run_pipeline(
            self._client, [MOVE], lambda pipe: MOVE.queue(pipe, [partition.cursors], arguments)
        )
        return answer

    # -- watermarks ---------------------------------------------------------------------------

    def watermark(self, partition: str) -> int | None:
        """Return the offset below which every record of a partition has its final answer."""
        watermark = self.marked(partition)
        return None if watermark is None else watermark.offset

    def marked(self, partition: str) -> Watermark | None:
        """Return a partition's watermark with its mark; None if nothing of it was processed."""
        with reachable(self._client):
            stored: Any = self._client.get(keys.watermark(partition))
        if stored is None:
            return None
        what = f"watermark of {partition}"
        offset, *mark = parse_text(stored, what).split(" ")
        if not mark:
            return Watermark(integer(offset, what))
        if len(mark) != 3:
            raise CorruptState(f"{what}: {len(mark) + 1} parts are none; run `lethe check`")
        read, digest, answered = mark
        return Watermark(
            integer(offset, what), Mark(_offset(read, what), digest, integer(answered, what))
        )

    def set_watermarks(self, watermarks: Mapping[str, int | Watermark]) -> None:
        """Store watermarks, all in one round trip.

        A watermark never goes back: the log may have removed the records below it, and a worker
        that lost its partition may come late with an older one.
        """
        if not watermarks:
            return
        run_pipeline(self._client, [RAISE], lambda pipe: self.queue_watermarks(pipe, watermarks))

    def forget_watermarks(self, partitions: Collection[str]) -> None:
        """Forget the watermarks of partitions whose offsets mean nothing any more."""
        for partition in partitions:
            with reachable(self._client):
                self._client.delete(keys.watermark(partition))

    def lower_watermarks(self, offsets: Mapping[str, int]) -> None:
        """Have partitions read again from these offsets, if their watermarks are beyond them."""
        for partition, offset in offsets.items():
            watermark = self.watermark(partition)
            if watermark is not None and offset < watermark:
                with reachable(self._client):
                    self._client.set(keys.watermark(partition), offset)

    @staticmethod
    def queue_watermarks(pipeline: Any, watermarks: Mapping[str, int | Watermark]) -> None:
        """Queue `set_watermarks` in a pipeline; each watermark has an answer."""
        for partition, one in watermarks.items():
            watermark = Watermark(one) if isinstance(one, int) else one
            mark = watermark.mark
            newest = ("", "") if mark is None else (mark.read, f"{mark.digest} {mark.answered_ms}")
            RAISE.queue(pipeline, [keys.watermark(partition)], [watermark.offset, *newest])


def queue_applied(pipeline: Any, where: ModelKeys) -> None:
    """Query in a pipeline how far a model is applied; `applied_of` reads the answer."""
    pipeline.hmget(where.partition.cursors, ["apply", f"{_BEHIND}{where.model_id}"])


def applied_of(answer: Sequence[bytes | None], model_id: str) -> int:
    """Return the offset below which every commit of a model is in its state."""
    what = f"model {model_id!r}, its cursors"
    partition, behind = answer
    if behind is not None:
        return _pair(parse_text(behind, what), what).apply
    return 0 if partition is None else integer(partition, what)


def _pair(stored: str, what: str) -> Pair:
    applied, _, published = stored.partition(" ")
    return Pair(_offset(applied, what), _offset(published, what))


def _offset(stored: str, what: str) -> int:
    offset = integer(stored, what)
    if offset < 0:
        raise CorruptState(f"{what}: {offset} is not an offset; run `lethe check`")
    return offset
