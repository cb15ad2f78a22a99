"""``penstock serve``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from penstock.cli import exits
from penstock.errors import PenstockError
from penstock.server import run_server
from penstock.settings import VARIABLES, Settings
from penstock.settings_file import load_settings_file
from penstock.variables import check_variables, unused_variables

__all__ = ["serve"]


def serve(
    host: Annotated[
        str | None, typer.Option(help="Address to listen on. Default: 127.0.0.1.")
    ] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on. Default: 8080.")] = None,
    data: Annotated[str | None, typer.Option(help="Data directory. Default: ./data.")] = None,
    store: Annotated[
        str | None,
        typer.Option(
            help="Where messages are kept: redis://host:port/db. Default: the data directory."
        ),
    ] = None,
    archive: Annotated[
        str | None, typer.Option(help="The durable record behind a Redis: mongodb://host:port/db.")
    ] = None,
    sync: Annotated[
        str | None,
        typer.Option(help="When a write is answered: always, interval, never. Default: always."),
    ] = None,
    tls_certificate: Annotated[
        str | None, typer.Option(help="Serve TLS with this certificate, a PEM file.")
    ] = None,
    tls_key: Annotated[str | None, typer.Option(help="Its key, if it is in another file.")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug to error. Default: info.")] = None,
    log_format: Annotated[
        str | None, typer.Option(help="json, or console for people. Default: json.")
    ] = None,
    settings_file: Annotated[
        Path | None,
        typer.Option("--settings", help="A file of settings: NAME=value, or LightQ's properties."),
    ] = None,
) -> None:
    """Start the server.

    Every setting can also be given as PENSTOCK_<NAME> in the environment, or in a file. Options go
    first, then the environment. A name that is nearly one of a setting is refused.
    """
    given: dict[str, Any] = {
        "host": host,
        "port": port,
        "data": data,
        "store": store,
        "archive": archive,
        "sync": sync,
        "tls_certificate": tls_certificate,
        "tls_key": tls_key,
        "log_level": log_level,
        "log_format": log_format,
    }
    try:
        check_variables(os.environ, VARIABLES)
        unused = unused_variables(os.environ, VARIABLES)
        if settings_file is not None:
            unused |= dict.fromkeys(load_settings_file(settings_file), "no setting has this name")
        settings = Settings(**{name: value for name, value in given.items() if value is not None})
        run_server(settings, unused)
    except ValidationError as exc:
        exits.usage(
            "\n".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in exc.errors())
        )
    except PenstockError as exc:
        exits.fail_store(exc)
