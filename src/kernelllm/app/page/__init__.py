"""The HTML report: charts, data and one self-contained page."""

from __future__ import annotations

from kernelllm.app.page.build import RunView, page, view

__all__ = ["RunView", "page", "view"]
