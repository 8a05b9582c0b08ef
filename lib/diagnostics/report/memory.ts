// memory.ts: rows of a report about memory: kinds that plans use on a GPU, and bandwidths.
import { HardwareInfo } from '../../hardware/hardware-info.js'
import { openKernels } from '../../kernels/open.js'
import { type MemoryChoice, requireAddon } from '../../native.js'
import { gpusWithKernels } from '../verify-devices.js'
import { cpuBandwidth } from './cpu-bandwidth.js'
import { deviceBandwidth } from './device-bandwidth.js'
import { type ReportRow, row } from './row.js'

/** More threads move no more. */
const maxThreads = 64

/** Bandwidths of the machine's memory, and of each GPU's; kinds of memory of each GPU. */
export async function memoryRows(): Promise<ReportRow[]> {
  const rows = await cpuRows()
  const gpus = await gpusWithKernels()
  if (gpus.length === 0) {
    const reason = 'there is no GPU that kernels run on'
    rows.push(row('memory', 'machine', 'kinds of memory on a GPU', 'skipped', reason))
  }
  for (const { index, cudaIndex } of gpus) {
    const device = `gpu ${index}`
    try {
      await requireAddon().openDevice(cudaIndex)
      rows.push(...kindRows(device, await requireAddon().measureMemory(cudaIndex)))
      rows.push(await deviceCopyRow(device, index))
    } catch (error) {
      rows.push(row('memory', device, 'kinds of memory on a GPU', 'failed', (error as Error).message))
    }
  }
  return rows
}

async function cpuRows(): Promise<ReportRow[]> {
  const { cpu, memory } = await HardwareInfo.detect({ refresh: true })
  const all = Math.min(cpu.threads, maxThreads)
  const rows: ReportRow[] = []
  for (const use of ['copy', 'read'] as const) {
    for (const threads of new Set([1, all])) {
      const name = `${use} by ${threads === 1 ? 'one thread' : `${threads} threads`}`
      const rate = await cpuBandwidth(threads, use, memory.available)
      rows.push(
        rate === null
          ? row('memory', 'cpu', name, 'skipped', 'too little memory is available')
          : row('memory', 'cpu', name, 'passed', null, inGBs(rate)),
      )
    }
  }
  return rows
}

const inGBs = (value: number) => ({ value: Number(value.toFixed(2)), unit: 'GB/s', allowed: null })

/** What the addon chose on a GPU; on one that shares the machine's memory also what it measured. */
function kindRows(device: string, { resident, passing, measured }: MemoryChoice): ReportRow[] {
  const moved = passing === 'device' ? 'copied through pinned memory' : passing
  const chosen = `weights and arena: ${resident}; inputs and outputs: ${moved}`
  const rows = [row('memory', device, 'kinds of memory', 'passed', chosen)]
  if (measured.length === 0) {
    const reason = 'the GPU has memory of its own: there is no choice'
    return [...rows, row('memory', device, 'bandwidth of each kind', 'skipped', reason)]
  }
  for (const speed of measured) {
    rows.push(
      row(
        'memory',
        device,
        `${speed.kind}: a kernel reads and writes`,
        'passed',
        null,
        inGBs(speed.resident),
      ),
      row('memory', device, `${speed.kind}: CPU and kernel in turn`, 'passed', null, inGBs(speed.passing)),
    )
  }
  return rows
}

/** Copies within the memory of a GPU, bytes read plus written. */
async function deviceCopyRow(device: string, index: number): Promise<ReportRow> {
  const name = 'copy by a kernel'
  try {
    const rate = await deviceBandwidth(await openKernels({ backend: 'cuda', device: index }))
    return rate === null
      ? row('memory', device, name, 'skipped', 'too little memory is free')
      : row('memory', device, name, 'passed', null, inGBs(rate))
  } catch (error) {
    return row('memory', device, name, 'failed', (error as Error).message)
  }
}
