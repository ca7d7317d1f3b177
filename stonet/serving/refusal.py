"""Refusals: errors of a request as JSON, with the status that HTTP has for them."""

from __future__ import annotations

from collections.abc import Mapping

from stonet.errors import DataError, ResourceError, StonetError

MAX_MESSAGE = 2000  # characters of a message that is sent back


class Refused(StonetError):
    """A request that is not answered, with the status of HTTP.

    Args:
        status: 4xx, or 503 where the service is too busy.
        message: what was expected, what came, and what to do.
        headers: further headers of the answer.
    """

    exit_code = 2

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.headers = status, dict(headers or {})


def status_of(error: StonetError) -> int:
    """The status of an error of the library: 422 for data and requests, 503 for lack of means.

    Args:
        error: raised while a request was answered.
    """
    if isinstance(error, Refused):
        return error.status
    if isinstance(error, DataError):
        return 422
    return 503 if isinstance(error, ResourceError) else 500


def document(kind: str, message: str) -> dict[str, dict[str, str]]:
    """The body of a refusal.

    Args:
        kind: name of the error's type.
        message: for the user.
    """
    return {"error": {"kind": kind, "message": message[:MAX_MESSAGE]}}
