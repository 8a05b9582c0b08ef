// Stages of decoders, each with the keys and values of its own layers, give what the whole gives, bit for bit.
import { Model, type Tensor } from 'dgx-spark'
import t from 'tap'
import { Pacer } from '#lib/core/paced.js'
import type { Graph } from '#lib/graph/graph.js'
import { cutGraph, cutPoints, stageEnds } from '#lib/graph/rewrites/cut.js'
import { decoderCuts } from '#lib/text/architectures/decoder.js'
import { readModelFiles } from '#lib/text/files/model-files.js'
import { differing } from '../fixtures/cluster/stages.js'
import { bindNext, decoderSteps } from '../fixtures/text/decoder-steps.js'
import { dataPath, foldersOf, noLanguageData } from '../fixtures/text/golden-data.js'

type Values = Record<string, Tensor<never>>

/** What each step gives where stages are models of their own that keep their states. */
async function run(graph: Graph, cuts: readonly number[]): Promise<Values[]> {
  const stages = cutGraph(graph, cuts)
  const ends = stageEnds(graph, stages)
  const models = await Promise.all(
    stages.map(stage => Model.fromGraph(stage, { backend: 'cpu', precision: 'fp32' })),
  )
  const runs = models.map((model, i) => bindNext(model, stages[i]!))
  const results: Values[] = []
  for (const step of decoderSteps) {
    const made: Values = { ...step }
    for (const [i, { feeds, takes, states }] of ends.entries()) {
      const names = [...feeds.filter(name => !states.has(name)), ...takes]
      Object.assign(made, await runs[i]!.run(Object.fromEntries(names.map(name => [name, made[name]!]))))
    }
    results.push({ logits: made.logits!, hidden: made.hidden! })
  }
  for (const model of models) model.dispose()
  return results
}

for (const name of noLanguageData ? [] : foldersOf('lm-golden', 'models'))
  t.test(name, async t => {
    const { model } = await readModelFiles(dataPath('lm-golden', 'models', name), new Pacer())
    if (model.kind !== 'decoder') return
    const { graph, sizes } = model.decoder
    const whole = graph({ blocks: 4, blockSize: 8 })
    const expected = await run(whole, [])
    const count = sizes.layers.length
    const points = new Set(cutPoints(whole).map(({ end }) => end))
    const layers = Array.from({ length: count + 1 }, (_, i) => i)
    const cuts = decoderCuts(whole, layers)
    t.ok(
      cuts.every(end => points.has(end)),
      'they are among the places of placement',
    )
    const results = await run(whole, cuts)
    for (const [i, step] of expected.entries()) t.equal(differing(step, results[i]!), undefined, `step ${i}`)
    t.throws(() => decoderCuts(whole, [count + 1]), { code: 'ERR_ARGUMENT' })
    t.throws(() => decoderCuts({ ...whole, metadata: new Map() }, [1]), { code: 'ERR_ARGUMENT' })
  })

t.test('what a stage of a decoder is fed', { skip: noLanguageData }, async t => {
  const { model } = await readModelFiles(dataPath('lm-golden', 'models', 'qwen3'), new Pacer())
  if (model.kind !== 'decoder') return
  const whole = model.decoder.graph({ blocks: 4, blockSize: 8 })
  const [first, middle, last] = stageEnds(whole, cutGraph(whole, decoderCuts(whole, [1, 2])))
  const caches = (layer: number) => [`keys.${layer}`, `values.${layer}`]
  t.strictSame(first!.feeds, ['tokens', 'positions', 'starts', 'past', 'blocks', ...caches(0)])
  t.equal(first!.gives.length, 3, 'states of tokens, cosines and sines')
  t.strictSame(middle!.feeds, ['starts', 'past', 'blocks', ...caches(1)])
  t.strictSame(middle!.takes, first!.gives)
  t.strictSame(last!.results.slice(-2), ['hidden', 'logits'])
  t.ok(last!.feeds.includes('rows'))
})
