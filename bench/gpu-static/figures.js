// figures.js: what the machine code of each kernel tells of it.
import { readdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import { kernelsOfFatbin } from './cubin.js'
import { decode } from './machine-code.js'
import { mainLoop } from './main-loop.js'
import { gpus, occupancy } from './occupancy.js'

/** @import { Kernel } from './cubin.js' */
/** @import { MainLoop } from './main-loop.js' */
/** @import { Target } from './occupancy.js' */

/** @typedef {Omit<Kernel, 'code' | 'threads'> & MainLoop & { family: string, threads: number, blocks: number, warps: number }} Figures */

/** @param {string} family @param {Kernel} kernel @param {Target} target @returns {Figures} */
function figuresOf(family, { code, ...kernel }, target) {
  const gpu = gpus[target]
  return { ...kernel, family, ...occupancy(kernel, gpu), ...mainLoop(decode(code, gpu.capability)) }
}

export const targets = /** @type {Target[]} */ (Object.keys(gpus))

/** Figures of all kernels in the fatbins of a folder that are compiled for a target, by name. @param {string} folder @param {Target} target */
export async function figuresOfFolder(folder, target) {
  /** @type {Figures[]} */
  const all = []
  for (const file of await readdir(folder)) {
    if (!file.endsWith('.fatbin')) continue
    const kernels = kernelsOfFatbin(await readFile(path.join(folder, file)), gpus[target].capability)
    all.push(...kernels.map(kernel => figuresOf(path.basename(file, '.fatbin'), kernel, target)))
  }
  return all.sort((a, b) => (a.name < b.name ? -1 : 1))
}
