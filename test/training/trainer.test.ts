// The trainer: events, seeds, accumulation, interruption, and what it says when something goes wrong.
import { freemem } from 'node:os'
import path from 'node:path'
import t from 'tap'
import { TableDataset } from '#lib/data/table.js'
import { createAdapter } from '#lib/dora/model/create-adapter.js'
import { int } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { encode } from '#lib/precision/casts.js'
import { ArrayDataset, type Batch, type BatchTensor } from '#lib/training/dataset.js'
import { readEvents } from '#lib/training/log.js'
import type { TrainerOptions, TrainingEvent } from '#lib/training/options.js'
import { Trainer } from '#lib/training/trainer.js'
import { backend, base, train } from '../fixtures/models/small-training.js'
import { adapterOf, bytesOf, smallAdapter, smallData, smallModel } from '../fixtures/models/trainable.js'

t.test('a training learns, and tells how', async t => {
  const optimizer = { type: 'adamw', learningRate: 0.05 } as const
  const { events, adapter } = await train({ epochs: 6, batchSize: 16, optimizer })
  t.equal(events.length, 6 * 7)
  t.match(events[7], { step: 8, epoch: 2, totalSteps: 42, learningRate: 0.05 })
  for (const { gradientNorm, samplesPerSecond, memory } of events) {
    t.ok(gradientNorm > 0 && samplesPerSecond > 0 && memory.plan > 0 && memory.process > 0)
  }
  const mean = (list: TrainingEvent[]) => list.reduce((sum, { loss }) => sum + loss, 0) / list.length
  const [before, after] = [mean(events.slice(0, 7)), mean(events.slice(-7))]
  t.ok(after < 0.8 * before, `the loss fell from ${before} to ${after}`)
  t.notSame(bytesOf(adapter), bytesOf(smallAdapter()))
})

t.test('the same seed gives the same bits, another seed others', async t => {
  const options = { epochs: 2, batchSize: 13 }
  const [one, two, other] = [await train(options), await train(options), await train({ ...options, seed: 5 })]
  t.ok(bytesOf(one.adapter).equals(bytesOf(two.adapter)))
  t.notOk(bytesOf(one.adapter).equals(bytesOf(other.adapter)))
  t.ok(bytesOf((await train({ ...options, shuffle: false })).adapter).length > 0)
})

t.test('batches that are accumulated give what one large batch gives', async t => {
  const sgd = { optimizer: { type: 'sgd', learningRate: 0.1, momentum: 0.9 }, shuffle: false } as const
  const whole = await train({ ...sgd, batchSize: 48, epochs: 2 })
  const parts = await train({ ...sgd, batchSize: 16, accumulate: 3, epochs: 2 })
  t.equal(parts.events.length, whole.events.length, 'a step takes three batches, the last one what is left')
  const [a, b] = [whole, parts].map(({ adapter }) =>
    adapter.parameters.flatMap(name => [...adapter.read(name)]),
  )
  const worst = Math.max(...a!.map((value, i) => Math.abs(value - b![i]!)))
  t.ok(worst > 0 && worst < 2e-6, `parameters differ by ${worst}`)
  t.ok(parts.events[0]!.memory.plan < whole.events[0]!.memory.plan, 'with less memory')
  const uneven = await train({ ...sgd, batchSize: 40, accumulate: 3 })
  const once = await train({ ...sgd, batchSize: 101 })
  t.equal(uneven.events.length, 1)
  const [parted, full] = [uneven, once].map(({ events }) => events[0]!)
  t.ok(Math.abs(parted!.loss - full!.loss) < 1e-6, 'parts of 40, 40 and 21 samples count by their samples')
})

t.test('the last part of an epoch may be smaller', async t => {
  const sgd = { optimizer: { type: 'sgd', learningRate: 0.1 }, shuffle: false, batchSize: 16 } as const
  const data = smallData(41)
  const [whole, parts] = [
    await train({ ...sgd, batchSize: 41 }, data),
    await train({ ...sgd, accumulate: 3 }, data),
  ]
  t.equal(parts.events.length, 1, '16, 16 and 9')
  t.ok(Math.abs(parts.events[0]!.loss - whole.events[0]!.loss) < 1e-6, 'samples weigh the same')
})

t.test('a memory budget costs time, not bits', async t => {
  const plain = await train({ batchSize: 40 })
  const memoryBudget = plain.events[0]!.memory.plan - 1
  const tight = await train({ batchSize: 40, memoryBudget })
  t.ok(tight.events[0]!.memory.plan <= memoryBudget, `${tight.events[0]!.memory.plan} of ${memoryBudget}`)
  t.ok(bytesOf(tight.adapter).equals(bytesOf(plain.adapter)))
  t.equal((await train({ batchSize: 40, memoryBudget: 1e9 })).events[0]!.memory.plan, memoryBudget + 1)
})

