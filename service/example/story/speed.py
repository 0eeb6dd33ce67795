"""Around noon: a flaky test, then a year of heights that takes too long, with one branch that is given up."""

from context_paging.service.example.captures import captured
from context_paging.service.example.checkout import Call, Checkout
from context_paging.service.example.recorder import Recorder

LUNCH = 47 * 60.0


def flaky_test(pi: Recorder, repo: Checkout) -> None:
    """Two clocks in one comparison."""
    pi.user(
        "Next: `test_notices_a_newer_file` fails on CI in about every second run and never on my laptop. Jonas had "
        "marked it as flaky and re-ran it three times. I want the reason, not a retry.",
    )
    pi.use(
        "",
        repo.read("src/harbour_tides/cache.py"),
        repo.read("tests/test_cache.py"),
        repo.bash("gh run view 1187 --log-failed | tail -32", _CI_LOG, 2.1),
    )
    pi.use(
        "The list on CI lacks `O1/076`: the first cache overwrote the file with its own, older view. It did not "
        "notice that the second one had written in between. Can I make it happen here?",
        repo.bash(
            "for i in $(seq 200); do .venv/bin/pytest -q tests/test_cache.py 2>&1 | tail -1; done | sed 's/ in .*//' | sort | uniq -c",
            "    200 5 passed",
            118.0,
        ),
        repo.bash(
            "uname -r; stat -f -c 'file system %T' .; gh run view 1187 --json headSha,createdAt",
            _MACHINES,
            1.2,
        ),
        thinking=(
            "_year(): `path.stat().st_mtime <= self._loaded[year]` where _loaded = time.time() right after the "
            "write. If the file system stamps files with a coarse clock (the kernel's tick, 1-10 ms), a file "
            "written 1 ms after `_loaded` was taken can carry an mtime *before* `_loaded`. Then the comparison "
            "says 'not newer'. Newer kernels (6.13+) have multigrain timestamps: fine-grained when someone "
            "looks. Mara's laptop has 6.14, the runner 6.8. That explains never/every second run. Simulate: "
            "round the mtime down to 4 ms after each write."
        ),
    )
    pi.use(
        "A suspicion: the code compares a file's mtime with `time.time()`. Those are different clocks. Before Linux "
        "6.13 a file is stamped with the time of the last kernel tick, up to 4 ms (or 10) ago, so a file written "
        "*after* `_loaded` was taken can look *older*. This laptop has 6.14, the runner 6.8. I can imitate the "
        "runner by rounding each stamp down to a tick:",
        repo.run(
            ".venv/bin/python - <<'EOF'\n"
            "import json, os, tempfile\n"
            "from datetime import datetime, timezone\n"
            "from pathlib import Path\n"
            "from harbour_tides.cache import NodeCache\n"
            "from harbour_tides.constituents import lookup\n"
            "write = Path.write_text\n"
            "def coarse(self, *args, **kwargs):\n"
            "    write(self, *args, **kwargs)\n"
            "    stamp = self.stat().st_mtime_ns // 4_000_000 * 4_000_000\n"
            "    os.utime(self, ns=(stamp, stamp))\n"
            "noon = datetime(2026, 3, 17, 12, tzinfo=timezone.utc)\n"
            "for name, function in (('fine', write), ('coarse', coarse)):\n"
            "    Path.write_text = function\n"
            "    lost = 0\n"
            "    for _ in range(200):\n"
            "        folder = Path(tempfile.mkdtemp())\n"
            "        a, b = NodeCache(folder), NodeCache(folder)\n"
            "        a.node_factor(lookup('M2'), noon); b.node_factor(lookup('O1'), noon); a.node_factor(lookup('K1'), noon)\n"
            "        lost += len(json.loads((folder / 'node-2026.json').read_text())) < 3\n"
            "    print(f'{name:<7} stamps: {lost} of 200 lose a key')\n"
            "EOF",
            "coarse-clock",
            seconds=0.6,
        ),
    )
    pi.use(
        "Reproduced, and it is a real bug: two cron jobs at once lose each other's work. The cure is not to compare "
        "clocks at all. I remember what the file looked like when I last touched it (stamp in nanoseconds *and* size, "
        "which grows with every key), reload when that differs, and merge before writing.",
        repo.write("src/harbour_tides/cache.py", _MERGING_CACHE),
        repo.edit(
            "tests/test_cache.py",
            (
                "def test_notices_a_newer_file(tmp_path: Path) -> None:\n",
                '@pytest.fixture(params=[1, 4_000_000, 1_000_000_000], ids=["1 ns", "4 ms", "1 s"])\n'
                "def tick(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:\n"
                '    """File systems stamp files with clocks of different grain."""\n'
                "    replace = os.replace\n\n"
                "    def coarse(source: Path, target: Path) -> None:\n"
                "        replace(source, target)\n"
                "        stamp = os.stat(target).st_mtime_ns // request.param * request.param\n"
                "        os.utime(target, ns=(stamp, stamp))\n\n"
                '    monkeypatch.setattr(os, "replace", coarse)\n\n\n'
                '@pytest.mark.usefixtures("tick")\n'
                "def test_notices_a_newer_file(tmp_path: Path) -> None:\n",
            ),
            ("import json\nfrom datetime", "import json\nimport os\nfrom datetime"),
        ),
        repo.run(".venv/bin/pytest tests/test_cache.py -v", "ticks", seconds=0.3),
    )
    pi.use(
        "Green with all three grains of time. As a counter-check, the old cache against the new test:",
        repo.run(
            "cp src/harbour_tides/cache.py /tmp/new-cache.py && "
            "sed -i 's/    if state is not None and state == self._known.get(year)/    if state is not None and state[0] <= time.time_ns()/' "
            "src/harbour_tides/cache.py && .venv/bin/pytest -q --tb=line tests/test_cache.py; mv /tmp/new-cache.py src/harbour_tides/cache.py",
            "old-comparison",
            seconds=0.5,
        ),
        repo.pytest("-q", seconds=6.4),
    )
    pi.use("", repo.commit("Node cache: compare files with themselves, not with the clock"))
    pi.stop(
        'The reason: `NodeCache` asked "is the file newer than the moment I read it?" and took the two times from two '
        "clocks. Kernels before 6.13 stamp files with the last tick, so a file written a millisecond later could look "
        "older. Then the second writer's keys were overwritten.\n\n"
        "Now the cache remembers stamp and size of the file as it last saw it, merges before writing, and replaces "
        "the file in one step. The test runs with three grains of time, so it would fail here too. You can remove the "
        "retry from the CI configuration."
    )


