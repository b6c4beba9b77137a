"""An MLflow model registry: versions with lineage tags, one alias, and deletion of artifacts too.

MLflow is an optional extra, imported when a registry is opened.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

from lethe.consumers.service.extras import extra
from lethe.consumers.subscriber.model_version import ModelVersion
from lethe.engine.errors import InvalidData, RegistryUnavailable
from lethe.engine.preprocess.input.derived import (
    Same,
)
from lethe.engine.preprocess.input.sources import sources
from lethe.engine.store.layout.columns import NUMERIC, FittedColumn
from lethe.engine.store.layout.preprocessing import column_of

PREFIX = "lethe."
MODEL, NAME = "lethe.model_id", "lethe.registered_name"
NUMBER, DIGEST = "lethe.version", "lethe.digest"
EXPERIMENT = "lethe"
ARTIFACTS = "model"
"""Name of a model's folder among the artifacts of its run."""

_PLAIN = re.compile(r"\w([\w. -]*[\w-])?", re.ASCII)
_OTHER = re.compile(r"[^\w-]", re.ASCII)
_READY_SECONDS = 300
_PAGE = 200
_RETRY = frozenset(
    ("INTERNAL_ERROR", "TEMPORARILY_UNAVAILABLE", "DEADLINE_EXCEEDED", "REQUEST_LIMIT_EXCEEDED",
     "RESOURCE_EXHAUSTED", "CANCELLED", "ABORTED", "RESOURCE_CONFLICT")
)  # fmt: skip
"""Error codes of MLflow after which the same call may succeed; also those of lost connections."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A version that the registry has of a model of ours."""

    name: str
    registry_version: int
    run_id: str
    number: int
    digest: str


