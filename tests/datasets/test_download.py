"""Files of data sets are found, or downloaded and verified; a failure leaves no file behind."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from stonet.datasets import DATASETS, fetch, find
from stonet.datasets.card import Card, File
from stonet.datasets.download import download, find_local, obtain
from stonet.errors import DataError, ResourceError, UsageError

BODY = bytes(range(256)) * 12000  # 3 MB
DIGEST = hashlib.sha256(BODY).hexdigest()


class Source(BaseHTTPRequestHandler):
    """A public source, with faults."""

    def do_GET(self):
        where = self.path.strip("/")
        if where == "moved":
            self.send_response(302)
            self.send_header("Location", "/good")
            self.end_headers()
            return
        if where == "elsewhere":
            self.send_response(302)
            self.send_header("Location", "http://192.0.2.1/good")
            self.end_headers()
            return
        if where == "absent":
            self.send_error(404)
            return
        body = {"changed": BODY[::-1], "longer": BODY + b"!"}.get(where, BODY)
        self.send_response(200)
        if where != "unsized":
            self.send_header("Content-Length", str(len(body) + (100 if where == "cut" else 0)))
        self.end_headers()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the client may hang up
            self.wfile.write(body + (b"!" if where == "unsized" else b""))

    def log_message(self, *args):
        """Log nothing."""


@pytest.fixture(scope="module")
def source():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Source)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("STONET_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("STONET_DATA", raising=False)
    return tmp_path / "cache"


def card(*files, name="toy"):
    texts = dict.fromkeys(
        ("title", "kind", "source", "licence", "channels", "shape", "step", "period", "split"), "-"
    )
    return Card(name, page="https://example.org/toy", files=files, **texts)


def toy(url, more=0):
    return card(File("a/toy.bin", DIGEST, len(BODY) + more, url))


@pytest.mark.parametrize("where", ["good", "moved"])
def test_a_missing_file_is_downloaded_once(source, cache, where):
    calls = []
    card = toy(f"{source}/{where}")
    (path,) = obtain(card, progress=lambda *args: calls.append(args), loopback=True)
    assert path == cache / "toy" / "a" / "toy.bin" and path.read_bytes() == BODY
    assert calls[-1] == (len(BODY), len(BODY), "a/toy.bin") and len(calls) > 1
    assert obtain(toy("https://nowhere.invalid/")) == [path]  # not requested again
    assert [p.name for p in path.parent.iterdir()] == ["toy.bin"]


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("changed", "expected"),
        ("cut", "ended after 3072000 of 3072100"),
        ("absent", "404"),
        ("longer", "larger than"),
        ("unsized", "larger than"),
        ("elsewhere", "not an https address"),
    ],
)
def test_a_wrong_response_leaves_no_file(source, cache, where, words):
    expected = toy(f"{source}/{where}", 100 if where == "cut" else 0)
    with pytest.raises(DataError, match=words) as error:
        obtain(expected, loopback=True)
    assert "https://example.org/toy" in str(error.value) and str(cache) in str(error.value)
    assert not [p for p in cache.rglob("*") if p.is_file()]


def test_an_unreachable_source_is_an_error_with_a_remedy(cache):
    with pytest.raises(DataError, match=r"cannot be downloaded .* Get it from https://example.org"):
        obtain(toy("http://127.0.0.1:1/none"), loopback=True)


@pytest.mark.parametrize(
    "url",
    ["http://example.org/x", "http://127.0.0.1:1/x", "ftp://example.org/x", "file:///etc/passwd"],
)
def test_only_https_is_downloaded(tmp_path, url):
    with pytest.raises(DataError, match="not an https address"):
        download(File("x", url=url), tmp_path / "x")
    if not url.startswith("http://127"):
        with pytest.raises(DataError, match="not an https address"):
            download(File("x", url=url), tmp_path / "x", loopback=True)
    assert not list(tmp_path.iterdir())


def test_a_cache_that_cannot_be_written_is_named(source, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("STONET_CACHE", str(tmp_path / "file"))
    monkeypatch.delenv("STONET_DATA", raising=False)
    with pytest.raises(ResourceError, match="STONET_CACHE names another"):
        obtain(toy(f"{source}/good"), loopback=True)


def test_stonet_data_has_priority_over_the_cache(cache, tmp_path, monkeypatch):
    two_files = card(File("x.bin"), File("y.bin"))
    for folder in (cache / "toy", tmp_path / "mine" / "toy"):
        folder.mkdir(parents=True)
        (folder / "x.bin").write_text(folder.name)
    (cache / "toy" / "y.bin").write_text("only here")
    monkeypatch.setenv("STONET_DATA", str(tmp_path / "mine"))
    assert find_local(two_files).present == [
        tmp_path / "mine" / "toy" / "x.bin",
        cache / "toy" / "y.bin",
    ]
    assert obtain(two_files) == find_local(two_files).present


def test_a_file_with_another_checksum_is_refused_and_kept(cache):
    (cache / "toy").mkdir(parents=True)
    (cache / "toy" / "x.bin").write_bytes(b"mine")
    with pytest.raises(DataError, match=r"x\.bin' is not the file of .* SHA-256"):
        obtain(card(File("x.bin", DIGEST)))
    assert (cache / "toy" / "x.bin").read_bytes() == b"mine"


def test_files_to_download_by_hand_are_named(cache):
    files = [File(f"{n}.nc") for n in range(5)]
    with pytest.raises(
        DataError, match=r"'0\.nc', '1\.nc', '2\.nc' and 2 more\. Get them"
    ) as error:
        obtain(card(*files))
    assert str(cache / "toy") in str(error.value)


def test_missing_files_of_every_data_set_are_listed(cache):
    for name, entry in DATASETS.items():
        assert find(name).missing == list(entry.card.files) and not find(name).present
    assert fetch("wave") == []
    for name in ("solar", "humidity", "era5-bhutan", "noaa-daily"):
        with pytest.raises(DataError, match=DATASETS[name].card.page):
            fetch(name)
    with pytest.raises(UsageError, match="Did you mean 'solar'"):
        find("sola")
