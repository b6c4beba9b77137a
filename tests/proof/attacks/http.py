"""Attacks over HTTP: without a key, with a key that is for `LINE` alone, and by other sites."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from fastapi.testclient import TestClient

from lethe.consumers.contract import topics
from lethe.consumers.server.guard import Access
from lethe.consumers.server.keys import Keys, issue_key
from tests.proof.attacks.attack import Act, Attack, Trace
from tests.proof.attacks.world import LINE, LOGIT, World

DELETIONS = f"/v1/models/{LINE}/deletions"
OF_OTHERS = f"/v1/models/{LOGIT}/deletions"
BODY: dict[str, Any] = {"request_id": "a-1", "row_ids": ["row-40"]}
HARMLESS: dict[str, Any] = {"request_id": "a-1", "row_ids": ["nobody"]}


class Entered:
    """A server with keys, and what was sent to the log meanwhile."""

    def __init__(self, world: World, rate: float = 0.0) -> None:
        path = world.folder / f"api-{time.monotonic_ns()}.keys"
        self.keys = {
            "all": issue_key(path, "desk", ["*"], None),
            "line": issue_key(path, "line", [LINE], None),
            "old": issue_key(path, "old", ["*"], datetime.now(UTC) + timedelta(seconds=0.2)),
        }
        time.sleep(0.25)
        self.client: TestClient = world.http(Access(Keys(path), None, rate))
        self.world = world
        self.before = self.sent()

    def sent(self) -> int:
        """Return how many requests the log has."""
        records = self.world.platform.records
        return len(records(topics.DELETIONS)) + len(records(topics.ERASURES))

    def header(self, key: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.keys[key]}"} if key else {}


def asks(
    method: str,
    path: str,
    status: int,
    code: str | None = None,
    *,
    key: str = "line",
    sends: int = 0,
    headers: dict[str, str] | None = None,
    **options: Any,
) -> Act:
    """Return what asks once and must get this answer; ``sends`` requests then are in the log."""

    def act(world: World) -> Sequence[Trace]:
        entered = Entered(world)
        answer = entered.client.request(
            method, path, headers={**entered.header(key), **(headers or {})}, **options
        )
        found = answer.status_code, _code(answer), entered.sent() - entered.before
        return [Trace("answer and requests sent", lambda: found, (status, code, sends))]

    return act


def _code(answer: Any) -> str | None:
    try:
        return answer.json().get("code")  # type: ignore[no-any-return]
    except (ValueError, AttributeError):
        return None


def raw(*pieces: bytes, wanted: Sequence[int], pause: float = 0.0) -> Act:
    """Return what sends bytes to a real server, and must get one of these statuses (0: none)."""

    def act(world: World) -> Sequence[Trace]:
        served = world.port()
        with socket.create_connection(("127.0.0.1", served.port), timeout=5) as connection:
            for piece in pieces:
                connection.sendall(piece)
                time.sleep(pause)
            try:
                answer = connection.recv(65536)
            except (TimeoutError, ConnectionResetError):
                answer = b""
        words = answer.split(b" ", 2)
        status = int(words[1]) if len(words) > 1 else 0
        sent = [r for r in world.platform.records(topics.DELETIONS) if b'"a-2"' in (r.value or b"")]
        return [
            Trace("the status", lambda: status in wanted or status, True),
            Trace("a second request", lambda: len(sent), 0),
        ]

    return act


def head(*lines: bytes) -> bytes:
    """Return the head of a POST of a deletion."""
    host = b"Host: localhost"
    return b"\r\n".join([b"POST " + DELETIONS.encode() + b" HTTP/1.1", host, *lines, b"", b""])


_INNER = b'{"request_id":"a-2","row_ids":["row-40"]}'
SMUGGLED = (
    b"0\r\n\r\nPOST " + DELETIONS.encode() + b" HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/json\r\nContent-Length: "
    + str(len(_INNER)).encode()
    + b"\r\n\r\n"
    + _INNER
)


def two_subjects(world: World) -> Sequence[Trace]:
    """Ask for two people's erasures under the id of one that waits."""
    entered = Entered(world)
    answers = [
        entered.client.post(
            "/v1/erasures",
            json={"erasure_id": "old-erasure", "subject_id": subject},
            headers=entered.header("all"),
        )
        for subject in ("subject-20", "subject-21")
    ]
    codes = [(one.status_code, _code(one)) for one in answers]
    return [Trace("conflicts", lambda: codes, [(409, "REQUEST_ID_CONFLICT")] * 2)]


