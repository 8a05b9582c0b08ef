// machines.js: GPUs by the rates that were measured on them: the ceilings of a roofline.

/**
 * @typedef {object} Machine
 * @property {string} name
 * @property {number} bandwidth bytes a second of its memory
 * @property {Readonly<Record<string, number>>} flops operations a second of dense products by dtype
 * @property {string} source
 */

const [GB, T] = [1e9, 1e12]

const hopper = { f32: 67 * T, f16: 718 * T, bf16: 718 * T, f8_e4m3: 1436 * T }

/** @satisfies {Readonly<Record<string, Machine>>} */
export const machines = {
  GB10: {
    name: 'GB10',
    bandwidth: 252.7 * GB,
    flops: { f32: 29.5 * T, f16: 99.8 * T, bf16: 99.8 * T, f8_e4m3: 207.7 * T, f4_e2m1: 356 * T },
    source:
      'the best that others have published of reading memory and of matrix products; 273 GB/s, 125, 250 and 500 TFLOP/s are nominal',
  },
  H100: {
    name: 'H100',
    bandwidth: 3012 * GB,
    flops: hopper,
    source:
      'copy and bf16 product of [GPU results](gpu-results.md); FP8 twice as fast and f32 as in the data sheet; 3.35 TB/s are nominal',
  },
  H200: {
    name: 'H200',
    bandwidth: 4300 * GB,
    flops: hopper,
    source: 'a published copy (reads and writes); multiprocessors as in an H100; 4.8 TB/s are nominal',
  },
  B200: {
    name: 'B200',
    bandwidth: 8000 * GB,
    flops: {},
    source: 'data sheet; only published kernels ran on it',
  },
}