def make_it_fast(pi: Recorder, repo: Checkout) -> None:
    """Measure, go the wrong way, come back, go the right way."""
    measured = profile(pi, repo)
    processes(pi, repo, measured)
    faster(pi, repo)


def profile(pi: Recorder, repo: Checkout) -> str:
    """Where the time goes. Returns the entry that the story comes back to."""
    pi.user(
        "Back from lunch 🥖. The notice boards: once a night we compute a year in steps of ten minutes for all "
        "stations, and it takes most of an hour on the little machine. Measure where the time goes before "
        "you propose anything.",
        wait=LUNCH,
    )
    pi.use(
        "",
        repo.read("scripts/bench.py"),
        repo.run(
            "rm -rf ~/.cache/harbour-tides; .venv/bin/python scripts/bench.py brest 60",
            "bench-cold",
            seconds=9,
        ),
        repo.run(
            ".venv/bin/python scripts/bench.py brest 10 && .venv/bin/python scripts/bench.py hon-dau 10",
            "bench-before",
            seconds=14,
        ),
        repo.read("src/harbour_tides/predict.py"),
    )
    pi.use(
        "",
        repo.run(
            ".venv/bin/python -m cProfile -s tottime scripts/bench.py brest 60 | head -34",
            "profile",
            seconds=4.8,
        ),
        thinking=(
            "Cold run: every new key rewrites and merges the whole year file: 22 constituents * 365 days = 8030 writes of a growing "
            "JSON file. Quadratic. Warm run: stat() per constituent and instant."
        ),
    )
    return pi.stop(
        "Measured, nothing changed yet:\n\n"
        "1. **The disk cache costs far more than it saves.** In a warm run most of the time is `stat` and `pathlib` in "
        "`NodeCache._year`: one look at the file for every constituent at every step. In a cold run each new key "
        "rewrites the file of the year, 8,030 times for Brest. What it saves is a handful of cosines a day.\n"
        "2. After that come `astro_at` and `argument`, which start from scratch at every step although the angles "
        "run evenly through a day.\n"
        "3. The cosines themselves, which we cannot avoid, are about a tenth.\n\n"
        "I would throw the disk cache out and prepare each day once. Then numpy, only if that is not enough."
    )


