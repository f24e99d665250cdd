"""A small HTTP server that answers as it is told, for what real servers do rarely: rate limits, faults, odd replies."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = tuple[int, dict[str, Any] | list[Any] | str]


class Stub:
    """``reply(path, body, number)`` gives (status, JSON, or a text that is a web page) for each request; requests and headers are kept."""

    def __init__(self, reply: Callable[[str, dict[str, Any], int], Reply]) -> None:
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        lock = threading.Lock()
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                with lock:
                    stub.requests.append(body)
                    stub.headers.append({k.lower(): v for k, v in self.headers.items()})
                    number = len(stub.requests)
                status, data = reply(self.path, body, number)
                if isinstance(data, str):
                    raw, kind = data.encode(), "text/html"
                elif "events" in data:
                    raw = "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in data["events"]).encode()
                    kind = "text/event-stream"
                else:
                    raw, kind = json.dumps(data).encode(), "application/json"
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(raw)))
                if status == 429:
                    self.send_header("retry-after-ms", "1")
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def __enter__(self) -> Stub:
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def chat(text: str, **message: Any) -> dict[str, Any]:
    """A reply of /chat/completions."""
    return {
        "id": "1", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text, **message}}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
    }
