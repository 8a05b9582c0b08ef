// fp4-ways.ts: which ways to FP4 tensor cores products on a GPU may take: those that a test found right, in this or an
// earlier process. None where nobody could test them.
import { statSync } from 'node:fs'
import { getConfig } from '../core/config.js'
import { warnOnce } from '../core/log.js'
import { packageVersion } from '../core/version.js'
import { hasCapability } from '../hardware/gpu.js'
import { cacheFile, readCached, writeCached } from '../io/user-cache.js'
import { type Addon, type CudaDevice, loadAddon, requireAddon } from '../native.js'
import { type Fp4Problem, type Fp4Way, isFp4Problem, testFp4 } from './fp4-test.js'

/** What is known of the FP4 tensor cores of a GPU. */
export interface Fp4Finding {
  /** Ways that products may take. */
  readonly ways: readonly Fp4Way[]
  /** What was found and where that comes from, in words. */
  readonly found: string
  /** What is wrong, and what happens instead; '' when nothing is. */
  readonly problem: string
  /** What to do about it. */
  readonly next?: string
}

/** What was found of each way. */
type Verdict = Readonly<Record<Fp4Way, Fp4Problem>>

/** The lowest compute capability with FP4 tensor cores. */
const fp4From = '10.0'

const cacheName = 'fp4.json'
const mostCached = 16

/** Asks the configuration, the cache, and at last the GPU, in a child process. Never throws. */
export async function findFp4Ways(ordinal: number): Promise<Fp4Finding> {
  const none = { ways: [], problem: '' }
  if (!getConfig().fp4TensorCores) return { ...none, found: 'not used: DGX_SPARK_NVFP4=0' }
  try {
    const addon = requireAddon()
    const cuda = await addon.queryCuda()
    const device = cuda.devices.find(each => each.ordinal === ordinal)
    if (!device || !hasCapability(device.computeCapability, fp4From))
      return { ...none, found: `none: they come with compute capability ${fp4From}` }
    const key = await cacheKey(addon, device)
    const cached = (await readVerdicts())[key]
    if (cached) return describe(ordinal, cached, `tested earlier, ${cacheFile(cacheName)}`)
    const verdict = await testAll(device)
    const kept = await keepVerdict(key, verdict)
    return describe(ordinal, verdict, kept ? `tested now, kept in ${cacheFile(cacheName)}` : 'tested now')
  } catch (error) {
    const why = (error as Error).message
    return {
      ...none,
      found: `not used: they could not be tested: ${why}`,
      problem: `${subject(ordinal)} could not be tested, so ${byBf16}: ${why}`,
      next: 'npx dgx-spark check tests them in a process of its own, and the answer is kept',
    }
  }
}

const subject = (ordinal: number): string => `FP4 tensor cores of CUDA device ${ordinal}`
const products = "products with compute 'nvfp4' are formed"
const byBf16 = `${products} on its tensor cores for bf16, of the same numbers`
const names: Readonly<Record<Fp4Way, string>> = { own: 'our kernel', cublaslt: 'cuBLASLt' }

function describe(ordinal: number, verdict: Verdict, source: string): Fp4Finding {
  const all = Object.keys(names) as Fp4Way[]
  const ways = all.filter(way => verdict[way] === '')
  const wrong = all.filter(way => verdict[way]).map(way => `${names[way]} ${verdict[way]}`)
  const used = ways.map(way => names[way]).join(' and ')
  if (ways.length > 0 && wrong.length === 0) return { ways, found: `${used} (${source})`, problem: '' }
  const reasons =
    wrong.length > 0 ? wrong.join('. ') : 'neither this addon nor cuBLASLt has products for them'
  const instead = ways.length > 0 ? `${products} by ${used}` : byBf16
  const found = `${reasons}. So ${instead} (${source})`
  return {
    ways,
    found,
    problem: `${subject(ordinal)}: ${found}`,
    next: `rm ${cacheFile(cacheName)} lets them be tested again`,
  }
}

/** One after the other: a GPU in exclusive mode has room for one process. */
async function testAll({ uuid }: CudaDevice): Promise<Verdict> {
  if (!uuid) throw new Error('the driver gives no uuid of the GPU')
  return { own: await testFp4(uuid, 'own'), cublaslt: await testFp4(uuid, 'cublaslt') }
}

/** Everything that an answer depends on. */
async function cacheKey(addon: Addon, device: CudaDevice): Promise<string> {
  const [nvml, cublasLt] = await Promise.all([addon.queryNvml(), addon.queryCublasLt()])
  const { path } = { path: '', ...loadAddon() }
  return [
    `driver ${nvml.driver ?? 'unknown'} for CUDA ${(await addon.queryCuda()).version}`,
    `${device.name} ${device.uuid} of compute capability ${device.computeCapability}`,
    `cuBLASLt ${process.env.DGX_SPARK_CUBLASLT === '0' ? 'off' : (cublasLt.version ?? 'missing')}`,
    `dgx-spark ${packageVersion()}, addon of ${statSync(path).mtime.toISOString()}`,
  ].join('; ')
}

/** The verdicts in the cache by their keys; entries that are none are passed over. */
async function readVerdicts(): Promise<Record<string, Verdict>> {
  const cached = await readCached(cacheName)
  if (typeof cached !== 'object' || cached === null) return {}
  return Object.fromEntries(
    Object.entries(cached).filter(([, each]) => isFp4Problem(each?.own) && isFp4Problem(each?.cublaslt)),
  )
}

/** Adds a verdict to the cache and forgets the oldest. @returns whether it could be written */
async function keepVerdict(key: string, verdict: Verdict): Promise<boolean> {
  const entries = Object.entries({ ...(await readVerdicts()), [key]: verdict })
  return writeCached(cacheName, Object.fromEntries(entries.slice(-mostCached)))
}

/** Decisions that this thread waits for, by the number of the device. */
const pending = new Map<number, Promise<void>>()
const decided = new Set<number>()

/**
 * Finds the ways of a device and allows them, once, while the calls of this thread on the device wait (`afterFp4`), so
 * that they keep their order. Warns of what was found wrong.
 */
export function decideFp4(addon: Addon, ordinal: number): void {
  if (decided.has(ordinal)) return
  decided.add(ordinal)
  const decision = findFp4Ways(ordinal).then(({ ways, problem }) => {
    addon.allowFp4(ordinal, ways.includes('own'), ways.includes('cublaslt'))
    pending.delete(ordinal)
    if (problem) warnOnce('SPARK_CUDA', `nvfp4 ${ordinal}`, problem)
  })
  pending.set(ordinal, decision)
}

/** Calls at once, or when the decision on the device has been made. */
export function afterFp4<T>(ordinal: number, call: () => Promise<T>): Promise<T> {
  const decision = pending.get(ordinal)
  return decision ? decision.then(call) : call()
}
