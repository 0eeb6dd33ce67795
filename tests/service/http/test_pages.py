"""The pages in a real browser: what they show, that everybody can use them, that they need nothing else."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urljoin

import pytest
from axe_playwright_python.sync_playwright import Axe
from fastapi.testclient import TestClient
from playwright.sync_api import Browser, Page, expect, sync_playwright

from context_paging.service.example import example_path
from context_paging.service.http.app import ServerOptions, create_app
from context_paging.service.http.tokens import Scope, TokenFile
from context_paging.service.log import EventLog
from context_paging.service.replay import ReplayOptions, replay
from context_paging.service.session import Session
from context_paging.service.session_file import read_session_file

from .conftest import user
from .serving import serving

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
HOSTILE = "<script>alert(1)</script>\"'&\u202e"
Open = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium."""
    path = os.environ.get("CONTEXT_PAGING_CHROMIUM") or shutil.which("chromium")
    if path is None:
        if os.environ.get("CI"):
            pytest.fail("there is no chromium: apt-get install chromium")
        pytest.skip("there is no chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EventLog]:
    """A log with the example under three budgets, and a session whose names are no names."""
    with example_path() as path:
        file = read_session_file(path)
    with EventLog.open(tmp_path_factory.mktemp("pages") / "log.db") as event_log:
        for name, budget in (("small", 300), ("paged", 12_000), ("large", 64_000)):
            options = ReplayOptions(global_settings={"contextPaging": {"tokenBudget": budget}})
            for _ in replay(file, Session(name, sink=event_log, host="test", label="Harbour"), options):
                pass
        hostile = Session(f"x/{HOSTILE}", sink=event_log, host=HOSTILE, label=HOSTILE + "\ud800")
        hostile.start()
        hostile.append([user("hi", HOSTILE)])
        hostile.context()
        hostile.select_model(HOSTILE)
        event_log.flush()
        yield event_log


@pytest.fixture(scope="module")
def url(log: EventLog) -> Iterator[str]:
    """The service, for this machine alone."""
    with serving(create_app(log, ServerOptions())) as running:
        yield running.url


@pytest.fixture
def opened(browser: Browser, url: str) -> Iterator[Open]:
    """Opens pages. Nothing but the service may be asked for anything, and no script may complain."""
    troubles: list[str] = []
    contexts = []

    def go(path: str, **options: object) -> Page:
        context = browser.new_context(**options)  # type: ignore[arg-type]
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on(
            "request", lambda request: troubles.extend([] if request.url.startswith(url) else [request.url])
        )
        page.goto(url + path)
        return page

    yield go
    for context in contexts:
        context.close()
    assert troubles == []


PATHS = [
    "/sessions",
    "/sessions/paged",
    "/sessions/small",
    "/sessions/paged/calls/20",
    "/sessions/small/calls/2",
    "/sessions/paged/compare?first=3&second=40",
    "/sessions/paged/what-if?token_budget=6000",
    "/sessions/paged/timeline",
    "/sessions/paged/verify",
    "/tail",
    "/login",
    "/sessions/none",
]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nobody_is_shut_out(opened: Open, browser: Browser, url: str, path: str, scheme: str) -> None:
    # A missing page is told of by the browser, too.
    context = browser.new_context(color_scheme=scheme)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(url + path)
    for details in page.locator("details").all():
        details.evaluate("element => element.open = true")
    results = Axe().run(page)
    assert results.violations_count == 0, results.generate_report()
    assert page.locator("h1").count() == 1
    assert page.title().endswith("· context-paging")
    # Nothing but tables scrolls sideways, on a telephone either.
    page.set_viewport_size({"width": 360, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    context.close()


def test_the_pages_follow_the_readers_scheme(opened: Open) -> None:
    colours = {
        scheme: opened("/sessions", color_scheme=scheme).evaluate(
            "getComputedStyle(document.body).backgroundColor"
        )
        for scheme in ("light", "dark")
    }
    light, dark = (sum(map(int, re.findall(r"\d+", colours[scheme])[:3])) for scheme in ("light", "dark"))
    assert light > 600
    assert dark < 150


def test_every_link_leads_somewhere(opened: Open, url: str) -> None:
    page = opened("/sessions")
    waiting, seen = ["/sessions", "/tail"], set[str]()
    while waiting and len(seen) < 160:
        path = waiting.pop()
        if path in seen or path.startswith("/v1/tail"):
            continue
        seen.add(path)
        answer = page.request.get(url + path)
        assert answer.status == 200, path
        if "html" in answer.headers["content-type"]:
            found = re.findall(r'href="([^"]+)"', answer.text())
            targets = [urljoin(url + path, link.replace("&amp;", "&")) for link in found]
            assert all(target.startswith(url) for target in targets)
            waiting += [target.removeprefix(url).partition("#")[0] for target in targets]
    assert len(seen) > 100


def test_sessions_are_searched_and_filtered(opened: Open) -> None:
    page = opened("/sessions")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(4)
    page.get_by_label("Id or label").fill("HARB")
    page.get_by_role("button", name="Find").click()
    expect(rows).to_have_count(3)
    page.get_by_label("Aborted calls").select_option("with")
    page.get_by_role("button", name="Find").click()
    expect(rows).to_have_count(1)
    expect(page.get_by_role("link", name="small")).to_be_visible()
    page.get_by_label("From (UTC)").fill("2999-01-01")
    page.get_by_role("button", name="Find").click()
    expect(page.get_by_text("No session matches.")).to_be_visible()
    page.get_by_role("link", name="Show all").click()
    expect(rows).to_have_count(4)


def test_the_window_over_time_is_walked_through_by_keyboard(opened: Open, log: EventLog) -> None:
    page = opened("/sessions/paged")
    columns = page.locator("svg[data-steps] a")
    assert columns.count() == log.session("paged").calls
    assert page.locator("svg .cut").count() == log.session("paged").cuts
    assert page.locator("svg line.reset").count() == 1
    columns.last.focus()
    page.keyboard.press("Home")
    expect(columns.first).to_be_focused()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    expect(columns.nth(4)).to_be_focused()
    assert "Call 5:" in (columns.nth(4).get_attribute("aria-label") or "")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Call 5")


def test_the_window_over_time_can_be_pointed_at(opened: Open) -> None:
    page = opened("/sessions/small")
    column = page.locator("svg[data-steps] a").nth(2)
    assert "tokens sent" in (column.locator("title").text_content() or "")
    assert page.locator("svg .abort").count() == 7
    column.locator(".hit").hover()
    expect(page.locator(".readout")).to_contain_text("Call 3:")
    column.locator(".hit").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Call 3")


def test_a_postmortem_says_what_happened_and_what_would_have_helped(opened: Open, log: EventLog) -> None:
    aborted = log.last_call("small", "aborted")
    assert aborted is not None
    page = opened(f"/sessions/small/calls/{aborted.number}")
    expect(page.locator("h1 .outcome")).to_have_text(aborted.code or "")
    expect(page.get_by_text("a token budget of")).to_be_visible()
    expect(page.get_by_role("heading", name="The window as it was")).to_be_visible()
    total = page.locator("tr.total td.number").inner_text()
    assert total.replace(",", "") == f"{aborted.estimated_tokens:.0f}"
    assert page.locator("svg.strip rect").count() > 1
    page.get_by_role("link", name=f"Call {aborted.number - 1}", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(f"Call {aborted.number - 1}")


def test_two_calls_are_compared(opened: Open) -> None:
    page = opened("/sessions/paged/calls/40")
    page.get_by_label("Call", exact=True).fill("16")
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Calls 40 and 16")
    assert page.locator("tr.differs").count() > 2


def test_other_settings_are_tried(opened: Open) -> None:
    page = opened("/sessions/paged")
    page.get_by_role("link", name="What if").click()
    page.get_by_label("Token budget").fill("6000")
    page.get_by_role("button", name="Decide again").click()
    expect(page.get_by_role("status")).to_contain_text("of 131 calls would have been decided otherwise")


def test_events_are_shown_as_they_come(opened: Open, log: EventLog) -> None:
    page = opened("/tail?session=live")
    expect(page.get_by_role("status")).to_contain_text("Connected")
    session = Session("live", sink=log)
    session.start()
    rows = page.locator("#events tr")
    expect(rows).to_have_count(2)
    page.get_by_role("button", name="Pause").click()
    session.append([user("hi", "1")])
    session.context()
    expect(page.get_by_role("status")).to_contain_text("3 events wait")
    page.get_by_role("button", name="Go on").click()
    expect(rows).to_have_count(5)
    expect(rows.first).to_contain_text("context-selected")
    rows.first.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Call 1")


def test_without_scripts_everything_can_be_read(opened: Open) -> None:
    page = opened("/sessions", java_script_enabled=False)
    page.get_by_role("link", name="paged").click()
    expect(page.locator("svg[data-steps]")).to_be_visible()
    page.locator("tbody th a").first.click()
    expect(page.get_by_role("heading", name="The frontier's life")).to_be_visible()


def test_what_hosts_call_themselves_stays_text(opened: Open) -> None:
    page = opened("/sessions")
    page.get_by_role("link", name="x/<script>").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("<script>alert(1)</script>")
    page.locator("tbody th a").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Call 1")
    page.goto(page.url.replace("/calls/1", "/timeline"))
    expect(page.get_by_role("heading", level=1)).to_have_text("Timeline")


def test_people_log_in_with_a_token(browser: Browser, log: EventLog, tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "tokens.json")
    reader, writer = tokens.add("r", (Scope.READ,), "paged"), tokens.add("w", (Scope.WRITE,))
    with serving(create_app(log, ServerOptions(tokens))) as running:
        context = browser.new_context()
        page = context.new_page()
        page.goto(f"{running.url}/sessions/paged?outcome=paged")
        for secret in ("cp_wrong", ""):
            page.get_by_label("Token").fill(secret or "x")
            page.get_by_role("button", name="Log in").click()
            expect(page.get_by_role("alert")).to_contain_text("not known")
        page.get_by_label("Token").fill(reader)
        page.get_by_role("button", name="Log in").click()
        assert page.url == f"{running.url}/sessions/paged?outcome=paged"
        (cookie,) = context.cookies()
        assert cookie.get("httpOnly")
        assert cookie.get("sameSite") == "Strict"
        page.goto(f"{running.url}/sessions")
        expect(page.locator("tbody tr")).to_have_count(1)
        # What a browser keeps is for looking: it sends no events.
        sent = page.request.post(f"{running.url}/v1/sessions/paged/events", data={"type": "shut_down"})
        assert sent.status == 401
        assert page.goto(f"{running.url}/sessions/small").status == 404  # type: ignore[union-attr]
        page.get_by_role("button", name="Log out").click()
        page.goto(f"{running.url}/sessions")
        expect(page.get_by_role("heading", level=1)).to_have_text("Log in")
        page.get_by_label("Token").fill(writer)
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_text("does not have the scope read")).to_be_visible()
        context.close()


def test_the_login_leads_nowhere_else(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "tokens.json")
    secret = tokens.add("r", (Scope.READ,))
    with EventLog.open() as log, TestClient(create_app(log, ServerOptions(tokens))) as http:
        for target in (
            "https://evil.example",
            "//evil.example",
            "/\\evil.example",
            "javascript:x",
            "",
            "/a\r\nb",
        ):
            form = {"token": secret, "next": target}
            answer = http.post("/login", data=form, follow_redirects=False)
            assert (answer.status_code, answer.headers["location"]) == (303, "/sessions")
        assert http.post("/login", content=b"token=" + b"x" * 5_000).status_code == 413
        for path in ("/login", "/sessions"):
            headers = http.get(path).headers
            assert "default-src 'none'" in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"
