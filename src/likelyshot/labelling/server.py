"""The labelling page as a web server on this machine, for nobody but the person who has its address."""

from __future__ import annotations

import functools
import secrets
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Any, TypeVar

import anyio.to_thread
import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from likelyshot.data.images import ImageError
from likelyshot.errors import InputError
from likelyshot.labelling.desk import Desk
from likelyshot.labelling.exports import EXPORTS, accept, export
from likelyshot.labelling.journal import Kind
from likelyshot.labelling.pictures import Pictures

HOST = "127.0.0.1"
#: Bytes that a request may have: a click on every item of a large screen is far below.
LARGEST = 2 * 2**20
#: Numbers of items in one request.
MOST = 500

POLICY = "; ".join(
    [
        *(f"{rule} 'none'" for rule in ("default-src", "base-uri", "form-action", "frame-ancestors")),
        *(f"{rule} 'self'" for rule in ("script-src", "style-src", "img-src", "connect-src")),
    ]
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",  # the address holds the token
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}
PAGE = {
    "": ("page.html", "text/html"),
    "page.css": ("page.css", "text/css"),
    "page.js": ("page.js", "text/javascript"),
    "icon.svg": ("icon.svg", "image/svg+xml"),
}

T = TypeVar("T")


class _Set(msgspec.Struct, forbid_unknown_fields=True, tag_field="do", tag="set"):
    click: str
    changes: list[tuple[int, Kind, str]]
    items: list[int] = []


class _Class(msgspec.Struct, forbid_unknown_fields=True, tag_field="do", tag="class"):
    click: str
    name: str
    items: list[int] = []


class _Rename(msgspec.Struct, forbid_unknown_fields=True, tag_field="do", tag="rename"):
    click: str
    old: str
    name: str
    items: list[int] = []


class _Undo(msgspec.Struct, forbid_unknown_fields=True, tag_field="do", tag="undo"):
    click: str
    items: list[int] = []


class _Redo(msgspec.Struct, forbid_unknown_fields=True, tag_field="do", tag="redo"):
    click: str
    items: list[int] = []


class _Check(msgspec.Struct, forbid_unknown_fields=True, tag_field="do", tag="check"):
    click: str
    numbers: list[int]
    items: list[int] = []


class _Export(msgspec.Struct, forbid_unknown_fields=True):
    kind: str


class _Accept(msgspec.Struct, forbid_unknown_fields=True):
    above: float


_Action = _Set | _Class | _Rename | _Undo | _Redo | _Check


