// launches.js: the kernels that a step of a decoder launches, and their blocks beside the multiprocessors of a GPU, counted on the
// fake driver of the tests.
import { execFileSync } from 'node:child_process'
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import { gpus } from './occupancy.js'
import { layer } from './plans.js'

/** @typedef {{ kernel: string, blocks: number }} Launch */

const fixtures = path.resolve(import.meta.dirname, '../../test/fixtures')

/** The launches of a step behind a prompt, in their order; null where there is no driver to play. @param {string} format @param {object} sizes @returns {Launch[] | null} */
export function stepLaunches(format, sizes) {
  const hooks = pathToFileURL(path.join(fixtures, 'typescript/register.js')).href
  const program = path.join(fixtures, 'text/step-launches.ts')
  const args = [`--import=${hooks}`, program, format, JSON.stringify(sizes)]
  return JSON.parse(execFileSync(process.execPath, args, { encoding: 'utf8' }))
}

/** A line for each kernel of a layer of Llama 3.1 8B and what is around it, behind some tokens. @param {'Q4_K' | 'BF16'} format */
export function launchTable(format) {
  const contexts = [4, 4096]
  const gpu = gpus['121f']
  const lines = [`${format}                      behind  launches   blocks  blocks / ${gpu.multiprocessors}`]
  for (const prompt of contexts) {
    const launches = stepLaunches(format, { ...layer, prompt })
    if (!launches) return `${format}: no driver to play here`
    /** @type {Map<string, Launch & { count: number }>} */
    const kinds = new Map()
    for (const { kernel, blocks } of launches) {
      const kind = kinds.get(`${kernel} ${blocks}`)
      if (kind) kind.count++
      else kinds.set(`${kernel} ${blocks}`, { kernel, blocks, count: 1 })
    }
    for (const { kernel, blocks, count } of kinds.values()) {
      const share = (blocks / gpu.multiprocessors).toFixed(1)
      const columns = [
        `${prompt}`.padStart(7),
        `${count}`.padStart(8),
        `${blocks}`.padStart(7),
        share.padStart(11),
      ]
      lines.push([kernel.padEnd(24), ...columns].join('  '))
    }
  }
  return lines.join('\n')
}