def processes(pi: Recorder, repo: Checkout, back: str) -> None:
    """The side branch: one process a station. It is given up, and the story goes on from an earlier entry."""
    before = dict(repo.files)
    pi.user(
        "Wouldn't it be simpler to run the stations in parallel? The machine has four cores. Try that first."
    )
    pi.use(
        "Let me try it in the benchmark, without touching the library.",
        repo.write("scripts/bench_all.py", _BENCH_ALL),
        repo.run(
            ".venv/bin/python scripts/bench_all.py 60 1; .venv/bin/python scripts/bench_all.py 60 4",
            "processes",
            seconds=41,
        ),
    )
    pi.use(
        "",
        repo.run(
            "rm -rf ~/.cache/harbour-tides; .venv/bin/python scripts/bench_all.py 360 4",
            "processes-cold",
            seconds=60,
        ),
        repo.bash(
            "nproc; free -h | head -2",
            "4\n               total        used        free      shared  buff/cache   available\nMem:           1.9Gi       611Mi       402Mi        18Mi       950Mi       1.2Gi",
            0.02,
        ),
        thinking="Cold with four processes: all of them rewrite the same node-2026.json. Contention by design.",
    )
    pi.use(
        "Warm it gains what you would expect, but cold the processes fight over one file: each "
        "merges and rewrites `node-2026.json` for every key. A file a process would help:",
        repo.edit(
            "scripts/bench_all.py",
            (
                "    station = load_stations(DATA)[name]\n",
                '    os.environ["HARBOUR_TIDES_CACHE"] = f"/tmp/harbour-tides-{os.getpid()}"\n'
                "    station = load_stations(DATA)[name]\n",
            ),
            ("import sys\n", "import os\nimport sys\n"),
        ),
        repo.run(".venv/bin/python scripts/bench_all.py 360 4", "processes-own", seconds=28),
    )
    pi.stop(
        "Four processes help by the number of cores at best, and only when the cache is warm. Cold, they spend "
        "their time on rewriting JSON. It also means that the cron job needs a pool, a start method that works on "
        "Windows, and four times the memory. I would not go this way."
    )
    repo.files = before
    pi.navigate(back, _BRANCH_SUMMARY)


