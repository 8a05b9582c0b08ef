// half-images.ts: images in 16 bits between convolutions. One that reads its weight channels last would round and transpose its image
// first; the convolution in front of it stores the image so, in the place of f32 or, for other readers, beside it. No result changes by
// a bit.

import { type HalfType, isHalf } from '../core/dtype.js'
import { mapPaced, type Paced } from '../core/paced.js'
import { numel } from '../core/shape.js'
import { fixSize, sameSize } from '../core/size.js'
import { channelUnit } from '../kernels/conv-args.js'
import type { ConvArgs } from './pack-weights.js'
import { Buffer, type Operand, operandsOf, type Step } from './program.js'

/** What the uses of a buffer of f32 allow. */
interface Uses {
  /** The type that the convolution which writes it multiplies; undefined where another step writes it. */
  type?: HalfType | undefined
  /** Types of the convolutions that can read an image. */
  readonly images: Set<HalfType>
  /** Whether something reads f32. */
  readsFloats: boolean
  /** Steps that write it. */
  writers: number
}

/** An image in 16 bits, and whether it is in the place of the one in f32. */
interface Image {
  readonly buffer: Buffer
  readonly isAlone: boolean
}

/** Lets convolutions write images in 16 bits, channels last, for those that would pack them. */
export function* halveImages(steps: readonly Step[]): Paced<Step[]> {
  const images = yield* imagesOf(steps)
  return yield* mapPaced(steps, step => {
    if (step.op !== 'conv' || !step.args.channelsLast) return step
    const x = readsImage(step.args) ? images.get(step.args.x.buffer)?.buffer : undefined
    const y = images.get(step.args.y.buffer)
    const read = x && x.dtype === step.args.compute && { x: x.read(), xDtype: x.dtype }
    const write =
      y && (y.isAlone ? { y: y.buffer.write(), yDtype: y.buffer.dtype } : { yChannelsLast: y.buffer.write() })
    return { ...step, args: { ...step.args, ...read, ...write } } as Step
  })
}

/** Whether a convolution that reads its weight channels last can read an image in 16 bits. */
export function readsImage({ x, weight, kernel }: ConvArgs): boolean {
  return isWhole(x) && (fixSize(weight.cols) / fixSize(numel(kernel))) % channelUnit === 0
}

/** Whether it can write one. */
export function writesImage({ y, weight, groups }: ConvArgs): boolean {
  return isWhole(y) && (fixSize(weight.rows) / fixSize(groups)) % channelUnit === 0
}

/** The images by the buffers of f32 whose elements they have. */
function* imagesOf(steps: readonly Step[]): Paced<Map<Buffer, Image>> {
  const all = new Map<Buffer, Uses>()
  for (const step of steps) {
    yield
    for (const [name, arg] of Object.entries(step.args))
      for (const operand of operandsOf(arg)) addUse(all, step, name, operand)
  }
  const images = new Map<Buffer, Image>()
  for (const [buffer, { type, images: readers, readsFloats, writers }] of all) {
    const isKept = buffer.storage === 'output'
    if (!type || writers !== 1 || !readers.has(type) || !(isKept || buffer.storage === 'arena')) continue
    const isAlone = !isKept && !readsFloats && readers.size === 1
    images.set(buffer, { buffer: new Buffer(type, buffer.count, 'arena'), isAlone })
  }
  return images
}

function addUse(all: Map<Buffer, Uses>, step: Step, name: string, { buffer, access }: Operand): void {
  const uses = all.get(buffer) ?? { images: new Set(), readsFloats: false, writers: 0 }
  all.set(buffer, uses)
  const args = step.op === 'conv' && step.args.channelsLast ? step.args : undefined
  const compute = args?.compute ?? 'f32'
  if (access !== 'read') uses.writers++
  if (args && isHalf(compute) && name === 'y' && writesImage(args)) uses.type = compute
  else if (args && isHalf(compute) && name === 'x' && readsImage(args)) uses.images.add(compute)
  else uses.readsFloats = true
}

const isWhole = ({ offset, count, buffer }: Operand): boolean => offset === 0 && sameSize(count, buffer.count)
