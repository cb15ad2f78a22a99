"""What can go wrong between a client and its server, beyond the errors of the queue itself.

::

    PenstockError
    └── ClientError
        ├── Unreachable         unreachable: no answer came
        ├── Unauthorized        unauthorized: name or password is wrong or missing
        ├── Forbidden           forbidden: the user's role does not allow it
        ├── TooManyRequests     too_many_requests: a rate limit; nothing was done
        │   └── TooManyConnections  too_many_connections: the server has its fill; nothing was done
        ├── InvalidSignature    invalid_signature: a callback was not signed by the server
        ├── ServerFailed        internal_error: the server failed, or its answer makes no sense
        └── ClientClosed        client_closed

Everything that a server refuses for a reason of the queue is raised as the class of
`penstock.errors` that has the same code.
"""

from __future__ import annotations

from penstock.errors import PenstockError

__all__ = [
    "ClientClosed",
    "ClientError",
    "Forbidden",
    "InvalidSignature",
    "ServerFailed",
    "TooManyConnections",
    "TooManyRequests",
    "Unauthorized",
    "Unreachable",
]


class ClientError(PenstockError):
    """A request got no answer, or one that has nothing to do with the queue."""

    code = "client_error"


class Unreachable(ClientError):
    """No answer came. Unless the text says that no connection was made, it may have been done."""

    code = "unreachable"


class Unauthorized(ClientError):
    """The name or the password is wrong or missing."""

    code = "unauthorized"


class Forbidden(ClientError):
    """The user's role does not allow the request."""

    code = "forbidden"


class TooManyRequests(ClientError):
    """A limit of the server refused the request; nothing was done."""

    code = "too_many_requests"


class TooManyConnections(TooManyRequests):
    """The server has as many connections as it may have; nothing was done."""

    code = "too_many_connections"


class InvalidSignature(ClientError):
    """A callback is not signed with any of the secrets, or is an old one."""

    code = "invalid_signature"


class ServerFailed(ClientError):
    """The server failed unexpectedly, or gave an answer that makes no sense."""

    code = "internal_error"


class ClientClosed(ClientError):
    """The client was closed before the request was answered."""

    code = "client_closed"
