"""Changes to JSON values that keep them JSON: most inputs reach what is behind the parser then."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

ATOMS: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 3, 7, 0.5, 1.0, -0.0, 1e-7, 1e308, float("inf"), float("-inf")),
    *(2**31, 2**53 - 1, 2**53, 2**63 - 1, 2**63, -(2**63) - 1, 10**30, 10**400),
    *(
        "",
        "a",
        "b",
        "1",
        "\x00",
        "\ud83d",
        "\udc00",
        "\ufdd0d83d",
        "\ufeff",
        "ü😀",
        "x" * 300,
        "NaN",
        "-1",
        "1e5",
    ),
    *([], {}, [[]], [{}], [None], {"": None}),
)
DEPTHS = (2, 5, 50, 150, 240, 330, 490, 700, 900, 960, 985, 1_500)
_INFINITE = re.compile(r'"(?:[^"\\]|\\.)*"|Infinity')


def words(name: str) -> tuple[str, ...]:
    """Texts of a kind that mean something to what is fuzzed."""
    return tuple((Path(__file__).parents[1] / "words" / f"{name}.txt").read_text("ascii").split())


def dumped(value: Any) -> bytes:
    """A value as JSON in ASCII; an infinite number as one that is read as such."""
    text = json.dumps(value)
    if "Infinity" in text:
        text = _INFINITE.sub(lambda found: "1e999" if found[0] == "Infinity" else found[0], text)
    return text.encode()


def loaded(text: bytes) -> Any:
    """The value of a text that is JSON and not too deep to be changed.

    Raises:
        ValueError: it is not.
    """
    try:
        value = json.loads(text)
        json.dumps(value)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


def changed(value: Any, random: Random, words: Sequence[str], others: Sequence[Any] = ()) -> Any:
    """A value with a few changes. ``words`` are names and texts of meaning; ``others`` lend parts."""
    for _ in range(random.choice((1, 1, 1, 2, 3, 5))):
        value = _changed_once(value, random, words, others)
    return value


def depth_of(value: Any) -> int:
    """How many containers are around the innermost value."""
    depth, level = 0, [value]
    while level := [
        child
        for container in level
        if isinstance(container, dict | list)
        for child in (container.values() if isinstance(container, dict) else container)
    ]:
        depth += 1
    return depth


def places(value: Any, limit: int = 400) -> list[tuple[Any, Any, Any]]:
    """Container, key and child of what is in a value, the outermost first."""
    found: list[tuple[Any, Any, Any]] = []
    waiting = [value]
    while waiting and len(found) < limit:
        container = waiting.pop(0)
        children: list[tuple[Any, Any]] = []
        if isinstance(container, dict):
            children = list(container.items())
        elif isinstance(container, list):
            children = list(enumerate(container))
        for key, child in children:
            found.append((container, key, child))
            waiting.append(child)
    return found


def _changed_once(value: Any, random: Random, words: Sequence[str], others: Sequence[Any]) -> Any:
    found = places(value)
    if not found or random.random() < 0.03:
        return _fresh(random, words)
    container, key, child = random.choice(found)
    donor = random.choice(
        [child for _, _, child in found] + [part for each in others for _, _, part in places(each, 60)]
    )
    change: Callable[[], Any] = random.choice(
        (
            lambda: _set(container, key, _fresh(random, words)),
            lambda: _set(container, key, _fresh(random, words)),
            lambda: _set(container, key, _copied(donor)),
            lambda: _set(container, key, _copied(donor)),
            lambda: container.pop(key),
            lambda: _added(container, key, _copied(donor), random, words),
            lambda: _added(container, key, _fresh(random, words), random, words),
            lambda: _set(container, key, _other(child, random, words)),
            lambda: _set(container, key, _other(child, random, words)),
            lambda: _set(container, key, _nested(child, random)),
            lambda: _renamed(container, key, random, words),
            lambda: _shuffled(container, random),
        )
    )
    change()
    return value


def _copied(value: Any) -> Any:
    return json.loads(json.dumps(value))


def _set(container: Any, key: Any, child: Any) -> None:
    container[key] = child


def _added(container: Any, key: Any, child: Any, random: Random, words: Sequence[str]) -> None:
    if isinstance(container, list):
        container.insert(key, child)
    else:
        container[random.choice(words)] = child


def _renamed(container: Any, key: Any, random: Random, words: Sequence[str]) -> None:
    child = container.pop(key)
    if isinstance(container, list):
        container.append(child)
    else:
        container[random.choice(words)] = child


def _shuffled(container: Any, random: Random) -> None:
    if isinstance(container, list):
        random.shuffle(container)
        return
    children = list(container.values())
    random.shuffle(children)
    for key, child in zip(list(container), children, strict=True):
        container[key] = child


def _nested(child: Any, random: Random) -> Any:
    # The deep ones only now and then: nearly all of them end at the same place.
    depth = random.choice(DEPTHS if random.random() < 0.2 else DEPTHS[:2])
    for _ in range(depth):
        child = [child] if random.random() < 0.5 else {"a": child}
    return child


def _other(child: Any, random: Random, words: Sequence[str]) -> Any:
    if isinstance(child, bool) or child is None:
        return _fresh(random, words)
    if isinstance(child, int):
        return random.choice(
            (child + 1, child - 1, -child, child * 1_000, float(min(child, 10**300)), str(child))
        )
    if isinstance(child, float):
        return random.choice((-child, child / 3, child * 1e10))
    if isinstance(child, str):
        at = random.randint(0, len(child))
        return random.choice(
            (
                child[:at],
                child[at:],
                child + child,
                child[:at] + random.choice(words) + child[at:],
                [child],
                at,
            )
        )
    if isinstance(child, list):
        return random.choice((child + child, child[:1], child[1:], child[::-1], {"0": child}))
    return random.choice((list(child.values()), {**child, "extra": 1}, [child], str(child)[:100]))


def _fresh(random: Random, words: Sequence[str]) -> Any:
    return _copied(random.choice(ATOMS)) if random.random() < 0.5 else random.choice(words)
