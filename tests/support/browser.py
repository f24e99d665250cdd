"""A report in a headless Chromium."""

from __future__ import annotations

import http.server
import json
import queue
import re
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage")

_PROBE = """<script>addEventListener("load", () => setTimeout(async () => {
  const found = {};
  const button = document.querySelector("button[data-block]"), start = performance.now();
  if (button) {
    button.click();
    while (!document.querySelector("#detail details") && performance.now() - start < 5000) await new Promise((r) => setTimeout(r, 1));
    const first = document.querySelector("#detail details");
    first.open = true;
    await new Promise((r) => setTimeout(r, 50));
    found.source = Boolean(first.querySelector("pre"));
  }
  fetch("/told", {method: "POST", body: JSON.stringify(found)});
}, 0));</script>"""


def browser() -> str | None:
    """The path of a Chromium, None where there is none."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def opened(page: Path, program: str) -> dict[str, Any]:
    """``source``: whether an attempt shows its source when its problem was clicked."""
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
