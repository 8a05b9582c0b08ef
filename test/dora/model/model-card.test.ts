// Model cards and records of trainings in adapter folders.
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { Adapter, createAdapter, readPeftAdapter, Trainer, writePeftAdapter } from 'dgx-spark'
import t from 'tap'
import { adaptableGraph } from '../../fixtures/models/adaptable-graph.js'
import { smallData, smallModel } from '../../fixtures/models/trainable.js'

const scratch = mkdtempSync(path.join(tmpdir(), 'dgx-spark-card-'))
t.teardown(() => rmSync(scratch, { recursive: true }))
const graph = adaptableGraph()

t.test('a record of the training is in the file and survives loading', async t => {
  const adapter = await createAdapter(graph, { targetModules: ['fc1'], rank: 2 })
  t.equal(adapter.training, undefined)
  const training = { loss: 'mse', steps: 30, data: { samples: 64, fields: { x: 'f32 [64, 5]' } } }
  adapter.record(training)
  await adapter.save(path.join(scratch, 'a'))
  t.notOk(existsSync(path.join(scratch, 'a/README.md')), 'a card on request only')
  const again = await Adapter.load(graph, path.join(scratch, 'a'))
  t.same(again.training, training)
  const peft = await readPeftAdapter(path.join(scratch, 'a'))
  t.match(peft.metadata!.get('dgx_spark.base.fc1'), /^[0-9a-f]{64}$/)
  for (const text of ['no JSON', '[1]', 'null']) {
    const metadata = new Map([...peft.metadata!, ['dgx_spark.training', text]])
    await writePeftAdapter(path.join(scratch, 'odd'), { ...peft, metadata })
    t.equal((await Adapter.load(graph, path.join(scratch, 'odd'))).training, undefined, text)
  }
})

t.test('a training records itself', async t => {
  const linear = smallModel()
  const adapter = await createAdapter(linear, { targetModules: 'all-linear', rank: 2 })
  const trainer = new Trainer({ graph: linear }, adapter, { loss: 'cross-entropy', epochs: 2, batchSize: 16 })
  await trainer.fit(smallData(40))
  t.match(adapter.training, {
    loss: 'cross-entropy',
    batchSize: 16,
    maxNorm: 'Infinity',
    steps: 6,
    epochs: 2,
    data: { samples: 40, fields: { x: 'Float32Array [n, 7]', target: 'Int32Array [n]' } },
  })
})

t.test('a model card', async t => {
  const adapter = await createAdapter(graph, {
    targetModules: ['fc1', 'h.0.fc2'],
    method: 'lora',
    rslora: true,
    rank: 2,
  })
  adapter.record({ loss: 'cross-entropy', note: 'a | b\u202e`<script>`' })
  await adapter.save(path.join(scratch, 'card'), { baseModel: 'org/base "1"', modelCard: true })
  const card = readFileSync(path.join(scratch, 'card/README.md'), 'utf8')
  t.match(
    card,
    /^---\nbase_model: "org\/base \\"1\\""\nlibrary_name: peft\ntags:\n {2}- rslora\n {2}- dgx-spark\n---\n/,
  )
  t.match(card, '| h.0.fc2 | linear | 2 | 16 |')
  t.match(card, '| loss | cross-entropy |')
  t.match(card, 'a \\| b\\\\u{202e}\\`\\<script\\>\\`', 'markup of others is text')
  t.match(card, 'await Adapter.load(base, "card")')
  await t.rejects(adapter.save(scratch, { modelCard: 'yes' as never }), { code: 'ERR_ARGUMENT' })
})

t.test('an adapter of a hub is refused by name', async t => {
  await t.rejects(Adapter.load(graph, 'hf:org/adapter'), {
    code: 'ERR_UNSUPPORTED',
    message: /hf:org\/adapter: adapters of a hub are not downloaded yet/,
  })
})
