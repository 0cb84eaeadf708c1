"""Shows sections of a report as a self-contained HTML page, which needs no scripts."""

from __future__ import annotations

import base64
import itertools
import re
from collections.abc import Iterable, Sequence

from orbit_runner.reporting.document import (
    Cell,
    Chart,
    Facts,
    HeatMap,
    Joined,
    Parallel,
    Part,
    Picture,
    Pictures,
    Section,
    Table,
    Text,
)
from orbit_runner.reporting.parallel_coordinates import PARALLEL_STYLE, parallel_coordinates
from orbit_runner.reporting.svg import (
    BOTTOM,
    CHART_STYLE,
    COLORS,
    DARK_COLORS,
    HEIGHT,
    LEFT,
    LIGHT_COLORS,
    RIGHT,
    TOP,
    escape,
    heat_map,
    line_chart,
)

_LONG_WORD = 24  # characters
_LONG_NAME = 14
_SHORT_NAME = 3  # Longer names of the columns of a matrix are written upwards.
_SMALL = 64  # Pictures with fewer pixels a side are enlarged without smoothing.

_STYLE = """
:root{color-scheme:light dark;LIGHT}
@media (prefers-color-scheme:dark){:root{DARK}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1080px;padding:24px 16px 64px;background:var(--page);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
h1{font-size:1.5rem;margin:0 0 4px;overflow-wrap:anywhere}
h2{font-size:1.1rem;margin:36px 0 10px}
p{margin:6px 0;overflow-wrap:anywhere}
.soft{color:var(--soft)}
.bad{color:var(--bad)}
.good{color:var(--good)}
code{font:13px/1.5 ui-monospace,"SF Mono",Menlo,Consolas,monospace;overflow-wrap:anywhere}
.table{width:fit-content;max-width:100%;border:1px solid var(--line);
border-radius:8px}
/* What scrolls sideways has a shadow where more of it is. */
.table,.wide{overflow-x:auto;--back:var(--page);background:
linear-gradient(90deg,var(--back) 40%,transparent) 0/36px 100% no-repeat local,
linear-gradient(270deg,var(--back) 40%,transparent) 100%/36px 100% no-repeat local,
linear-gradient(90deg,var(--shadow),transparent) 0/14px 100% no-repeat,
linear-gradient(270deg,var(--shadow),transparent) 100%/14px 100% no-repeat}
.wide{--back:var(--card)}
table{border-collapse:collapse;font-size:14px}
th,td{text-align:left;padding:5px 12px;border-bottom:1px solid var(--line);vertical-align:top}
td{overflow-wrap:break-word;max-width:46em}
tbody tr:last-child>*{border-bottom:0}
th{font-weight:600;white-space:nowrap}
tbody th{font-weight:500;position:sticky;left:0;background:var(--page)}
.long{min-width:9em;max-width:46em;white-space:normal;overflow-wrap:break-word}
tbody th.group{font-weight:600;background:var(--card);position:static}
.text tbody th{white-space:normal;overflow-wrap:anywhere;min-width:7em;max-width:16em}
.text td:last-child{min-width:24em;overflow-wrap:anywhere}
td.number,th.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
a{color:var(--c0)}
svg.share{display:inline-block;width:160px;height:12px;margin-right:8px;vertical-align:middle}
svg .rest{fill:var(--line)}
svg .chance{stroke:var(--ink);stroke-width:2;fill:none}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:10px;
margin:14px 0 10px}
.tiles div{padding:8px 12px;background:var(--card);border:1px solid var(--line);border-radius:8px}
.tiles span{display:block;font-size:13px;overflow-wrap:anywhere}
.tiles b{font-size:1.35rem;font-variant-numeric:tabular-nums}
details{border:1px solid var(--line);border-radius:8px;padding:6px 12px;margin-top:10px}
summary{cursor:pointer}
pre{font:12.5px/1.45 ui-monospace,"SF Mono",Menlo,Consolas,monospace;overflow-x:auto}
.command{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:8px 12px;
white-space:pre-wrap;overflow-wrap:anywhere;margin:6px 0}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,400px),1fr));gap:16px}
figure{margin:0;padding:10px 12px;background:var(--card);border:1px solid var(--line);
border-radius:8px;break-inside:avoid}
figcaption{font-weight:600;font-size:14px;margin-bottom:4px;overflow-wrap:anywhere}
:not(svg)>svg{display:block;width:100%;height:auto}
CHARTS
PARALLEL
.plot{padding:TOPpx RIGHTpx BOTTOMpx LEFTpx}
.plot>svg{height:HEIGHTpx;overflow:visible}
figure+.table{margin-top:10px}
.table+.charts,.charts+.table{margin-top:16px}
h3{font-size:1rem;margin:20px 0 8px}
.table+.table,.pictures+.table{margin-top:10px}
.pictures{display:grid;grid-template-columns:repeat(auto-fill,minmax(104px,1fr));gap:10px}
.pictures figure{padding:6px}
.pictures img{display:block;width:100%}
.pictures img.small{image-rendering:pixelated}
.pictures figcaption{font-weight:400;font-size:12px;line-height:1.35;margin:5px 0 0;
overflow-wrap:anywhere}
.confusion{font-size:13px;print-color-adjust:exact}
.confusion th,.confusion td{padding:4px 8px}
.confusion td{min-width:2.6em;text-align:center;white-space:nowrap;overflow-wrap:normal;
font-variant-numeric:tabular-nums;background:rgb(var(--right)/var(--share,0))}
.confusion td.wrong{background:rgb(var(--wrong)/var(--share))}
.confusion thead th{vertical-align:bottom;text-align:center}
.confusion thead th:first-child span{writing-mode:horizontal-tb;transform:none}
.confusion thead th:first-child{white-space:normal;text-align:left;font-weight:400;
color:var(--soft)}
.confusion .up span{writing-mode:vertical-rl;transform:rotate(180deg)}
.confusion tbody th{white-space:nowrap;min-width:0;position:sticky;left:0;background:var(--page)}
.heat{max-width:560px;print-color-adjust:exact}
svg .cell{fill:rgb(var(--right))}
svg .cell.wrong{fill:rgb(var(--wrong))}
svg .frame{fill:none;stroke:var(--line)}
.legend{display:flex;flex-wrap:wrap;gap:2px 14px;font-size:13px;margin-top:4px;
overflow-wrap:anywhere}
.key::before{content:"";display:inline-block;width:14px;height:3px;margin-right:6px;
vertical-align:middle;background:var(--c);border-radius:2px}
.d1::before{background:repeating-linear-gradient(90deg,var(--c) 0 4px,transparent 4px 7px)}
.d2::before{background:repeating-linear-gradient(90deg,var(--c) 0 2px,transparent 2px 4px)}
.d3::before{background:linear-gradient(90deg,var(--c) 0 8px,transparent 8px 11px,var(--c) 11px)}
.ring::before{content:"";display:inline-block;width:10px;height:10px;margin:0 5px 0 10px;
vertical-align:-1px;border:2px solid var(--c);border-radius:50%}
@media (max-width:600px){th,td{padding:5px 8px}
svg.share{width:80px}
th{white-space:normal}
.text,.text table{width:100%}
.text table,.text tbody,.text tr,.text tbody th,.text td,.text td:last-child{display:block;
min-width:0;max-width:none}
.text thead{display:none}
.text tbody th,.text td{border:0;padding:1px 8px}
.text tr{border-bottom:1px solid var(--line);padding:6px 0}
.text tbody tr:last-child{border:0}
tbody th{white-space:normal;overflow-wrap:break-word}
.pictures{grid-template-columns:repeat(auto-fill,minmax(72px,1fr))}}
@media print{body{max-width:none;padding:0;font-size:11pt}
.table,.wide{overflow:visible;background:none}
h2{break-after:avoid}}
"""


