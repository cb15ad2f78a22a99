"""The paths of the calls that the client makes."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from penstock.core.limits import DEAD_LETTER_SUFFIX, EVENTS_SUFFIX, check_name
from penstock.errors import InvalidArgument

__all__ = [
    "LOG_IN",
    "QUEUES",
    "STATS",
    "USERS",
    "message_path",
    "queue_path",
    "subscription_path",
    "user_path",
    "with_query",
]

QUEUES = "/v1/queues"
STATS = "/v1/stats"
LOG_IN = "/auth/local"
USERS = "/admin/subscribers"


def queue_path(queue: str, rest: str = "") -> str:
    """Raises `InvalidName`: a bad name must not turn into another path."""
    if isinstance(queue, str):
        # The names of dead-letter and events queues are longer than those that users may give.
        given = queue.removesuffix(DEAD_LETTER_SUFFIX).removesuffix(EVENTS_SUFFIX)
        check_name(given or queue, "queue")
    else:
        check_name(queue, "queue")
    return f"{QUEUES}/{queue}{rest}"


def subscription_path(queue: str, subscription: str, rest: str = "") -> str:
    """Raises `InvalidName`."""
    check_name(subscription, "subscription")
    return queue_path(queue, f"/subscriptions/{subscription}{rest}")


def message_path(queue: str, id: str) -> str:
    return queue_path(queue, f"/messages/{_part('id', id)}")


def user_path(username: str) -> str:
    return f"{USERS}/{_part('username', username)}"


def _part(name: str, text: str) -> str:
    """Raises `InvalidArgument`, also for nothing, which would make it another path."""
    if text == "":
        raise InvalidArgument(f"the {name} is empty")
    try:
        return quote(text, safe="")
    except (TypeError, UnicodeEncodeError) as exc:
        raise InvalidArgument(f"the {name} is {text!r}, which is not text: {exc}") from None


def with_query(path: str, **values: str | int | None) -> str:
    """Leaves out what is None. Raises `InvalidArgument`."""
    given = {name: value for name, value in values.items() if value is not None}
    try:
        return f"{path}?{urlencode(given)}" if given else path
    except UnicodeEncodeError as exc:
        raise InvalidArgument(f"{', '.join(given)}: one of them is not text: {exc}") from None
