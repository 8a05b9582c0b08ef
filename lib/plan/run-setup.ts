// run-setup.ts: the computation of a setup, part by part: of weights in files no more than two parts are in memory as they
// are there.
import { arrayBytes, type ElementArray, elementArrayOf, elementBits } from '../core/dtype.js'
import type { Pacer } from '../core/paced.js'
import { fixSize } from '../core/size.js'
import { fixedSizes } from '../core/size-scope.js'
import { Constant } from '../graph/constant.js'
import { expectFreeBytes } from '../hardware/memory.js'
import { copyToDevice, readToDevice } from '../kernels/device-memory.js'
import type { DeviceMemory, Kernels } from '../kernels/kernels.js'
import { type BindOptions, BufferArrays } from './bind.js'
import { prepare } from './prepare.js'
import { type Buffer, operandsOf, type Step } from './program.js'

/** On what a setup runs. */
export interface SetupContext {
  readonly options: BindOptions
  readonly kernels: Kernels
  readonly pacer: Pacer
  /** The memory of a device for what plans read; undefined for that of JavaScript. */
  readonly memory: DeviceMemory | undefined
  /** What JavaScript reads, too. */
  readonly handedOut: ReadonlySet<Buffer>
}

/** An array that plans read. */
export interface Made {
  readonly array: ElementArray
  /** Frees what the garbage collector does not. */
  dispose(): void
}

export const madeInMemory = (array: ElementArray): Made => ({ array, dispose() {} })

/** A constant whose elements are in a file. */
interface StoredConstant {
  readonly constant: Constant
  readonly load: () => Promise<Uint8Array>
}

function storedConstant({ storage, initial }: Buffer): StoredConstant | undefined {
  if (storage !== 'constant' || !(initial instanceof Constant)) return undefined
  const { dtype, load } = initial
  return load && elementBits[dtype] >= 8 ? { constant: initial, load } : undefined
}

async function loadConstant({ constant, load }: StoredConstant): Promise<ElementArray> {
  const { buffer, byteOffset } = await load()
  const type = elementArrayOf(constant.dtype) as Float32ArrayConstructor
  return new type(buffer as ArrayBuffer, byteOffset, constant.count)
}

/**
 * How the elements of a buffer that is a constant in a file are read to where plans read them; undefined for others. Those for a
 * device are never in memory twice.
 */
export function loaderOf(
  buffer: Buffer,
  { memory, handedOut }: Pick<SetupContext, 'memory' | 'handedOut'>,
): (() => Promise<Made>) | undefined {
  const stored = storedConstant(buffer)
  if (!stored) return undefined
  if (!memory || handedOut.has(buffer)) return async () => madeInMemory(await loadConstant(stored))
  const { constant } = stored
  const { dtype, count } = constant
  if (constant.part(0, 0)?.load)
    return () =>
      readToDevice(memory, { dtype, count }, async (at, bytes) => {
        bytes.set(await constant.part(at, bytes.length)!.load!())
      })
  return async () => {
    const array = await loadConstant(stored)
    const made = await copyToDevice(memory, dtype, array)
    memory.release(array.buffer as ArrayBuffer)
    return made
  }
}

/**
 * Computes some buffers of a setup.
 * @param known - buffers that are there already
 * @throws SparkError ERR_OUT_OF_MEMORY, what the kernels throw, and what reading the constants does
 */
export async function runSetup(
  setup: readonly Step[],
  wanted: readonly Buffer[],
  known: ReadonlyMap<Buffer, ElementArray>,
  context: SetupContext,
): Promise<Map<Buffer, Made>> {
  const made = new Map<Buffer, Made>()
  const parts = partsOf(new SetupSteps(setup, known, !context.options.double), wanted)
  const bytes = wanted.reduce((sum, buffer) => sum + bytesOf(buffer), 0)
  expectFreeBytes('the plan needs', bytes * (context.options.double ? 2 : 1))
  let next = loadSources(parts[0])
  try {
    for (const [i, part] of parts.entries()) {
      const sources = await next
      next = loadSources(parts[i + 1])
      next.catch(() => undefined) // the next turn of the loop throws it
      const before = [...made].map(([buffer, { array }]): [Buffer, ElementArray] => [buffer, array])
      const arrays = await runPart(part, new Map([...known, ...before, ...sources]), context)
      for (const buffer of part.wanted) made.set(buffer, await placed(buffer, arrays.of(buffer), context))
      const isKept = (buffer: Buffer): boolean => known.has(buffer) || made.has(buffer)
      const spent = [...sources.keys(), ...writtenBy(part.steps).filter(buffer => !isKept(buffer))]
      for (const buffer of spent) context.kernels.release?.(arrays.of(buffer).buffer as ArrayBuffer)
    }
    return made
  } catch (error) {
    for (const each of made.values()) each.dispose()
    throw error
  }
}

