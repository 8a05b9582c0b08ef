// einsum.ts: shapes of Einstein sums.
import { stringOf } from '../attributes.js'
import { type Dimension, sparkDomain } from '../graph.js'
import { type Call, type Rule, showShape, tensorOrUnknown } from './call.js'
import { compatible, type Shape } from './dimensions.js'
import { expectBroadcast } from './operands.js'
import type { OperatorTable } from './row.js'

/** Subscripts of an Einsum: letters of each operand and of the result, `.` standing for the ellipsis. */
function subscripts(call: Call): { operands: string[]; result: string } {
  const [left = '', right] = stringOf(call.node, 'equation', '')
    .replaceAll(/\s/g, '')
    .replaceAll('...', '.')
    .split('->')
  const operands = left.split(',')
  const letters = [...operands.join('')].filter(letter => letter !== '.')
  const once = [...new Set(letters)].filter(letter => letters.indexOf(letter) === letters.lastIndexOf(letter))
  return { operands, result: right ?? (left.includes('.') ? '.' : '') + once.sort().join('') }
}

/** Shape of a sum of products whose operands are the inputs from `first` on. */
export function einsum(call: Call, first = 0): Shape | undefined {
  const { operands, result } = subscripts(call)
  const count = call.node.inputs.length - first
  if (operands.length !== count)
    throw call.fail(`its equation describes ${operands.length} operands of ${count}`)
  const sizes = new Map<string, Dimension>()
  let ellipsis: Shape | undefined = []
  for (const [i, letters] of operands.entries()) {
    const shape = call.shape(first + i)
    if (!shape) return undefined
    const dots = shape.length - letters.replace('.', '').length
    if (dots < 0 || (dots > 0 && !letters.includes('.'))) {
      throw call.fail(`'${letters}' does not describe ${showShape(shape)}`)
    }
    const start = letters.indexOf('.')
    if (start >= 0) ellipsis = call.broadcast([ellipsis, shape.slice(start, start + dots)])
    const named = start < 0 ? shape : [...shape.slice(0, start), ...shape.slice(start + dots)]
    for (const [at, letter] of [...letters.replace('.', '')].entries()) {
      const known = sizes.get(letter) ?? 1
      if (known !== 1 && named[at] !== 1 && !compatible(known, named[at]!)) {
        throw call.fail(`'${letter}' is ${known} and ${named[at]}`)
      }
      sizes.set(letter, known === 1 ? named[at]! : known)
    }
  }
  return [...result].flatMap(letter => (letter === '.' ? (ellipsis ?? []) : [sizes.get(letter) ?? null]))
}

const einsumGrad: Rule = call => {
  expectBroadcast(call, 0, 'dy', einsum(call, 1))
  return call.node.outputs.map((_, i) => call.type(i + 1))
}

/** Rows of Einstein sums. */
export const formulas: OperatorTable = {
  '': {
    Einsum: { shape: call => [tensorOrUnknown(call.commonDtype(), einsum(call))] },
  },
  [sparkDomain]: {
    EinsumGrad: { shape: einsumGrad },
  },
}
