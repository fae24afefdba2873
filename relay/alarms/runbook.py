"""The rules as a page of the documentation: `markdown` returns `docs/operate/runbook.md`."""

from __future__ import annotations

from relay.alarms.listing import ends, fires
from relay.alarms.rules import RULES, Rule

HEAD = """\
# Runbook of the alarms

What each alarm means and what to do about it. [Alarms](alarms.md) explains how alarms work. Numbers
are defaults. If you installed the package, run `rmb-manage` instead of `manage.py`. The command
`manage.py rmb_alarms runbook` generates this page.
"""


def markdown() -> str:
    """Return the whole page."""
    lines = [HEAD, "| rule | severity | fires | ends | about |", "|---|---|---|---|---|"]
    lines += [
        f"| [`{rule.key}`](#{rule.key}) | {rule.severity} | {fires(rule, rule.limits)} | "
        f"{ends(rule, rule.limits)} | {rule.subject or 'the relay'} |"
        for rule in RULES
    ]
    return "\n".join(lines) + "\n" + "".join(_section(rule) for rule in RULES)


def _section(rule: Rule) -> str:
    steps = "\n".join(f"{number}. {step}" for number, step in enumerate(rule.runbook, 1))
    return f"\n## {rule.key}\n\n**{rule.title}.** {rule.meaning}\n\n{steps}\n"
