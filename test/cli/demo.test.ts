// The demo, whole: it must learn, and merging, exporting and quantizing must not lose what it learned.
import { spawnSync } from 'node:child_process'
import path from 'node:path'
import t from 'tap'
import { loadAddon } from '#lib/native.js'
import { noGolden } from '../fixtures/values/golden-bytes.js'

const main = path.resolve(import.meta.dirname, '../../dist/cli/main.js')
const noAddon = !loadAddon().addon && 'too slow without the addon'

function demo(...options: string[]) {
  const args = ['--no-warnings', main, 'demo', '--json', '--backend', 'cpu', ...options]
  return spawnSync(process.execPath, args, { encoding: 'utf8' })
}

t.test('digits', { skip: noAddon }, async t => {
  const { status, stdout, stderr } = demo()
  t.equal(status, 0, stderr)
  const { accuracy, adapter, mergeError, runtimeError, precisions, backend } = JSON.parse(stdout)
  t.equal(backend, 'cpu')
  t.ok(accuracy.before.digits > 0.9, `the base reads digits: ${accuracy.before.digits}`)
  t.ok(accuracy.before.negatives < 0.3, `but not negatives: ${accuracy.before.negatives}`)
  t.ok(accuracy.after.negatives > 0.85, `with the adapter it does: ${accuracy.after.negatives}`)
  t.ok(adapter.share < 0.05, `the adapter file is small: ${adapter.share}`)
  t.ok(mergeError < 1e-5, `merged equals unmerged: ${mergeError}`)
  t.ok(runtimeError === null || runtimeError < 1e-5, `ONNX Runtime agrees: ${runtimeError}`)
  const [full, ...others] = precisions
  t.same(
    precisions.map((mode: { precision: string }) => mode.precision),
    ['fp32', 'fp16', 'fp8', 'nvfp4'],
  )
  for (const mode of others) {
    t.ok(mode.bytes < full.bytes, `${mode.precision} is smaller`)
    t.ok(mode.accuracy > full.accuracy - 0.03, `${mode.precision} keeps the accuracy: ${mode.accuracy}`)
  }
})

/** Models, and how many layers they have that are adapted. */
const models: Record<string, number> = {
  'tinyphysics.onnx': 20,
  'openpilot/dmonitoring_model.3294407.onnx': 58,
  // Its sampling rate has no dimensions, its state counts samples in the second one, and sound must be long enough.
  'silero/silero_vad_16k_op15.onnx': 6,
  // Bytes select rows of an embedding.
  'recurrent/byte_sb_bidi_lstm.onnx': 2,
}

for (const [file, layers] of Object.entries(models)) {
  t.test(file, { skip: noAddon || noGolden }, async t => {
    const { status, stdout, stderr } = demo(
      '--model',
      path.join(process.env.DGX_SPARK_TEST_DATA!, 'models', file),
    )
    t.equal(status, 0, stderr)
    const { loss, modules, mergeError, runtimeError } = JSON.parse(stdout)
    t.equal(loss.steps, 50)
    t.equal(modules, layers)
    t.ok(loss.last < 0.75 * loss.first, `the loss fell from ${loss.first} to ${loss.last}`)
    t.ok(mergeError < 1e-5, `merged equals unmerged: ${mergeError}`)
    t.ok(runtimeError === null || runtimeError < 1e-5, `ONNX Runtime agrees: ${runtimeError}`)
  })
}

t.test('what is refused', async t => {
  const { status, stderr } = demo('--data', 'somewhere')
  t.equal(status, 2)
  t.match(stderr, /--data somewhere needs --model/)
})
