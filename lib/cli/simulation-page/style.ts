// style.ts: style sheet of the page of a simulation; what it adds to that of a drive.
import { style as base } from '../route-page/style.js'

export const style = `${base}
main { display: block; max-width: 1240px; margin: 0 auto; padding: 4px 16px 24px } h2 { font-size: 15px; color: var(--text); margin-top: 22px }
h3 { font-size: 13px; font-weight: 400; color: var(--soft); margin: 6px 0 2px }
.wide { overflow-x: auto } .wide table { width: auto; min-width: min(100%, 560px) }
.wide th, .wide td { padding: 3px 0 3px 14px; text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums }
.wide th:first-child, .wide td:first-child { padding-left: 0 } .wide .text { text-align: left } h3 + .wide { margin-bottom: 10px }
.wide .name { text-align: left; white-space: normal; min-width: 130px; max-width: 380px }
.wide tbody tr { border-top: 1px solid var(--line) } tr.clear td { font-weight: 600 }
thead button { border: 0; padding: 0; background: none; color: inherit } thead button:hover { background: none; color: var(--link) }
td button.open { border: 0; padding: 0; background: none; color: var(--link); text-align: left; text-decoration: underline }
.swatch.a { background: var(--link) } .swatch.b { background: var(--mark) } .swatch.target { background: var(--soft) }
ul.legend { display: flex; flex-wrap: wrap; gap: 4px 18px } .legend li { overflow-wrap: anywhere; min-width: 0 }
.plots { display: flex; flex-wrap: wrap; gap: 4px 16px } .plots section { flex: none; min-width: 0; break-inside: avoid }
.plots .plot { height: auto } .plot { cursor: default }
.tools { display: flex; flex-wrap: wrap; gap: 8px 12px; align-items: center; margin: 6px 0 } .tools select { max-width: 100% }
.tools label { max-width: 100% }
#path { display: block; width: 100%; height: 240px; background: var(--panel); border-radius: 7px }
svg#path polyline { stroke-width: 2 } svg#path .a { stroke: var(--link) } svg#path .b { stroke: var(--mark); stroke-dasharray: 8 5 }
svg#path .target { stroke: var(--soft); stroke-width: 1; stroke-dasharray: 2 4 } svg#path .grid { stroke: var(--line) }
svg#path text { fill: var(--soft); stroke: none; font-size: 11px } svg#path .end { text-anchor: end } svg#path circle.a { fill: var(--link) } svg#path circle.b { fill: var(--mark) }
output { display: block; min-height: 1.5em; font-variant-numeric: tabular-nums }
@media print { header button, .tools button, #more { display: none } main { padding: 0; max-width: none } .wide { overflow: visible }
  .wide table { font-size: 10px } .wide th, .wide td { padding-left: 8px } tr, #path { break-inside: avoid } }`
