import type { Command } from 'commander'
import { HardwareInfo } from '../hardware/hardware-info.js'
import type { Kernels } from '../runtime/kernels.js'
import { openKernels } from '../runtime/open.js'
import { type VerifyResult, verifyKernels } from '../runtime/verify.js'
import { print, printJson, printTable, styled } from './output.js'

/** `dgx-spark verify`: every kernel on every device against the CPU reference. */
export function addVerify(program: Command): void {
  program
    .command('verify')
    .description('run each kernel on each available device against the CPU reference')
    .option('--json', 'print one JSON document')
    .option('--all', 'list every case, not only those that did not pass')
    .action(async (options: { json?: boolean; all?: boolean }) => {
      const { reference, candidates } = await openAll()
      const results = []
      for (const { label, kernels } of candidates) {
        for (const result of await verifyKernels(kernels, reference))
          results.push({ device: label, ...result })
      }
      if (options.json) printJson({ reference: reference.backend, results })
      else report(reference, results, options.all ?? false)
      if (results.some(result => result.status === 'failed')) process.exitCode = 1
    })
}

/** The reference (the addon's CPU kernels, or TypeScript's where no addon loads) and everything to compare with it. */
async function openAll(): Promise<{ reference: Kernels; candidates: { label: string; kernels: Kernels }[] }> {
  const js = await openKernels({ backend: 'js' })
  const info = await HardwareInfo.detect()
  if (info.backend.name === 'js') return { reference: js, candidates: [{ label: 'js', kernels: js }] }
  const reference = await openKernels({ backend: 'cpu' })
  const candidates = [
    { label: 'cpu', kernels: reference },
    { label: 'js', kernels: js },
  ]
  if (info.backend.name === 'cuda') {
    for (const gpu of info.gpus.filter(gpu => gpu.vendor === 'nvidia' && !gpu.problem)) {
      const kernels = await openKernels({ backend: 'cuda', device: gpu.index })
      candidates.push({ label: `cuda:${gpu.index}`, kernels })
    }
  }
  return { reference, candidates }
}

function report(
  reference: Kernels,
  results: readonly (VerifyResult & { device: string })[],
  all: boolean,
): void {
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
    const line = `${device}: ${count('passed')} passed, ${count('failed')} failed, ${count('unsupported')} unsupported`
    print(`${line} (reference: ${reference.backend})`)
  }
}