t.test('clipping and schedules', async t => {
  const { events } = await train({
    schedule: { type: 'linear', warmup: 2 },
    batchSize: 26,
    epochs: 2,
    maxNorm: 0.01,
  })
  t.same(
    events.map(({ learningRate }) => learningRate.toFixed(5)),
    [0, 1, 2, 10 / 6, 8 / 6, 1, 4 / 6, 2 / 6].map(factor => (factor / 100).toFixed(5)),
  )
})

t.test('a training that is interrupted and resumed gives the same bits', async t => {
  const options = { epochs: 3, batchSize: 10, schedule: { type: 'reduce-on-plateau', patience: 0 } } as const
  const straight = await train(options)
  for (const stopAt of [4, 11, 20]) {
    const folder = path.join(t.testdir(), `${stopAt}`)
    const log = path.join(folder, 'log.jsonl')
    const abort = new AbortController()
    const checkpoint = { folder, every: 6 }
    const adapter = smallAdapter()
    const trainer = new Trainer(adapter, adapter, {
      ...base,
      ...options,
      checkpoint,
      log,
      signal: abort.signal,
    })
    for await (const { step } of trainer.steps(smallData(101))) if (step === stopAt - 1) abort.abort()
    t.ok(trainer.interrupted)
    t.equal(trainer.lastCheckpoint, path.join(folder, `step-${String(stopAt).padStart(8, '0')}.safetensors`))
    const resumed = await train({ ...options, checkpoint, log, resume: true })
    t.equal(resumed.events[0]!.step, stopAt + 1)
    t.notOk(resumed.trainer.interrupted)
    t.ok(bytesOf(resumed.adapter).equals(bytesOf(straight.adapter)), `resumed after step ${stopAt}`)
    const logged = (await readEvents(log)).map(({ step, loss }) => [step, loss])
    t.same(
      logged,
      straight.events.map(({ step, loss }) => [step, loss]),
    )
  }
})

t.test('dropout: part of what seed and step decide', async t => {
  const options = { epochs: 3, batchSize: 10 }
  const dropped = (more: Partial<TrainerOptions> = {}) => train({ ...options, ...more }, undefined, 0.3)
  const straight = await dropped()
  t.ok(bytesOf((await dropped()).adapter).equals(bytesOf(straight.adapter)))
  t.notOk(bytesOf((await train(options)).adapter).equals(bytesOf(straight.adapter)), 'it drops something')
  const folder = t.testdir()
  const stopped = new AbortController()
  const adapter = { ...smallAdapter(), dropout: 0.3 }
  const checkpoint = { folder, every: 5 }
  const trainer = new Trainer(adapter, adapter, { ...base, ...options, checkpoint, signal: stopped.signal })
  for await (const { step } of trainer.steps(smallData(101))) if (step === 13) stopped.abort()
  const resumed = await dropped({ checkpoint, resume: true })
  t.equal(resumed.events[0]!.step, 15)
  t.ok(bytesOf(resumed.adapter).equals(bytesOf(straight.adapter)), 'resumed')
  const onJs = await dropped({ backend: 'js' })
  const worst = Math.max(...onJs.events.map(({ loss }, i) => Math.abs(loss / straight.events[i]!.loss - 1)))
  t.ok(worst < 1e-4, `js drops the same: losses differ by ${worst}`)
  const parts = await dropped({ accumulate: 3 })
  const tight = await dropped({ accumulate: 3, memoryBudget: 0 })
  t.ok(bytesOf(tight.adapter).equals(bytesOf(parts.adapter)), 'recomputed masks are the same')
})

t.test('parts of a step drop different elements', async t => {
  const batch = smallData(5).read([0, 1, 2, 3, 4])
  const losses = async (accumulate: number, count: number) => {
    const adapter = { ...smallAdapter(), dropout: 0.5 }
    const trainer = new Trainer(adapter, adapter, { ...base, accumulate, epochs: 3 })
    const found: number[] = []
    for await (const { loss } of trainer.steps(Array(count).fill(batch))) found.push(loss)
    return found
  }
  // With one mask the mean of two equal parts would be either of them, to the bit.
  const [two, one] = [await losses(2, 2), await losses(1, 1)]
  t.equal(two[0], one[0], 'B is 0 at first')
  t.notSame(two.slice(1), one.slice(1))
})

