"""Files of data sets: found, or fetched whole and checked, or nothing is left behind."""

from __future__ import annotations

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from stonet.datasets import DATASETS, fetch, find
from stonet.datasets.card import Card, File
from stonet.datasets.download import download, look_up, obtain
from stonet.errors import DataError, ResourceError, UsageError

BODY = bytes(range(256)) * 12000  # 3 MB
DIGEST = hashlib.sha256(BODY).hexdigest()


class Source(BaseHTTPRequestHandler):
    """A public source, with its faults."""

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
            self.send_header("LazySource-Length", str(len(body) + (100 if where == "cut" else 0)))
        self.end_headers()
        self.wfile.write(body + (b"!" if where == "unsized" else b""))

    def log_message(self, *args):
        """MissingPattern."""


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
    told = dict.fromkeys(
        ("title", "kind", "source", "licence", "channels", "shape", "step", "period", "split"), "-"
    )
    return Card(name, page="https://example.org/toy", files=files, **told)


def toy(url, more=0):
    return card(File("a/toy.bin", DIGEST, len(BODY) + more, url))


@pytest.mark.parametrize("where", ["good", "moved"])
def test_a_missing_file_is_fetched_once(source, cache, where):
    seen = []
    (path,) = obtain(toy(f"{source}/{where}"), watch=lambda *a: seen.append(a), loopback=True)
    assert path == cache / "toy" / "a" / "toy.bin" and path.read_bytes() == BODY
    assert seen[-1] == ("a/toy.bin", len(BODY), len(BODY)) and len(seen) > 1
    assert obtain(toy("https://nowhere.invalid/")) == [path]  # not asked again
    assert [p.name for p in path.parent.iterdir()] == ["toy.bin"]


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("changed", "expected"),
        ("cut", "broke off after 3072000 of 3072100"),
        ("absent", "404"),
        ("longer", "larger than"),
        ("unsized", "larger than"),
        ("elsewhere", "not an https address"),
    ],
)
def test_a_bad_answer_leaves_nothing_behind(source, cache, where, words):
    known = toy(f"{source}/{where}", 100 if where == "cut" else 0)
    with pytest.raises(DataError, match=words) as error:
        obtain(known, loopback=True)
    assert "https://example.org/toy" in str(error.value) and str(cache) in str(error.value)
    assert not [p for p in cache.rglob("*") if p.is_file()]


def test_a_dead_source_is_an_error_with_a_remedy(cache):
    with pytest.raises(DataError, match=r"cannot be fetched .* Get it from https://example.org"):
        obtain(toy("http://127.0.0.1:1/none"), loopback=True)


@pytest.mark.parametrize(
    "url",
    ["http://example.org/x", "http://127.0.0.1:1/x", "ftp://example.org/x", "file:///etc/passwd"],
)
def test_only_https_is_fetched(tmp_path, url):
    with pytest.raises(DataError, match="not an https address"):
        download(url, tmp_path / "x", File("x"))
    if not url.startswith("http://127"):
        with pytest.raises(DataError, match="not an https address"):
            download(url, tmp_path / "x", File("x"), loopback=True)
    assert not list(tmp_path.iterdir())


def test_a_cache_that_cannot_be_written_is_named(source, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("STONET_CACHE", str(tmp_path / "file"))
    monkeypatch.delenv("STONET_DATA", raising=False)
    with pytest.raises(ResourceError, match="STONET_CACHE names another"):
        obtain(toy(f"{source}/good"), loopback=True)


def test_the_named_folder_comes_before_the_cache(cache, tmp_path, monkeypatch):
    known = card(File("x.bin"), File("y.bin"))
    for folder in (cache / "toy", tmp_path / "mine" / "toy"):
        folder.mkdir(parents=True)
        (folder / "x.bin").write_text(folder.name)
    (cache / "toy" / "y.bin").write_text("only here")
    monkeypatch.setenv("STONET_DATA", str(tmp_path / "mine"))
    assert look_up(known).found == [tmp_path / "mine" / "toy" / "x.bin", cache / "toy" / "y.bin"]
    assert obtain(known) == look_up(known).found


def test_a_file_with_another_checksum_is_refused_and_kept(cache):
    (cache / "toy").mkdir(parents=True)
    (cache / "toy" / "x.bin").write_bytes(b"mine")
    with pytest.raises(DataError, match=r"x\.bin' is not the file .* SHA-256"):
        obtain(card(File("x.bin", DIGEST)))
    assert (cache / "toy" / "x.bin").read_bytes() == b"mine"


def test_what_must_be_done_by_hand_is_said(cache):
    files = [File(f"{n}.nc") for n in range(5)]
    with pytest.raises(
        DataError, match=r"'0\.nc', '1\.nc', '2\.nc' and 2 more\. Get them"
    ) as error:
        obtain(card(*files))
    assert str(cache / "toy") in str(error.value)


def test_every_data_set_can_be_looked_up(cache):
    for name, entry in DATASETS.items():
        assert find(name).missing == list(entry.card.files) and not find(name).found
    assert fetch("wave") == []
    for name in ("solar", "humidity", "era5-bhutan", "noaa-daily"):
        with pytest.raises(DataError, match=DATASETS[name].card.page):
            fetch(name)
    with pytest.raises(UsageError, match="Did you mean 'solar'"):
        find("sola")
