"""What tests run as `penstock`: arguments for Python."""

from __future__ import annotations

__all__ = ["PENSTOCK", "QUICK_PENSTOCK"]

_RUN = "from penstock.cli import main; main()"

PENSTOCK = ("-c", _RUN)
# Passwords are slow to check on purpose. Here they are not; nothing else is another.
QUICK_PENSTOCK = (
    "-c",
    f"from penstock.http.auth import passwords; passwords.ROUNDS = 4; {_RUN}",
)
