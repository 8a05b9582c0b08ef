// use.js <folder>: loads base and adapter in a process of its own, merges, exports, and checks in ONNX Runtime. Prints JSON.
import path from 'node:path'
import { Adapter, Model } from 'dgx-spark'
import { accuracy, loadDigits, negatives, relativeError, scoresOf } from './data.js'
import { files } from './finetune.js'
import { precisionsOf } from './precisions.js'

/** @import { BackendName } from 'dgx-spark' */

/** @typedef {Awaited<ReturnType<typeof use>>} Used */

/**
 * @param {string} folder that finetune.js wrote
 * @param {{ backend?: BackendName | undefined }} options
 */
export async function use(folder, { backend }) {
  // What is compared must be computed alike: no automatic precision.
  const engine = /** @type {const} */ ({ precision: 'fp32', ...(backend && { backend }) })
  const { test } = await loadDigits()
  const inverted = negatives(test)
  const base = await Model.load(path.join(folder, files.base), engine)
  const adapter = await Adapter.load(base, path.join(folder, files.adapter))
  const adapted = await Model.fromGraph(adapter.graph, engine)
  const { graph } = await adapter.merge()
  const merged = await Model.fromGraph(graph, engine)
  const exported = path.join(folder, files.merged)
  await merged.save(exported)
  const unmerged = await scoresOf(adapted, inverted)
  const result = {
    backend: adapted.backend.name,
    accuracy: {
      before: { digits: await accuracy(base, test), negatives: await accuracy(base, inverted) },
      after: { digits: await accuracy(adapted, test), negatives: await accuracy(adapted, inverted) },
    },
    adapter: {
      rank: adapter.config.r,
      parameters: adapter.parameterCount,
      bytes: adapter.byteLength,
      share: adapter.shareOfBase,
    },
    mergeError: relativeError(await scoresOf(merged, inverted), unmerged),
    runtimeError: await runtimeError(exported, inverted, unmerged),
    precisions: await precisionsOf(graph, inverted, engine),
    digits: test.count,
  }
  for (const model of [base, adapted, merged]) model.dispose()
  return result
}

/**
 * How far ONNX Runtime is from `expected` with the exported file; null where it is not installed.
 * @param {string} file
 * @param {import('./data.js').Digits} digits
 * @param {Float32Array} expected
 */
async function runtimeError(file, digits, expected) {
  try {
    await import('onnxruntime-node')
  } catch {
    return null
  }
  const model = await Model.load(file, { backend: 'onnxruntime' })
  const scores = await scoresOf(model, digits)
  model.dispose()
  return relativeError(scores, expected)
}

if (process.argv[1] === import.meta.filename) {
  const [folder = '.', backend] = process.argv.slice(2)
  const result = await use(folder, { backend: /** @type {BackendName | undefined} */ (backend) })
  console.log(JSON.stringify(result))
}