def faster(pi: Recorder, repo: Checkout) -> None:
    """Days are prepared once; the disk cache goes. One provider call fails in the middle and is tried again."""
    pi.user(
        "OK, your way: no processes (I put the tree back). Drop the disk cache, prepare each day once. Keep the "
        "results equal to 1e-9, I want a test for that against the old formula. numpy only as an extra, and "
        "only if it is worth it.",
    )
    pi.use(
        "",
        repo.grep("NodeCache|node_factor|HARBOUR_TIDES_CACHE|harbour_tides.cache", "."),
        repo.sed("src/harbour_tides/predict.py", 1, 62),
        thinking=(
            "Plan: _waves(station, when) -> prepared per UTC day. For each harmonic: speed in rad/h, f*A, and "
            "angle at midnight = V(midnight) + u(noon) - g. Then angle(when) = angle0 + speed * hours. Is V linear in "
            "time to 1e-9? The mean longitudes are linear in t here (no quadratic terms), T is exactly 15 h. The "
            "speeds in RATES are rounded to 7 digits though: 0.5490165 versus 481267.88134236/36525/24 = 0.54901653. "
            "An error of 3e-8 deg/h * 24 h = 7e-7 deg = 1.2e-8 rad * 2 m: 2.5e-8 m. Bigger than 1e-9! So derive the "
            "angle's speed from the two ends of the day instead: (V(24h) - V(0h)) / 24, or compute from the "
            "coefficients. Simplest: hourly rates from Meeus coefficients in astro.py, as a function "
            "`rate(constituent)`."
        ),
    )
    failed_before = pi.provider_error(
        '529 {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"req_011CZ4mVd8sTq"}'
    )
    del failed_before
    pi.use(
        "One trap: `RATES` in `constituents.py` is rounded to seven digits. Over a day that adds up to 2.5e-8 m for M2, "
        "more than your 1e-9. So the speed within a day must come from the same coefficients as the angles. "
        "I'll put them in one table in `astro.py`.",
        repo.edit(
            "src/harbour_tides/astro.py",
            (
                "DAYS_PER_CENTURY = 36525.0\n",
                "DAYS_PER_CENTURY = 36525.0\n"
                "HOURS_PER_CENTURY = DAYS_PER_CENTURY * 24\n\n"
                "#: Degrees at the epoch, and degrees a century, of s, h, p, N and p1.\n"
                "MEAN = {\n"
                '    "s": (218.3164591, 481267.88134236),\n'
                '    "h": (280.4664472, 36000.7698231),\n'
                '    "p": (83.3532430, 4069.0137111),\n'
                '    "N": (125.0445550, -1934.1361849),\n'
                '    "p1": (282.9373480, 1.7195366),\n'
                "}\n",
            ),
            (
                "        s=(218.3164591 + 481267.88134236 * t) % 360.0,\n"
                "        h=(280.4664472 + 36000.7698231 * t) % 360.0,\n"
                "        p=(83.3532430 + 4069.0137111 * t) % 360.0,\n"
                "        N=(125.0445550 - 1934.1361849 * t) % 360.0,\n"
                "        p1=(282.9373480 + 1.7195366 * t) % 360.0,\n"
                "    )\n",
                "        **{name: (start + rate * t) % 360.0 for name, (start, rate) in MEAN.items()},\n"
                "    )\n\n\n"
                "def rate(constituent: Constituent) -> float:\n"
                '    """Degrees an hour by which `argument` grows, to the last digit."""\n'
                "    n_t, *others = constituent.doodson\n"
                "    signs = (1, 1, 1, -1, 1)\n"
                "    hourly = (per_century / HOURS_PER_CENTURY for _, per_century in MEAN.values())\n"
                "    return n_t * 15.0 + sum(n * sign * speed for n, sign, speed in zip(others, signs, hourly))\n",
            ),
        ),
        repo.pytest("tests/test_astro.py -q", seconds=0.41),
    )
    pi.use(
        "Now the day. The old sum moves into the tests as the reference, word for word.",
        repo.edit(
            "src/harbour_tides/predict.py",
            (
                "def _waves(station: Station, when: datetime) -> Iterator[tuple[float, float, float]]:\n"
                '    """Speed in radians an hour, amplitude and angle of each constituent."""\n'
                "    a = astro_at(when)\n"
                "    for harmonic in station.harmonics:\n"
                "        constituent = lookup(harmonic.name)\n"
                "        f, u = _cache.node_factor(constituent, when)\n"
                "        angle = argument(constituent, a) + u - harmonic.phase\n"
                "        yield math.radians(constituent.speed), f * harmonic.amplitude, math.radians(angle)\n",
                "@dataclass(frozen=True)\n"
                "class _Wave:\n"
                '    """A constituent within one day: radians an hour, metres, and the angle at midnight UTC."""\n\n'
                "    speed: float\n    size: float\n    start: float\n\n\n"
                "@lru_cache(maxsize=2048)\n"
                "def _day(harmonics: tuple[Harmonic, ...], day: date) -> tuple[_Wave, ...]:\n"
                '    """Angles run evenly through a day, and node factors hardly move: those of noon will do."""\n'
                "    midnight = datetime.combine(day, time(), timezone.utc)\n"
                "    a, noon = astro_at(midnight), astro_at(midnight + timedelta(hours=12))\n"
                "    waves = []\n"
                "    for harmonic in harmonics:\n"
                "        constituent = lookup(harmonic.name)\n"
                "        f, u = node_factor(constituent, noon)\n"
                "        start = argument(constituent, a) + u - harmonic.phase\n"
                "        speed = math.radians(rate(constituent))\n"
                "        waves.append(_Wave(speed, f * harmonic.amplitude, math.radians(start)))\n"
                "    return tuple(waves)\n\n\n"
                "def _at(station: Station, when: datetime) -> tuple[tuple[_Wave, ...], float]:\n"
                '    """The waves of a moment\'s day, and the hours since midnight."""\n'
                "    utc = when.astimezone(timezone.utc) if when.tzinfo else when.replace(tzinfo=timezone.utc)\n"
                "    hours = utc.hour + utc.minute / 60 + (utc.second + utc.microsecond / 1e6) / 3600\n"
                "    return _day(station.harmonics, utc.date()), hours\n",
            ),
            (
                "    return station.z0 + sum(size * math.cos(angle) for _, size, angle in _waves(station, when))\n",
                "    waves, hours = _at(station, when)\n"
                "    return station.z0 + sum(w.size * math.cos(w.start + w.speed * hours) for w in waves)\n",
            ),
            (
                "    return -sum(speed * size * math.sin(angle) for speed, size, angle in _waves(station, when))\n",
                "    waves, hours = _at(station, when)\n"
                "    return -sum(w.speed * w.size * math.sin(w.start + w.speed * hours) for w in waves)\n",
            ),
            (
                "from datetime import datetime, timedelta\n\n"
                "from harbour_tides.astro import argument, astro_at\n"
                "from harbour_tides.cache import NodeCache\n"
                "from harbour_tides.constituents import lookup\n"
                "from harbour_tides.stations import Station\n\n"
                "_cache = NodeCache()\n\n",
                "from datetime import date, datetime, time, timedelta, timezone\n"
                "from functools import lru_cache\n\n"
                "from harbour_tides.astro import argument, astro_at, node_factor, rate\n"
                "from harbour_tides.constituents import lookup\n"
                "from harbour_tides.stations import Harmonic, Station\n\n",
            ),
        ),
        repo.edit(
            "tests/test_predict.py",
            (
                "def test_mean_level(",
                "def reference(station: Station, when: datetime) -> float:\n"
                '    """The plain sum, each constituent from scratch."""\n'
                "    a, noon = astro_at(when), astro_at(when.replace(hour=12, minute=0, second=0, microsecond=0))\n"
                "    total = station.z0\n"
                "    for harmonic in station.harmonics:\n"
                "        constituent = lookup(harmonic.name)\n"
                "        f, u = node_factor(constituent, noon)\n"
                "        angle = argument(constituent, a) + u - harmonic.phase\n"
                "        total += f * harmonic.amplitude * math.cos(math.radians(angle))\n"
                "    return total\n\n\n"
                '@pytest.mark.parametrize("id", ["brest", "hon-dau", "southampton"])\n'
                "def test_same_as_the_plain_sum(id: str, data: Path) -> None:\n"
                '    station = load_station(data / f"{id}.tide")\n'
                "    for hours in range(0, 24 * 400, 37):\n"
                "        when = START + hours * HOUR + timedelta(minutes=hours % 60)\n"
                "        assert height(station, when) == pytest.approx(reference(station, when), abs=1e-9)\n\n\n"
                "def test_mean_level(",
            ),
            (
                "from datetime import datetime, timedelta, timezone\nfrom pathlib import Path\n\nimport pytest\n\n",
                "import math\nfrom datetime import datetime, timedelta, timezone\nfrom pathlib import Path\n\nimport pytest\n\n"
                "from harbour_tides.astro import argument, astro_at, node_factor\n"
                "from harbour_tides.constituents import lookup\n",
            ),
        ),
        repo.run(".venv/bin/pytest -q tests/test_predict.py", "plain-sum", seconds=1.9),
    )
    pi.use(
        "Equal to 1e-9. Now the cache can go, with its tests and its environment variable.",
        _remove(repo, "src/harbour_tides/cache.py", "tests/test_cache.py"),
        repo.grep("cache|Cache", "."),
        repo.run(
            ".venv/bin/python scripts/bench.py brest 10 && .venv/bin/python scripts/bench.py hon-dau 10",
            "bench-days",
            seconds=3,
        ),
    )
    pi.use(
        "",
        repo.run(
            ".venv/bin/python -m cProfile -s tottime scripts/bench.py brest 10 | head -24",
            "profile-days",
            seconds=2.4,
        ),
        thinking=(
            "What's left: hashing the tuple of Harmonics for each lru_cache lookup. Station.harmonics has 22 "
            "dataclasses, each hash is a Python-level call: __hash__ of a frozen dataclass. For the "
            "table, get the day once per day instead of once per instant. numpy would then do the cosines of a day at "
            "once."
        ),
    )
    pi.use(
        "Most of what remains is hashing the harmonics for the look-up of the day, at every step. `table` knows when "
        "the day changes, so it can look up once a day:",
        repo.edit(
            "src/harbour_tides/predict.py",
            (
                "    when = start\n    while when <= end:\n        yield Prediction(when, height(station, when))\n        when += step\n",
                "    day, waves = None, ()\n"
                "    when = start\n"
                "    while when <= end:\n"
                "        utc = _utc(when)\n"
                "        if utc.date() != day:\n"
                "            day = utc.date()\n"
                "            waves = _day(station.harmonics, day)\n"
                "        yield Prediction(when, station.z0 + _sum(waves, _hours(utc)))\n"
                "        when += step\n",
            ),
            (
                "    waves, hours = _at(station, when)\n"
                "    return station.z0 + sum(w.size * math.cos(w.start + w.speed * hours) for w in waves)\n",
                "    utc = _utc(when)\n"
                "    return station.z0 + _sum(_day(station.harmonics, utc.date()), _hours(utc))\n",
            ),
            (
                "    waves, hours = _at(station, when)\n    return -sum(",
                "    utc = _utc(when)\n    waves, hours = _day(station.harmonics, utc.date()), _hours(utc)\n    return -sum(",
            ),
            (
                "def _at(station: Station, when: datetime) -> tuple[tuple[_Wave, ...], float]:\n"
                '    """The waves of a moment\'s day, and the hours since midnight."""\n'
                "    utc = when.astimezone(timezone.utc) if when.tzinfo else when.replace(tzinfo=timezone.utc)\n"
                "    hours = utc.hour + utc.minute / 60 + (utc.second + utc.microsecond / 1e6) / 3600\n"
                "    return _day(station.harmonics, utc.date()), hours\n",
                "def _sum(waves: tuple[_Wave, ...], hours: float) -> float:\n"
                "    return sum([w.size * math.cos(w.start + w.speed * hours) for w in waves])\n\n\n"
                "def _utc(when: datetime) -> datetime:\n"
                "    return when.astimezone(timezone.utc) if when.tzinfo else when.replace(tzinfo=timezone.utc)\n\n\n"
                "def _hours(utc: datetime) -> float:\n"
                "    return utc.hour + utc.minute / 60 + (utc.second + utc.microsecond / 1e6) / 3600\n",
            ),
        ),
        repo.run(
            ".venv/bin/python scripts/bench.py brest 10 && .venv/bin/python scripts/bench.py hon-dau 10",
            "bench-table",
            seconds=2,
        ),
        repo.pytest("-q", seconds=2.35),
    )
    pi.use(
        "For completeness, what would numpy add? A sketch outside the library:",
        repo.run(
            ".venv/bin/python - <<'EOF'\n"
            "import time\n"
            "from datetime import date, timedelta\n"
            "from pathlib import Path\n"
            "import numpy as np\n"
            "from harbour_tides import load_stations\n"
            "from harbour_tides.predict import _day\n"
            "s = load_stations(Path('data/stations'))['brest']\n"
            "hours = np.arange(0, 24, 1 / 6)\n"
            "begun = time.perf_counter()\n"
            "n = 0\n"
            "for i in range(365):\n"
            "    w = _day(s.harmonics, date(2026, 1, 1) + timedelta(days=i))\n"
            "    speed, size, start = (np.array([getattr(x, k) for x in w]) for k in ('speed', 'size', 'start'))\n"
            "    n += len(s.z0 + size @ np.cos(start[:, None] + speed[:, None] * hours))\n"
            "print(f'{n} heights in {time.perf_counter() - begun:.3f} s')\n"
            "EOF",
            "numpy-sketch",
            seconds=0.4,
        ),
    )
    pi.stop(
        "A year of Brest in steps of ten minutes went from the first line of these to the second:\n\n"
        "```\n{before}\n{after}\n```\n\n"
        "- The disk cache is gone, with `HARBOUR_TIDES_CACHE` and its tests. The flaky test went with it, which I "
        "admit is funny after this morning.\n"
        "- Each day is prepared once; within a day every angle runs evenly. Equal to the plain sum within 1e-9 m over "
        "400 days, tested for three harbours.\n"
        "- numpy would be a few times faster still, but eight stations now take seconds. I left it out: no "
        "dependency, no second code path.".format(
            before=_first_line("bench-before"), after=_first_line("bench-table")
        )
    )


