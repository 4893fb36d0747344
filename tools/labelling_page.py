"""Take the pictures of the labelling page in the documentation: label a few drawn pictures in Chromium by keyboard.

python -m tools.labelling_page [--folder docs/images]

Writes labelling_page.png (desktop) and labelling_phone.png (dark).
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

import likelyshot
from likelyshot.own_data.demo import DRAWINGS, draw_demo

LABELS = 26  # clicks before the picture is taken


def wait(tab: Page, screen: int) -> None:
    """Wait until the page shows a screen of at least this number."""
    for _ in range(1000):  # the policy of the page admits no scripts of playwright's
        tab.wait_for_timeout(100)
        if int(tab.evaluate("Number(document.documentElement.dataset.screen) || 0")) >= screen:
            return
    raise TimeoutError(f"expected screen {screen}, but it did not come: look at the page")


def work(tab: Page, truth: list[str]) -> None:
    """Label items by keyboard, as a person would, until a screen with a group comes."""
    names = list(DRAWINGS)
    for _ in range(100):
        done = int(tab.locator("#counts").inner_text().split()[0])
        if done >= LABELS and tab.locator("h2", has_text="Are these all").count():
            break
        if done >= LABELS or not tab.locator(".card.current:not(.labelled)").count():
            before = int(tab.evaluate("document.documentElement.dataset.screen"))
            tab.keyboard.press("g")
            wait(tab, before + 1)
            continue
        number = int(tab.evaluate("document.querySelector('.card.current').dataset.number"))
        name = truth[number]
        tab.keyboard.press(str(1 + names.index(name)) if name in names else "n")
        tab.wait_for_timeout(150)
        wait(tab, 1)
    tab.evaluate("scrollTo(0, 0)")
    tab.wait_for_load_state("networkidle")


def main() -> None:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("docs/images"))
    folder = parser.parse_args().folder.resolve()
    home = Path.cwd()
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        os.chdir(place)  # the page says where labels are, from here
        demo = draw_demo("demo")
        page = likelyshot.label(demo.pile, classes=list(DRAWINGS), output="labels.csv", browser=False, cache=None)
        truth = [demo.truth[item.path.name] for item in page.desk.things.items if item.path is not None]
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1200, "height": 900})
        tab.goto(page.address)
        wait(tab, 1)
        work(tab, truth)
        tab.screenshot(path=folder / "labelling_page.png")
        tab.emulate_media(color_scheme="dark")
        tab.set_viewport_size({"width": 390, "height": 844})
        tab.screenshot(path=folder / "labelling_phone.png")
        for name in ("labelling_page.png", "labelling_phone.png"):
            Image.open(folder / name).quantize(256).save(folder / name, optimize=True)
        browser.close()
        page.stop()
        os.chdir(home)


if __name__ == "__main__":
    main()
