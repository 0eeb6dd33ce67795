"""The pretend library at the start of the session: its package, as the developer of the story found it.

The code runs, and it has the faults that the story finds. The tidal constants are illustrative, not for navigation.
"""

PYPROJECT = r"""[build-system]
requires = ["hatchling>=1.24"]
build-backend = "hatchling.build"

[project]
name = "harbour-tides"
version = "0.4.2"
description = "Tide predictions from harmonic constituents, for small harbours"
readme = "README.md"
requires-python = ">=3.10"
license = { text = "MIT" }
authors = [{ name = "Mara Lindqvist" }]
dependencies = []

[project.optional-dependencies]
dev = ["pytest>=8", "pytest-cov", "mypy>=1.10", "ruff>=0.6"]

[project.scripts]
harbour-tides = "harbour_tides.cli:main"

[tool.hatch.build.targets.wheel]
packages = ["src/harbour_tides"]

[tool.pytest.ini_options]
testpaths = ["tests"]
pythonpath = ["src"]

[tool.ruff]
line-length = 100

[tool.mypy]
strict = true
files = ["src"]
"""

README = r"""# harbour-tides 🌊

Tide predictions from harmonic constituents. Small, no dependencies, made for harbour offices that
have a sheet of constants and want a table for the notice board.

    $ harbour-tides stations
    $ harbour-tides table brest --from 2026-03-17 --hours 24
    $ harbour-tides table fecamp --from 2026-03-17 --hours 12 --step 30

Predictions are **not for navigation**. Weather moves the sea by more than our rounding does.

## Stations

A station is one text file in `data/stations/`; see `docs/station-format.md`. Files come from many
harbour offices and some are quite old. Please do not "clean them up" by hand: the parser should cope.

## Development

    $ python -m venv .venv && .venv/bin/pip install -e '.[dev]'
    $ .venv/bin/pytest

## Licence

MIT
"""

CHANGELOG = r"""# Changelog

## 0.4.2 (2025-11-02)

- Node factors are cached on disk, one file a year.
- `table --step` takes minutes.

## 0.4.1 (2025-06-19)

- Long-period constituents (SA, SSA, MM, MF).

## 0.4.0 (2025-03-08)

- New station format (format 2) with a `[constituents]` section.
- Dropped Python 3.9.
"""

STATION_FORMAT = r"""# Station files

A station file has the suffix `.tide`. It is text: a header of `key: value` lines, then a section
`[constituents]` with one constituent a line.

| key     | meaning                                           | required |
| ------- | ------------------------------------------------- | -------- |
| `id`    | short name, used on the command line              | yes      |
| `name`  | the name people use                               | yes      |
| `lat`   | degrees north                                     | yes      |
| `lon`   | degrees east                                      | yes      |
| `tz`    | IANA time zone of the tables                      | no (UTC) |
| `datum` | `LAT`, `MSL`, `MLLW`, ...                         | no       |
| `z0`    | height of mean sea level above the datum          | no (0)   |
| `units` | `m` or `ft`, for `z0` and all amplitudes          | no (`m`) |

A constituent line is `name amplitude phase`: the phase is the Greenwich lag in degrees.
`#` starts a comment, anywhere on a line.
"""

INIT = r'''"""Tide predictions from harmonic constituents."""

from harbour_tides.predict import Prediction, extremes, height, table
from harbour_tides.stations import Station, StationError, load_station, load_stations

__all__ = [
    "Prediction",
    "Station",
    "StationError",
    "extremes",
    "height",
    "load_station",
    "load_stations",
    "table",
]
__version__ = "0.4.2"
'''