/** A result where plans read it. */
async function placed(
  buffer: Buffer,
  array: ElementArray,
  { memory, handedOut }: SetupContext,
): Promise<Made> {
  return memory && !handedOut.has(buffer) ? copyToDevice(memory, buffer.dtype, array) : madeInMemory(array)
}

/** Steps that run together, and what they make. */
interface Part {
  readonly wanted: readonly Buffer[]
  readonly steps: readonly Step[]
  /** What they read from files. */
  readonly sources: readonly Buffer[]
}

/** Bytes from files in a part, unless a single buffer needs more. */
const partBytes = 2 ** 25

function partsOf(setup: SetupSteps, wanted: readonly Buffer[]): Part[] {
  const parts: Part[] = []
  let [buffers, bytes] = [[] as Buffer[], 0]
  const finish = (): void => {
    if (buffers.length > 0) parts.push(setup.partFor(buffers))
    ;[buffers, bytes] = [[], 0]
  }
  for (const buffer of wanted) {
    const needed = setup.partFor([buffer]).sources.reduce((sum, source) => sum + bytesOf(source), 0)
    if (bytes + needed > partBytes) finish()
    buffers.push(buffer)
    bytes += needed
  }
  finish()
  return parts
}

/** The steps of a setup by what they write. */
class SetupSteps {
  readonly #steps: readonly Step[]
  readonly #known: ReadonlyMap<Buffer, unknown>
  readonly #loads: boolean
  readonly #writers = new Map<Buffer, number[]>()

  /** @param loads - whether constants in files are read before the steps */
  constructor(steps: readonly Step[], known: ReadonlyMap<Buffer, unknown>, loads: boolean) {
    this.#steps = steps
    this.#known = known
    this.#loads = loads
    for (const [i, step] of steps.entries()) {
      for (const buffer of writtenBy([step])) {
        const writers = this.#writers.get(buffer)
        if (writers) writers.push(i)
        else this.#writers.set(buffer, [i])
      }
    }
  }

  /** The steps that some buffers depend on. */
  partFor(wanted: readonly Buffer[]): Part {
    const indices = new Set<number>()
    const needed = new Set(wanted)
    for (const buffer of needed) {
      for (const i of this.#writers.get(buffer) ?? []) {
        if (indices.has(i)) continue
        indices.add(i)
        for (const { buffer: read, access } of operandsOf(this.#steps[i]!.args))
          if (access !== 'write' && !this.#known.has(read)) needed.add(read)
      }
    }
    const steps = [...indices].sort((a, b) => a - b).map(i => this.#steps[i]!)
    return { wanted, steps, sources: this.#loads ? [...needed].filter(storedConstant) : [] }
  }
}

async function loadSources(part: Part | undefined): Promise<Map<Buffer, ElementArray>> {
  const sources = part?.sources ?? []
  const arrays = await Promise.all(sources.map(buffer => loadConstant(storedConstant(buffer)!)))
  return new Map(sources.map((buffer, i) => [buffer, arrays[i]!]))
}

async function runPart(
  { steps }: Part,
  folded: ReadonlyMap<Buffer, ElementArray>,
  { options, kernels, pacer }: SetupContext,
): Promise<BufferArrays> {
  const layout = { offsets: new Map(), arenaBytes: 0, lowerBound: 0 }
  const arrays = new BufferArrays(layout, options, { values: fixedSizes, folded, kernels })
  const prepared = await prepare(
    kernels,
    steps.map(step => arrays.bind(step)),
    pacer,
  )
  try {
    await prepared.run()
  } finally {
    prepared.dispose()
  }
  return arrays
}

const bytesOf = ({ dtype, count }: Buffer): number => arrayBytes(dtype, fixSize(count))

function writtenBy(steps: readonly Step[]): Buffer[] {
  const written = new Set<Buffer>()
  for (const { args } of steps)
    for (const { buffer, access } of operandsOf(args)) if (access !== 'read') written.add(buffer)
  return [...written]
}