class MlflowRegistry:
    """The registry at the addresses that MLflow's own settings name, unless they are given.

    A version's artifacts lie in a run of its own, which has the same tags: what a process left
    behind when it was killed is found by them.
    """

    def __init__(self, uri: str | None = None, *, alias: str, client: Any = None) -> None:
        mlflow = load_mlflow()
        with _reachable():
            self._client = client or mlflow.MlflowClient(tracking_uri=uri)
        self._uri = uri or mlflow.get_tracking_uri()
        self._alias = alias

    # -- reading ------------------------------------------------------------------------------

    def entries(self, model_id: str) -> list[Entry]:
        """Return the versions of a model that a mirror has registered, the oldest first.

        Raises
        ------
        RegistryUnavailable
            As every method: the registry, or the store of its artifacts, cannot be reached.
        InvalidData
            As every method: the registry refuses.
        """
        name = registered_name(model_id)
        with _reachable():
            versions = _all_pages(
                lambda token: self._client.search_model_versions(
                    f"name='{name}'", max_results=_PAGE, page_token=token
                )
            )
            tags = {run.info.run_id: run.data.tags for run in self._runs(model_id)}
        found = [_entry(one, tags[one.run_id]) for one in versions if one.run_id in tags]
        return sorted(found, key=lambda entry: entry.registry_version)

    def stands(self, entry: Entry) -> bool:
        """Return whether a version is ready, has its artifacts, and says where it comes from."""
        with _reachable():
            found = self._client.get_model_version(entry.name, str(entry.registry_version))
            tags = self._client.get_run(entry.run_id).data.tags
            return (
                found.status == "READY"
                and found.tags.items() >= _ours(tags).items()
                and bool(self._client.list_artifacts(entry.run_id, ARTIFACTS))
            )

    # -- writing ------------------------------------------------------------------------------

    def add(self, version: ModelVersion) -> Entry:
        """Register a version: first its artifacts, whole, and then the version that names them."""
        name, tags = registered_name(version.model_id), _tags(version)
        with _reachable():
            run_id = self._finished_run(version, tags)
            self._create_if_missing(name, version.model_id)
            # Returns once the version is ready.
            made = self._client.create_model_version(
                name, f"runs:/{run_id}/{ARTIFACTS}", run_id, tags, None, None, _READY_SECONDS
            )
        return _entry(made, tags)

    def promote(self, entry: Entry) -> None:
        """Give a version the alias, and see that it has it.

        Raises
        ------
        RegistryUnavailable
            It does not have it, or does not stand: nothing before it may be deleted.
        """
        with _reachable():
            self._client.set_registered_model_alias(
                entry.name, self._alias, str(entry.registry_version)
            )
            now = self._client.get_model_version_by_alias(entry.name, self._alias)
        if int(now.version) != entry.registry_version or not self.stands(entry):
            raise RegistryUnavailable(
                f"version {entry.registry_version} of {entry.name!r} is not ready in the "
                "registry; earlier versions are kept until it is"
            )

    def remove(self, entry: Entry) -> None:
        """Delete a version, after its artifacts: a process that is killed between finds it again.

        Raises
        ------
        InvalidData
            The store of artifacts does not delete.
        """
        with _reachable():
            self._remove_artifacts(entry.run_id)
            self._client.delete_model_version(entry.name, str(entry.registry_version))
            self._client.delete_run(entry.run_id)

    def remove_leftovers(self, model_id: str, keep: Entry) -> int:
        """Delete runs of a model that no version names; return how many."""
        with _reachable():
            runs = [run for run in self._runs(model_id) if run.info.run_id != keep.run_id]
            for run in runs:
                self._remove_artifacts(run.info.run_id)
                self._client.delete_run(run.info.run_id)
        return len(runs)

    # -- parts --------------------------------------------------------------------------------

    def _create_if_missing(self, name: str, model_id: str) -> None:
        from mlflow.exceptions import MlflowException  # noqa: PLC0415 (an optional extra)

        try:
            self._client.create_registered_model(name, {MODEL: model_id})
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise

    def _finished_run(self, version: ModelVersion, tags: dict[str, str]) -> str:
        """Return the run that holds a version's artifacts, from an interrupted try or new."""
        for run in self._runs(version.model_id):
            run_id = str(run.info.run_id)
            whole = run.info.status == "FINISHED" and _ours(run.data.tags) == tags
            if whole and self._client.list_artifacts(run_id, ARTIFACTS):
                return run_id
        run = self._client.create_run(
            self._experiment(), tags=tags, run_name=f"{version.model_id} {version.version}"
        )
        with tempfile.TemporaryDirectory(prefix="lethe-mirror-") as directory:
            _save(version, Path(directory) / ARTIFACTS)
            self._client.log_artifacts(run.info.run_id, directory)
        self._client.set_terminated(run.info.run_id)
        return str(run.info.run_id)

    def _experiment(self) -> str:
        from mlflow.exceptions import MlflowException  # noqa: PLC0415 (an optional extra)

        try:
            return str(self._client.create_experiment(EXPERIMENT))
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        return str(self._client.get_experiment_by_name(EXPERIMENT).experiment_id)

    def _runs(self, model_id: str) -> list[Any]:
        """Return the runs of a model's versions."""
        experiment = self._client.get_experiment_by_name(EXPERIMENT)
        if experiment is None:
            return []
        where, name = [experiment.experiment_id], registered_name(model_id)
        return _all_pages(
            lambda token: self._client.search_runs(
                where, f"tags.`{NAME}` = '{name}'", max_results=_PAGE, page_token=token
            )
        )

    def _remove_artifacts(self, run_id: str) -> None:
        from mlflow.store.artifact.artifact_repository_registry import (  # noqa: PLC0415 (as above)
            get_artifact_repository,
        )

        where = self._client.get_run(run_id).info.artifact_uri
        repository = get_artifact_repository(where, tracking_uri=self._uri)
        if repository.list_artifacts(ARTIFACTS):
            repository.delete_artifacts(ARTIFACTS)
        if repository.list_artifacts(ARTIFACTS):
            raise InvalidData(
                f"{where}: this artifact store cannot delete; delete {ARTIFACTS} there by hand, "
                "because it holds the influence of rows that were deleted, and run the mirror "
                "again"
            )


