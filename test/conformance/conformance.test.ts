// The shared ONNX cases on both engines: those that fail are the ones that docs/operators.md names.
import { execFile } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { encodeMessage } from '#lib/io/onnx/encode.js'
import { serializeOnnx } from '#lib/io/onnx/write.js'
import { bytesOf } from '../fixtures/values/onnx-bytes.js'

const root = path.resolve(import.meta.dirname, '../..')
const runner = path.join(root, 'test/fixtures/conformance/main.js')
const cases = path.join(process.env.DGX_SPARK_TEST_DATA ?? '', 'onnx-node.tar.gz')
const missing = existsSync(cases) ? false : 'set DGX_SPARK_TEST_DATA to the folder of the shared data'

t.test('the cases that fail are the documented ones', { skip: missing }, async t => {
  const page = readFileSync(path.join(root, 'docs/operators.md'), 'utf8')
  const documented = [...page.matchAll(/`(test_\w+)`/g)].map(match => match[1]).sort()
  for (const backend of ['cpu', 'js']) {
    const run = promisify(execFile)(process.execPath, [runner, cases, '--backend', backend])
    const { stdout } = await run.catch(failure => failure)
    const failed = [...stdout.matchAll(/^(test_\w+): /gm)].map(match => match[1]).sort()
    t.same(failed, documented, backend)
    const [, all = '', passed = ''] = /Of the ([\d,]+) shared cases ([\d,]+) pass/.exec(page) ?? []
    const [total, right] = [all, passed].map(count => Number(count.replace(',', '')))
    t.match(stdout, `${right} passed, ${total! - right!} failed, 0 skipped`)
  }
})

t.test('cases that hold nothing to compare with, and names of over 100 bytes', async t => {
  const folder = mkdtempSync(path.join(tmpdir(), 'dgx-spark-cases-'))
  t.teardown(() => rmSync(folder, { recursive: true }))
  const graph = makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', [1]) }],
    outputs: [{ name: 'y' }],
    nodes: [makeNode('Neg', ['x'], ['y'])],
    opsets: new Map([['', 20]]),
  })
  const tensor = (value: number): Uint8Array =>
    bytesOf(encodeMessage('Tensor', { dims: [1n], dataType: 1, floatData: [value] }))
  const long = `test_${'long_'.repeat(16)}`
  for (const [name, expected] of [
    ['test_empty', undefined],
    [`${long}right`, -2],
    [`${long}wrong`, 2],
  ] as const) {
    const data = path.join(folder, 'cases', name, 'test_data_set_0')
    mkdirSync(data, { recursive: true })
    writeFileSync(path.join(folder, 'cases', name, 'model.onnx'), serializeOnnx(graph))
    if (expected === undefined) continue
    writeFileSync(path.join(data, 'input_0.pb'), tensor(2))
    writeFileSync(path.join(data, 'output_0.pb'), tensor(expected))
  }
  const archive = path.join(folder, 'cases.tar.gz')
  await promisify(execFile)('tar', ['-C', folder, '-czf', archive, 'cases'])
  for (const place of [path.join(folder, 'cases'), archive]) {
    const { stdout } = await promisify(execFile)(process.execPath, [runner, place, '--backend', 'js']).catch(
      failure => failure,
    )
    t.match(stdout, /^test_empty: it has no inputs and outputs/m)
    t.match(stdout, `${long}wrong: y[0] is -2, not 2`)
    t.match(stdout, '1 passed, 2 failed, 0 skipped')
  }
})
