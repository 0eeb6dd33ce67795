"""A provider for tests: an HTTP server that speaks the APIs of Anthropic, OpenAI and Gemini, with a script.

It refuses what the providers refuse of a request's structure, and logs every request.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from .agents import Call, Script, as_json
from .forms import check_anthropic, check_chat, check_items, wire


class Provider:
    """One provider with one script.

    Attributes:
        faults: what was wrong with requests.
    """

    def __init__(self, script: Script) -> None:
        self.script = script
        self.faults: list[str] = []
        self.url = ""

    def environment(self) -> dict[str, str]:
        """The variables by which the providers' clients find this one."""
        return {
            "ANTHROPIC_API_KEY": "none",
            "ANTHROPIC_BASE_URL": self.url,
            "GOOGLE_API_KEY": "none",
            "GOOGLE_GEMINI_BASE_URL": self.url,
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
            "OPENAI_API_KEY": "none",
            "OPENAI_BASE_URL": f"{self.url}/v1",
        }

    def answer(self, path: str, body: Any) -> Any:
        """What a request is answered with."""
        if path.endswith("/messages"):
            return self._anthropic(body)
        if path.endswith("/chat/completions"):
            return self._chat(body)
        if path.endswith("/responses"):
            return self._responses(body)
        if path.endswith(":generateContent"):
            return self._gemini(body)
        raise LookupError(f"nothing is at {path}")

    def _anthropic(self, body: Any) -> Any:
        check_anthropic(body["messages"])
        step = self.script.next(wire(body["messages"]))
        said = (
            {"type": "tool_use", "id": self._id, "name": step.name, "input": step.arguments}
            if isinstance(step, Call)
            else {"type": "text", "text": step}
        )
        return {
            "id": "msg",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": [said],
            "stop_reason": "tool_use" if isinstance(step, Call) else "end_turn",
            "usage": {"input_tokens": self.script.input_tokens, "output_tokens": 20},
        }

    def _chat(self, body: Any) -> Any:
        check_chat(body["messages"])
        step = self.script.next([as_json(message) for message in body["messages"]])
        message: dict[str, Any] = {"role": "assistant", "content": None}
        if isinstance(step, Call):
            function = {"name": step.name, "arguments": as_json(step.arguments)}
            message["tool_calls"] = [{"index": 0, "id": self._id, "type": "function", "function": function}]
        else:
            message["content"] = step
        reason = "tool_calls" if isinstance(step, Call) else "stop"
        tokens = self.script.input_tokens
        whole = {
            "id": "c",
            "created": 1,
            "model": body["model"],
            "usage": {"prompt_tokens": tokens, "completion_tokens": 20, "total_tokens": tokens + 20},
        }
        if body.get("stream"):
            choice = {"index": 0, "delta": message, "finish_reason": reason}
            return [{**whole, "object": "chat.completion.chunk", "choices": [choice]}]
        choice = {"index": 0, "message": message, "finish_reason": reason}
        return {**whole, "object": "chat.completion", "choices": [choice]}

    def _responses(self, body: Any) -> Any:
        check_items(body["input"])
        step = self.script.next([as_json(item) for item in body["input"]])
        item: dict[str, Any] = (
            {
                "type": "function_call",
                "id": f"fc_{self.script.turn}",
                "call_id": self._id,
                "name": step.name,
                "arguments": as_json(step.arguments),
                "status": "completed",
            }
            if isinstance(step, Call)
            else {
                "type": "message",
                "id": f"msg_{self.script.turn}",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": step, "annotations": []}],
            }
        )
        tokens = self.script.input_tokens
        return {
            "id": f"resp_{self.script.turn}",
            "object": "response",
            "created_at": 1,
            "status": "completed",
            "model": body["model"],
            "output": [item],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": {
                "input_tokens": tokens,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": 20,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": tokens + 20,
            },
        }

    def _gemini(self, body: Any) -> Any:
        waiting = 0
        for content in body["contents"]:
            calls = sum("functionCall" in part for part in content["parts"])
            answers = sum("functionResponse" in part for part in content["parts"])
            assert answers <= waiting or not waiting
            waiting = waiting - answers + calls
        assert not waiting, "each call has one response"
        step = self.script.next([as_json(content) for content in body["contents"]])
        part = (
            {"functionCall": {"name": step.name, "args": step.arguments}}
            if isinstance(step, Call)
            else {"text": step}
        )
        tokens = self.script.input_tokens
        return {
            "candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}],
            "usageMetadata": {
                "promptTokenCount": tokens,
                "candidatesTokenCount": 20,
                "totalTokenCount": tokens + 20,
            },
        }

    @property
    def _id(self) -> str:
        return f"call_{self.script.turn}"


@contextmanager
def serving(script: Script) -> Iterator[Provider]:
    """A provider that runs."""
    provider = Provider(script)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            try:
                answer = provider.answer(self.path.partition("?")[0], body)
            except Exception as error:
                provider.faults.append(f"{self.path}: {error!r}")
                self._send(400, "application/json", as_json({"error": {"message": repr(error)}}))
                return
            if isinstance(answer, list):
                lines = [f"data: {as_json(event)}\n\n" for event in answer]
                self._send(200, "text/event-stream", "".join([*lines, "data: [DONE]\n\n"]))
            else:
                self._send(200, "application/json", as_json(answer))

        def _send(self, status: int, kind: str, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
