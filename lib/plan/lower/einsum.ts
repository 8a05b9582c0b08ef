// einsum.ts: sums of products by a formula of letters, as transposes and matrix products.

import { contiguousStrides, numel } from '../../core/shape.js'
import { add, lessThan, multiply, type Size, sameSize } from '../../core/size.js'
import { int, ints } from '../../graph/attributes.js'
import { sparkDomain } from '../../graph/graph.js'
import type { Lowering } from '../lowering.js'
import type { Value } from '../value.js'
import { addCopy, zeros } from './copy.js'
import type { LowerTable } from './table.js'

/** A tensor whose axes have names; no name twice. */
interface Named {
  readonly value: Value
  readonly names: readonly string[]
}

/** The formula with names for the axes of an ellipsis, the last one being '.0'; operands are inputs from `first` on. */
function parseFormula(ctx: Lowering, first = 0): { operands: string[][]; result: string[] } {
  const [left = '', right] = ctx.text('equation').replaceAll(/\s/g, '').replaceAll('...', '.').split('->')
  const named = (letters: string, dots: number): string[] =>
    [...letters].flatMap(letter =>
      letter === '.' ? Array.from({ length: dots }, (_, i) => `.${dots - 1 - i}`) : [letter],
    )
  const terms = left.split(',')
  const dotsOf = (letters: string, i: number): number =>
    ctx.shape(first + i).length - letters.replace('.', '').length
  const operands = terms.map((letters, i) => named(letters, letters.includes('.') ? dotsOf(letters, i) : 0))
  const broadcast = terms.reduce(
    (longest, letters, i) => (letters.includes('.') ? Math.max(longest, dotsOf(letters, i)) : longest),
    0,
  )
  const all = operands.flat()
  const once = [...new Set(all)].filter(
    name => !name.startsWith('.') && all.indexOf(name) === all.lastIndexOf(name),
  )
  const implied = [...named(left.includes('.') ? '.' : '', broadcast), ...once.sort()]
  return { operands, result: right === undefined ? implied : named(right, broadcast) }
}

/** The diagonal over axes of the same name. */
function diagonal(ctx: Lowering, value: Value, given: readonly string[]): Named {
  const names = [...new Set(given)]
  if (names.length === given.length) return { value, names }
  const strides = contiguousStrides(value.shape)
  const shape = names.map(name => value.shape[given.indexOf(name)]!)
  const steps = names.map(name =>
    strides.reduce<Size>((sum, step, i) => add(sum, given[i] === name ? step : 0), 0),
  )
  const buffer = ctx.scratch(numel(shape), value.dtype)
  addCopy(ctx, shape, [value.buffer.read(), 0, steps], [buffer.write(), 0, contiguousStrides(shape)])
  return { value: { dtype: value.dtype, shape, buffer }, names }
}

/** The sum over axes that nobody else has. */
function sumOver({ value, names }: Named, ctx: Lowering, kept: ReadonlySet<string>): Named {
  const gone = names.flatMap((name, axis) => (kept.has(name) ? [] : [axis]))
  if (gone.length === 0) return { value, names }
  const sum = ctx.call('ReduceSum', [value, ctx.ints(gone)], { keepdims: int(0) })
  return { value: sum, names: names.filter(name => kept.has(name)) }
}

/** Axes in a given order; those that are missing get size 1. */
function arrange({ value, names }: Named, ctx: Lowering, order: readonly string[]): Value {
  const present = order.filter(name => names.includes(name))
  const moved = ctx.call('Transpose', [value], { perm: ints(present.map(name => names.indexOf(name))) })
  const sizes = order.map(name => (names.includes(name) ? value.shape[names.indexOf(name)]! : 1))
  return ctx.reshaped(moved, sizes)
}

