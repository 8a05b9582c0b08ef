// join-convolutions.ts: a pointwise convolution and the depthwise one that alone reads it, as mobile nets have them, become one
// step. The CPU then computes a large image in bands of lines, so that what lies between the two stays in the cache.

import type { Paced } from '../core/paced.js'
import { numel } from '../core/shape.js'
import { sameSize } from '../core/size.js'
import { isDepthwise, isPointwise } from '../kernels/compact.js'
import { type Buffer, operandsOf, type Step } from './program.js'

type ConvStep = Extract<Step, { op: 'conv' }>

/** Elements of an image between the two from which on they are joined: fewer stay in the cache anyway. */
const fewElements = 1 << 18

/** Joins what follows each other. */
export function* joinConvolutions(steps: readonly Step[]): Paced<Step[]> {
  const uses = new Map<Buffer, number>()
  for (const { args } of steps) {
    for (const { buffer } of operandsOf(args)) uses.set(buffer, (uses.get(buffer) ?? 0) + 1)
    yield
  }
  const joined: Step[] = []
  for (const step of steps) {
    yield
    const before = joined.at(-1)
    const fits = before && isExpansion(before) && isLargeDepthwise(step) && isBetween(before, step)
    if (fits && uses.get(before.args.y.buffer) === 2) joined.splice(-1, 1, join(before, step))
    else joined.push(step)
  }
  return joined
}

/** Whether the second one reads what the first one makes, all of it. */
function isBetween({ args: { y } }: ConvStep, { args: { x } }: ConvStep): boolean {
  const { buffer } = y
  return (
    x.buffer === buffer &&
    buffer.storage === 'arena' &&
    sameSize(x.count, buffer.count) &&
    sameSize(y.count, buffer.count)
  )
}

function isExpansion(step: Step): step is ConvStep {
  if (step.op !== 'conv') return false
  const { residual, winograd, compute = 'f32' } = step.args
  return isPointwise(step.args) && compute === 'f32' && !residual && !winograd
}

/** Whether it is one of those that native/backend/cpu/conv/depthwise.cc computes in place, of a large image. */
function isLargeDepthwise(step: Step): step is ConvStep {
  if (step.op !== 'conv') return false
  const { groups, image, residual } = step.args
  const elements = numel([groups, ...image])
  return isDepthwise(step.args) && !residual && !(typeof elements === 'number' && elements < fewElements)
}

function join({ args: first }: ConvStep, { args: second, node }: ConvStep): Step {
  const { batch, groups, image, kernel, out, strides, dilations, padsBegin } = second
  const { weight, bias, activation, y } = second
  return {
    op: 'pointwiseDepthwise',
    args: {
      ...{ batch, groups, image, kernel, out, strides, dilations, padsBegin },
      ...{ weight, bias, activation, y },
      pointwise: first.weight,
      pointwiseBias: first.bias,
      pointwiseActivation: first.activation,
      x: first.x,
    },
    ...(node !== undefined && { node }),
  }
}
