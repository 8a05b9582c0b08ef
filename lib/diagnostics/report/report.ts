// report.ts: the hardware report: the checklist of a machine as data, without anything that tells whose machine it is.
import { packageVersion } from '../../core/version.js'
import { checkSystem } from '../check.js'
import type { DeviceResult } from '../verify-devices.js'
import { graphCaptureRows } from './graph-capture.js'
import { describeGpus, describeMachine, type GpuDescription, type MachineDescription } from './machine.js'
import { memoryRows } from './memory.js'
import { monitorRows } from './monitor-fields.js'
import { identity, redact } from './redact.js'
import { type ReportRow, row } from './row.js'

/** What a report begins with, and the version of its form: another one when a field changes its meaning or goes. */
export const reportFormat = 'dgx-spark hardware report'
export const reportVersion = 1

/** A checklist that was gone through on a machine. */
export interface HardwareReport {
  readonly format: typeof reportFormat
  readonly version: typeof reportVersion
  /** Version of this library. */
  readonly library: string
  /** Version of Node.js, `v20.19.0`. */
  readonly node: string
  /** Day, `2026-01-31`. */
  readonly date: string
  readonly machine: MachineDescription
  readonly gpus: readonly GpuDescription[]
  /** Rows by status. */
  readonly counts: Readonly<Record<ReportRow['status'], number>>
  readonly rows: readonly ReportRow[]
}

/**
 * Goes through the checklist: detection, memory kinds and bandwidths, kernels, graph capture, fields of the monitor.
 * @param kernels - what `verifyDevices` gave
 */
export async function makeReport(kernels: readonly DeviceResult[]): Promise<HardwareReport> {
  const rows = [
    ...(await detectionRows()),
    ...(await memoryRows()),
    ...kernels.map(kernelRow),
    ...(await graphCaptureRows()),
    ...(await monitorRows()),
  ]
  const own = identity()
  const shown = rows.map(each => ({ ...each, reason: each.reason && redact(each.reason, own) }))
  const count = (status: ReportRow['status']): number => rows.filter(each => each.status === status).length
  return {
    format: reportFormat,
    version: reportVersion,
    library: packageVersion(),
    node: process.version,
    date: new Date().toISOString().slice(0, 10),
    machine: redacted(await describeMachine()),
    gpus: (await describeGpus()).map(redacted),
    counts: { passed: count('passed'), failed: count('failed'), skipped: count('skipped') },
    rows: shown,
  }

  function redacted<Description extends object>(description: Description): Description {
    const fields = Object.entries(description).map(([name, value]) => [
      name,
      typeof value === 'string' ? redact(value, own) : value,
    ])
    return Object.fromEntries(fields)
  }
}

/** The text of a report as a file: one line for each row. */
export function reportText({ rows, ...head }: HardwareReport): string {
  const lines = rows.map(each => `    ${JSON.stringify(each)}`)
  return `${JSON.stringify(head, undefined, 2).slice(0, -2)},\n  "rows": [\n${lines.join(',\n')}\n  ]\n}\n`
}

/** What `dgx-spark check` looks for. */
async function detectionRows(): Promise<ReportRow[]> {
  const statuses = { ok: 'passed', note: 'skipped', problem: 'failed' } as const
  return (await checkSystem()).map(({ name, status, found }) =>
    row('detection', 'machine', name, statuses[status], found),
  )
}

/** One case of one kernel. */
function kernelRow(result: DeviceResult): ReportRow {
  const { device, op, variant, status, error, tolerance, reference } = result
  const name = `${op} ${variant}`.trim()
  if (status === 'unsupported')
    return row('kernels', device, name, 'skipped', 'the backend has no such kernel')
  const measured = { value: error, unit: `relative error to ${reference}`, allowed: tolerance }
  return row('kernels', device, name, status, result.reason ?? null, measured)
}
