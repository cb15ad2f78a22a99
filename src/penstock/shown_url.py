"""URLs in messages: without what may be a secret."""

from __future__ import annotations

import re

__all__ = ["shown_url"]


def shown_url(url: str) -> str:
    """The URL without name, password, query and fragment; without any of them if malformed."""
    scheme, found, rest = url.partition("://")
    if not found:
        scheme, rest = "", url
    # First the name: a password may hold the other characters, if nobody encoded it.
    place = re.split("[?#]", rest.rpartition("@")[2], maxsplit=1)[0]
    return f"{scheme}{found}{place}"
