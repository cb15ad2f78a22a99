"""``/api/*`` and ``/auth/*``: users who subscribe to topics and are called back.

Every answer has ``success`` and ``message``.
"""

from __future__ import annotations

from penstock.http.api.consumers import Consumers
from penstock.http.api.login import Login
from penstock.http.api.producers import Producers
from penstock.http.api.topics import Topics
from penstock.http.api.users import UserCalls
from penstock.http.auth.authenticator import Authenticator
from penstock.http.auth.tokens import Tokens
from penstock.http.auth.users import Users
from penstock.http.errors import Refusal
from penstock.http.gate import Route
from penstock.settings import Settings

__all__ = ["Topics", "api_routes"]


def api_routes(
    topics: Topics, users: Users, authenticator: Authenticator, tokens: Tokens, settings: Settings
) -> list[Route]:
    routes = [
        *Producers(topics).routes(),
        *Consumers(topics, users).routes(),
        *UserCalls(users, authenticator, settings).routes(),
        *Login(users, authenticator, tokens).routes(),
    ]
    return [route._replace(error_form=Refusal) for route in routes]
