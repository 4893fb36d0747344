"""The picture of a gallery in the README: python tools/gallery_picture.py GALLERY.html PICTURE.jpg, by Chromium."""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

WIDTH, HEIGHT = 1000, 760


def main(page: str, picture: str) -> None:
    """Open the page, scroll to the pictures, and save what is seen."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, device_scale_factor=1)
        tab.goto(Path(page).resolve().as_uri())
        tab.evaluate("for (const image of document.images) image.loading = 'eager'")
        tab.evaluate("document.querySelector('.menu').scrollIntoView()")
        tab.wait_for_timeout(1000)  # for the pictures
        taken = tab.screenshot()
        browser.close()
    Image.open(io.BytesIO(taken)).convert("RGB").save(picture, quality=80, optimize=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