def note_the_change(pi: Recorder, repo: Checkout) -> None:
    """The changelog, and a commit."""
    pi.user("Very good, and I agree on numpy. Write the changelog (Unreleased) and commit.")
    pi.use(
        "",
        repo.edit(
            "CHANGELOG.md",
            (
                "# Changelog\n\n",
                "# Changelog\n\n"
                "## Unreleased\n\n"
                "- Station files may be Latin-1, may have decimal commas and full-width punctuation.\n"
                "- A bad station file is reported and left out instead of stopping every command.\n"
                "- `z0` of stations in feet was not converted. Boston was 3.6 m too high.\n"
                "- Diurnal constituents were half a turn off since 0.4.1.\n"
                "- High and low waters are found by the slope of the curve; double high waters are no longer missed.\n"
                "- New command `extremes`, with `--days` and `--min-range`.\n"
                "- The disk cache of node factors is gone, and with it `HARBOUR_TIDES_CACHE`. Tables are much faster.\n"
                "- Runs on Windows.\n\n",
            ),
        ),
        repo.commit("Prepare each day once; drop the disk cache"),
    )
    pi.stop("Changelog written, committed.")


def _remove(repo: Checkout, *paths: str) -> Call:
    for path in paths:
        del repo.files[path]
    return repo.bash(f"git rm -q {' '.join(paths)}", "", 0.02)


