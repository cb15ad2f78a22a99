"""``/api/*`` and ``/auth/*``: users who subscribe to topics and are called back.

Everything here answers with ``success`` and ``message``.
"""

from __future__ import annotations

from penstock.http.api.login import Login
from penstock.http.auth import Authenticator
from penstock.http.gate import Route
from penstock.http.tokens import Tokens
from penstock.http.users import Users

__all__ = ["api_routes"]


def api_routes(users: Users, authenticator: Authenticator, tokens: Tokens) -> list[Route]:
    routes = [*Login(users, authenticator, tokens).routes()]
    return [route._replace(says_success=True) for route in routes]
