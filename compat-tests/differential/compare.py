"""Two transcripts side by side, and the list of differences that are meant to be.

`differences.md` holds one row per scenario: `id | what differs | why`. What differs is one clause per difference, in the
words that `differences` makes, `<br>` between them; `*` in a clause stands for anything.
"""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path

from .scenario import Transcript

DIFFERENCES = Path(__file__).resolve().parent.parent / "differences.md"
ROW = re.compile(r"^\|\s*`([a-z_0-9]+\.\w+)`\s*\|(.*)\|(.*?)\|\s*$")


def listed() -> dict[str, tuple[list[str], str]]:
    """Per scenario: the clauses, and the reason."""
    found = {}
    for line in DIFFERENCES.read_text().splitlines():
        if match := ROW.match(line):
            name, what, why = match.group(1), match.group(2), match.group(3).strip()
            assert name not in found, f"{DIFFERENCES.name} lists {name} twice"
            assert why, f"{DIFFERENCES.name} gives no reason for {name}"
            found[name] = ([clause.strip().strip("`") for clause in what.split("<br>")], why)
    return found


def differences(kafka: Transcript, weir: Transcript) -> list[str]:
    """One line per place where they differ. After the place where one of them ended early, nothing is compared."""
    lines, ours = [], weir.entries
    for number, (label, expected) in enumerate(kafka.entries):
        if number >= len(ours):
            if weir.ended is None:
                lines.append(f"{label}: Weir has no such entry")
            break
        seen, found = ours[number]
        if seen != label:
            lines.append(f"{label}: Weir went on with {seen}")
            break
        _walk(label, expected, found, lines)
    else:
        if len(ours) > len(kafka.entries) and kafka.ended is None:
            lines.append(f"{ours[len(kafka.entries)][0]}: only Weir has it")
    if kafka.ended != weir.ended:
        lines.append(f"ended: Kafka {_short(kafka.ended)}, Weir {_short(weir.ended)}")
    return [line.replace("|", "/").replace("`", "'") for line in lines]


def _walk(path: str, expected, found, lines: list[str]) -> None:
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in [*expected, *(key for key in found if key not in expected)]:
            _walk(f"{path}.{key}", expected.get(key, _ABSENT), found.get(key, _ABSENT), lines)
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for number, (one, other) in enumerate(zip(expected, found)):
            _walk(f"{path}[{number}]", one, other, lines)
    elif path.endswith("error_message") and not expected:
        pass  # a sentence where Kafka has none tells the user more, and clients show it as they show Kafka's
    elif expected != found:
        lines.append(f"{path}: Kafka {_short(expected)}, Weir {_short(found)}")


class _Absent:
    def __repr__(self) -> str:
        return "nothing"


_ABSENT = _Absent()


def _short(value) -> str:
    text = repr(value).replace("\n", " ")
    return text if len(text) <= 300 else text[:300] + "..."


def verdict(name: str, found: list[str], expected: dict[str, tuple[list[str], str]]) -> str | None:
    """None when all is as it should be; else what to say."""
    clauses = expected[name][0] if name in expected else []
    unlisted = [line for line in found if not any(_matches(line, clause) for clause in clauses)]
    stale = stale_clauses(name, found, expected)
    said = []
    if unlisted:
        said.append("differs from Apache Kafka and is not listed in differences.md:\n" + _indent(unlisted))
    if stale:
        said.append("listed in differences.md, but not so any more (take it out):\n" + _indent(stale))
    return "\n".join(said) or None


def stale_clauses(name: str, found: list[str], expected: dict[str, tuple[list[str], str]]) -> list[str]:
    """What is listed of the scenario and not so."""
    clauses = expected[name][0] if name in expected else []
    return [clause for clause in clauses if not any(_matches(line, clause) for line in found)]


def prune(stale: dict[str, list[str]]) -> None:
    """Writes differences.md without these clauses, and without the rows of which nothing is left."""
    kept = []
    for line in DIFFERENCES.read_text().splitlines():
        match = ROW.match(line)
        if match and (gone := stale.get(match.group(1))):
            clauses = [clause for clause in match.group(2).split("<br>") if clause.strip().strip("`") not in gone]
            if not clauses:
                continue
            line = f"| `{match.group(1)}` | {'<br>'.join(clause.strip() for clause in clauses)} |{match.group(3)}|"
        kept.append(line)
    DIFFERENCES.write_text("\n".join(kept) + "\n")


def _matches(line: str, clause: str) -> bool:
    """Only `*` is special in a clause: brackets are list indices, not sets."""
    return fnmatch.fnmatchcase(line, clause.replace("[", "[[]").replace("?", "[?]"))


def _indent(lines: list[str]) -> str:
    return "\n".join(f"    {line}" for line in lines)
