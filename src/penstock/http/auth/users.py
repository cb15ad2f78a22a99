"""All users: the two that the settings name, and those that were added."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

import msgspec

from penstock.core.dependencies import check_dependencies
from penstock.core.limits import check_name
from penstock.errors import Conflict, InvalidArgument, InvalidName, UserExists, UserNotFound
from penstock.http.auth.configured_users import check_defaults, provisional, with_configured
from penstock.http.auth.passwords import Passwords
from penstock.http.auth.shared_value import SharedValue
from penstock.http.auth.user import Role, User, canonical, new_id, new_stamp
from penstock.http.auth.user_records import NAME, UserRecords, decode_users, encode_users
from penstock.settings import Settings
from penstock.storage.shared import Shared

__all__ = ["Users", "open_users"]

MAX_USERS = 10_000  # they are written as a whole
_EMAIL = re.compile(r"[^@\s:]{1,64}@[^@\s:]{1,189}")


class Users:
    """Users, by name and by id. It starts empty; `open_users` reads them.

    All servers of a store have the same users. A change is stored before it counts, and is all or
    nothing; of two changes that exclude each other, one is refused, whichever servers they reach.

    When the settings name a user that was also added, the one of the settings counts.
    """

    def __init__(self, shared: Shared, passwords: Passwords) -> None:
        self._passwords = passwords
        self._shared = SharedValue(
            shared,
            NAME,
            UserRecords(),
            decode=decode_users,
            encode=encode_users,
            taken=self._index,
        )
        self._index(self._shared.value)

    async def open(self, settings: Settings, *, has_others: bool) -> None:
        """See `open_users`."""

        def first(known: UserRecords) -> UserRecords:
            records = with_configured(known, settings)
            if has_others:
                check_defaults(known, records, settings)
            return records

        await self._shared.open(first)
        if self._shared.problem is not None:
            self._index(provisional(settings))

    @property
    def problem(self) -> str | None:
        """Why the users are not known yet. Until then only those of the settings can come in."""
        return self._shared.problem

    async def refresh(self) -> None:
        """Learn what other servers have changed until now.

        Raises `StoreUnavailable` if the users are not known yet.
        """
        await self._shared.refresh()

    @property
    def _records(self) -> UserRecords:
        return self._shared.value

    def get(self, username: str) -> User | None:
        return self._by_name.get(canonical(username))

    def by_id(self, id: str) -> User | None:
        return self._by_id.get(id)

    def find(self, id_or_name: str) -> User:
        """Raises `UserNotFound`."""
        user = self.by_id(id_or_name) or self.get(id_or_name)
        if user is None:
            raise UserNotFound(f"there is no user {id_or_name!r}: use an id, an e-mail or a name")
        return user

    def all(self) -> list[User]:
        return list(self._by_id.values())

    def stored(self) -> list[User]:
        """The users that were added, by name."""
        return sorted(self._records.stored, key=lambda user: user.username)

    async def add(
        self,
        username: str,
        password: str,
        role: Role,
        *,
        requests_per_second: int = 0,
        name: str | None = None,
        permit: Callable[[], None] = lambda: None,
    ) -> User:
        """Add a user. ``permit`` raises if that is not allowed; it is called as the change is made.

        Raises `InvalidName`, `UserExists`, `TooManyPasswords`, or `Conflict` for too many users.
        """
        username = _checked(username)
        await self.refresh()
        permit()
        self._check_free(username)
        user = User(
            id=new_id(),
            username=username,
            password_hash=await self._passwords.hash(password),
            stamp=new_stamp(),
            role=role,
            requests_per_second=requests_per_second,
            name=name,
        )

        def add(records: UserRecords) -> UserRecords:
            permit()
            self._check_free(username)  # somebody else may have been faster
            return msgspec.structs.replace(records, stored=(*records.stored, user))

        await self._shared.change(add)
        return user

    async def remove(self, username: str) -> User:
        """Remove a user. Those that waited for it do so no longer.

        Raises `UserNotFound`, or `InvalidArgument` for a user of the settings.
        """
        removed = []

        def remove(records: UserRecords) -> UserRecords:
            user = self._changeable(username)
            removed.append(user)
            others = [one for one in records.stored if one is not user]
            return UserRecords(
                stored=tuple(_without(one, user.id) for one in others),
                configured=tuple(_without(one, user.id) for one in records.configured),
            )

        await self._shared.change(remove)
        return removed[-1]

    async def set_password(self, user: User, password: str) -> User:
        """Change a password. Whatever was granted for the old one is void from then on.

        Raises `UserNotFound`, `InvalidArgument` for a user of the settings, or `TooManyPasswords`.
        """
        await self.refresh()
        self._changeable(user.username)
        hashed = await self._passwords.hash(password)
        changed = user

        def replace(records: UserRecords) -> UserRecords:
            nonlocal changed
            current = self._changeable(user.username)
            if current.stamp != user.stamp:
                raise UserNotFound(f"{user.username!r} has been changed by somebody else meanwhile")
            changed = msgspec.structs.replace(current, password_hash=hashed, stamp=new_stamp())
            return _put(records, changed)

        await self._shared.change(replace)
        return changed

    async def alter(
        self,
        username: str,
        *,
        password: str | None = None,
        role: Role | None = None,
        requests_per_second: int | None = None,
    ) -> User:
        """Change what is not None. Whatever was granted for an old password is void from then on.

        Raises `UserNotFound`, `InvalidArgument` for a user of the settings, or `TooManyPasswords`.
        """
        await self.refresh()
        user = self._changeable(username)
        changes: dict[str, object] = {}
        if password is not None:
            changes["password_hash"] = await self._passwords.hash(password)
            changes["stamp"] = new_stamp()
        if role is not None:
            changes["role"] = role
        if requests_per_second is not None:
            changes["requests_per_second"] = requests_per_second
        changed = user

        def alter(records: UserRecords) -> UserRecords:
            nonlocal changed
            current = self._changeable(username)
            if current.id != user.id:
                raise UserNotFound(f"{username!r} has been removed, and is another user now")
            changed = msgspec.structs.replace(current, **changes)
            return _put(records, changed)

        await self._shared.change(alter)
        return changed

    async def wait_for(self, user: User, others: Sequence[User]) -> User:
        """From now on ``user`` gets a message after ``others``, besides those it waited for before.

        Raises `InvalidDependency`, which names the cycle, or `UserNotFound`.
        """
        changed = user

        def wait(records: UserRecords) -> UserRecords:
            nonlocal changed
            current = self.find(user.id)
            added = dict.fromkeys(self.find(one.id).id for one in others)
            after = tuple(dict.fromkeys([*current.after, *added]))
            self._check_order(current, after)
            changed = msgspec.structs.replace(current, after=after)
            return _put(records, changed)

        await self._shared.change(wait)
        return changed

    def _check_order(self, user: User, after: Iterable[str]) -> None:
        def names(ids: Iterable[str]) -> list[str]:
            return [found.username for id in ids if (found := self.by_id(id)) is not None]

        graph = {one.username: names(one.after) for one in self.all()}
        check_dependencies(user.username, names(after), graph)

    def _check_free(self, username: str) -> None:
        if self.get(username) is not None:
            raise UserExists(f"there is a user {username!r} already: choose another name")
        if len(self._records.stored) >= MAX_USERS:
            raise Conflict(f"there are {MAX_USERS} users already: remove some")

    def _changeable(self, username: str) -> User:
        user = self.get(username)
        if user is None:
            raise UserNotFound(f"there is no user {username!r}")
        if user in self._records.configured:
            raise InvalidArgument(f"{username!r} comes from the settings: change it there")
        return user

    def _index(self, records: UserRecords) -> None:
        users = (*records.stored, *records.configured)
        self._by_name = {canonical(user.username): user for user in users}
        self._by_id = {user.id: user for user in self._by_name.values()}


async def open_users(
    settings: Settings, passwords: Passwords, shared: Shared, *, has_others: bool = False
) -> Users:
    """The users of a store. ``has_others`` says that other servers may share them.

    Raises `InvalidArgument` when a default password would replace one that another server has set,
    and `CorruptLog`, `NewerFormat` or another `StorageError`.
    """
    users = Users(shared, passwords)
    await users.open(settings, has_others=has_others)
    return users


def _put(records: UserRecords, user: User) -> UserRecords:
    def put(users: Iterable[User]) -> tuple[User, ...]:
        return tuple(user if one.id == user.id else one for one in users)

    return UserRecords(stored=put(records.stored), configured=put(records.configured))


def _without(user: User, id: str) -> User:
    if id not in user.after:
        return user
    return msgspec.structs.replace(user, after=tuple(one for one in user.after if one != id))


def _checked(username: str) -> str:
    """A name or an e-mail address. Raises `InvalidName`."""
    if "@" not in username:
        return check_name(username, "user")
    if not _EMAIL.fullmatch(username) or not username.isprintable():
        raise InvalidName(f"{username[:260]!r} is not an e-mail address")
    return canonical(username)
