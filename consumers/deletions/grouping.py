"""Records of one poll, sorted by model: each group is decided together, in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from lethe.consumers.deletions.authenticate import RequestKeys
from lethe.consumers.deletions.validate import Refused, Valid, Validated, validate
from lethe.consumers.log.base import Partition, Record


@dataclass(slots=True)
class Group:
    """Records of one partition that name one model, in order.

    Attributes
    ----------
    model_id, partition
        Which model, and where the records lie.
    items
        What they are.
    since
        By offset: when the log took them, for those that wait to be batched.
    """

    model_id: str
    partition: Partition
    items: list[Validated]
    since: dict[int, datetime] = field(default_factory=dict)


def group_records(
    records: Sequence[Record], keys: RequestKeys | None
) -> tuple[list[Group], list[Refused]]:
    """Validate (step 2) each record alone, and sort them by model.

    Also returned are the refused records whose bytes go to dead letters: those that name no
    request, which have no group, and others.
    """
    groups: dict[tuple[str, Partition], Group] = {}
    letters: list[Refused] = []
    for record in records:
        item = validate(record) if keys is None else keys.checked(validate(record))
        if isinstance(item, Refused) and item.dead_letter:
            letters.append(item)
        model_id = _model_of(item)
        if model_id is None:
            continue
        place = (model_id, record.partition)
        if place not in groups:
            groups[place] = Group(model_id, record.partition, [])
        groups[place].items.append(item)
    return list(groups.values()), letters


def _model_of(item: Validated) -> str | None:
    """Return the model that a record names; None where it names no request to it."""
    if isinstance(item, Valid):
        return item.request.model_id
    return item.model_id if isinstance(item, Refused) else item.event.model_id
