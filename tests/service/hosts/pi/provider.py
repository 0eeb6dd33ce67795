"""A provider of the project's own: an HTTP server that speaks streamed chat completions and follows a script.

It keeps every request, and refuses one that a real provider would refuse.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]
ROLES = ("system", "developer", "user", "assistant", "tool")


@dataclass(frozen=True)
class Text:
    """The model answers in words."""

    text: str


@dataclass(frozen=True)
class Calls:
    """The model calls tools: names and arguments, or their text."""

    calls: tuple[tuple[str, Json | str], ...]


@dataclass(frozen=True)
class Failure:
    """The provider fails."""

    status: int
    message: str = "the provider is overloaded"


Reply = Text | Calls | Failure
Step = Reply | Callable[["Request"], Reply]


def call(name: str, **arguments: Any) -> Calls:
    """The model calls one tool."""
    return Calls(((name, arguments),))


@dataclass(frozen=True)
class Request:
    """A request as it came: its body, what is wrong with it, and what it was answered with."""

    body: Json
    problems: tuple[str, ...]
    reply: Reply

    @property
    def system(self) -> str:
        """The system prompt."""
        return "\n".join(text_of(m) for m in self.body["messages"] if m["role"] in ("system", "developer"))

    @property
    def messages(self) -> list[Json]:
        """The messages behind the system prompt."""
        return [m for m in self.body["messages"] if m["role"] not in ("system", "developer")]

    @property
    def text(self) -> str:
        """Everything the messages say."""
        return json.dumps(self.messages, ensure_ascii=False)

    @property
    def tokens(self) -> int:
        """An estimate of the whole request: four characters of its prompt, messages and tools a token."""
        return tokens_of(self.body)

    def continues(self, earlier: Request) -> bool:
        """Whether an earlier request's prompt, tools and messages come first in this one, unchanged."""
        given = earlier.body["messages"]
        return bool(self.body["messages"][: len(given)] == given) and (
            self.body.get("tools") == earlier.body.get("tools")
        )


@dataclass
class Provider:
    """The server's side of a conversation.

    Attributes:
        url: where it listens.
        script: what the next requests are answered with; afterwards, with ``ok``.
        requests: what came, in order.
    """

    url: str = ""
    script: list[Step] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, body: Json) -> Reply:
        """Take a request in, and what to answer."""
        with self._lock:
            problems = tuple(problems_of(body))
            step: Step = self.script.pop(0) if self.script else Text("ok")
            reply: Reply = Failure(400, "; ".join(problems)) if problems else Text("")
            if not problems:
                reply = (
                    step if isinstance(step, Text | Calls | Failure) else step(Request(body, (), Text("")))
                )
            self.requests.append(Request(body, problems, reply))
            return reply

    def problems(self) -> list[str]:
        """What was wrong with any request."""
        return [problem for request in self.requests for problem in request.problems]


def text_of(message: Json) -> str:
    """The words of a message."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(block.get("text", "") for block in content)


def tokens_of(body: Json) -> int:
    """An estimate of a request in tokens."""
    characters = len(json.dumps(body.get("tools", [])))
    for message in body["messages"]:
        characters += len(text_of(message))
        for each in message.get("tool_calls", []):
            characters += len(each["function"]["name"]) + len(each["function"]["arguments"])
    return -(-characters // 4)


def problems_of(body: Json) -> Iterator[str]:
    """What a strict provider would refuse a request for."""
    messages = body.get("messages") or []
    if not body.get("stream"):
        yield "the request asks for no stream"
    if not messages or messages[0]["role"] not in ("system", "developer"):
        yield "there is no system prompt at the front"
    if not any(message["role"] == "user" for message in messages):
        yield "there is no user message"
    first = next((m["role"] for m in messages if m["role"] not in ("system", "developer")), "user")
    if first != "user":
        yield f"the conversation begins with the role {first}"
    declared = {tool["function"]["name"] for tool in body.get("tools", [])}
    pending: list[str] = []
    for number, message in enumerate(messages):
        role = message["role"]
        if role not in ROLES:
            yield f"message {number} has the role {role}"
        if role == "tool":
            if message.get("tool_call_id") not in pending:
                yield f"message {number} is the result of no open call"
            else:
                pending.remove(message["tool_call_id"])
            continue
        if pending:
            yield f"message {number} comes before the results of {pending}"
            pending = []
        pending = [each["id"] for each in message.get("tool_calls", [])]
        unknown = {each["function"]["name"] for each in message.get("tool_calls", [])} - declared
        if unknown and declared:
            yield f"message {number} calls tools that are not declared: {sorted(unknown)}"
        if not text_of(message) and not pending:
            yield f"message {number} is empty"
    if pending:
        yield f"the calls {pending} have no results"


@contextmanager
def serving() -> Iterator[Provider]:
    """A provider that listens on the loopback interface."""
    provider = Provider()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            reply = provider.answer(body)
            status, kind = 200, "text/event-stream"
            if isinstance(reply, Failure):
                status, kind = reply.status, "application/json"
                data = json.dumps({"error": {"message": reply.message, "type": "error"}}).encode()
            else:
                number = len(provider.requests)
                chunks = "".join(f"data: {json.dumps(c)}\n\n" for c in _chunks(reply, body, number))
                data = f"{chunks}data: [DONE]\n\n".encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing is printed."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _text(arguments: Json | str) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def _chunks(reply: Text | Calls, body: Json, number: int) -> Iterator[Json]:
    base = {"id": f"answer-{number}", "object": "chat.completion.chunk", "model": body["model"], "created": 0}
    if isinstance(reply, Text):
        delta: Json = {"role": "assistant", "content": reply.text}
        reason, said = "stop", reply.text
    else:
        calls = [
            {
                "index": index,
                "id": f"call_{number}_{index}",
                "type": "function",
                "function": {"name": name, "arguments": _text(arguments)},
            }
            for index, (name, arguments) in enumerate(reply.calls)
        ]
        delta, reason, said = (
            {"role": "assistant", "content": None, "tool_calls": calls},
            "tool_calls",
            str(calls),
        )
    yield {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
    prompt, completion = tokens_of(body), -(-len(said) // 4)
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    yield {**base, "choices": [], "usage": usage}
