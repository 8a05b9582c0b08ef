// Training to the end, evaluation, metrics, early stopping, the best parameters, and resumption of all that.
import { existsSync } from 'node:fs'
import path from 'node:path'
import type { Tensor } from 'dgx-spark'
import t from 'tap'
import { readCheckpoint } from '#lib/training/checkpoint.js'
import { ArrayDataset, type Batch } from '#lib/training/dataset.js'
import { readEvents, readValidations } from '#lib/training/log.js'
import type { TrainerOptions, TrainingEvent } from '#lib/training/options.js'
import { Trainer } from '#lib/training/trainer.js'
import type { FitOptions, Validation } from '#lib/training/validation.js'
import { backend, base } from '../fixtures/models/small-training.js'
import { bytesOf, smallAdapter, smallData, smallModel } from '../fixtures/models/trainable.js'

const validation = smallData(37, 9)

/** A trainer of a new adapter. */
function make(options: Partial<TrainerOptions> = {}, dropout = 0) {
  const adapter = { ...smallAdapter(), dropout }
  return { adapter, trainer: new Trainer(adapter, adapter, { ...base, batchSize: 16, ...options }) }
}

t.test('fit trains to the end and says what it did', async t => {
  const { adapter, trainer } = make({ epochs: 2 })
  const events: TrainingEvent[] = []
  const summary = await trainer.fit(smallData(101), {
    onStep: event => {
      events.push(event)
    },
  })
  t.notSame(bytesOf(adapter), bytesOf(smallAdapter()), 'awaiting it trains')
  t.match(summary, { reason: 'epochs', steps: 14, epochs: 2, samples: 202, validation: [] })
  t.equal(summary.finalLoss, events.at(-1)!.loss)
  t.equal(summary.bestLoss, Math.min(...events.map(({ loss }) => loss)))
  const sizes = events.map((_, i) => (i % 7 === 6 ? 5 : 16))
  const mean = events.reduce((sum, { loss }, i) => sum + loss * sizes[i]!, 0) / 202
  t.ok(Math.abs(summary.meanLoss - mean) < 1e-12 && summary.seconds > 0)
  const iterated = make({ epochs: 2 })
  const steps = iterated.trainer.steps(smallData(101))
  let next = await steps.next()
  while (!next.done) next = await steps.next()
  t.match(next.value, { reason: 'epochs', steps: 14, finalLoss: summary.finalLoss })
  t.ok(bytesOf(iterated.adapter).equals(bytesOf(adapter)), 'the iterator trains the same')
  const abort = new AbortController()
  const stopped = await make({ epochs: 2, signal: abort.signal }).trainer.fit(smallData(101), {
    onStep: ({ step }) => step === 3 && abort.abort(),
  })
  t.match(stopped, { reason: 'signal', steps: 4, epochs: 0 })
  await t.rejects(make().trainer.fit(null as never), {
    code: 'ERR_ARGUMENT',
    message: /data must be a dataset/,
  })
})

t.test('an evaluation is exact over a smaller last batch, without dropout, and changes nothing', async t => {
  const { adapter, trainer } = make({}, 0.5)
  await trainer.fit(smallData(48))
  const before = bytesOf(adapter)
  const own = (outputs: Readonly<Record<string, Tensor>>, batch: Batch): number => {
    const [scores, target] = [outputs.y!.data as Float32Array, batch.target!.data as Int32Array]
    const rows = Array.from(target, (wanted, row) => scores[row * 3 + wanted]!)
    return rows.reduce((sum, score) => sum + score, 0) / rows.length
  }
  const metrics = { accuracy: 'accuracy', top5: 'top5', own } as const
  const whole = await trainer.evaluate(validation, { metrics, batchSize: 37 })
  const parts = await trainer.evaluate(validation, { metrics, batchSize: 10 })
  t.equal(whole.samples, 37)
  t.ok(Math.abs(whole.loss - parts.loss) < 1e-6)
  t.equal(parts.metrics.accuracy, whole.metrics.accuracy)
  t.ok(Number.isInteger(Math.round(whole.metrics.accuracy! * 37 * 1e6) / 1e6), 'a share of 37')
  t.equal(whole.metrics.top5, 1, 'three classes')
  t.ok(Math.abs(whole.metrics.own! - parts.metrics.own!) < 1e-6)
  t.strictSame(await trainer.evaluate(validation, { metrics, batchSize: 10 }), parts, 'no dropout')
  t.ok(bytesOf(adapter).equals(before))
})

