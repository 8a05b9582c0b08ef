// style.ts: style sheet of the page of a placement; what it adds to that of a simulation.
import { style as base } from '../simulation-page/style.js'

/** Colours of stages, which are used again from the ninth on. */
export const stageColours = 8

const hues = [212, 27, 150, 280, 48, 335, 185, 95]

export const style = `${base}
${hues.map((hue, i) => `.stage${i} { --stage: light-dark(hsl(${hue} 65% 45%), hsl(${hue} 60% 58%)) }`).join('\n')}
h2 + p { margin: 2px 0 6px; color: var(--soft) }
.strip { display: flex; height: 44px; border-radius: 7px; overflow: hidden; background: var(--panel) }
.strip button { flex: 1 1 0; min-width: 0; height: 100%; padding: 0; border: 0; border-radius: 0; background: var(--stage) }
.strip button + button { border-left: 1px solid var(--page) } .strip button:hover { background: var(--stage); filter: brightness(1.2) }
.strip button.first { border-left: 3px solid var(--page) } .strip button:focus-visible { outline-offset: -3px; outline-color: var(--text) }
.strip button[aria-pressed=true] { filter: brightness(1.35); box-shadow: inset 0 -6px var(--text) }
.names { display: flex; flex-wrap: wrap; gap: 2px 16px; margin: 6px 0 } .names li { overflow-wrap: anywhere }
.swatch.stage { background: var(--stage) }
.timeline { background: var(--panel); border-radius: 7px; padding: 8px 0; overflow: hidden }
.timeline div { display: flex; height: 22px; margin: 3px 0 } .timeline span { min-width: 1px; flex: none }
.timeline .time { background: var(--stage) } .timeline .slowest { outline: 2px solid var(--mark); outline-offset: -2px }
.timeline .hop { background: repeating-linear-gradient(45deg, var(--soft) 0 2px, transparent 2px 5px) }
.memory { display: grid; grid-template-columns: minmax(60px, max-content) minmax(0, 1fr) max-content; grid-auto-flow: row dense; gap: 5px 12px; align-items: center }
.memory .name { overflow-wrap: anywhere; max-width: 34vw } .memory .track { height: 14px; background: var(--panel); border: 1px solid var(--line); border-radius: 4px; overflow: hidden }
.memory .used { display: block; height: 100%; background: var(--stage) } .memory .track { grid-column: 2 } .memory .number { grid-column: 3; font-variant-numeric: tabular-nums; text-align: right }
.wide th.text, .wide td.text { text-align: left; white-space: normal; min-width: 110px } .wide tr.slowest td { font-weight: 600 }
.keys { color: var(--soft) }
@media (max-width: 500px) { .wide th.text, .wide td.text { min-width: 64px } .memory { grid-template-columns: minmax(0, 1fr) max-content; grid-auto-flow: row; row-gap: 3px }
  .memory .name { max-width: none } .memory .number { grid-column: 2 } .memory .track { grid-column: 1 / -1; margin-bottom: 6px } }
@media print { .strip, .timeline, .memory .used { print-color-adjust: exact } .keys, output { display: none } }`
