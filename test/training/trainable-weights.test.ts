// Full fine-tuning: which weights are trained, that they learn, files, 16 bits, resumption.
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { Model, TrainableWeights, Trainer } from 'dgx-spark'
import t from 'tap'
import { int } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { type Graph, makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { encode } from '#lib/precision/casts.js'
import { backends } from '../fixtures/backends.js'
import { close } from '../fixtures/close.js'
import { adaptableGraph } from '../fixtures/models/adaptable-graph.js'
import { bytesOf, smallData, smallModel } from '../fixtures/models/trainable.js'

const scratch = mkdtempSync(path.join(tmpdir(), 'dgx-spark-weights-'))
t.teardown(() => rmSync(scratch, { recursive: true }))

t.test('weights, biases and scales are trained; constants are not', async t => {
  const rows = makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', ['n', 3, 4, 4]) }],
    outputs: [{ name: 'y' }],
    nodes: [
      makeNode('Sub', ['x', 'pixel mean'], ['centred']),
      makeNode('Conv', ['centred', 'conv.weight', 'conv.bias'], ['a']),
      makeNode('BatchNormalization', ['a', 'bn.scale', 'bn.shift', 'bn.mean', 'bn.variance'], ['b']),
      makeNode('Flatten', ['b'], ['c']),
      makeNode('MatMul', ['c', 'fc.weight'], ['d']),
      makeNode('Add', ['d', 'fc.bias'], ['e']),
      makeNode('Mul', ['e', 'half'], ['f']),
      makeNode('Add', ['f', 'mask'], ['g']),
      makeNode('Clip', ['g', 'low'], ['y']),
    ],
    initializers: new Map([
      ['pixel mean', Constant.f32([1, 2, 3], [1, 3, 1, 1])],
      ['conv.weight', Constant.f32(new Array(6).fill(1), [2, 3, 1, 1])],
      ['conv.bias', Constant.f32([0, 0])],
      ...['bn.scale', 'bn.shift', 'bn.mean', 'bn.variance'].map(
        name => [name, Constant.f32([1, 1])] as const,
      ),
      ['fc.weight', Constant.f32(new Array(64).fill(0.1), [32, 2])],
      ['fc.bias', Constant.f32([0, 0])],
      ['half', Constant.f32(0.5)],
      ['mask', Constant.f32([0, -1e9, -1e9, 0], [2, 2])],
      ['low', Constant.f32(0)],
    ]),
  })
  const learned = ['conv.weight', 'conv.bias', 'bn.scale', 'bn.shift', 'fc.weight', 'fc.bias']
  t.same(new TrainableWeights(rows).parameters, learned)
  t.same(new TrainableWeights(rows, ['fc', 'pixel mean']).parameters, ['pixel mean', 'fc.weight', 'fc.bias'])
  t.throws(() => new TrainableWeights(rows, ['fc.wieght']), {
    code: 'ERR_ARGUMENT',
    message: /has no weight 'fc\.wieght' \(did you mean 'fc\.weight'\?\); it has: pixel mean, conv\.weight/,
  })
  t.throws(() => new TrainableWeights(rows, 'fc' as never), { code: 'ERR_ARGUMENT' })
  const integers = makeGraph({ nodes: [], initializers: new Map([['w', Constant.i64([1])]]) })
  t.throws(() => new TrainableWeights(integers), { code: 'ERR_UNSUPPORTED', message: /no float weights/ })
  t.match(String(new TrainableWeights(adaptableGraph())), /elements in \d+ weights, of the model's/)
})

const options = {
  loss: 'cross-entropy',
  optimizer: { type: 'adamw', learningRate: 0.05 },
  epochs: 6,
  batchSize: 16,
} as const

/** Trains all weights; the mean losses of the first and last epoch. */
async function train(
  model: Graph,
  more: object = {},
): Promise<{ trainer: Trainer; first: number; last: number }> {
  const trainer = new Trainer({ graph: model }, null, { ...options, ...more })
  const losses: number[] = []
  for await (const { loss } of trainer.steps(smallData(96))) losses.push(loss)
  const mean = (list: number[]) => list.reduce((sum, loss) => sum + loss, 0) / list.length
  return { trainer, first: mean(losses.slice(0, 6)), last: mean(losses.slice(-6)) }
}

