import { type Command, InvalidArgumentError } from 'commander'
import type { HardwareReport } from '../diagnostics/report/report.js'
import { type DeviceResult, verifyDevices } from '../diagnostics/verify-devices.js'
import { writeFileAtomic } from '../io/atomic-write.js'
import { withExamples } from './command.js'
import { print, printError, printJson, styled } from './output.js'
import { printTable } from './table.js'

interface VerifyCommandOptions {
  json?: boolean
  all?: boolean
  report: readonly string[]
}

/** `dgx-spark verify`: every kernel on every device against a reference on the CPU; the whole checklist as a report. */
export function addVerify(command: Command): void {
  command
    .option('--json', 'print one JSON document')
    .option('--all', 'list every case, not only those that did not pass')
    .option(
      '--report <file>',
      'go through the checklist of the hardware and write it to a .json or .html file; may be repeated',
      reportFile,
      [],
    )
    .action(verify)
  withExamples(
    command,
    'dgx-spark verify',
    'dgx-spark verify --all',
    'dgx-spark verify --report report.json --report report.html',
  )
}

function reportFile(file: string, before: readonly string[]): string[] {
  if (/\.(json|html)$/i.test(file)) return [...before, file]
  throw new InvalidArgumentError('Expected a file that ends in .json or .html.')
}

async function verify({ json, all, report: files }: VerifyCommandOptions): Promise<void> {
  const results = await verifyDevices()
  if (json) printJson(results)
  else report(results, all ?? false)
  let failed = results.some(result => result.status === 'failed')
  if (files.length > 0) {
    const { makeReport } = await import('../diagnostics/report/report.js')
    const made = await makeReport(results)
    for (const file of files) await writeReport(file, made)
    failed ||= made.counts.failed > 0
  }
  if (failed) process.exitCode = 1
}

async function writeReport(file: string, made: HardwareReport): Promise<void> {
  const text = /\.json$/i.test(file)
    ? (await import('../diagnostics/report/report.js')).reportText(made)
    : (await import('./report-page/page.js')).reportPage(made)
  await writeFileAtomic(file, [Buffer.from(text)])
  const { passed, failed, skipped } = made.counts
  printError(`${file}: ${passed} checks passed, ${failed} failed, ${skipped} skipped`)
}

function report(results: readonly DeviceResult[], all: boolean): void {
  const shown = all ? results : results.filter(result => result.status !== 'passed')
  const rows = shown.map(({ device, op, variant, status, error, tolerance, reason }) => [
    device,
    op,
    variant,
    status === 'failed' ? styled('red', status) : status,
    error === 0 ? 'bit-equal' : error.toExponential(1),
    tolerance === 0 ? 'bit-equal' : tolerance.toExponential(1),
    reason ?? '',
  ])
  if (rows.length > 0) printTable(['device', 'kernel', 'case', 'result', 'error', 'allowed', ''], rows)
  for (const device of new Set(results.map(result => result.device))) {
    const own = results.filter(result => result.device === device)
    const count = (status: string): number => own.filter(result => result.status === status).length
    const counts = `${count('passed')} passed, ${count('failed')} failed, ${count('unsupported')} unsupported`
    print(`${device}: ${counts} (reference: ${own[0]?.reference})`)
  }
}
