// Losses that are graphs of the caller, joined to the forward pass.
import { createAdapter, GraphBuilder, Tensor } from 'dgx-spark'
import t from 'tap'
import type { Graph } from '#lib/graph/graph.js'
import { ArrayDataset } from '#lib/training/dataset.js'
import type { TrainerOptions } from '#lib/training/options.js'
import { Trainer } from '#lib/training/trainer.js'
import { base } from '../fixtures/models/small-training.js'
import { bytesOf, smallAdapter, smallModel } from '../fixtures/models/trainable.js'

const samples = 24
const x = { shape: [samples, 7], data: Float32Array.from({ length: samples * 7 }, (_, i) => Math.sin(i)) }
const target = {
  shape: [samples, 3],
  data: Float32Array.from({ length: samples * 3 }, (_, i) => Math.cos(i)),
}
const data = new ArrayDataset({ x, target })

/** The mean of (output − target)², times a constant. */
function squares(output = 'y', wanted = 'target', factor = 1, name = 'loss'): Graph {
  const builder = new GraphBuilder()
  const inputs = [builder.input(output, 'f32', ['n', 3]), builder.input(wanted, 'f32', ['n', 3])]
  const difference = builder.add('Sub', inputs)
  const mean = builder.add('ReduceMean', [builder.add('Mul', [difference, difference])], { keepdims: 0 })
  return builder.output(builder.add('Mul', [mean, builder.initializer('factor', [factor])]), name).build()
}

async function train(options: Partial<TrainerOptions>) {
  const adapter = smallAdapter()
  const trainer = new Trainer(adapter, adapter, { ...base, batchSize: 10, epochs: 2, ...options })
  return { adapter, trainer, summary: await trainer.fit(data) }
}

t.test('a graph that computes a loss of the library trains as it does', async t => {
  const known = await train({ loss: 'mse' })
  const own = await train({ loss: squares() })
  t.ok(bytesOf(own.adapter).equals(bytesOf(known.adapter)))
  t.equal(own.summary.finalLoss, known.summary.finalLoss)
  const evaluation = await own.trainer.evaluate(data, { metrics: ['rmse'] })
  t.ok(Math.abs(evaluation.metrics.rmse! ** 2 - evaluation.loss) < 1e-6)
  const twice = await train({ loss: { graph: squares('y', 'target', 2) }, optimizer: { type: 'sgd' } })
  t.notOk(bytesOf(twice.adapter).equals(bytesOf(known.adapter)), 'a model, too')
})

t.test('values of a teacher', async t => {
  const teacher = { graph: smallModel(5) }
  const known = await train({ loss: 'mse', teacher }).catch(error => error)
  t.match(known, { message: /fields x, target; the step reads x$/ })
  const inputs = [{ x }]
  const fit = async (loss: TrainerOptions['loss']) => {
    const adapter = smallAdapter()
    await new Trainer(adapter, adapter, { ...base, loss, teacher }).fit(inputs)
    return bytesOf(adapter)
  }
  t.ok((await fit(squares('y', 'teacher/y'))).equals(await fit('mse')))
})

t.test('a resumed training must have the same graph', async t => {
  const checkpoint = { folder: t.testdir() }
  await train({ loss: squares(), checkpoint })
  await t.resolves(train({ loss: squares(), checkpoint, resume: true, epochs: 3 }))
  await t.rejects(train({ loss: squares('y', 'target', 3), checkpoint, resume: true, epochs: 4 }), {
    code: 'ERR_ARGUMENT',
    message: /was made with loss/,
  })
})

t.test('what does not match is named', async t => {
  const refused = (loss: Graph, message: RegExp, code = 'ERR_ARGUMENT') =>
    t.rejects(train({ loss }), { code, message })
  await refused(
    squares('scores'),
    /reads scores, target, and so no output of the model; name an input like one of its outputs: y/,
  )
  await refused(squares('y', 'wanted'), /fields x, target; the step reads x, wanted/)
  const whole = new GraphBuilder()
  whole.output(whole.add('Abs', [whole.input('y', 'f32', ['n', 3])]), 'loss')
  await refused(whole.build(), /output 'loss' is f32 \[.*3\], not one number of f32: reduce it/, 'ERR_SHAPE')
  const wide = new GraphBuilder()
  wide.output(wide.add('ReduceMean', [wide.input('y', 'f32', ['n', 4])], { keepdims: 0 }), 'loss')
  await refused(wide.build(), /its input 'y' is f32 \[n, 4\], but the model's value f32 \[.*3\]/, 'ERR_SHAPE')
  const two = new GraphBuilder()
  const y = two.input('y', 'f32', ['n', 3])
  for (const name of ['a', 'b']) two.output(two.add('ReduceMean', [y], { keepdims: 0 }), name)
  await refused(two.build(), /must have one output, the loss; it has a, b/)
})

/** Of 16 bits, for one sample, with its size written into a Reshape, and a constant beside it. */
function exported(): Graph {
  const g = new GraphBuilder()
  const x = g.input('x', 'f16', [1, 7])
  const rows = g.add('Reshape', [x, Tensor.from(BigInt64Array.of(1n, 7n))])
  const weight = Tensor.from(
    Float32Array.from({ length: 14 }, (_, i) => Math.sin(3 * i)),
    { shape: [2, 7] },
  ).to('f16')
  const product = g.add('Gemm', [rows, g.initializer('fc.weight', weight)], { transB: 1 })
  return g.output(g.add('Concat', [product, Tensor.zeros([1, 1]).to('f16')], { axis: 1 }), 'y').build()
}

t.test('models of 16 bits, with a batch size that is written into them', async t => {
  const graph = exported()
  const adapter = await createAdapter({ graph } as never, { targetModules: '.*', rank: 2 })
  const trainer = new Trainer({ graph }, adapter, { ...base, loss: squares(), batchSize: 10, epochs: 8 })
  const { loss } = await trainer.evaluate(data)
  const { finalLoss } = await trainer.fit(data)
  t.ok(finalLoss < loss, `${loss} became ${finalLoss}`)
  const rows = data.read([3])
  const { loss: one } = await trainer.evaluate([rows])
  const { loss: many } = await trainer.evaluate([data.read([3, 3, 3])])
  t.ok(Math.abs(one - many) < 1e-6, 'the same loss for copies of a sample')
})
