// Graphs that ranks share give what one machine gives, within rounding; each rank has its part of the weights.
import path from 'node:path'
import { GraphBuilder, Model, Tensor } from 'dgx-spark'
import t from 'tap'
import { canonicalise } from '#lib/graph/rewrites/canonicalise.js'
import { readOnnx } from '#lib/io/onnx/read.js'
import { backends } from '../../fixtures/backends.js'
import { openRanks, relativeDistance } from '../../fixtures/cluster/ranks.js'
import { modelFiles, noModels } from '../../fixtures/models/onnx-models.js'
import { randomFeeds } from '../../fixtures/onnx-runtime.js'
import { tensorsOf } from '../../fixtures/random-graph/checks.js'

const skip = noModels || !backends.includes('cpu') ? 'no models or no native addon here' : false
const sizes: Record<string, number> = { batch: 1, sequence: 576, length: 7, b: 2 }
/** Not in a unit test, or without a product that ranks can share. */
const left = /^light_|3294407|float16|shufflenet|byte_sb|RFB/
/** Half of it is recurrent. */
const silero = /silero/
/** Sums of a run. */
const sums: Record<string, number> = {
  'burn_mnist.onnx': 2,
  'mnist-8.onnx': 1,
  'super_resolution.onnx': 2,
  'tinyphysics.onnx': 10,
}
/** On four ranks, too. */
const small = /mnist/

for (const file of skip ? [] : modelFiles().filter(file => !left.test(path.basename(file))))
  for (const world of small.test(file) ? [2, 4] : [2])
    t.test(`${path.basename(file)} on ${world} ranks`, async t => {
      const graph = canonicalise(await readOnnx(file))
      const feeds = tensorsOf(randomFeeds(graph, 3, sizes)) as Record<string, Tensor<never>>
      if (feeds.sr) (feeds.sr.data as BigInt64Array)[0] = 16000n
      using model = await Model.fromGraph(graph, { backend: 'cpu', precision: 'fp32' })
      const whole = await model.run<Tensor<never>>(feeds)
      const ranks = await openRanks(graph, world)
      const { bytes, allReduces } = ranks.splits[0]!
      t.ok(
        bytes.own <= (silero.test(file) ? 0.75 : 0.6) * bytes.whole,
        `${bytes.own} of ${bytes.whole} bytes`,
      )
      t.equal(allReduces, sums[path.basename(file)] ?? allReduces)
      for (const results of await ranks.run(feeds))
        for (const [name, value] of Object.entries(whole))
          t.ok(
            relativeDistance(results[name]!, value) <= 1e-5,
            `${name}: ${relativeDistance(results[name]!, value)}`,
          )
      await ranks.close()
    })

const noAddon = backends.includes('cpu') ? false : 'no native addon here'

for (const out of [31, 32])
  t.test(`a product with a computed bias, ${out} out features`, { skip: noAddon }, async t => {
    const g = new GraphBuilder()
    const x = g.input('x', 'f32', [2, 33])
    const image = g.input('image', 'f32', [1, 3, 7, 7])
    const bias = g.input('bias', 'f32', [out])
    const w = g.initializer('w', Tensor.random([33, out], { seed: 1 }))
    const kernel = g.initializer('kernel', Tensor.random([out, 3, 3, 3], { seed: 2 }))
    const exp = g.add('Exp', [bias])
    g.output(g.add('Gemm', [x, w, exp]), 'y')
    g.output(g.add('Conv', [image, kernel, exp]), 'z')
    const graph = g.build()
    const feeds = tensorsOf(randomFeeds(graph, 3, {})) as Record<string, Tensor<never>>
    using model = await Model.fromGraph(graph, { backend: 'cpu', precision: 'fp32' })
    const whole = await model.run<Tensor<never>>(feeds)
    const ranks = await openRanks(graph, 2)
    const { whole: kept } = ranks.splits[0]!
    t.match([...kept.values()], out === 31 ? [/its bias .* 31 rows/, /its bias/] : [])
    for (const results of await ranks.run(feeds))
      for (const [name, value] of Object.entries(whole))
        t.ok(relativeDistance(results[name]!, value) <= 1e-5, name)
    await ranks.close()
  })
