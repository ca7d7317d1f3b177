"""The files of the page: those in the package's folder `page`, and no others."""

from __future__ import annotations

from pathlib import Path

from stonet.serving.refusal import Refused

FOLDER = Path(__file__).with_name("page")
INDEX = "index.html"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".webmanifest": "application/manifest+json",
}


class PageFiles:
    """Files that are read once, at the start.

    Args:
        folder: with index.html.
    """

    def __init__(self, folder: Path = FOLDER) -> None:
        files = sorted(folder.iterdir()) if folder.is_dir() else []
        self._files = {
            path.name: path.read_bytes()
            for path in files
            if path.suffix in TYPES and path.is_file() and not path.is_symlink()
        }

    def find(self, name: str) -> tuple[bytes, str]:
        """Content and type of a file.

        Args:
            name: of the file, without a folder.

        Raises:
            Refused: with status 404, if there is none.
        """
        if name not in self._files:
            raise Refused(404, f"The page has no file '{name[:80]}'.")
        return self._files[name], TYPES[Path(name).suffix]
