// occupancy.js: blocks of a kernel that a multiprocessor holds at a time, by the CUDA programming guide's limits of its compute
// capability.

/** @import { Kernel } from './cubin.js' */

/**
 * @typedef {object} Gpu
 * @property {string} name
 * @property {number} capability 90 for 9.0
 * @property {number} multiprocessors
 * @property {number} shared bytes of shared memory of a multiprocessor
 * @property {number} warps of a multiprocessor, at most
 * @property {number} blocks of a multiprocessor, at most
 */

/** By the target that kernels are compiled for. @satisfies {Readonly<Record<string, Gpu>>} */
export const gpus = {
  '90a': { name: 'H100', capability: 90, multiprocessors: 132, shared: 228 << 10, warps: 64, blocks: 32 },
  '121f': { name: 'GB10', capability: 121, multiprocessors: 48, shared: 100 << 10, warps: 48, blocks: 24 },
}

/** @typedef {keyof typeof gpus} Target */

const warpThreads = 32
/** Registers of a multiprocessor, a quarter for each of its schedulers, and what a warp is given them in. */
const registers = { all: 65_536, schedulers: 4, unit: 256 }
const sharedUnit = 128

/** Threads of blocks that launchers start without `__launch_bounds__`, where they are not as many as most have. @type {readonly [RegExp, number][]} */
const launched = [
  [/^adamw_step$/, 1],
  [/^nvfp4_/, 128],
  [/^paged_(prepare|merge)_/, 128],
]
const usual = 256

/** @param {Pick<Kernel, 'name' | 'threads'>} kernel */
export const threadsOf = ({ name, threads }) =>
  threads ?? launched.find(([pattern]) => pattern.test(name))?.[1] ?? usual

/** @param {number} value @param {number} unit */
const roundUp = (value, unit) => Math.ceil(value / unit) * unit

/** @param {Pick<Kernel, 'name' | 'threads' | 'registers' | 'shared'>} kernel @param {Gpu} gpu */
export function occupancy(kernel, gpu) {
  const threads = threadsOf(kernel)
  const warps = Math.ceil(threads / warpThreads)
  const ofWarp = roundUp(Math.max(kernel.registers, 1) * warpThreads, registers.unit)
  const warpsByRegisters = Math.floor(registers.all / registers.schedulers / ofWarp) * registers.schedulers
  const blocks = Math.min(
    gpu.blocks,
    Math.floor(Math.min(gpu.warps, warpsByRegisters) / warps),
    Math.floor(gpu.shared / roundUp(Math.max(kernel.shared, 1), sharedUnit)),
  )
  return { threads, blocks, warps: blocks * warps }
}
