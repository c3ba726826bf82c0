"""Ctrl-C while something is done piece by piece: what is being processed is finished, what is awaited is not."""

import os
import signal
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any, TypeVar

Piece = TypeVar("Piece")


class Interruption:
    """Ctrl-C ends `watch` before the next piece; a second one stops at once.

    with Interruption() as interruption:
        for piece in interruption.watch(pieces): ...
        if interruption.is_requested: ...
    """

    def __init__(self) -> None:
        self.is_requested = False
        self._is_waiting = False
        self._former: Any = None
        self._is_active = False

    def watch(self, pieces: Iterator[Piece]) -> Iterator[Piece]:
        """The pieces until the user asks to stop."""
        while not self.is_requested:
            self._is_waiting = True
            try:
                piece = next(pieces, None)
            except KeyboardInterrupt:
                return
            finally:
                self._is_waiting = False
            if piece is None:
                return
            yield piece

    def __enter__(self) -> "Interruption":
        try:
            self._former = signal.signal(signal.SIGINT, self._request_stop)
            self._is_active = True
        except ValueError:  # not in the main thread: Ctrl-C goes elsewhere
            pass
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_active:
            signal.signal(signal.SIGINT, self._former)

    def _request_stop(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        is_second, self.is_requested = self.is_requested, True
        if is_second or self._is_waiting:
            raise KeyboardInterrupt
        os.write(2, b"stopping when this piece is done; Ctrl-C again stops at once\n")