CONSTITUENTS = r'''"""The constituents this library knows.

A constituent is described by its Doodson numbers: how often it counts each of the six astronomical
angles (T, s, h, p, N', p1). `semi` is the constant that is added to the argument, in degrees, and `node`
names the rule for its node factor (see `astro.node_factor`).

Names follow Schureman (1941) where he has one. The table is in order of speed, roughly.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Degrees per mean solar hour of T, s, h, p, N', p1.
RATES = (15.0, 0.5490165, 0.0410686, 0.0046418, 0.0022064, 0.0000020)


@dataclass(frozen=True)
class Constituent:
    """One line of the tidal spectrum."""

    name: str
    doodson: tuple[int, int, int, int, int, int]
    semi: float
    node: str

    @property
    def speed(self) -> float:
        """Degrees per mean solar hour."""
        return sum(count * rate for count, rate in zip(self.doodson, RATES))

    @property
    def species(self) -> int:
        """0 long period, 1 diurnal, 2 semidiurnal, and so on."""
        return self.doodson[0]


def _c(name: str, doodson: tuple[int, int, int, int, int, int], semi: float, node: str) -> Constituent:
    return Constituent(name, doodson, semi, node)


CONSTITUENTS: dict[str, Constituent] = {
    c.name: c
    for c in (
        # long period
        _c("SA", (0, 0, 1, 0, 0, 0), 0.0, "none"),
        _c("SSA", (0, 0, 2, 0, 0, 0), 0.0, "none"),
        _c("MM", (0, 1, 0, -1, 0, 0), 0.0, "mm"),
        _c("MSF", (0, 2, -2, 0, 0, 0), 0.0, "m2"),
        _c("MF", (0, 2, 0, 0, 0, 0), 0.0, "mf"),
        # diurnal
        _c("2Q1", (1, -4, 1, 2, 0, 0), 90.0, "o1"),
        _c("Q1", (1, -3, 1, 1, 0, 0), 90.0, "o1"),
        _c("RHO1", (1, -3, 3, -1, 0, 0), 90.0, "o1"),
        _c("O1", (1, -2, 1, 0, 0, 0), 90.0, "o1"),
        _c("P1", (1, 0, -1, 0, 0, 0), 90.0, "none"),
        _c("S1", (1, 0, 0, 0, 0, 0), 180.0, "none"),
        _c("K1", (1, 0, 1, 0, 0, 0), -90.0, "k1"),
        _c("J1", (1, 1, 1, -1, 0, 0), -90.0, "j1"),
        _c("OO1", (1, 2, 1, 0, 0, 0), -90.0, "oo1"),
        # semidiurnal
        _c("2N2", (2, -4, 2, 2, 0, 0), 0.0, "m2"),
        _c("MU2", (2, -4, 4, 0, 0, 0), 0.0, "m2"),
        _c("N2", (2, -3, 2, 1, 0, 0), 0.0, "m2"),
        _c("NU2", (2, -3, 4, -1, 0, 0), 0.0, "m2"),
        _c("M2", (2, -2, 2, 0, 0, 0), 0.0, "m2"),
        _c("LAM2", (2, -1, 0, 1, 0, 0), 180.0, "m2"),
        _c("L2", (2, -1, 2, -1, 0, 0), 180.0, "m2"),
        _c("T2", (2, 0, -1, 0, 0, 1), 0.0, "none"),
        _c("S2", (2, 0, 0, 0, 0, 0), 0.0, "none"),
        _c("K2", (2, 0, 2, 0, 0, 0), 0.0, "k2"),
        # shallow water
        _c("M3", (3, -3, 3, 0, 0, 0), 0.0, "m3"),
        _c("MN4", (4, -5, 4, 1, 0, 0), 0.0, "m4"),
        _c("M4", (4, -4, 4, 0, 0, 0), 0.0, "m4"),
        _c("MS4", (4, -2, 2, 0, 0, 0), 0.0, "m2"),
        _c("S4", (4, 0, 0, 0, 0, 0), 0.0, "none"),
        _c("M6", (6, -6, 6, 0, 0, 0), 0.0, "m6"),
        _c("2MS6", (6, -4, 4, 0, 0, 0), 0.0, "m4"),
        _c("M8", (8, -8, 8, 0, 0, 0), 0.0, "m8"),
    )
}

#: Other spellings seen in station files.
ALIASES = {
    "LAMBDA2": "LAM2",
    "LDA2": "LAM2",
    "RHO": "RHO1",
    "M1A": "M1",
    "2SM6": "2MS6",
    "SIGMA1": "2Q1",
}


def lookup(name: str) -> Constituent:
    """Find a constituent by its name or another spelling of it."""
    key = name.upper()
    key = ALIASES.get(key, key)
    return CONSTITUENTS[key]
'''