t.test('a model learns, is saved and runs', async t => {
  for (const backend of backends) {
    const base = smallModel()
    const before = Float32Array.from(base.initializers.get('fc0.weight')!.data as Float32Array)
    const { trainer, first, last } = await train(base, { backend })
    t.ok(last < 0.5 * first, `the loss fell from ${first} to ${last} on ${backend}`)
    t.strictSame(base.initializers.get('fc0.weight')!.data, before, 'the model itself is as it was')
    const file = path.join(scratch, `${backend}.onnx`)
    await trainer.weights.save(file)
    const saved = await Model.load(file, { backend })
    const tuned = await Model.fromGraph(trainer.weights.graph, { backend })
    const x = Float32Array.from({ length: 5 * 7 }, (_, i) => Math.sin(i))
    const [a, b] = [await saved.run({ x }), await tuned.run({ x })]
    t.same(saved.inputs, tuned.inputs)
    close(t, a.y!.data as Float32Array, b.y!.data as Float32Array, 0, 'the file has the weights')
    saved.dispose()
    tuned.dispose()
  }
})

t.test('named weights alone', async t => {
  const { trainer } = await train(smallModel(), { trainable: ['fc1'] })
  const base = smallModel()
  t.same(trainer.adapter.parameters, ['fc1.weight'])
  const saved = trainer.weights.tuned.initializers
  t.same(saved.get('fc0.weight')!.bytes, base.initializers.get('fc0.weight')!.bytes)
  t.notSame(saved.get('fc1.weight')!.bytes, base.initializers.get('fc1.weight')!.bytes)
})

t.test('weights of 16 bits are trained in f32 and rounded at the end', async t => {
  const base = smallModel()
  const halves = [...base.initializers].map(([name, { shape, data }]) => {
    return [name, Constant.from('f16', shape, encode(data as Float32Array, 'f16'))] as const
  })
  const half: Graph = {
    ...base,
    inputs: [{ name: 'x', type: tensorType('f16', ['n', 7]) }],
    nodes: [
      ...base.nodes.slice(0, -1),
      { ...base.nodes.at(-1)!, outputs: ['z'] },
      makeNode('Cast', ['z'], ['y'], { attributes: { to: int(1) } }),
    ],
    initializers: new Map(halves),
  }
  const { trainer, first, last } = await train(half)
  t.ok(last < 0.5 * first, `the loss fell from ${first} to ${last}`)
  t.equal(trainer.weights.tuned.initializers.get('fc0.weight')!.dtype, 'f16')
  const rounded = encode(trainer.weights.read('fc0.weight'), 'f16')
  t.same(trainer.weights.tuned.initializers.get('fc0.weight')!.data, rounded)
})

t.test('a resumed training has the same bits', async t => {
  const whole = await train(smallModel())
  const folder = path.join(scratch, 'checkpoints')
  const checkpoint = { folder, every: 5 }
  const trainer = new Trainer({ graph: smallModel() }, null, { ...options, checkpoint })
  for await (const { step } of trainer.steps(smallData(96))) if (step === 12) break
  const { trainer: resumed } = await train(smallModel(), { checkpoint, resume: true })
  t.ok(bytesOf(resumed.adapter).equals(bytesOf(whole.trainer.adapter)))
  const other = new Trainer({ graph: smallModel() }, null, {
    ...options,
    checkpoint,
    resume: true,
    trainable: ['fc1'],
  })
  await t.rejects(other.fit(smallData(96)), { code: 'ERR_ARGUMENT', message: /was made with weights/ })
})

t.test('data that the weights of the step before make', async t => {
  const base = smallModel()
  const trainer = new Trainer({ graph: base }, null, { ...options, epochs: 1 })
  const seen: Float32Array[] = [trainer.weights.read('fc0.weight')]
  async function* batches() {
    for (let i = 0; i < 4; i++) {
      await trainer.publish()
      seen.push(trainer.weights.read('fc0.weight'))
      yield smallData(96).read([i, i + 1, i + 2])
    }
  }
  await trainer.fit(batches, { onStep: ({ step }) => void t.equal(seen.length, step + 1) }).catch(t.fail)
  t.same(seen[1], seen[0], 'no step yet')
  t.equal(new Set(seen.map(String)).size, seen.length - 1, 'other weights after each step')
  const last = trainer.weights.read('fc0.weight')
  await trainer.publish()
  t.same(trainer.weights.read('fc0.weight'), last, 'nothing after the training')
})

t.test('what cannot be', async t => {
  const { trainer } = await train(smallModel(), { epochs: 1 })
  t.throws(() => trainer.weights.read('fc2'), {
    code: 'ERR_ARGUMENT',
    message: /is no weight that is trained/,
  })
  t.throws(() => trainer.weights.write('fc0.weight', new Float32Array(1)), { code: 'ERR_SHAPE' })
  t.throws(() => new Trainer({ graph: smallModel() }, trainer.adapter, { ...options, trainable: ['fc0'] }), {
    message: /options\.trainable must be absent/,
  })
  t.throws(() => new Trainer({ graph: smallModel() }, undefined as never, options), {
    code: 'ERR_ARGUMENT',
    message: /adapter must be/,
  })
})
