// Training in 16 bits: rounding, dynamic loss scaling with PyTorch's numbers, skipped steps, resumption.
import path from 'node:path'
import t from 'tap'
import { Constant } from '#lib/graph/constant.js'
import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { readCheckpoint } from '#lib/training/checkpoint.js'
import { readEvents } from '#lib/training/log.js'
import { LossScaler } from '#lib/training/loss-scaler.js'
import type { TrainerOptions, TrainingEvent } from '#lib/training/options.js'
import { Trainer } from '#lib/training/trainer.js'
import { backends } from '../fixtures/backends.js'
import { adapterOf, bytesOf, smallAdapter, smallData } from '../fixtures/models/trainable.js'

const backend = backends.includes('cpu') ? 'cpu' : 'js'

async function train(options: Partial<TrainerOptions>) {
  const adapter = smallAdapter()
  const base: TrainerOptions = {
    loss: 'cross-entropy',
    optimizer: { type: 'adamw', learningRate: 0.02 },
    backend,
    batchSize: 10,
    epochs: 3,
  }
  const trainer = new Trainer(adapter, adapter, { ...base, ...options })
  const events: TrainingEvent[] = []
  for await (const event of trainer.steps(smallData(101))) events.push(event)
  return { adapter, events, trainer }
}

t.test('the factor: the numbers of GradScaler', async t => {
  const scaler = new LossScaler(true)
  t.equal(scaler.state.scale, 65536)
  for (let i = 0; i < 1999; i++) scaler.observe(true)
  t.match(scaler.state, { scale: 65536, good: 1999, skipped: 0 })
  scaler.observe(true)
  t.match(scaler.state, { scale: 131072, good: 0 })
  scaler.observe(true)
  scaler.observe(false)
  t.same(scaler.state, { scale: 65536, good: 0, skipped: 1 })
  const again = new LossScaler(true)
  again.restore(scaler.state)
  t.same(again.state, scaler.state)
  while (!scaler.exhausted) scaler.observe(false)
  t.equal(scaler.state.scale, 2 ** -25)
  scaler.restore({ scale: 2 ** 127, good: 1999, skipped: 0 })
  scaler.observe(true)
  t.equal(scaler.state.scale, 2 ** 127, 'an f32')
  t.same(new LossScaler(false).state, { scale: 1, good: 0, skipped: 0 })
})

t.test('fp16 and bf16 learn as fp32 does', async t => {
  const straight = await train({})
  for (const [precision, tolerance] of [
    ['fp16', 0.02],
    ['bf16', 0.1],
  ] as const) {
    const { adapter, events } = await train({ precision })
    t.notOk(bytesOf(adapter).equals(bytesOf(straight.adapter)), 'something is rounded')
    for (const [i, { loss, gradientNorm, lossScale, skipped }] of events.entries()) {
      const exact = straight.events[i]!
      const apart = Math.max(Math.abs(loss - exact.loss), Math.abs(gradientNorm - exact.gradientNorm))
      if (!(apart < tolerance)) t.fail(`${precision}: step ${i + 1} is ${apart} apart`)
      t.equal(lossScale, precision === 'fp16' ? 65536 : undefined)
      t.equal(skipped, undefined)
    }
    t.ok(bytesOf((await train({ precision })).adapter).equals(bytesOf(adapter)), 'the same bits again')
  }
  t.equal(straight.events[0]!.lossScale, undefined)
})

t.test('gradients that f16 cannot hold survive by the factor', async t => {
  const loss = { type: 'cross-entropy', weight: 2 ** -22 } as const
  const [exact, scaled] = [await train({ loss }), await train({ loss, precision: 'fp16' })]
  t.ok(exact.events[0]!.gradientNorm < 1e-6)
  for (const [i, { gradientNorm }] of scaled.events.entries()) {
    const expected = exact.events[i]!.gradientNorm
    if (Math.abs(gradientNorm / expected - 1) > 0.05) t.fail(`step ${i + 1}: ${gradientNorm}, ${expected}`)
  }
})

