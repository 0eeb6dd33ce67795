"""The pretend library's tests, as the developer of the story found them."""

CONFTEST = r'''from __future__ import annotations

from pathlib import Path

import pytest

from harbour_tides.stations import Harmonic, Station

ROOT = Path(__file__).parents[1]


@pytest.fixture
def data() -> Path:
    return ROOT / "data" / "stations"


@pytest.fixture
def plain() -> Station:
    """A harbour with nothing but M2: one metre, no lag."""
    return Station("plain", "Plain", 0.0, 0.0, harmonics=(Harmonic("M2", 1.0, 0.0),))


@pytest.fixture
def mixed() -> Station:
    return Station(
        "mixed",
        "Mixed",
        0.0,
        0.0,
        z0=2.0,
        harmonics=(
            Harmonic("M2", 1.0, 40.0),
            Harmonic("S2", 0.4, 75.0),
            Harmonic("K1", 0.3, 110.0),
            Harmonic("O1", 0.2, 90.0),
        ),
    )
'''

TEST_ASTRO = r"""from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from harbour_tides.astro import argument, astro_at, node_factor
from harbour_tides.constituents import CONSTITUENTS, lookup

J2000 = datetime(2000, 1, 1, 12, tzinfo=timezone.utc)


def test_angles_at_the_epoch() -> None:
    a = astro_at(J2000)
    assert a.s == pytest.approx(218.316, abs=1e-3)
    assert a.h == pytest.approx(280.466, abs=1e-3)
    assert a.p == pytest.approx(83.353, abs=1e-3)
    assert a.N == pytest.approx(125.045, abs=1e-3)


def test_naive_is_utc() -> None:
    assert astro_at(datetime(2020, 5, 1, 3)) == astro_at(datetime(2020, 5, 1, 3, tzinfo=timezone.utc))


def test_node_goes_round_in_18_6_years() -> None:
    later = J2000 + timedelta(days=6798.4)
    assert astro_at(later).N == pytest.approx(astro_at(J2000).N, abs=0.1)


@pytest.mark.parametrize(
    ("name", "speed"),
    [
        ("M2", 28.9841042),
        ("S2", 30.0),
        ("N2", 28.4397295),
        ("K2", 30.0821373),
        ("K1", 15.0410686),
        ("O1", 13.9430356),
        ("P1", 14.9589314),
        ("Q1", 13.3986609),
        ("M4", 57.9682084),
        ("MF", 1.0980331),
    ],
)
def test_speeds(name: str, speed: float) -> None:
    assert lookup(name).speed == pytest.approx(speed, abs=2e-7)


@pytest.mark.parametrize("name", ["M2", "S2", "N2", "K2", "M4", "MS4", "M6"])
def test_argument_runs_at_the_speed(name: str) -> None:
    constituent = lookup(name)
    start = datetime(2026, 3, 17, tzinfo=timezone.utc)
    v0 = argument(constituent, astro_at(start))
    v1 = argument(constituent, astro_at(start + timedelta(hours=1)))
    assert (v1 - v0) % 360 == pytest.approx(constituent.speed, abs=1e-3)


@pytest.mark.parametrize(
    ("year", "f"),
    [(1997, 1.038), (2006, 0.963), (2015, 1.037), (2025, 0.964)],
)
def test_m2_node_factor_by_year(year: int, f: float) -> None:
    middle = datetime(year, 7, 2, tzinfo=timezone.utc)
    assert node_factor(lookup("M2"), astro_at(middle))[0] == pytest.approx(f, abs=2e-3)


def test_every_rule_exists() -> None:
    a = astro_at(J2000)
    for constituent in CONSTITUENTS.values():
        f, u = node_factor(constituent, a)
        assert 0.3 < f < 2.0
        assert -40 < u < 40
"""

TEST_STATIONS = r'''from __future__ import annotations

from pathlib import Path

import pytest

from harbour_tides.stations import StationError, load_station, load_stations, parse_station

ROOT = Path(__file__).parents[1]

GOOD = """
id: pier
name: Pier
lat: 50.1
lon: -4.2
tz: Europe/London
datum: LAT
z0: 3.2

[constituents]
M2  1.72  160.4   # the big one
S2  0.61  206.0
"""


def test_header() -> None:
    station = parse_station(GOOD)
    assert (station.id, station.name, station.lat, station.lon) == ("pier", "Pier", 50.1, -4.2)
    assert station.tz == "Europe/London"
    assert station.datum == "LAT"
    assert station.z0 == 3.2


def test_constituents_and_comments() -> None:
    m2, s2 = parse_station(GOOD).harmonics
    assert (m2.name, m2.amplitude, m2.phase) == ("M2", 1.72, 160.4)
    assert s2.name == "S2"


def test_other_spellings() -> None:
    station = parse_station(GOOD + "lambda2 0.02 170\n")
    assert station.harmonics[-1].name == "LAM2"


@pytest.mark.parametrize("line", ["M2", "M2 1.0", "M2 one 30"])
def test_bad_constituent(line: str) -> None:
    with pytest.raises(StationError, match="not a constituent"):
        parse_station(GOOD + line)


@pytest.mark.parametrize("key", ["id", "name", "lat", "lon"])
def test_missing_key(key: str) -> None:
    text = "\n".join(line for line in GOOD.splitlines() if not line.startswith(key))
    with pytest.raises(StationError, match=f"missing {key}"):
        parse_station(text)


def test_feet_become_metres() -> None:
    station = parse_station("units: ft\n" + GOOD)
    assert station.harmonics[0].amplitude == pytest.approx(1.72 * 0.3048)


@pytest.mark.parametrize("path", sorted((ROOT / "data" / "stations").glob("*.tide")), ids=lambda p: p.stem)
def test_bundled_station(path: Path) -> None:
    station = load_station(path)
    assert station.id == path.stem
    assert len(station.harmonics) >= 4


def test_load_folder(data: Path) -> None:
    stations = load_stations(data)
    assert "brest" in stations
'''