def _style() -> str:
    style = _STYLE.replace("LIGHT", LIGHT_COLORS).replace("DARK", DARK_COLORS)
    sizes = {"TOP": TOP, "RIGHT": RIGHT, "BOTTOM": BOTTOM, "LEFT": LEFT, "HEIGHT": HEIGHT}
    for name, size in sizes.items():
        style = style.replace(f"{name}px", f"{size}px")
    return style.replace("CHARTS", CHART_STYLE).replace("PARALLEL", PARALLEL_STYLE)


def page(title: str, sections: Iterable[Section], heading: str = "") -> str:
    """Returns a complete HTML document. `heading` is above the sections; by default the title."""
    above = f"<h1>{escape(heading or title)}</h1>"
    body = "\n".join(filter(None, [above, *(_section(section, "h2") for section in sections)]))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_style()}</style></head>\n"
        f"<body>\n{body}\n</body></html>\n"
    )


def parts_html(parts: Iterable[Part]) -> str:
    """Returns the contents of a section; "" if they show nothing."""
    groups = itertools.groupby(parts, key=lambda part: isinstance(part, Chart))
    return "".join(_charts(group) if are_charts else "".join(map(_part, group))
                   for are_charts, group in groups)  # fmt: skip


def _section(section: Section, heading: str) -> str:
    content = parts_html(section.parts)
    title = escape(_capitalize(section.title))
    if section.is_folded and content:
        return f"<details><summary>{title}</summary>{content}</details>"
    above = f"<{heading}>{title}</{heading}>" if title else ""
    if heading == "h2" and content:
        return f"<section>{above}{content}</section>"
    return f"{above}{content}" if content else ""


