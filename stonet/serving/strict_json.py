"""JSON of requests, read strictly: UTF-8, finite numbers, each key once, bounded depth."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import numpy as np

from stonet.serving.refusal import Refused

MAX_DIGITS = 400  # of a number
TEXTS = re.compile(r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)  # linear, even if one does not end
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
OPENING, CLOSING = (np.frombuffer(pair, dtype=np.uint8) for pair in (b"[{", b"]}"))


def parse_json(data: bytes, depth: int) -> object:
    """The content of a JSON text.

    Args:
        data: the body of a request.
        depth: levels of lists and objects that are allowed.

    Raises:
        Refused: with status 400, if it is not strict JSON.

    Example:
        >>> parse_json(b'{"sites": [[46.9, 7.4]]}', depth=16)
        {'sites': [[46.9, 7.4]]}
    """
    try:
        text = data.decode("utf-8")
        _check_depth(text, depth)
        content = json.loads(
            text,
            object_pairs_hook=_once,
            parse_constant=_number,
            parse_float=_number,
            parse_int=_integer,
        )
        if SURROGATE.search(text):  # a pair of them stands for a character, one alone for nothing
            json.dumps(content, ensure_ascii=False).encode("utf-8")
        return content
    except UnicodeDecodeError as error:
        raise _invalid(f"byte {error.start} is not UTF-8") from None
    except UnicodeEncodeError:
        raise _invalid("a text holds half of a surrogate pair") from None
    except json.JSONDecodeError as error:
        raise _invalid(f"{error.msg} in line {error.lineno}, column {error.colno}") from None
    except (ValueError, RecursionError) as error:
        raise _invalid(str(error)) from None


def _check_depth(text: str, depth: int) -> None:
    """Refuse deep nesting before the parser recurses; brackets within texts do not count."""
    brackets = np.frombuffer(TEXTS.sub("", text).encode(), dtype=np.uint8)
    opening, closing = np.isin(brackets, OPENING), np.isin(brackets, CLOSING)
    level = np.cumsum(opening.astype(np.int32) - closing)
    if len(level) and level.max() > depth:
        raise ValueError(f"it is nested more than {depth} levels deep")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for key, value in pairs:
        if key in content:
            raise ValueError(f"the key {key[:40]!r} is given twice")
        content[key] = value
    return content


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is not a finite number (a missing value is null)")
    return number


def _integer(text: str) -> int | float:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a number has {len(text)} digits")
    number = int(text)
    return number if abs(number) < 2**63 else _number(text)


def _invalid(reason: str) -> Refused:
    return Refused(400, f"The body of the request is not valid JSON: {reason}. Send UTF-8 JSON.")
