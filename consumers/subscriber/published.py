"""The newest published parameters as the store holds them, checked against their digests."""

from __future__ import annotations

from lethe.consumers.commits.publish import parameters_event
from lethe.consumers.contract import version_chain
from lethe.consumers.contract.events import Parameters, Version
from lethe.engine.errors import CorruptState
from lethe.engine.fit.objective import Array
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.store import ModelStore


def published(store: ModelStore, model_id: str) -> tuple[Parameters, Array]:
    """Return a model's newest parameters event and theta (d x m, any intercept last), checked.

    Raises
    ------
    UnknownModel
        The model is not registered.
    CorruptState
        What is stored does not match the newest version.
    """
    return published_of(store.load_model(model_id))


def published_of(state: ModelState) -> tuple[Parameters, Array]:
    """Return the newest parameters event and theta of a state, checked.

    Raises
    ------
    CorruptState
        What is stored does not match the newest version.
    """
    what = f"model {state.model_id!r}, version {state.version}"
    try:
        version = Version.read(state.newest)
    except ValueError:
        raise CorruptState(f"{what}: its stored event does not parse; run `lethe check`") from None
    theta, pipeline = state.published, state.published_pipeline
    columns = () if pipeline is None else pipeline.columns
    event = parameters_event(version, state.meta.config, theta, columns)
    if (
        version.digest != state.digest
        or version_chain.digest_of(event, theta) != event.parameters_digest
    ):
        raise CorruptState(
            f"{what}: its stored parameters do not match their digest; do not use them, and run "
            "`lethe check`"
        )
    return event, theta
