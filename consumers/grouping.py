"""The records of one poll, validated (step 2) and grouped by model and partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from consumers.log.base import Partition, Record
from consumers.request_keys import RequestKeys
from consumers.validate import Refused, Valid, Validated, validate
from engine.store.keys import ModelKeys


@dataclass(slots=True)
class Group:
    """The records of one model in one partition, in order.

    Records that name no model or no request form a group of their partition, which has a record of
    its own in the store, so that they too are decided exactly once. ``since`` says by offset from
    when a record counts as waiting (`consumers.batching`).
    """

    keys: ModelKeys
    model_id: str
    partition: Partition
    items: list[Validated]
    since: dict[int, datetime] = field(default_factory=dict)


def group_records(records: Sequence[Record], keys: RequestKeys | None = None) -> list[Group]:
    """Validate (step 2) each record alone, and group by model and partition.

    With ``keys``, requests count that one of them has signed.
    """
    groups: dict[tuple[ModelKeys, Partition], Group] = {}
    for record in records:
        item = validate(record) if keys is None else keys.checked(validate(record))
        model_id = _model_of(item)
        where = (
            ModelKeys.of_partition(str(record.partition))
            if model_id is None
            else ModelKeys.of_model(model_id)
        )
        place = (where, record.partition)
        if place not in groups:
            groups[place] = Group(where, model_id or "", record.partition, [])
        groups[place].items.append(item)
    return list(groups.values())


def _model_of(item: Validated) -> str | None:
    if isinstance(item, Valid):
        return item.request.model_id
    return item.model_id if isinstance(item, Refused) else item.event.model_id
