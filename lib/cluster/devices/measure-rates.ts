// measure-rates.ts: how fast a device moves and multiplies, measured once in runs of less than a second and kept on the disk.
import { debug } from '../../core/log.js'
import { packageVersion } from '../../core/version.js'
import { cpuBandwidth } from '../../diagnostics/report/cpu-bandwidth.js'
import { deviceBandwidth } from '../../diagnostics/report/device-bandwidth.js'
import { machineMemory } from '../../hardware/memory.js'
import { systemRoot } from '../../hardware/system-files.js'
import { readCached, writeCached } from '../../io/user-cache.js'
import type { Kernels } from '../../kernels/kernels.js'
import { openKernels } from '../../kernels/open.js'
import { encode } from '../../precision/casts.js'
import { checkRates } from './check-record.js'
import { type DeviceRecord, known, type MeasuredRates } from './device-record.js'

/** The document of the user's cache, and how many devices it keeps. */
const [cacheName, maxKept] = ['device-rates.json', 64]

/** Element types of products that are measured, where the device multiplies them. */
const dtypes = ['f32', 'f16', 'bf16'] as const

/** Sizes of square matrices, up to the first one whose product takes so many milliseconds. */
const [sizes, longEnough] = [[256, 512, 1024, 2048, 4096], 10]

/** Products of the last size, of which the fastest counts. */
const products = 5

/** What rates are kept by: another driver, processor, instruction set or version of this library is measured anew. */
const keyOf = ({ id, kind, model, architecture, computeUnits, driver }: DeviceRecord): string =>
  [kind === 'gpu' ? id : model, architecture, computeUnits, driver, packageVersion()].join(' | ')

/**
 * Rates of a device of this machine, from the disk or measured now.
 * @param options - `refresh`: measures in any case
 * @returns undefined where no kernels of ours run on it
 */
export async function deviceRates(
  device: DeviceRecord,
  options: { readonly refresh?: boolean } = {},
): Promise<MeasuredRates | undefined> {
  const kept = await keptRates()
  const key = keyOf(device)
  if (!options.refresh && kept.has(key)) return kept.get(key)
  const rates = await measureRates(device)
  if (!rates) return undefined
  kept.delete(key)
  const entries = [...kept, [key, rates] as const].slice(-maxKept)
  await writeCached(cacheName, Object.fromEntries(entries))
  return rates
}

/** What is on the disk; entries that are damaged count as missing. */
async function keptRates(): Promise<Map<string, MeasuredRates>> {
  const content = await readCached(cacheName)
  if (typeof content !== 'object' || content === null) return new Map()
  const entries = Object.entries(content).flatMap(([key, value]): [string, MeasuredRates][] => {
    try {
      return [[key, checkRates(cacheName, value)]]
    } catch (error) {
      debug((error as Error).message)
      return []
    }
  })
  return new Map(entries)
}

async function measureRates(device: DeviceRecord): Promise<MeasuredRates | undefined> {
  const capability = device.backends.find(({ name }) => name === 'cuda' || name === 'cpu')
  if (!capability) return undefined
  const isGpu = capability.name === 'cuda'
  const kernels = await openKernels(isGpu ? { backend: 'cuda', device: device.id } : { backend: 'cpu' })
  const perMs = isGpu ? await deviceBandwidth(kernels) : await hostBandwidth(device)
  const flops: Record<string, number> = {}
  for (const dtype of dtypes) {
    if (!capability.native.includes(dtype)) continue
    try {
      flops[dtype] = await multiplyRate(kernels, dtype)
    } catch (error) {
      debug(`${device.model}: products of ${dtype} were not measured: ${(error as Error).message}`)
    }
  }
  return { time: Date.now(), ...known({ bandwidth: perMs === null ? null : perMs * 1e9 }), flops }
}

const hostBandwidth = ({ computeUnits = 1 }: DeviceRecord): Promise<number | null> =>
  cpuBandwidth(Math.min(computeUnits, 64), 'copy', machineMemory(systemRoot()).available)

/** Multiplications and additions per second of y = x · Wᵀ. */
async function multiplyRate(kernels: Kernels, dtype: (typeof dtypes)[number]): Promise<number> {
  let rate = 0
  for (const size of sizes) {
    const [x, y] = [new Float32Array(size * size).fill(0.5), new Float32Array(size * size)]
    const weight = { format: dtype, rows: size, cols: size, data: encode(x, dtype) } as const
    const compute = dtype === 'f32' ? {} : { compute: dtype }
    const args = { weight, tokens: size, x, y, ...compute }
    const prepared = kernels.prepare([{ op: 'linear', args }], { state: [x, y], constant: [weight.data] })
    try {
      const times: number[] = []
      for (let i = 0; i < products; i++) {
        const begin = performance.now()
        await prepared.run()
        times.push(performance.now() - begin)
      }
      const fastest = Math.min(...times)
      rate = (2 * size ** 3) / (fastest / 1000)
      if (fastest >= longEnough) break
    } finally {
      prepared.dispose()
    }
  }
  return rate
}
