"""Morning: the agent reads the library, and mends the station parser."""

from context_paging.service.example.checkout import Checkout
from context_paging.service.example.recorder import Recorder


def look_around(pi: Recorder, repo: Checkout) -> None:
    """The first request, and the entries that Pi writes before it."""
    pi.add("model_change", provider="anthropic", modelId=pi.model.id)
    pi.add("thinking_level_change", thinkingLevel="medium")
    pi.user(
        "Morning. I've taken over harbour-tides from a colleague who has left, and I have never read it. Before "
        "we touch anything: look around and tell me how a station file becomes a table, and where you would "
        "expect trouble. Don't change anything yet.",
        wait=2,
    )
    pi.use(
        "I'll start with the layout and the README.",
        repo.bash("git log --oneline | head -8", repo.log(8)),
        repo.find(),
        repo.read("README.md"),
    )
    pi.use(
        "The path runs through `stations.py` and `predict.py`, so those first.",
        repo.read("src/harbour_tides/stations.py"),
        repo.read("src/harbour_tides/predict.py"),
    )
    pi.use(
        "",
        repo.read("src/harbour_tides/astro.py"),
        repo.read("src/harbour_tides/cache.py"),
        thinking=(
            "predict.height looks up the constituent, asks the cache for f and u, computes the equilibrium "
            "argument and sums cosines. The cache is consulted for every constituent at every instant, and "
            "_year() does a stat() each time. That is 22 stats per height for Brest. I should look at how the "
            "cache decides freshness: st_mtime <= self._loaded[year], and _loaded is time.time(). File system "
            "mtime and time.time() are not the same clock on every system. Keep that in mind."
        ),
    )
    pi.use(
        "",
        repo.read("src/harbour_tides/constituents.py"),
        repo.read("src/harbour_tides/format.py"),
        repo.read("src/harbour_tides/cli.py"),
    )
    pi.stop(
        "Here is the way from file to table:\n\n"
        "1. `cli.main` loads **every** file of `data/stations` with `load_stations`, even when one is asked for.\n"
        "2. `parse_station` splits each file into a header (`key: value`) and the `[constituents]` section. "
        "Amplitudes in feet become metres here.\n"
        "3. `predict.table` steps from start to end and calls `height` at each step. `height` sums "
        "`f · A · cos(V + u − g)` over the constituents: V from `astro.argument`, f and u from `NodeCache`.\n"
        "4. `format.table_lines` prints the rows in the station's time zone, with a heading a day.\n\n"
        "Where I expect trouble, most likely first:\n\n"
        "- `open(path)` without an encoding: the result depends on the machine's locale, and one unreadable file "
        "stops every command, since all files are loaded.\n"
        "- `z0` is not scaled when `units: ft`, only amplitudes are. Boston would sit too high.\n"
        "- `extremes` samples once an hour. A stand or a double high water lasts less than that.\n"
        "- `NodeCache` compares a file's mtime with `time.time()`, and writes the whole file for every new key.\n"
        '- `strftime("%-d")` does not exist on Windows.\n'
        "- `lookup` raises a bare `KeyError` for an unknown constituent; the parser lets it through.\n\n"
        "Nothing was changed."
    )


