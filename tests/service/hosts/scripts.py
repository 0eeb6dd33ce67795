"""Made-up conversations, valid and broken, in a form that every host's messages can be made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

TEXTS = st.sampled_from(
    ["ok", "continue", "Where is the tide table?", "naïve 潮汐表 🌊", "line\n" * 40, "x" * 900, "y" * 4_000]
)


@dataclass(frozen=True)
class User:
    """The user says something."""

    text: str
    image: bool = False


@dataclass(frozen=True)
class Model:
    """The model answers: text, a thought, calls of tools by their ids."""

    text: str = ""
    thought: str = ""
    calls: tuple[str, ...] = ()


@dataclass(frozen=True)
class Results:
    """Tools answered: call ids and texts, in the order of their coming."""

    answers: tuple[tuple[str, str], ...]


Step = User | Model | Results


@dataclass
class _Maker:
    draw: Any
    steps: list[Step] = field(default_factory=list)
    calls: int = 0

    def turn(self, broken: bool) -> None:
        draw = self.draw
        self.steps.append(User(draw(TEXTS), draw(st.booleans())))
        for _ in range(draw(st.integers(0, 4))):
            ids = tuple(f"call_{self.calls + n}" for n in range(draw(st.integers(1, 3))))
            self.calls += len(ids)
            text = draw(st.sampled_from(["", "I look.", "z" * 300]))
            self.steps.append(Model(text, draw(st.sampled_from(["", "hm"])), ids))
            answers = [(call, draw(TEXTS)) for call in draw(st.permutations(ids))]
            if broken:
                answers = self.spoiled(answers)
            if broken and draw(st.integers(0, 9)) == 0:
                self.steps.append(User("wait"))
            if answers:
                self.steps.append(Results(tuple(answers)))
        if draw(st.booleans()):
            self.steps.append(Model(draw(TEXTS)))

    def spoiled(self, answers: list[tuple[str, str]]) -> list[tuple[str, str]]:
        match self.draw(st.integers(0, 9)):
            case 0:
                return answers[1:]
            case 1:
                return [*answers, answers[0]]
            case 2:
                return [*answers, (f"stray_{self.calls}", "who asked?")]
            case _:
                return answers


@st.composite
def conversations(draw: Any, *, broken: bool = False, turns: int = 6) -> list[Step]:
    """Steps of a conversation that begins with the user."""
    maker = _Maker(draw)
    for _ in range(draw(st.integers(1, turns))):
        maker.turn(broken)
    return maker.steps


def calls_of(steps: list[Step]) -> Iterator[int]:
    """Where the provider would be called: how many steps there are before each response, and at the end."""
    for position, step in enumerate(steps):
        if isinstance(step, Model) and position:
            yield position
    if not isinstance(steps[-1], Model):
        yield len(steps)
