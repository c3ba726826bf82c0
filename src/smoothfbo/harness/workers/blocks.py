"""How the lanes of a run are divided: a block is some consecutive lanes of one program, in a folder of their own."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from smoothfbo.harness.study import Program


@dataclass(frozen=True)
class Block:
    """Lanes of the program with this index; `name` is that of its folder."""

    name: str
    index: int
    program: Program

    @property
    def rounds(self) -> int:
        """Rounds of a chunk, over all lanes together."""
        return len(self.program.lanes) * self.program.chunk

    @property
    def chunks(self) -> int:
        return self.program.chunks

    @property
    def text(self) -> str:
        """Which lanes these are, in words for the user."""
        first, last = self.program.lanes[0], self.program.lanes[-1]
        told = [
            f"{name} {first[name]}" + ("" if first[name] == last[name] else f" … {last[name]}")
            for name in first
            if first[name] != last[name] or name in ("method", "seed")
        ]
        return f"{self.name} ({self.program.name}: {', '.join(told)})"


def restrict(program: Program, first: int, end: int) -> Program:
    """The same program with the lanes first, …, end − 1."""
    import jax  # here, so that the command line knows workers without it

    numbers = jax.tree.map(lambda leaf: leaf[first:end], program.numbers)
    return replace(program, lanes=program.lanes[first:end], numbers=numbers)


def cut(programs: Sequence[Program], size: int | None, before: int = 0) -> list[Block]:
    """Blocks of at most `size` lanes each, those of a program as equal as can be; None: whole programs.

    Programs are counted on from `before`. It depends on nothing else, so that a run that resumes, anywhere, finds the
    same blocks.
    """
    blocks = []
    for index, program in enumerate(programs, before):
        if size is None:
            blocks.append(Block(f"{index:03d}", index, program))
            continue
        lanes = len(program.lanes)
        number = -(-lanes // size)
        ends = [lanes * part // number for part in range(number + 1)]
        for first, end in pairwise(ends):
            blocks.append(Block(f"{index:03d}-{first:06d}", index, restrict(program, first, end)))
    return blocks


def size_for(programs: Sequence[Program], blocks: int) -> int:
    """Lanes of a block, so that there are about so many blocks, and that compiled calls of a `width` are full."""
    width = max(program.width or 1 for program in programs)
    return -(-sum(len(program.lanes) for program in programs) // (blocks * width)) * width
