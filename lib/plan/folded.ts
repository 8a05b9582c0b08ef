// folded.ts: what plans compute from constants before their first run, and constants that are read from files for them: kept
// once for all plans and models of a process.
import { type ElementArray, elementArrayOf } from '../core/dtype.js'
import type { Pacer } from '../core/paced.js'
import { fixSize } from '../core/size.js'
import type { Constant } from '../graph/constant.js'
import { allocate } from '../kernels/aligned.js'
import type { Kernels } from '../kernels/kernels.js'
import type { DeviceCopy } from '../weights/shared-weight.js'
import type { BindOptions } from './bind.js'
import { constantKey, isLasting, keysOf } from './folded-keys.js'
import { type Buffer, operandsOf, type Program, type Step } from './program.js'
import { loaderOf, type Made, madeInMemory, runSetup, type SetupContext } from './run-setup.js'

/** The results of a setup that plans read, constants that were read from files, and weights on a device. */
export interface Folded {
  readonly arrays: ReadonlyMap<Buffer, ElementArray>
  /** The same for another reader. */
  share(): Folded
  /** Lets them go: they are freed when nobody reads them any more. A second dispose is a no-op. */
  dispose(): void
}

/** A result, and how many programs and plans read it. */
interface Entry {
  readonly key: string
  users: number
  readonly made: Promise<Made>
  /** Undefined until it is computed. */
  result: Made | undefined
}

/** By what they are computed from. */
const entries = new Map<string, Entry>()

/**
 * Computes the setup of a program and reads its constants from files, but for what is there already.
 * @throws SparkError ERR_OUT_OF_MEMORY, and what the kernels throw
 */
export async function fold(
  program: Program,
  options: BindOptions,
  kernels: Kernels,
  pacer: Pacer,
): Promise<Folded> {
  const memory = kernels.deviceMemory
  const handedOut = new Set(program.outputs.map(({ buffer }) => buffer))
  const context: SetupContext = { options, kernels, pacer, memory, handedOut }
  const keys = keysOf(program.setup, `${kernels.backend} ${options.double ?? false}`)
  const keyIn = (buffer: Buffer, key: string): string =>
    memory && !handedOut.has(buffer) ? `${key} on ${memory.device}` : key
  const constants = options.double ? [] : constantsInFiles(program, context)
  const folded = resultsOf(program).map(buffer => ({ buffer, key: keyIn(buffer, keys.get(buffer)!) }))
  const results = [...folded, ...constants.map(({ buffer, key }) => ({ buffer, key: keyIn(buffer, key) }))]
  let turn: Promise<unknown> = Promise.resolve()
  for (const { buffer, key, load } of constants) {
    if (entries.has(keyIn(buffer, key))) continue
    const made = memory ? turn.then(load) : load()
    enter(keyIn(buffer, key), made)
    turn = made.catch(() => undefined)
  }
  const missing = new Map<string, Buffer>()
  for (const { key, buffer } of folded) if (!entries.has(key)) missing.set(key, buffer)
  const known = new Map<Buffer, ElementArray>()
  for (const { key, buffer } of folded) {
    const array = entries.get(key)?.result?.array
    if (array) known.set(buffer, array)
  }
  const job = make(program.setup, missing, known, context)
  for (const [key, buffer] of missing)
    enter(
      key,
      job.then(arrays => arrays.get(buffer)!),
    )
  const copies = new Set(buffersReadBy(program).flatMap(({ owner }) => owner ?? []))
  const read = results.map(({ key }) => entries.get(key)!)
  const all = new FoldedEntries(read, [...copies])
  try {
    for (const [i, { buffer }] of results.entries()) all.arrays.set(buffer, (await read[i]!.made).array)
    await job
    return all
  } catch (error) {
    all.dispose()
    throw error
  }
}

/** Entries that one program or plan reads, and copies of weights on a device. */
class FoldedEntries implements Folded {
  readonly arrays: Map<Buffer, ElementArray>
  readonly #entries: readonly Entry[]
  readonly #copies: readonly DeviceCopy[]
  readonly #shares: readonly Disposable[]
  #held = true

