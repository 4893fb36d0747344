"""A made-up exploration, and a headless Chromium driven through its DevTools protocol."""

from __future__ import annotations

import base64
import json
import math
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

HOSTILE = (
    "<img src=x onerror=alert(1)>",
    '<a href="javascript:alert(1)">x</a>',
    "</script><script>alert(1)</script>",
    "&lt;b&gt; $x_1$ %{y}",
)
FLAGS = (
    "--headless",
    "--no-sandbox",  # for root, as in a container; the page is our own
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
)


def make_exploration(names: list[str], dim: int = 12, bins: int = 20, seed: int = 0) -> dict[str, Any]:
    """What `explore` returns, made up: exponential features of every class."""
    chance = np.random.default_rng(seed)
    classes, images = len(names), 60
    means = chance.uniform(0.1, 1.0, (classes, dim))
    values = chance.exponential(means[:, None], (classes, images, dim))
    width = values.max((0, 1)) / bins
    places = np.minimum((values / width).astype(int), bins - 1)
    counts = np.stack([(places == place).sum(1) for place in range(bins)], -1)
    rates = 1 / values.mean(1)
    edges = np.linspace(-4.0, 4.0, 41)
    middle = (edges[1:] + edges[:-1]) / 2

    def normal(mean: float) -> list[float]:
        return (np.exp(-((middle - mean) ** 2) / 2) / math.sqrt(2 * math.pi)).tolist()

    metric = {
        "edges": edges.tolist(),
        "intra": normal(1.0),
        "cross": normal(-1.0),
        "intra_mean": 1.0,
        "intra_std": 1.0,
        "cross_mean": -1.0,
        "cross_std": 1.0,
        "auc": 0.921,
        "auc_within_query": 0.95,
        "d_prime": 2.0,
    }
    metrics = ["euclidean", "cosine", "mll"]
    correlation = [[1.0, 0.97, 0.8], [0.97, 1.0, 0.81], [0.8, 0.81, 1.0]]
    return {
        "about": {
            "title": "Features of made.npz",
            "file": "made.npz",
            "split": "val",
            "images": classes * images,
            "dim": dim,
            "classes": classes,
            "normalised": True,
            "encoder": "none",
            "dataset": "made up",
            "settings": {"tasks": 500, "ways": 5, "shots": 1, "seed": 0, "lambda_max": 40.0, "normalise": True},
        },
        "zeros": {"share": 0.213, "edges": [0.0, 0.25, 0.5, 0.75, 1.0], "counts": [7, 3, 1, 1]},
        "classes": names,
        "features": list(range(0, 3 * dim, 3)),
        "features_of": 3 * dim,
        "histograms": {
            "bins": bins,
            "width": width.tolist(),
            "counts": base64.b64encode(counts.astype("u1").tobytes()).decode(),
            "dtype": "uint8",
            "images": [images] * classes,
        },
        "rates": base64.b64encode(rates.astype("<f4").tobytes()).decode(),
        "families": {
            "names": ["exponential", "half-normal", "gamma", "Weibull", "log-normal", "zero-inflated exponential"],
            "best_by_likelihood": [0.1, 0.05, 0.5, 0.2, 0.05, 0.1],
            "best_by_ks": [0.12, 0.05, 0.4, 0.25, 0.08, 0.1],
            "mean_ks": [0.11, 0.15, 0.07, 0.075, 0.09, 0.1],
            "fits": classes * dim,
            "left_out": 3,
            "rule": "Pairs with fewer than five positive values are left out.",
            "behind": {
                "edges": [0.0, 0.1, 0.2, 0.3, 0.4],
                "counts": [40, 20, 10, 5],
                "median": 0.08,
                "median_zero_inflated": 0.02,
            },
        },
        "between": {
            "classes": names,
            "features": list(range(0, 3 * dim, 3)),
            "log10_rate": np.log10(rates).tolist(),
            "p_below_0.01": 0.875,
            "median_ratio": 3.4,
            "above_lambda_max": 0.25,
            "test": "Likelihood-ratio test of one rate against one rate per class.",
        },
        "scores": {
            "metrics": metrics,
            "ways": 5,
            "shots": 1,
            "tasks": 500,
            "per_metric": dict.fromkeys(metrics, metric),
            "correlation_intra": correlation,
            "correlation_cross": correlation,
            "agreement": {
                "all": 0.81,
                "pairs": {"euclidean-cosine": 0.95, "euclidean-mll": 0.83, "cosine-mll": 0.84},
            },
            "accuracy": {"euclidean": 0.84, "cosine": 0.841, "mll": 0.839},
        },
    }