def _first_line(name: str) -> str:
    return captured(name).splitlines()[0]


_CI_LOG = """\
py3.10  Run tests   tests/test_cache.py::test_notices_a_newer_file FAILED
py3.10  Run tests
py3.10  Run tests   tmp_path = PosixPath('/tmp/pytest-of-runner/pytest-0/test_notices_a_newer_file0')
py3.10  Run tests
py3.10  Run tests       def test_notices_a_newer_file(tmp_path: Path) -> None:
py3.10  Run tests           first, second = NodeCache(tmp_path), NodeCache(tmp_path)
py3.10  Run tests           first.node_factor(lookup("M2"), NOON)
py3.10  Run tests           second.node_factor(lookup("O1"), NOON)
py3.10  Run tests           first.node_factor(lookup("K1"), NOON)
py3.10  Run tests           stored = json.loads((tmp_path / "node-2026.json").read_text())
py3.10  Run tests   >       assert sorted(stored) == ["K1/076", "M2/076", "O1/076"]
py3.10  Run tests   E       AssertionError: assert ['K1/076', 'M2/076'] == ['K1/076', 'M2/076', 'O1/076']
py3.10  Run tests   E         At index 2 diff: no more items in the left list, 'O1/076' is missing
py3.10  Run tests   E         Full diff:
py3.10  Run tests   E           ['K1/076', 'M2/076',
py3.10  Run tests   E         -  'O1/076',
py3.10  Run tests   E           ]
py3.10  Run tests
py3.10  Run tests   tests/test_cache.py:43: AssertionError
py3.10  Run tests   1 failed, 59 passed in 1.94s
py3.10  Run tests   Process completed with exit code 1."""

