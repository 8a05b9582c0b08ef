// monitor-fields.ts: rows of a report about what can be monitored; values are left out.
import { setTimeout as sleep } from 'node:timers/promises'
import { CpuMeter } from '../../hardware/cpu-meter.js'
import { HardwareInfo } from '../../hardware/hardware-info.js'
import { systemRoot } from '../../hardware/system-files.js'
import { loadAddon, type NvmlSample } from '../../native.js'
import { type ReportRow, row } from './row.js'

/** Fields of a sample, in the words of the monitor. */
const fields: readonly (readonly [name: string, key: keyof NvmlSample])[] = [
  ['utilization', 'utilization'],
  ['memory', 'memory'],
  ['temperature', 'temperature'],
  ['power', 'power'],
  ['power limit', 'powerLimit'],
  ['graphics clock', 'graphicsClock'],
  ['SM clock', 'smClock'],
  ['memory clock', 'memoryClock'],
  ['video clock', 'videoClock'],
  ['highest SM clock', 'maxSmClock'],
  ['reasons for reduced clocks', 'eventReasons'],
  ['processes', 'processes'],
]

const counters: readonly (readonly [name: string, key: keyof NvmlSample['throttled']])[] = [
  ['time under the power cap', 'powerCap'],
  ['time of thermal slowdown', 'thermal'],
  ['time of hardware thermal slowdown', 'hardwareThermal'],
  ['time of the power brake', 'powerBrake'],
]

/** Time over which the use of the CPU is measured, in milliseconds. */
const cpuMs = 100

/** Which fields the monitor has here, for the CPU and for each NVIDIA GPU. */
export async function monitorRows(): Promise<ReportRow[]> {
  const rows = await cpuRows()
  const { gpus } = await HardwareInfo.detect()
  const nvidia = gpus.filter(({ vendor }) => vendor === 'nvidia')
  if (nvidia.length === 0) {
    rows.push(row('monitor fields', 'machine', 'GPU', 'skipped', 'there is no NVIDIA GPU'))
  }
  for (const { index, uuid, problem, integrated } of nvidia) {
    const device = `gpu ${index}`
    const { addon } = loadAddon()
    if (!addon || !uuid) {
      const reason = problem ?? 'NVML does not know it'
      rows.push(row('monitor fields', device, 'all', 'failed', reason))
      continue
    }
    try {
      rows.push(...gpuRows(device, await addon.sampleGpu(uuid), integrated === true))
    } catch (error) {
      rows.push(row('monitor fields', device, 'all', 'failed', (error as Error).message))
    }
  }
  return rows
}

async function cpuRows(): Promise<ReportRow[]> {
  const meter = new CpuMeter(systemRoot())
  await sleep(cpuMs)
  const { utilization, temperature } = meter.sample()
  return [given('cpu', 'utilization', utilization), given('cpu', 'temperature', temperature)]
}

function given(device: string, name: string, value: unknown, reason?: string): ReportRow {
  if (value !== null) return row('monitor fields', device, name, 'passed', null)
  return row('monitor fields', device, name, 'skipped', reason ?? 'not supported: the system does not tell')
}

function gpuRows(device: string, sample: NvmlSample, isShared: boolean): ReportRow[] {
  const why = (key: string): string => `not supported: NVML says ${sample.unavailable[key] ?? 'nothing'}`
  const rows = fields.map(([name, key]) => {
    const instead = key === 'memory' && isShared ? '; the memory of the machine is shown' : ''
    return given(device, name, sample[key], why(key) + instead)
  })
  return [...rows, ...counters.map(([name, key]) => given(device, name, sample.throttled[key], why(key)))]
}
