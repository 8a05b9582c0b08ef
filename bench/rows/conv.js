// conv.js: convolutions of image networks, forward, backward and transposed, beside ONNX Runtime; on a GPU in bf16, too, also with
// the weight channels last, from image to image, and in tiles of 2 x 2 outputs.
import assert from 'node:assert'
import { decode, encode } from 'dgx-spark'
import { channelsLastCopy, tilesCopy, tileTransform } from '#lib/kernels/js/channels-last.js'
import { transposedImages } from '#lib/kernels/js/conv.js'
import { Operands } from '../operands.js'
import { uniform } from '../random.js'

/** @import { KernelArgs, Kernels } from 'dgx-spark/kernels' */
/** @import { Case } from '../harness.js' */
/** @import { Peer } from '../peer.js' */

/** @typedef {{ batch: number, channels: number, filters: number, groups: number, size: number, kernel: number, stride: number }} Layer */

/** @param {number} channels @param {number} filters @param {number} size @param {number} kernel @param {Partial<Layer>} [more] @returns {Layer} */
const layer = (channels, filters, size, kernel, more) => ({
  batch: 1,
  channels,
  filters,
  groups: 1,
  size,
  kernel,
  stride: 1,
  ...more,
})

const layers = [
  layer(3, 64, 224, 7, { stride: 2 }),
  layer(64, 64, 56, 3),
  layer(64, 256, 56, 1),
  layer(128, 128, 28, 3),
  layer(256, 256, 14, 3),
  layer(512, 512, 7, 3),
  layer(1024, 256, 14, 1),
  layer(256, 512, 28, 1, { stride: 2 }),
  layer(1, 32, 28, 3, { batch: 64 }),
  layer(32, 64, 14, 3, { batch: 64 }),
  layer(32, 32, 28, 3, { batch: 8 }),
  layer(96, 96, 56, 3, { groups: 96 }),
  layer(96, 96, 112, 3, { groups: 96, stride: 2 }),
  layer(384, 384, 14, 3, { groups: 384 }),
  layer(128, 128, 56, 3, { groups: 32 }),
]

/** The steps up of a U-Net; `size` is that of x, which has the filters. */
const stepsUp = [
  layer(256, 512, 16, 2, { stride: 2 }),
  layer(128, 256, 32, 2, { stride: 2 }),
  layer(64, 128, 64, 2, { stride: 2 }),
  layer(32, 64, 128, 2, { stride: 2 }),
]

/** Batches that fill a GPU. */
const batches = [
  layer(3, 64, 224, 7, { batch: 32, stride: 2 }),
  layer(64, 64, 56, 3, { batch: 32 }),
  layer(256, 256, 14, 3, { batch: 32 }),
  layer(256, 512, 28, 1, { batch: 32, stride: 2 }),
]

/** @param {Kernels} kernels @param {Peer | null} peer @returns {AsyncGenerator<Case>} */
export async function* conv(kernels, peer) {
  if (!kernels.supports('conv')) return
  const onGpu = kernels.backend === 'cuda'
  for (const one of onGpu ? [...layers, ...batches] : layers) {
    yield* passes(kernels, peer, one, 'f32')
    if (onGpu) yield* passes(kernels, peer, one, 'bf16')
  }
  for (const one of stepsUp) yield* stepUp(kernels, peer, one)
}

/**
 * A transposed convolution without overlaps.
 * @param {Kernels} kernels @param {Peer | null} peer @param {Layer} one
 * @returns {AsyncGenerator<Case>}
 */