_MACHINES = """\
6.14.4-arch1-1
file system ext2/ext3
{"createdAt":"2026-03-16T21:04:18Z","headSha":"b41c7e2c0d9f4b0f8a6d3e5c1f7b2a90d4e6c813"}
(runner image: ubuntu-24.04, kernel 6.8.0-1021)"""

_MERGING_CACHE = '''\
"""Node factors change slowly. Keep them on disk, one file a year.

Several processes may share the folder. A file is compared with what it was when this process last touched it,
never with the clock: the file system's clock is not ours, and often a coarse one.
"""

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
        self._known: dict[int, tuple[int, int] | None] = {}

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
        state = _state(path)
        if state is not None and state == self._known.get(year):
            return self._years[year]
        self._years[year] = {**self._years.get(year, {}), **_read(path)}
        self._known[year] = state
        return self._years[year]

    def _save(self, year: int) -> None:
        path = self._path(year)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._years[year] = {**_read(path), **self._years[year]}
        fresh = path.with_suffix(f".{os.getpid()}.tmp")
        fresh.write_text(json.dumps(self._years[year]))
        os.replace(fresh, path)
        self._known[year] = _state(path)


def _state(path: Path) -> tuple[int, int] | None:
    """What tells one version of a file from another: its stamp and its size, which grows with every key."""
    try:
        info = path.stat()
    except FileNotFoundError:
        return None
    return info.st_mtime_ns, info.st_size


def _read(path: Path) -> dict[str, list[float]]:
    state = _state(path)
    if state is None or time.time() - state[0] / 1e9 > MAX_AGE:
        return {}
    stored: dict[str, list[float]] = json.loads(path.read_text())
    return stored
'''

