// compact-images.ts: a layout for each chain of convolutions. Pointwise and depthwise convolutions that alone write and read an
// image let it be compact, with its channels last, where it has few positions: those of a plane would fill vectors badly.

import { mapPaced, type Paced } from '../core/paced.js'
import { numel } from '../core/shape.js'
import { type Size, sameSize } from '../core/size.js'
import { fewPositions, takesCompact } from '../kernels/compact.js'
import { type Buffer, type Operand, operandsOf, type Step } from './program.js'

type Convolution = Extract<Step, { op: 'conv' | 'pointwiseDepthwise' }>

/** Lets images be compact where all that write and read them are convolutions that take it. */
export function* compactImages(steps: readonly Step[]): Paced<Step[]> {
  const compact = yield* compactBuffers(steps)
  if (compact.size === 0) return [...steps]
  return yield* mapPaced(steps, step => {
    if (!isConvolution(step)) return step
    const [xCompact, yCompact] = [compact.has(step.args.x.buffer), compact.has(step.args.y.buffer)]
    if (!xCompact && !yCompact) return step
    return {
      ...step,
      args: { ...step.args, ...(xCompact && { xCompact }), ...(yCompact && { yCompact }) },
    } as Step
  })
}

const residualOf = (step: Convolution): Operand | undefined =>
  step.op === 'conv' ? step.args.residual : undefined

function isConvolution(step: Step): step is Convolution {
  if (step.op === 'pointwiseDepthwise') return takesCompact(step.args, false)
  if (step.op !== 'conv') return false
  const { compute = 'f32', residual } = step.args
  return compute === 'f32' && takesCompact(step.args, residual !== undefined)
}

const mayBeSmall = (sizes: readonly Size[]): boolean => {
  const positions = numel(sizes)
  return typeof positions !== 'number' || positions <= fewPositions
}

const isWhole = ({ buffer, offset, count }: Operand): boolean => offset === 0 && sameSize(count, buffer.count)

function* compactBuffers(steps: readonly Step[]): Paced<Set<Buffer>> {
  const [written, excluded] = [new Set<Buffer>(), new Set<Buffer>()]
  for (const step of steps) {
    yield
    const images = isConvolution(step) ? imagesOf(step) : new Set<Operand>()
    for (const operand of operandsOf(step.args)) {
      const { buffer, access } = operand
      if (!images.has(operand) || buffer.storage !== 'arena' || !isWhole(operand)) excluded.add(buffer)
      else if (access === 'write' && written.has(buffer)) excluded.add(buffer)
      else if (access === 'write') written.add(buffer)
    }
  }
  const compact = new Set([...written].filter(buffer => !excluded.has(buffer)))
  // A residual has the layout of y.
  for (let size = -1; size !== compact.size; ) {
    size = compact.size
    for (const step of steps) {
      yield
      const residual = isConvolution(step) && residualOf(step)
      if (!residual || compact.has(residual.buffer) === compact.has(step.args.y.buffer)) continue
      compact.delete(residual.buffer)
      compact.delete(step.args.y.buffer)
    }
  }
  return compact
}

/** The operands of a convolution that may be compact images. */
function imagesOf(step: Convolution): Set<Operand> {
  const { x, y, image, out } = step.args
  const residual = residualOf(step)
  const images = mayBeSmall(image) ? [x] : []
  if (mayBeSmall(out)) images.push(y, ...(residual ? [residual] : []))
  return new Set(images)
}
