// Checkpoints: which are kept, what is in them, and what they belong to.
import { mkdirSync, readdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import type { AdapterOptions } from '#lib/dora/model/adapter-options.js'
import { createAdapter } from '#lib/dora/model/create-adapter.js'
import { readCheckpoint } from '#lib/training/checkpoint.js'
import { readEvents } from '#lib/training/log.js'
import type { TrainerOptions } from '#lib/training/options.js'
import { Trainer } from '#lib/training/trainer.js'
import { backend, base, train } from '../fixtures/models/small-training.js'
import { bytesOf, smallAdapter, smallData, smallModel } from '../fixtures/models/trainable.js'

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

t.test('the log has the line of a step before there is a checkpoint of it', async t => {
  const dir = t.testdir()
  const [folder, log] = [path.join(dir, 'checkpoints'), path.join(dir, 'log.jsonl')]
  const options = { batchSize: 10, checkpoint: { folder, every: 4 }, log }
  const inTheWay = path.join(folder, 'step-00000008.safetensors')
  const adapter = smallAdapter()
  const training = async () => {
    for await (const { step } of new Trainer(adapter, adapter, { ...base, ...options }).steps(
      smallData(101),
    )) {
      if (step === 7) mkdirSync(inTheWay)
    }
  }
  await t.rejects(training(), { code: 'ERR_IO', message: /step-00000008.safetensors: it is a folder/ })
  t.match((await readEvents(log)).at(-1), { step: 8, checkpoint: inTheWay })
  t.same(readdirSync(dir).sort(), ['checkpoints', 'log.jsonl'], 'no lock is left after an error')
  t.same(readdirSync(folder).sort(), ['step-00000004.safetensors', 'step-00000008.safetensors'])

  rmSync(inTheWay, { recursive: true })
  const lines = readFileSync(log, 'utf8').split('\n').slice(0, 6)
  writeFileSync(log, `${lines.join('\n')}\n{"step":7,"epoch":1,"lo`)
  const { events } = await train({ ...options, resume: true })
  t.equal(events[0]!.step, 5, 'it goes on from the fourth step')
  t.same(
    (await readEvents(log)).map(({ step }) => step),
    Array.from({ length: 11 }, (_, i) => i + 1),
  )
  writeFileSync(log, '5\nnull\n[]\n{}\n"x"\n{"step":"1"}\n{"step":3}')
  t.same(await readEvents(log), [{ step: 3 }], 'lines that are no events')
})

t.test('a training goes on with the settings that it began with', async t => {
  const folder = t.testdir()
  await train({ batchSize: 10, checkpoint: { folder, every: 4 }, schedule: { warmup: 2, type: 'constant' } })
  const resume = path.join(folder, 'step-00000008.safetensors')
  const kept = { batchSize: 10, resume, schedule: { type: 'constant', warmup: 2 } } as const
  t.equal((await train({ ...kept, epochs: 2 })).events.at(-1)!.step, 22, 'more epochs, keys in another order')
  const others: Partial<TrainerOptions>[] = [
    { seed: 1 },
    { batchSize: 5 },
    { accumulate: 2 },
    { shuffle: false },
    { precision: 'bf16' } as const,
    { maxNorm: 1 },
    { optimizer: 'sgd' } as const,
    { schedule: 'constant' } as const,
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
    await new Trainer(adapter, adapter, { ...own, ...options }).fit(inputs)
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
  const message = /step-00000011.*truncated.*; remove it to resume from .*step-00000008.safetensors$/
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
    await trainer.fit(smallData(30))
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
    await trainer.fit(data)
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
    message: /step-00000003.*another base: the weight of 'fc0' has a different sha256; resume with/,
  })
})
