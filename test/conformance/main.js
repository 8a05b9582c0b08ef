// main.js: runs ONNX backend test cases and prints each failure in a line, then `N passed, N failed, N skipped`.
// npm run conformance -- <folder or .tar.gz> [--backend cpu|js|onnxruntime] [--case <part of a name>]
import { parseArgs } from 'node:util'
import { readCases } from './cases.js'
import { differenceOfValues } from './close.js'
import { openRunner } from './runners.js'

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { backend: { type: 'string', default: 'cpu' }, case: { type: 'string', default: '' } },
})
const [place] = positionals
if (!place) {
  console.error(
    'usage: npm run conformance -- <folder or .tar.gz> [--backend cpu|js|onnxruntime] [--case <name>]',
  )
  process.exit(2)
}

const run = await openRunner(values.backend)
const counts = { passed: 0, failed: 0 }
for (const { name, model, sets } of readCases(place).filter(({ name }) => name.includes(values.case))) {
  let failure
  try {
    for (const { inputs, outputs } of sets) failure ??= await runSet(model, inputs, outputs)
  } catch (error) {
    failure = /** @type {Error} */ (error).message
  }
  if (failure) console.log(`${name}: ${failure}`)
  counts[failure ? 'failed' : 'passed']++
}
console.log(`${counts.passed} passed, ${counts.failed} failed, 0 skipped`)
process.exitCode = counts.failed === 0 ? 0 : 1

/**
 * @param {Uint8Array} model
 * @param {Uint8Array[]} inputs
 * @param {Uint8Array[]} outputs
 */
async function runSet(model, inputs, outputs) {
  const { results, expected } = await run(model, inputs, outputs)
  for (const [i, { name, value }] of results.entries()) {
    const failure = differenceOfValues(name, value, expected[i])
    if (failure) return failure
  }
  return undefined
}
