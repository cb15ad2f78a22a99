"""All settings of a server, resolved once at start.

Each has an environment variable ``PENSTOCK_<NAME>``. The names that LightQ and Simple Queue Service
use are understood as well, so that their users need not change theirs.
"""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Any, Literal

from pydantic import AliasChoices, Field
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from penstock.core.limits import NAME_PATTERN
from penstock.lightq_variables import OTHER_VARIABLES, archive_url, store_url
from penstock.logs import Level
from penstock.variables import PREFIX, is_service_link

__all__ = ["LIGHTQ_VARIABLES", "VARIABLES", "Settings", "is_loopback"]


def _setting(name: str, default: Any, *lightq: str, **limits: Any) -> Any:
    """A setting, by its own name, its environment variable, or the one LightQ has for it."""
    names = AliasChoices(name, f"{PREFIX}{name.upper()}", *lightq)
    return Field(default, validation_alias=names, **limits)


class _LightQStores(PydanticBaseSettingsSource):
    """LightQ's Redis, and then its MongoDB, unless ours or a directory was given with the call."""

    def __init__(self, settings: type[BaseSettings], given: dict[str, Any]) -> None:
        super().__init__(settings)
        self._given = given

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        return None, field_name, False  # all at once, below

    def __call__(self) -> dict[str, Any]:
        if "store" in self.current_state or "data" in self._given:
            return {}
        found = {"store": store_url(), "archive": archive_url()}
        return found if found["store"] is not None else {}


class Settings(BaseSettings):
    """What a server is started with. `data` is a directory, ``wal:<directory>`` or ``memory:``.

    `store` is where messages, users and the key of tokens are kept if not there: ``redis://…``. The
    directory is then not used.
    """

    model_config = SettingsConfigDict(
        extra="ignore", frozen=True, populate_by_name=True, env_ignore_empty=True
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        assert isinstance(init_settings, InitSettingsSource)
        assert isinstance(env_settings, EnvSettingsSource)
        env_settings.env_vars = {
            name: value
            for name, value in env_settings.env_vars.items()
            if not is_service_link(name, value or "")
        }
        lightq = _LightQStores(settings_cls, init_settings.init_kwargs)
        return init_settings, env_settings, lightq

    host: str = _setting("host", "127.0.0.1")
    port: int = _setting("port", 8080, "SERVER_PORT", ge=0, le=65535)
    data: str = _setting("data", "./data")
    store: str | None = _setting("store", None)
    # The durable record behind a Redis, mongodb://…; and whether a publish is answered once it is
    # there, or before: then what Redis loses at that moment is lost.
    archive: str | None = _setting("archive", None)
    archive_mode: Literal["sync", "async"] = _setting("archive_mode", "sync")
    sync: Literal["always", "interval", "never"] = _setting("sync", "always")

    user_username: str = _setting("user_username", "user", "SECURITY_USER_USERNAME")
    user_password: str = _setting("user_password", "password", "SECURITY_USER_PASSWORD")
    admin_username: str = _setting("admin_username", "admin", "SECURITY_ADMIN_USERNAME")
    admin_password: str = _setting("admin_password", "adminpassword", "SECURITY_ADMIN_PASSWORD")

    # How long a token is valid.
    token_minutes: float = _setting("token_minutes", 1440, gt=0, le=5_256_000)

    # Who may add a user: anybody while the server is on loopback, anybody, or admins alone.
    registration: Literal["loopback", "open", "admin"] = _setting("registration", "loopback")

    # The queue behind /api: its name; how many messages may be unsettled; how many calls at once a
    # subscription gets, in order if it is one; how often a failed call is tried again.
    topics_queue: str = _setting("topics_queue", "topics", pattern=f"^{NAME_PATTERN}$")
    topics_size: int = _setting("topics_size", 10_000, ge=1)
    topics_workers: int = _setting("topics_workers", 8, ge=1, le=1000)
    topics_retries: int = _setting("topics_retries", 5, ge=0)

    # Requests a second; 0 or less is no limit.
    push_per_second: int = _setting("push_per_second", 0, "RATE_LIMIT_PUSH_PER_SECOND")
    pop_per_second: int = _setting("pop_per_second", 0, "RATE_LIMIT_POP_PER_SECOND")

    view_limit: int = _setting(
        "view_limit",
        50,
        "LIGHTQ_MESSAGE_ALLOWED_TO_FETCH",
        "NO_OF_MESSAGE_ALLOWED_TO_FETCH",
        ge=1,
    )
    retention_minutes: float = _setting(
        "retention_minutes",
        1440,
        "LIGHTQ_PERSISTENCE_DURATION_MINUTES",
        "PERSISTENCE_DURATION_MINUTES",
        gt=0,
    )
    visibility_timeout_seconds: float = _setting(
        "visibility_timeout_seconds", 30, "LIGHTQ_VISIBILITY_TIMEOUT_SECONDS", gt=0
    )
    max_deliveries: int = _setting("max_deliveries", 5, "LIGHTQ_MAX_DELIVERY_ATTEMPTS", ge=1)
    dead_letter_minutes: float | None = _setting(
        "dead_letter_minutes", None, "LIGHTQ_DLQ_TTL_MINUTES", gt=0
    )

    max_connections: int = _setting("max_connections", 10_000, ge=1)
    # A request that has not arrived completely by then is dropped.
    receive_seconds: float = _setting("receive_seconds", 30, gt=0)

    # Callbacks: networks that may be called although they are not public, separated by commas;
    # calls at once; how soon a message comes again whose server died; certificates to trust.
    callback_allow: str = _setting("callback_allow", "")
    callback_workers: int = _setting("callback_workers", 1000, ge=1)
    callback_lease_seconds: float = _setting("callback_lease_seconds", 15, ge=0.1, le=3600)
    callback_ca: str | None = _setting("callback_ca", None)
    callback_verify_tls: bool = _setting("callback_verify_tls", True)

    tls_certificate: str | None = _setting("tls_certificate", None)
    tls_key: str | None = _setting("tls_key", None)

    log_level: Level = _setting("log_level", "info")
    log_format: Literal["json", "console"] = _setting("log_format", "json")

    @property
    def store_url(self) -> str:
        """Where messages are kept."""
        return self.store if self.store is not None else self.data

    @property
    def directory(self) -> Path | None:
        """Where files live; None if all is in memory."""
        if self.data.startswith("memory:"):
            return None
        return Path(self.data.removeprefix("wal:"))

    @property
    def has_default_passwords(self) -> bool:
        return self.has_default_user_password or self.has_default_admin_password

    @property
    def has_default_user_password(self) -> bool:
        return self.user_password == "password"

    @property
    def has_default_admin_password(self) -> bool:
        return self.admin_password == "adminpassword"

    @property
    def is_on_loopback(self) -> bool:
        """Whether only programs of this machine can reach the server."""
        return is_loopback(self.host)


def _names() -> frozenset[str]:
    found: list[str] = []
    for field in Settings.model_fields.values():
        assert isinstance(field.validation_alias, AliasChoices)
        found += [str(one) for one in field.validation_alias.choices[1:]]
    return frozenset(found)


VARIABLES = frozenset(name for name in _names() if name.startswith(PREFIX))
"""The environment variables of all settings."""
LIGHTQ_VARIABLES = _names() - VARIABLES | OTHER_VARIABLES
"""Their names in LightQ and Simple Queue Service."""


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
