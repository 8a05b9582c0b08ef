// The trainer: events, seeds, accumulation, checkpoints, interruption, and what it says when something goes wrong.
import { readdirSync, readFileSync, rmSync, truncateSync } from 'node:fs'
import { freemem } from 'node:os'
import path from 'node:path'
import t from 'tap'
import { type AdapterOptions, createAdapter } from '#lib/dora/create-adapter.js'
import { Constant } from '#lib/graph/constant.js'
import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { readCheckpoint } from '#lib/training/checkpoint.js'
import { ArrayDataset, type Batch } from '#lib/training/dataset.js'
import { readEvents } from '#lib/training/log.js'
import type { TrainerOptions, TrainingEvent } from '#lib/training/options.js'
import { Trainer } from '#lib/training/trainer.js'
import { backends } from '../fixtures/backends.js'
import { adapterOf, bytesOf, smallAdapter, smallData, smallModel } from '../fixtures/trainable.js'

const backend = backends.includes('cpu') ? 'cpu' : 'js'
const base: TrainerOptions = {
  loss: 'cross-entropy',
  optimizer: { type: 'adamw', learningRate: 0.02 },
  backend,
}

async function train(options: Partial<TrainerOptions>, data = smallData(101), dropout = 0) {
  const adapter = { ...smallAdapter(), dropout }
  const trainer = new Trainer(adapter, adapter, { ...base, ...options })
  const events: TrainingEvent[] = []
  for await (const event of trainer.fit(data)) events.push(event)
  return { adapter, trainer, events }
}

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
    for await (const { step } of trainer.fit(smallData(101))) if (step === stopAt - 1) abort.abort()
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
  for await (const { step } of trainer.fit(smallData(101))) if (step === 13) stopped.abort()
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
    for await (const { loss } of trainer.fit(Array(count).fill(batch))) found.push(loss)
    return found
  }
  // With one mask the mean of two equal parts would be either of them, to the bit.
  const [two, one] = [await losses(2, 2), await losses(1, 1)]
  t.equal(two[0], one[0], 'B is 0 at first')
  t.notSame(two.slice(1), one.slice(1))
})

t.test('checkpoints: as many as are kept, and what is in them', async t => {
  const folder = t.testdir()
  await train({ batchSize: 10, checkpoint: { folder, every: 2, keep: 3 } })
  const files = readdirSync(folder).sort()
  t.same(
    files,
    [8, 10, 11].map(step => `step-${String(step).padStart(8, '0')}.safetensors`),
  )
  const { progress, state } = await readCheckpoint(path.join(folder, files[2]!))
  t.match(progress, { step: 11 })
  t.equal(state.size, 6 * 3, 'parameters and two moments')
  t.notOk(readFileSync(path.join(folder, files[0]!)).equals(readFileSync(path.join(folder, files[1]!))))
})

t.test('a training goes on with the settings that it began with', async t => {
  const folder = t.testdir()
  await train({ batchSize: 10, checkpoint: { folder, every: 4 }, schedule: { warmup: 2, type: 'constant' } })
  const resume = path.join(folder, 'step-00000008.safetensors')
  const kept = { batchSize: 10, resume, schedule: { type: 'constant', warmup: 2 } } as const
  t.equal((await train({ ...kept, epochs: 2 })).events.at(-1)!.step, 22, 'more epochs, keys in another order')
  const others: Partial<TrainerOptions>[] = [
    ...[{ seed: 1 }, { batchSize: 5 }, { accumulate: 2 }, { shuffle: false }, { precision: 'bf16' } as const],
    ...[{ maxNorm: 1 }, { optimizer: 'sgd' } as const, { schedule: 'constant' } as const],
    { loss: { type: 'cross-entropy', weight: 2 } },
  ]
  for (const other of others) {
    const message = new RegExp(
      `00000008.safetensors was made with ${Object.keys(other)} .*, not .*: resume with`,
    )
    await t.rejects(train({ ...kept, ...other }), { code: 'ERR_ARGUMENT', message })
  }
  const message = /00000008.safetensors was made with samples 101, not 99: resume with/
  await t.rejects(train(kept, smallData(99)), { code: 'ERR_ARGUMENT', message })
})

t.test('a training goes on with the teacher that it began with', async t => {
  const data = smallData(30)
  const inputs = { size: 30, read: (samples: readonly number[]) => ({ x: data.read(samples).x! }) }
  const fit = async (teacher: number, options: Partial<TrainerOptions>) => {
    const adapter = smallAdapter()
    const own = {
      ...base,
      loss: 'kl',
      precision: 'bf16',
      batchSize: 7,
      teacher: { graph: smallModel(teacher) },
    } as const
    for await (const _ of new Trainer(adapter, adapter, { ...own, ...options }).fit(inputs));
    return bytesOf(adapter)
  }
  const folder = t.testdir()
  await fit(5, { checkpoint: { folder } })
  const straight = await fit(5, { epochs: 2 })
  t.ok((await fit(5, { epochs: 2, checkpoint: { folder }, resume: true })).equals(straight))
  const message = /made with teacher "[0-9a-f]{64}", not "[0-9a-f]{64}": resume with/
  await t.rejects(fit(6, { epochs: 3, checkpoint: { folder }, resume: true }), {
    code: 'ERR_ARGUMENT',
    message,
  })
})

