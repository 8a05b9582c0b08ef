// page.ts: HTML page of a hardware report, in one file without scripts and requests.
import type { GpuDescription, MachineDescription } from '../../diagnostics/report/machine.js'
import type { HardwareReport } from '../../diagnostics/report/report.js'
import { type ReportRow, sections, statuses } from '../../diagnostics/report/row.js'
import { escapeHtml } from '../html.js'
import { style } from './style.js'

const titles: Readonly<Record<ReportRow['section'], string>> = {
  detection: 'Detection',
  memory: 'Memory',
  kernels: 'Kernels',
  'graph capture': 'Graph capture',
  'monitor fields': 'Fields of the monitor',
}

/** A page of a report. Kernels take a line for all cases of an operation that passed, and one for each other case. */
export function reportPage(report: HardwareReport): string {
  const { library, node, date, machine, gpus, counts, rows } = report
  const title = `Hardware report: ${gpus.length > 0 ? gpus.map(({ name }) => name).join(', ') : 'no GPU'}`
  const parts = sections.map(section => {
    const own = rows.filter(row => row.section === section)
    return own.length === 0 ? '' : table(titles[section], section === 'kernels' ? merged(own) : own)
  })
  const badges = statuses.map(
    status => `<li${counts[status] > 0 ? ` class="${status}"` : ''}>${counts[status]} ${status}</li>`,
  )
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>${escapeHtml(title)}</title>
<style>${style}</style>
<h1>${escapeHtml(title)}</h1>
<p>dgx-spark ${escapeHtml(library)}, Node.js ${escapeHtml(node)}, ${escapeHtml(date)}</p>
<ul class="counts">${badges.join('')}</ul>
${pairs([...machineFacts(machine), ...gpus.map(gpuFacts)])}
${parts.join('\n')}
</html>
`
}

type Fact = readonly [name: string, value: string]

const pairs = (facts: readonly Fact[]): string =>
  `<dl>${facts.map(([name, value]) => `<dt>${escapeHtml(name)}</dt><dd>${escapeHtml(value)}</dd>`).join('')}</dl>`

const machineFacts = (machine: MachineDescription): Fact[] => [
  ['machine', `${machine.product ?? 'unknown'}${machine.isDgxSpark ? ' (a DGX Spark)' : ''}`],
  ['system', `${machine.os}, kernel ${machine.kernel}, ${machine.arch}`],
  ['CPU', `${machine.cpu ?? 'unknown'}, ${machine.cores} cores, kernels for ${machine.cpuIsa ?? 'none'}`],
  ['memory', `${machine.memoryGiB} GiB`],
]

function gpuFacts(gpu: GpuDescription): Fact {
  const parts = [
    gpu.name,
    gpu.computeCapability && `compute capability ${gpu.computeCapability}`,
    gpu.driver && `driver ${gpu.driver}`,
    gpu.cuda && `CUDA ${gpu.cuda}`,
    gpu.memoryGiB !== null && `${gpu.memoryGiB} GiB${gpu.sharesMemory ? ', shared with the CPU' : ''}`,
    gpu.problem,
  ]
  return [`GPU ${gpu.index}`, parts.filter(Boolean).join(', ')]
}

const heads = ['check', 'device', 'result', 'measured', '']

function table(title: string, rows: readonly ReportRow[]): string {
  return `<h2>${escapeHtml(title)}</h2>
<table><thead><tr>${heads.map(head => `<th scope="col">${head}</th>`).join('')}</tr></thead>
<tbody>${rows.map(line).join('\n')}</tbody></table>`
}

function line({ name, device, status, measured, reason }: ReportRow): string {
  const number = measured === null ? '' : measuredText(measured)
  const cells = [
    escapeHtml(device),
    `<span class="${status}">${status}</span>`,
    escapeHtml(number),
    escapeHtml(reason ?? ''),
  ]
  return `<tr><th scope="row">${escapeHtml(name)}</th>${cells.map(cell => `<td>${cell}</td>`).join('')}</tr>`
}

function measuredText({ value, unit, allowed }: NonNullable<ReportRow['measured']>): string {
  if (allowed === null) return `${value} ${unit}`
  const exact = (number: number): string => (number === 0 ? '0' : number.toExponential(1))
  return `${exact(value)} (allowed ${exact(allowed)})`
}

/** Rows of kernels, those that passed by device and operation, with the largest error. */
function merged(rows: readonly ReportRow[]): ReportRow[] {
  const groups = new Map<string, ReportRow[]>()
  for (const row of rows) {
    const operation = row.name.split(' ')[0]!
    const key =
      row.status === 'passed' ? `${row.device} ${operation}` : `${row.device} ${row.name} ${row.status}`
    groups.set(key, [...(groups.get(key) ?? []), row])
  }
  const order = { failed: 0, skipped: 1, passed: 2 }
  return [...groups.values()].map(mergedRow).sort((a, b) => order[a.status] - order[b.status])
}

function mergedRow(group: readonly ReportRow[]): ReportRow {
  const worst = group.reduce((a, b) => ((b.measured?.value ?? 0) > (a.measured?.value ?? 0) ? b : a))
  if (worst.status !== 'passed') return worst
  const reason = group.length === 1 ? null : `${group.length} cases`
  return { ...worst, name: worst.name.split(' ')[0]!, reason }
}
