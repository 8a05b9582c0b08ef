// strided-reads.ts: copies in front of kernels that take strides. A transpose or a slice need not be made for them: they
// read the elements where they were.
import { mapPaced, type Paced } from '../core/paced.js'
import { contiguousStrides, numel } from '../core/shape.js'
import type { MatrixStrides } from '../kernels/kernels.js'
import { type Buffer, type Operand, operandsOf, type Step } from './program.js'

type Copy = Extract<Step, { op: 'copyStrided' }>['args']

/** How a step reads an operand: element `index` is at Σ index · stride. */
interface Read {
  readonly operand: Operand
  readonly sizes: readonly number[]
  readonly strides: readonly number[]
  /** The step with another operand and other strides in its place; undefined where the kernel does not take them. */
  readonly replaced: (operand: Operand, strides: readonly number[]) => Step | undefined
}

/** Copies in a row that one step reads through. */
const maxCopies = 16

/**
 * Lets products and attention read what a copy has in another order where it comes from. The copies stay: who drops dead
 * steps drops those that nobody reads any more.
 */
export function* readInPlace(steps: readonly Step[]): Paced<Step[]> {
  const copies = yield* wholeCopies(steps)
  if (copies.size === 0) return [...steps]
  return yield* mapPaced(steps, step => {
    let result: Step = step
    for (let n = 0; n < maxCopies; n++) {
      const next = throughOneCopy(result, copies)
      if (!next) break
      result = next
    }
    return result
  })
}

/** The step that reads one of its operands where a copy has it from; undefined when there is none. */
function throughOneCopy(step: Step, copies: ReadonlyMap<Buffer, Copy>): Step | undefined {
  for (const read of readsOf(step)) {
    const copy = copies.get(read.operand.buffer)
    if (!copy) continue
    const next = throughCopy(read, copy)
    if (next) return next
    for (const size of copy.shape) {
      const split = splitBatch(step, size)
      const same = split && readsOf(split).find(({ operand }) => operand === read.operand)
      const splitNext = same && throughCopy(same, copy)
      if (splitNext) return splitNext
    }
  }
  return undefined
}

/** A product whose batch of one axis is one of two axes, the inner of the given size. */
function splitBatch(step: Step, size: number): Step | undefined {
  if (step.op !== 'matmul' || size === 0) return undefined
  const { outer, inner, aStrides, bStrides, yStrides } = step.args
  if (outer !== 1 || inner % size !== 0) return undefined
  const split = ([, stride, row, col]: MatrixStrides): MatrixStrides => [size * stride, stride, row, col]
  const strides = { aStrides: split(aStrides), bStrides: split(bStrides), yStrides: split(yStrides) }
  return { ...step, args: { ...step.args, outer: inner / size, inner: size, ...strides } }
}

/** Copies that alone fill a buffer, from elements that do not change afterwards; by that buffer. */
function* wholeCopies(steps: readonly Step[]): Paced<Map<Buffer, Copy>> {
  const writes = new Map<Buffer, number[]>()
  const updated = new Set<Buffer>()
  for (const [at, step] of steps.entries()) {
    yield
    for (const { buffer, access } of operandsOf(step.args)) {
      if (access === 'update') updated.add(buffer)
      if (access !== 'write') continue
      const others = writes.get(buffer)
      if (others) others.push(at)
      else writes.set(buffer, [at])
    }
  }
  const copies = new Map<Buffer, Copy>()
  for (const [at, { op, args }] of steps.entries()) {
    yield
    if (op !== 'copyStrided') continue
    const { shape, src, dst, dstOffset, dstStrides } = args
    const [from, to] = [src.buffer, dst.buffer]
    const inOrder = contiguousStrides(shape).every((stride, axis) => stride === dstStrides[axis])
    const count = numel(shape)
    const fills = inOrder && dst.offset + dstOffset === 0 && count === to.count
    const fixed = !updated.has(from) && from.storage !== 'state' && !updated.has(to)
    const settled = (writes.get(from)?.at(-1) ?? -1) < at
    if (fills && fixed && settled && from !== to && writes.get(to)?.length === 1) copies.set(to, args)
  }
  return copies
}

/** The step that reads the source of a copy; undefined where its strides cannot say so. */
function throughCopy({ operand, sizes, strides, replaced }: Read, copy: Copy): Step | undefined {
  const { shape, dstStrides, srcStrides, src, srcOffset } = copy
  // The first element as an index of the copy; then the largest index that is reached on each of its axes.
  let rest = operand.offset
  const reach = dstStrides.map(stride => {
    const index = Math.floor(rest / stride)
    rest -= index * stride
    return index
  })
  const first = reach.reduce((sum, index, axis) => sum + index * srcStrides[axis]!, srcOffset + src.offset)
  const through = strides.map((stride, i) => {
    if (sizes[i] === 1 || stride === 0) return 0
    const axis = dstStrides.findIndex(step => stride % step === 0)
    if (axis < 0) return Number.NaN
    const steps = stride / dstStrides[axis]!
    reach[axis]! += steps * (sizes[i]! - 1)
    return steps * srcStrides[axis]!
  })
  if (sizes.includes(0) || !through.every(stride => stride >= 0)) return undefined
  if (!reach.every((index, axis) => index < shape[axis]!)) return undefined
  return replaced(src.buffer.read(first), through)
}

/** The operands of a step whose strides are free. */
function readsOf(step: Step): Read[] {
  if (step.op === 'matmul') {
    const { outer, inner, m, n, k } = step.args
    return [matrices(step, 'a', [outer, inner, m, k]), matrices(step, 'b', [outer, inner, k, n])]
  }
  if (step.op !== 'attention') return []
  const { batch, heads, kvHeads, queries, keys, depth, valueDepth } = step.args
  return [
    rows(step, 'q', [batch, heads, queries, depth]),
    rows(step, 'k', [batch, kvHeads, keys, depth]),
    rows(step, 'v', [batch, kvHeads, keys, valueDepth]),
  ]
}

/** Matrices of a product: rows or columns have to lie without gaps. */
function matrices(step: Extract<Step, { op: 'matmul' }>, name: 'a' | 'b', sizes: readonly number[]): Read {
  const { args } = step
  const replaced = (operand: Operand, strides: readonly number[]): Step | undefined => {
    const [, , row, col] = strides
    const dense = sizes[2] === 1 || sizes[3] === 1 || row === 1 || col === 1
    return dense ? { ...step, args: { ...args, [name]: operand, [`${name}Strides`]: strides } } : undefined
  }
  return { operand: args[name], sizes, strides: args[`${name}Strides`], replaced }
}

/** Rows of attention, which lie without gaps. */
function rows(
  step: Extract<Step, { op: 'attention' }>,
  name: 'q' | 'k' | 'v',
  sizes: readonly number[],
): Read {
  const { args } = step
  const replaced = (operand: Operand, strides: readonly number[]): Step | undefined =>
    sizes[3] === 1 || strides[3] === 1
      ? { ...step, args: { ...args, [name]: operand, [`${name}Strides`]: strides.slice(0, 3) } }
      : undefined
  return { operand: args[name], sizes, strides: [...args[`${name}Strides`], 1], replaced }
}
