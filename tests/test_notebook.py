"""The notebook of docs/ runs as it stands, and what it shows can be seen and used in a browser without a network."""

import os
import re
from pathlib import Path
from typing import Any

import pytest

from chromium import watch

NOTEBOOK = Path(__file__).parents[1] / "docs/heads.ipynb"
AROUND = "<!DOCTYPE html><html><body><h1>a notebook</h1>{}</body></html>"


@pytest.mark.slow
def test_the_notebook_runs_and_shows_its_page(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for needed in ("nbclient", "ipykernel", "accelerate"):
        pytest.importorskip(needed, reason="needs pip install 'headscope[test]'")
    import nbclient
    import nbformat

    resources = {"metadata": {"path": str(tmp_path)}}  # where it runs
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv(
        "PYTHONPATH",
        os.pathsep.join([str(NOTEBOOK.parents[1] / "src"), os.environ.get("PYTHONPATH", "")]),
    )
    nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources=resources
    ).execute()
    outputs = {kind: output for cell in notebook.cells for output in cell.get("outputs", ())
               for kind in output.get("data", {output.output_type: 0})}  # fmt: skip
    rises = re.findall(r"the loss rises by ([+-][0-9.]+)", outputs["stream"]["text"])
    assert len(rises) == 4
    assert float(rises[0]) > 0.2  # a head matters; the largest is printed first
    assert (tmp_path / "outputs/tiny_bert/heads/index.json").is_file()

    (tmp_path / "notebook.html").write_text(
        AROUND.format(outputs["text/html"]["data"]["text/html"]), encoding="utf-8"
    )
    requests: list[str] = []
    complaints: list[str] = []
    page = browser.new_page()
    watch(page, requests, complaints)
    page.goto((tmp_path / "notebook.html").as_uri())
    frame = page.frame_locator("iframe")
    frame.locator("summary").filter(has_text="All heads as small maps").first.click()
    frame.locator(".grid .map[aria-label='layer 1, head 1']").click()
    frame.locator(".head h2").filter(has_text="layer 1, head 1").wait_for()
    assert frame.locator(".grid .map").count() == 4
    assert "praise" in frame.locator("body").inner_text()
    assert page.url.endswith("notebook.html")  # the page keeps its own address to itself
    assert [request for request in requests if request != page.url] == []
    assert complaints == []
    page.close()