async function* stepUp(kernels, peer, one) {
  const { batch, channels, filters, groups, size, kernel } = one
  const operands = new Operands(kernels)
  const cols = channels * kernel ** 2
  const w = await operands.put(uniform(filters * cols, 2))
  const x = await operands.put(uniform(batch * filters * size ** 2, 3))
  const bias = await operands.put(uniform(channels, 4))
  const y = await operands.put(new Float32Array(batch * cols * size ** 2))
  const both = (/** @type {number} */ value) => [value, value]
  const run = await peer?.operator({
    type: 'ConvTranspose',
    inputs: { x: [batch, filters, size, size] },
    constants: {
      w: { shape: [filters, channels, kernel, kernel], data: w },
      bias: { shape: [channels], data: bias },
    },
    outputs: { y: [batch, channels, size * kernel, size * kernel] },
    attributes: { kernel_shape: both(kernel), strides: both(kernel) },
  })
  const args = {
    weight: { format: /** @type {const} */ ('f32'), rows: filters, cols, data: w },
    ...{ batch, groups, image: both(size * kernel), kernel: both(kernel), out: both(size) },
    ...{ strides: both(kernel), dilations: both(1), padsBegin: both(0), x, bias, y },
  }
  yield {
    shape: `${batch}x${filters}x${size} ${channels}x${kernel}/${kernel}`,
    dtype: 'f32',
    sizes: one,
    flops: 2 * y.length * filters,
    name: 'conv transposed',
    run: () => kernels.run('convTranspose', args),
    check: async () => {
      const expected = await run?.(x)
      if (expected) expectClose(y, expected)
    },
    ...(run && peer && { peer: { name: peer.name, spins: true, run: () => run(x) } }),
  }
  operands.dispose()
}

/**
 * Convolutions in bf16 from an image in 16 bits to another, with the weight channels last and, where they fit, in tiles of 2 x 2 outputs.
 * @param {Operands} operands @param {Kernels} kernels @param {Omit<KernelArgs['conv'], 'x' | 'y'>} shape
 * @param {{ w: Float32Array, x: Float32Array, y: Float32Array }} floats
 */
async function* fromImages(operands, kernels, shape, { w, x, y }) {
  const { batch, groups, weight, kernel, strides, image } = shape
  const [channels, taps] = [weight.cols / 9, (kernel[0] ?? 0) ** 2]
  if (((weight.cols / taps) | (weight.rows / groups)) % 8 !== 0) return
  const pixels = (image[0] ?? 0) ** 2
  const planes = x.length / batch / pixels
  const args = {
    ...shape,
    x: await operands.put(encode(transposedImages(x, batch, planes, pixels), 'bf16')),
    y: await operands.put(new Uint16Array(y.length)),
    ...{ xDtype: /** @type {const} */ ('bf16'), yDtype: /** @type {const} */ ('bf16') },
  }
  yield { name: 'conv image to image', args }
  if (taps !== 9 || strides[0] !== 1 || groups > 1 || (channels | weight.rows) % 16 !== 0) return
  const matrix = { format: /** @type {const} */ ('f32'), rows: 16, cols: 9, data: tileTransform() }
  const { count, copy } = tilesCopy(weight.rows, channels)
  const numbers = new Float32Array(count)
  await kernels.run('linear', { weight: matrix, tokens: weight.rows * channels, x: w, y: numbers })
  const channelsLast = await operands.put(new Uint16Array(count))
  const src = encode(numbers, 'bf16')
  await kernels.run('copyStrided', { dtype: 'bf16', ...copy, src, dst: channelsLast })
  yield { name: 'conv in tiles', args: { ...args, channelsLast, inTiles: true } }
}

/**
 * The passes of a layer; `dtype` is that of the weight, and what its products are formed of.
 * @param {Kernels} kernels @param {Peer | null} peer @param {Layer} one @param {'f32' | 'bf16'} dtype
 * @returns {AsyncGenerator<Case>}
 */