def taken_id(world: World) -> Sequence[Trace]:
    """Ask for other rows under the id of a request that was answered."""
    entered = Entered(world)
    body = {"request_id": "old-line", "row_ids": ["row-40"]}
    answer = entered.client.post(DELETIONS, json=body, headers=entered.header("line"))
    found = answer.status_code, _code(answer), entered.sent() - entered.before
    return [Trace("a conflict", lambda: found, (409, "REQUEST_ID_CONFLICT", 0))]


def over_the_rate(world: World) -> Sequence[Trace]:
    """Send twice as many requests as a key may, and another key's one."""
    entered = Entered(world, rate=5.0)
    path = f"/v1/models/{LINE}"
    codes = [
        entered.client.get(path, headers=entered.header("line")).status_code for _ in range(40)
    ]
    other = entered.client.get(path, headers=entered.header("all")).status_code
    return [Trace("refused", lambda: (429 in codes, other), (True, 200))]


def guesses(world: World) -> Sequence[Trace]:
    """Try keys that begin like a true one."""
    entered = Entered(world)
    true = entered.keys["all"]
    tries = [true[:-1], true + "x", true.upper(), true.swapcase(), "", "*", "null"]
    codes = {
        entered.client.get("/v1/models", headers={"Authorization": f"Bearer {one}"}).status_code
        for one in tries
    }
    return [Trace("answers", lambda: codes, {401})]


def by_the_hosts_name(world: World) -> Sequence[Trace]:
    """Reach a server without keys under another site's name."""
    client = world.http(Access(hosts=frozenset({"localhost", "127.0.0.1"})))
    answer = client.post(DELETIONS, json=BODY, headers={"Host": "evil.example"})
    found = answer.status_code, _code(answer)
    return [Trace("the answer", lambda: found, (421, "UNKNOWN_HOST"))]


def from_another_site(world: World) -> Sequence[Trace]:
    """Have a browser of this machine send a request from another site's page."""
    client = world.http(Access(hosts=frozenset({"localhost"})))
    site = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    headers = {"Host": "localhost", **site}
    found = [
        (one.status_code, _code(one))
        for one in (
            client.post(DELETIONS, json=BODY, headers=headers),
            client.post("/v1/erasures", json={"subject_id": "subject-20"}, headers=headers),
        )
    ]
    return [Trace("the answers", lambda: found, [(403, "CROSS_SITE")] * 2)]


def splits_the_answer(world: World) -> Sequence[Trace]:
    """Have a line break of a request id end a header of the answer."""
    entered = Entered(world)
    name = "a-1\r\nSet-Cookie: x=1"
    answer = entered.client.post(
        DELETIONS, json={**HARMLESS, "request_id": name}, headers=entered.header("line")
    )
    found = answer.status_code, "set-cookie" in answer.headers
    return [
        Trace("the answer", lambda: found, (202, False)),
        world.receipt(LINE, name, "REJECTED", "UNKNOWN_ROWS"),
    ]


def page_with_a_script(world: World) -> Sequence[Trace]:
    """Put a script into an id, and look at the console's pages that show it."""
    name = "<script>alert(1)</script>"
    world.forge(topics.DELETIONS, LINE, {"request_id": name, "model_id": LINE, "row_ids": ["x"]})
    world.work()
    client = world.http()
    paths = ("/console/requests", f"/console/request?model={LINE}&id={quote(name)}")
    end, pages = time.monotonic() + 10, [""]
    while not any("alert(1)" in page for page in pages) and time.monotonic() < end:
        pages = [client.get(path).text for path in paths]  # once the index has read it
    seen = any("alert(1)" in page for page in pages)
    return [
        Trace("a script", lambda: any(name in page for page in pages), False),
        Trace("a page shows it", lambda: seen, True),
    ]


