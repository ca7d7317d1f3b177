"""Metrics: counts and times of requests, as the text format of Prometheus has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from threading import Lock

from stonet._version import __version__

BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)  # seconds
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """Counts by path and status, and times by path. Paths are those of the routes."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._buckets: Counter[tuple[str, float]] = Counter()
        self._seconds: Counter[str] = Counter()

    def add(self, path: str, status: int, seconds: float) -> None:
        """Count a request.

        Args:
            path: of its route.
            status: of the answer.
            seconds: that it took.
        """
        with self._lock:
            self._requests[path, status] += 1
            self._seconds[path] += seconds  # type: ignore[assignment]
            for bound in BUCKETS:
                self._buckets[path, bound] += seconds <= bound

    def text(self, gauges: Mapping[str, tuple[str, float | int]]) -> str:
        """All metrics.

        Args:
            gauges: further numbers: help and value by name.
        """
        with self._lock:
            requests, buckets = dict(self._requests), dict(self._buckets)
            seconds = dict(self._seconds)
        lines = [
            "# HELP stonet_info Version of stonet.",
            "# TYPE stonet_info gauge",
            f'stonet_info{{version="{__version__}"}} 1',
            "# HELP stonet_requests_total Requests answered, by path and status.",
            "# TYPE stonet_requests_total counter",
        ]
        for (path, status), count in sorted(requests.items()):
            lines.append(f'stonet_requests_total{{path="{path}",status="{status}"}} {count}')
        lines += [
            "# HELP stonet_request_seconds Time until the answer was sent.",
            "# TYPE stonet_request_seconds histogram",
        ]
        for path in sorted(seconds):
            total = sum(count for (other, _), count in requests.items() if other == path)
            for bound in BUCKETS:
                line = f'stonet_request_seconds_bucket{{path="{path}",le="{bound:g}"}}'
                lines.append(f"{line} {buckets[path, bound]}")
            lines.append(f'stonet_request_seconds_bucket{{path="{path}",le="+Inf"}} {total}')
            lines.append(f'stonet_request_seconds_sum{{path="{path}"}} {seconds[path]:.6f}')
            lines.append(f'stonet_request_seconds_count{{path="{path}"}} {total}')
        for name, (text, value) in gauges.items():
            lines += [f"# HELP {name} {text}", f"# TYPE {name} gauge", f"{name} {value:.15g}"]
        return "\n".join(lines) + "\n"