def mend_the_parser(pi: Recorder, repo: Checkout) -> None:
    """Encodings, decimal commas and full-width colons."""
    pi.user(
        "Good list. Number one bites already: last night I copied in two files from other offices (fecamp and "
        "xiamen), and since then even `harbour-tides stations` crashes. Please find out what is wrong with them "
        "and make the parser cope. We can't ask the offices to change their files."
    )
    pi.use(
        "Let me reproduce it, and see what the tests say.",
        repo.run(".venv/bin/harbour-tides stations", "stations-crash", code=1),
        repo.run(".venv/bin/pytest -q --tb=line", "first-tests", seconds=1.4, code=1),
    )
    pi.use(
        "Two different problems, I think. What are these files?",
        repo.bash("file data/stations/*.tide", _FILE_KINDS, 0.03),
        repo.bash("head -c 96 data/stations/fecamp.tide | xxd", _XXD, 0.01),
        repo.read("data/stations/xiamen.tide"),
        repo.read("data/stations/fecamp.tide"),
    )
    pi.use(
        "Fécamp is Latin-1 (`e9` is é) and writes decimal commas. Xiamen is UTF-8, but its header uses the "
        "full-width colon `：` (U+FF1A). I'll take them one at a time, encoding first.",
        repo.edit(
            "src/harbour_tides/stations.py",
            (
                '    """Read one station file."""\n    with open(path) as handle:\n'
                "        return parse_station(handle.read(), path.name)\n",
                '    """Read one station file, whatever its encoding."""\n'
                "    return parse_station(decode(path.read_bytes()), path.name)\n\n\n"
                "def decode(raw: bytes) -> str:\n"
                '    """Text of a station file: UTF-8 with or without a mark, else the Latin-1 of older offices."""\n'
                "    try:\n"
                '        return raw.decode("utf-8-sig")\n'
                "    except UnicodeDecodeError:\n"
                '        return raw.decode("cp1252", errors="replace")\n',
            ),
        ),
        thinking=(
            "Latin-1 versus cp1252: the five undefined bytes of cp1252 would raise, hence errors=replace. A file "
            "in GB18030 would decode as nonsense but not crash; Xiamen's is UTF-8, so no evidence that I need "
            "it. utf-8-sig also drops a BOM that Notepad writes, which would otherwise glue itself to the first "
            "key."
        ),
    )
    pi.use(
        "",
        repo.run(".venv/bin/pytest -q tests/test_stations.py", "after-decode", seconds=0.9, code=1),
    )
    pi.use(
        "As expected it gets further now: the decimal comma is next. One helper for all numbers of a file, so "
        "that the header profits too.",
        repo.edit(
            "src/harbour_tides/stations.py",
            (
                "def _harmonic(line: str, source: str, number: int) -> Harmonic:",
                "def _number(text: str) -> float:\n"
                '    """A number with a decimal point or a decimal comma."""\n'
                '    return float(text.replace(",", "."))\n\n\n'
                "def _harmonic(line: str, source: str, number: int) -> Harmonic:",
            ),
            (
                "        name, amplitude, phase = parts[0], float(parts[1]), float(parts[2])\n",
                "        name, amplitude, phase = parts[0], _number(parts[1]), _number(parts[2])\n",
            ),
            (
                '        lat=float(header["lat"]),\n        lon=float(header["lon"]),\n',
                '        lat=_number(header["lat"]),\n        lon=_number(header["lon"]),\n',
            ),
            (
                '        z0=float(header.get("z0", "0")),\n',
                '        z0=_number(header.get("z0", "0")),\n',
            ),
        ),
        repo.grep(r"float\(", "src/harbour_tides/stations.py"),
    )
    pi.use(
        "Now the full-width punctuation. Input methods produce `：`, `，`, `．` and `＃`, so I map all four to "
        "their plain forms before a line is taken apart.",
        repo.edit(
            "src/harbour_tides/stations.py",
            (
                "FEET = 0.3048\n",
                "FEET = 0.3048\n\n"
                "#: Punctuation as Chinese and Japanese input methods write it.\n"
                'FULL_WIDTH = str.maketrans("：，．＃", ":,.#")\n',
            ),
            (
                '        line = line.split("#")[0].strip()\n',
                '        line = line.translate(FULL_WIDTH).split("#")[0].strip()\n',
            ),
        ),
        repo.pytest("-q", seconds=1.07),
    )
    pi.use(
        'All pass. Tests for each of the three, so that nobody "cleans up" the parser later:',
        repo.edit(
            "tests/test_stations.py",
            (
                "from harbour_tides.stations import StationError, load_station, load_stations, parse_station\n",
                "from harbour_tides.stations import StationError, decode, load_station, load_stations, parse_station\n",
            ),
            (
                '@pytest.mark.parametrize("path", sorted(',
                '@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "cp1252"])\n'
                "def test_encodings(encoding: str) -> None:\n"
                '    assert decode("name: Fécamp, Hafenamt Süd".encode(encoding)) == "name: Fécamp, Hafenamt Süd"\n\n\n'
                "def test_decimal_comma() -> None:\n"
                '    station = parse_station(GOOD.replace(".", ","))\n'
                "    assert station == parse_station(GOOD)\n\n\n"
                "def test_full_width_punctuation() -> None:\n"
                '    text = GOOD.replace(":", "：").replace("#", "＃").replace("name： Pier", "name：厦门")\n'
                '    assert parse_station(text).name == "厦门"\n\n\n'
                "def test_not_a_number_after_all() -> None:\n"
                '    with pytest.raises(StationError, match="not a constituent"):\n'
                '        parse_station(GOOD + "M4 1,234.5 20")\n\n\n'
                '@pytest.mark.parametrize("path", sorted(',
            ),
        ),
        repo.pytest("tests/test_stations.py -v", seconds=0.21),
        repo.run(".venv/bin/harbour-tides stations", "stations-good"),
    )
    pi.stop(
        "Both files load now, unchanged:\n\n"
        "- **Fécamp** is Latin-1 with decimal commas. Files are read as UTF-8 (with or without a byte order "
        "mark) and, if that fails, as cp1252.\n"
        "- **厦门** is UTF-8 with full-width punctuation, which is mapped to plain punctuation line by line.\n\n"
        "`1,234.5` stays an error: a comma is a decimal sign, never a thousands separator. I added seven tests, "
        "and the suite is green."
    )


