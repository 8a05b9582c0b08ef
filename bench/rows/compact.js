// compact.js: pointwise and depthwise convolutions, full kernels and poolings of small images whose channels come last, beside those
// of planes.
import assert from 'node:assert'
import { numel } from '../feeds.js'
import { Operands } from '../operands.js'
import { uniform } from '../random.js'

/** @import { Kernels, Weight } from 'dgx-spark/kernels' */
/** @import { Case } from '../harness.js' */

/** Batch, channels, filters, sides of the image and of the kernel: of the last stages of nets for phones, and of Inceptions. */
const convolutions = [
  [1, 960, 160, 3, 5, 1],
  [1, 160, 960, 3, 5, 1],
  [1, 320, 1280, 3, 5, 1],
  [1, 672, 112, 4, 8, 1],
  [1, 576, 96, 6, 10, 1],
  [1, 960, 160, 7, 7, 1],
  [8, 960, 160, 7, 7, 1],
  [1, 192, 320, 7, 7, 3],
  [1, 448, 512, 8, 8, 3],
  [8, 192, 320, 7, 7, 3],
  [1, 96, 576, 14, 14, 1],
  [1, 576, 96, 14, 14, 1],
  [8, 576, 96, 14, 14, 1],
]

/** Batch, channels, sides of the image and of the window, and its stride. */
const depthwiseLayers = [
  [1, 960, 7, 3, 1],
  [1, 1152, 7, 5, 1],
  [1, 384, 14, 3, 1],
  [8, 576, 14, 3, 1],
  [1, 480, 14, 5, 1],
  [1, 576, 14, 3, 2],
]

/** Batch, channels and side of the image of windows of 3 x 3 at each position. */
const pools = [
  [1, 1024, 7],
  [1, 1536, 8],
  [8, 1024, 7],
]

/** So many weights in turn, as in a net: those of one layer would stay in the caches. */
const turns = 16

/**
 * [batch, channels, positions] as [batch, positions, channels].
 * @param {Float32Array} planes @param {number} batch @param {number} channels
 */
function lastOf(planes, batch, channels) {
  const last = new Float32Array(planes.length)
  const positions = planes.length / (batch * channels)
  for (let at = 0; at < planes.length; at++) {
    const [plane, p] = [Math.floor(at / positions), at % positions]
    last[(Math.floor(plane / channels) * positions + p) * channels + (plane % channels)] = planes[at] ?? 0
  }
  return last
}

/** Windows that keep the sides of an image. @param {number[]} image @param {number} side */
const windowsOf = (image, side) => {
  const [kernel, pads] = [image.map(() => side), image.map(() => (side - 1) / 2)]
  const ones = image.map(() => 1)
  return { image, kernel, out: image, strides: ones, dilations: ones, padsBegin: pads, padsEnd: pads }
}

/**
 * What is run and compared of a row, its peer being the same with planes.
 * @param {() => Promise<void>} run @param {() => Promise<void>} inPlanes @param {() => void} expectSame
 */
const besidePlanes = (run, inPlanes, expectSame) => ({
  run,
  check: async () => {
    await run()
    await inPlanes()
    expectSame()
  },
  peer: { name: 'planes', run: inPlanes },
})

/** @param {Kernels} kernels @returns {AsyncGenerator<Case>} */
export async function* compact(kernels) {
  if (!kernels.supports('pointwiseDepthwise')) return
  for (const layer of convolutions) yield* convolution(kernels, layer)
  for (const layer of depthwiseLayers) yield* depthwise(kernels, layer)
  for (const layer of pools) yield* pool(kernels, layer)
}