/** The product of two tensors, summed over what only they have. */
function contract(ctx: Lowering, a: Named, b: Named, kept: ReadonlySet<string>): Named {
  const sizeIn = ({ value, names }: Named, name: string) => value.shape[names.indexOf(name)]
  // Axes of an ellipsis may be repeated in one of the two: then each is summed alone.
  const differs = (left: Size | undefined, right: Size | undefined): boolean =>
    left === undefined || right === undefined ? left !== right : !sameSize(left, right)
  const goes = (name: string): boolean => !kept.has(name) && differs(sizeIn(a, name), sizeIn(b, name))
  const staying = [...a.names, ...b.names].filter(name => !goes(name))
  const [left, right] = [sumOver(a, ctx, new Set(staying)), sumOver(b, ctx, new Set(staying))]
  const shared = left.names.filter(name => right.names.includes(name))
  const batch = shared.filter(name => kept.has(name))
  const sum = shared.filter(name => !kept.has(name))
  const rows = left.names.filter(name => !shared.includes(name))
  const cols = right.names.filter(name => !shared.includes(name))
  const sizeOf = (name: string): Size => {
    const [first = 1, second = 1] = [left, right].map(({ value, names }) => value.shape[names.indexOf(name)])
    return sameSize(first, 1) ? second : first
  }
  const matrix = (operand: Named, order: readonly string[], last: readonly string[]): Value => {
    const whole = [...batch, ...order, ...last]
    const value = arrange(operand, ctx, whole)
    const lead = value.shape.slice(0, batch.length)
    const size = (names: readonly string[]): Size =>
      multiply(...names.map(name => value.shape[whole.indexOf(name)]!))
    return ctx.reshaped(value, [...lead, size(order), size(last)])
  }
  const product = ctx.call('MatMul', [matrix(left, rows, sum), matrix(right, sum, cols)])
  const names = [...batch, ...rows, ...cols]
  return { value: ctx.reshaped(product, names.map(sizeOf)), names }
}

function einsum(ctx: Lowering): void {
  const { operands, result } = parseFormula(ctx)
  const tensors = operands.map((names, i) => diagonal(ctx, ctx.input(i), names))
  const uses = new Map<string, number>()
  const count = (names: readonly string[], change: number): void => {
    for (const name of names) uses.set(name, (uses.get(name) ?? 0) + change)
  }
  for (const { names } of tensors) count(names, 1)
  count(result, 1)
  let [sum] = tensors as [Named, ...Named[]]
  count(sum.names, -1)
  for (const next of tensors.slice(1)) {
    count(next.names, -1)
    sum = contract(ctx, sum, next, new Set([...sum.names, ...next.names].filter(name => uses.get(name)! > 0)))
  }
  ctx.give(arrange(sumOver(sum, ctx, new Set(result)), ctx, result))
}

/** dy, x0, x1, … → dx0, dx1, …: each the sum of products of dy and the other operands. */
function einsumGrad(ctx: Lowering): void {
  const { operands, result } = parseFormula(ctx, 1)
  const tensors = operands.map((names, i) => diagonal(ctx, ctx.input(i + 1), names))
  for (const [i, { value, names }] of tensors.entries()) {
    if (!ctx.wants(i)) continue
    let sum: Named = { value: ctx.input(0), names: result }
    const others = tensors.filter((_, j) => j !== i)
    for (const [n, next] of others.entries()) {
      const kept = new Set([...names, ...others.slice(n + 1).flatMap(other => other.names)])
      sum = contract(ctx, sum, next, kept)
    }
    const dx = arrange(sumOver(sum, ctx, new Set(names)), ctx, names)
    const repeated = dx.shape.flatMap((size, axis) => (lessThan(value.shape[axis]!, size) ? [axis] : []))
    const whole =
      repeated.length === 0 ? dx : ctx.call('ReduceSum', [dx, ctx.ints(repeated)], { keepdims: int(1) })
    giveDiagonal(ctx, i, ctx.call('Expand', [whole, ctx.ints(value.shape)]), operands[i]!)
  }
}

/** Output `o` is `value` on the diagonal over axes of the same name, and 0 elsewhere. */
function giveDiagonal(ctx: Lowering, o: number, value: Value, given: readonly string[]): void {
  const names = [...new Set(given)]
  if (names.length === given.length) {
    ctx.give(value, o)
    return
  }
  const strides = contiguousStrides(ctx.output(o).shape)
  const steps = names.map(name =>
    strides.reduce<Size>((sum, step, i) => add(sum, given[i] === name ? step : 0), 0),
  )
  const from = [value.buffer.read(), 0, contiguousStrides(value.shape)] as const
  addCopy(ctx, value.shape, from, [zeros(ctx, o).update(), 0, steps])
}

/** Lowerings of formulas. */
export const formulas: LowerTable = {
  '': { Einsum: ctx => ctx.inF32(einsum) },
  [sparkDomain]: { EinsumGrad: ctx => ctx.inF32(einsumGrad) },
}
