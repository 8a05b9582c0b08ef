// folded-keys.ts: what the results of a setup are computed from, as texts.
import { createHash } from 'node:crypto'
import type { ElementArray } from '../core/dtype.js'
import { Constant } from '../graph/constant.js'
import { contentName } from '../graph/content-names.js'
import { type Buffer, Operand, operandsOf, type Step } from './program.js'

/** Begins keys that mean something in this process only, because they depend on where constants are in memory. */
const volatileMark = '~'

/** Whether a key is the same in every process. */
export const isLasting = (key: string): boolean => !key.startsWith(volatileMark)

/** What each buffer of a setup is computed from, as a text of fixed length. */
export function keysOf(setup: readonly Step[], backend: string): Map<Buffer, string> {
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
      keys.set(buffer, keyFor(`${keys.get(buffer) ?? ''} ${at} ${label}`))
  }
  return keys
}

const writesOf = (args: object): Buffer[] =>
  Array.from(operandsOf(args))
    .filter(({ access }) => access !== 'read')
    .map(({ buffer }) => buffer)

function keyFor(text: string): string {
  const digest = createHash('sha256').update(text).digest('hex')
  return text.includes(volatileMark) ? `${volatileMark}${digest}` : digest
}

/** Constants of fewer bytes are known by their elements, others by where these are. */
const smallConstant = 256

const identities = new WeakMap<object, number>()
let nextIdentity = 0

export function constantKey(constant: Constant): string {
  const { dtype, byteLength } = constant
  if (byteLength <= smallConstant) return `${dtype} ${constant.bytes}`
  const { object, offset } = constant.origin
  return `${dtype} ${identityOf(object)} ${offset} ${byteLength}`
}

const arrayKey = ({ buffer, byteOffset, byteLength }: ElementArray): string =>
  `array ${identityOf(buffer)} ${byteOffset} ${byteLength}`

function identityOf(object: object): string {
  const name = contentName(object)
  if (name !== undefined) return JSON.stringify(name)
  const identity = identities.get(object) ?? nextIdentity++
  identities.set(object, identity)
  return `${volatileMark}${identity}`
}