_BENCH_ALL = '''\
"""One year of all stations, in one process or in several."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path

from harbour_tides import load_stations, table

DATA = Path("data/stations")
START = datetime(2026, 1, 1, tzinfo=timezone.utc)


def year(name: str, minutes: int) -> int:
    station = load_stations(DATA)[name]
    return sum(1 for _ in table(station, START, START + timedelta(days=365), timedelta(minutes=minutes)))


def main() -> None:
    minutes, workers = int(sys.argv[1]), int(sys.argv[2])
    names = sorted(load_stations(DATA))
    begun = time.perf_counter()
    with ProcessPoolExecutor(workers) as pool:
        total = sum(pool.map(year, names, [minutes] * len(names)))
    seconds = time.perf_counter() - begun
    print(f"{workers} processes: {total} heights in {seconds:.1f} s, {total / seconds:,.0f} a second")


if __name__ == "__main__":
    main()
'''

_BRANCH_SUMMARY = """\
Tried one process a station (scripts/bench_all.py, ProcessPoolExecutor), without changes to the library.

With a warm node cache four processes were faster by about the number of cores. With a cold cache they were slow,
because every process merges and rewrites the same node-2026.json for each new key; a cache folder for each process
helped only a little. Memory grows with the number of processes, and the cron job would need a pool that also starts
on Windows.

Result: not worth it. The disk cache is the cause, not the lack of cores. scripts/bench_all.py is to be thrown away."""
