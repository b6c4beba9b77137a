"""What ``lethe.versions`` holds, read once and unchecked: for who only asks whether it is there."""

from __future__ import annotations

from lethe.consumers.contract import topics
from lethe.consumers.contract.events import Version
from lethe.consumers.log.base import Reader, Record
from lethe.consumers.log.scan import scan_topic


def newest_version(reader: Reader, model_id: str) -> Version | None:
    """Return the newest version that was published of a model, unchecked; None: none was.

    Cost: one pass over the topic, of which only the model's own records are parsed.
    """
    key = model_id.encode()
    mine = (_version_of(one) for one in scan_topic(reader, topics.VERSIONS) if one.key == key)
    return max((one for one in mine if one is not None), key=lambda v: v.version, default=None)


def versioned_models(reader: Reader) -> frozenset[str]:
    """Return the models of which versions were published. Cost: one pass over the topic."""
    names: dict[bytes, str] = {}
    for record in scan_topic(reader, topics.VERSIONS):
        version = None if record.key in names else _version_of(record)
        if version is not None:
            names[record.key or b""] = version.model_id
    return frozenset(names.values())


def _version_of(record: Record) -> Version | None:
    try:
        return Version.read(record.value or b"")
    except ValueError:
        return None
