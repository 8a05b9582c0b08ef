// folded.ts: what plans compute from constants before their first run, and constants that are read from files for them: kept
// once for all plans and models of a process.
import { type ElementArray, elementArrayOf } from '../core/dtype.js'
import type { Pacer } from '../core/paced.js'
import { fixSize } from '../core/size.js'
import type { Constant } from '../graph/constant.js'
import { allocate } from '../kernels/aligned.js'
import type { Kernels } from '../kernels/kernels.js'
import type { BindOptions } from './bind.js'
import { constantKey, isLasting, keysOf } from './folded-keys.js'
import { type Buffer, operandsOf, type Program, type Step } from './program.js'
import { type Load, loaderOf, runSetup, type SetupContext } from './run-setup.js'

/** The results of a setup that plans read, and constants that were read from files. */
export interface Folded {
  readonly arrays: ReadonlyMap<Buffer, ElementArray>
  /** Lets them go: they are freed when nobody reads them any more. */
  dispose(): void
}

/** A result, and how many programs read it. */
interface Entry {
  users: number
  readonly made: Promise<ElementArray>
  /** Undefined until it is computed. */
  array: ElementArray | undefined
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
  const keys = keysOf(program.setup, `${kernels.backend} ${options.double ?? false}`)
  const constants = options.double ? [] : constantsInFiles(program)
  const folded = resultsOf(program).map(buffer => ({ buffer, key: keys.get(buffer)! }))
  const results = [...folded, ...constants]
  for (const { key, load } of constants) if (!entries.has(key)) enter(key, load())
  const missing = new Map<string, Buffer>()
  for (const { key, buffer } of folded) if (!entries.has(key)) missing.set(key, buffer)
  const known = new Map<Buffer, ElementArray>()
  for (const { key, buffer } of folded) {
    const array = entries.get(key)?.array
    if (array) known.set(buffer, array)
  }
  const job = make(program.setup, missing, known, { options, kernels, pacer })
  for (const [key, buffer] of missing)
    enter(
      key,
      job.then(arrays => arrays.get(buffer)!),
    )
  for (const { key } of results) entries.get(key)!.users++
  let held = true
  const dispose = (): void => {
    if (held) for (const { key } of results) release(key)
    held = false
  }
  try {
    const arrays = new Map<Buffer, ElementArray>()
    for (const { buffer, key } of results) arrays.set(buffer, await entries.get(key)!.made)
    await job
    return { arrays, dispose }
  } catch (error) {
    dispose()
    throw error
  }
}

/** Computes what is missing and not kept from an earlier process. */
async function make(
  setup: readonly Step[],
  missing: ReadonlyMap<string, Buffer>,
  known: ReadonlyMap<Buffer, ElementArray>,
  context: SetupContext,
): Promise<ReadonlyMap<Buffer, ElementArray>> {
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
  for (const [key, buffer] of lasting) if (!found.has(buffer)) store!.write(key, bytesOf(made.get(buffer)!))
  return new Map([...found, ...made])
}

function emptyArray({ dtype, count }: Buffer, kernels: Kernels): ElementArray {
  const type = elementArrayOf(dtype) as Float32ArrayConstructor
  const length = fixSize(count)
  const { buffer, offset } = allocate(length * type.BYTES_PER_ELEMENT, kernels)
  return new type(buffer, offset, length)
}

const bytesOf = ({ buffer, byteOffset, byteLength }: ElementArray): Uint8Array =>
  new Uint8Array(buffer, byteOffset, byteLength)

function enter(key: string, made: Promise<ElementArray>): void {
  const entry: Entry = { users: 0, made, array: undefined }
  entries.set(key, entry)
  made.then(
    array => {
      entry.array = array
    },
    () => {
      if (entries.get(key) === entry) entries.delete(key)
    },
  )
}

function release(key: string): void {
  const entry = entries.get(key)
  if (entry && --entry.users <= 0) entries.delete(key)
}

/** The folded buffers that are read after the setup. */
const resultsOf = (program: Program): Buffer[] =>
  buffersReadBy(program).filter(({ storage }) => storage === 'folded')

/** The constants that are read after the setup, and have to be read from files. */
function constantsInFiles(program: Program): { buffer: Buffer; key: string; load: Load }[] {
  return buffersReadBy(program).flatMap(buffer => {
    const load = loaderOf(buffer)
    return load ? [{ buffer, key: `elements of ${constantKey(buffer.initial as Constant)}`, load }] : []
  })
}

function buffersReadBy({ sizing, steps, outputs }: Program): Buffer[] {
  const buffers = new Set(outputs.map(({ buffer }) => buffer))
  for (const { args } of [...sizing, ...steps]) for (const { buffer } of operandsOf(args)) buffers.add(buffer)
  return [...buffers]
}