t.test('a caller that leaves early has the parameters of the last step', async t => {
  const adapter = smallAdapter()
  const trainer = new Trainer(adapter, adapter, { ...base, batchSize: 10 })
  for await (const { step } of trainer.steps(smallData(101))) if (step === 3) break
  t.equal(trainer.step, 3)
  t.notOk(bytesOf(adapter).equals(bytesOf(smallAdapter())))
})

t.test('streams of batches', async t => {
  const data = smallData(40)
  function* batches(): Generator<Batch> {
    for (let start = 0; start < 40; start += 8) yield data.read([0, 1, 2, 3, 4, 5, 6, 7].map(i => start + i))
  }
  const adapter = smallAdapter()
  const trainer = new Trainer(adapter, adapter, { ...base, epochs: 2 })
  let steps = 0
  for await (const { totalSteps } of trainer.steps(batches)) {
    steps++
    t.equal(totalSteps, undefined)
  }
  t.equal(steps, 10)
  const fromDataset = await train({ epochs: 2, batchSize: 8, shuffle: false }, data)
  t.ok(bytesOf(adapter).equals(bytesOf(fromDataset.adapter)))
  const once = new Trainer(adapter, adapter, { ...base, epochs: 2 }).steps(batches())
  await t.rejects(
    (async () => {
      for await (const _ of once);
    })(),
    { code: 'ERR_ARGUMENT', message: /pass a function/ },
  )
})

t.test('a loss that is no number stops the training and names the last checkpoint', async t => {
  const folder = t.testdir()
  const data = smallData(60)
  const { x, target } = data.read(Array.from({ length: 60 }, (_, i) => i)) as Record<string, Batch[string]>
  ;(x!.data as Float32Array)[7 * 45] = Number.NaN
  const broken = new ArrayDataset({ x: x!, target: target! })
  const options = { batchSize: 10, shuffle: false, checkpoint: { folder, every: 2 } }
  await t.rejects(train(options, broken), {
    code: 'ERR_NOT_FINITE',
    message: /step 5: loss NaN.*step-00000004/,
  })
  await t.rejects(train({ batchSize: 10, shuffle: false }, broken), { message: /no checkpoint/ })
})

t.test('memory that is short', async t => {
  const fit = async (width: number) => {
    const graph = makeGraph({
      inputs: [{ name: 'x', type: tensorType('f32', ['n', 1]) }],
      outputs: [{ name: 'y' }],
      nodes: [
        makeNode('Expand', ['x', 'sizes'], ['wide']),
        makeNode('Mul', ['wide', 'p'], ['product']),
        makeNode('ReduceMean', ['product', 'axes'], ['y']),
      ],
      initializers: new Map([
        ['sizes', Constant.i64([1, width])],
        ['axes', Constant.i64([1])],
        ['p', Constant.f32([1])],
      ]),
    })
    const column = { shape: [64, 1], data: new Float32Array(64) }
    const trainer = new Trainer({ graph }, adapterOf(graph, ['p']), { loss: 'mse', backend: 'js' })
    await trainer.fit([{ x: column, target: column }])
  }
  const code = 'ERR_OUT_OF_MEMORY'
  await t.rejects(fit(2 ** 41), { code, message: /step 1: no memory for a batch of 64; not even one/ })
  // An eighth of the free memory for a sample and value: a few fit, 64 do not.
  const width = Math.floor(freemem() / 8 / 4)
  await t.rejects(fit(width), {
    code,
    message: /batch of 64; try batchSize [124], with accumulate to make up/,
  })
})