def _charts(charts: Iterable[Part]) -> str:
    drawings = "".join(line_chart(chart) for chart in charts if isinstance(chart, Chart))
    return f"<div class=charts>{drawings}</div>" if drawings else ""


def _part(part: Part) -> str:
    if isinstance(part, Table):
        return table_html(part)
    if isinstance(part, Facts):
        return _tiles(part)
    if isinstance(part, Text):
        return _paragraph(part)
    if isinstance(part, Parallel):
        return parallel_coordinates(part)
    if isinstance(part, HeatMap):
        return heat_map(part)
    if isinstance(part, Pictures):
        figures = "".join(map(_figure, part.pictures))
        return f"<div class=pictures>{figures}</div>" if figures else ""
    return _section(part, "h3") if isinstance(part, Section) else ""


def _paragraph(part: Text) -> str:
    if not part.text:
        return ""
    if part.kind == "code":
        return f"<pre class=command>{_cell(part.text.strip())}</pre>"
    if part.kind == "file":
        return f"<pre>{escape(part.text)}</pre>"
    text = "<br>".join(map(escape, part.text.splitlines()))
    text = f"<b>{text}</b>" if part.is_bold else text
    return f"<p class={part.kind}>{text}</p>" if part.kind else f"<p>{text}</p>"


def _capitalize(text: str) -> str:
    is_name = re.match(r"\w*[_.]\w", text)  # such as `top_5_accuracy`
    return text if is_name else text[:1].upper() + text[1:]


def explanation(text: str) -> Text:
    """Returns a paragraph that explains what follows, beginning with a capital letter."""
    return Text(f"{_capitalize(text)}.", "soft")


def table_html(table: Table) -> str:
    """Returns a table; "" if it has no rows. The first cell of a row is its heading."""
    if not table.rows:
        return ""
    right = {column % table.columns for column in table.right}
    kinds = [" class=number" if column in right else "" for column in range(table.columns)]
    heads = zip(kinds, table.head, strict=False)
    titles = "".join(f"<th{kind}>{_cell(text)}</th>" for kind, text in heads)
    if table.keys:
        titles = "<th></th>" + "".join(
            f'<th><span class="key c{n % COLORS}">{_cell(name)}</span></th>'
            for n, name in enumerate(table.head[1:])
        )
    if table.is_matrix:
        upright = " class=up" if max(map(len, table.head[1:-1])) > _SHORT_NAME else ""
        titles = "".join(f"<th{upright}><span>{escape(text)}</span></th>" for text in table.head)
    above = f"<thead><tr>{titles}</tr></thead>" if titles else ""
    lines = "".join(_row(row, kinds) for row in table.rows)
    kind = '"table text"' if table.sentences else "table"
    matrix = " class=confusion" if table.is_matrix else ""
    return f"<div class={kind}><table{matrix}>{above}<tbody>{lines}</tbody></table></div>"


