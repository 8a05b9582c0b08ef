// integer-functions.ts: the functions of elementwise operations on integers, before they wrap around.
import type { BinaryFn, UnaryFn } from '../strided-args.js'

/** Functions of one integer. */
export const integerUnary: Readonly<Partial<Record<UnaryFn, (x: bigint) => bigint>>> = {
  abs: x => (x < 0n ? -x : x),
  neg: x => -x,
  sign: x => (x > 0n ? 1n : x < 0n ? -1n : 0n),
  relu: x => (x < 0n ? 0n : x),
  not: x => BigInt(x === 0n),
  bitwise_not: x => ~x,
}

const rest = (a: bigint, b: bigint): bigint => (b === 0n ? 0n : a % b)

function floorMod(a: bigint, b: bigint): bigint {
  const remainder = rest(a, b)
  return remainder !== 0n && remainder < 0n !== b < 0n ? remainder + b : remainder
}

/** a^b modulo 2^64, as a signed integer; a negative power is the integer part of the fraction. */
function power(a: bigint, b: bigint): bigint {
  if (b < 0n) return a === 1n ? 1n : a === -1n ? (b % 2n === 0n ? 1n : -1n) : 0n
  let [result, base] = [1n, a]
  for (let left = b; left > 0n; left >>= 1n) {
    if (left & 1n) result = BigInt.asIntN(64, result * base)
    base = BigInt.asIntN(64, base * base)
  }
  return result
}

/** Functions of two integers. */
export const integerBinary: Readonly<Partial<Record<BinaryFn, (a: bigint, b: bigint) => bigint>>> = {
  add: (a, b) => a + b,
  sub: (a, b) => a - b,
  mul: (a, b) => a * b,
  div: (a, b) => (b === 0n ? 0n : a / b),
  pow: power,
  max: (a, b) => (a > b ? a : b),
  min: (a, b) => (a < b ? a : b),
  mod: floorMod,
  fmod: rest,
  prelu: (a, b) => (a < 0n ? a * b : a),
  less: (a, b) => BigInt(a < b),
  less_or_equal: (a, b) => BigInt(a <= b),
  equal: (a, b) => BigInt(a === b),
  bit_and: (a, b) => a & b,
  bit_or: (a, b) => a | b,
  bit_xor: (a, b) => a ^ b,
  shift_left: (a, b) => (b < 0n || b > 63n ? 0n : a << b),
  shift_right: (a, b) => (b < 0n || b > 63n ? 0n : a >> b),
}
