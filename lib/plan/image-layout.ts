// image-layout.ts: images with their channels last between convolutions on tensor cores. One that reads its weight channels last would
// lay its image out first, in 16 bits or bytes; the convolution in front of it stores the image so, in the place of planes or, for other
// readers, beside them. No result changes by a bit.

import { type HalfType, isHalf } from '../core/dtype.js'
import { mapPaced, type Paced } from '../core/paced.js'
import { numel } from '../core/shape.js'
import { fixSize, type Size, sameSize } from '../core/size.js'
import { byteChannelUnit, channelUnit } from '../kernels/conv-args.js'
import type { ConvArgs } from './pack-weights.js'
import { Buffer, type Operand, operandsOf, type Step } from './program.js'

type ImageType = HalfType | 'u8' | 'i8'
type BytesArgs = Extract<Step, { op: 'convInteger' }>['args']

/** What the uses of a buffer of planes allow. */
interface Uses {
  /** The type of an image that the convolution which writes it can store; undefined where another step writes it. */
  type?: ImageType | undefined
  /** Types of images that convolutions can read. */
  readonly images: Set<ImageType>
  /** Whether something reads planes. */
  readsPlanes: boolean
  /** Steps that write it. */
  writers: number
}

/** An image with its channels last, and whether it is in the place of planes. */
interface Image {
  readonly buffer: Buffer
  readonly isAlone: boolean
}

/**
 * Lets convolutions write images with their channels last for those that would lay them out; steps that make what is outside of images
 * of bytes go to `setup`.
 * @param steps - what is computed at each run
 */
export function* keepChannelsLast(steps: readonly Step[], setup: Step[]): Paced<Step[]> {
  const images = yield* imagesOf(steps)
  return yield* mapPaced(steps, (step): Step => {
    if (step.op !== 'conv' && step.op !== 'convInteger') return step
    const types = imageTypes(step)
    const image = images.get(step.args.x.buffer)?.buffer
    const x = image?.dtype === types.x ? image : undefined
    const y = step.args.y && images.get(step.args.y.buffer)
    const last = y && { yChannelsLast: y.buffer.write() }
    if (step.op === 'convInteger') {
      const read = x && { x: x.read(), xOutside: outsideOf(step.args, setup) }
      return { ...step, args: { ...step.args, ...read, ...last, ...(y?.isAlone && { y: undefined }) } }
    }
    const read = x && { x: x.read(), xDtype: x.dtype as HalfType }
    const alone = y?.isAlone && { y: y.buffer.write(), yDtype: y.buffer.dtype as HalfType }
    return { ...step, args: { ...step.args, ...read, ...(alone || last) } }
  })
}

/** Whether a convolution that reads its weight channels last can read an image in 16 bits. */
export const readsImage = ({ x, weight, kernel }: ConvArgs): boolean =>
  isWhole(x) && isMultiple(weight.cols, numel(kernel), channelUnit)

/** Whether it can write one. */
export const writesImage = ({ y, weight, groups }: ConvArgs): boolean =>
  isWhole(y) && isMultiple(weight.rows, groups, channelUnit)

/** The types of images with their channels last that a step can read and write. */
function imageTypes(step: Step): { x?: ImageType | undefined; y?: ImageType | undefined } {
  if (step.op === 'conv' && step.args.channelsLast) {
    const { compute = 'f32' } = step.args
    if (!isHalf(compute)) return {}
    return { x: readsImage(step.args) ? compute : undefined, y: writesImage(step.args) ? compute : undefined }
  }
  if (step.op !== 'convInteger' || !step.args.channelsLast) return {}
  const { x, xZero, xSigned, cols, kernel, y, yDtype, rows, groups } = step.args
  const isKnown = !xZero || ['constant', 'folded'].includes(xZero.buffer.storage)
  const reads = isKnown && isWhole(x) && isMultiple(cols, numel(kernel), byteChannelUnit)
  const writes = y && isWhole(y) && isMultiple(rows, groups, byteChannelUnit)
  return { x: reads ? (xSigned ? 'i8' : 'u8') : undefined, y: writes ? yDtype : undefined }
}

/** The images by the buffers of planes whose elements they have. */
function* imagesOf(steps: readonly Step[]): Paced<Map<Buffer, Image>> {
  const all = new Map<Buffer, Uses>()
  for (const step of steps) {
    yield
    const types = imageTypes(step)
    for (const [name, arg] of Object.entries(step.args))
      for (const operand of operandsOf(arg))
        addUse(all, operand, name === 'x' ? types.x : undefined, name === 'y' ? types.y : undefined)
  }
  const images = new Map<Buffer, Image>()
  for (const [buffer, { type, images: readers, readsPlanes, writers }] of all) {
    const isKept = buffer.storage === 'output'
    if (!type || writers !== 1 || !readers.has(type) || !(isKept || buffer.storage === 'arena')) continue
    const isAlone = !isKept && !readsPlanes && readers.size === 1
    images.set(buffer, { buffer: new Buffer(type, buffer.count, 'arena'), isAlone })
  }
  return images
}

/** Notes an operand, and the type of the image that its step can read or write in its place. */
function addUse(
  all: Map<Buffer, Uses>,
  { buffer, access }: Operand,
  read: ImageType | undefined,
  written: ImageType | undefined,
): void {
  const uses = all.get(buffer) ?? { images: new Set(), readsPlanes: false, writers: 0 }
  all.set(buffer, uses)
  if (access !== 'read') uses.writers++
  if (written) uses.type = written
  else if (read) uses.images.add(read)
  else uses.readsPlanes = true
}

/** Bytes outside of the image that a convolution reads, on a multiple of 16 bytes; steps that make them go to `setup`. */
function outsideOf({ xZero, xSigned }: BytesArgs, setup: Step[]): Operand {
  const dtype = xSigned ? 'i8' : 'u8'
  const zero = xZero ?? new Buffer('i32', 1, 'constant', () => new Int32Array(1)).read()
  const [one, all] = [new Buffer(dtype, 1, 'folded'), new Buffer(dtype, byteChannelUnit, 'folded')]
  const types = { srcDtype: 'i32', dstDtype: dtype, saturate: true } as const
  const fill = { shape: [byteChannelUnit], srcOffset: 0, dstOffset: 0, srcStrides: [0], dstStrides: [1] }
  setup.push({ op: 'cast', args: { ...types, count: 1, src: zero, dst: one.write() } })
  setup.push({ op: 'copyStrided', args: { dtype, ...fill, src: one.read(), dst: all.write() } })
  return all.read()
}

const isWhole = ({ offset, count, buffer }: Operand): boolean => offset === 0 && sameSize(count, buffer.count)

/** Whether each of some equal parts of a size is a multiple of `unit`. */
const isMultiple = (size: Size, parts: Size, unit: number): boolean =>
  (fixSize(size) / fixSize(parts)) % unit === 0
