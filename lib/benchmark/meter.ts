// meter.ts: processor time, memory and energy of what is measured, summed over its turns.

import { machineMemory } from '../hardware/memory.js'
import { MonitorStatistics } from '../hardware/monitor-statistics.js'
import { systemRoot } from '../hardware/system-files.js'
import { PackageEnergy } from './energy.js'
import { GpuUse, gpuWarnings } from './gpu-use.js'
import { cpuThrottles } from './machine.js'
import type { ResourceUse } from './result.js'

/** Milliseconds of timed runs below which no energy is told: RAPL counts once a millisecond, GPUs are sampled less often. */
const minEnergyMs = 100

/** What all meters of a benchmark read. */
export interface Instruments {
  readonly packages: PackageEnergy
  readonly gpu: GpuUse | null
}

/** Opens the instruments of this machine. */
export async function openInstruments(): Promise<Instruments> {
  return { packages: new PackageEnergy(systemRoot()), gpu: await GpuUse.start() }
}

/** Sums what one candidate uses in its turns. */
export class Meter {
  readonly #instruments: Instruments
  readonly #inProcess: boolean
  readonly #gpu = new MonitorStatistics()
  readonly #turns: { readonly start: number; readonly end: number }[] = []
  #user = 0
  #system = 0
  #joules = 0
  #throttles = 0

  /** @param inProcess - whether its processor time and memory are those of this process */
  constructor(instruments: Instruments, inProcess: boolean) {
    this.#instruments = instruments
    this.#inProcess = inProcess
  }

  /** Measures during `work`, also where it fails. */
  async during<T>(work: () => Promise<T>): Promise<T> {
    const { packages, gpu } = this.#instruments
    gpu?.count(this.#gpu)
    await gpu?.now()
    const throttles = cpuThrottles()
    const energy = packages.read()
    const cpu = process.cpuUsage()
    const start = performance.now()
    try {
      return await work()
    } finally {
      const end = performance.now()
      const { user, system } = process.cpuUsage(cpu)
      const after = packages.read()
      this.#turns.push({ start, end })
      this.#user += user / 1000
      this.#system += system / 1000
      if (energy && after) this.#joules += packages.joules(energy, after)
      this.#throttles += cpuThrottles() - throttles
      await gpu?.now()
      gpu?.count(undefined)
    }
  }

  /**
   * What was used.
   * @param inferences - in all turns
   * @param growth - bytes by which loading let the process grow
   */
  use(inferences: number, growth: number | null): ResourceUse {
    const { gpu } = this.#instruments
    const wall = this.#turns.reduce((sum, { start, end }) => sum + end - start, 0)
    const [user, system] = [this.#user, this.#system]
    return {
      cpu: this.#inProcess ? { user, system, cores: (user + system) / wall } : null,
      memory: {
        rss: this.#inProcess ? process.memoryUsage.rss() : null,
        growth,
        available: machineMemory(systemRoot()).available,
      },
      gpu: gpu && this.#gpu.summary(),
      energy: this.#energy(wall, inferences),
    }
  }

  #energy(wall: number, inferences: number): ResourceUse['energy'] {
    const { packages, gpu } = this.#instruments
    if (wall < minEnergyMs) {
      const why = `it needs timed runs of ${minEnergyMs} ms in all: give more runs`
      return { cpu: null, gpu: null, why: [why] }
    }
    const joules = gpu && this.#turns.map(({ start, end }) => gpu.joules(start, end))
    const known = joules?.filter(value => value !== null) ?? []
    const hasPower = known.length > 0 && known.length === this.#turns.length
    const why = packages.why === null ? [] : [packages.why]
    if (gpu && !hasPower) why.push('the driver tells no power of the GPU')
    return {
      cpu: packages.why === null ? this.#joules / inferences : null,
      gpu: hasPower ? known.reduce((sum, value) => sum + value, 0) / inferences : null,
      why,
    }
  }

  /** What the machine did that makes times doubtful. */
  warnings(): string[] {
    const cores = this.#throttles
    return [
      ...(cores > 0 ? [`cores of the processor were throttled ${cores} times: they were too hot`] : []),
      ...(this.#instruments.gpu ? gpuWarnings(this.#gpu.summary()) : []),
    ]
  }
}
