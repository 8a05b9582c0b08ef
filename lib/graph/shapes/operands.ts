// operands.ts: checks of operand sizes that several families share. Kernels read as many elements as the first operand
// asks for: others would be read past, or not at all.
import { isSize } from '../../core/size.js'
import type { SymbolicDimension } from '../graph.js'
import { type ShapeContext, showShape } from './context.js'
import { compatible, product, type Shape } from './dimensions.js'
import type { Check } from './row.js'

/** Operand `i` must broadcast to `shape` without enlarging it. */
export function expectBroadcast(ctx: ShapeContext, i: number, name: string, shape: Shape | undefined): void {
  const own = ctx.shape(i)
  if (!own || !shape) return
  const missing = shape.length - own.length
  const fits = missing >= 0 && own.every((dim, at) => dim === 1 || compatible(dim, shape[at + missing]!))
  if (!fits) throw ctx.fail(`${name} is ${showShape(own)}; it must broadcast to ${showShape(shape)}`)
}

/** Operand `i` must have `count` elements. */
export function expectCount(
  ctx: ShapeContext,
  i: number,
  name: string,
  count: SymbolicDimension | undefined,
  why: string,
): void {
  const own = ctx.shape(i)
  if (!own || !isSize(count) || compatible(product(own), count)) return
  throw ctx.fail(`${name} is ${showShape(own)}; it must have ${count} elements, ${why}`)
}

/** Operand `i` must have exactly these sizes. */
export function expectShape(ctx: ShapeContext, i: number, name: string, shape: Shape): void {
  const own = ctx.shape(i)
  if (!own || (own.length === shape.length && own.every((dim, at) => compatible(dim, shape[at]!)))) return
  throw ctx.fail(`${name} is ${showShape(own)}; it must be ${showShape(shape)}`)
}

/** The first operand must have so many dimensions. */
export function expectRank(ctx: ShapeContext, min: number): void {
  const x = ctx.shape(0)
  if (x && x.length < min)
    throw ctx.fail(`its input is ${showShape(x)}; it must have at least ${min} dimensions`)
}

/** An axis that an attribute names must be there. */
export const alongAxis: Check = ctx => {
  const x = ctx.shape(0)
  if (x) ctx.axis(ctx.int('axis'), x.length)
}

/** Operands of one element. */
export const single =
  (...names: readonly string[]): Check =>
  ctx => {
    for (const [i, name] of names.entries()) expectCount(ctx, i + 1, name, 1, 'or be a scalar')
  }

export const expectInputs: Check = ctx => {
  if (ctx.node.inputs.length === 0) throw ctx.fail('it has no inputs')
}
