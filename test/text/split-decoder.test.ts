// Decoders whose heads, experts and vocabulary ranks share give what one machine gives, within rounding.
import { Model, Tensor } from 'dgx-spark'
import t from 'tap'
import { Pacer } from '#lib/core/paced.js'
import type { Graph } from '#lib/graph/graph.js'
import { splitGraph } from '#lib/graph/rewrites/split.js'
import { encoderGraph } from '#lib/text/architectures/encoder.js'
import { readModelFiles } from '#lib/text/files/model-files.js'
import { backends } from '../fixtures/backends.js'
import { openRanks, relativeDistance } from '../fixtures/cluster/ranks.js'
import { bindNext, decoderSteps } from '../fixtures/text/decoder-steps.js'
import { dataPath, foldersOf, noLanguageData } from '../fixtures/text/golden-data.js'

type Values = Record<string, Tensor<never>>

const skip = noLanguageData || !backends.includes('cpu') ? 'no models or no native addon here' : false

/** On four ranks, too. */
const four = ['mixtral']

/** What all ranks give for the same steps. */
async function results(models: readonly Model[], graph: Graph): Promise<Values[][]> {
  const bound = models.map(model => bindNext(model, graph))
  const given: Values[][] = []
  for (const step of decoderSteps)
    given.push(await Promise.all(bound.map(model => model.run<Tensor<never>>(step))))
  return given
}

for (const name of skip ? [] : foldersOf('lm-golden', 'models'))
  t.test(name, async t => {
    const { model } = await readModelFiles(dataPath('lm-golden', 'models', name), new Pacer())
    if (model.kind !== 'decoder') return
    const graph = model.decoder.graph({ blocks: 4, blockSize: 8 })
    using whole = await Model.fromGraph(graph, { backend: 'cpu', precision: 'fp32' })
    const expected = await results([whole], graph)
    for (const world of four.includes(name) ? [2, 4] : [2]) {
      const ranks = await openRanks(graph, world)
      const { bytes } = ranks.splits[0]!
      t.ok(bytes.own <= (1 / world + 0.1) * bytes.whole, `${bytes.own} of ${bytes.whole} bytes`)
      for (const [step, given] of (await results(ranks.models, graph)).entries())
        for (const values of given)
          for (const output of ['logits', 'hidden']) {
            const distance = relativeDistance(values[output]!, expected[step]![0]![output]!)
            t.ok(distance <= 1e-5, `${world} ranks, step ${step}, ${output}: ${distance}`)
          }
      await ranks.close()
    }
  })

t.test('an encoder, whose heads are cut as well', { skip }, async t => {
  const { model } = await readModelFiles(dataPath('lm-golden', 'embeddings', 'bert-mean'), new Pacer())
  if (model.kind !== 'encoder') return
  const graph = encoderGraph(model.config, model.weights)
  const feeds = {
    tokens: Tensor.of(Int32Array.of(5, 9, 2, 77, 31, 8, 4, 0), [2, 4], 'i32'),
    lengths: Tensor.of(Int32Array.of(4, 3), [2], 'i32'),
  } as unknown as Values
  using whole = await Model.fromGraph(graph, { backend: 'cpu', precision: 'fp32' })
  const expected = await whole.run<Tensor<never>>(feeds)
  for (const world of [2, 4]) {
    const ranks = await openRanks(graph, world)
    t.equal(ranks.splits[0]!.allReduces, 8, 'two for each of three layers, and two tables')
    for (const values of await ranks.run(feeds))
      for (const [name, value] of Object.entries(expected))
        t.ok(relativeDistance(values[name]!, value) <= 1e-5, `${world} ranks: ${name}`)
    await ranks.close()
  }
})

/** Models of GGUF whose weights are in blocks. */
const blocks = ['llama.Q4_0.gguf', 'llama-k.K_M.gguf']

for (const file of skip ? [] : blocks)
  t.test(`${file} stays in its blocks`, async t => {
    const { model } = await readModelFiles(dataPath('lm-golden', 'gguf', file), new Pacer())
    if (model.kind !== 'decoder') return
    const graph = model.decoder.graph({ blocks: 4, blockSize: 8 })
    using whole = await Model.fromGraph(graph, { backend: 'cpu', precision: 'fp32' })
    const [[expected]] = (await results([whole], graph)) as [[Values]]
    const ranks = await openRanks(graph, 2)
    const { bytes, graph: own } = ranks.splits[0]!
    t.ok(bytes.own <= 0.6 * bytes.whole, `${bytes.own} of ${bytes.whole} bytes`)
    const formats = ({ initializers }: Graph): Set<string | undefined> =>
      new Set([...initializers.values()].map(({ weight }) => weight?.shared.format))
    t.strictSame([...formats(own)].sort(), [...formats(graph)].sort(), 'nothing is decoded')
    for (const values of (await results(ranks.models, graph))[0]!)
      t.ok(relativeDistance(values.logits!, expected.logits!) <= 1e-5)
    await ranks.close()
  })

t.test('what heads forbid is said with numbers', { skip }, async t => {
  const { model } = await readModelFiles(dataPath('lm-golden', 'models', 'gemma3'), new Pacer())
  if (model.kind !== 'decoder') return
  const { whole } = splitGraph(model.decoder.graph({ blocks: 4, blockSize: 8 }), { rank: 1, world: 2 })
  t.match([...whole.values()], [/4 heads with 1 of keys: 1 is not divisible by 2/])
})
