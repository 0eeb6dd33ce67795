"""The afternoon, behind a compaction: sources for every station, a year of gauge readings, a release."""

from __future__ import annotations

from collections.abc import Sequence

from context_paging.service.example.checkout import Checkout
from context_paging.service.example.recorder import OPUS, Recorder

SUMMARY = """\
## Goal
Take over the tide library harbour-tides, mend what is broken, make it fast.

## Done
- Station files: Latin-1, decimal commas and full-width punctuation are read; a bad file is reported and left out.
- z0 of stations in feet is converted (Boston). Diurnal constituents are no longer half a turn off (Hòn Dấu).
- Runs on Windows. New command `extremes`, found by the slope of the curve; double high waters are kept.
- Each day is prepared once; the disk cache is gone, and the flaky test with it.

## Next
Changelog, then sources for the station files, then a comparison with the Brest gauge, then release 0.5.0."""

SOURCES: Sequence[tuple[str, str, str]] = (
    ("brest", "French office, analysis of 2001-2019", "19 years, the longest of all"),
    ("saint-malo", "French office, analysis of 2004-2018", "the lock's gauge, so nothing below 1.2 m"),
    ("fecamp", "regional service, letter of December 2025", "came by mail, the letter is in the archive"),
    ("southampton", "harbour authority, 2012-2022", "shallow-water constituents fitted by the authority"),
    ("immingham", "harbour authority, 2010-2020", "one gap of three weeks in 2013"),
    ("boston", "federal harmonic constants, epoch 1983-2001", "in feet, as published"),
    ("hon-dau", "national station, analysis of 2015-2021", "diurnal; compare with the printed table only"),
    ("xiamen", "harbour office, analysis of 2025", "one year, so S2 and T2 are not well separated"),
)


def compact_the_morning(pi: Recorder, repo: Checkout) -> None:
    """The window is full; the host compacts and keeps the last request."""
    del repo
    first_kept = next(e["id"] for e in reversed(pi.branch()) if e.get("message", {}).get("role") == "user")
    pi.compact(first_kept, SUMMARY)
    pi.add("label", targetId=first_kept, label="changelog")
    pi.add("session_info", name="harbour-tides: take over, mend, speed up")
    pi.add("custom", customType="todo-list", data={"version": 4, "items": list(_todo_items())})


def name_the_sources(pi: Recorder, repo: Checkout) -> None:
    """Every station file gets a line that says where its constants come from."""
    pi.user(
        "One thing the inspectors asked for: every station file must say where its constants come from. Put a "
        "`source:` line behind `datum:`, and the remark in a comment above `[constituents]`. Start with the French "
        "ones:\n\n" + _told(SOURCES[:3])
    )
    pi.use(
        "First whether the parser minds a key it does not know.",
        repo.grep("header\\[|header.get|_HEADER", "src/harbour_tides/stations.py"),
        repo.read("docs/station-format.md"),
    )
    _name_sources(pi, repo, SOURCES[:3])
    pi.stop(
        "The three French files have their `source:` line. Unknown keys are ignored by the parser, so nothing "
        "else had to change."
    )
    pi.user("Good. The two harbour authorities next, and Boston:\n\n" + _told(SOURCES[3:6]))
    _name_sources(pi, repo, SOURCES[3:6])
    pi.stop("Southampton, Immingham and Boston are done. Boston stays in feet, as published.")
    pi.user("And the last two, then commit:\n\n" + _told(SOURCES[6:]))
    _name_sources(pi, repo, SOURCES[6:])
    pi.use("", repo.pytest("-q", tail=3), repo.diff_stat())
    pi.use("All green.", repo.commit("Say where the constants come from"))
    pi.stop("All eight station files name their source, and it is committed.")


def require_a_source(pi: Recorder, repo: Checkout) -> None:
    """A test that keeps it so, by another model."""
    pi.switch_model(OPUS)
    pi.chill()
    pi.user("Add a test that fails when somebody adds a file without a source.")
    pi.use("", repo.read("tests/test_stations.py", limit=40), repo.read("tests/conftest.py"))
    text = repo.files["tests/test_stations.py"]
    pi.use(
        "",
        repo.edit(
            "tests/test_stations.py",
            (
                text[-200:],
                text[-200:].rstrip("\n")
                + "\n\n\n"
                + "def test_every_file_names_its_source(data: Path) -> None:\n"
                + "    for path in sorted(data.glob('*.tide')):\n"
                + "        assert 'source' in decode(path.read_bytes()), path.name\n",
            ),
        ),
    )
    pi.use("", repo.pytest("tests/test_stations.py -q"))
    pi.use("", repo.commit("Test that every station file names its source"))
    pi.stop(
        "`test_every_file_names_its_source` reads every file below data/stations and names the one that lacks it."
    )


def compare_with_the_gauge(pi: Recorder, repo: Checkout) -> None:
    """A year of readings at once: the one huge result of the session."""
    pi.user(
        "The office put last year's readings of the Brest gauge on the share, ~/gauge/brest-2025.txt. "
        "Our residuals worry them. Is there a pattern?",
    )
    pi.use("Let me look at the readings.", repo.bash("cat ~/gauge/brest-2025.txt", _readings(), 0.3))
    pi.use(
        "That was the whole file; I should have asked for its head. By month, then:",
        repo.bash(
            ".venv/bin/python scripts/residuals.py ~/gauge/brest-2025.txt --by month", _by_month(), 2.1
        ),
        repo.bash(".venv/bin/python scripts/residuals.py ~/gauge/brest-2025.txt --by hour", _by_hour(), 2.2),
    )
    pi.stop(
        "There is a pattern, but not in the tide: the residuals are high in the stormy months and follow the air "
        "pressure. By hour of the day they are flat within 4 mm. The astronomical part is fine."
    )
    pi.extension_message("reminder", "The release meeting is at 16:30.")


