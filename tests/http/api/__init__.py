"""``/api/*``, in a process of its own making."""

from __future__ import annotations