/** @param {Kernels} kernels @param {number[]} layer @returns {AsyncGenerator<Case>} */
async function* convolution(
  kernels,
  [batch = 0, channels = 0, filters = 0, height = 0, width = 0, side = 0],
) {
  const operands = new Operands(kernels)
  const image = [height, width]
  const cols = channels * side ** 2
  /** @type {Weight[]} */
  const weights = []
  for (let i = 0; i < turns; i++) {
    const data = await operands.put(uniform(filters * cols, i + 1))
    const packed = await operands.put(new Float32Array(Math.ceil(filters / 32) * 32 * cols))
    const weight = { format: /** @type {const} */ ('f32'), rows: filters, cols, data }
    await kernels.run('packWeight', { weight, data: packed })
    weights.push({ ...weight, data: packed, layout: /** @type {const} */ ('panels') })
  }
  const planes = uniform(batch * channels * numel(image), 40)
  const bias = await operands.put(uniform(filters, 41))
  const [x, xLast] = [await operands.put(planes), await operands.put(lastOf(planes, batch, channels))]
  const y = await operands.put(new Float32Array(batch * filters * numel(image)))
  const yLast = await operands.put(new Float32Array(y.length))
  const relu6 = /** @type {const} */ ('relu6')
  const args = { batch, groups: 1, ...windowsOf(image, side), bias, activation: relu6 }
  const run = async () => {
    for (const weight of weights)
      await kernels.run('conv', { ...args, weight, x: xLast, y: yLast, xCompact: true, yCompact: true })
  }
  const inPlanes = async () => {
    for (const weight of weights) await kernels.run('conv', { ...args, weight, x, y })
  }
  yield {
    name: 'compact conv',
    shape: `${batch}x${channels}x${height}x${width} ${filters}x${side}`,
    dtype: 'f32',
    flops: 2 * turns * y.length * cols,
    ...besidePlanes(run, inPlanes, () => assert.deepEqual(yLast, lastOf(y, batch, filters))),
  }
  operands.dispose()
}

/** @param {Kernels} kernels @param {number[]} layer @returns {AsyncGenerator<Case>} */
async function* depthwise(kernels, [batch = 0, channels = 0, size = 0, side = 0, stride = 0]) {
  const operands = new Operands(kernels)
  const [image, out] = [
    [size, size],
    [Math.ceil(size / stride), Math.ceil(size / stride)],
  ]
  const planes = uniform(batch * channels * numel(image), 1)
  const data = await operands.put(uniform(channels * side ** 2, 2))
  const [x, xLast] = [await operands.put(planes), await operands.put(lastOf(planes, batch, channels))]
  const y = await operands.put(new Float32Array(batch * channels * numel(out)))
  const yLast = await operands.put(new Float32Array(y.length))
  const args = {
    ...{ batch, groups: channels, ...windowsOf(image, side), out, strides: [stride, stride] },
    weight: { format: /** @type {const} */ ('f32'), rows: channels, cols: side ** 2, data },
    activation: /** @type {const} */ ('relu6'),
  }
  const run = () => kernels.run('conv', { ...args, x: xLast, y: yLast, xCompact: true, yCompact: true })
  const inPlanes = () => kernels.run('conv', { ...args, x, y })
  yield {
    name: 'compact depthwise',
    shape: `${batch}x${channels}x${size}x${size}, ${side}x${side}${stride > 1 ? ` s${stride}` : ''}`,
    dtype: 'f32',
    flops: 2 * y.length * side ** 2,
    ...besidePlanes(run, inPlanes, () => assert.deepEqual(yLast, lastOf(y, batch, channels))),
  }
  operands.dispose()
}

/** @param {Kernels} kernels @param {number[]} layer @returns {AsyncGenerator<Case>} */
async function* pool(kernels, [batch = 0, channels = 0, size = 0]) {
  const operands = new Operands(kernels)
  const image = [size, size]
  const planes = uniform(batch * channels * numel(image), 1)
  const [x, xLast] = [await operands.put(planes), await operands.put(lastOf(planes, batch, channels))]
  const y = await operands.put(new Float32Array(planes.length))
  const yLast = await operands.put(new Float32Array(planes.length))
  for (const fn of /** @type {const} */ (['max', 'average'])) {
    const args = {
      ...{ fn, dtype: /** @type {const} */ ('f32'), countPad: false },
      ...{ planes: batch * channels, ...windowsOf(image, 3) },
    }
    const run = () => kernels.run('pool', { ...args, x: xLast, y: yLast, compactChannels: channels })
    const inPlanes = () => kernels.run('pool', { ...args, x, y })
    yield {
      name: `compact ${fn} pool`,
      shape: `${batch}x${channels}x${size}x${size}, 3x3`,
      dtype: 'f32',
      elements: y.length,
      bytes: x.byteLength + y.byteLength,
      ...besidePlanes(run, inPlanes, () => assert.deepEqual(yLast, lastOf(y, batch, channels))),
    }
  }
  operands.dispose()
}