def load_mlflow() -> Any:
    """Import MLflow, which takes seconds, and return it.

    Raises
    ------
    InvalidData
        The extra is not installed.
    """
    # MLflow tries a call for minutes by itself. The mirror's own loop waits, and says so.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "30")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # or it reports to its makers
    with extra("mlflow", "`lethe mirror mlflow`"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MLflow warns of its own type hints
        import mlflow.pyfunc  # noqa: PLC0415 (an optional extra)
        import mlflow.sklearn  # noqa: PLC0415
        import skops  # noqa: F401, PLC0415
    return mlflow


def registered_name(model_id: str) -> str:
    """Return the name of a model in the registry: its id, if it may be a name there.

    Otherwise other characters are replaced, and a digest keeps names of different models apart.
    """
    if _PLAIN.fullmatch(model_id):
        return model_id
    return f"{_OTHER.sub('_', model_id)}-{hashlib.sha256(model_id.encode()).hexdigest()[:16]}"


@contextmanager
def _reachable() -> Iterator[None]:
    """Turn what MLflow raises into one line of ours."""
    from mlflow.exceptions import MlflowException  # noqa: PLC0415 (an optional extra)

    try:
        yield
    except MlflowException as error:
        reason = str(error).partition("\n")[0]
        if error.error_code in _RETRY:
            raise RegistryUnavailable(f"the registry cannot be reached: {reason}") from None
        raise InvalidData(f"the registry refuses: {reason}") from None
    except OSError as error:  # also of `requests`
        raise RegistryUnavailable(f"the registry cannot be reached: {error}") from None


def _all_pages(search: Callable[[str | None], Any]) -> list[Any]:
    found: list[Any] = []
    token: str | None = None
    while True:
        page = search(token)
        found += page
        token = page.token
        if not token:
            return found


def _entry(version: Any, tags: Mapping[str, str]) -> Entry:
    """Return a version with the tags of its run: those were complete before it was created."""
    return Entry(
        str(version.name),
        int(version.version),
        str(version.run_id),
        int(tags[NUMBER]),
        tags[DIGEST],
    )


def _ours(tags: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in tags.items() if name.startswith(PREFIX)}


def _tags(version: ModelVersion) -> dict[str, str]:
    """Return where a version comes from, as text."""
    event = version.event
    relative = event.error.relative
    return {
        MODEL: event.model_id,
        NAME: registered_name(event.model_id),
        NUMBER: str(event.version),
        DIGEST: event.digest,
        "lethe.prev_digest": event.prev_digest,
        "lethe.generation": str(event.generation),
        "lethe.commit": str(event.commit),
        "lethe.error": "unknown" if relative is None else repr(relative),
        "lethe.error_kind": event.error.kind,
        "lethe.rows_live": str(event.rows_live),
        "lethe.rows_deleted": str(event.rows_deleted),
        "lethe.status": event.status,
    }


def _save(version: ModelVersion, directory: Path) -> None:
    """Write an MLflow model of scikit-learn's flavour, in skops' format: no pickle."""
    import mlflow.sklearn  # noqa: PLC0415 (an optional extra)
    from mlflow.models import ModelSignature  # noqa: PLC0415
    from mlflow.types import ColSpec, Schema  # noqa: PLC0415

    from lethe.consumers.export.estimator import (  # noqa: PLC0415 (imports scikit-learn)
        estimator_of_version,
    )
    from lethe.consumers.export.pipeline import TRUSTED  # noqa: PLC0415 (likewise)

    named = _given_types(version.columns)
    named = named or [("double", name) for name in version.feature_names]
    columns = Schema([ColSpec(kind, name) for kind, name in named])
    mlflow.sklearn.save_model(
        estimator_of_version(version),
        str(directory),
        serialization_format="skops",
        skops_trusted_types=list(TRUSTED),
        signature=ModelSignature(inputs=columns),
        # Named here: to find out by itself, MLflow loads the model in another process.
        pip_requirements=[f"{name}=={installed(name)}" for name in ("scikit-learn", "skops")],
        metadata={"lethe": _tags(version)},
    )


def _given_types(columns: Sequence[FittedColumn]) -> list[tuple[str, str]]:
    """Return MLflow's type and the name of each column of a table."""
    types: dict[str, str] = {}
    for column in columns:
        for name in sources(column_of(column).of or Same(column.name)):
            if column.step not in NUMERIC or str(name) not in types:
                types[str(name)] = _type_of(column)
    return [(kind, name) for name, kind in types.items()]


def _type_of(column: FittedColumn) -> str:
    """Return MLflow's type of a column as it is given: whole numbers with gaps are doubles."""
    if column.step in ("numeric", "date"):
        return "double"
    kinds = {type(known) for known in column.categories if known is not None}
    whole = "double" if None in column.categories else "long"
    return {int: whole, bool: "boolean"}.get(next(iter(kinds), str), "string")