class Guard:
    """Lets a request through if it comes from the page itself: by its token, host and origin.

    The host keeps out names of other sites that lead to this machine (DNS rebinding), the origin their forms and
    scripts, and the token everybody else on this machine.
    """

    def __init__(self, app: ASGIApp, *, token: str, hosts: Callable[[], set[str]]) -> None:
        self.app, self.token, self.hosts = app, token, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {key.lower() for key, _ in message["headers"]}
                more = {"cache-control": "no-store", **HEADERS}
                added = [(k.encode(), v.encode()) for k, v in more.items() if k.encode() not in present]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        why = self._refusal(scope)
        if why:
            await Response(why, 403, media_type="text/plain")(scope, receive, send_with_headers)
        else:
            scope = {**scope, "path": scope["path"][len(self.token) + 1 :]}
            await self.app(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> str:
        headers = Headers(scope=scope)
        hosts = self.hosts()
        if headers.getlist("host") not in [[host] for host in hosts]:
            return "This page answers at its own address only."
        if any(origin not in {f"http://{host}" for host in hosts} for origin in headers.getlist("origin")):
            return "This page takes nothing from other sites."
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return "This page takes nothing from other sites."
        token, slash, _ = scope["path"][1:].partition("/")
        if not slash or not secrets.compare_digest(token.encode("utf-8", "replace"), self.token.encode()):
            return "This address is not complete, or of an earlier run: use the one that likelyshot label printed."
        if scope["method"] == "POST" and headers.get("content-type", "").partition(";")[0] != "application/json":
            return "This page takes JSON only."
        return ""


def make_app(desk: Desk, token: str, hosts: Callable[[], set[str]]) -> ASGIApp:
    """Make the application.

    Args:
        desk: What it shows.
        token: The first part of every path.
        hosts: Gives the values of the header Host that it answers to.
    """
    pictures = Pictures()
    limit = anyio.CapacityLimiter(4)

    async def in_thread(work: Callable[[], T]) -> T:
        return await anyio.to_thread.run_sync(work)

    async def page(request: Request) -> Response:
        name, kind = PAGE[request.path_params.get("file", "")]
        return Response((files(__package__) / "page" / name).read_bytes(), media_type=kind)

    async def state(request: Request) -> Response:
        numbers = _numbers(request.query_params.get("items", ""))
        return JSONResponse(await in_thread(lambda: desk.state(numbers)))

    async def about(request: Request) -> Response:
        notes = {"problems": desk.problems(), "exports": EXPORTS, "kind": desk.things.kind}
        return JSONResponse(notes)

    async def screen(request: Request) -> Response:
        return JSONResponse(await in_thread(desk.screen))

    async def browse(request: Request) -> Response:
        query = request.query_params
        start, count = (_whole(query.get(key, "0")) for key in ("start", "count"))
        which, name, text = (query.get(key, "") for key in ("which", "name", "text"))
        return JSONResponse(await in_thread(lambda: desk.browse(which, name, text, start, min(count, MOST))))

    async def act(request: Request) -> Response:
        action: _Action = await _body(request, _Action)
        if not 1 <= len(action.click) <= 80:
            raise InputError("expected an id of the click with 1 to 80 characters: load the page again")

        def work() -> dict[str, Any]:
            if isinstance(action, _Set):
                desk.set(action.click, action.changes)
            elif isinstance(action, _Class):
                desk.add_class(action.click, action.name)
            elif isinstance(action, _Rename):
                desk.rename_class(action.click, action.old, action.name)
            elif isinstance(action, _Check):
                desk.check(action.numbers)
            else:
                (desk.undo if isinstance(action, _Undo) else desk.redo)(action.click)
            return desk.state(action.items[:MOST])

        return JSONResponse(await in_thread(work))

    async def write(request: Request) -> Response:
        kind = (await _body(request, _Export)).kind
        return JSONResponse({"done": await in_thread(lambda: export(desk, kind))})

    async def accept_predictions(request: Request) -> Response:
        above = (await _body(request, _Accept)).above
        return JSONResponse({"done": await in_thread(lambda: accept(desk, above))})

    async def picture(request: Request) -> Response:
        number, size = request.path_params["number"], request.path_params["size"]
        if not 0 <= number < len(desk.things) or size not in ("small", "large"):
            return Response("There is no such item.", 404, media_type="text/plain")

        def work() -> bytes:
            path = desk.things.file(number)
            if path is None:
                raise ImageError("outside the folder", "the file lies outside the pile")
            return pictures.get(path, size)

        try:
            data = await anyio.to_thread.run_sync(work, limiter=limit)
        except ImageError as error:
            return Response(error.kind, 404, media_type="text/plain")
        return Response(data, media_type="image/jpeg", headers={"cache-control": "private, max-age=300"})

    async def wrong(request: Request, error: Exception) -> Response:
        return JSONResponse({"error": str(error)}, 400)

    app = Starlette(
        routes=[
            Route("/", page),
            Route("/page/{file:str}", _known_file(page)),
            Route("/state", state),
            Route("/about", about),
            Route("/screen", screen),
            Route("/browse", browse),
            Route("/act", act, methods=["POST"]),
            Route("/export", write, methods=["POST"]),
            Route("/accept", accept_predictions, methods=["POST"]),
            Route("/picture/{number:int}/{size:str}", picture),
        ],
        exception_handlers={InputError: wrong},
    )
    return Guard(app, token=token, hosts=hosts)


def _known_file(page: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    async def serve(request: Request) -> Response:
        if request.path_params["file"] not in PAGE:
            return Response("There is no such file.", 404, media_type="text/plain")
        return await page(request)

    return serve


async def _body(request: Request, kind: Any) -> Any:
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > LARGEST:
            raise InputError(f"expected at most {LARGEST:,} bytes, but got more: label fewer items at once")
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise InputError(f"the page sent something unknown ({error}): load it again") from None


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InputError(f"expected a whole number, but got {text[:20]!r}: load the page again")
    return int(text)


def _numbers(text: str) -> list[int]:
    return [_whole(part) for part in text.split(",")[:MOST] if part]


def listen(port: int = 0) -> socket.socket:
    """Take a port of the loopback address.

    Args:
        port: Its number; 0 for any that is free.
    """
    if not 0 <= port < 65536:
        raise InputError(f"expected a port from 0 to 65535, but got {port}: leave it out for any free one")
    place = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        place.bind((HOST, port))
        place.listen(64)
    except OSError as error:
        place.close()
        raise InputError(
            f"cannot use port {port} ({error.strerror}): choose another (--port), or leave it out for any free one"
        ) from None
    return place


class Server:
    """A running server.

    Args:
        desk: What it shows.
        port: Its port; 0 for any that is free.
    """

    def __init__(self, desk: Desk, port: int = 0) -> None:
        self.desk, self.token = desk, secrets.token_urlsafe(24)
        self._socket = listen(port)
        self.port: int = self._socket.getsockname()[1]
        hosts = {f"{name}:{self.port}" for name in (HOST, "localhost")}
        hosts |= {HOST, "localhost"} if self.port == 80 else set()
        app = make_app(desk, self.token, lambda: hosts)
        config = uvicorn.Config(
            app,
            log_level="critical",
            access_log=False,  # lines of it would hold the token
            lifespan="off",
            server_header=False,
            proxy_headers=False,
            ws="none",
            timeout_graceful_shutdown=2,
        )
        self._server = uvicorn.Server(config)
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> str:
        """The address of the page, with its token."""
        return f"http://{HOST}:{self.port}/{self.token}/"

    @property
    def alive(self) -> bool:
        """Whether it is serving."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Serve in the background."""
        run = functools.partial(self._server.run, sockets=[self._socket])
        self._thread = threading.Thread(target=run, name="likelyshot label", daemon=True)
        self._thread.start()
        while not self._server.started and self._thread.is_alive():
            time.sleep(0.01)

    def stop(self) -> None:
        """Stop serving, and close the labels."""
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(10)
        self._socket.close()
        self.desk.stop()