ASTRO = r'''"""Astronomical arguments and node factors.

Mean longitudes after Meeus (1991), node factors after Schureman (1941). All angles are degrees.
Good to about 0.01 degrees between 1950 and 2050, which is far better than any station file.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timezone

from harbour_tides.constituents import Constituent

EPOCH = datetime(2000, 1, 1, 12, tzinfo=timezone.utc)
DAYS_PER_CENTURY = 36525.0


@dataclass(frozen=True)
class Astro:
    """The six angles at one moment."""

    T: float
    s: float
    h: float
    p: float
    N: float
    p1: float


def astro_at(when: datetime) -> Astro:
    """Astronomical angles at a moment. Naive datetimes are taken as UTC."""
    if when.tzinfo is None:
        when = when.replace(tzinfo=timezone.utc)
    utc = when.astimezone(timezone.utc)
    t = (utc - EPOCH).total_seconds() / 86400.0 / DAYS_PER_CENTURY
    hours = utc.hour + utc.minute / 60.0 + utc.second / 3600.0
    return Astro(
        T=(15.0 * hours) % 360.0,
        s=(218.3164591 + 481267.88134236 * t) % 360.0,
        h=(280.4664472 + 36000.7698231 * t) % 360.0,
        p=(83.3532430 + 4069.0137111 * t) % 360.0,
        N=(125.0445550 - 1934.1361849 * t) % 360.0,
        p1=(282.9373480 + 1.7195366 * t) % 360.0,
    )


def argument(constituent: Constituent, a: Astro) -> float:
    """Equilibrium argument V of a constituent."""
    n_t, n_s, n_h, n_p, n_n, n_p1 = constituent.doodson
    total = n_t * a.T + n_s * a.s + n_h * a.h + n_p * a.p - n_n * a.N + n_p1 * a.p1
    return (total + constituent.semi) % 360.0


def node_factor(constituent: Constituent, a: Astro) -> tuple[float, float]:
    """The factor f and the angle u of a constituent."""
    n = math.radians(a.N)
    f, u = _NODE_RULES[constituent.node](n)
    return f, u


def _none(n: float) -> tuple[float, float]:
    return 1.0, 0.0


def _mm(n: float) -> tuple[float, float]:
    return 1.0 - 0.1300 * math.cos(n) + 0.0013 * math.cos(2 * n), 0.0


def _mf(n: float) -> tuple[float, float]:
    f = 1.0429 + 0.4135 * math.cos(n) - 0.0040 * math.cos(2 * n)
    u = -23.74 * math.sin(n) + 2.68 * math.sin(2 * n) - 0.38 * math.sin(3 * n)
    return f, u


def _o1(n: float) -> tuple[float, float]:
    f = 1.0089 + 0.1871 * math.cos(n) - 0.0147 * math.cos(2 * n) + 0.0014 * math.cos(3 * n)
    u = 10.80 * math.sin(n) - 1.34 * math.sin(2 * n) + 0.19 * math.sin(3 * n)
    return f, u


def _k1(n: float) -> tuple[float, float]:
    f = 1.0060 + 0.1150 * math.cos(n) - 0.0088 * math.cos(2 * n) + 0.0006 * math.cos(3 * n)
    u = -8.86 * math.sin(n) + 0.68 * math.sin(2 * n) - 0.07 * math.sin(3 * n)
    return f, u


def _j1(n: float) -> tuple[float, float]:
    f = 1.0129 + 0.1676 * math.cos(n) - 0.0170 * math.cos(2 * n) + 0.0016 * math.cos(3 * n)
    u = -12.94 * math.sin(n) + 1.34 * math.sin(2 * n) - 0.19 * math.sin(3 * n)
    return f, u


def _oo1(n: float) -> tuple[float, float]:
    f = 1.1027 + 0.6504 * math.cos(n) + 0.0317 * math.cos(2 * n) - 0.0014 * math.cos(3 * n)
    u = -36.68 * math.sin(n) + 4.02 * math.sin(2 * n) - 0.57 * math.sin(3 * n)
    return f, u


def _m2(n: float) -> tuple[float, float]:
    f = 1.0004 - 0.0373 * math.cos(n) + 0.0002 * math.cos(2 * n)
    u = -2.14 * math.sin(n)
    return f, u


def _k2(n: float) -> tuple[float, float]:
    f = 1.0241 + 0.2863 * math.cos(n) + 0.0083 * math.cos(2 * n) - 0.0015 * math.cos(3 * n)
    u = -17.74 * math.sin(n) + 0.68 * math.sin(2 * n) - 0.04 * math.sin(3 * n)
    return f, u


def _m2_power(power: float):
    def rule(n: float) -> tuple[float, float]:
        f, u = _m2(n)
        return f**power, u * power

    return rule


_NODE_RULES = {
    "none": _none,
    "mm": _mm,
    "mf": _mf,
    "o1": _o1,
    "k1": _k1,
    "j1": _j1,
    "oo1": _oo1,
    "m2": _m2,
    "k2": _k2,
    "m3": _m2_power(1.5),
    "m4": _m2_power(2),
    "m6": _m2_power(3),
    "m8": _m2_power(4),
}
'''

