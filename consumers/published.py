"""The newest published parameters as the store holds them, checked against their digests."""

from __future__ import annotations

from consumers import chain
from consumers.events import Parameters
from consumers.parameters import StoredParameters
from engine.errors import CorruptState
from engine.objective import Array
from engine.store.state import ModelState
from engine.store.store import ModelStore

_TRIES = 5  # a commit between two reads makes them differ


def published(store: ModelStore, model_id: str) -> tuple[Parameters, Array]:
    """Return a model's newest parameters event and theta (d x m, any intercept last), checked.

    Raises
    ------
    UnknownModel
        It is not registered.
    CorruptState
        It is missing or altered, or is not what the state holds.
    """
    stored = StoredParameters(store.client)
    for _ in range(_TRIES):
        state = store.load_model(model_id)
        value = stored.newest(model_id)
        if value is None:
            raise CorruptState(
                f"model {model_id!r}: its parameters event is missing; run `lethe check`"
            )
        event = _parse(value, model_id)
        if event.version == state.version:
            return event, _checked(event, state)
    raise CorruptState(
        f"model {model_id!r}: its parameters event is of version {event.version}, its head "
        f"of {state.version}; run `lethe check`"
    )


def _parse(value: bytes, model_id: str) -> Parameters:
    try:
        return Parameters.read(value)
    except ValueError:
        raise CorruptState(
            f"model {model_id!r}: its parameters event does not parse; run `lethe check`"
        ) from None


def _checked(event: Parameters, state: ModelState) -> Array:
    # Parameters that are too large for an event lie in the head.
    theta = state.stream.published if event.theta is None else chain.theta_of(event)
    matches = chain.digest_of(event, theta) == event.parameters_digest
    if event.digest != state.digest or not matches:
        raise CorruptState(
            f"model {state.model_id!r}, version {event.version}: its stored parameters do not "
            "match their digest; do not use them, and run `lethe check`"
        )
    return theta
