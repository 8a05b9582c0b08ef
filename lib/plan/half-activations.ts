// half-activations.ts: activations in 16 bits. A product on tensor cores rounds the rows that it reads; rows that nothing else
// reads are rounded by the step that computes them instead, once for all products. No result changes by a bit.

import { type HalfType, isHalf } from '../core/dtype.js'
import { mapPaced, type Paced } from '../core/paced.js'
import { sameSize } from '../core/size.js'
import { depthUnit } from '../kernels/linear-args.js'
import { Buffer, type Operand, operandsOf, type Step } from './program.js'

/** What the uses of a buffer allow. */
interface Uses {
  /** The types that its readers round it to; `f32` where one does not. */
  readonly types: Set<HalfType | 'f32'>
  /** Steps that write it and can round it. */
  writers: number
}

/** Lets steps write activations in the type that all products which read them round them to. */
export function* halveActivations(steps: readonly Step[]): Paced<Step[]> {
  const halves = yield* halvesOf(steps)
  return yield* mapPaced(steps, step => {
    if (!writes(step)) return step
    const x = step.op === 'linear' && halves.get(step.args.x.buffer)
    const y = step.args.y && halves.get(step.args.y.buffer)
    const args = {
      ...step.args,
      ...(x && { x: x.read(), xDtype: x.dtype }),
      ...(y && { y: y.write(), yDtype: y.dtype }),
    }
    return { ...step, args } as Step
  })
}

const writers = ['linear', 'norm', 'attention', 'pagedAttention'] as const
type Writer = Extract<Step, { op: (typeof writers)[number] }>

/** Whether it is a step that can write its result in 16 bits. */
const writes = (step: Step): step is Writer => (writers as readonly string[]).includes(step.op)

/** The buffers of 16 bits that take the places of others, by those. */
function* halvesOf(steps: readonly Step[]): Paced<Map<Buffer, Buffer>> {
  const all = new Map<Buffer, Uses>()
  for (const step of steps) {
    yield
    for (const [name, arg] of Object.entries(step.args))
      for (const operand of operandsOf(arg)) {
        const { buffer } = operand
        const uses = all.get(buffer) ?? { types: new Set(), writers: 0 }
        all.set(buffer, uses)
        if (writes(step) && name === 'y' && isWhole(operand)) uses.writers++
        else uses.types.add(roundedTypeOf(step, name, operand))
      }
  }
  const halves = new Map<Buffer, Buffer>()
  for (const [buffer, { types, writers }] of all) {
    const [type, ...others] = types
    const isRounded = type !== undefined && isHalf(type) && others.length === 0
    if (!isRounded || writers !== 1 || buffer.dtype !== 'f32' || buffer.storage !== 'arena') continue
    halves.set(buffer, new Buffer(type, buffer.count, 'arena'))
  }
  return halves
}

/** What a step rounds an operand to before it uses it. */
function roundedTypeOf(step: Step, name: string, operand: Operand): HalfType | 'f32' {
  if (step.op !== 'linear' || name !== 'x' || !isWhole(operand)) return 'f32'
  const { compute = 'f32', weight } = step.args
  return isHalf(compute) && typeof weight.cols === 'number' && weight.cols % depthUnit === 0 ? compute : 'f32'
}

const isWhole = ({ offset, count, buffer }: Operand): boolean => offset === 0 && sameSize(count, buffer.count)
