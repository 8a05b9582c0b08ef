// einsum.ts: shapes of Einstein sums.
import { stringOf } from '../attributes.js'
import { type SymbolicDimension, sparkDomain } from '../graph.js'
import { type Rule, type ShapeContext, showShape, tensorOrUnknown } from './context.js'
import { compatible, type Shape } from './dimensions.js'
import { expectBroadcast } from './operands.js'
import type { OperatorTable } from './row.js'

/** Subscripts of an Einsum: letters of each operand and of the result, `.` standing for the ellipsis. */
function subscripts(ctx: ShapeContext): { operands: string[]; result: string } {
  const [left = '', right] = stringOf(ctx.node, 'equation')
    .replaceAll(/\s/g, '')
    .replaceAll('...', '.')
    .split('->')
  const operands = left.split(',')
  const letters = [...operands.join('')].filter(letter => letter !== '.')
  const once = [...new Set(letters)].filter(letter => letters.indexOf(letter) === letters.lastIndexOf(letter))
  return { operands, result: right ?? (left.includes('.') ? '.' : '') + once.sort().join('') }
}

/** Shape of a sum of products whose operands are the inputs from `first` on. */
export function einsum(ctx: ShapeContext, first = 0): Shape | undefined {
  const { operands, result } = subscripts(ctx)
  const count = ctx.node.inputs.length - first
  if (operands.length !== count)
    throw ctx.fail(`its equation describes ${operands.length} operands of ${count}`)
  const sizes = new Map<string, SymbolicDimension>()
  let ellipsis: Shape | undefined = []
  for (const [i, letters] of operands.entries()) {
    const shape = ctx.shape(first + i)
    if (!shape) return undefined
    const dots = shape.length - letters.replace('.', '').length
    if (dots < 0 || (dots > 0 && !letters.includes('.'))) {
      throw ctx.fail(`'${letters}' does not describe ${showShape(shape)}`)
    }
    const start = letters.indexOf('.')
    if (start >= 0) ellipsis = ctx.broadcast([ellipsis, shape.slice(start, start + dots)])
    const named = start < 0 ? shape : [...shape.slice(0, start), ...shape.slice(start + dots)]
    for (const [at, letter] of [...letters.replace('.', '')].entries()) {
      const known = sizes.get(letter) ?? 1
      if (known !== 1 && named[at] !== 1 && !compatible(known, named[at]!)) {
        throw ctx.fail(`'${letter}' is ${known} and ${named[at]}`)
      }
      sizes.set(letter, known === 1 ? named[at]! : known)
    }
  }
  return [...result].flatMap(letter => (letter === '.' ? (ellipsis ?? []) : [sizes.get(letter) ?? null]))
}

const einsumGrad: Rule = ctx => {
  expectBroadcast(ctx, 0, 'dy', einsum(ctx, 1))
  return ctx.node.outputs.map((_, i) => ctx.type(i + 1))
}

/** Rows of Einstein sums. */
export const formulas: OperatorTable = {
  '': {
    Einsum: { shape: ctx => [tensorOrUnknown(ctx.commonDtype(), einsum(ctx))] },
  },
  [sparkDomain]: {
    EinsumGrad: { shape: einsumGrad },
  },
}
