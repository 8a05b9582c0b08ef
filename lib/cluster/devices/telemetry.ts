// telemetry.ts: measurements of the devices of this machine.
import type { GpuSample } from '../../hardware/gpu-sample.js'
import { MachineMonitor, type MachineSample } from '../../hardware/machine-monitor.js'
import { unifiedMemoryFree } from '../../hardware/memory.js'
import { systemRoot } from '../../hardware/system-files.js'
import { type DeviceRecord, type DeviceTelemetry, known } from './device-record.js'

/** Measures devices; those that cannot be measured are missing in the answer. */
export type TelemetrySource = (
  devices: readonly DeviceRecord[],
) => Promise<ReadonlyMap<string, DeviceTelemetry>>

/** Measures this machine: the processor, and GPUs by NVML. */
export function machineTelemetry(): TelemetrySource {
  let monitor = new MachineMonitor()
  let measured = ''
  return async devices => {
    const gpus = devices.filter(({ kind }) => kind === 'gpu').map(({ id }) => id)
    // A monitor knows the GPUs that were there when it was made.
    if (gpus.join() !== measured) monitor = new MachineMonitor()
    measured = gpus.join()
    const sample = await monitor.sample()
    return new Map(devices.flatMap(device => telemetryOf(device, sample) ?? []))
  }
}

function telemetryOf(device: DeviceRecord, sample: MachineSample): [string, DeviceTelemetry][] {
  if (device.kind === 'cpu') return [[device.id, cpuTelemetry(sample)]]
  const gpu = sample.gpus.find(({ gpu: { uuid } }) => uuid === device.id)
  return gpu ? [[device.id, gpuTelemetry(gpu)]] : []
}

function cpuTelemetry({ time, cpu, memory }: MachineSample): DeviceTelemetry {
  return {
    time,
    memoryUsed: memory.total - memory.available,
    memoryFree: memory.available,
    ...known({ utilization: cpu.utilization, temperature: cpu.temperature }),
  }
}

function gpuTelemetry(sample: GpuSample): DeviceTelemetry {
  const { used, total, isShared } = sample.memory
  const left = used !== null && total !== null ? Math.max(0, total - used) : null
  return {
    time: sample.time,
    ...known({
      memoryUsed: used,
      memoryFree: isShared ? unifiedMemoryFree(systemRoot()) : left,
      utilization: sample.utilization,
      temperature: sample.temperature,
      power: sample.power,
      powerLimit: sample.powerLimit,
    }),
    throttleReasons: sample.throttleReasons,
  }
}
