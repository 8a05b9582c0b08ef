// The demo, whole: it must learn, and merging and quantizing must not lose what it learned.
import { spawnSync } from 'node:child_process'
import path from 'node:path'
import t from 'tap'
import { loadAddon } from '#lib/native.js'

const main = path.resolve(import.meta.dirname, '../../dist/cli/main.js')

t.test('demo', { skip: !loadAddon().addon && 'too slow without the addon' }, async t => {
  const args = ['--no-warnings', main, 'demo', '--json', '--backend', 'cpu']
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8' })
  t.equal(status, 0, stderr)
  const { accuracy, adapter, mergeError, modes, backend } = JSON.parse(stdout)
  t.equal(backend, 'cpu')
  t.ok(accuracy.before.digits > 0.9, `the base reads digits: ${accuracy.before.digits}`)
  t.ok(accuracy.before.negatives < 0.3, `but not negatives: ${accuracy.before.negatives}`)
  t.ok(accuracy.after.negatives > 0.85, `with the adapter it does: ${accuracy.after.negatives}`)
  t.ok(adapter.share < 0.05, `the adapter file is small: ${adapter.share}`)
  t.ok(mergeError < 1e-5, `merged equals unmerged: ${mergeError}`)
  const [full, ...others] = modes
  t.same(
    modes.map((mode: { precision: string }) => mode.precision),
    ['fp32', 'fp16', 'fp8', 'nvfp4'],
  )
  for (const mode of others) {
    t.ok(mode.bytes < full.bytes, `${mode.precision} is smaller`)
    t.ok(mode.accuracy > full.accuracy - 0.03, `${mode.precision} keeps the accuracy: ${mode.accuracy}`)
  }
})
