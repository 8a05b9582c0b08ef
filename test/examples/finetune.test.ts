// Fine-tuning as the README shows it and as the example does it: every step of the way from an ONNX file to a merged one.
import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import path from 'node:path'
import { Adapter, Model } from 'dgx-spark'
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

t.test('the README', { skip }, async t => {
  const folder = t.testdir()
  const { untrained } = await import(path.join(root, 'examples/finetune-mnist/base.js'))
  const base = await Model.fromGraph(untrained(), { backend: 'cpu' })
  await base.save(path.join(folder, 'base.onnx'))
  run('test/fixtures/readme/finetune.js', folder)
  const adapter = await Adapter.load(base, path.join(folder, 'negatives'))
  const moved = adapter.modules.filter(({ name }) =>
    adapter.read(`${name}.lora_B`).some(value => value !== 0),
  )
  t.equal(moved.length, 4, 'every module has learned something')
  const numbers = run('test/fixtures/readme/merge.js', folder)
    .match(/-?\d+\.\d+(e-?\d+)?/g)!
    .map(Number)
  t.equal(numbers.length, 20)
  for (let i = 0; i < 10; i++) t.ok(Math.abs(numbers[i]! - numbers[i + 10]!) < 1e-4, `score ${i}`)
  base.dispose()
})

t.test('examples/finetune-mnist', { skip }, async t => {
  const folder = t.testdir()
  const result = JSON.parse(
    run('examples/finetune-mnist/main.js', folder, ['made', 'cpu']).split('\n').at(-2)!,
  )
  t.ok(result.accuracy.before.digits > 0.85, `the base reads digits: ${result.accuracy.before.digits}`)
  t.ok(result.accuracy.after.negatives > 0.8, `the adapter negatives: ${result.accuracy.after.negatives}`)
  t.ok(result.mergeError < 1e-5, `merged equals unmerged: ${result.mergeError}`)
  if (result.runtimeError !== null) t.ok(result.runtimeError < 1e-5, `ONNX Runtime: ${result.runtimeError}`)
  for (const file of ['base.onnx', 'merged.onnx', 'negatives/adapter_config.json']) {
    t.ok(existsSync(path.join(folder, 'made', file)), file)
  }
})
