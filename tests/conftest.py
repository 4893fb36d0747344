"""Small made-up features for every test, and one browser for those of pages."""

from __future__ import annotations

import os
import shutil

import pytest
import torch

from likelyshot import Features
from likelyshot.machine import cores

# Some virtual machines announce matrix tiles (AMX) and then stop the process at their first use: no tiles in tests.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
torch.set_num_threads(1)  # tests run in parallel, on small tensors


#: Files whose tests share what takes long to start or to import: a page in a browser, a server, a cluster, processes.
#: One worker runs each.
TOGETHER = (
    "labelling/test_killed.py",
    "labelling/test_page.py",
    "labelling/test_server.py",
    "report/html/test_explore_page.py",
    "report/html/test_gallery_page.py",
    "report/html/test_page.py",
    "report/html/test_report_page.py",
    "test_ray.py",
)
#: What imports lightning_fabric; the tests with the mark `processes` go to the same worker.
TRAINING = ("cli/test_train.py", "training/test_machines.py", "training/test_run.py")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        name = item.path.as_posix()
        if name.endswith(TRAINING) or item.get_closest_marker("processes"):
            item.add_marker(pytest.mark.xdist_group("processes"))
        elif name.endswith(TOGETHER):
            item.add_marker(pytest.mark.xdist_group(name))
    items.sort(key=_begins_late)  # what takes long begins early, so that all workers end together


def _begins_late(item: pytest.Item) -> bool:
    return item.get_closest_marker("xdist_group") is None and item.path.name != "test_printed_blocks.py"


def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: tests that wait for a browser or another process leave theirs idle."""
    return cores() + 1


def make_features(seed: int = 0, classes: int = 8, per_class: int = 40, dim: int = 12) -> Features:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(classes).repeat_interleave(per_class)
    centres = torch.rand(classes, dim, generator=generator) ** 2
    vectors = torch.rand(len(labels), dim, generator=generator) * centres[labels] + 1e-3
    return Features.from_arrays(vectors, labels, classes=[f"class {i}" for i in range(classes)])


@pytest.fixture(scope="session")
def features() -> Features:
    return make_features()


@pytest.fixture(scope="session")
def validation() -> Features:
    return make_features(seed=1)


@pytest.fixture(scope="session")
def chromium():
    """One browser per worker process: that of the system, as playwright's own cannot be downloaded everywhere."""
    executable = shutil.which("chromium")
    if executable is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # root, as in a container, has no sandbox; the pages are our own
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        yield browser
        browser.close()
