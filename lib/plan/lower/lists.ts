// lists.ts: a limit for lists of numbers that are made at compile time.
import { SparkError } from '../../core/errors.js'
import { describeNode } from '../../graph/attributes.js'
import type { Lowering } from '../lowering.js'

/** Numbers that the compiler lists for a node at most. */
const maxListed = 2 ** 26

/**
 * Allows a list of `count` numbers that is made at compile time.
 * @throws SparkError ERR_OUT_OF_MEMORY for one that this process could not hold
 */
export function expectList({ node }: Lowering, count: number): void {
  if (count <= maxListed) return
  const message = `it needs a list of ${count} numbers; at most ${maxListed} are supported`
  throw new SparkError('ERR_OUT_OF_MEMORY', `${describeNode(node)}: ${message}`)
}
