"""Records of one poll, grouped by model: each group is processed together, in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from lethe.consumers.deletions.authenticate import RequestKeys
from lethe.consumers.deletions.validate import Refreshed, Refused, Validated, validate
from lethe.consumers.log.base import Partition, Record


@dataclass(slots=True)
class Group:
    """Records of one partition that name one model, in order.

    Attributes
    ----------
    model_id, partition
        Which model, and which partition the records are in.
    items
        The validated records.
    since
        By offset: when the log received the record, for those that wait to be batched.
    """

    model_id: str
    partition: Partition
    items: list[Validated]
    since: dict[int, datetime] = field(default_factory=dict)


def group_records(
    records: Sequence[Record], keys: RequestKeys | None
) -> tuple[list[Group], list[Refused]]:
    """Validate (step 2) each record alone, and group the records by model.

    Also returned are the refused records whose bytes go to dead letters, including those that name
    no request and therefore have no group.
    """
    groups: dict[tuple[str, Partition], Group] = {}
    dead_letters: list[Refused] = []
    for record in records:
        item = validate(record) if keys is None else keys.checked(validate(record))
        if isinstance(item, Refused) and item.dead_letter:
            dead_letters.append(item)
        model_id = item.event.model_id if isinstance(item, Refreshed) else item.model_id
        if model_id is None:
            continue
        key = (model_id, record.partition)
        if key not in groups:
            groups[key] = Group(model_id, record.partition, [])
        groups[key].items.append(item)
    return list(groups.values()), dead_letters
