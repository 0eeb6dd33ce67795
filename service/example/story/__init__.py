"""The story of the session: one long working day, a chapter a function, in order."""

from collections.abc import Callable

from context_paging.service.example.checkout import Checkout
from context_paging.service.example.recorder import Recorder
from context_paging.service.example.story import afternoon, arrival, high_waters, phases, speed

COMMITS = (
    ("b41c7e2", "Release 0.4.2"),
    ("77d0a95", "Cache node factors on disk"),
    ("e2f6013", "table --step takes minutes"),
    ("0c9be58", "Add Hòn Dấu and Immingham"),
    ("9a1f4d7", "Release 0.4.1"),
    ("5d83c1e", "Long-period constituents"),
    ("c2207fb", "Release 0.4.0"),
    ("318ae90", "Station format 2"),
    ("f00d4a1", "Import from the old repository"),
)
"""What `git log` tells at the start, newest first."""

CHAPTERS: tuple[Callable[[Recorder, Checkout], None], ...] = (
    arrival.look_around,
    arrival.mend_the_parser,
    arrival.report_bad_files,
    arrival.mend_feet,
    phases.upside_down,
    phases.reference_values,
    phases.windows_build,
    high_waters.double_high_water,
    high_waters.keep_both,
    high_waters.extremes_command,
    speed.flaky_test,
    speed.make_it_fast,
    speed.note_the_change,
    afternoon.compact_the_morning,
    afternoon.name_the_sources,
    afternoon.require_a_source,
    afternoon.compare_with_the_gauge,
    afternoon.check_every_harbour,
    afternoon.release,
)
