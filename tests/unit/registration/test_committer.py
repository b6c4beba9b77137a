"""What a registrar does once it has published: it looks whether others were faster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from lethe.consumers.registration import committer
from lethe.consumers.registration.committer import Committer
from lethe.engine.errors import StoreUnavailable
from lethe.engine.store.layout.keys import commit_partition


@pytest.mark.parametrize(
    ("published", "log_ends", "sent"),
    [
        (8, 8, ["mine"]),
        (9, 8, ["mine", "newest"]),  # somebody has published beyond it
        (8, 9, ["mine", "newest"]),  # somebody has committed, and may have published
    ],
)
def test_the_newest_parameters_are_sent_again_if_others_were_faster(
    monkeypatch: pytest.MonkeyPatch, published: int, log_ends: int, sent: list[str]
) -> None:
    """The store fails it once: only its answer says whether somebody has published beyond."""
    monkeypatch.setattr(committer, "messages_of", lambda _: ["mine"])
    monkeypatch.setattr(committer, "newest_parameters", lambda *_: ["newest"])
    store, producer, reader = Mock(), Mock(), Mock()
    store.cursors.move_published.side_effect = [
        StoreUnavailable("the server closed the connection"),
        SimpleNamespace(published=published),
    ]
    reader.ends.return_value = {"commits": log_ends}
    each = SimpleNamespace(
        commit=SimpleNamespace(model_id="churn"), place=SimpleNamespace(previous_end=7, offset=7)
    )
    made = Committer(
        store, producer, reader, Mock(),
        signer=Mock(), trusted=None, progress=Mock(), at_step=Mock(),
    )  # fmt: skip
    tail = SimpleNamespace(partition="commits", offset=8)
    monkeypatch.setattr(made._journal, "followed", lambda _: SimpleNamespace(tail=tail))
    monkeypatch.setattr(committer, "models_in", lambda *_: ["churn"])
    folded: list[int] = []

    def follow(index: int) -> None:
        folded.append(index)
        reader.ends.return_value = {"commits": 8}

    monkeypatch.setattr(made, "_follow", follow)
    made.publish(cast("Any", [each]))
    assert [one for call in producer.publish.call_args_list for one in call.args[0]] == sent
    # The newest may not be in the store yet.
    assert folded == [commit_partition("churn")] * (len(sent) - 1)