def check_every_harbour(pi: Recorder, repo: Checkout) -> None:
    """A look at one day of extremes, harbour by harbour, before the release."""
    pi.user(
        "Before we release: go through the harbours one by one and look at the extremes of the 20th of March. I want "
        "you to look, not a script to compare."
    )
    for number, (name, _, _) in enumerate(SOURCES):
        pi.use(
            f"{name}:" if number else "I'll take them in the order of the sources. brest:",
            repo.bash(
                f".venv/bin/harbour-tides extremes {name} --from 2026-03-20 --days 1", _extremes(number), 0.4
            ),
            repo.grep("^(z0|datum|units)", f"data/stations/{name}.tide"),
        )
    pi.stop(
        "Looked at all eight. Southampton shows its double high water, Hòn Dấu one high and one low, the others two "
        "of each, and the ranges fit springs two days after new moon."
    )


def release(pi: Recorder, repo: Checkout) -> None:
    """Version, tag, and good night."""
    pi.user("Then release it: 0.5.0.")
    pi.use("", repo.grep("0\\.4\\.2", "."), repo.status())
    pi.use(
        "",
        repo.edit("pyproject.toml", ('version = "0.4.2"', 'version = "0.5.0"')),
        repo.edit("CHANGELOG.md", ("## Unreleased", "## 0.5.0 (2026-03-17)")),
    )
    pi.use("", repo.pytest("-q", tail=2), repo.diff(context=1))
    pi.use("", repo.commit("Release 0.5.0"), repo.bash("git tag v0.5.0 && git describe", "v0.5.0", 0.03))
    pi.stop("Released: 0.5.0 is committed and tagged. Pushing the tag starts the upload.")
    pi.user("Pushed. What did we leave undone today?")
    pi.stop(
        "Three things:\n\n"
        "1. `lookup` still raises a bare `KeyError` for a constituent in a hand-made list; only the parser wraps it.\n"
        "2. One year of Xiamen cannot separate S2 from T2. A second year of readings would.\n"
        "3. The residuals by air pressure deserve a chart in the docs, so that nobody worries again."
    )


def _told(sources: Sequence[tuple[str, str, str]]) -> str:
    return "\n".join(f"- {name}: {source} ({remark})" for name, source, remark in sources)


def _name_sources(pi: Recorder, repo: Checkout, sources: Sequence[tuple[str, str, str]]) -> None:
    for name, source, remark in sources:
        path = f"data/stations/{name}.tide"
        pi.use("", repo.read(path, limit=14), repo.grep(name, "tests"))
        datum = next(line for line in repo.files[path].splitlines() if line.startswith("datum"))
        colon = datum[len("datum")]
        pi.use(
            "",
            repo.edit(
                path,
                (f"{datum}\n", f"{datum}\nsource{colon} {source}\n"),
                ("[constituents]\n", f"# {remark[0].upper()}{remark[1:]}.\n[constituents]\n"),
            ),
        )
        pi.use("", repo.pytest(f"tests/test_stations.py -q -k {name.split('-')[0]}", 0.4), repo.diff(path, 1))


def _todo_items() -> list[dict[str, object]]:
    words = ("encoding", "feet", "phases", "windows", "extremes", "cache", "sources", "gauge", "release")
    return [
        {
            "id": number,
            "title": f"{words[number % len(words)]} {number}",
            "state": "done" if number % 4 else "open",
            "notes": f"{words[(number * 5) % len(words)]}, see entry {number * 7919 % 1000:03d}. " * 6,
        }
        for number in range(120)
    ]


def _readings() -> str:
    """Hourly heights of one year, from two constituents in whole numbers, so that they are the same everywhere."""
    lines = ["# Brest, roads. Hourly heights above LAT in metres, UTC. Not checked."]
    for hour in range(8760):
        day, clock = divmod(hour, 24)
        moon, sun = _wave(hour * 100_000 // 1242 % 1000), _wave(hour * 1000 // 12 % 1000)
        millimetres = 4130 + 2053 * moon // 1000 + 749 * sun // 1000 + (hour * 7919) % 97 - 48
        lines.append(f"2025-{day:03d} {clock:02d} {millimetres // 1000}.{millimetres % 1000:03d}")
    return "\n".join(lines)


def _wave(phase: int) -> int:
    """A parabola that passes for a sine; a turn is 1000, so is the height."""
    half = phase % 500
    height = half * (500 - half) * 4 // 250
    return height if phase < 500 else -height


def _by_month() -> str:
    rows = [
        f"2025-{month:02d}   {90 + (month * 37) % 55:>4} mm   {_surge(month):+4} mm" for month in range(1, 13)
    ]
    return "\n".join(["month     rms       mean", *rows])


def _surge(month: int) -> int:
    return (61, 48, 22, 4, -6, -9, -11, -8, 3, 27, 52, 66)[month - 1]


def _by_hour() -> str:
    rows = [f"{hour:02d}    {(hour * 5) % 9 - 4:+3} mm" for hour in range(24)]
    return "\n".join(["hour    mean", *rows])


def _extremes(number: int) -> str:
    lines = []
    for turn in range(2 if number == 6 else 4):
        minutes = 70 + 37 * number + turn * (1490 // (2 if number == 6 else 4))
        height = (610 - 41 * number if turn % 2 == 0 else 90 + 13 * number) + 7 * turn
        kind = "high" if turn % 2 == 0 else "low "
        lines.append(f"2026-03-20 {minutes // 60 % 24:02d}:{minutes % 60:02d}  {kind}  {height / 100:.2f}")
    if number == 3:
        lines.insert(1, "2026-03-20 05:09  high  4.62  (second)")
    return "\n".join(lines)
