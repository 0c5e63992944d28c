"""The site of docs/ builds without a warning, and every page is on it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_every_page_is_on_the_site(tmp_path: Path) -> None:
    nav = (ROOT / "mkdocs.yml").read_text()
    for page in sorted((ROOT / "docs").rglob("*.md")):
        assert f": {page.relative_to(ROOT / 'docs')}\n" in nav, f"{page.name} is not in mkdocs.yml"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    built = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={"PATH": "", "NO_MKDOCS_2_WARNING": "1"}
    )
    assert built.returncode == 0, built.stdout + built.stderr
    assert "at every instant" in (tmp_path / "site" / "index.html").read_text()