t.test('mae and rmse, also of a teacher, and one-hot targets', async t => {
  const x = { shape: [5, 7], data: Float32Array.from({ length: 35 }, (_, i) => Math.sin(i)) }
  const target = { shape: [5, 3], data: new Float32Array(15) }
  const { trainer } = make({ loss: 'mse' })
  const { loss, metrics } = await trainer.evaluate([{ x, target }], { metrics: ['mae', 'rmse', 'accuracy'] })
  t.ok(Math.abs(metrics.rmse! ** 2 - loss) < 1e-6, 'rmse² is the mse')
  t.ok(metrics.mae! > 0 && metrics.mae! <= metrics.rmse!)
  const taught = make({ loss: 'kl', teacher: { graph: smallModel(1) } }).trainer
  const same = await taught.evaluate([{ x }], { metrics: ['mae', 'accuracy'] })
  t.ok(same.loss < 1e-6 && same.metrics.mae! < 1e-6)
  t.equal(same.metrics.accuracy, 1, 'classes of the teacher')
})

t.test('evaluation between steps sees the parameters of the step', async t => {
  const { trainer } = make({ epochs: 2 })
  const losses: number[] = []
  for await (const _ of trainer.steps(smallData(101))) losses.push((await trainer.evaluate(validation)).loss)
  t.equal(new Set(losses).size, losses.length)
  const plain = make({ epochs: 2 })
  await plain.trainer.fit(smallData(101))
  t.equal((await plain.trainer.evaluate(validation)).loss, losses.at(-1), 'and disturbs nothing')
})

t.test('early stopping keeps the best parameters', async t => {
  const folder = t.testdir()
  const log = path.join(folder, 'log.jsonl')
  // A rate so large that validation soon gets worse.
  const optimizer = { type: 'sgd', learningRate: 3 } as const
  const options = { epochs: 40, optimizer, checkpoint: { folder, every: 5, keep: 1 }, log } as const
  const { adapter, trainer } = make(options)
  const seen: Validation[] = []
  const summary = await trainer.fit(smallData(101), {
    validation,
    metrics: ['accuracy'],
    patience: 2,
    onValidation: result => {
      seen.push(result)
    },
  })
  t.equal(summary.reason, 'patience')
  t.strictSame(summary.validation, seen)
  const best = seen.findLast(entry => entry.best)!
  t.equal(best.loss, Math.min(...seen.map(({ loss }) => loss)))
  t.equal(summary.bestStep, best.step)
  t.strictSame(
    seen.slice(-2).map(entry => entry.best),
    [false, false],
  )
  t.equal((await trainer.evaluate(validation)).loss, best.loss, 'the adapter has the best parameters')
  const kept = await readCheckpoint(summary.bestCheckpoint!)
  t.equal(kept.progress.step, best.step)
  t.same([...kept.state.get(adapter.parameters[0]!)!], [...adapter.read(adapter.parameters[0]!)])
  t.same(await readValidations(log), seen)
  t.equal((await readEvents(log)).length, summary.steps)
  const last = make(options)
  const again = await last.trainer
    .fit(smallData(101), { validation, patience: 2, keepBest: false })
    .catch(e => e)
  t.match(again, { code: 'ERR_ARGUMENT', message: /checkpoint of another training/ })
})

