"""Limits of the service: what one request may ask for, and how much runs at once."""

from __future__ import annotations

from dataclasses import dataclass

from stonet.serving.refusal import Refused


@dataclass(frozen=True)
class Limits:
    """How large and how long a request may be, and how many run at once.

    Args:
        sites: points of a forecast, or cells of a field.
        times: of a forecast, of new observations or of a series.
        values: numbers in an answer.
        body_bytes: of a request.
        depth: levels of lists and objects in JSON.
        seconds: that a computation may take.
        upload_seconds: in which the body of a request must arrive.
        running: computations at once.
        waiting: requests that may wait for a computation.
        frames: newest times of the observations that the service keeps.
        issues: issue times whose features are kept warm.
    """

    sites: int = 20_000
    times: int = 500
    values: int = 1_000_000
    body_bytes: int = 8_000_000
    depth: int = 16
    seconds: float = 30.0
    upload_seconds: float = 20.0
    running: int = 2
    waiting: int = 32
    frames: int = 50_000
    issues: int = 8

    def check_count(self, what: str, number: int, most: int) -> None:
        """Refuse more than the service allows.

        Args:
            what: is counted, for the message.
            number: in the request.
            most: allowed number.

        Raises:
            Refused: with status 413.
        """
        if number > most:
            raise Refused(
                413,
                f"{number:,} {what} were asked for; this service answers at most {most:,} in one "
                "request. Ask in several requests.",
            )