t.test('a checkpoint that is damaged is named, and the one before it', async t => {
  const folder = t.testdir()
  const options = { batchSize: 10, checkpoint: { folder, every: 4 } }
  await train(options)
  truncateSync(path.join(folder, 'step-00000011.safetensors'), 300)
  const message = /step-00000011.*truncated.*; remove it to go on from .*step-00000008.safetensors$/
  await t.rejects(train({ ...options, resume: true }), { code: 'ERR_FORMAT', message })
  rmSync(path.join(folder, 'step-00000011.safetensors'))
  const { events } = await train({ ...options, resume: true })
  t.equal(events[0]!.step, 9)
})

t.test('a checkpoint belongs to its adapter', async t => {
  const folder = t.testdir()
  const fit = async (options: Partial<AdapterOptions>, resume: boolean) => {
    const adapter = await createAdapter(smallModel(1), {
      targetModules: ['fc0'],
      rank: 2,
      backend,
      ...options,
    })
    const trainer = new Trainer(adapter, adapter, { ...base, batchSize: 10, checkpoint: { folder }, resume })
    for await (const _ of trainer.fit(smallData(30)));
  }
  await fit({}, false)
  await fit({}, true)
  const refused = (options: Partial<AdapterOptions>, message: RegExp) =>
    t.rejects(fit(options, true), { code: 'ERR_ARGUMENT', message })
  await refused({ rank: 3 }, /module fc0 {"rank":2,"scale":8}, not {"rank":3,"scale":5/)
  await refused({ alpha: 32 }, /module fc0 {"rank":2,"scale":8}, not {"rank":2,"scale":16}/)
  await refused({ dropout: 0.5 }, /dropout 0, not 0.5/)
  await refused({ normGradient: 'exact' }, /normGradient "detached", not "exact"/)
  await refused({ targetModules: ['fc1'] }, /module fc0 .*, not nothing/)
})

t.test('a checkpoint belongs to its base', async t => {
  const folder = t.testdir()
  const data = smallData(30)
  const fit = async (seed: number, options: Partial<TrainerOptions>) => {
    const model = smallModel(seed)
    const adapter = await createAdapter(model, { targetModules: ['fc0', 'fc1'], rank: 2, backend })
    const trainer = new Trainer({ graph: model }, adapter, { ...base, batchSize: 10, ...options })
    for await (const _ of trainer.fit(data));
    return trainer.step
  }
  await fit(1, { checkpoint: { folder } })
  const file = path.join(folder, 'step-00000003.safetensors')
  const { base: recorded } = await readCheckpoint(file)
  t.same([...recorded.keys()], ['fc0', 'fc1'])
  t.ok([...recorded.values()].every(hash => /^[0-9a-f]{64}$/.test(hash)))
  t.equal(await fit(1, { resume: file, epochs: 2 }), 6)
  await t.rejects(fit(2, { resume: file, epochs: 2 }), {
    code: 'ERR_FORMAT',
    message: /step-00000003.*another base: the weight of 'fc0' has another sha256; resume with/,
  })
})

t.test('a caller that leaves early has the parameters of the last step', async t => {
  const adapter = smallAdapter()
  const trainer = new Trainer(adapter, adapter, { ...base, batchSize: 10 })
  for await (const { step } of trainer.fit(smallData(101))) if (step === 3) break
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
  for await (const { totalSteps } of trainer.fit(batches)) {
    steps++
    t.equal(totalSteps, undefined)
  }
  t.equal(steps, 10)
  const fromDataset = await train({ epochs: 2, batchSize: 8, shuffle: false }, data)
  t.ok(bytesOf(adapter).equals(bytesOf(fromDataset.adapter)))
  const once = new Trainer(adapter, adapter, { ...base, epochs: 2 }).fit(batches())
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
    for await (const _ of trainer.fit([{ x: column, target: column }]));
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
  t.throws(make(smallAdapter(), null), { code: 'ERR_ARGUMENT', message: /adapter must be a model/ })
  t.throws(make(smallAdapter(), { graph: smallModel() }), { message: /adapter must be an adapter/ })
  const fields = new ArrayDataset({ x: { shape: [2, 7], data: new Float32Array(14) } })
  await t.rejects(train({}, fields), { code: 'ERR_ARGUMENT', message: /fields x; the step reads x, target/ })
})

t.test('targets of another shape do not broadcast', async t => {
  for (const type of ['mse', 'l1', 'kl'] as const) {
    const fit = (samples: number, shape: readonly number[]) => {
      const x = { shape: [samples, 7], data: new Float32Array(samples * 7).fill(0.5) }
      const target = { shape, data: new Float32Array(shape.reduce((count, size) => count * size, 1)) }
      const adapter = smallAdapter()
      return new Trainer(adapter, adapter, { ...base, loss: type }).fit([{ x, target }]).next()
    }
    const { value } = await fit(3, [3, 3])
    t.ok(value, type)
    // Three samples of three numbers: [3] would be a row of targets for each of them.
    const message = /'y' is \[3, 3\], but its target 'target' \[3\]: give targets of the shape of 'y'/
    await t.rejects(fit(3, [3]), { code: 'ERR_SHAPE', message })
    await t.rejects(fit(5, [5, 1]), { code: 'ERR_SHAPE', message: /\[5, 3\].*\[5, 1\]/ })
  }
})
