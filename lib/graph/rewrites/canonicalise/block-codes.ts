// block-codes.ts: constants of codes that contributed operators pack into bytes, as standard operators have them.
import { numel } from '../../../core/shape.js'
import { bytesOfNibbles, unpackBytes } from '../../../weights/integer-matrix.js'
import { Constant, type NumericType } from '../../constant.js'
import type { Node } from '../../graph.js'
import type { UpgradeContext } from './context.js'

/** The bytes of a constant as elements of another type or shape. */
export function reinterpret(constant: Constant, dtype: NumericType, shape: readonly number[]): Constant {
  return Constant.lazy(dtype, shape, { byteLength: constant.byteLength, read: () => constant.bytes })
}

/** The type that codes of so many bits get: those of 2 bits get 4, which more tools read. */
const codeType = (bits: number): 'u4' | 'u8' => (bits === 8 ? 'u8' : 'u4')

/** Codes in a byte each, packed as their type is. */
const packCodes = (bits: number, codes: Uint8Array): Uint8Array =>
  bits === 8 ? codes : bytesOfNibbles(codes, 1, codes.length)

/** Codes as a constant of u4 or u8. */
export const codesConstant = (bits: number, codes: Uint8Array, shape: readonly number[]): Constant =>
  Constant.from(codeType(bits), shape, packCodes(bits, codes))

/** The same code for all elements. */
export function constantCodes(bits: number, code: number, shape: readonly number[]): Constant {
  return codesConstant(bits, new Uint8Array(numel(shape)).fill(code), shape)
}

/**
 * Codes of 2, 4 or 8 bits, the first one in the low bits of a byte, as a constant of u4 or u8.
 * @param packed - rows of whole bytes, which may have more codes than the last size of `shape`
 */
export function unpadded(packed: Constant, bits: number, shape: readonly number[]): Constant {
  const count = numel(shape)
  if (bits !== 2 && packed.byteLength * 8 === count * bits) return reinterpret(packed, codeType(bits), shape)
  const cols = shape.at(-1)!
  const read = (): Uint8Array => packCodes(bits, unpackBytes(packed.bytes, bits, count / cols, cols))
  return Constant.lazy(codeType(bits), shape, { byteLength: bits === 8 ? count : Math.ceil(count / 2), read })
}

/**
 * The constant that a value is.
 * @param what - what it is, in messages
 * @param bytes - it must have
 */
export function expectBytes(
  node: Node,
  context: UpgradeContext,
  name: string,
  what: string,
  bytes: number,
): Constant {
  const constant = context.constantOf(name)
  if (!constant) throw context.unsupported(node, `its ${what} must be constant`)
  if (constant.byteLength === bytes) return constant
  throw context.unsupported(
    node,
    `its ${what} need ${bytes} bytes; there are ${constant.byteLength}, so these are not those of a weight`,
  )
}
