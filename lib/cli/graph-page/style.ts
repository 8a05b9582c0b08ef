// style.ts: style sheet of the page, in light and dark.
import { kinds } from './kinds.js'

const hues = kinds.map(
  ({ className, hue }) => `.${className} { --hue: ${hue ?? 0}; --chroma: ${hue === undefined ? 0 : 1} }`,
)

export const style = `:root { color-scheme: light dark; --text: light-dark(#1c2024, #e4e6e9); --soft: light-dark(#5c6670, #a0a8b2);
  --line: light-dark(#d9dde2, #343a42); --page: light-dark(#fff, #16181c); --panel: light-dark(#f6f7f9, #1d2025);
  --edge: light-dark(#9aa4af, #6b7580); --link: light-dark(#0a5fb4, #7db8ec); --mark: light-dark(#e8590c, #ff922b) }
:root[data-theme=light] { color-scheme: light } :root[data-theme=dark] { color-scheme: dark }
* { box-sizing: border-box } [hidden] { display: none !important }
body { margin: 0; height: 100vh; display: flex; flex-direction: column; font: 14px/1.45 system-ui, sans-serif;
  color: var(--text); background: var(--page) }
a { color: var(--link); text-decoration: none } a:hover { text-decoration: underline }
header { display: flex; flex-wrap: wrap; gap: 6px 18px; align-items: center; padding: 8px 16px;
  border-bottom: 1px solid var(--line) }
h1 { font-size: 16px; margin: 0; overflow-wrap: anywhere } h2 { font-size: 13px; margin: 18px 0 6px; color: var(--soft) }
nav { display: flex; border: 1px solid var(--line); border-radius: 7px; overflow: hidden }
.tab { padding: 4px 12px; color: var(--text) } .tab + .tab { border-left: 1px solid var(--line) }
.tab:hover { text-decoration: none; background: var(--panel) } .tab[aria-current] { background: var(--link); color: var(--page) }
search { flex: 1; display: flex; gap: 10px; align-items: center; min-width: 200px } output { color: var(--soft) }
input, button { font: inherit; color: inherit; background: var(--page); border: 1px solid var(--line); border-radius: 7px;
  padding: 4px 10px } input { flex: 1; max-width: 340px } button { cursor: pointer } button:hover { background: var(--panel) }
:focus-visible { outline: 2px solid var(--link); outline-offset: 1px }
.buttons { display: flex; gap: 6px }
main { flex: 1; min-height: 0; display: grid; grid-template-columns: 1fr 330px }
.view { min-width: 0; min-height: 0; display: flex; flex-direction: column; grid-column: 1; grid-row: 1 }
.path { margin: 0; padding: 6px 16px; background: var(--panel); border-bottom: 1px solid var(--line) }
.drawing { flex: 1; width: 100%; min-height: 0; cursor: grab; touch-action: none; user-select: none }
.drawing:active { cursor: grabbing } .drawing:focus-visible { outline-offset: -2px }
.rows { overflow: auto; flex: 1 } .mode-drawing .rows, .mode-table .drawing { display: none }
aside { grid-column: 2; overflow: auto; padding: 0 16px 16px; border-left: 1px solid var(--line); background: var(--panel) }
dl { margin: 0; display: grid; grid-template-columns: auto 1fr; gap: 3px 12px } dt { color: var(--soft) }
dd { margin: 0; overflow-wrap: anywhere } #selected { padding-bottom: 12px; border-bottom: 1px solid var(--line) }
.legend { list-style: none; margin: 0; padding: 0; columns: 2 } .legend li { display: flex; gap: 8px; align-items: center }
.swatch { width: 14px; height: 14px; border-radius: 4px; flex: none }
.box, .swatch { --fill: light-dark(oklch(0.95 calc(0.045 * var(--chroma)) var(--hue)), oklch(0.29 calc(0.05 * var(--chroma)) var(--hue)));
  --border: light-dark(oklch(0.68 calc(0.13 * var(--chroma)) var(--hue)), oklch(0.62 calc(0.12 * var(--chroma)) var(--hue))) }
${hues.join('\n')}
.swatch { background: var(--fill); border: 1px solid var(--border) }
.body { fill: var(--fill); stroke: var(--border) } .box { cursor: pointer; outline: none }
.input .body, .output .body { rx: 14px; stroke-width: 2; stroke: var(--text) }
.swatch.input, .swatch.output { border: 2px solid var(--text); border-radius: 7px } .other .body { stroke-dasharray: 4 3 }
.box:hover .body, .box:focus-visible .body { stroke-width: 2 } .box.match .body { stroke: var(--mark); stroke-width: 2.5 }
.searching .box:not(.match) { opacity: 0.25 } .box.current .body { stroke: var(--link); stroke-width: 4 }
text { font-size: 11px; fill: var(--soft) } .title { font-size: 13px; font-weight: 600; fill: var(--text) }
.constants, .attributes { fill: var(--text) } .reference { fill: var(--link) } .type { color: var(--soft) }
.time { fill: var(--mark) } .far text:not(.title) { display: none } .far .title { font-size: 19px; translate: 0 5px } .farther text, .far .ms { display: none }
.ms { font-size: 11px; font-weight: 400; fill: var(--mark) } .farther .match .body { fill: var(--mark) }
.edge { fill: none; stroke: var(--edge); stroke-width: 1.3; marker-end: url(#arrow); vector-effect: non-scaling-stroke }
#arrow { fill: var(--edge) } .turn { stroke-dasharray: 5 4; stroke-linejoin: round }
.edge.current { stroke: var(--link); stroke-width: 2.6 } .far .edge { marker-end: none }
.farther .edge { stroke-width: 0.6 } .farther .body { fill: var(--border); stroke: none }
table { border-collapse: collapse; width: 100% } th, td { padding: 4px 10px; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line); overflow-wrap: anywhere } th { position: sticky; top: 0; background: var(--panel) }
th, td:first-child, .number { white-space: nowrap }
tr.current { background: light-dark(#e7f1fb, #1f2e3d) } .searching tbody tr:not(.match) { display: none }
td .type, td .ends { font-size: 12px } .ends { display: block; padding-left: 12px; color: var(--soft) }
.bar { display: block; height: 4px; min-width: 1px; background: var(--mark); border-radius: 2px }
@media (max-width: 800px) { main { grid-template-columns: 1fr } aside { display: none } }
@media print { body { height: auto } header, aside { display: none } }`
