"""Pages opened in the Chromium of the system, and an exploration of features whose classes have hostile names."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page, Request

from likelyshot import Features
from likelyshot.evaluation.explore import explore

logging.getLogger("fontTools").setLevel(logging.WARNING)  # else pytest keeps all that it says of every font of a PDF

HOSTILE = (
    "<img src=x onerror=alert(1)>",
    '<a href="javascript:alert(1)">x</a>',
    "</script><script>alert(1)</script>",
    "&lt;b&gt; $x_1$ %{y}",
)


@pytest.fixture(scope="session")
def exploration() -> dict[str, Any]:
    """What `explore` finds in exponential features, as if only every third feature were in the page."""
    generator = torch.Generator().manual_seed(0)
    names = [*HOSTILE, *(f"class {i}" for i in range(16))]
    means = torch.rand(len(names), 1, 12, generator=generator) + 0.1
    vectors = -(1 - torch.rand(len(names), 60, 12, generator=generator)).log() * means
    labels = torch.arange(len(names)).repeat_interleave(60)
    features = Features.from_arrays(vectors.flatten(0, 1), labels, classes=names)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("likelyshot.evaluation.explore.MOST_ON_MAP", 60)  # of 1,200, which take seconds
        data = explore(features, tasks=20)
    return {**data, "features": list(range(0, 36, 3)), "features_of": 36}


@pytest.fixture
def complaints() -> list[str]:
    """What went wrong in the pages of a test: errors, dialogs, violations of the policy, requests to anywhere."""
    return []


@pytest.fixture
def open_page(chromium: Browser, complaints: list[str]) -> Iterator[Callable[..., Page]]:
    """A function that opens a file in a new window and waits until its charts are drawn. Complaints fail the test."""
    with opening(chromium, complaints) as open_page:
        yield open_page
    assert complaints == []


@contextlib.contextmanager
def opening(chromium: Browser, complaints: list[str]) -> Iterator[Callable[..., Page]]:
    """Lend a function that opens pages, collect what goes wrong in them, and close them at the end."""

    def console(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning", "assert"):
            complaints.append(f"console: {message.text}")

    def dialog(found: Dialog) -> None:
        complaints.append(f"dialog: {found.message}")
        found.dismiss()

    def request(sent: Request) -> None:
        if not sent.url.startswith(("data:", "blob:")) and not sent.is_navigation_request():
            complaints.append(f"request: {sent.url}")

    contexts = []

    def open_page(path: Path, width: int = 1200, dark: bool = False) -> Page:
        context = chromium.new_context(
            viewport={"width": width, "height": 900},
            is_mobile=width < 500,
            color_scheme="dark" if dark else "light",
        )
        context.set_default_timeout(120_000)  # a busy machine is slow
        contexts.append(context)
        page = context.new_page()
        page.on("console", console)
        page.on("dialog", dialog)
        page.on("request", request)
        page.on("pageerror", lambda error: complaints.append(f"exception: {error}"))
        page.goto(path.resolve().as_uri())
        page.wait_for_selector("html[data-drawn=true]", state="attached")
        return page

    yield open_page
    for context in contexts:
        context.close()


@pytest.fixture(scope="module")
def open_once(chromium: Browser) -> Iterator[Callable[[Path], tuple[Page, list[str]]]]:
    """A function that opens a file once for all tests of a module, and gives its window with the complaints so far."""
    complaints: list[str] = []
    windows: dict[Path, Page] = {}
    with opening(chromium, complaints) as open_page:
        yield lambda path: (windows.get(path) or windows.setdefault(path, open_page(path)), complaints)
