// style.ts: style sheet of the page of benchmarks, in light and dark, and for print.

export const style = `:root { color-scheme: light dark; --text: light-dark(#1c2024, #e4e6e9); --soft: light-dark(#5c6670, #a0a8b2);
  --line: light-dark(#d9dde2, #343a42); --page: light-dark(#fff, #16181c); --panel: light-dark(#f6f7f9, #1d2025);
  --link: light-dark(#0a5fb4, #7db8ec); --warning: light-dark(#fff4e6, #3d2a12); --edge: light-dark(#e8590c, #ff922b);
  --curve-0: light-dark(#1971c2, #74c0fc); --curve-1: light-dark(#e8590c, #ff922b); --curve-2: light-dark(#2f9e44, #69db7c);
  --curve-3: light-dark(#9c36b5, #da77f2); --curve-4: light-dark(#c92a2a, #ff8787); --curve-5: light-dark(#0b7285, #66d9e8) }
:root[data-theme=light] { color-scheme: light } :root[data-theme=dark] { color-scheme: dark }
* { box-sizing: border-box }
body { margin: 0; font: 14px/1.45 system-ui, sans-serif; color: var(--text); background: var(--page) }
header { display: flex; gap: 18px; align-items: center; justify-content: space-between; padding: 8px 16px;
  border-bottom: 1px solid var(--line) }
h1 { font-size: 16px; margin: 0; overflow-wrap: anywhere; min-width: 0 } h2 { font-size: 13px; margin: 18px 0 6px; color: var(--soft) }
button { font: inherit; color: inherit; background: var(--page); border: 1px solid var(--line); border-radius: 7px;
  padding: 4px 10px; cursor: pointer } button:hover { background: var(--panel) }
:focus-visible { outline: 2px solid var(--link); outline-offset: 1px }
main { padding: 4px 16px 20px; max-width: 1100px; margin: 0 auto }
.warning { margin: 10px 0 0; padding: 8px 12px; background: var(--warning); border-left: 4px solid var(--edge); overflow-wrap: anywhere }
.table { overflow-x: auto } table { border-collapse: collapse }
th, td { padding: 3px 12px 3px 0; text-align: right; font-weight: 400; font-variant-numeric: tabular-nums; white-space: nowrap;
  border-bottom: 1px solid var(--line) } th:first-child { text-align: left } thead th { color: var(--soft) }
dl { margin: 0; display: grid; grid-template-columns: auto 1fr; gap: 3px 12px } dt { color: var(--soft) }
dd { margin: 0; overflow-wrap: anywhere; min-width: 0 }
.plot { min-width: 0 } .plot .uplot { font-family: inherit; width: 100% !important }
.u-legend { text-align: left } .u-legend th, .u-legend td { border: 0; white-space: normal; padding: 1px 4px }
@media print { header button { display: none } body { font-size: 11px } main { max-width: none; padding: 0 }
  .table { overflow: visible } th, td { padding-right: 6px } section { break-inside: avoid } }`
