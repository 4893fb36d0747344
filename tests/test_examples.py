"""The notebooks run from their first cell to their last."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.stem)
def test_the_notebook_runs(path, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("LIKELYSHOT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.mkdtemp", lambda: str(tmp_path / "notebook"))
    cells = json.loads(path.read_text())["cells"]
    assert not any(cell.get("outputs") for cell in cells)  # kept out of the repository
    names: dict[str, object] = {"__name__": "__main__"}
    for number, cell in enumerate(cell for cell in cells if cell["cell_type"] == "code"):
        exec(compile("".join(cell["source"]), f"{path.name}, code cell {number + 1}", "exec"), names)
    said = capsys.readouterr().out
    assert "50 of 50 shapes are named right" in said
    assert "broken.png - not an image" in said
