r"""Takes the pictures of the live map in the documentation: light, dark and on a phone.

A server must run on a model with stations on the Earth:

    stonet serve runs/brazil inmet-brazil --port 8000
    python scripts/screenshots.py http://127.0.0.1:8000 --point=-15.6,-47.6 \
        --issue 2024-11-20T15:00:00Z --lead 6
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

TARGET = Path(__file__).parents[1] / "docs" / "images"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
QUALITY = 84  # of JPEG
PICTURES = {  # width, height, scheme, scale
    "live-map-light": (1360, 850, "light", 1),
    "live-map-dark": (1360, 850, "dark", 1),
    "live-map-phone": (375, 812, "light", 2),
}
PATIENCE = 120_000  # milliseconds


def main() -> None:
    """Open the page in Chromium three times, and take a picture each."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url", help="of the server")
    parser.add_argument("--point", required=True, help="latitude,longitude")
    parser.add_argument("--issue", help="such as 2024-11-20T15:00:00Z; the latest by default")
    parser.add_argument("--lead", type=int, default=6, help="in steps")
    parser.add_argument("-o", "--output", type=Path, default=TARGET)
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    address = f"{arguments.url.rstrip('/')}/#lead={arguments.lead}&point={arguments.point}"
    address += f"&issue={arguments.issue}" if arguments.issue else ""
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        for name in PICTURES:
            print(picture(browser, address, arguments.output, name))
        browser.close()


def picture(browser: Browser, address: str, folder: Path, name: str) -> Path:
    """Take one picture, once the field is drawn and the curve is there.

    Args:
        browser: Chromium.
        address: of the page, with a lead and a point.
        folder: that is written to.
        name: of the picture.
    """
    width, height, scheme, scale = PICTURES[name]
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme=scheme,  # type: ignore[arg-type]
        device_scale_factor=scale,
        locale="en-GB",
    )
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(address)
    page.wait_for_selector("#chart svg .curve")
    page.wait_for_load_state("networkidle")
    path = folder / f"{name}.jpg"
    page.screenshot(path=path, quality=QUALITY, type="jpeg")
    context.close()
    return path


if __name__ == "__main__":
    main()
