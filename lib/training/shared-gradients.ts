// shared-gradients.ts: gradients of a step whose batches several ranks share. Batch i belongs to rank i mod world; all ranks get the
// gradients of all batches and add them in the order of the batches, so that the sum has the same bits for any number of ranks.
import { createHash } from 'node:crypto'
import { SparkError } from '../core/errors.js'

/** The ranks that train together. A communicator of `dgx-spark/cluster` is one. */
export interface GradientExchange {
  /** This one: 0 to world − 1. */
  readonly rank: number
  /** How many there are. */
  readonly world: number
  /** The bytes of all ranks, in their order; all give equally many. */
  allGather(bytes: Uint8Array): Promise<Uint8Array[]>
}

/** Elements that are exchanged at a time: what one call needs in memory stays bounded. */
const blockElements = 1 << 20

/** Numbers of the batches of this rank. */
export const ownParts = ({ rank, world }: GradientExchange, parts: number): number[] =>
  Array.from({ length: parts }, (_, part) => part).filter(part => part % world === rank)

/**
 * Adds up the shares of all parts, element by element in the order of the parts, in f32.
 * @param own - those of this rank, in the order of {@link ownParts}
 * @param length - elements of a share
 */
export async function sumShares(
  exchange: GradientExchange,
  own: readonly Float32Array[],
  parts: number,
  length: number,
): Promise<Float32Array> {
  const { world } = exchange
  const rows = Math.ceil(parts / world)
  const sums = new Float32Array(length)
  for (let begin = 0; begin < length; begin += blockElements) {
    const count = Math.min(blockElements, length - begin)
    const block = new Float32Array(rows * count)
    for (const [row, share] of own.entries()) block.set(share.subarray(begin, begin + count), row * count)
    const all = (await exchange.allGather(new Uint8Array(block.buffer))).map(floatsOf)
    const sum = sums.subarray(begin, begin + count)
    for (let part = 0; part < parts; part++) {
      const row = Math.floor(part / world) * count
      const share = all[part % world]!.subarray(row, row + count)
      if (part === 0) sum.set(share)
      else for (let i = 0; i < count; i++) sum[i]! += share[i]!
    }
  }
  return sums
}

/** Bytes as floats; copied where they are not aligned. */
function floatsOf(bytes: Uint8Array): Float32Array {
  const { buffer, byteOffset, byteLength } = bytes.byteOffset % 4 === 0 ? bytes : bytes.slice()
  return new Float32Array(buffer, byteOffset, byteLength / 4)
}

/**
 * Throws ERR_CONFLICT unless all ranks are at the same step with the same parameters and moments: they would never be equal again.
 */
export async function expectSameState(
  exchange: GradientExchange,
  state: ReadonlyMap<string, Float32Array>,
  step: number,
): Promise<void> {
  const hash = createHash('sha256').update(`step ${step}`)
  for (const [name, values] of state) hash.update(`\0${name}\0`).update(values)
  const own = hash.digest()
  const all = await exchange.allGather(own)
  const other = all.findIndex(bytes => !own.equals(bytes))
  if (other < 0) return
  const remedy = 'begin with the same adapter, options and checkpoint on all ranks'
  throw new SparkError(
    'ERR_CONFLICT',
    `rank ${other} has other parameters, or another step, than rank ${exchange.rank} at step ${step}: ${remedy}`,
  )
}
