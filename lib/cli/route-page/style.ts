// style.ts: style sheet of the page of a drive, in light and dark.

export const style = `:root { color-scheme: light dark; --text: light-dark(#1c2024, #e4e6e9); --soft: light-dark(#5c6670, #a0a8b2);
  --line: light-dark(#d9dde2, #343a42); --page: light-dark(#fff, #16181c); --panel: light-dark(#f6f7f9, #1d2025);
  --link: light-dark(#0a5fb4, #7db8ec); --mark: light-dark(#e8590c, #ff922b);
  --engaged: light-dark(#2f9e4430, #40c05738); --pressed: light-dark(#e8590c90, #ff922b90) }
:root[data-theme=light] { color-scheme: light } :root[data-theme=dark] { color-scheme: dark }
* { box-sizing: border-box }
body { margin: 0; min-height: 100vh; font: 14px/1.45 system-ui, sans-serif; color: var(--text); background: var(--page) }
header { display: flex; gap: 18px; align-items: center; justify-content: space-between; padding: 8px 16px;
  border-bottom: 1px solid var(--line) }
h1 { font-size: 16px; margin: 0; overflow-wrap: anywhere } h2 { font-size: 13px; margin: 14px 0 4px; color: var(--soft) }
input, button, select { font: inherit; color: inherit; background: var(--page); border: 1px solid var(--line);
  border-radius: 7px; padding: 4px 10px } button { cursor: pointer } button:hover { background: var(--panel) }
:focus-visible { outline: 2px solid var(--link); outline-offset: 1px }
main { display: grid; grid-template-columns: minmax(0, 1fr) 330px; align-items: stretch }
.drive { padding: 12px 16px; min-width: 0 }
figure { margin: 0 auto; width: min(100%, max(62vh, 300px)) } .frame { position: relative; overflow: hidden; background: #000; border-radius: 7px }
.frame img, .frame svg { position: absolute; inset: 0; width: 100%; height: 100%; display: block }
figcaption { color: var(--soft); min-height: 1.5em }
.controls { display: flex; gap: 12px; align-items: center; margin-top: 6px } .controls input { flex: 1; padding: 0; min-width: 80px }
#play { min-width: 5.2em }
#now { display: block; font-variant-numeric: tabular-nums; min-height: 1.5em }
.plot { height: 132px; touch-action: pan-y; cursor: crosshair } .plot .uplot { font-family: inherit }
.line { position: absolute; top: 0; bottom: 0; width: 2px; margin-left: -1px; background: var(--mark); pointer-events: none }
.u-over { overflow: hidden }
.note { padding: 10px 14px; background: var(--panel); border: 1px solid var(--line); border-radius: 7px; color: var(--soft);
  overflow-wrap: anywhere }
aside { padding: 0 16px 16px; border-left: 1px solid var(--line); background: var(--panel) }
dl { margin: 0; display: grid; grid-template-columns: auto 1fr; gap: 3px 12px } dt { color: var(--soft) }
dd { margin: 0; overflow-wrap: anywhere }
.legend { list-style: none; margin: 0; padding: 0 } .legend li { display: flex; gap: 8px; align-items: center }
.swatch { width: 14px; height: 14px; border-radius: 4px; flex: none }
.swatch.plan { background: #12b886 } .swatch.lane { background: #ffd43b } .swatch.edge { background: #fa5252 }
.swatch.lead { background: #4dabf7 } .swatch.engaged { background: var(--engaged) } .swatch.pressed { background: var(--pressed) }
svg .plan { fill: #12b88655; stroke: #12b886; stroke-width: 1.5 } svg polyline { fill: none; stroke-width: 2.5; stroke-linecap: round }
svg .lane { stroke: #ffd43b } svg .edge { stroke: #fa5252 }
svg .lead { fill: #4dabf7; stroke: #fff } svg text { fill: #fff; stroke: #000; stroke-width: 3; paint-order: stroke; font-size: 13px;
  text-anchor: middle }
table { border-collapse: collapse; width: 100% } th, td { padding: 2px 0; text-align: left; font-weight: 400; vertical-align: top;
  overflow-wrap: anywhere } td, thead th:last-child { text-align: right; font-variant-numeric: tabular-nums; padding-left: 12px }
thead th { color: var(--soft) }
.bar { display: block; height: 4px; min-width: 1px; background: var(--mark); border-radius: 2px }
@media (max-width: 800px) { main { grid-template-columns: minmax(0, 1fr) } aside { border-left: 0; border-top: 1px solid var(--line) } }`
