"""Why nobody can listen on an address, for whoever asked for it."""

from __future__ import annotations

import errno
import os

from penstock.errors import InvalidArgument

__all__ = ["cannot_listen"]


def cannot_listen(host: str, port: int, exc: OSError) -> InvalidArgument:
    # Python puts the address into its text, which is left out here.
    if exc.errno is not None and exc.errno in errno.errorcode:
        reason = os.strerror(exc.errno)
    else:  # the name of the host is not found
        reason = (exc.strerror or str(exc)).partition(" (while ")[0]
    return InvalidArgument(f"cannot listen on {host}:{port}: {reason}. Choose another port or host")
