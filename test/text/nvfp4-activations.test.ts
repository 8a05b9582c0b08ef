// Language models whose weights and activations are in NVFP4: what that costs, and that a token does not depend on its batch.
import t from 'tap'
import { scriptResult } from '../fixtures/child.js'
import { dataPath, noLanguageData } from '../fixtures/text/golden-data.js'

const stories = dataPath('llm', 'stories260K')

/** Perplexities of 200 tokens of a story, by prompts in chunks. */
const perplexities = (precision: string, activations: readonly string[], chunks: readonly number[]) =>
  scriptResult(
    `
    import { readSafetensors, TextModel } from 'dgx-spark'
    const { tensors } = await readSafetensors('${stories}/golden.safetensors')
    const ids = Int32Array.from(tensors.get('ids').data, Number)
    const results = []
    for (const activations of ${JSON.stringify(activations)})
      for (const batchTokens of ${JSON.stringify(chunks)}) {
        const model = await TextModel.load('${stories}/hf', { activations, batchTokens, backend: 'cpu' })
        results.push(await model.perplexity(ids))
        model.dispose()
      }
    console.log(JSON.stringify(results))`,
    { DGX_SPARK_PRECISION: precision },
  ) as Promise<number[]>

t.test('stories260K', { skip: noLanguageData }, async t => {
  const [exact] = await perplexities('fp32', ['f32'], [512])
  const [weights, , both, inChunks] = await perplexities('nvfp4', ['f32', 'nvfp4'], [512, 7])
  const shown = [exact, weights, both].map(value => value!.toFixed(2)).join(', ')
  t.comment(`perplexity ${shown} in fp32, with weights in nvfp4, with both`)
  t.ok(exact! < weights! && weights! < both! && both! < 2.1, shown)
  t.equal(inChunks, both, 'the rows of a chunk do not depend on each other')
})

t.test('a model without weights of NVFP4', { skip: noLanguageData }, async t => {
  await t.rejects(perplexities('fp32', ['nvfp4'], [512]), /no weight of the model is: add precision 'nvfp4'/)
})
