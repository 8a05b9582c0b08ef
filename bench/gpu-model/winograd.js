// winograd.js: convolutions of 3 x 3 on a GPU, direct and by Winograd's F(2 x 2, 3 x 3), which multiplies 2.25 times less.
import { machines } from './machines.js'

/** @import { Machine } from './machines.js' */
/** @import { Efficiency } from './roofline.js' */

/** Convolutions of 3 x 3 with stride 1 for one image. @typedef {readonly [positions: number, channels: number, filters: number, count: number]} Layers */

/** @typedef {{ direct: number, kernels: number, kernel: number }} Times seconds: direct, in three kernels, and in that of blocks, of which transforms cost nothing */

/** @typedef {{ machine: Machine, bytes: number, bandwidth: number }} Cache the L2 cache of a machine */

/** Their bandwidths are guesses. @type {readonly Cache[]} */
const caches = [
  { machine: machines.GB10, bytes: 24e6, bandwidth: 2.5e12 },
  { machine: machines.H100, bytes: 50e6, bandwidth: 5.5e12 },
]

/** Seconds that one more kernel takes beside its work, a guess. */
const kernelSeconds = 2e-6

/** What a block of native/kernels/conv/conv_winograd.cu computes, and the bytes that it copies for each channel: weights and pixels. */
const block = { height: 8, width: 16, filters: 64, bytes: 2 * (16 * 64 + 18 * 10) }

/** Positions, and filters, of a large tile of native/kernels/conv/conv_channels_last.cu. */
const tile = 128

/** A rate of products above the fitted one. */
const higherRate = 0.7

/** @type {Readonly<Record<string, readonly Layers[]>>} */
const nets = {
  'ResNet-50, 224': [
    [56 ** 2, 64, 64, 3],
    [28 ** 2, 128, 128, 3],
    [14 ** 2, 256, 256, 5],
    [7 ** 2, 512, 512, 2],
  ],
  'YOLOv8m, 640': [
    [160 ** 2, 48, 48, 4],
    [80 ** 2, 96, 96, 12],
    [40 ** 2, 192, 192, 12],
    [20 ** 2, 288, 288, 4],
    [80 ** 2, 192, 192, 1],
    [80 ** 2, 192, 64, 1],
  ],
  'YOLOv3, 416': [
    [208 ** 2, 32, 64, 1],
    [104 ** 2, 64, 128, 2],
    [52 ** 2, 128, 256, 11],
    [26 ** 2, 256, 512, 11],
    [13 ** 2, 512, 1024, 7],
  ],
  'U-Net of 64 channels, 256': [
    [256 ** 2, 64, 64, 3],
    [256 ** 2, 128, 64, 1],
    [128 ** 2, 64, 128, 1],
    [128 ** 2, 128, 128, 2],
    [128 ** 2, 256, 128, 1],
    [64 ** 2, 128, 256, 1],
    [64 ** 2, 256, 256, 2],
    [64 ** 2, 512, 256, 1],
    [32 ** 2, 256, 512, 1],
    [32 ** 2, 512, 512, 2],
    [32 ** 2, 1024, 512, 1],
    [16 ** 2, 512, 1024, 1],
    [16 ** 2, 1024, 1024, 1],
  ],
  'U-Net of Stable Diffusion, 64': [
    [64 ** 2, 320, 320, 7],
    [64 ** 2, 640, 320, 2],
    [64 ** 2, 960, 320, 1],
    [32 ** 2, 640, 640, 7],
    [32 ** 2, 1280, 640, 2],
    [32 ** 2, 1920, 640, 1],
    [16 ** 2, 1280, 1280, 8],
    [16 ** 2, 2560, 1280, 3],
    [8 ** 2, 1280, 1280, 12],
    [8 ** 2, 2560, 1280, 3],
  ],
}

/**
 * Images are read and written in 16 bits; between kernels lie tiles of 16 numbers for four positions, in 16 bits, and as many sums in f32.
 * @param {Layers} layers the time is that of one of them @param {Cache} cache @param {Efficiency} efficiency @returns {Times}
 */
export function timesOf([positions, channels, filters], { machine, bytes, bandwidth }, efficiency) {
  const memory = efficiency.memory * machine.bandwidth
  const products = (18 * positions * channels * filters) / (efficiency.arithmetic * (machine.flops.bf16 ?? 0))
  const [image, out] = [2 * positions * channels, 2 * positions * filters]
  const [direct, transformed] = [2 * 9 * channels * filters, 2 * 16 * channels * filters]
  const [tiles, sums] = [2 * 4 * positions * channels, 4 * 4 * positions * filters]
  const between = tiles + sums < bytes ? bandwidth : memory
  const copied = Math.ceil(positions / tile) * Math.ceil(filters / tile) * 9 * channels * 2 * (tile + tile)
  const side = Math.sqrt(positions)
  const blocks =
    Math.ceil(side / block.height) * Math.ceil(side / block.width) * Math.ceil(filters / block.filters)
  const filled = (positions * filters) / (blocks * block.height * block.width * block.filters)
  return {
    direct: Math.max(products, (image + out + direct) / memory, copied / bandwidth),
    kernels:
      Math.max((image + tiles) / between, image / memory) +
      Math.max(products / 2.25, transformed / memory, (tiles + sums) / between) +
      Math.max((sums + out) / between, out / memory) +
      2 * kernelSeconds,
    kernel: Math.max(
      products / 2.25 / filled,
      (image + out + transformed) / memory,
      (blocks * channels * block.bytes) / bandwidth,
    ),
  }
}

/** Seconds of a net. @param {readonly Layers[]} net @param {(layers: Layers) => number} seconds */
const sumOf = (net, seconds) => net.reduce((sum, layers) => sum + layers[3] * seconds(layers), 0)

/** Seconds of all its layers, and where each takes what is faster. @param {readonly Layers[]} net @param {Cache} cache @param {Efficiency} efficiency */
function netTimes(net, cache, efficiency) {
  const of = (/** @type {(times: Times) => number} */ choose) =>
    sumOf(net, layers => choose(timesOf(layers, cache, efficiency)))
  return {
    direct: of(({ direct }) => direct),
    kernels: of(({ kernels }) => kernels),
    withKernels: of(({ direct, kernels }) => Math.min(direct, kernels)),
    withKernel: of(({ direct, kernel }) => Math.min(direct, kernel)),
  }
}

/** Of winogradRows(). */
export const winogradHead = [
  ...['machine', 'net', 'direct', 'in three kernels'],
  ...['saved', 'at 70 %', 'saved in one kernel', 'at 70 %'],
]

/** @param {Efficiency} efficiency */
export function winogradRows(efficiency) {
  const micro = (/** @type {number} */ seconds) => `${(1e6 * seconds).toFixed(0)} µs`
  const saved = (/** @type {number} */ all, /** @type {number} */ part) =>
    `${(100 * (1 - part / all)).toFixed(0)} %`
  return caches.flatMap(cache =>
    Object.entries(nets).map(([name, net]) => {
      const times = netTimes(net, cache, efficiency)
      const faster = netTimes(net, cache, { ...efficiency, arithmetic: higherRate })
      return [
        cache.machine.name,
        name,
        micro(times.direct),
        micro(times.kernels),
        saved(times.direct, times.withKernels),
        saved(faster.direct, faster.withKernels),
        saved(times.direct, times.withKernel),
        saved(faster.direct, faster.withKernel),
      ]
    }),
  )
}
