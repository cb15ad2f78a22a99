"""Variables that look like settings but are not, such as those that Kubernetes sets."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches

from penstock.errors import InvalidArgument

__all__ = [
    "CLIENT_VARIABLES",
    "PREFIX",
    "check_variables",
    "is_service_link",
    "meant",
    "unused_variables",
]

PREFIX = "PENSTOCK_"
CLIENT_VARIABLES = frozenset(
    f"{PREFIX}{name}"
    for name in ("URL", "USER", "PASSWORD", "TOKEN", "CA", "QUEUE", "LAKE", "WEBHOOK_SECRET")
)
"""For the command line, the client and the examples: a machine may set them for all programs."""

# For a Service called penstock or penstock-something, each pod of its namespace gets these.
_LINK = re.compile(
    rf"{PREFIX}(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_LINK_PORT = re.compile(rf"{PREFIX}(\w+_)?PORT")
_LINK_VALUE = re.compile(r"(tcp|udp|sctp)://.+:\d+")


def is_service_link(name: str, value: str) -> bool:
    """Whether Kubernetes has set it, as the address of a Service."""
    name = name.upper()
    if _LINK.fullmatch(name):
        return True
    return bool(_LINK_PORT.fullmatch(name) and _LINK_VALUE.fullmatch(value))


def check_variables(environment: Mapping[str, str], known: Collection[str]) -> None:
    """Raises `InvalidArgument` for a variable whose name is close to that of a setting.

    ``known`` has the names of all settings. A variable that resembles none of them may be for
    another program: see `unused_variables`.
    """
    for name in _unknown(environment, known):
        near = meant(name, known)
        if near is not None:
            raise InvalidArgument(
                f"there is no setting {name}: did you mean {near}? Correct the variable, or take "
                "it out of the environment"
            )


def unused_variables(environment: Mapping[str, str], known: Collection[str]) -> dict[str, str]:
    """The variables with our prefix that have no effect, each with the reason."""
    found = dict.fromkeys(_unknown(environment, known), "no setting has this name")
    for name, value in environment.items():
        if name.upper() in known and is_service_link(name, value):
            found[name] = (
                "it is not a number but the address of a Service called penstock, as Kubernetes "
                "sets it: use enableServiceLinks: false, or another name for the Service"
            )
    return found


def meant(name: str, known: Collection[str]) -> str | None:
    """The setting with the closest name, if any is close."""
    endings = [one.removeprefix(PREFIX) for one in known]
    near = get_close_matches(name.upper().removeprefix(PREFIX), endings, n=1)
    return f"{PREFIX}{near[0]}" if near else None


def _unknown(environment: Mapping[str, str], known: Collection[str]) -> list[str]:
    """An empty variable counts as unset, as everywhere."""
    return [
        name
        for name, value in sorted(environment.items())
        if name.upper().startswith(PREFIX)
        and name.upper() not in known
        and name.upper() not in CLIENT_VARIABLES
        and value
        and not is_service_link(name, value)
    ]