STATIONS = r'''"""Station files: read them, check them, list them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from harbour_tides.constituents import lookup

FEET = 0.3048


class StationError(ValueError):
    """A station file that cannot be used."""


@dataclass(frozen=True)
class Harmonic:
    """Amplitude in metres and Greenwich phase lag in degrees."""

    name: str
    amplitude: float
    phase: float


@dataclass(frozen=True)
class Station:
    """A harbour with its constants."""

    id: str
    name: str
    lat: float
    lon: float
    tz: str = "UTC"
    datum: str = "MSL"
    z0: float = 0.0
    harmonics: tuple[Harmonic, ...] = field(default=())


def load_station(path: Path) -> Station:
    """Read one station file."""
    with open(path) as handle:
        return parse_station(handle.read(), path.name)


def load_stations(folder: Path) -> dict[str, Station]:
    """All stations of a folder, by id."""
    stations = {}
    for path in sorted(folder.glob("*.tide")):
        station = load_station(path)
        stations[station.id] = station
    return stations


def parse_station(text: str, source: str = "<text>") -> Station:
    """Parse the text of a station file."""
    header: dict[str, str] = {}
    harmonics: list[Harmonic] = []
    in_constituents = False
    for number, line in enumerate(text.splitlines(), 1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        if line == "[constituents]":
            in_constituents = True
        elif in_constituents:
            harmonics.append(_harmonic(line, source, number))
        else:
            key, _, value = line.partition(":")
            header[key.strip()] = value.strip()
    return _station(header, harmonics, source)


def _harmonic(line: str, source: str, number: int) -> Harmonic:
    parts = line.split()
    try:
        name, amplitude, phase = parts[0], float(parts[1]), float(parts[2])
    except (IndexError, ValueError):
        raise StationError(f"{source}:{number}: not a constituent: {line!r}")
    return Harmonic(lookup(name).name, amplitude, phase)


def _station(header: dict[str, str], harmonics: list[Harmonic], source: str) -> Station:
    missing = [key for key in ("id", "name", "lat", "lon") if key not in header]
    if missing:
        raise StationError(f"{source}: missing {', '.join(missing)}")
    scale = FEET if header.get("units", "m") == "ft" else 1.0
    return Station(
        id=header["id"],
        name=header["name"],
        lat=float(header["lat"]),
        lon=float(header["lon"]),
        tz=header.get("tz", "UTC"),
        datum=header.get("datum", "MSL"),
        z0=float(header.get("z0", "0")),
        harmonics=tuple(Harmonic(h.name, h.amplitude * scale, h.phase) for h in harmonics),
    )
'''

