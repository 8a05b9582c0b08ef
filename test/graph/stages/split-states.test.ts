// Ranks keep their heads of the states of an ONNX decoder, which grow from run to run.
import { Model, Tensor } from 'dgx-spark'
import t from 'tap'
import { canonicalise } from '#lib/graph/rewrites/canonicalise.js'
import { readOnnx } from '#lib/io/onnx/read.js'
import { backends } from '../../fixtures/backends.js'
import { openRanks, relativeDistance } from '../../fixtures/cluster/ranks.js'
import { languageModelFile, noModels } from '../../fixtures/models/onnx-models.js'

const skip = noModels || !backends.includes('cpu') ? 'no models or no native addon here' : false

const i32 = (values: number[]): Tensor<never> =>
  Tensor.of(Int32Array.from(values), [1, values.length], 'i32') as unknown as Tensor<never>

/** A prompt of four tokens, and two more, one by one. */
const steps = [
  { input_ids: i32([5, 9, 2, 7]), position_ids: i32([0, 1, 2, 3]), attention_mask: i32([1, 1, 1, 1]) },
  { input_ids: i32([4]), position_ids: i32([4]), attention_mask: i32([1, 1, 1, 1, 1]) },
  { input_ids: i32([8]), position_ids: i32([5]), attention_mask: i32([1, 1, 1, 1, 1, 1]) },
]

t.test('GPT-2 with past and present', { skip }, async t => {
  const graph = canonicalise(await readOnnx(languageModelFile('genai', 'tiny-random-gpt2-fp32', 'past.onnx')))
  using whole = await Model.fromGraph(graph, { backend: 'cpu', precision: 'fp32' })
  const ranks = await openRanks(graph, 2)
  const past = ranks.models[0]!.inputs.find(({ name }) => name === 'past_0')!
  t.equal(past.shape?.[2], 2, 'two of four heads')
  const decoders = [whole, ...ranks.models].map(model => model.bindState())
  for (const step of steps) {
    const [expected, ...given] = await Promise.all(decoders.map(decoder => decoder.run<Tensor<never>>(step)))
    for (const { logits } of given) t.ok(relativeDistance(logits!, expected!.logits!) <= 1e-5)
  }
  await ranks.close()
})