def report_bad_files(pi: Recorder, repo: Checkout) -> None:
    """One bad file no longer stops every command."""
    pi.user(
        "Nice. What bothers me more is that one bad file takes the whole command down. The notice-board screens "
        "run this from cron 😬. A bad file should be reported on stderr and left out; only when the station I ask "
        "for is the bad one should it fail. And fix the KeyError thing from your list while you're there."
    )
    pi.use(
        "",
        repo.grep("load_stations|load_station\\b|StationError", ".", "*.py"),
        repo.grep("lookup\\(", "src"),
        thinking=(
            "Callers of load_stations: cli.main, bench, tests. I want the library to keep raising by default "
            "(a library that swallows errors is worse) and the CLI to pass a reporter. So: "
            "load_stations(folder, on_error=None). With on_error given, it is called with the StationError and "
            "the file is skipped."
        ),
    )
    pi.use(
        "I'll let `load_stations` take an optional reporter. Without one it raises as before, so the library "
        "does not swallow anything by itself.",
        repo.edit(
            "src/harbour_tides/stations.py",
            (
                "from dataclasses import dataclass, field\n",
                "from collections.abc import Callable\nfrom dataclasses import dataclass, field\n",
            ),
            (
                "def load_stations(folder: Path) -> dict[str, Station]:\n"
                '    """All stations of a folder, by id."""\n'
                "    stations = {}\n"
                '    for path in sorted(folder.glob("*.tide")):\n'
                "        station = load_station(path)\n"
                "        stations[station.id] = station\n"
                "    return stations\n",
                "def load_stations(\n"
                "    folder: Path, on_error: Callable[[StationError], None] | None = None\n"
                ") -> dict[str, Station]:\n"
                '    """All stations of a folder, by id.\n\n'
                "    A file that cannot be used raises, unless `on_error` takes the error: then it is left out.\n"
                '    """\n'
                "    stations = {}\n"
                '    for path in sorted(folder.glob("*.tide")):\n'
                "        try:\n"
                "            station = load_station(path)\n"
                "        except StationError as error:\n"
                "            if on_error is None:\n"
                "                raise\n"
                "            on_error(error)\n"
                "        else:\n"
                "            stations[station.id] = station\n"
                "    return stations\n",
            ),
            (
                "    return Harmonic(lookup(name).name, amplitude, phase)\n",
                "    try:\n"
                "        constituent = lookup(name)\n"
                "    except KeyError:\n"
                '        raise StationError(f"{source}:{number}: unknown constituent {name!r}")\n'
                "    return Harmonic(constituent.name, amplitude, phase)\n",
            ),
        ),
        repo.read("src/harbour_tides/constituents.py", offset=84),
        repo.read("tests/test_cli.py"),
        repo.read("tests/test_stations.py", offset=60),
    )
    pi.use(
        "`ALIASES` maps `M1A` to `M1`, which is not in the table: an alias that leads nowhere. And `lat: north` "
        "would still raise a plain `ValueError`. Both belong to the same complaint, so the header numbers get "
        "the same treatment.",
        repo.edit(
            "src/harbour_tides/constituents.py",
            ('    "M1A": "M1",\n', ""),
        ),
        repo.edit(
            "src/harbour_tides/stations.py",
            (
                '        lat=_number(header["lat"]),\n        lon=_number(header["lon"]),\n',
                '        lat=_header_number(header, "lat", source),\n'
                '        lon=_header_number(header, "lon", source),\n',
            ),
            (
                '        z0=_number(header.get("z0", "0")),\n',
                '        z0=_header_number(header, "z0", source),\n',
            ),
            (
                "def _harmonic(line: str",
                "def _header_number(header: dict[str, str], key: str, source: str) -> float:\n"
                '    text = header.get(key, "0")\n'
                "    try:\n"
                "        return _number(text)\n"
                "    except ValueError:\n"
                '        raise StationError(f"{source}: {key} is not a number: {text!r}")\n\n\n'
                "def _harmonic(line: str",
            ),
        ),
        repo.edit(
            "src/harbour_tides/cli.py",
            (
                "from harbour_tides.stations import Station, load_stations\n",
                "from harbour_tides.stations import Station, StationError, load_stations\n",
            ),
            (
                "def main(argv: Sequence[str] | None = None) -> int:\n"
                "    args = build_parser().parse_args(argv)\n"
                "    stations = load_stations(args.data)\n",
                "def _warn(error: StationError) -> None:\n"
                '    print(f"harbour-tides: left out {error}", file=sys.stderr)\n\n\n'
                "def main(argv: Sequence[str] | None = None) -> int:\n"
                "    args = build_parser().parse_args(argv)\n"
                "    stations = load_stations(args.data, on_error=_warn)\n",
            ),
        ),
    )
    pi.use(
        "",
        repo.edit(
            "tests/test_cli.py",
            (
                "def test_unknown_station(",
                "def test_bad_file_is_left_out(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:\n"
                '    (folder / "broken.tide").write_text(PIER.replace("M2 ", "M2X"))\n'
                '    assert main(["--data", str(folder), "table", "pier", "--from", "2026-03-17"]) == 0\n'
                "    captured = capsys.readouterr()\n"
                '    assert captured.out.startswith("Pier (50.10, -4.20)")\n'
                "    assert captured.err == \"harbour-tides: left out broken.tide:10: unknown constituent 'M2X'\\n\"\n\n\n"
                "def test_asked_for_the_bad_one(folder: Path) -> None:\n"
                '    (folder / "broken.tide").write_text(PIER.replace("id: pier", "id: broken").replace("50.1", "north"))\n'
                "    with pytest.raises(SystemExit, match=\"no station 'broken'\"):\n"
                '        main(["--data", str(folder), "table", "broken", "--from", "2026-03-17"])\n\n\n'
                "def test_unknown_station(",
            ),
        ),
        repo.edit(
            "tests/test_stations.py",
            (
                "def test_load_folder(data: Path) -> None:\n",
                "def test_unknown_constituent() -> None:\n"
                "    with pytest.raises(StationError, match=\"<text>:12: unknown constituent 'XX9'\"):\n"
                '        parse_station(GOOD + "XX9 0.1 20")\n\n\n'
                '@pytest.mark.parametrize("key", ["lat", "lon", "z0"])\n'
                "def test_header_number(key: str) -> None:\n"
                '    text = "\\n".join(f"{key}: high" if line.startswith(key) else line for line in GOOD.splitlines())\n'
                "    with pytest.raises(StationError, match=f\"{key} is not a number: 'high'\"):\n"
                "        parse_station(text)\n\n\n"
                "def test_load_folder(data: Path) -> None:\n",
            ),
        ),
        repo.run(".venv/bin/pytest -q", "line-numbers", seconds=1.2, code=1),
    )
    pi.use(
        "Only my own line numbers are off by one, in both tests: the texts begin with an empty line.",
        repo.edit("tests/test_stations.py", ('match="<text>:12: unknown', 'match="<text>:13: unknown')),
        repo.edit(
            "tests/test_cli.py", ("left out broken.tide:10: unknown", "left out broken.tide:11: unknown")
        ),
        repo.pytest("-q", seconds=1.11),
    )
    pi.stop(
        "Done. `load_stations(folder, on_error=...)` leaves a bad file out and hands the error to you; without "
        "`on_error` it raises, as before. The CLI prints one line a bad file on stderr:\n\n"
        "```\nharbour-tides: left out broken.tide:11: unknown constituent 'M2X'\n```\n\n"
        "Unknown constituents and header values that are no numbers are `StationError`s with file and line. I "
        "also dropped the alias `M1A → M1`, because there is no `M1` in the table."
    )


