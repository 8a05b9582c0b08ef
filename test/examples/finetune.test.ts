// The fine-tuning example: every step from an ONNX file to a merged one.
import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { loadAddon } from '#lib/native.js'

const root = path.resolve(import.meta.dirname, '../..')
const skip = !loadAddon().addon && 'too slow without the addon'

function run(script: string, cwd: string, args: readonly string[] = []): string {
  const file = path.join(root, script)
  const env = { ...process.env, DGX_SPARK_BACKEND: 'cpu' }
  const { status, stdout, stderr } = spawnSync(process.execPath, ['--no-warnings', file, ...args], {
    cwd,
    env,
    encoding: 'utf8',
  })
  if (status === 0) return stdout
  throw new Error(`${script} ended with ${status}: ${stderr}`)
}

t.test('examples/finetune-mnist', { skip }, async t => {
  const folder = t.testdir()
  const result = JSON.parse(
    run('examples/finetune-mnist/main.js', folder, ['made', 'cpu']).split('\n').at(-2)!,
  )
  t.ok(result.accuracy.before.digits > 0.9, `the base reads digits: ${result.accuracy.before.digits}`)
  t.ok(result.accuracy.after.negatives > 0.85, `the adapter negatives: ${result.accuracy.after.negatives}`)
  t.ok(result.mergeError < 1e-5, `merged equals unmerged: ${result.mergeError}`)
  if (result.runtimeError !== null) t.ok(result.runtimeError < 1e-5, `ONNX Runtime: ${result.runtimeError}`)
  for (const file of ['base.onnx', 'merged.onnx', 'negatives/adapter_config.json']) {
    t.ok(existsSync(path.join(folder, 'made', file)), file)
  }
})
