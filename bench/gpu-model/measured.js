// measured.js: rows of `npm run test:gpu bench` on an H100 whose work is known.
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { buildOpenpilotModel } from '#lib/openpilot/architectures/build.js'
import { blockFormats } from '#lib/weights/blocks/formats.js'
import { machines } from './machines.js'
import { decodeWork, graphWork, languageCosts, prefillWork } from './work.js'

/** @import { BlockFormat } from '#lib/weights/blocks/formats.js' */
/** @import { Report } from '../report.js' */
/** @import { TextSizes } from '../rows/text.js' */
/** @import { Measurement, Work } from './roofline.js' */

/** @typedef {Measurement & { name: string, shape: string, dtype: string }} Measured */

const file = path.resolve(import.meta.dirname, '../results/2026-11-26-nvidia-h100-80gb-hbm3.json')

/** Bytes of an element of f32, f16 or bf16, or of a block format. @param {string} dtype */
function elementBytes(dtype) {
  const { bytes, elements } = blockFormats[/** @type {BlockFormat} */ (dtype.toUpperCase())]
  return bytes / elements
}

/** @param {TextSizes} sizes @param {string} dtype @returns {Work} */
function textWork({ prompt, depth, texts, steps, ...sizes }, dtype) {
  const costs = languageCosts(sizes, /** @type {BlockFormat} */ (dtype.toUpperCase()), true)
  return prompt > 0 ? prefillWork(costs, prompt) : decodeWork(costs, depth + steps / 2, texts)
}

/** A DoRA layer in one kernel: its weight, A, B, x and y. @param {string} shape @param {string} dtype @param {number} flops @returns {Work} */
function doraWork(shape, dtype, flops) {
  const [tokens, rows, cols, rank] = /** @type {[number, number, number, number]} */ (
    [...shape.matchAll(/\d+/g)].map(Number)
  )
  const [weight, compute = 'f32'] = /** @type {[string, string?]} */ (dtype.split(' in '))
  const bytes = elementBytes(weight) * rows * cols + 4 * (rank + tokens) * (rows + cols)
  return { bytes, flops: { [compute]: flops }, launches: 1 }
}

/** The work of a row; undefined where its row does not tell what it moves. @param {Report['rows'][number]} row @returns {Promise<Work | undefined>} */
async function workOf({ name, shape, dtype, unit, rate, medianMs, sizes }) {
  const counted = rate * medianMs * 1e6
  if (name.startsWith('text ')) return textWork(/** @type {TextSizes} */ (sizes), dtype)
  if (name === 'dora forward') return doraWork(shape, dtype, counted)
  if (shape === 'driving_policy' || shape === 'driving_vision')
    return graphWork(await buildOpenpilotModel(shape), 'bf16')
  return unit === 'GB/s' ? { bytes: counted, flops: {}, launches: 1 } : undefined
}

/** @returns {Promise<readonly Measured[]>} */
export async function measuredRows() {
  /** @type {Report} */
  const { rows } = JSON.parse(await readFile(file, 'utf8'))
  const all = await Promise.all(
    rows.map(async row => {
      const { name, shape, dtype, medianMs } = row
      const work = await workOf(row)
      return work ? [{ name, shape, dtype, work, machine: machines.H100, seconds: medianMs / 1e3 }] : []
    }),
  )
  return all.flat()
}