def mend_feet(pi: Recorder, repo: Checkout) -> None:
    """The mean level of stations in feet, and the first commit."""
    pi.user("Boston next: the z0 in feet. Then commit everything so far, in one go is fine.")
    pi.use(
        "",
        repo.run(
            ".venv/bin/harbour-tides table boston --from 2026-03-17T00:00-04:00 --hours 6", "boston-high"
        ),
        repo.sed("src/harbour_tides/stations.py", 128, 152),
    )
    pi.use(
        "The lowest water of that tide comes out above 3 m, in a harbour with a range of about 3 m over MLLW: "
        "z0 is 5.22 **feet**. One line:",
        repo.edit(
            "src/harbour_tides/stations.py",
            (
                '        z0=_header_number(header, "z0", source),\n',
                '        z0=_header_number(header, "z0", source) * scale,\n',
            ),
        ),
        repo.edit(
            "tests/test_stations.py",
            (
                "    assert station.harmonics[0].amplitude == pytest.approx(1.72 * 0.3048)\n",
                "    assert station.harmonics[0].amplitude == pytest.approx(1.72 * 0.3048)\n"
                "    assert station.z0 == pytest.approx(3.2 * 0.3048)\n",
            ),
        ),
        repo.run(
            ".venv/bin/harbour-tides table boston --from 2026-03-17T00:00-04:00 --hours 6", "boston-good"
        ),
        repo.pytest("-q", seconds=1.09),
    )
    pi.use(
        "",
        repo.commit(
            "Cope with the station files we get",
            "Encodings, decimal commas, full-width punctuation, z0 in feet. A bad file is reported and left out.",
        ),
    )
    pi.stop("Boston is right, and it is all in one commit; the working tree is clean.")


_FILE_KINDS = """\
data/stations/boston.tide:      ASCII text
data/stations/brest.tide:       ASCII text
data/stations/fecamp.tide:      ISO-8859 text
data/stations/hon-dau.tide:     Unicode text, UTF-8 text
data/stations/immingham.tide:   ASCII text
data/stations/saint-malo.tide:  ASCII text
data/stations/southampton.tide: ASCII text
data/stations/xiamen.tide:      Unicode text, UTF-8 text"""

_XXD = """\
00000000: 2320 46e9 6361 6d70 202d 2063 6f6e 7374  # F.camp - const
00000010: 616e 7465 7320 6861 726d 6f6e 6971 7565  antes harmonique
00000020: 732c 2073 6572 7669 6365 2072 e967 696f  s, service r.gio
00000030: 6e61 6c2c 2072 6576 2e20 3132 2f32 3032  nal, rev. 12/202
00000040: 350a 6964 3a20 6665 6361 6d70 0a6e 616d  5.id: fecamp.nam
00000050: 653a 2046 e963 616d 700a 6c61 743a 2034  e: F.camp.lat: 4"""