t.test('what is refused', async t => {
  const refused = (options: Record<string, unknown>, message: RegExp, code = 'ERR_ARGUMENT') =>
    t.rejects(train(options as Partial<TrainerOptions>), { code, message })
  await refused({ epochs: 0 }, /options.epochs must be an integer >= 1, got 0/)
  await refused({ batchsize: 3 }, /no option 'batchsize'/)
  await refused({ loss: 'hinge' }, /loss.type must be one of cross-entropy/)
  await refused({ loss: { type: 'mse', output: 'z' } }, /reads 'z'.*outputs: y/)
  await refused({ optimizer: 'lion' }, /optimizer.type must be one of adamw, sgd, got 'lion'/)
  await refused({ precision: 'fp7' }, /options.precision/)
  await refused({ precision: 'fp8' }, /no training in fp8: quantize the model/, 'ERR_UNSUPPORTED')
  await refused({ checkpoint: { folder: '' } }, /checkpoint.folder/)
  await refused({ resume: 'nowhere.safetensors' }, /no such file/, 'ERR_IO')
  await refused({ resume: true }, /needs a folder to find the newest in: give options.checkpoint.folder/)
  await refused({ resume: 3 }, /options.resume must be a non-empty string, got 3/)
  await refused({ maxNorm: 0 }, /options.maxNorm must be above 0: nothing would be learned/)
  await refused({ shuffle: 'x' }, /options.shuffle must be true or false, got 'x'/)
  await refused({ signal: 3 }, /options.signal must be an AbortSignal, got 3/)
  await refused({ teacher: 'teacher.onnx' }, /options.teacher must be a model or a graph/)
  await refused({ log: '' }, /options.log must be a non-empty string/)
  for (const name of ['loss', 'optimizer', 'schedule']) {
    await refused({ [name]: null }, new RegExp(`options.${name} must be '.*', or an object, got null`))
  }
  for (const data of [null, 3, {}]) {
    await t.rejects(train({}, data as never), { code: 'ERR_ARGUMENT', message: /data must be a dataset/ })
  }
  const none = new ArrayDataset({ x: { shape: [0, 7], data: new Float32Array(0) } })
  await t.rejects(train({}, none), {
    code: 'ERR_ARGUMENT',
    message: /data.size must be an integer >= 1, got 0/,
  })
  const make = (model: unknown, adapter: unknown) => () => new Trainer(model as never, adapter as never, base)
  t.throws(make(null, smallAdapter()), { code: 'ERR_ARGUMENT', message: /model must be a model/ })
  t.throws(make(smallAdapter(), undefined), { code: 'ERR_ARGUMENT', message: /adapter must be a model/ })
  t.throws(make(smallAdapter(), { graph: smallModel() }), { message: /adapter must be an adapter/ })
  const adapter = await createAdapter(smallModel(1), { targetModules: ['fc0'], backend })
  t.ok(new Trainer(adapter, adapter, base))
  t.throws(make({ graph: smallModel(1) }, adapter), {
    code: 'ERR_ARGUMENT',
    message: /made for another model/,
  })
  const frozen = { ...smallAdapter(), parameters: [] }
  t.throws(make(frozen, frozen), { code: 'ERR_UNSUPPORTED', message: /no trainable parameters: create one/ })
  const fields = new ArrayDataset({ x: { shape: [2, 7], data: new Float32Array(14) } })
  await t.rejects(train({}, fields), { code: 'ERR_ARGUMENT', message: /fields x; the step reads x, target/ })
})

t.test('inputs of halves take numbers', async t => {
  const model = smallModel()
  const graph = {
    ...model,
    inputs: [{ name: 'x', type: tensorType('f16', ['n', 7]) }],
    nodes: [makeNode('Cast', ['x'], ['x/f32'], { attributes: { to: int(1) } }), ...model.nodes].map(node =>
      node.op === 'Cast'
        ? node
        : { ...node, inputs: node.inputs.map(name => (name === 'x' ? 'x/f32' : name)) },
    ),
  }
  const data = smallData(20)
  const all = Array.from({ length: 20 }, (_, i) => i)
  const { x, target } = data.read(all) as Record<'x' | 'target', BatchTensor>
  const bits = { ...x, data: encode(x.data as Float32Array, 'f16') }
  const table = new TableDataset([{ source: 'file', fields: { x, target } }], { x: { dtype: 'f16' } })
  const losses: number[][] = []
  for (const given of [[{ x: bits, target }], [{ x, target }], [table.read(all)]]) {
    const adapter = await createAdapter(graph, { targetModules: ['fc0'], init: false, backend })
    losses.push([])
    for await (const { loss } of new Trainer({ graph }, adapter, { ...base, epochs: 3 }).steps(given))
      losses.at(-1)!.push(loss)
  }
  t.strictSame(losses[1], losses[0])
  t.strictSame(losses[2], losses[0], 'also from files')
  t.not(losses[0]![0], losses[0]![1])
})

t.test('targets of another shape do not broadcast', async t => {
  for (const type of ['mse', 'l1', 'kl'] as const) {
    const fit = (samples: number, shape: readonly number[]) => {
      const x = { shape: [samples, 7], data: new Float32Array(samples * 7).fill(0.5) }
      const target = { shape, data: new Float32Array(shape.reduce((count, size) => count * size, 1)) }
      const adapter = smallAdapter()
      return new Trainer(adapter, adapter, { ...base, loss: type }).steps([{ x, target }]).next()
    }
    const { value } = await fit(3, [3, 3])
    t.ok(value, type)
    // Three samples of three numbers: [3] would be a row of targets for each of them.
    const message = /'y' is \[3, 3\], but its target 'target' \[3\]: give targets of the shape of 'y'/
    await t.rejects(fit(3, [3]), { code: 'ERR_SHAPE', message })
    await t.rejects(fit(5, [5, 1]), { code: 'ERR_SHAPE', message: /\[5, 3\].*\[5, 1\]/ })
  }
})
