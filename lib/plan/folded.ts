// folded.ts: what plans compute from constants before their first run, kept once for all plans and models of a process.
import { createHash } from 'node:crypto'
import { arrayBytes, type ElementArray } from '../core/dtype.js'
import type { Pacer } from '../core/paced.js'
import { fixSize } from '../core/size.js'
import { fixedSizes } from '../core/size-scope.js'
import { Constant } from '../graph/constant.js'
import type { Kernels } from '../kernels/kernels.js'
import { type BindOptions, BufferArrays, expectBytes } from './bind.js'
import { prepare } from './prepare.js'
import { type Buffer, Operand, operandsOf, type Program, type Step } from './program.js'

/** The results of a setup that plans read. */
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
 * Computes the setup of a program, but for what is there already.
 * @throws SparkError ERR_OUT_OF_MEMORY, and what the kernels throw
 */
export async function fold(
  program: Program,
  options: BindOptions,
  kernels: Kernels,
  pacer: Pacer,
): Promise<Folded> {
  const keys = keysOf(program.setup, `${kernels.backend} ${options.double ?? false}`)
  const results = [...resultsOf(program)].map(buffer => ({ buffer, key: keys.get(buffer)! }))
  const missing = new Map<string, Buffer>()
  for (const { key, buffer } of results) if (!entries.has(key)) missing.set(key, buffer)
  const known = new Map<Buffer, ElementArray>()
  for (const { key, buffer } of results) {
    const array = entries.get(key)?.array
    if (array) known.set(buffer, array)
  }
  const job = compute(program.setup, [...missing.values()], known, { options, kernels, pacer })
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
function resultsOf({ sizing, steps, outputs }: Program): Set<Buffer> {
  const buffers = new Set(outputs.map(({ buffer }) => buffer))
  for (const { args } of [...sizing, ...steps]) for (const { buffer } of operandsOf(args)) buffers.add(buffer)
  return new Set([...buffers].filter(({ storage }) => storage === 'folded'))
}

/** Computes some buffers of a setup, with those that are known. */
async function compute(
  setup: readonly Step[],
  wanted: readonly Buffer[],
  known: ReadonlyMap<Buffer, ElementArray>,
  { options, kernels, pacer }: { options: BindOptions; kernels: Kernels; pacer: Pacer },
): Promise<Map<Buffer, ElementArray>> {
  if (wanted.length === 0) return new Map()
  const steps = stepsFor(setup, wanted, known)
  const written = new Set(steps.flatMap(({ args }) => writesOf(args)))
  const bytes = [...written].reduce((sum, { dtype, count }) => sum + arrayBytes(dtype, fixSize(count)), 0)
  expectBytes(bytes * (options.double ? 2 : 1))
  const layout = { offsets: new Map(), arenaBytes: 0, lowerBound: 0 }
  const arrays = new BufferArrays(layout, options, { values: fixedSizes, folded: known, kernels })
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
  return new Map(wanted.map(buffer => [buffer, arrays.of(buffer)]))
}

const writesOf = (args: object): Buffer[] =>
  Array.from(operandsOf(args))
    .filter(({ access }) => access !== 'read')
    .map(({ buffer }) => buffer)

/** The steps that some buffers depend on. */
function stepsFor(
  setup: readonly Step[],
  wanted: readonly Buffer[],
  known: ReadonlyMap<Buffer, ElementArray>,
): Step[] {
  const needed = new Set(wanted)
  const steps: Step[] = []
  for (const step of setup.toReversed()) {
    if (!writesOf(step.args).some(buffer => needed.has(buffer))) continue
    for (const { buffer, access } of operandsOf(step.args))
      if (access !== 'write' && !known.has(buffer)) needed.add(buffer)
    steps.push(step)
  }
  return steps.reverse()
}

/** What each buffer of a setup is computed from, as a text of fixed length. */
function keysOf(setup: readonly Step[], backend: string): Map<Buffer, string> {
  const keys = new Map<Buffer, string>()
  const keyOf = (buffer: Buffer): string => {
    if (buffer.initial instanceof Constant) return constantKey(buffer.initial)
    return buffer.storage === 'constant' ? arrayKey(buffer.elements()!) : (keys.get(buffer) ?? '')
  }
  const describe = (args: unknown): string => {
    if (args instanceof Operand) {
      const { access, buffer, offset, count } = args
      return `${access} ${access === 'write' ? '' : keyOf(buffer)} ${offset} ${count} of ${buffer.dtype} ${buffer.count}`
    }
    if (typeof args !== 'object' || args === null) return String(args)
    return `{${Object.entries(args).map(([name, part]) => `${name}: ${describe(part)}`)}}`
  }
  for (const { op, args } of setup) {
    const label = `${backend} ${op} ${describe(args)}`
    // What several steps write depends on all of them, and on which operand of theirs it is.
    for (const [at, buffer] of writesOf(args).entries())
      keys.set(buffer, digest(`${keys.get(buffer) ?? ''} ${at} ${label}`))
  }
  return keys
}

const digest = (text: string): string => createHash('sha256').update(text).digest('base64')

/** Constants of fewer bytes are known by their elements, others by where these are. */
const smallConstant = 256

const identities = new WeakMap<object, number>()
let nextIdentity = 0

function constantKey(constant: Constant): string {
  const { dtype, byteLength } = constant
  if (byteLength <= smallConstant) return `${dtype} ${constant.bytes}`
  const { object, offset } = constant.origin
  return `${dtype} ${identityOf(object)} ${offset} ${byteLength}`
}

const arrayKey = ({ buffer, byteOffset, byteLength }: ElementArray): string =>
  `array ${identityOf(buffer)} ${byteOffset} ${byteLength}`

function identityOf(object: object): number {
  const identity = identities.get(object) ?? nextIdentity++
  identities.set(object, identity)
  return identity
}