TEST_PREDICT = r"""from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from harbour_tides.predict import extremes, height, table
from harbour_tides.stations import Station

START = datetime(2026, 3, 17, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)


def test_mean_level(mixed: Station) -> None:
    heights = [p.height for p in table(mixed, START, START + timedelta(days=60), HOUR)]
    assert sum(heights) / len(heights) == pytest.approx(mixed.z0, abs=0.02)


def test_range_is_bounded(mixed: Station) -> None:
    bound = sum(h.amplitude for h in mixed.harmonics) * 1.2
    for prediction in table(mixed, START, START + timedelta(days=10), HOUR):
        assert abs(prediction.height - mixed.z0) <= bound


def test_table_includes_both_ends(plain: Station) -> None:
    rows = list(table(plain, START, START + 3 * HOUR, HOUR))
    assert [row.when for row in rows] == [START, START + HOUR, START + 2 * HOUR, START + 3 * HOUR]


def test_period_of_m2(plain: Station) -> None:
    period = timedelta(hours=360 / 28.9841042)
    assert height(plain, START) == pytest.approx(height(plain, START + period), abs=1e-3)


def test_extremes_alternate(plain: Station) -> None:
    kinds = [e.kind for e in extremes(plain, START, START + timedelta(days=3))]
    assert len(kinds) in (11, 12)
    assert all(a != b for a, b in zip(kinds, kinds[1:]))


def test_extremes_are_extreme(mixed: Station) -> None:
    for extreme in extremes(mixed, START, START + timedelta(days=5)):
        near = [height(mixed, extreme.when + timedelta(minutes=m)) for m in (-20, 20)]
        if extreme.kind == "high":
            assert extreme.height >= max(near)
        else:
            assert extreme.height <= min(near)
"""

TEST_CACHE = r"""from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path

import pytest

from harbour_tides.astro import astro_at, node_factor
from harbour_tides.cache import NodeCache, default_folder
from harbour_tides.constituents import lookup

NOON = datetime(2026, 3, 17, 12, tzinfo=timezone.utc)


def test_same_as_computed(tmp_path: Path) -> None:
    cache = NodeCache(tmp_path)
    assert cache.node_factor(lookup("M2"), NOON) == node_factor(lookup("M2"), astro_at(NOON))


def test_one_file_a_year(tmp_path: Path) -> None:
    cache = NodeCache(tmp_path)
    cache.node_factor(lookup("M2"), NOON)
    cache.node_factor(lookup("M2"), NOON.replace(year=2027))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["node-2026.json", "node-2027.json"]


def test_second_cache_reads_the_file(tmp_path: Path) -> None:
    NodeCache(tmp_path).node_factor(lookup("K2"), NOON)
    stored = json.loads((tmp_path / "node-2026.json").read_text())
    stored["K2/076"] = [9.0, 9.0]
    (tmp_path / "node-2026.json").write_text(json.dumps(stored))
    assert NodeCache(tmp_path).node_factor(lookup("K2"), NOON) == (9.0, 9.0)


def test_notices_a_newer_file(tmp_path: Path) -> None:
    first, second = NodeCache(tmp_path), NodeCache(tmp_path)
    first.node_factor(lookup("M2"), NOON)
    second.node_factor(lookup("O1"), NOON)
    first.node_factor(lookup("K1"), NOON)
    stored = json.loads((tmp_path / "node-2026.json").read_text())
    assert sorted(stored) == ["K1/076", "M2/076", "O1/076"]


def test_folder_from_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARBOUR_TIDES_CACHE", "/somewhere/else")
    assert default_folder() == Path("/somewhere/else")
"""

TEST_CLI = r'''from __future__ import annotations

from pathlib import Path

import pytest

from harbour_tides.cli import main

PIER = """
id: pier
name: Pier
lat: 50.1
lon: -4.2
tz: Europe/London
datum: LAT
z0: 3.2

[constituents]
M2  1.72  160.4
S2  0.61  206.0
N2  0.33  142.0
K2  0.18  204.1
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pier.tide").write_text(PIER)
    return tmp_path


def test_stations(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--data", str(folder), "stations"]) == 0
    assert capsys.readouterr().out.startswith("pier           Pier")


def test_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--data", str(folder), "table", "pier", "--from", "2026-03-17", "--hours", "3"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Pier (50.10, -4.20), heights in m above LAT"
    assert lines[2] == "Tue 17 Mar 2026"
    assert [line[2:7] for line in lines[3:]] == ["00:00", "01:00", "02:00", "03:00"]


def test_step(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--data", str(folder), "table", "pier", "--from", "2026-03-17", "--hours", "1", "--step", "20"])
    assert len(capsys.readouterr().out.splitlines()) == 3 + 4


def test_unknown_station(folder: Path) -> None:
    with pytest.raises(SystemExit, match="no station 'nowhere'"):
        main(["--data", str(folder), "table", "nowhere", "--from", "2026-03-17"])
'''

CHECKS: dict[str, str] = {
    "tests/conftest.py": CONFTEST,
    "tests/test_astro.py": TEST_ASTRO,
    "tests/test_cache.py": TEST_CACHE,
    "tests/test_cli.py": TEST_CLI,
    "tests/test_predict.py": TEST_PREDICT,
    "tests/test_stations.py": TEST_STATIONS,
}
