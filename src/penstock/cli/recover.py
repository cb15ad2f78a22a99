"""``penstock recover``."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from penstock.cli import exits
from penstock.cli.options import AsJson
from penstock.cli.output import print_json
from penstock.errors import PenstockError, StoreUnavailable
from penstock.settings import Settings
from penstock.storage.archiving import Recovered
from penstock.storage.registry import open_archived

__all__ = ["recover"]


def recover(
    store: Annotated[
        str | None, typer.Option(help="The Redis: redis://host:port/db. [PENSTOCK_STORE]")
    ] = None,
    archive: Annotated[
        str | None, typer.Option(help="The archive: mongodb://host/db. [PENSTOCK_ARCHIVE]")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Rebuild what a Redis has lost from its archive in MongoDB.

    A server does the same when it starts, and when it finds Redis empty. Queues that are complete
    stay as they are, so it does no harm to run it at any time.
    """
    given: dict[str, Any] = {"store": store, "archive": archive}
    try:
        settings = Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as exc:
        exits.usage("\n".join(str(one["msg"]) for one in exc.errors()))
    if settings.store is None or settings.archive is None:
        exits.usage("both are needed: --store redis://... and --archive mongodb://...")
    try:
        recovered = asyncio.run(_recover(settings.store, settings.archive))
    except PenstockError as exc:
        exits.fail_store(exc)
    _show(recovered, as_json=as_json)


async def _recover(store: str, archive: str) -> Recovered:
    opened = await open_archived(store, archive)
    await opened.close()
    if opened.behind is not None:
        raise StoreUnavailable(f"not all of the record could be looked for: {opened.behind}")
    return opened.recovered


def _show(recovered: Recovered, *, as_json: bool) -> None:
    if as_json:
        print_json(recovered)
        return
    for queue, count in sorted(recovered.restored.items()):
        typer.echo(f"rebuilt: {queue}, {count} messages")
    for queue, count in sorted(recovered.archived.items()):
        typer.echo(f"archived: {queue}, {count} messages")
    if not recovered.restored and not recovered.archived:
        typer.echo("Nothing is missing.")
