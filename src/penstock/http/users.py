"""All users: the two that the settings name, and those that were added."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence

import msgspec

from penstock.core.dependencies import check_dependencies
from penstock.core.limits import check_name
from penstock.errors import Conflict, InvalidArgument, InvalidName, UserExists, UserNotFound
from penstock.http.passwords import Passwords, hash_password, is_password
from penstock.http.user import Role, User, canonical, new_id, new_stamp
from penstock.http.user_file import FILE_NAME, UserFile, UserRecords
from penstock.settings import Settings

__all__ = ["Users", "open_users"]

MAX_USERS = 10_000  # the file is written as a whole
_EMAIL = re.compile(r"[^@\s:]{1,64}@[^@\s:]{1,189}")


class Users:
    """Looked up by name and by id. A change is on the disk before it counts, and is all or nothing.

    Of two users of one name, one of the settings and one that was added, the former is meant.
    """

    def __init__(self, file: UserFile, passwords: Passwords, records: UserRecords) -> None:
        """``records`` are what the file holds."""
        self._file = file
        self._passwords = passwords
        self._changing = asyncio.Lock()
        self._take(records)

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
        """Those that were added, by name."""
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
        """``permit`` raises if the user may not be added; it is asked when nothing can change.

        Raises `InvalidName`, `UserExists`, `TooManyPasswords`, or `Conflict` for too many users.
        """
        username = _checked(username)
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
        async with self._changing:
            permit()
            self._check_free(username)  # somebody may have been faster
            await self._replace(stored=(*self._records.stored, user))
        return user

    async def remove(self, username: str) -> User:
        """Nobody waits for it any more.

        Raises `UserNotFound`, or `InvalidArgument` for a user of the settings.
        """
        async with self._changing:
            user = self._changeable(username)
            others = [one for one in self._records.stored if one is not user]
            await self._replace(
                stored=[_without(one, user.id) for one in others],
                configured=[_without(one, user.id) for one in self._records.configured],
            )
        return user

    async def set_password(self, user: User, password: str) -> User:
        """Whatever the old one granted is void from then on.

        Raises `UserNotFound`, `InvalidArgument` for a user of the settings, or `TooManyPasswords`.
        """
        self._changeable(user.username)
        hashed = await self._passwords.hash(password)
        async with self._changing:
            current = self._changeable(user.username)
            if current.stamp != user.stamp:
                raise UserNotFound(f"{user.username!r} has been changed by somebody else meanwhile")
            changed = msgspec.structs.replace(current, password_hash=hashed, stamp=new_stamp())
            await self._put(changed)
        return changed

    async def alter(
        self,
        username: str,
        *,
        password: str | None = None,
        role: Role | None = None,
        requests_per_second: int | None = None,
    ) -> User:
        """What is None stays as it is. Whatever an old password granted is void from then on.

        Raises `UserNotFound`, `InvalidArgument` for a user of the settings, or `TooManyPasswords`.
        """
        user = self._changeable(username)
        changes: dict[str, object] = {}
        if password is not None:
            changes["password_hash"] = await self._passwords.hash(password)
            changes["stamp"] = new_stamp()
        if role is not None:
            changes["role"] = role
        if requests_per_second is not None:
            changes["requests_per_second"] = requests_per_second
        async with self._changing:
            current = self._changeable(username)
            if current.id != user.id:
                raise UserNotFound(f"{username!r} has been removed, and is another user now")
            changed = msgspec.structs.replace(current, **changes)
            await self._put(changed)
        return changed

    async def wait_for(self, user: User, others: Sequence[User]) -> User:
        """From now on ``user`` gets a message after ``others`` (and those it had) have taken it.

        Raises `InvalidDependency` for a cycle, and says it, or `UserNotFound`.
        """
        async with self._changing:
            current = self.find(user.id)
            added = dict.fromkeys(self.find(one.id).id for one in others)
            after = tuple(dict.fromkeys([*current.after, *added]))
            self._check_order(current, after)
            changed = msgspec.structs.replace(current, after=after)
            if changed != current:
                await self._put(changed)
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

    async def _put(self, user: User) -> None:
        def put(users: Iterable[User]) -> list[User]:
            return [user if one.id == user.id else one for one in users]

        await self._replace(put(self._records.stored), put(self._records.configured))

    async def _replace(
        self, stored: Iterable[User], configured: Iterable[User] | None = None
    ) -> None:
        records = UserRecords(
            stored=tuple(stored),
            configured=self._records.configured if configured is None else tuple(configured),
        )
        await asyncio.to_thread(self._file.write, records)
        self._take(records)

    def _take(self, records: UserRecords) -> None:
        users = (*records.stored, *records.configured)
        self._records = records
        self._by_name = {canonical(user.username): user for user in users}
        self._by_id = {user.id: user for user in self._by_name.values()}


def open_users(settings: Settings, passwords: Passwords) -> Users:
    """The users of a server; they are in its data directory, if it has one.

    Raises `CorruptLog`, `NewerFormat` or `StorageError`.
    """
    directory = settings.directory
    file = UserFile(directory / FILE_NAME if directory is not None else None)
    known = file.read()
    configured = (
        _configured(settings.user_username, settings.user_password, Role.USER, known),
        _configured(settings.admin_username, settings.admin_password, Role.ADMIN, known),
    )
    records = UserRecords(stored=known.stored, configured=configured)
    if records != known:
        file.write(records)
    return Users(file, passwords, records)


def _configured(username: str, password: str, role: Role, known: UserRecords) -> User:
    """As it was at the last start, unless its password is another one now."""
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


def _without(user: User, id: str) -> User:
    if id not in user.after:
        return user
    return msgspec.structs.replace(user, after=tuple(one for one in user.after if one != id))


def _checked(username: str) -> str:
    """A name or an e-mail address. Raises `InvalidName`."""
    if "@" not in username:
        return check_name(username, "user")
    if not _EMAIL.fullmatch(username) or not username.isprintable():
        raise InvalidName(f"{username[:260]!r} is no e-mail address")
    return canonical(username)
