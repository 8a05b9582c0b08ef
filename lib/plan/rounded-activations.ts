// rounded-activations.ts: activations in NVFP4 and 16 bits. A product in one of them rounds the rows that it reads; rows of a
// normalization are rounded once by that, those of a product in NVFP4 or of attention over blocks by that where the next product
// has a tensor scale for all rows, and others of several products in NVFP4 by the first of these. No result changes by a bit. Rows
// of 16 bits that products alone read are those of half-activations.ts already.

import { type HalfType, isHalf } from '../core/dtype.js'
import { mapPaced, type Paced } from '../core/paced.js'
import { multiply, sameSize } from '../core/size.js'
import { depthUnit, roundedUnit } from '../kernels/linear-args.js'
import { Buffer, type Operand, operandsOf, type Step } from './program.js'

type Product = Extract<Step, { op: 'linear' }>
type Norm = Extract<Step, { op: 'norm' }>
type Producer = Product | Extract<Step, { op: 'pagedAttention' }>

/** What steps do with a buffer. */
interface Uses {
  /** Products in one type that round all of it, in their order. */
  readonly products: Product[]
  /** Steps that write to it, in front of those products. */
  readonly writers: Step[]
  /** Whether it is read in f32, or changed when the first product has read it. */
  isReadElsewhere: boolean
  isChanged: boolean
}

/** Lets products that read the same rows share what one step has rounded. */
export function* roundOnce(steps: readonly Step[]): Paced<Step[]> {
  const changes = new Map<Step, object>()
  const change = (step: Step, args: object): unknown => changes.set(step, { ...changes.get(step), ...args })
  for (const [buffer, uses] of yield* usesOf(steps)) {
    yield
    const [first, ...others] = uses.products
    if (!first || uses.isChanged) continue
    const type = roundedTypeOf(first)!
    const writer = isHalf(type) ? normOf(buffer, uses) : (normOf(buffer, uses) ?? producerOf(buffer, uses))
    if (!writer && (others.length === 0 || isHalf(type))) continue
    const rounded = new Buffer(isHalf(type) ? type : 'bf16', buffer.count, 'arena')
    const isUnread = !uses.isReadElsewhere && buffer.storage === 'arena'
    const { xScale } = first.args
    if (!writer) change(first, { xRounded: rounded.write() })
    else if (isHalf(type)) change(writer, { yHalf: rounded.write(), halfDtype: type })
    else change(writer, { yRounded: rounded.write(), yScale: xScale, ...(isUnread && { y: undefined }) })
    for (const product of writer ? uses.products : others)
      change(product, { x: rounded.read(), xDtype: type, xScale: undefined })
  }
  return yield* mapPaced(steps, step => {
    const changed = changes.get(step)
    return changed ? ({ ...step, args: { ...step.args, ...changed } } as Step) : step
  })
}

function* usesOf(steps: readonly Step[]): Paced<Map<Buffer, Uses>> {
  const all = new Map<Buffer, Uses>()
  for (const step of steps) {
    yield
    for (const [name, arg] of Object.entries(step.args))
      for (const operand of operandsOf(arg)) {
        const uses = all.get(operand.buffer) ?? {
          ...{ products: [], writers: [], isReadElsewhere: false, isChanged: false },
        }
        all.set(operand.buffer, uses)
        if (operand.access !== 'read') {
          uses.writers.push(step)
          uses.isChanged ||= uses.products.length > 0
        }
        if (name === 'x' && isRounding(step, operand) && sharesRows(step, uses)) uses.products.push(step)
        else if (operand.access !== 'write') uses.isReadElsewhere = true
      }
  }
  return all
}

/** What a product rounds its rows to; undefined where these are rounded already, stay f32 or would be padded. */
function roundedTypeOf({
  args: { compute = 'f32', weight, xDtype },
}: Product): HalfType | 'nvfp4' | undefined {
  if (xDtype !== undefined || (compute !== 'nvfp4' && !isHalf(compute))) return undefined
  const unit = compute === 'nvfp4' ? roundedUnit : depthUnit
  return typeof weight.cols === 'number' && weight.cols % unit === 0 ? compute : undefined
}

/** Whether it is a product that rounds all rows of an operand. */
const isRounding = (step: Step, operand: Operand): step is Product =>
  step.op === 'linear' && roundedTypeOf(step) !== undefined && isWhole(operand)

/** Whether its rows are as long as those of the other products, and rounded to the same numbers. */
const sharesRows = ({ args }: Product, { products: [first] }: Uses): boolean =>
  !first ||
  (first.args.weight.cols === args.weight.cols &&
    first.args.compute === args.compute &&
    first.args.xScale === args.xScale)

/** The normalization that writes the rows of a buffer. */
function normOf(buffer: Buffer, { products: [first], writers: [writer, ...others] }: Uses): Norm | undefined {
  if (writer?.op !== 'norm' || others.length > 0) return undefined
  const { y, cols, groups, inner, yDtype } = writer.args
  const isPlain = groups === 1 && inner === 1 && yDtype === undefined
  const isRow = y?.buffer === buffer && isWhole(y) && sameSize(cols, first!.args.weight.cols)
  return isPlain && isRow ? writer : undefined
}

/** The product in NVFP4, or attention over blocks, that writes the rows of a buffer whose scale is known before they are. */
function producerOf(
  buffer: Buffer,
  { products: [first], writers: [writer, ...others] }: Uses,
): Producer | undefined {
  const isProducer =
    (writer?.op === 'linear' && writer.args.compute === 'nvfp4') || writer?.op === 'pagedAttention'
  if (!isProducer || others.length > 0 || first!.args.xScale === undefined) return undefined
  const { y, yDtype } = writer.args
  const cols =
    writer.op === 'linear' ? writer.args.weight.rows : multiply(writer.args.heads, writer.args.depth)
  const isRow = y?.buffer === buffer && isWhole(y) && sameSize(cols, first!.args.weight.cols)
  return isRow && yDtype === undefined ? writer : undefined
}

const isWhole = ({ offset, count, buffer }: Operand): boolean => offset === 0 && sameSize(count, buffer.count)