t.test('a resumed training decides the same', async t => {
  const optimizer = { type: 'sgd', learningRate: 1.5 } as const
  const fit: FitOptions = { validation, metrics: ['accuracy'], monitor: 'accuracy', patience: 4 }
  for (const validateEvery of [undefined, 3]) {
    const options = { ...fit, ...(validateEvery && { validateEvery }) }
    const straight = make({ epochs: 12, optimizer })
    const whole = await straight.trainer.fit(smallData(101), options)
    const folder = path.join(t.testdir(), String(validateEvery))
    const checkpoint = { folder, every: 100 }
    const log = path.join(folder, 'log.jsonl')
    let resumed = make({ epochs: 12, optimizer, checkpoint, log, resume: true })
    for (const stopAt of [7, 10, 24]) {
      const abort = new AbortController()
      resumed = make({ epochs: 12, optimizer, checkpoint, log, resume: true, signal: abort.signal })
      await resumed.trainer.fit(smallData(101), {
        ...options,
        onStep: ({ step }) => step === stopAt && abort.abort(),
      })
    }
    resumed = make({ epochs: 12, optimizer, checkpoint, log, resume: true })
    const summary = await resumed.trainer.fit(smallData(101), options)
    t.same(summary.validation, whole.validation)
    t.match(summary, { reason: whole.reason, steps: whole.steps, bestStep: whole.bestStep })
    t.ok(bytesOf(resumed.adapter).equals(bytesOf(straight.adapter)))
    t.same(await readValidations(log), whole.validation)
    t.ok(existsSync(path.join(folder, 'best.safetensors')))
    const other = make({ epochs: 12, optimizer, checkpoint, resume: true }).trainer
    await t.rejects(other.fit(smallData(101), { ...options, monitor: 'loss' }), {
      code: 'ERR_ARGUMENT',
      message: /validation \{.*"monitor":"accuracy".*not \{/,
    })
  }
})

t.test('what is refused', async t => {
  const refused = (options: unknown, message: RegExp, code = 'ERR_ARGUMENT') =>
    t.rejects(make().trainer.fit(smallData(20), options as FitOptions), { code, message })
  await refused({ patience: 3 }, /options.patience needs validation data: give options.validation/)
  await refused({ validaton: validation }, /no option 'validaton' \(did you mean 'validation'\?\)/)
  await refused({ validation, patience: 0 }, /options.patience must be an integer >= 1, got 0/)
  await refused(
    { validation, metrics: ['acuracy'] },
    /options.metrics must be one of .*did you mean 'accuracy'/,
  )
  await refused({ validation, metrics: { loss: 'mae' } }, /'loss' is always measured/)
  await refused({ validation, metrics: 'accuracy' }, /options.metrics must be a list/)
  await refused({ validation, monitor: 'mae' }, /options.monitor must be one of loss, got 'mae'/)
  const own = { f1: () => 0 }
  await refused({ validation, metrics: own, monitor: 'f1' }, /'f1' is a metric of your own: options.mode/)
  await refused(
    { validation, metrics: { f1: () => 'x' } },
    /result of the metric 'f1' must be a number, got 'x'/,
  )
  await refused({ validation: 3 }, /options.validation must be a dataset/)
  await refused({ onStep: 3 }, /options.onStep must be a function, got 3/)
  await refused(
    { validation, metrics: ['mae'] },
    /metric 'mae': 'y' is \[20, 3\] and 'target' \[20\]|'y' is \[32, 3\]|\[16, 3\]/,
    'ERR_SHAPE',
  )
  const { x } = validation.read([0, 1])
  await refused({ validation: [{ x }] }, /fields x; the evaluation reads x, target/)
  const evaluate = (metrics: unknown) => make().trainer.evaluate(validation, { metrics: metrics as never })
  await t.rejects(evaluate({ error: { type: 'mae', target: 'targt' } }), {
    message: /reads 'targt'.*did you mean 'target'/,
  })
  await t.rejects(evaluate({ error: { type: 'mse' } }), {
    message: /options.metrics.error.type must be one of/,
  })
})

t.test('NaN in the data is said to be there', async t => {
  const data = Float32Array.from({ length: 20 * 7 }, (_, i) => Math.cos(i))
  data[13 * 7 + 2] = Number.NaN
  const target = { shape: [20], data: new Int32Array(20) }
  const broken = new ArrayDataset({ x: { shape: [20, 7], data }, target })
  const code = 'ERR_NOT_FINITE'
  const message =
    /step \d: loss NaN.*field 'x' of the data has NaN in sample 13: remove or replace such samples$/
  await t.rejects(make({ batchSize: 4 }).trainer.fit(broken), { code, message })
  const stream = [broken.read([0, 1, 2]), broken.read([12, 13])]
  await t.rejects(make({ backend }).trainer.fit(stream), { code, message: /NaN in row 1 of its batch/ })
  await t.rejects(make().trainer.evaluate(broken), { code, message: /field 'x' of the data has NaN/ })
})

t.test('an option of the trainer or of a training is named where it belongs', async t => {
  t.throws(() => make({ patience: 3 } as never), {
    code: 'ERR_ARGUMENT',
    message: /new Trainer has no option 'patience': give it to trainer\.fit/,
  })
  const { trainer } = make()
  await t.rejects(trainer.fit(smallData(20), { epochs: 2 } as never), {
    message: /trainer\.fit has no option 'epochs': give it to new Trainer/,
  })
  await t.rejects(trainer.fit(smallData(20), { patienc: 2 } as never), { message: /did you mean 'patience'/ })
})