async function* passes(kernels, peer, one, dtype) {
  const { batch, channels, filters, groups, size, kernel, stride } = one
  const [tolerance, adjoint] = dtype === 'f32' ? [1e-5, 1e-4] : [2e-2, 2e-2]
  const operands = new Operands(kernels)
  const pad = (kernel - 1) >> 1
  const out = Math.floor((size + 2 * pad - kernel) / stride) + 1
  const cols = (channels / groups) * kernel ** 2
  const codes = encode(uniform(filters * cols, 2), dtype)
  const w = decode(codes, dtype)
  const weight = { format: dtype, rows: filters, cols, data: await operands.put(codes) }
  const x = await operands.put(uniform(batch * channels * size ** 2, 3))
  const dy = await operands.put(uniform(batch * filters * out ** 2, 4))
  const y = await operands.put(new Float32Array(dy.length))
  const bias = await operands.put(uniform(filters, 5))
  const both = (/** @type {number} */ value) => [value, value]
  const shape = {
    weight,
    compute: dtype,
    batch,
    groups,
    image: both(size),
    kernel: both(kernel),
    out: both(out),
    strides: both(stride),
    dilations: both(1),
    padsBegin: both(pad),
  }
  const run = await peer?.operator({
    type: 'Conv',
    inputs: { x: [batch, channels, size, size] },
    constants: {
      w: { shape: [filters, channels / groups, kernel, kernel], data: w },
      bias: { shape: [filters], data: bias },
    },
    outputs: { y: [batch, filters, out, out] },
    attributes: {
      group: groups,
      kernel_shape: both(kernel),
      pads: [pad, pad, pad, pad],
      strides: both(stride),
    },
  })
  const about = {
    shape: `${batch}x${channels}x${size} ${filters}x${kernel}${stride > 1 ? `/${stride}` : ''}${groups > 1 ? ` g${groups}` : ''}`,
    dtype: dtype === 'f32' ? dtype : `${dtype} in ${dtype}`,
    sizes: one,
    flops: 2 * dy.length * cols,
  }
  const forward = () => kernels.run('conv', { ...shape, x, bias, y })
  const beside = {
    check: async () => {
      const expected = await run?.(x)
      if (expected) expectClose(y, expected, tolerance)
    },
    ...(run && peer && { peer: { name: peer.name, spins: true, run: () => run(x) } }),
  }
  yield { ...about, ...beside, name: 'conv', run: forward }
  if (dtype === 'bf16') {
    const { count, copy } = channelsLastCopy(filters, cols, kernel ** 2)
    const channelsLast = await operands.put(new Uint16Array(count))
    await kernels.run('copyStrided', { dtype, ...copy, src: weight.data, dst: channelsLast })
    const laidOut = () => kernels.run('conv', { ...shape, channelsLast, x, bias, y })
    yield { ...about, ...beside, name: 'conv channels last', run: laidOut }
    const ofImages = { ...shape, bias, channelsLast }
    const check = async (/** @type {KernelArgs['conv']} */ args) => {
      await kernels.run('conv', { ...args, yDtype: 'f32', y })
      await beside.check()
    }
    for await (const { name, args } of fromImages(operands, kernels, ofImages, { w, x, y }))
      yield { ...about, name, run: () => kernels.run('conv', args), check: () => check(args) }
  }
  const dx = await operands.put(new Float32Array(x.length))
  const dweight = await operands.put(new Float32Array(w.length))
  yield {
    ...about,
    name: 'conv dx',
    run: () => kernels.run('convBackward', { ...shape, dy, dx }),
    check: async () => {
      await forward()
      expectAdjoint(dot(dx, x), y, dy, bias, out ** 2, adjoint)
    },
  }
  yield {
    ...about,
    name: 'conv dweight',
    run: () => kernels.run('convBackward', { ...shape, x, dy, dweight }),
    check: async () => {
      await forward()
      expectAdjoint(dot(dweight, w), y, dy, bias, out ** 2, adjoint)
    },
  }
  operands.dispose()
}

/** @param {Float32Array} a @param {Float32Array} b */
function dot(a, b) {
  let sum = 0
  for (let i = 0; i < a.length; ++i) sum += (a[i] ?? 0) * (b[i] ?? 0)
  return sum
}

/**
 * ⟨dx, x⟩ and ⟨dweight, weight⟩ are ⟨dy, y − bias⟩.
 * @param {number} product @param {Float32Array} y @param {Float32Array} dy @param {Float32Array} bias @param {number} plane
 * @param {number} tolerance
 */
function expectAdjoint(product, y, dy, bias, plane, tolerance) {
  let [expected, square] = [0, 0]
  for (let i = 0; i < y.length; ++i) {
    const term = (dy[i] ?? 0) * ((y[i] ?? 0) - (bias[Math.floor(i / plane) % bias.length] ?? 0))
    expected += term
    square += term ** 2
  }
  assert.ok(Math.abs(product - expected) <= tolerance * Math.sqrt(square), `${product} should be ${expected}`)
}

/** @param {Float32Array} actual @param {Float32Array} expected */
export function expectClose(actual, expected, tolerance = 1e-5) {
  let [error, largest] = [0, 0]
  for (let i = 0; i < expected.length; ++i) {
    error = Math.max(error, Math.abs((actual[i] ?? Number.NaN) - (expected[i] ?? 0)))
    largest = Math.max(largest, Math.abs(expected[i] ?? 0))
  }
  assert.ok(error <= tolerance * largest, `differs by ${error}, the largest is ${largest}`)
}
