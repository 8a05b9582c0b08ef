// strided-reads.ts: copies in front of kernels that take strides. A transpose or a slice need not be made for them: they
// read the elements where they were.
import { mapPaced, type Paced } from '../core/paced.js'
import { contiguousStrides, numel } from '../core/shape.js'
import { add, floorDivide, lessThan, multiply, quotient, type Size, subtract } from '../core/size.js'
import type { MatrixStrides } from '../kernels/kernels.js'
import { type Buffer, type Operand, operandsOf, type Step, type Symbolic } from './program.js'

type Copy = Extract<Step, { op: 'copyStrided' }>['args']
type Strides = Symbolic<MatrixStrides>

/** How a step reads an operand: element `index` is at Σ index · stride. */
interface Read {
  readonly operand: Operand
  readonly sizes: readonly Size[]
  readonly strides: readonly Size[]
  /** The step with another operand and other strides in its place; undefined where the kernel does not take them. */
  readonly replaced: (operand: Operand, strides: readonly Size[]) => Step | undefined
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
function splitBatch(step: Step, size: Size): Step | undefined {
  if (step.op !== 'matmul' || size === 0) return undefined
  const { outer, inner, aStrides, bStrides, yStrides } = step.args
  const rest = outer === 1 ? quotient(inner, size) : undefined
  if (rest === undefined) return undefined
  const split = ([, stride, row, col]: Strides): Strides => [multiply(size, stride), stride, row, col]
  const strides = { aStrides: split(aStrides), bStrides: split(bStrides), yStrides: split(yStrides) }
  return { ...step, args: { ...step.args, outer: rest, inner: size, ...strides } }
}

/** Copies that alone fill a buffer, from elements that do not change afterwards; by that buffer. */
function* wholeCopies(steps: readonly Step[]): Paced<Map<Buffer, Copy>> {
  const changes = new Map<Buffer, number[]>()
  for (const [at, step] of steps.entries()) {
    yield
    for (const { buffer, access } of operandsOf(step.args)) {
      if (access === 'read') continue
      const others = changes.get(buffer)
      if (others) others.push(at)
      else changes.set(buffer, [at])
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
    const fills = inOrder && add(dst.offset, dstOffset) === 0 && count === to.count
    const settled = (changes.get(from)?.at(-1) ?? -1) < at
    if (fills && settled && from !== to && changes.get(to)?.length === 1) copies.set(to, args)
  }
  return copies
}

/** The step that reads the source of a copy; undefined where its strides cannot say so. */
function throughCopy({ operand, sizes, strides, replaced }: Read, copy: Copy): Step | undefined {
  const { shape, dstStrides, srcStrides, src, srcOffset } = copy
  if (sizes.includes(0)) return undefined
  // The first element as an index of the copy; then the largest index that is reached on each of its axes.
  let rest = operand.offset
  const reach = dstStrides.map(stride => {
    const index = floorDivide(rest, stride)
    rest = subtract(rest, multiply(index, stride))
    return index
  })
  const first = reach.reduce<Size>(
    (sum, index, axis) => add(sum, multiply(index, srcStrides[axis]!)),
    add(srcOffset, src.offset),
  )
  const through: Size[] = []
  for (const [i, stride] of strides.entries()) {
    const steps = sizes[i] === 1 || stride === 0 ? 0 : stepsAlong(dstStrides, stride)
    if (steps === undefined) return undefined
    if (steps !== 0) {
      const { axis, count } = steps
      reach[axis] = add(reach[axis]!, multiply(count, subtract(sizes[i]!, 1)))
      through.push(multiply(count, srcStrides[axis]!))
    } else through.push(0)
  }
  if (!reach.every((index, axis) => lessThan(index, shape[axis]!))) return undefined
  return through.some(stride => lessThan(stride, 0)) ? undefined : replaced(src.buffer.read(first), through)
}

/** The axis whose stride divides another one, and how many steps along it that is. */
function stepsAlong(strides: readonly Size[], stride: Size): { axis: number; count: Size } | undefined {
  for (const [axis, step] of strides.entries()) {
    const count = quotient(stride, step)
    if (count !== undefined) return { axis, count }
  }
  return undefined
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
function matrices(step: Extract<Step, { op: 'matmul' }>, name: 'a' | 'b', sizes: readonly Size[]): Read {
  const { args } = step
  const replaced = (operand: Operand, strides: readonly Size[]): Step | undefined => {
    const [, , row, col] = strides
    const dense = sizes[2] === 1 || sizes[3] === 1 || row === 1 || col === 1
    return dense ? { ...step, args: { ...args, [name]: operand, [`${name}Strides`]: strides } } : undefined
  }
  return { operand: args[name], sizes, strides: args[`${name}Strides`], replaced }
}

/** Rows of attention, which lie without gaps. */
function rows(step: Extract<Step, { op: 'attention' }>, name: 'q' | 'k' | 'v', sizes: readonly Size[]): Read {
  const { args } = step
  const replaced = (operand: Operand, strides: readonly Size[]): Step | undefined =>
    sizes[3] === 1 || strides[3] === 1
      ? { ...step, args: { ...args, [name]: operand, [`${name}Strides`]: strides.slice(0, 3) } }
      : undefined
  return { operand: args[name], sizes, strides: [...args[`${name}Strides`], 1], replaced }
}