  constructor(
    read: readonly Entry[],
    copies: readonly DeviceCopy[],
    arrays = new Map<Buffer, ElementArray>(),
  ) {
    this.arrays = arrays
    this.#entries = read
    this.#copies = copies
    for (const entry of read) entry.users++
    this.#shares = copies.map(copy => copy.share())
  }

  share(): Folded {
    return new FoldedEntries(this.#entries, this.#copies, this.arrays)
  }

  dispose(): void {
    if (!this.#held) return
    this.#held = false
    for (const entry of this.#entries) release(entry)
    for (const share of this.#shares) share[Symbol.dispose]()
  }
}

/** Computes what is missing and not kept from an earlier process. */
async function make(
  setup: readonly Step[],
  missing: ReadonlyMap<string, Buffer>,
  known: ReadonlyMap<Buffer, ElementArray>,
  context: SetupContext,
): Promise<ReadonlyMap<Buffer, Made>> {
  const { options, kernels } = context
  // What other backends make of weights is cheaper to make than to keep, or depends on more than the key says.
  const store = kernels.backend === 'cpu' && !options.double ? options.store : undefined
  const lasting = store ? [...missing].filter(([key]) => isLasting(key)) : []
  const found = new Map<Buffer, ElementArray>()
  for (const [key, buffer] of lasting) {
    const array = emptyArray(buffer, kernels)
    if (await store!.read(key, bytesOf(array))) found.set(buffer, array)
    else kernels.release?.(array.buffer as ArrayBuffer)
  }
  const rest = [...missing.values()].filter(buffer => !found.has(buffer))
  const made = await runSetup(setup, rest, new Map([...known, ...found]), context)
  for (const [key, buffer] of lasting)
    if (!found.has(buffer)) store!.write(key, bytesOf(made.get(buffer)!.array))
  return new Map([...[...found].map(([buffer, array]) => [buffer, madeInMemory(array)] as const), ...made])
}

function emptyArray({ dtype, count }: Buffer, kernels: Kernels): ElementArray {
  const type = elementArrayOf(dtype) as Float32ArrayConstructor
  const length = fixSize(count)
  const { buffer, offset } = allocate(length * type.BYTES_PER_ELEMENT, kernels)
  return new type(buffer, offset, length)
}

const bytesOf = ({ buffer, byteOffset, byteLength }: ElementArray): Uint8Array =>
  new Uint8Array(buffer, byteOffset, byteLength)

function enter(key: string, made: Promise<Made>): void {
  const entry: Entry = { key, users: 0, made, result: undefined }
  entries.set(key, entry)
  made.then(
    result => {
      entry.result = result
      if (entry.users === 0) result.dispose()
    },
    () => {
      if (entries.get(key) === entry) entries.delete(key)
    },
  )
}

function release(entry: Entry): void {
  if (--entry.users > 0) return
  if (entries.get(entry.key) === entry) entries.delete(entry.key)
  entry.result?.dispose()
}

/** The folded buffers that are read after the setup. */
const resultsOf = (program: Program): Buffer[] =>
  buffersReadBy(program).filter(({ storage }) => storage === 'folded')

/** The constants that are read after the setup, and have to be read from files. */
function constantsInFiles(
  program: Program,
  context: SetupContext,
): { buffer: Buffer; key: string; load: () => Promise<Made> }[] {
  return buffersReadBy(program).flatMap(buffer => {
    const load = loaderOf(buffer, context)
    return load ? [{ buffer, key: `elements of ${constantKey(buffer.initial as Constant)}`, load }] : []
  })
}

function buffersReadBy({ sizing, steps, outputs }: Program): Buffer[] {
  const buffers = new Set(outputs.map(({ buffer }) => buffer))
  for (const { args } of [...sizing, ...steps]) for (const { buffer } of operandsOf(args)) buffers.add(buffer)
  return [...buffers]
}
