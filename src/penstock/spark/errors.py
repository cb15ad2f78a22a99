"""What can go wrong between Spark and a server, beyond a wrong option (`InvalidArgument`).

::

    PenstockError
    └── SparkError
        ├── DataLoss        data_loss: messages that were to be read are gone
        ├── Unreachable     unreachable: the server could not do it within `retrySeconds`
        └── Refused         whatever code the server gave
"""

from __future__ import annotations

from penstock.errors import PenstockError

__all__ = ["DataLoss", "Refused", "SparkError", "Unreachable"]


class SparkError(PenstockError):
    """A read or a write of Spark's could not be done."""

    code = "spark_error"


class DataLoss(SparkError):
    """Messages that were to be read are gone; the text says which."""

    code = "data_loss"


class Unreachable(SparkError):
    """The server did not answer, or said that it cannot now, for too long."""

    code = "unreachable"


class Refused(SparkError):
    """The server said no. `reason` is its code, `status` the one of HTTP."""

    code = "refused"

    def __init__(self, text: str, *, reason: str = "", status: int = 0) -> None:
        super().__init__(f"{reason}: {text}" if reason else text)
        self.reason = reason
        self.status = status

    def __reduce__(self) -> tuple[object, ...]:
        # Spark carries errors from one process to another.
        return _refused, (str(self), self.reason, self.status)


def _refused(text: str, reason: str, status: int) -> Refused:
    return Refused(text.removeprefix(f"{reason}: "), reason=reason, status=status)