@pytest.fixture(scope="session")
def exploration() -> dict[str, Any]:
    return make_exploration([*HOSTILE, *(f"class {i}" for i in range(16))])


class Browser:
    """One tab: what it shows, what it complains of, and keys."""

    def __init__(self, folder: Path, chromium: str) -> None:
        import websocket

        environment = {**os.environ, "HOME": str(folder)}
        self.process = subprocess.Popen(
            [chromium, *FLAGS, f"--user-data-dir={folder}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        port = folder / "DevToolsActivePort"
        self.until(lambda: port.exists() and port.read_text().count("\n") == 1, "Chromium to start")
        address = f"http://127.0.0.1:{port.read_text().split()[0]}/json/list"
        with urllib.request.urlopen(address) as answer:
            tab = next(target for target in json.load(answer) if target["type"] == "page")
        self.socket = websocket.create_connection(tab["webSocketDebuggerUrl"], timeout=60, suppress_origin=True)
        self.number, self.complaints = 0, []
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")

    def close(self) -> None:
        self.socket.close()
        self.process.terminate()
        self.process.wait(30)

    def until(self, true: Callable[[], Any], what: str, seconds: float = 60) -> None:
        limit = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < limit, f"waited {seconds} s for {what}"
            time.sleep(0.05)

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, "method": method, "params": params}))
        while True:
            message = json.loads(self.socket.recv())
            if message.get("id") == self.number:
                assert "error" not in message, message
                return message["result"]
            self.hear(message)

    def hear(self, event: dict[str, Any]) -> None:
        name, params = event.get("method"), event.get("params", {})
        if name == "Page.javascriptDialogOpening":
            self.complaints.append(f"dialog: {params['message']}")
            self.number += 1
            message = {"id": self.number, "method": "Page.handleJavaScriptDialog", "params": {"accept": False}}
            self.socket.send(json.dumps(message))
        elif name == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(f"console: {params['args']}")
        elif name == "Runtime.exceptionThrown":
            self.complaints.append(f"exception: {params['exceptionDetails']}")
        elif name == "Log.entryAdded":
            self.complaints.append(f"log: {params['entry']['text']}")

    def run(self, script: str) -> Any:
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def texts(self, query: str) -> list[str]:
        return self.run(f"[...document.querySelectorAll({json.dumps(query)})].map(found => found.textContent)")

    def enter(self, query: str, value: object, event: str) -> None:
        found = f"const found = document.querySelector({json.dumps(query)})"
        self.run(f"{{ {found}; found.value = {json.dumps(value)}; found.dispatchEvent(new Event('{event}')) }}")

    def key(self, name: str, text: str = "") -> None:
        code = {"Tab": 9, " ": 32, "ArrowUp": 38}[name]
        sent = {"key": name, "windowsVirtualKeyCode": code, **({"text": text} if text else {})}
        self.send("Input.dispatchKeyEvent", type="keyDown", **sent)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=name, windowsVirtualKeyCode=code)

    def point(self, query: str, down: float) -> None:
        """Move the mouse to the middle of what is found, `down` of its height from the top."""
        found = f"const found = document.querySelector({json.dumps(query)}); found.scrollIntoView()"
        box = f"const box = found.getBoundingClientRect(); [box.x + box.width / 2, box.y + {down} * box.height]"
        x, y = self.run(f"{{ {found}; {box} }}")
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def dark(self, on: bool) -> None:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if on else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])

    def width(self, pixels: int, height: int = 900) -> None:
        phone = pixels < 500
        self.send("Emulation.setDeviceMetricsOverride", width=pixels, height=height, deviceScaleFactor=1, mobile=phone)

    def open(self, path: Path, width: int = 1200, dark: bool = False) -> Browser:
        self.send("Page.navigate", url="about:blank")
        self.width(width)
        self.dark(dark)
        self.complaints.clear()
        self.send("Page.navigate", url=path.resolve().as_uri())
        self.until(lambda: self.run("document.documentElement?.dataset.drawn === 'true'"), "the page to be drawn")
        return self

    def screenshot(self, path: Path) -> None:
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        image = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(image["data"]))


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    browser = Browser(tmp_path_factory.mktemp("chromium"), chromium)
    yield browser
    browser.close()
