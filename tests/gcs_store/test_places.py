"""From a gs:// URL to a place and to requests."""

from __future__ import annotations

import subprocess
import sys

import pytest

from durable.errors import UsageError
from durable.store import REMOTE_PACE, Within
from durable.store.gcs import GcsBackend, Place
from durable.store.opening import open_store


@pytest.fixture(autouse=True)
def _no_emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)


@pytest.mark.parametrize(
    ("url", "bucket", "prefix", "project"),
    [
        ("gs://abc", "abc", "", ""),
        ("gs://abc/", "abc", "", ""),
        ("gs://my_bucket.example-1/a", "my_bucket.example-1", "a/", ""),
        ("gs://abc//a/b//", "abc", "a/b/", ""),
        ("gs://abc/größe 50%/x", "abc", "größe 50%/x/", ""),
        ("gs://abc?userProject=p-1", "abc", "", "p-1"),
        ("gs://abc/a/?userProject=example.com%3Ap", "abc", "a/", "example.com:p"),
    ],
)
def test_accepted_urls(url: str, bucket: str, prefix: str, project: str) -> None:
    """Slashes around the prefix do not matter; the project that pays is an option."""
    backend = open_store(url).backend

    assert isinstance(backend, GcsBackend)
    assert backend.place == Place(bucket, prefix, project, "https://storage.googleapis.com", False)


@pytest.mark.parametrize(
    "url",
    [
        "gs://ab",
        "gs://UPPER",
        "gs://some bucket",
        "gs://-abc",
        "gs:///abc",
        "gs://abc/a/../b",
        "gs://abc/./a",
        "gs://abc/a\nb",
        f"gs://abc/{'x' * 301}",
        "gs://abc/a?project=p",
        "gs://abc/a?userProject=p&x=1",
    ],
)
def test_other_urls_are_refused(url: str) -> None:
    """The error quotes the URL and shows the accepted forms."""
    with pytest.raises(UsageError) as caught:
        open_store(url)

    assert url.removeprefix("gs://") in str(caught.value)
    assert "gs://bucket/prefix?userProject=project" in str(caught.value)


@pytest.mark.parametrize(
    ("given", "endpoint"),
    [
        ("http://127.0.0.1:9000", "http://127.0.0.1:9000"),
        ("https://gcs.test/", "https://gcs.test"),
        ("localhost:9000", "http://localhost:9000"),
        ("", "https://storage.googleapis.com"),
    ],
)
def test_an_emulator_is_spoken_to_anonymously(
    given: str, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment variable of Google's own clients is read, with or without a scheme."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", given)

    place = Place.parse("abc")

    assert (place.endpoint, place.anonymous) == (endpoint, given != "")


@pytest.mark.parametrize(
    "given",
    [
        "http://",
        "unix://x/y",
        "ftp://gcs.test",
        "http://gcs.test:port",
        "http://gcs.test:99999",
        "http://[::1",
        "http://gcs.test[::1]",
        "http://gcs.test/my base",
        "http://gcs.test/%7Ebase",
        "http://gcs.test?x=1",
        "http://gcs.test#x",
        "http://b\u00fccher.test",
        "http://gcs.test/\r\nX: y",
        "http://user:secret@gcs.test",
    ],
)
def test_what_is_no_emulator_is_refused(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the variable, and shows what it says unless that may be a secret."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", given)

    with pytest.raises(UsageError, match="STORAGE_EMULATOR_HOST") as caught:
        open_store("gs://abc")

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "given", ["http://[::1]:9000", "HTTP://gcs.test:80", "https://gcs.test/a/b", "127.0.0.1:1"]
)
def test_what_is_an_emulator(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a port, a path, an address, in capitals."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", given)

    assert Place.parse("abc").endpoint.endswith(given)


@pytest.mark.parametrize("given", ["socks5://proxy.test:1080", "http://user:secret@proxy.test:x"])
def test_what_is_no_proxy_is_refused(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is sent; the password in it is not shown."""
    monkeypatch.setenv("https_proxy", given)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)

    with pytest.raises(UsageError, match="https_proxy") as caught:
        open_store("gs://abc")

    assert "secret" not in str(caught.value)


def test_names_are_quoted_whole() -> None:
    """No name changes the path or the query of its URL."""
    place = Place("abc", "a/")

    assert "/o/a%2F..%2F%3Fx%3D1%26%23%25%20%C3%B6?" in place.read_url("../?x=1&#% ö")
    assert "?prefix=a%2Fb%26c%2F&" in place.list_url("b&c/", None)
    assert "&pageToken=t%3D%2B%26&" in place.list_url("", "t=+&")
    part = place.list_url("b/", None, Within("b/&", "b/?"))
    assert "&startOffset=a%2Fb%2F%26&endOffset=a%2Fb%2F%3F&" in part


def test_every_url_names_who_pays() -> None:
    """The project is a parameter of each of the five requests."""
    place = Place("abc", user_project="example.com:p")
    urls = [
        place.insert_url(0),
        place.read_url("a"),
        place.body_url("a", 1),
        place.delete_url("a", 1),
        place.list_url("", "t"),
    ]

    assert all(url.endswith("&userProject=example.com%3Ap") for url in urls)


def test_it_is_polled_as_what_costs_money() -> None:
    """Leases outlive this machine, lock files have no place, polls are seconds apart."""
    backend = open_store("gs://abc").backend

    assert (backend.pace, backend.boot, backend.lock_folder) == (REMOTE_PACE, "", None)


def test_nothing_of_google_is_imported_before_it_is_used() -> None:
    """`import durable`, and a store elsewhere, load neither aiohttp nor google-auth."""
    script = """if True:
        import sys
        import durable
        from durable.store.opening import open_store
        open_store("memory:")
        print(sorted({"aiohttp", "google.auth", "requests"} & set(sys.modules)))
        open_store("gs://abc")
        print(sorted({"aiohttp", "google.auth", "requests"} & set(sys.modules)))
    """
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )

    assert done.stdout.splitlines() == ["[]", "['aiohttp']"], done.stderr
