import type { Command } from 'commander'
import { getConfig } from '../core/config.js'
import { type VerifyResult, verifyKernels } from '../diagnostics/verify.js'
import { hasCapability, kernelsFrom } from '../hardware/gpu.js'
import { HardwareInfo } from '../hardware/hardware-info.js'
import type { Kernels } from '../kernels/kernels.js'
import { openKernels } from '../kernels/open.js'
import { requireAddon } from '../native.js'
import { withExamples } from './command.js'
import { print, printJson, styled } from './output.js'
import { printTable } from './table.js'

/** A device and what its kernels are compared with. */
interface Candidate {
  device: string
  kernels: Kernels
  reference: Kernels
}

type DeviceResult = VerifyResult & { device: string; reference: string }

/** `dgx-spark verify`: every kernel on every device against a reference on the CPU. */
export function addVerify(command: Command): void {
  command
    .option('--json', 'print one JSON document')
    .option('--all', 'list every case, not only those that did not pass')
    .action(async (options: { json?: boolean; all?: boolean }) => {
      const results: DeviceResult[] = []
      for (const { device, kernels, reference } of await openCandidates()) {
        for (const result of await verifyKernels(kernels, reference)) {
          results.push({ device, reference: reference.backend, ...result })
        }
      }
      if (options.json) printJson(results)
      else report(results, options.all ?? false)
      if (results.some(result => result.status === 'failed')) process.exitCode = 1
    })
  withExamples(command, 'dgx-spark verify', 'dgx-spark verify --all')
}

async function openCandidates(): Promise<Candidate[]> {
  const cpu = await openKernels({ backend: 'cpu' })
  const candidates = [{ device: 'cpu', kernels: cpu, reference: await openKernels({ backend: 'js' }) }]
  const { gpus } = await HardwareInfo.detect()
  if (!getConfig().enabled || requireAddon().kernelFamilies().length === 0) return candidates
  for (const { index, cudaIndex, computeCapability, problem } of gpus) {
    if (cudaIndex === null || problem || !hasCapability(computeCapability, kernelsFrom)) continue
    const kernels = await openKernels({ backend: 'cuda', device: index })
    candidates.push({ device: `gpu ${index}`, kernels, reference: cpu })
  }
  return candidates
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
