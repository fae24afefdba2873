"""The report as a PDF, made with ReportLab, which needs nothing but Python.

Its built-in fonts contain the letters of western Europe. Names of relays are ASCII; any other
character is written as `?`.
"""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any, Final
from xml.sax.saxutils import escape

from relay.analytics.errors import MissingPackages
from relay.dashboard.chart_svg import COLOURS
from relay.dashboard.curves import Drawing as Curves
from relay.dashboard.figures import Kind
from relay.dashboard.figures import write as written
from relay.dashboard.heat import LEVELS, Heat
from relay.dashboard.report.content import Listed, Report

if TYPE_CHECKING:
    from reportlab.platypus import Flowable

MARGIN: Final = 48
PADDING: Final = 6
"""Space that ReportLab leaves around the contents of a page."""
CURVE_HEIGHT: Final = 150
_LEFT: Final = 40
"""Space for the labels on the left of a chart."""
_ACCENT: Final = (0x7C, 0x3A, 0xED)
_STRONGEST: Final = 0.48
_INK, _FAINT, _LINE, _BAD = "#0f172a", "#64748b", "#e2e8f0", "#b91c1c"
_POINT: Final = re.compile(r"(-?[\d.]+) (-?[\d.]+)")
FACTS_A_ROW: Final = 4
MAX_NAME: Final = 22
"""Maximum characters of a relay's name in a large table."""


def write(report: Report) -> bytes:
    """Return the PDF file.

    Raises:
        MissingPackages: ReportLab is not installed.
    """
    try:
        from reportlab.lib.pagesizes import A4
        from reportlab.platypus import SimpleDocTemplate
    except ImportError:
        raise MissingPackages("reportlab") from None
    out = io.BytesIO()
    document = SimpleDocTemplate(
        out, pagesize=A4, title=f"{report.own}, {report.title}", author=report.own,
        leftMargin=MARGIN, rightMargin=MARGIN, topMargin=MARGIN, bottomMargin=MARGIN,
        invariant=1,
    )  # fmt: skip
    writer = _Writer(document.width - 2 * PADDING)
    document.build(writer.story(report), onFirstPage=_foot(report), onLaterPages=_foot(report))
    return out.getvalue()


def _foot(report: Report) -> Any:
    """Return a function that draws the footer of a page."""

    def draw(canvas: Any, document: Any) -> None:
        canvas.saveState()
        canvas.setFont("Helvetica", 8)
        canvas.setFillColor(_FAINT)
        made = f"{report.made_at:%Y-%m-%d %H:%M} UTC"
        canvas.drawString(
            MARGIN + PADDING, MARGIN / 2, _plain(f"{report.own}, {report.title}, made {made}")
        )
        canvas.drawRightString(
            document.pagesize[0] - MARGIN - PADDING, MARGIN / 2, str(document.page)
        )
        canvas.restoreState()

    return draw


