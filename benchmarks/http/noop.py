"""A server that does nothing: a BlackSheep handler with a fixed answer.

On uvicorn with Penstock's options, but with uvicorn's own protocol (httptools) and the way through
ASGI that BlackSheep has for it; with ``direct`` as the second argument, on Penstock's connections.
"""

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


async def serve(port: int, *, is_direct: bool) -> None:
    app = Application(router=Router())
    for method, path in (("POST", "/queue/push"), ("GET", "/queue/pop"), ("POST", "/queue/ack")):
        app.router.add(method, path, nothing)
    options = server_options()
    if not is_direct:
        options["http"] = "httptools"
    await uvicorn.Server(uvicorn.Config(app, port=port, **options)).serve()


if __name__ == "__main__":
    sys.setswitchinterval(SWITCH_SECONDS)
    # As the framework asks for it: as a type, it spares the handler a wrapper.
    nothing.__annotations__["return"] = Response
    uvloop.run(serve(int(sys.argv[1]), is_direct="direct" in sys.argv[2:]))