def forms_without_a_token(world: World) -> Sequence[Trace]:
    """Send the console's form for an erasure as another site would."""
    client = world.http()
    form = {"subject": "subject-20", "id": "a-1", "again": "subject-20"}
    codes = [
        client.post("/console/erase/confirmed", data={**form, **token}).status_code
        for token in ({}, {"token": ""}, {"token": "0" * 32})
    ]
    sent = [one.value or b"" for one in world.platform.records(topics.ERASURES)]
    return [
        Trace("no form is taken", lambda: {code // 100 for code in codes}, {4}),
        Trace("no erasure", lambda: any(b"subject-20" in value for value in sent), False),
    ]


def unwraps_another_id(world: World) -> Sequence[Trace]:
    """Wrap an erasure into a CloudEvent with another id."""
    entered = Entered(world)
    inner = {"erasure_id": "old-erasure", "subject_id": "subject-20"}
    event = {"specversion": "1.0", "type": "x", "source": "/x", "id": "a-1", "data": inner}
    answer = entered.client.post("/v1/erasures", json=event, headers=entered.header("all"))
    found = answer.status_code, _code(answer), entered.sent() - entered.before
    return [Trace("the answer", lambda: found, (400, "INVALID_REQUEST", 0))]


JSON = {"Content-Type": "application/json"}
ATTACKS = (
    Attack(
        "no key",
        "Asks for a deletion without a key.",
        "401.",
        asks("POST", DELETIONS, 401, "UNAUTHENTICATED", key="", json=BODY),
    ),
    Attack(
        "an expired key",
        "Uses a key after its end.",
        "401.",
        asks("POST", DELETIONS, 401, "UNAUTHENTICATED", key="old", json=BODY),
    ),
    Attack(
        "guessed keys",
        "Tries keys that begin like a true one.",
        "A key is compared as a whole.",
        guesses,
    ),
    Attack(
        "a key in the address",
        "Gives a key in the query.",
        "Only the header counts.",
        asks("GET", "/v1/models?key=x&access_token=x", 401, "UNAUTHENTICATED", key=""),
    ),
    Attack(
        "a key of another scheme",
        "Gives a key as a password.",
        "Only `Bearer` counts.",
        asks(
            "GET",
            "/v1/models",
            401,
            "UNAUTHENTICATED",
            key="",
            headers={"Authorization": "Basic eDp4"},
        ),
    ),
    Attack(
        "another model by a key",
        "Deletes from a model that the key is not for.",
        "404, as for a model that does not exist.",
        asks("POST", OF_OTHERS, 404, "UNKNOWN_MODEL", json=BODY),
    ),
    Attack(
        "another model in the body",
        "Names another model in the body than in the path.",
        "400.",
        asks("POST", DELETIONS, 400, "INVALID_REQUEST", json={**BODY, "model_id": LOGIT}),
    ),
    Attack(
        "another model's receipt",
        "Asks for the receipt of another model's request.",
        "404, as for a model that does not exist.",
        asks("GET", OF_OTHERS + "/old-logit", 404, "UNKNOWN_MODEL"),
    ),
    Attack(
        "another model's parameters",
        "Asks for another model's parameters.",
        "404, as for a model that does not exist.",
        asks("GET", f"/v1/models/{LOGIT}/parameters", 404, "UNKNOWN_MODEL"),
    ),
    Attack(
        "a path out of the model",
        "Leaves its own model by `%2e%2e%2f` in the path.",
        "A percent-encoded name is one name.",
        asks("GET", f"/v1/models/{LINE}%2F..%2F{LOGIT}/parameters", 404, "UNKNOWN_MODEL"),
    ),
    Attack(
        "a model of other letters",
        "Writes its own model's name so that it may match another.",
        "Names are compared as they are.",
        asks("POST", f"/v1/models/{LOGIT.upper()}/deletions", 404, "UNKNOWN_MODEL", json=BODY),
    ),
    Attack(
        "an erasure by a key of one model",
        "Erases a person by a key that is for one model.",
        "403.",
        asks("POST", "/v1/erasures", 403, "FORBIDDEN", json={"subject_id": "subject-20"}),
    ),
    Attack(
        "an answered id for other rows",
        "Sends other rows under an answered request's id.",
        "409, and nothing is sent.",
        taken_id,
    ),
    Attack(
        "one erasure id, two people",
        "Sends two people's erasures under an answered erasure's id.",
        "The receipt's commitment tells who was meant: 409.",
        two_subjects,
    ),
    Attack(
        "an erasure in an envelope",
        "Wraps an erasure into an event of another id.",
        "A body is the request itself.",
        unwraps_another_id,
    ),
    Attack(
        "two ids",
        "Gives one id in the body and another as `Idempotency-Key`.",
        "400.",
        asks(
            "POST", DELETIONS, 400, "INVALID_REQUEST", json=BODY, headers={"Idempotency-Key": "a-2"}
        ),
    ),
    Attack(
        "an erasure's request id",
        "Uses an id of the form of requests that erasures become.",
        "400.",
        asks(
            "POST",
            DELETIONS,
            400,
            "INVALID_REQUEST",
            json={**BODY, "request_id": "erasure-" + "0" * 48},
        ),
    ),
    Attack(
        "an id that is a step in a path",
        "Names a request `..`.",
        "400.",
        asks("POST", DELETIONS, 400, "INVALID_REQUEST", json={**BODY, "request_id": ".."}),
    ),
    Attack(
        "an answer in two",
        "Puts a line break and a header into a request id.",
        "Ids are percent-encoded in `Location`.",
        splits_the_answer,
    ),
    Attack(
        "a member twice over HTTP",
        "Gives `row_ids` twice in one body.",
        "400.",
        asks(
            "POST",
            DELETIONS,
            400,
            "INVALID_REQUEST",
            headers=JSON,
            content=b'{"request_id":"a-1","row_ids":["nobody"],"row_ids":["row-40"]}',
        ),
    ),
    Attack(
        "a body that is deep",
        "Nests a body 100,000 deep.",
        "16 levels: 400.",
        asks("POST", DELETIONS, 400, "INVALID_REQUEST", headers=JSON, content=b"[" * 100_000),
    ),
    Attack(
        "a body that is long",
        "Sends a body of 2 MiB.",
        "413.",
        asks("POST", DELETIONS, 413, "TOO_LARGE", headers=JSON, content=b" " * (2 << 20)),
    ),
    Attack(
        "a body that is packed",
        "Sends a gzip of megabytes as `Content-Encoding`.",
        "Bodies are not unpacked: 400.",
        asks(
            "POST",
            DELETIONS,
            400,
            "INVALID_REQUEST",
            headers={**JSON, "Content-Encoding": "gzip"},
            content=b"\x1f\x8b" + bytes(500),
        ),
    ),
    Attack(
        "a form for a request",
        "Sends a request as text, which a page of another site may.",
        "415.",
        asks(
            "POST",
            DELETIONS,
            415,
            "UNSUPPORTED_MEDIA_TYPE",
            headers={"Content-Type": "text/plain"},
            content=json.dumps(BODY).encode(),
        ),
    ),
    Attack(
        "a limit of a milliard",
        "Asks for 10^9 versions.",
        "400.",
        asks("GET", f"/v1/models/{LINE}/versions?limit=1000000000", 400, "INVALID_REQUEST"),
    ),
    Attack(
        "a page before the first",
        "Asks for the versions after -10^30.",
        "400.",
        asks("GET", f"/v1/models/{LINE}/versions?after=-{10**30}", 400, "INVALID_REQUEST"),
    ),
    Attack(
        "another method",
        "Uses `TRACE`, which shows headers.",
        "405.",
        asks("TRACE", DELETIONS, 405, "METHOD_NOT_ALLOWED"),
    ),
    Attack(
        "too many requests",
        "Sends many more requests than a key may.",
        "429; other keys have a rate of their own.",
        over_the_rate,
    ),
    Attack(
        "a name of its own",
        "Reaches a server without keys under another name (DNS rebinding).",
        "421.",
        by_the_hosts_name,
    ),
    Attack(
        "a page of another site",
        "Has a browser send requests from another site's page.",
        "403.",
        from_another_site,
    ),
    Attack(
        "a form without a token",
        "Sends the console's form for an erasure as another site would.",
        "A form carries a token of its session.",
        forms_without_a_token,
    ),
    Attack(
        "a script in an id",
        "Puts a script into an id that the console shows.",
        "Pages escape what they show, and run no script but their own.",
        page_with_a_script,
    ),
    Attack(
        "two lengths",
        "Gives two lengths of one body, so that a proxy and the server differ.",
        "400.",
        raw(
            head(b"Content-Type: application/json", b"Content-Length: 5", b"Content-Length: 60"),
            SMUGGLED,
            wanted=(400,),
        ),
    ),
    Attack(
        "a length and chunks",
        "Gives a length and chunks, so that a proxy and the server differ.",
        "400, or the connection ends after the first request.",
        raw(
            head(
                b"Content-Type: application/json",
                b"Content-Length: 5",
                b"Transfer-Encoding: chunked",
            ),
            SMUGGLED,
            wanted=(400,),
        ),
    ),
    Attack(
        "a negative length",
        "Gives a negative length.",
        "400.",
        raw(head(b"Content-Length: -1"), SMUGGLED, wanted=(400,)),
    ),
    Attack(
        "a head of 100 KB",
        "Sends 100 KB of headers.",
        "431 or 400.",
        raw(head(b"X-A: " + b"x" * 100_000), wanted=(400, 431)),
    ),
    Attack(
        "no HTTP",
        "Sends bytes that are no HTTP.",
        "400.",
        raw(b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\r\n\r\n", wanted=(400, 0)),
    ),
)
