"""The rules as a page for people: `docs/operate/runbook.md` is what `markdown` returns."""

from __future__ import annotations

from relay.alarms.rules import RULES, Rule

HEAD = """\
# Runbook of the alarms

What each alarm means and what to do about it. Written by `manage.py rmb_alarms runbook` from the
rules of the program; numbers are the defaults. How alarms work is in [alarms.md](alarms.md).
`manage.py` stands for `rmb-manage` where the package is installed.
"""


def markdown() -> str:
    """The whole page."""
    lines = [HEAD, "| rule | severity | fires | ends | about |", "|---|---|---|---|---|"]
    lines += [
        f"| [`{rule.key}`](#{rule.key}) | {rule.severity} | {fires(rule)} | {ends(rule)} | "
        f"{rule.subject or 'the relay'} |"
        for rule in RULES
    ]
    return "\n".join(lines) + "\n" + "".join(_section(rule) for rule in RULES)


def fires(rule: Rule) -> str:
    """When it does, in words."""
    return f"{_compared(rule, rule.threshold, 'from' if rule.rising else 'to')}{_for(rule.hold_s)}"


def ends(rule: Rule) -> str:
    """When it does, in words."""
    if not rule.unit:
        return f"when false{_for(rule.clear_hold_s)}"
    word = "at most" if rule.rising else "at least"
    return f"{_compared(rule, rule.clear, word)}{_for(rule.clear_hold_s)}"


def _compared(rule: Rule, bound: float, word: str) -> str:
    return f"{word} {bound:g} {rule.unit}" if rule.unit else "when true"


def _for(hold_s: float) -> str:
    return f", for {hold_s:g} s" if hold_s else ""


def _section(rule: Rule) -> str:
    steps = "\n".join(f"{number}. {step}" for number, step in enumerate(rule.runbook, 1))
    return f"\n## {rule.key}\n\n**{rule.title}.** {rule.meaning}\n\n{steps}\n"