class _Writer:
    """Lays out the parts of a report below each other."""

    def __init__(self, width: float) -> None:
        from reportlab.lib.styles import ParagraphStyle

        self._width = width
        body = ParagraphStyle(
            "body", fontName="Helvetica", fontSize=9.5, leading=13, textColor=_INK
        )
        self._body = body
        self._note = ParagraphStyle("note", body, fontSize=8, leading=11, textColor=_FAINT)
        self._title = ParagraphStyle("title", body, fontSize=22, leading=27)
        self._head = ParagraphStyle(
            "head", body, fontName="Helvetica-Bold", fontSize=13, leading=17,
            spaceBefore=16, spaceAfter=6,
        )  # fmt: skip
        self._below = ParagraphStyle("below", self._head, fontSize=10, leading=14, spaceBefore=10)

    def story(self, report: Report) -> list[Flowable]:
        """Return all parts."""
        from reportlab.platypus import Spacer

        found: list[Flowable] = [
            self._text(f"Report of {report.own}", self._note),
            self._text(report.title, self._title),
        ]
        if report.missing:
            lacks = f"This report does not contain the whole month. {'; '.join(report.missing)}."
            found += [Spacer(0, 6), self._text(lacks, self._body)]
        found += [
            Spacer(0, 10),
            self._facts(report),
            self._text("Traffic between relays", self._head),
        ]
        if report.traffic:
            found += [
                self._heat(report.traffic),
                self._text("Messages, from the relay that accepted them (rows) to the relay that "
                    "delivered them (columns).", self._note),
            ]  # fmt: skip
        else:
            found.append(self._text("Nothing was delivered.", self._note))
        found += [
            self._text("Federation", self._head),
            self._text(_objective(report), self._body),
            *self._table(report.federation, "There was no delivery attempt to a partner relay."),
            self._text("Sessions", self._head),
            *self._curves(report.sessions),
            self._text("Storms of reconnects", self._below),
            *self._table(report.storms, "There was none."),
            self._text("Delivery", self._head),
            *self._table(report.delivery, "Nothing was accepted."),
            self._text("Anomalies", self._head),
            self._text("Hours in which a twin sent far more or far fewer messages than in the week "
                "before; the largest differences first.", self._body),
            *self._table(report.anomalies, "There was none."),
            self._text("Usage", self._head),
            self._text("The twins that sent most bytes. The file of the month contains all twins.",
                       self._body),
            *self._table(report.usage, "No twin used the relay."),
        ]  # fmt: skip
        return found

    def _text(self, text: str, style: Any) -> Flowable:
        from reportlab.platypus import Paragraph

        return Paragraph(escape(_plain(text)), style)

    def _facts(self, report: Report) -> Flowable:
        from reportlab.lib.styles import ParagraphStyle
        from reportlab.platypus import Table

        value = ParagraphStyle("value", self._body, fontName="Helvetica-Bold", fontSize=11)
        bad = ParagraphStyle("bad", value, textColor=_BAD)
        cells = [
            [self._text(fact.label, self._note), self._text(fact.text, bad if fact.bad else value)]
            for fact in report.facts
        ]
        rows = [cells[at : at + FACTS_A_ROW] for at in range(0, len(cells), FACTS_A_ROW)]
        table = Table(rows, colWidths=[self._width / FACTS_A_ROW] * FACTS_A_ROW)
        table.setStyle(
            [
                ("BOX", (0, 0), (-1, -1), 0.5, _LINE),
                ("INNERGRID", (0, 0), (-1, -1), 0.5, _LINE),
                ("VALIGN", (0, 0), (-1, -1), "TOP"),
            ]
        )
        return table

    def _table(self, listed: Listed, empty: str) -> list[Flowable]:
        from reportlab.platypus import Spacer, Table

        if not listed.rows:
            return [self._text(empty, self._note)]
        rows = [list(map(_plain, row)) for row in (listed.heads, *listed.rows)]
        table = Table(rows, repeatRows=1, colWidths=_widths(listed, self._width))
        table.setStyle(
            [
                ("FONT", (0, 0), (-1, -1), "Helvetica", 8.5),
                ("TEXTCOLOR", (0, 0), (-1, 0), _FAINT),
                ("TEXTCOLOR", (0, 1), (-1, -1), _INK),
                ("LINEBELOW", (0, 0), (-1, -1), 0.5, _LINE),
                ("ALIGN", (listed.words, 0), (-1, -1), "RIGHT"),
                ("TOPPADDING", (0, 0), (-1, -1), 2),
                ("BOTTOMPADDING", (0, 0), (-1, -1), 3),
            ]
        )
        return [Spacer(0, 4), table]

    def _heat(self, heat: Heat) -> Flowable:
        from reportlab.platypus import Table

        columns = [_short(each) for each in heat.columns]
        size = 7.5 if len(columns) <= 6 else 5.5
        rows = [["", *columns, "total"]]
        for line in heat.lines:
            numbers = [cell.text if cell.level else "-" for cell in line.cells]
            rows.append([_short(line.label), *numbers, line.total.text])
        rows.append(["total", *(cell.text for cell in heat.totals)])
        first = 110.0
        each = (self._width - first) / (len(columns) + 1)
        table = Table(
            [[rows[0][0], *(self._small(name, size) for name in rows[0][1:])], *rows[1:]],
            colWidths=[first, *([each] * (len(columns) + 1))],
            repeatRows=1,
        )
        style: list[Any] = [
            ("FONT", (0, 0), (-1, -1), "Helvetica", size),
            ("TEXTCOLOR", (0, 0), (-1, -1), _INK),
            ("ALIGN", (1, 0), (-1, -1), "RIGHT"),
            ("VALIGN", (0, 0), (-1, 0), "BOTTOM"),
            ("TEXTCOLOR", (-1, 0), (-1, -1), _FAINT),
            ("TEXTCOLOR", (0, -1), (-1, -1), _FAINT),
            ("INNERGRID", (1, 1), (-2, -2), 1, "#ffffff"),
        ]
        for row, line in enumerate(heat.lines, start=1):
            for column, cell in enumerate(line.cells, start=1):
                place = (column, row)
                style.append(("BACKGROUND", place, place, _ground(cell.level)))
        table.setStyle(style)
        return table

    def _small(self, name: str, size: float) -> Flowable:
        """Return the head of a column; a domain wraps after its first dot."""
        from reportlab.lib.styles import ParagraphStyle
        from reportlab.platypus import Paragraph

        style = ParagraphStyle("small", self._body, fontSize=size, leading=size * 1.2, alignment=2)
        return Paragraph(escape(name).replace(".", ".<br/>", 1), style)

    def _curves(self, curves: Curves | None) -> list[Flowable]:
        if curves is None:
            return [self._text("No session was connected.", self._note)]
        from reportlab.graphics.shapes import Drawing, Line, PolyLine, String
        from reportlab.lib.colors import HexColor
        from reportlab.platypus import Paragraph

        width = self._width - _LEFT
        drawing = Drawing(self._width, CURVE_HEIGHT + 18)
        for number, level in enumerate(reversed(curves.levels)):
            y = 14 + CURVE_HEIGHT * number / (len(curves.levels) - 1)
            drawing.add(
                Line(_LEFT, y, self._width, y, strokeColor=HexColor(_LINE), strokeWidth=0.5)
            )
            drawing.add(
                String(
                    _LEFT - 4,
                    y - 3,
                    level,
                    fontSize=7,
                    textAnchor="end",
                    fillColor=HexColor(_FAINT),
                )
            )
        for number, moment in enumerate(curves.moments):
            share = number / (len(curves.moments) - 1)
            anchor = "start" if share == 0 else "end" if share == 1 else "middle"
            drawing.add(
                String(_LEFT + width * share, 2, moment, fontSize=7, textAnchor=anchor,
                       fillColor=HexColor(_FAINT))
            )  # fmt: skip
        for curve in curves.curves:
            colour = HexColor(COLOURS[curve.number - 1])
            for run in curve.line.split("M")[1:]:
                points = [
                    number
                    for x, y in _POINT.findall(run)
                    for number in (
                        _LEFT + width * float(x) / curves.width,
                        14 + CURVE_HEIGHT * (1 - float(y) / curves.height),
                    )
                ]
                if len(points) > 2:
                    drawing.add(PolyLine(points, strokeColor=colour, strokeWidth=0.8))
        legend = ", ".join(
            f'<font color="{COLOURS[curve.number - 1]}">{escape(_plain(curve.label))}</font> '
            f"at most {escape(curve.top)}"
            for curve in curves.curves
        )
        return [
            drawing,
            Paragraph(f"Highest number of sessions at once, by hour: {legend}.", self._note),
        ]


def _objective(report: Report) -> str:
    share = written(report.objective, Kind.SHARE)
    return (
        f"The objective is that {share} of the attempts to deliver a message to a partner relay "
        "succeed; the rest is the error budget."
    )


def _widths(listed: Listed, width: float) -> list[float]:
    """Return column widths in proportion to the longest texts."""
    longest = [
        max(len(row[place]) for row in (listed.heads, *listed.rows)) + 3
        for place in range(len(listed.heads))
    ]
    return [width * each / sum(longest) for each in longest]


def _ground(level: int) -> Any:
    """Return the background colour of a cell: that of the console's heat map on white."""
    from reportlab.lib.colors import Color

    share = _STRONGEST * level / LEVELS
    if not level:
        return Color(0.97, 0.98, 0.99)
    return Color(*(1 - share * (1 - part / 255) for part in _ACCENT))


def _short(name: str) -> str:
    name = _plain(name)
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 2]}.."


def _plain(text: str) -> str:
    return text.encode("latin-1", "replace").decode("latin-1")
