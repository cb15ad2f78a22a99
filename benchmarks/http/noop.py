"""A server that does nothing: a BlackSheep handler with a fixed answer, on Penstock's options."""

from __future__ import annotations

import sys

import uvicorn
import uvloop
from blacksheep import Application, Content, Request, Response, Router

from penstock.server import SWITCH_SECONDS, server_options

# As large as what a push answers, with an id for the script that looks for one.
ANSWER = (
    b'{"id":"019dd1c0-0000-7000-8000-000000000000","content":"' + b"x" * 256 + b'",'
    b'"createdAt":"2030-01-31T12:00:00.000","priority":0}'
)


async def nothing(request: Request) -> Response:
    return Response(200, content=Content(b"application/json", ANSWER))


async def serve(port: int) -> None:
    app = Application(router=Router())
    for method, path in (("POST", "/queue/push"), ("GET", "/queue/pop"), ("POST", "/queue/ack")):
        app.router.add(method, path, nothing)
    await uvicorn.Server(uvicorn.Config(app, port=port, **server_options())).serve()


if __name__ == "__main__":
    sys.setswitchinterval(SWITCH_SECONDS)
    # As the framework asks for it: as a type, it spares the handler a wrapper.
    nothing.__annotations__["return"] = Response
    uvloop.run(serve(int(sys.argv[1])))
