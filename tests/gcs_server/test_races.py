"""Sixteen at once, each with a connection of its own: whatever the verb, one wins."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from durable.store.memory import Bucket
from durable.testing.gcs import serving
from tests.gcs_server.plain import UPLOADS, Http, object_path

RACERS = 16
ROUNDS = 5

Attempt = Callable[[Http, int], int]  # a connection and the racer's number, to a status


class Race:
    """Racers behind a barrier."""

    def __init__(self, url: str, pool: ThreadPoolExecutor) -> None:
        self.first = Http(url)
        self._connections = [Http(url) for _ in range(RACERS)]
        self._pool = pool
        self._barrier = threading.Barrier(RACERS)

    def run(self, attempt: Attempt) -> Counter[int]:
        """Everybody's status, counted."""

        def one(racer: int) -> int:
            self._barrier.wait(10)
            return attempt(self._connections[racer], racer)

        return Counter(self._pool.map(one, range(RACERS)))

    def close(self) -> None:
        for connection in (self.first, *self._connections):
            connection.close()


@pytest.fixture(scope="module")
def race() -> Iterator[Race]:
    with serving({"bucket": Bucket()}) as server, ThreadPoolExecutor(RACERS) as pool:
        race = Race(server.url, pool)
        yield race
        race.close()


def upload(kind: str, connection: Http, name: str, data: bytes, **conditions: object) -> int:
    if kind == "media":
        return connection.insert(name, data, **conditions).status
    if kind == "multipart":
        head = b"--edge\r\n\r\n{}\r\n--edge\r\nContent-Type: text/plain\r\n\r\n"
        body, kinds = head + data + b"\r\n--edge--", "multipart/related; boundary=edge"
        params = {"uploadType": "multipart", "name": name, **conditions}
        return connection.call("POST", UPLOADS, body, {"Content-Type": kinds}, **params).status
    params = {"uploadType": "resumable", "name": name, **conditions}
    session = connection.call("POST", UPLOADS, {}, **params).headers["Location"]
    return connection.call("PUT", session, data).status


every_kind = pytest.mark.parametrize("kind", ["media", "multipart", "resumable"])
rounds = pytest.mark.parametrize("number", range(ROUNDS))


@rounds
@every_kind
def test_create(race: Race, kind: str, number: int) -> None:
    """One creator wins, by every kind of upload, and its content is what stands."""
    name = f"create/{kind}/{number}"
    winners: list[int] = []

    def attempt(connection: Http, racer: int) -> int:
        status = upload(kind, connection, name, str(racer).encode(), ifGenerationMatch=0)
        if status == 200:
            winners.append(racer)
        return status

    assert race.run(attempt) == {200: 1, 412: RACERS - 1}
    assert race.first.media(name).body == str(winners[0]).encode()


@rounds
@every_kind
def test_replace(race: Race, kind: str, number: int) -> None:
    """One of those who replace the same generation wins."""
    name = f"replace/{kind}/{number}"
    generation = race.first.create(name).json()["generation"]

    def attempt(connection: Http, racer: int) -> int:
        return upload(kind, connection, name, b"%d" % racer, ifGenerationMatch=generation)

    assert race.run(attempt) == {200: 1, 412: RACERS - 1}


@rounds
@pytest.mark.parametrize("method", ["PATCH", "PUT"])
def test_patch_and_update(race: Race, method: str, number: int) -> None:
    """One of those who change the same metageneration wins."""
    name = f"change/{method}/{number}"
    race.first.create(name)

    def attempt(connection: Http, racer: int) -> int:
        body = {"metadata": {"racer": str(racer)}}
        return connection.call(method, object_path(name), body, ifMetagenerationMatch=1).status

    assert race.run(attempt) == {200: 1, 412: RACERS - 1}


@rounds
@pytest.mark.parametrize("condition", ["ifGenerationMatch", "generation"])
def test_delete(race: Race, condition: str, number: int) -> None:
    """One of those who delete the same generation has deleted it."""
    name = f"delete/{condition}/{number}"
    generation = race.first.create(name).json()["generation"]

    def attempt(connection: Http, _racer: int) -> int:
        return connection.delete(name, **{condition: generation}).status

    assert race.run(attempt) == {204: 1, 404: RACERS - 1}


@rounds
@pytest.mark.parametrize("verb", ["copyTo", "rewriteTo"])
def test_copy(race: Race, verb: str, number: int) -> None:
    """One of those who copy to the same new name wins."""
    to = f"{verb}/b/bucket/o/new%2F{verb}%2F{number}"
    for racer in range(RACERS):
        race.first.insert(f"source/{racer}")

    def attempt(connection: Http, racer: int) -> int:
        path = f"{object_path(f'source/{racer}')}/{to}"
        return connection.call("POST", path, ifGenerationMatch=0).status

    assert race.run(attempt) == {200: 1, 412: RACERS - 1}


@rounds
def test_compose(race: Race, number: int) -> None:
    """One of those who compose the same new name wins."""
    race.first.insert("part")
    path = object_path(f"composed/{number}") + "/compose"
    body = {"sourceObjects": [{"name": "part"}]}

    def attempt(connection: Http, _racer: int) -> int:
        return connection.call("POST", path, body, ifGenerationMatch=0).status

    assert race.run(attempt) == {200: 1, 412: RACERS - 1}


@rounds
def test_move(race: Race, number: int) -> None:
    """One of those who move the same object has moved it."""
    source = object_path(f"move/{number}")
    race.first.create(f"move/{number}")

    def attempt(connection: Http, racer: int) -> int:
        return connection.call("POST", f"{source}/moveTo/o/moved%2F{number}%2F{racer}").status

    assert race.run(attempt) == {200: 1, 404: RACERS - 1}
    assert len(race.first.names(prefix=f"moved/{number}/")) == 1


@rounds
def test_renewal_against_release(race: Race, number: int) -> None:
    """Who replaces a generation and who deletes it cannot both succeed."""
    name = f"lease/{number}"
    generation = race.first.create(name).json()["generation"]

    def attempt(connection: Http, racer: int) -> int:
        if racer % 2:
            return connection.delete(name, ifGenerationMatch=generation).status
        return connection.insert(name, b"", ifGenerationMatch=generation).status

    statuses = race.run(attempt)
    assert statuses[200] + statuses[204] == 1
