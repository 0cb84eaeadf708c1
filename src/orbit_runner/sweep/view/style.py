"""The style sheet of the page of a sweep, in addition to that of all pages."""

from __future__ import annotations

from orbit_runner.sweep.view.parallel_coordinates import SHADES

# From the best to the worst trials: strong to faint on each background.
_LIGHT = ("#1e3a8a", "#2f55b0", "#5b7fcb", "#8ba7de", "#b3c5e8", "#cfd9ea")
_DARK = ("#cfe0ff", "#9dbcf5", "#7195d8", "#5473ae", "#415680", "#36445f")

_STYLE = """
:root{LIGHT--best:#ea580c}
@media (prefers-color-scheme:dark){:root{DARK--best:#fb923c}}
.wide{overflow-x:auto}
.wide svg text{paint-order:stroke;stroke:var(--card);stroke-width:4px;stroke-linejoin:round}
svg .name{font-weight:600;fill:var(--ink)}
svg .strand{fill:none;stroke:var(--q);stroke-width:1.4;opacity:.8}
.many .strand{stroke-width:1.1;opacity:.5}
svg .strand:hover{stroke-width:3.5;opacity:1}
svg .strand.best{stroke:var(--best);stroke-width:3;opacity:1}
svg .strand.lost{stroke:var(--bad);stroke-width:1;stroke-dasharray:4 3;opacity:.7}
svg circle.trial{fill:var(--q1);fill-opacity:.75}
svg circle.stopped{fill:none;stroke:var(--q2);stroke-width:1.2}
svg circle.best{fill:var(--best)}
svg .sofar{fill:none;stroke:var(--soft);stroke-width:1.5}
svg .range{stroke:var(--q2);stroke-width:1.4;fill:none}
svg.share{display:inline-block;width:160px;min-width:160px;height:12px;vertical-align:middle}
svg .rest{fill:var(--line)}
svg .chance{stroke:var(--ink);stroke-width:2;fill:none}
.narrow{width:fit-content;max-width:100%}
.tiles.roomy{grid-template-columns:repeat(auto-fit,minmax(170px,1fr));margin-bottom:10px}
.key-best{--c:var(--best)}
.key-stopped{--c:var(--q3)}
.key-lost{--c:var(--bad)}
.key-sofar{--c:var(--soft)}
a{color:var(--c0)}
td .mono{white-space:nowrap}
.charts{grid-template-columns:repeat(auto-fill,minmax(min(100%,400px),1fr))}
KEYS
@media print{svg .strand,.legend{print-color-adjust:exact}.wide svg{min-width:0!important}}
"""


def _style() -> str:
    light = "".join(f"--q{index}:{color};" for index, color in enumerate(_LIGHT))
    dark = "".join(f"--q{index}:{color};" for index, color in enumerate(_DARK))
    keys = "".join(
        f".q{index}{{--q:var(--q{index})}}.key-q{index}{{--c:var(--q{index})}}"
        for index in range(SHADES)
    )
    return _STYLE.replace("LIGHT", light).replace("DARK", dark).replace("KEYS", keys)


STYLE = _style()
