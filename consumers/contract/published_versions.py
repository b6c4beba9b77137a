"""The content of ``lethe.versions``, read once and unchecked: to see which versions exist."""

from __future__ import annotations

from lethe.consumers.contract import topics
from lethe.consumers.contract.events import Version
from lethe.consumers.log.base import Reader, Record
from lethe.consumers.log.scan import scan_topic


def newest_version(reader: Reader, model_id: str) -> Version | None:
    """Return the newest published version of a model, unchecked; None if there is none.

    Cost: one pass over the topic, of which only the model's own records are parsed.
    """
    key = model_id.encode()
    records = (record for record in scan_topic(reader, topics.VERSIONS) if record.key == key)
    versions = (version for record in records if (version := _version_of(record)) is not None)
    return max(versions, key=lambda version: version.version, default=None)


def versioned_models(reader: Reader) -> frozenset[str]:
    """Return the models that have published versions. Cost: one pass over the topic."""
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