def _row(row: Sequence[str], kinds: Sequence[str]) -> str:
    if len(row) == 1 < len(kinds):
        return f"<tr><th scope=rowgroup class=group colspan={len(kinds)}>{_cell(row[0])}</th></tr>"
    cells = "".join(
        f"<td{_shade(text) or kind}>{_cell(text)}</td>"
        for kind, text in zip(kinds[1:], row[1:], strict=False)
    )
    is_marked = isinstance(row[0], (Cell, Joined))
    name = _cell(row[0]) if is_marked else add_line_breaks(row[0])
    long = " class=long" if len(row[0]) > _LONG_NAME and not is_marked else ""
    return f"<tr><th scope=row{long}>{name}</th>{cells}</tr>"


def _shade(cell: str) -> str:
    if not isinstance(cell, Cell) or cell.shade is None:
        return ""
    kind = "" if cell.kind == "good" else " class=wrong"
    return f'{kind} style="--share:{cell.shade:.2f}"'


def _cell(text: str) -> str:
    if isinstance(text, Joined):
        return " ".join(map(_cell, text.cells))
    if isinstance(text, Cell):
        return _marked_cell(text)
    return "".join(
        add_line_breaks(word) if len(word) > _LONG_WORD else escape(word)
        for word in re.split(r"(\s)", text)
    )


def _marked_cell(cell: Cell) -> str:
    text = f"{_bar(cell)}{escape(cell)}"
    if cell.address:
        text = f'<a href="{escape(cell.address)}">{text}</a>'
    if cell.kind == "best":
        return f"<b class=good>{text}</b>"
    return f"<span class={cell.kind}>{text}</span>" if cell.kind and cell.shade is None else text


def _bar(cell: Cell) -> str:
    if cell.bar is None:
        return ""
    length, mark = (share * 100 for share in cell.bar)
    return (
        f'<svg class=share height="12" role="img" aria-label="{escape(cell)}">'
        f'<rect class=rest width="100%" height="12"></rect>'
        f'<rect class=c0 width="{length:.1f}%" height="12"></rect>'
        f'<line class=chance x1="{mark:.1f}%" x2="{mark:.1f}%" y2="12">'
        f"<title>by chance {mark:.0f}%</title></line></svg>"
    )


def add_line_breaks(path: str) -> str:
    """Returns a path as HTML that may be broken into lines between its words."""
    return re.sub(r"(?<=\w\w)[/._](?=\w\w)|(?<=[a-z])-(?=[a-z])", r"\g<0><wbr>", escape(path))


def _tiles(part: Facts) -> str:
    boxes = "".join(
        f"<div><span class=soft>{escape(name)}</span><b>{escape(value)}</b>"
        f"<span class=soft>{escape(note)}</span></div>"
        for name, value, note in part.facts
    )
    return f"<div class=tiles>{boxes}</div>" if boxes else ""


def _figure(picture: Picture) -> str:
    kind = " class=small" if max(_size(picture.png)) < _SMALL else ""
    lines = "<br>".join(map(add_line_breaks, picture.caption.splitlines()))
    caption = f"<figcaption>{lines}</figcaption>" if lines else ""
    return (
        f'<figure><img{kind} alt="{escape(picture.caption)}" '
        f'src="data:image/png;base64,{escape(picture.png)}">{caption}</figure>'
    )


def _size(png: str) -> tuple[int, int]:
    """Returns width and height, which every PNG file has at the same place."""
    start = base64.b64decode(png[:32])
    return int.from_bytes(start[16:20], "big"), int.from_bytes(start[20:24], "big")