PREDICT = r'''"""Heights, tables, high and low waters."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from harbour_tides.astro import argument, astro_at
from harbour_tides.cache import NodeCache
from harbour_tides.constituents import lookup
from harbour_tides.stations import Station

_cache = NodeCache()


@dataclass(frozen=True)
class Prediction:
    """Height of the sea above the station's datum at a moment."""

    when: datetime
    height: float
    kind: str = ""


def height(station: Station, when: datetime) -> float:
    """Height in metres above the station's datum."""
    a = astro_at(when)
    total = station.z0
    for harmonic in station.harmonics:
        constituent = lookup(harmonic.name)
        f, u = _cache.node_factor(constituent, when)
        angle = argument(constituent, a) + u - harmonic.phase
        total += f * harmonic.amplitude * math.cos(math.radians(angle))
    return total


def table(station: Station, start: datetime, end: datetime, step: timedelta) -> Iterator[Prediction]:
    """Heights from start to end, both included."""
    when = start
    while when <= end:
        yield Prediction(when, height(station, when))
        when += step


def extremes(station: Station, start: datetime, end: datetime) -> list[Prediction]:
    """High and low waters between start and end."""
    hour = timedelta(hours=1)
    found = []
    samples = list(table(station, start - hour, end + hour, hour))
    for before, here, after in zip(samples, samples[1:], samples[2:]):
        if here.height > before.height and here.height > after.height:
            found.append(_refine(station, before, here, after, "high"))
        elif here.height < before.height and here.height < after.height:
            found.append(_refine(station, before, here, after, "low"))
    return found


def _refine(
    station: Station, before: Prediction, here: Prediction, after: Prediction, kind: str
) -> Prediction:
    """Put a parabola through three samples."""
    bend = before.height - 2 * here.height + after.height
    shift = 0.5 * (before.height - after.height) / bend
    when = here.when + shift * (here.when - before.when)
    return Prediction(when, height(station, when), kind)
'''

CACHE = r'''"""Node factors change slowly. Keep them on disk, one file a year."""

from __future__ import annotations

import json
import os
import time
from datetime import datetime, timezone
from pathlib import Path

from harbour_tides.astro import astro_at, node_factor
from harbour_tides.constituents import Constituent

MAX_AGE = 30 * 86400


def default_folder() -> Path:
    """Where the cache lives unless HARBOUR_TIDES_CACHE says otherwise."""
    if folder := os.environ.get("HARBOUR_TIDES_CACHE"):
        return Path(folder)
    return Path.home() / ".cache" / "harbour-tides"


class NodeCache:
    """Node factors by constituent and day."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._years: dict[int, dict[str, list[float]]] = {}
        self._loaded: dict[int, float] = {}

    def node_factor(self, constituent: Constituent, when: datetime) -> tuple[float, float]:
        """f and u for the day of `when`."""
        year = self._year(when.year)
        key = f"{constituent.name}/{when:%j}"
        if key not in year:
            noon = when.replace(hour=12, minute=0, second=0, microsecond=0)
            if noon.tzinfo is None:
                noon = noon.replace(tzinfo=timezone.utc)
            year[key] = list(node_factor(constituent, astro_at(noon)))
            self._save(when.year)
        f, u = year[key]
        return f, u

    def _path(self, year: int) -> Path:
        return (self.folder or default_folder()) / f"node-{year}.json"

    def _year(self, year: int) -> dict[str, list[float]]:
        path = self._path(year)
        if year in self._years and path.exists():
            if path.stat().st_mtime <= self._loaded[year]:
                return self._years[year]
        if path.exists() and time.time() - path.stat().st_mtime < MAX_AGE:
            self._years[year] = json.loads(path.read_text())
        else:
            self._years[year] = {}
        self._loaded[year] = time.time()
        return self._years[year]

    def _save(self, year: int) -> None:
        path = self._path(year)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self._years[year]))
        self._loaded[year] = time.time()
'''

