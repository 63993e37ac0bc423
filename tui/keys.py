"""The key map: one table, read by the bindings, the footer and the help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tui.kit.text import fit
from tui.kit.theme import Line, Piece


@dataclass(frozen=True, slots=True)
class Key:
    """A key, and the action that it starts."""

    keys: str
    """Textual's names of the keys, joined by commas."""
    shown: str
    word: str
    action: str
    """Name of a method `do_<action>` of the view or the application, or of a row of `tui.time.timebar.ACTIONS`."""
    group: str
    writes: bool = False
    """Whether it changes something at the aggregator, which needs `--write`."""
    shy: bool = False
    """Whether it is left out of the footer."""
    everywhere: bool = False
    """Whether it works in every view, not only in those that have it."""


KEYS: tuple[Key, ...] = (
    Key("q", "q", "Quit", "quit", "move", everywhere=True),
    Key("ctrl+c", "^c", "Copy selected, else quit", "interrupt", "move", shy=True, everywhere=True),
    Key("question_mark,f1", "?", "Help", "help", "move", everywhere=True),
    Key("slash", "/", "Filter", "filter", "find"),
    Key("colon,ctrl+p", ":", "Go to", "palette", "find", everywhere=True),
    Key("enter", "⏎", "Open", "open", "move", shy=True),
    Key("escape", "esc", "Back", "back", "move", everywhere=True, shy=True),
    Key("f", "f", "Faults only", "faults", "find"),
    Key("n", "n", "Next alert or fault", "next_fault", "find", shy=True),
    Key("N", "N", "The one before", "previous_fault", "find", shy=True),
    Key("m", "m", "Metric", "metric", "map"),
    Key("z", "z", "Zoom", "zoom", "map"),
    Key("b", "b", "Group", "group", "map"),
    Key("s", "s", "Sort", "sort", "find"),
    Key("r", "r", "Reverse", "reverse", "find", shy=True),
    Key("plus,equals_sign", "+", "Longer span", "longer", "time", everywhere=True),
    Key("minus", "-", "Shorter span", "shorter", "time", shy=True, everywhere=True),
    Key("w", "w", "What if", "what_if", "circuits"),
    Key("left", "←", "Fold", "fold", "circuits", shy=True),
    Key("right", "→", "Unfold", "unfold", "circuits", shy=True),
    Key("a", "a", "Ack", "ack", "alerts", writes=True),
    Key("S", "S", "Silence", "silence", "alerts", writes=True),
    Key("space", "␣", "Mark", "mark", "alerts"),
    Key("A", "A", "Ack marked", "ack_marked", "alerts", writes=True, shy=True),
    Key("X", "X", "End silence", "unsilence", "alerts", writes=True, shy=True),
    Key("o", "o", "Runbook", "runbook", "alerts"),
    Key("p", "p", "Pause", "pause", "time", everywhere=True),
    Key("t", "t", "Time", "time", "time", everywhere=True),
    Key("left_square_bracket", "[", "Step back, or one before", "step_back", "time", shy=True, everywhere=True),
    Key("right_square_bracket", "]", "Step on, or the next one", "step_on", "time", shy=True, everywhere=True),
    Key("left_curly_bracket", "{", "A minute back", "jump_back", "time", shy=True, everywhere=True),
    Key("right_curly_bracket", "}", "A minute on", "jump_on", "time", shy=True, everywhere=True),
    Key("less_than_sign", "<", "To the alert before", "alert_back", "time", shy=True, everywhere=True),
    Key("greater_than_sign", ">", "To the next alert", "alert_on", "time", shy=True, everywhere=True),
    Key("space", "␣", "Play in the time bar", "play", "time", shy=True, everywhere=True),
    Key("T", "T", "To a time", "moment", "time", shy=True, everywhere=True),
    Key("L", "L", "Live", "live", "time", shy=True, everywhere=True),
    Key("c", "c", "Compare", "compare", "find"),
    Key("v", "v", "Now against then", "then", "find", shy=True),
    Key("C", "C", "Open the compare tray", "tray", "find", shy=True, everywhere=True),
    Key("M", "M", "Matrix", "matrix", "map"),
    Key("y", "y", "Copy", "copy", "take"),
    Key("Y", "Y", "Copy as JSON", "copy_json", "take", shy=True),
    Key("U", "U", "Copy the URL of its web page", "copy_address", "take", shy=True, everywhere=True),
    Key("E", "E", "Export", "export", "take", everywhere=True),
    Key("R", "R", "Connect now", "reconnect", "move", shy=True, everywhere=True),
    Key("u", "u", "UTC or local time", "utc", "time", shy=True, everywhere=True),
    *(
        Key(str(n), str(n), word, f"view_{n}", "views", shy=True, everywhere=True)
        for n, word in enumerate(
            ("Overview", "Nodes", "GPUs", "Circuits", "Alerts", "Pools", "Energy", "Jobs", "Fleet"), 1
        )
    ),
)
_FIRST = {"quit", "help"}
_OWN = {"alerts", "circuits", "map"}
"""Groups that only some screens have."""
READ_ONLY = "read-only: start with --write"


def footer(keys: Sequence[Key], right: str, width: int, *, write: bool) -> Line:
    """Draw as many keys as fit, those of this view first, and the place of the cursor."""
    keys = sorted(keys, key=lambda key: (key.action not in _FIRST, key.group not in _OWN))
    pieces: list[Piece] = []
    used = 0
    for key in keys:
        word = key.word.split(",")[0]
        cost = len(key.shown) + len(word) + 3
        if used + cost + len(right) > width:
            continue
        idle = key.writes and not write
        pieces += [(f" {key.shown}", "dim" if idle else "key"), (f" {word} ", "faint" if idle else "dim")]
        used += cost
    return [*pieces, (" " * max(0, width - used - len(right)), ""), (right, "dim")]


def help_lines(keys: Sequence[Key], width: int, *, write: bool) -> list[Line]:
    """Draw every key of a view by group, with the reason where it is disabled."""
    lines: list[Line] = []
    width = width // 2 if width >= 60 else width
    for group in dict.fromkeys(key.group for key in keys):
        lines.append([(group, "strong")])
        for key in keys:
            if key.group == group:
                idle = key.writes and not write
                words = f"{key.word} (read-only)" if idle else key.word
                lines.append(
                    [
                        (f"  {fit(key.shown, 4, right=True)}  ", "dim" if idle else "key"),
                        (fit(words, max(1, width - 8)), "faint" if idle else ""),
                    ]
                )
    if width >= 30:  # two columns
        half = -(-len(lines) // 2)
        lines = [
            [
                *left,
                (" " * (width - sum(len(text) for text, _ in left)), ""),
                *(lines[half + n] if half + n < len(lines) else ()),
            ]
            for n, left in enumerate(lines[:half])
        ]
    if not write and any(key.writes for key in keys):
        lines.append([(READ_ONLY, "dim")])
    return lines
