// attribute-choices.ts: attributes that name one of several ways to compute.
import { SparkError } from '../../core/errors.js'
import { describeNode, givenInt, givenString } from '../attributes.js'
import type { Node } from '../graph.js'
import type { Choices } from './row.js'

/**
 * Refuses attributes whose value is none of those that there are.
 * @throws SparkError ERR_UNSUPPORTED naming the node
 */
export function expectChoices(node: Node, byName: Choices): void {
  for (const [name, choices] of Object.entries(byName)) {
    const isNumber = typeof choices[0] === 'number'
    const value = isNumber ? givenInt(node, name) : givenString(node, name)
    if (value === undefined || choices.includes(value)) continue
    const known = choices.filter(choice => choice !== '').join(', ')
    throw new SparkError(
      'ERR_UNSUPPORTED',
      `${describeNode(node)}: ${name} is '${value}', not one of ${known}`,
    )
  }
}