FORMAT = r'''"""Predictions as text."""

from __future__ import annotations

from collections.abc import Iterable
from zoneinfo import ZoneInfo

from harbour_tides.predict import Prediction
from harbour_tides.stations import Station


def table_lines(station: Station, predictions: Iterable[Prediction]) -> Iterable[str]:
    """A plain table in the station's time zone."""
    zone = ZoneInfo(station.tz)
    yield f"{station.name} ({station.lat:.2f}, {station.lon:.2f}), heights in m above {station.datum}"
    day = ""
    for prediction in predictions:
        local = prediction.when.astimezone(zone)
        heading = local.strftime("%a %-d %b %Y")
        if heading != day:
            yield ""
            yield heading
            day = heading
        kind = {"high": " HW", "low": " LW"}.get(prediction.kind, "")
        yield f"  {local:%H:%M}  {prediction.height:6.2f}{kind}"


def station_lines(stations: Iterable[Station]) -> Iterable[str]:
    """One line a station."""
    for station in stations:
        yield f"{station.id:<14} {station.name:<22} {station.lat:8.2f} {station.lon:8.2f}  {station.tz}"
'''

CLI = r'''"""The command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

from harbour_tides.format import station_lines, table_lines
from harbour_tides.predict import table
from harbour_tides.stations import Station, load_stations

DATA = Path(__file__).parents[2] / "data" / "stations"


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="harbour-tides", description="Tide predictions.")
    parser.add_argument("--data", type=Path, default=DATA, help="folder with station files")
    commands = parser.add_subparsers(dest="command", required=True)

    commands.add_parser("stations", help="list the stations")

    table_parser = commands.add_parser("table", help="heights at regular steps")
    table_parser.add_argument("station")
    table_parser.add_argument("--from", dest="start", required=True, type=_moment)
    table_parser.add_argument("--hours", type=float, default=24.0)
    table_parser.add_argument("--step", type=int, default=60, help="minutes")
    return parser


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)


def _find(stations: dict[str, Station], name: str) -> Station:
    if name in stations:
        return stations[name]
    raise SystemExit(f"harbour-tides: no station {name!r}")


def main(argv: Sequence[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
    stations = load_stations(args.data)
    if args.command == "stations":
        lines = station_lines(stations.values())
    else:
        station = _find(stations, args.station)
        end = args.start + timedelta(hours=args.hours)
        lines = table_lines(station, table(station, args.start, end, timedelta(minutes=args.step)))
    for line in lines:
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
'''

BENCH = r'''"""Time one year of predictions. Run it before and after you touch predict.py."""

from __future__ import annotations

import sys
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

from harbour_tides import load_stations, table


def main() -> None:
    station = load_stations(Path("data/stations"))[sys.argv[1] if len(sys.argv) > 1 else "brest"]
    minutes = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    start = datetime(2026, 1, 1, tzinfo=timezone.utc)
    begun = time.perf_counter()
    count = sum(1 for _ in table(station, start, start + timedelta(days=365), timedelta(minutes=minutes)))
    seconds = time.perf_counter() - begun
    print(f"{station.id}: {count} heights in {seconds:.2f} s, {count / seconds:,.0f} a second")


if __name__ == "__main__":
    main()
'''

LIBRARY: dict[str, str] = {
    ".gitignore": "__pycache__/\n*.egg-info/\n.venv/\n.pytest_cache/\n.mypy_cache/\ndist/\n",
    "CHANGELOG.md": CHANGELOG,
    "README.md": README,
    "docs/station-format.md": STATION_FORMAT,
    "pyproject.toml": PYPROJECT,
    "scripts/bench.py": BENCH,
    "src/harbour_tides/__init__.py": INIT,
    "src/harbour_tides/astro.py": ASTRO,
    "src/harbour_tides/cache.py": CACHE,
    "src/harbour_tides/cli.py": CLI,
    "src/harbour_tides/constituents.py": CONSTITUENTS,
    "src/harbour_tides/format.py": FORMAT,
    "src/harbour_tides/predict.py": PREDICT,
    "src/harbour_tides/py.typed": "",
    "src/harbour_tides/stations.py": STATIONS,
}
