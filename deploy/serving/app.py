"""An example of serving: a FastAPI application that predicts with the newest version of a model.

    pip install 'lethe-engine[server]'
    LETHE_MODEL=churn LETHE_KAFKA_BOOTSTRAP_SERVERS=localhost:9092 LETHE_REDIS_URL=redis://... \
        uvicorn --factory --app-dir deploy/serving app:create

One thread follows the model. A route reads `Following.version` once and works with what it got: a
new version takes its place between two requests, never within one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated, Any, TypeAlias

from fastapi import FastAPI, HTTPException
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from lethe import ModelSubscriber
from lethe.consumers.subscriber.model_version import ModelVersion
from lethe.engine.errors import InvalidData, LetheError, Unavailable

MOST_ROWS = 10_000
RETRY_SECONDS = 1.0


class Following:
    """The newest verified version of a model. What cannot be verified is never served."""

    def __init__(self, models: ModelSubscriber, model_id: str) -> None:
        self.version: ModelVersion | None = None
        self.broken: LetheError | None = None
        self._models = models
        self._model_id = model_id
        self._stop = threading.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Follow in a thread during a ``with`` block."""
        thread = threading.Thread(target=self._run, name="following")
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def _run(self) -> None:
        known = None
        while not self._stop.is_set():
            try:
                for version in self._models.follow(self._model_id, stop=self._stop, known=known):
                    self.version, known = version, version.known
            except Unavailable:  # the last version goes on being served
                self._stop.wait(RETRY_SECONDS)
            except LetheError as error:  # a person has to look; see /readyz
                self.broken = error
                return


Value: TypeAlias = float | bool | str | None
"""Numbers; with preprocessing inside the model also dates as text, categories, or nothing."""


class Rows(BaseModel):
    """Rows in the order of the features, or columns by name; with preprocessing, before it."""

    rows: Annotated[Sequence[Sequence[Value]], Field(max_length=MOST_ROWS)] | None = None
    columns: Mapping[str, Annotated[Sequence[Value], Field(max_length=MOST_ROWS)]] | None = None


def application(models: ModelSubscriber, model_id: str) -> FastAPI:
    """Return an application that serves one model."""
    following = Following(models, model_id)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        with following.running():
            yield

    app = FastAPI(title=f"Predictions of {model_id}", docs_url=None, lifespan=lifespan)

    @app.post("/predict")
    def predict(body: Rows) -> dict[str, Any]:
        version = following.version  # once: everything below is of this version
        if version is None:
            raise HTTPException(503, "no version of the model is known yet", {"Retry-After": "1"})
        given = body.rows if body.columns is None else body.columns
        if given is None:
            raise HTTPException(422, "give rows or columns")
        try:
            predictions = version.predict(given)
        except InvalidData as error:
            raise HTTPException(422, str(error)) from None
        return {
            "model": model_id,
            "version": version.version,
            "digest": version.digest,
            "predictions": predictions.tolist(),
        }

    @app.get("/readyz")
    def ready() -> JSONResponse:
        version, broken = following.version, following.broken
        if broken is not None:
            return JSONResponse({"error": broken.code, "detail": str(broken)}, 503)
        number = None if version is None else version.version
        return JSONResponse({"version": number}, 503 if version is None else 200)

    return app


def create() -> FastAPI:
    """Return the application of the model in ``LETHE_MODEL``, with the servers of ``LETHE_*``."""
    return application(ModelSubscriber.connect(), os.environ["LETHE_MODEL"])
