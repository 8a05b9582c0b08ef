// The commands about models as a person calls them.
import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { Tensor, writeSafetensors } from 'dgx-spark'
import t from 'tap'
import { Constant } from '#lib/graph/constant.js'
import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { serializeOnnx } from '#lib/io/onnx/write.js'

const main = path.resolve(import.meta.dirname, '../../dist/cli/main.js')
const folder = mkdtempSync(path.join(tmpdir(), 'models-'))
const model = path.join(folder, 'small.onnx')
writeFileSync(
  model,
  serializeOnnx(
    makeGraph({
      inputs: [{ name: 'x', type: tensorType('f32', ['rows', 3]) }],
      outputs: [{ name: '<y>' }],
      nodes: [makeNode('MatMul', ['x', 'w'], ['product']), makeNode('Relu', ['product'], ['<y>'])],
      initializers: new Map([['w', Constant.f32([1, -1, 2, 0, 0, 3], [3, 2])]]),
    }),
  ),
)

function cli(...args: string[]) {
  const env = { PATH: process.env.PATH!, HOME: process.env.HOME ?? '' }
  const result = spawnSync(process.execPath, ['--no-warnings', main, ...args], { encoding: 'utf8', env })
  return { ...result, json: () => JSON.parse(result.stdout) }
}

t.test('inspect', async t => {
  const page = path.join(folder, 'page.html')
  const about = cli('inspect', model, '--size', 'rows=5', '--json', '--html', page).json()
  t.match(about, {
    inputs: [{ name: 'x', dtype: 'f32', shape: ['rows', 3] }],
    shapes: { x: [5, 3] },
    nodes: { file: 2, canonical: 2 },
    adaptable: [{ name: 'w', kind: 'linear', shape: [3, 2] }],
    parameters: 6,
    parameterBytes: 24,
    // 5 · 2 elements of a product with 3 terms, and 10 of Relu.
    flops: 5 * 2 * 6 + 10,
    activationBytes: 80,
    unknown: 0,
    operators: [
      ['MatMul', 1],
      ['Relu', 1],
    ],
    fusions: { linear: 1, epilogue: 1 },
    // Bias and activation of a fused layer are not counted apart.
    optimized: { flops: 5 * 2 * 6, activationBytes: 40, operators: [['dgx.spark::FusedLinear', 1]] },
    // Panels of 32 rows.
    plan: { steps: 1, constantBytes: 3 * 32 * 4, arenaBytes: 0, compileMs: Number },
  })
  const html = readFileSync(page, 'utf8')
  t.match(html, '→ f32 [5, 2]')
  t.notMatch(html, '<y>')
  t.match(html, 'linear 1, epilogue 1')
  t.equal(html.match(/<g class="box/g)?.length, 7, 'ends and two nodes before, ends and one after fusion')
  t.equal(html.match(/<path class="edge/g)?.length, 5)
  const text = cli('inspect', model)
  t.equal(text.status, 0)
  t.match(text.stdout, /MatMul/)
  t.match(text.stdout, /1 kernel calls, compiled in \d+ ms/)
  t.match(text.stdout, /arena\s+0 B/)
  t.match(text.stdout, /fusions +linear 1, epilogue 1/)
  t.equal(cli('inspect', model, '--size', 'rows').status, 2)
  const flags = ['--profile', '--backend', 'js', '--precision', 'fp16']
  const { profile } = cli('inspect', model, '--size', 'rows=5', '--json', ...flags).json()
  t.match(profile, { precision: 'fp16', stats: { plans: 1, fusions: { linear: 1, epilogue: 1 } } })
  t.match(profile.steps, [{ op: 'linear', node: '<y>', ms: Number }])
  t.match(cli('inspect', model, ...flags).stdout, /operation.*slowest steps/s)
  t.equal(cli('inspect', model, '--precision', 'fp5').status, 2)
  t.equal(cli('inspect', path.join(folder, 'none.onnx')).status, 1)
})

t.test('run', async t => {
  const header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }".padEnd(118)
  const npy = path.join(folder, 'x.npy')
  const values = Buffer.from(Float32Array.of(1, 2, 3, -1, -2, -3).buffer)
  writeFileSync(
    npy,
    Buffer.concat([
      Buffer.from([0x93]),
      Buffer.from('NUMPY'),
      Buffer.from([1, 0, 118, 0]),
      Buffer.from(header),
      values,
    ]),
  )
  const expected = [{ name: '<y>', dtype: 'f32', shape: [2, 2], values: [5, 8, 0, 0] }]
  const given = cli('run', model, '--backend', 'js', '--input', `x=${npy}`, '--runs', '2', '--json').json()
  t.same(given.outputs, expected)
  t.match(given, {
    backend: { name: 'js' },
    latency: { median: Number, best: Number, first: Number },
    stats: { plans: 1, arenaBytes: Number, compileMs: Number },
  })
  const tensors = path.join(folder, 'x.safetensors')
  await writeSafetensors(tensors, {
    x: Tensor.from([
      [1, 2, 3],
      [-1, -2, -3],
    ]),
  })
  t.same(cli('run', model, '--backend', 'js', '--inputs', tensors, '--json').json().outputs, expected)
  const integers = { dtype: 'I64' as const, shape: [2, 3], data: new BigInt64Array(6) }
  await writeSafetensors(tensors, { x: integers })
  t.match(cli('run', model, '--inputs', tensors).stderr, /must be of f32, got a tensor of i64/)
  const random = cli('run', model, '--backend', 'js', '--size', 'rows=4', '--runs', '1')
  t.match(random.stdout, /f32 \[4, 2\]/)
  t.match(random.stdout, /latency/)
  t.match(random.stdout, /compilation\s+\d+\.\d+ ms/)
  t.match(random.stdout, /plans\s+1, \d+ kernel calls\n +memory\s+arena \d+ B, weights \d+ B/)
  t.equal(cli('run', model, '--runs', '0').status, 2)
  t.equal(cli('run', model, '--input', npy).status, 2)
  writeFileSync(npy, 'nothing')
  t.match(cli('run', model, '--input', 'x=none.npy'), {
    status: 1,
    stderr: /none\.npy: no such file.*ERR_IO/,
  })
  t.match(cli('run', model, '--size', 'depth=3'), { status: 2, stderr: /--size depth: open dimensions/ })
  t.match(cli('run', model, '--size', 'row=3').stderr, /did you mean 'rows'\?/)
  const broken = cli('run', model, '--input', `x=${npy}`)
  t.equal(broken.status, 1)
  t.match(broken.stderr, /x\.npy is no \.npy file: .* \[ERR_FORMAT\]/)
})

t.test('ops', async t => {
  const { operators, kernels } = cli('ops', '--json').json()
  t.ok(operators.length > 150)
  t.match(
    operators.filter(({ op }: { op: string }) => ['Conv', 'Loop', 'MatMulNBits'].includes(op)),
    [
      { op: 'Conv', runs: 'kernels' },
      { op: 'Loop', runs: 'host' },
      { op: 'MatMulNBits', domain: 'com.microsoft', runs: 'rewritten' },
    ],
  )
  t.match(
    kernels.find(({ op }: { op: string }) => op === 'conv'),
    { js: true, cuda: Boolean },
  )
  t.match(cli('ops').stdout, /\d+ operators of ONNX/)
})
