// read.ts: reads hardware reports of others.
import { SparkError } from '../../core/errors.js'
import type { HardwareReport } from './report.js'
import { reportFormat, reportVersion } from './report.js'
import { type ReportRow, sections, statuses } from './row.js'

/** A type of a field by an example; with null the field may be null, too. */
type Kind = 'string' | 'number' | 'boolean' | 'string?' | 'number?' | 'boolean?'

const headKinds = { library: 'string', node: 'string', date: 'string' } as const
const machineKinds = {
  os: 'string',
  platform: 'string',
  arch: 'string',
  kernel: 'string',
  isDgxSpark: 'boolean',
  product: 'string?',
  cpu: 'string?',
  cores: 'number',
  cpuIsa: 'string?',
  memoryGiB: 'number',
} as const
const gpuKinds = {
  index: 'number',
  name: 'string',
  computeCapability: 'string?',
  driver: 'string?',
  cuda: 'string?',
  memoryGiB: 'number?',
  sharesMemory: 'boolean?',
  problem: 'string?',
} as const
const countKinds = { passed: 'number', failed: 'number', skipped: 'number' } as const
const rowKinds = {
  section: 'string',
  device: 'string',
  name: 'string',
  status: 'string',
  reason: 'string?',
} as const
const measuredKinds = { value: 'number', unit: 'string', allowed: 'number?' } as const

/**
 * The report in the text of a file.
 * @throws SparkError ERR_FORMAT naming the file and the field when it is no report, or of another version
 */
export function readReport(file: string, text: string): HardwareReport {
  const refuse = (what: string): SparkError =>
    new SparkError('ERR_FORMAT', `${file} is no hardware report of \`dgx-spark verify --report\`: ${what}`)
  const report = parse(text)
  if (!isRecord(report) || report.format !== reportFormat) throw refuse(`its format is not '${reportFormat}'`)
  if (report.version !== reportVersion) {
    throw refuse(`its version is ${String(report.version)}, not ${reportVersion}: make it again`)
  }
  const expect = (name: string, value: unknown, kinds: Readonly<Record<string, Kind>>): void => {
    const wrong = isRecord(value) ? Object.keys(kinds).find(key => !fits(value[key], kinds[key]!)) : ''
    if (wrong !== undefined)
      throw refuse(`${[name, wrong].filter(Boolean).join('.')} is missing or of another type`)
  }
  const list = (name: string, value: unknown): unknown[] => {
    if (Array.isArray(value)) return value
    throw refuse(`${name} is no list`)
  }
  expect('', report, headKinds)
  expect('machine', report.machine, machineKinds)
  expect('counts', report.counts, countKinds)
  for (const [i, gpu] of list('gpus', report.gpus).entries()) expect(`gpus[${i}]`, gpu, gpuKinds)
  for (const [i, row] of list('rows', report.rows).entries()) {
    expect(`rows[${i}]`, row, rowKinds)
    const { section, status, measured } = row as ReportRow
    if (!sections.includes(section)) throw refuse(`rows[${i}].section is '${section}'`)
    if (!statuses.includes(status)) throw refuse(`rows[${i}].status is '${status}'`)
    if (measured !== null) expect(`rows[${i}].measured`, measured, measuredKinds)
  }
  return report as unknown as HardwareReport
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

const fits = (value: unknown, kind: Kind): boolean =>
  kind.endsWith('?') && value === null ? true : typeof value === kind.replace('?', '')