t.test('an overflow is skipped, halves the factor, and is no update', async t => {
  const loss = { type: 'cross-entropy', weight: 64 } as const
  const folder = t.testdir()
  const log = path.join(folder, 'log.jsonl')
  const checkpoint = { folder, every: 1, keep: 99 }
  const { events, adapter } = await train({ loss, precision: 'fp16', checkpoint, log })
  const skipped = events.findIndex(event => !event.skipped)
  t.ok(skipped >= 2, `${skipped} steps`)
  t.same(
    events.slice(0, skipped + 1).map(({ lossScale }) => lossScale),
    Array.from({ length: skipped + 1 }, (_, i) => 2 ** (16 - i)),
  )
  t.notOk(Number.isFinite(events[0]!.gradientNorm))
  t.ok(Number.isFinite(events[skipped]!.gradientNorm))
  const at = (step: number) =>
    readCheckpoint(path.join(folder, `step-${String(step).padStart(8, '0')}.safetensors`))
  const [first, last] = [await at(1), await at(skipped)]
  for (const [name, values] of first.state) {
    t.same(values, last.state.get(name), `${name} stays`)
    if (/[mv]$/.test(name)) t.ok(values.every(value => value === 0))
  }
  t.same(last.lossScale, { scale: 2 ** (16 - skipped), good: 0, skipped })
  t.match((await readEvents(log))[0], { skipped: true, lossScale: 65536, gradientNorm: null })
  // AdamW corrects its first moments by the number of updates: with the number of steps this would be another rate.
  const update = await at(skipped + 1)
  const moved = [...update.state].filter(([name]) => name.endsWith('lora_A'))
  t.ok(moved.every(([, values]) => values.every(Number.isFinite)))
  const b = adapter.parameters.find(name => name.endsWith('fc1.weight.lora_B'))!
  const largest = Math.max(...update.state.get(b)!.map(Math.abs))
  t.ok(Math.abs(largest - 0.02) < 1e-4, `the first update of AdamW is the rate: ${largest}`)
})

t.test('resumed in the middle of skipped steps: the same bits', async t => {
  const options = { loss: { type: 'cross-entropy', weight: 64 }, precision: 'fp16', accumulate: 2 } as const
  const straight = await train(options)
  for (const stopAt of [2, 9]) {
    const checkpoint = { folder: path.join(t.testdir(), `${stopAt}`), every: 1 }
    const stop = new AbortController()
    const adapter = smallAdapter()
    const base = {
      optimizer: { type: 'adamw', learningRate: 0.02 },
      backend,
      batchSize: 10,
      epochs: 3,
    } as const
    const trainer = new Trainer(adapter, adapter, { ...base, ...options, checkpoint, signal: stop.signal })
    for await (const { step } of trainer.steps(smallData(101))) if (step === stopAt - 1) stop.abort()
    const resumed = await train({ ...options, checkpoint, resume: true })
    t.equal(resumed.events[0]!.step, stopAt + 1)
    t.equal(resumed.events[0]!.lossScale, straight.events[stopAt]!.lossScale)
    t.ok(bytesOf(resumed.adapter).equals(bytesOf(straight.adapter)), `after step ${stopAt}`)
  }
})

t.test('what no factor helps ends the training', async t => {
  // The slope of √p² is no number at 0.
  const graph = makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', ['n', 1]) }],
    outputs: [{ name: 'y' }],
    nodes: [
      makeNode('Mul', ['p', 'p'], ['square']),
      makeNode('Sqrt', ['square'], ['root']),
      makeNode('Add', ['x', 'root'], ['y']),
    ],
    initializers: new Map([['p', Constant.f32([0])]]),
  })
  const adapter = adapterOf(graph, ['p'])
  const column = { shape: [2, 1], data: Float32Array.of(1, 2) }
  const batches = function* () {
    for (let i = 0; i < 100; i++) yield { x: column, target: { ...column, data: new Float32Array(2) } }
  }
  const trainer = new Trainer({ graph }, adapter, { loss: 'mse', precision: 'fp16', backend })
  let steps = 0
  const fit = async () => {
    for await (const _ of trainer.steps(batches)) steps++
  }
  await t.rejects(fit(), { code: 'ERR_NOT_FINITE', message: /step 41: .*bf16/ })
  t.equal(steps, 40)
  t.same([...adapter.read('p')], [0])
})
