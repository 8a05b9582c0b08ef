// style.ts: style sheet of the page of a hardware report, in light and dark, for phones and for paper.

export const style = `html { color-scheme: light dark; --text: light-dark(#1c2024, #e4e6e9); --soft: light-dark(#5c6670, #a0a8b2);
  --line: light-dark(#d9dde2, #343a42); --page: light-dark(#fff, #16181c); --panel: light-dark(#f6f7f9, #1d2025);
  --passed: light-dark(#2b8a3e, #69db7c); --failed: light-dark(#c92a2a, #ff8787); --skipped: light-dark(#8a6d00, #ffd43b) }
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 1000px; padding: 16px; font: 14px/1.45 system-ui, sans-serif; color: var(--text); background: var(--page) }
h1 { font-size: 20px; margin: 0 0 4px; overflow-wrap: anywhere } h2 { font-size: 16px; margin: 24px 0 6px }
p { margin: 0 0 12px; color: var(--soft) }
dl { margin: 12px 0; display: grid; grid-template-columns: auto 1fr; gap: 3px 16px; padding: 12px; background: var(--panel);
  border: 1px solid var(--line); border-radius: 7px } dt { color: var(--soft) } dd { margin: 0; overflow-wrap: anywhere }
.counts { display: flex; flex-wrap: wrap; gap: 8px; list-style: none; margin: 0; padding: 0 }
.counts li { padding: 4px 12px; border: 1px solid var(--line); border-radius: 7px }
.passed { color: var(--passed) } .failed { color: var(--failed); font-weight: 600 } .skipped { color: var(--skipped) }
table { border-collapse: collapse; width: 100%; table-layout: fixed }
thead th { width: 26% } thead th:nth-child(2), thead th:nth-child(3) { width: 11% } thead th:nth-child(4) { width: 19% } thead th:nth-child(5) { width: auto }
th, td { padding: 4px 12px 4px 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); overflow-wrap: anywhere }
thead th { color: var(--soft); font-weight: 400 } tbody th { font-weight: 500 }
td:nth-child(2), td:nth-child(3) { white-space: nowrap } td:nth-child(4) { font-variant-numeric: tabular-nums }
@media (max-width: 740px) {
  thead { display: none } table, tbody, tr { display: block } tr { padding: 6px 0; border-bottom: 1px solid var(--line) }
  th, td { display: inline; border: 0; padding: 0 8px 0 0 } td:last-child { display: block; color: var(--soft) }
  dl { grid-template-columns: 1fr; gap: 0 } dd { margin-bottom: 6px }
}
@media print { html { color-scheme: light } body { max-width: none; padding: 0; font-size: 11px } tr { break-inside: avoid }
  h2 { break-after: avoid } thead { display: table-header-group } }`
