"""Given a registrar that has published, when the store fails it once, then it still checks back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from lethe.consumers.registration import committer
from lethe.consumers.registration.committer import Committer
from lethe.engine.errors import StoreUnavailable


@pytest.mark.parametrize(("published", "sent"), [(8, ["mine"]), (9, ["mine", "newest"])])
def test_the_newest_parameters_are_sent_again_if_others_were_faster(
    monkeypatch: pytest.MonkeyPatch, published: int, sent: list[str]
) -> None:
    monkeypatch.setattr(committer, "messages_of", lambda _: ["mine"])
    monkeypatch.setattr(committer, "newest_parameters", lambda *_: ["newest"])
    store, producer = Mock(), Mock()
    store.cursors.move_published.side_effect = [
        StoreUnavailable("the server closed the connection"),
        SimpleNamespace(published=published),
    ]
    each = SimpleNamespace(
        commit=SimpleNamespace(model_id="churn"), place=SimpleNamespace(previous_end=7, offset=7)
    )
    made = Committer(
        store, producer, Mock(), Mock(),
        signer=Mock(), trusted=None, progress=Mock(), at_step=Mock(),
    )  # fmt: skip
    made.publish(cast("Any", [each]))
    assert [one for call in producer.publish.call_args_list for one in call.args[0]] == sent
