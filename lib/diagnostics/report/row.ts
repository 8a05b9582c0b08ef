// row.ts: one line of the checklist.

/** Parts of the checklist, in their order. */
export const sections = ['detection', 'memory', 'kernels', 'graph capture', 'monitor fields'] as const

/** A part of the checklist. */
export type Section = (typeof sections)[number]

/** How a check can end. `skipped`: it does not apply here, or could not be made; the reason says which. */
export const statuses = ['passed', 'failed', 'skipped'] as const

/** A number that a check measured. */
export interface Measured {
  readonly value: number
  /** `GB/s` (10^9 bytes per second), or what the value is relative to. */
  readonly unit: string
  /** The highest value that passes; null where the value decides nothing. */
  readonly allowed: number | null
}

/** One check. */
export interface ReportRow {
  readonly section: Section
  /** `machine`, `cpu`, or `gpu 0` by the index of the GPU. */
  readonly device: string
  /** What was checked. */
  readonly name: string
  readonly status: (typeof statuses)[number]
  /** What was found, or why it failed or was skipped; null where nothing is to be said. */
  readonly reason: string | null
  readonly measured: Measured | null
}

/** A row; a number that is not finite, such as the error of an output that is NaN, is left out of JSON and so becomes a reason. */
export function row(
  section: Section,
  device: string,
  name: string,
  status: ReportRow['status'],
  reason: string | null,
  measured: Measured | null = null,
): ReportRow {
  if (measured === null || Number.isFinite(measured.value)) {
    return { section, device, name, status, reason, measured }
  }
  const found = `${measured.unit}: ${measured.value}`
  return { section, device, name, status, reason: reason ? `${reason}; ${found}` : found, measured: null }
}
