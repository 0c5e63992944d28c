"""A real browser for the widgets: a page with a model as anywidget's, changes over time, and what is on the screen."""

from __future__ import annotations

import functools
import html
import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

STATIC = Path(__file__).resolve().parents[3] / "src" / "strandline" / "apps" / "notebook" / "static"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")

# The model has the interface that anywidget documents: get, set, on, off, save_changes. Changes that Python sends
# together come as one `set` of several keys and one "change".
PAGE = """<!doctype html><meta charset="utf-8"><link rel="stylesheet" href="/live.css">
<style>body { margin: 16px; font-family: sans-serif; background: BACKGROUND; color: FOREGROUND; }</style>
<div id="view"></div><pre id="seen" hidden></pre>
<script type="module">
class Model {
  constructor(state) { this.state = state; this.heard = {}; }
  get(key) { return this.state[key]; }
  set(key, value) {
    const changes = typeof key === "object" ? key : { [key]: value };
    Object.assign(this.state, changes);
    for (const name of Object.keys(changes)) this.tell(`change:${name}`);
    this.tell("change");
  }
  tell(event) { for (const each of this.heard[event] ?? []) each(); }
  on(event, call) { (this.heard[event] ??= []).push(call); }
  off(event, call) { this.heard[event] = (this.heard[event] ?? []).filter((each) => each !== call); }
  save_changes() {}
}
const seen = [], view = document.getElementById("view");
window.addEventListener("error", (event) => seen.push({ error: String(event.message) }));
const look = () => {
  const all = (what) => [...view.querySelectorAll(what)];
  const style = (one) => getComputedStyle(one);
  return {
    head: all("th").map((each) => each.textContent),
    cells: all("tbody tr").map((row) => [...row.children].map((each) => each.textContent)),
    looks: all("tbody td").map((each) => ({
      classes: each.className, align: style(each).textAlign, width: each.getBoundingClientRect().width,
      colour: style(each).color, height: each.getBoundingClientRect().height,
    })),
    scripts: all("script, img").length + (window.broken ? 1 : 0),
    status: all("p").map((each) => each.textContent),
    paths: all("path.line").map((each) => ({ d: each.getAttribute("d"), stroke: style(each).stroke })),
    axis: all("text.axis").map((each) => each.textContent),
    names: all("text.name").map((each) => each.firstChild.textContent),
    texts: all("text").map((each) => style(each).fill),
    box: (({ x, y, width, height }) => [x, y, width, height])(view.getBoundingClientRect()),
    labels: all("text").map((each) => each.getBoundingClientRect()).map((at) => [at.left, at.right, at.top, at.bottom]),
  };
};
const nap = () => new Promise((done) => setTimeout(done, 20));
try {
  const widget = (await import("/MODULE")).default;
  const steps = STEPS, model = new Model(steps.shift());
  const leave = await widget.render({ model, el: view });
  seen.push(look());
  for (const step of steps) {
    await nap();
    if (step === "leave") leave(); else { model.set(step); model.save_changes(); }
    seen.push(look());
  }
} catch (error) {
  seen.push({ error: String(error) });
}
document.getElementById("seen").textContent = JSON.stringify(seen);
document.title = "done";
</script>"""


def installed() -> str | None:
    return next((found for name in BROWSERS if (found := shutil.which(name)) is not None), None)


@contextmanager
def served(directory: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(directory))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def watch(
    place: Path, module: str, steps: Sequence[Mapping[str, Any] | str], dark: bool = False, picture: Path | None = None
) -> list[dict[str, Any]]:
    """What a widget shows at first and after each change; `picture` gets the last of it."""
    browser = installed()
    assert browser is not None
    for file in STATIC.iterdir():
        shutil.copy(file, place)
    colours = {"BACKGROUND": "#111" if dark else "#fff", "FOREGROUND": "#ddd" if dark else "#222"}
    page = PAGE.replace("MODULE", module).replace("STEPS", json.dumps(list(steps)).replace("</", "<\\/"))
    for name, value in colours.items():
        page = page.replace(name, value)
    (place / "page.html").write_text(page)
    quiet = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
    own = ["--window-size=860,420", "--virtual-time-budget=20000", f"--user-data-dir={place / 'profile'}"]
    with served(place) as address:
        command = [browser, *quiet, *own]
        done = subprocess.run(
            [*command, "--dump-dom", f"{address}/page.html"], capture_output=True, text=True, timeout=120
        )
        if picture is not None:
            shot = [*command, f"--screenshot={picture}", f"{address}/page.html"]
            subprocess.run(shot, capture_output=True, timeout=120, check=True)
    found = re.search(r'<pre id="seen"[^>]*>(.*?)</pre>', done.stdout, re.DOTALL)
    assert found and found[1], f"the page did not finish: {done.stderr[-500:]}"
    seen: list[dict[str, Any]] = json.loads(html.unescape(found[1]))
    assert not [each for each in seen if "error" in each], seen
    return seen
