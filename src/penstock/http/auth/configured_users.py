"""The two users that the settings name: one with the role USER, and one with the role ADMIN."""

from __future__ import annotations

import msgspec

from penstock.errors import InvalidArgument
from penstock.http.auth.passwords import hash_password, is_password
from penstock.http.auth.user import Role, User, new_id, new_stamp
from penstock.http.auth.user_records import UserRecords
from penstock.settings import Settings

__all__ = ["check_defaults", "provisional", "with_configured"]


def with_configured(known: UserRecords, settings: Settings) -> UserRecords:
    """The records, with the two users as the settings have them now."""
    configured = (
        _configured(settings.user_username, settings.user_password, Role.USER, known),
        _configured(settings.admin_username, settings.admin_password, Role.ADMIN, known),
    )
    return msgspec.structs.replace(known, configured=configured)


def provisional(settings: Settings) -> UserRecords:
    """Whom the settings let in, as long as it is not known how the store calls them.

    Not by a default password: other servers may have set another one.
    """
    is_default = _defaults(settings)
    records = with_configured(UserRecords(), settings)
    known = tuple(user for user in records.configured if not is_default[user.role])
    return UserRecords(configured=known)


def _defaults(settings: Settings) -> dict[Role, bool]:
    """Whether the password of a role is the default one."""
    return {
        Role.USER: settings.has_default_user_password,
        Role.ADMIN: settings.has_default_admin_password,
    }


def check_defaults(known: UserRecords, new: UserRecords, settings: Settings) -> None:
    """Raises `InvalidArgument` when a default password would replace one that was chosen.

    This server may be on loopback, but the others of its store need not be.
    """
    is_default = _defaults(settings)
    before = {user.role for user in known.configured}
    for user in new.configured:
        if is_default[user.role] and user.role in before and user not in known.configured:
            raise InvalidArgument(
                f"another server of this store has set the password of the role {user.role.name}, "
                "and the default one would replace it for all: set PENSTOCK_USER_PASSWORD and "
                "PENSTOCK_ADMIN_PASSWORD as there"
            )


def _configured(username: str, password: str, role: Role, known: UserRecords) -> User:
    """As it was at the last start, unless its password has changed since."""
    for user in known.configured:
        if user.username == username and user.role is role:
            if is_password(password, user.password_hash):
                return user
            hashed = hash_password(password)
            return msgspec.structs.replace(user, password_hash=hashed, stamp=new_stamp())
    return User(
        id=new_id(),
        username=username,
        password_hash=hash_password(password),
        stamp=new_stamp(),
        role=role,
    )
