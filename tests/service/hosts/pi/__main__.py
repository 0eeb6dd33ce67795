"""Prints the request log of one conversation in the real Pi, as a provider saw it, for each version.

``python -m tests.service.hosts.pi FOLDER``, where FOLDER holds Node and Pi as `conftest` describes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from .agent import SMALL, Home, Pi
from .conversation import work
from .provider import Calls, Failure, Request, Text, call, serving, text_of

VERSIONS = ("pi-0.87", "pi-current")


def run(pi: Pi, root: Path) -> None:
    """Print what goes out over a conversation with cuts, recovery, a retry, an abort and a smaller model."""
    with serving() as provider:
        home = Home(root / "home", pi, provider.url)
        home.settings(tokenBudget=6_000)
        with home.rpc() as rpc:
            work(rpc, provider, home, 4)
            provider.script = [call("search_history", query="secret-0"), load, Text("found")]
            rpc.prompt("what was in the first file?")
            provider.script = [Failure(503), Text("it works again")]
            rpc.prompt("once more")
            rpc.prompt("far too long " * 4_000)
            rpc.ask("set_model", provider="scripted", modelId=SMALL)
            rpc.prompt("short again")
            session = rpc.ask("get_state")["sessionId"]
            told = [text for _, text in rpc.notifications()]
        outcomes = json.loads(home.paging("calls", "--session", session, "--json"))
        show(f"Pi {pi.version}", provider.requests, outcomes)
        print(*(f"told: {text}" for text in told), sep="\n", end="\n\n")


def load(request: Request) -> Calls:
    """The model loads what its search found."""
    found = json.loads(text_of(request.messages[-1]))
    return call("load_history", historyIds=[found["references"][0]["historyId"]])


def show(title: str, requests: list[Request], outcomes: list[dict[str, object]]) -> None:
    """Print a line a provider call; one that was aborted has no request."""
    print(f"{title}\n call  request  messages  tokens  first   continues  outcome         rule       model")
    sent = iter(requests)
    number, previous = 0, None
    for outcome in outcomes:
        told = f"{outcome['outcome']!s:<14}  {outcome['rule']!s:<9}"
        if outcome["outcome"] == "aborted":
            print(f"{outcome['number']:>5}  {'none reached the provider':<45}  {told}  {outcome['code']}")
            continue
        request = next(sent)
        number += 1
        continues = "-" if previous is None else "yes" if request.continues(previous) else "no"
        print(
            f"{outcome['number']:>5}  {number:>7}  {len(request.messages):>8}  {request.tokens:>6}  "
            f"{first_kind(request):<6}  {continues:<9}  {told}  {answered(request)}"
        )
        previous = request


def first_kind(request: Request) -> str:
    """What stands at the front."""
    notice = text_of(request.messages[0]).startswith("[Context paging]")
    return "notice" if notice else request.messages[0]["role"]


def answered(request: Request) -> str:
    """What the model answered."""
    match request.reply:
        case Calls(calls):
            return "calls " + ", ".join(name for name, _ in calls)
        case Failure(status):
            return f"fails with {status}"
        case _:
            return "answers"


if __name__ == "__main__":
    folder = Path(sys.argv[1]).absolute()
    for version in VERSIONS:
        with TemporaryDirectory() as temporary:
            run(Pi(folder / "node/node_modules/node/bin/node", folder / version), Path(temporary))
