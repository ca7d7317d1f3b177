"""The page of a service that is not alone: a token, and new observations."""

from __future__ import annotations

import json
import urllib.request

from helpers.browser import Served

TOKEN = "a-token-of-the-tests"


def posted(server: Served, path: str, body: object) -> dict:
    """The answer to a request with the token."""
    head = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
    request = urllib.request.Request(server.url + path, json.dumps(body).encode(), head)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def test_the_token_is_asked_for_and_new_observations_are_followed(guarded: Served, visit):
    page = visit(guarded, token=TOKEN, expected="status of 401")
    page.ask("S03")
    assert TOKEN not in page.page.url
    before, shown = page.page.input_value("#issue"), page.text("point-value")
    new = {"t2m": [[25.0]], "rh": [[50.0]], "precipitation": [[0.0]], "pressure": [[1000.0]]}
    time = f"{before[:8]}26T00:00:00Z"  # an hour after the last of the data
    posted(guarded, "v1/observations", {"times": [time], "stations": ["S03"], "values": new})
    page.page.evaluate("window.dispatchEvent(new Event('focus'))")
    page.until(f"document.getElementById('issue').value > '{before}'")
    page.until(f"document.getElementById('point-value').innerText !== '{shown}'")
    assert "issue" not in page.permalink()  # the latest is shown still


def test_a_wrong_token_is_asked_for_again(guarded: Served, visit):
    page = visit(guarded, token=TOKEN, expected="status of 401")
    page.page.evaluate("sessionStorage.setItem('stonet-token', 'wrong')")
    page.page.reload()
    page.page.fill("#token", "wrong again, and long enough")
    page.page.keyboard.press("Enter")
    page.page.fill("#token", TOKEN)
    page.page.keyboard.press("Enter")
    page.page.wait_for_selector("#legend-ticks span", state="attached")
