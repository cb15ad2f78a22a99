"""What can go wrong between Spark and a server, beyond a wrong option (`InvalidArgument`).

::

    PenstockError
    └── SparkError
        ├── DataLoss        data_loss: messages that were to be read are gone
        ├── Unreachable     unreachable: the server could not do it within `retrySeconds`, or its
        │                   certificate is not trusted
        └── Refused         whatever code the server gave
"""

from __future__ import annotations

from penstock.errors import PenstockError

__all__ = ["DataLoss", "Refused", "SparkError", "Unreachable"]


class SparkError(PenstockError):
    """A read or a write could not be done."""

    code = "spark_error"


class DataLoss(SparkError):
    """Messages that were to be read are gone; the error says which."""

    code = "data_loss"


class Unreachable(SparkError):
    """The server did not answer, or was unavailable, for too long; or it is not trusted."""

    code = "unreachable"


class Refused(SparkError):
    """The server refused the request. `reason` is its error code, `status` the HTTP status."""

    code = "refused"

    def __init__(self, text: str, *, reason: str = "", status: int = 0) -> None:
        super().__init__(f"{reason}: {text}" if reason else text)
        self.reason = reason
        self.status = status

    def __reduce__(self) -> tuple[object, ...]:
        # Spark pickles errors to move them between processes.
        return _refused, (str(self), self.reason, self.status)


def _refused(text: str, reason: str, status: int) -> Refused:
    return Refused(text.removeprefix(f"{reason}: "), reason=reason, status=status)
