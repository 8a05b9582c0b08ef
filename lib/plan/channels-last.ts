// channels-last.ts: constant weights of convolutions with their channels side by side, in the 16 bits that tensor cores multiply.
import { type HalfType, isHalf } from '../core/dtype.js'
import { mapPaced, type Paced } from '../core/paced.js'
import { numel } from '../core/shape.js'
import { fixSize } from '../core/size.js'
import { channelsLastCopy } from '../kernels/js/channels-last.js'
import { readsImage, writesImage } from './half-images.js'
import {
  type ConvArgs,
  once,
  type SymbolicWeight,
  weightsThatStay,
  wideFormats,
  withoutElements,
} from './pack-weights.js'
import { Buffer, type Operand, type Step } from './program.js'

/** Where packing the image pays; by the instructions and bytes of the kernels, not measured. */
const leastPacked = {
  /** Channels of a group. */
  channels: 16,
  /** Products of an element of the image, for whose packing 6 bytes are moved; any, where it is written in 16 bits. */
  products: 512,
}

/**
 * Lets convolutions on CUDA read constant weights channels last; steps that lay them out go to `setup`. A weight that other kernels
 * read as well stays as it is.
 * @param steps - what is computed at each run
 */
export function* layChannelsLast(steps: readonly Step[], setup: Step[]): Paced<Step[]> {
  const stays = yield* weightsThatStay(steps, ({ op }) => op === 'conv')
  const laidOut = once((weight, taps: number, type: HalfType) => {
    const { steps, data } = layOut(weight, taps, type)
    setup.push(...steps)
    return data
  })
  const images = new Map<Buffer, HalfType>()
  return yield* mapPaced(steps, (step): Step => {
    if (step.op !== 'conv' || stays(step.args.weight)) return step
    const { weight, kernel, compute = 'f32', x, y } = step.args
    const hasImage = images.get(x.buffer) === compute && readsImage(step.args)
    if (!isHalf(compute) || !pays(step.args, hasImage)) return step
    if (writesImage(step.args)) images.set(y.buffer, compute)
    const channelsLast = laidOut(weight, fixSize(numel(kernel)), compute)
    return { ...step, args: { ...step.args, weight: withoutElements(weight), channelsLast } }
  })
}

function pays({ weight, groups, kernel, strides }: ConvArgs, hasImage: boolean): boolean {
  if (!wideFormats.includes(weight.format)) return false
  const [taps, filters] = [fixSize(numel(kernel)), fixSize(weight.rows) / fixSize(groups)]
  const products = (filters * taps) / fixSize(numel(strides))
  const enough = hasImage || products >= leastPacked.products
  return fixSize(weight.cols) / taps >= leastPacked.channels && enough
}

/** The steps that round a weight to `type` and lay it out, and the result. */
function layOut(
  { format, rows, cols, data }: SymbolicWeight,
  taps: number,
  type: HalfType,
): { steps: Step[]; data: Operand } {
  const { count, copy } = channelsLastCopy(fixSize(rows), fixSize(cols), taps)
  const zero = new Buffer(type, 1, 'constant', () => new Uint16Array(1))
  const to = new Buffer(type, count, 'folded')
  const fill = { shape: [count], srcOffset: 0, dstOffset: 0, srcStrides: [0], dstStrides: [1] }
  const steps: Step[] = [
    { op: 'copyStrided', args: { dtype: type, ...fill, src: zero.read(), dst: to.write() } },
  ]
  let src = data
  if (format !== type) {
    const rounded = new Buffer(type, data.count, 'folded')
    const types = { srcDtype: format as 'f32' | HalfType, dstDtype: type, saturate: false }
    steps.push({ op: 'cast', args: { ...types, count: data.count, src: data, dst: rounded.write() } })
    src = rounded.read()
  }
  steps.push({ op: 'copyStrided', args: { dtype: type, ...copy, src, dst: to.write() } })
  return { steps, data: to.read() }
}
