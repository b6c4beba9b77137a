"""The configuration of OpenDSR: a TOML file, read once when the server starts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    field_validator,
)

from lethe.consumers.contract.events import Id
from lethe.consumers.service.configuration.durations import seconds_of
from lethe.consumers.service.configuration.toml_file import read_toml
from lethe.engine.errors import InvalidData, InvalidRequest
from lethe.engine.store.layout.reading import first_error

MAX_FILE_BYTES = 1 << 20
MAX_IDENTITIES = 100
"""Identities of one request: each becomes an erasure of its own."""

Span = Annotated[float, BeforeValidator(seconds_of), Field(ge=0, le=366 * 86_400)]
_Word = Annotated[str, StringConstraints(min_length=1, max_length=128)]
_Domain = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9.-]{1,128}$")]
"""It is in a header of every answer, and in a certificate: ASCII, an international name encoded."""


class _Part(BaseModel):
    """A part of the file; a name that is not known is a mistake."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class IdentityRule(_Part):
    """Identities of one type and format, and the subjects that they stand for.

    The subject is ``prefix`` and the identity's value, in lower case if ``lower`` is set, in
    ``namespace``. A hashed identity maps only if subjects are stored hashed in the same way.
    """

    type: _Word
    format: Literal["raw", "sha1", "md5", "sha256"] = "raw"
    namespace: Id | None = None
    prefix: Annotated[str, StringConstraints(max_length=64)] = ""
    lower: bool = False

    def subject(self, value: str) -> str:
        """Return the subject that a value stands for."""
        return self.prefix + (value.lower() if self.lower else value)


class CallbackRules(_Part):
    """Where callbacks may go: addresses that begin with one of ``allow``.

    ``private``: also to addresses of this machine and its networks, which nobody outside should be
    able to reach through the server.
    """

    allow: tuple[str, ...] = ()
    private: bool = False

    @field_validator("allow")
    @classmethod
    def _whole_origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for url in value:
            parts = urlsplit(url)
            if parts.scheme not in ("https", "http") or not parts.hostname or "/" not in parts.path:
                raise ValueError(f"{url!r}: write https://HOST/ or https://HOST/PATH")
        return value


class Configuration(_Part):
    """What a controller can ask for here.

    Attributes
    ----------
    domain
        The processor's domain, in the headers of every answer.
    hold
        How long a request can be cancelled before it is sent. 0: it is sent at once.
    within
        How long an erasure takes at most, as ``expected_completion_time`` says it.
    identities, callbacks
        The rules.
    """

    domain: _Domain
    hold: Span = 0.0
    within: Span = 30 * 86_400.0
    identities: Annotated[tuple[IdentityRule, ...], Field(min_length=1)]
    callbacks: CallbackRules = CallbackRules()

    @field_validator("identities")
    @classmethod
    def _one_rule_each(cls, value: tuple[IdentityRule, ...]) -> tuple[IdentityRule, ...]:
        if len({(rule.type, rule.format) for rule in value}) < len(value):
            raise ValueError("two rules are for one type and format")
        return value

    def subjects(self, identities: Sequence[tuple[str, str, str]]) -> list[tuple[str | None, str]]:
        """Return the namespaces and subjects of identities: type, format, value.

        Raises
        ------
        InvalidRequest
            One of them maps to nothing. None is left out in silence: the person would not be
            forgotten.
        """
        rules: dict[tuple[str, str], IdentityRule] = {
            (rule.type, rule.format): rule for rule in self.identities
        }
        found: list[tuple[str | None, str]] = []
        for kind, form, value in identities:
            rule = rules.get((kind, form))
            if rule is None:
                raise InvalidRequest(
                    f"identity_type {kind!r} in format {form!r} is not supported here: nothing was "
                    "erased; GET discovery lists those that are"
                )
            found.append((rule.namespace, rule.subject(value)))
        return list(dict.fromkeys(found))


def read_configuration(path: Path) -> Configuration:
    """Return the configuration in a file.

    Raises
    ------
    InvalidData
        It cannot be read, or does not follow the form.
    """
    try:
        return Configuration.model_validate(read_toml(path, MAX_FILE_BYTES))
    except ValidationError as error:
        raise InvalidData(f"{path}: {first_error(error)} (docs/http.md, OpenDSR)") from None
