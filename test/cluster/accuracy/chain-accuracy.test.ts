// What a chain loses whose stages compute in different precisions.
import t from 'tap'
import { accuracyTable, type ChainStage, chainAccuracy } from '#lib/cluster/accuracy/chain-accuracy.js'
import { randomGenerator } from '#lib/core/random.js'
import { Constant } from '#lib/graph/constant.js'
import { type Graph, makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'

const width = 33
const random = randomGenerator(3)
const values = (count: number): Float32Array => Float32Array.from({ length: count }, () => random() - 0.5)

/** tanh(input · W) */
const layer = (input: string, output: string): Graph =>
  makeGraph({
    inputs: [{ name: input, type: tensorType('f32', ['n', width]) }],
    outputs: [{ name: output }],
    nodes: [makeNode('MatMul', [input, 'w'], ['h']), makeNode('Tanh', ['h'], [output])],
    initializers: new Map([['w', Constant.from('f32', [width, width], values(width * width))]]),
  })
const graphs = [layer('x', 'a'), layer('a', 'b'), layer('b', 'y')]
const stagesIn = (...precisions: ChainStage['precision'][]): ChainStage[] =>
  graphs.map((graph, i) => ({ name: `node-${i}`, graph, precision: precisions[i]! }))
const data = [5, 2].map(rows => ({ x: values(rows * width) }))

t.test('stages in fp32 lose nothing', async t => {
  const { stages, outputs, runs } = await chainAccuracy(stagesIn('fp32', 'fp32', 'fp32'), data)
  t.equal(runs, 2)
  for (const { own, chain } of stages) {
    t.match(own, { maxError: 0, relativeError: 0, elements: 7 * width })
    t.match(chain, { maxError: 0, relativeError: 0 })
    t.ok(Math.abs(own.cosine - 1) < 1e-12)
  }
  t.match(outputs, [{ name: 'y', maxError: 0 }])
})

t.test('errors are named where they come from, and add up along the chain', async t => {
  const accuracy = await chainAccuracy(stagesIn('fp32', 'bf16', 'fp16'), data)
  const [first, second, third] = accuracy.stages
  t.equal(first!.own.maxError, 0)
  t.ok(second!.own.relativeError > 1e-4 && second!.own.relativeError < 0.05, `${second!.own.relativeError}`)
  t.same(second!.own, second!.chain, 'the stage before it was exact')
  t.ok(
    third!.own.relativeError > 0 && third!.own.relativeError < second!.own.relativeError,
    'fp16 has more bits',
  )
  t.ok(third!.chain.relativeError > third!.own.relativeError, 'what came before is in it')
  t.equal(accuracy.outputs[0]!.relativeError, third!.chain.relativeError)
  const lines = accuracyTable(accuracy).split('\n')
  t.equal(lines.length, 6)
  t.match(lines[0], /^stage +precision +own max +own relative +own cosine +chain max/)
  t.match(lines[1], /^node-0 +fp32 +0\.00e\+0 +0\.00e\+0 +1\.000000/)
  t.match(lines[4], /^output y +\d/)
  t.equal(lines[5], '2 runs, beside fp32')
})

t.test('what cannot be measured', async t => {
  const stages = stagesIn('fp32', 'fp32', 'fp32')
  await t.rejects(chainAccuracy([], data), { code: 'ERR_ARGUMENT' })
  await t.rejects(chainAccuracy(stages, []), { code: 'ERR_ARGUMENT', message: /data is empty/ })
  await t.rejects(chainAccuracy(stages.slice(1), data), {
    code: 'ERR_ARGUMENT',
    message: /stage 'node-1' reads 'a', which nobody gives/,
  })
  await t.rejects(chainAccuracy(stages, data, { signal: AbortSignal.abort(new Error('no')) }), {
    message: 'no',
  })
  await t.rejects(chainAccuracy(stages, data, { engine: 'cpu' } as never), { code: 'ERR_ARGUMENT' })
})
