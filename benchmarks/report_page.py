"""How fast a report opens in a real browser: load, and the first problem's attempts.

    python benchmarks/report_page.py REPORT.html [--browser chromium] [--shots FOLDER]

Needs Chromium or Chrome. A copy of the page with a probe in it is opened headless; nothing of the page itself changes. ``--shots`` also
writes screenshots: light, dark, and at phone width. Exits with 1 beyond the limits, 2 where there is no browser.
"""

from __future__ import annotations

import argparse
import http.server
import json
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

MOST_MS, MOST_BYTES = 2000.0, 8e6
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage")
SHOTS = {"light": ("1280,1600", 1), "dark": ("1280,1600", 0), "phone": ("390,1600", 1)}
"""Window, and Blink's number of the colour scheme (0 dark, 1 light)."""

_PROBE = """<script>addEventListener("load", () => setTimeout(async () => {
  const [n] = performance.getEntriesByType("navigation"), found = {load_ms: n.loadEventEnd};
  const button = document.querySelector("button[data-block]"), start = performance.now();
  if (button) {
    button.click();
    while (!document.querySelector("#detail details") && performance.now() - start < 5000) await new Promise((r) => setTimeout(r, 1));
    found.problem_ms = performance.now() - start;
    const first = document.querySelector("#detail details");
    first.open = true;
    await new Promise((r) => setTimeout(r, 50));
    found.source = Boolean(first.querySelector("pre"));
  }
  fetch("/told", {method: "POST", body: JSON.stringify(found)});
}, 0));</script>"""


def browser(name: str | None = None) -> str | None:
    """The path of a Chromium, None where there is none."""
    return next((path for one in ([name] if name else BROWSERS) if (path := shutil.which(one))), None)


def opened(page: Path, program: str) -> dict[str, Any]:
    """``load_ms``, ``problem_ms`` (click to attempts shown) and ``source`` (whether an attempt shows its source)."""
    text = page.read_text(encoding="utf-8").replace("</body>", f"{_PROBE}</body>")
    body = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text, count=1).encode()  # the probe reports to us
    told: queue.Queue[dict[str, Any]] = queue.Queue()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = body if self.path == "/" else b""
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_POST(self) -> None:
            told.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server, folder as profile:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        command = [program, *FLAGS, f"--user-data-dir={profile}", "--remote-debugging-port=0", f"http://127.0.0.1:{server.server_port}/"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            return told.get(timeout=60)
        finally:
            process.terminate()
            process.wait(timeout=20)
            server.shutdown()


def shoot(page: Path, program: str, folder: Path) -> list[Path]:
    """Screenshots of the page in each of :data:`SHOTS`."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for name, (window, scheme) in SHOTS.items():
        target = folder / f"{name}.png"
        with tempfile.TemporaryDirectory() as profile:
            command = [program, *FLAGS, f"--user-data-dir={profile}", f"--window-size={window}", f"--screenshot={target}",
                       f"--blink-settings=preferredColorScheme={scheme}", page.resolve().as_uri()]  # fmt: skip
            subprocess.run(command, capture_output=True, timeout=120, check=False)
        made.append(target)
    return made


def main() -> int:
    """Measure three times, print the best, and say whether the limits hold."""
    parser = argparse.ArgumentParser(description="How fast a report opens in a real browser.")
    parser.add_argument("page", type=Path)
    parser.add_argument("--browser")
    parser.add_argument("--shots", type=Path)
    options = parser.parse_args()
    program = browser(options.browser)
    if program is None:
        print("There is no Chromium here.", file=sys.stderr)
        return 2
    found = [opened(options.page, program) for _ in range(3)]
    load, problem = (min(f[key] for f in found) for key in ("load_ms", "problem_ms"))
    size = options.page.stat().st_size
    print(f"{size / 1e6:.2f} MB, loaded in {load:.0f} ms, a problem opened in {problem:.0f} ms (best of 3)")
    if options.shots:
        for path in shoot(options.page, program, options.shots):
            print(path)
    return 0 if load < MOST_MS and size < MOST_BYTES and all(f["source"] for f in found) else 1


if __name__ == "__main__":
    sys.exit(main())
