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

t.test(
  'a checkpoint with the scales that its activations were calibrated for',
  { skip: noLanguageData },
  async t => {
    const folder = t.testdir()
    const found = (await scriptResult(
      `
    import { copyFileSync, readFileSync } from 'node:fs'
    import { readSafetensors, TextModel } from 'dgx-spark'
    import { writeCheckpoint } from '#lib/io/checkpoints/checkpoint.js'
    import { tensorFromRecord } from '#lib/io/safetensors.js'
    const [folder, from] = ${JSON.stringify([folder, `${stories}/hf`])}
    const read = await readSafetensors(from + '/model.safetensors')
    const tensors = new Map([...read.tensors].map(([name, record]) => [name, tensorFromRecord(name, record)]))
    const config = JSON.parse(readFileSync(from + '/config.json'))
    const golden = await readSafetensors('${stories}/golden.safetensors')
    const ids = Int32Array.from(golden.tensors.get('ids').data, Number)
    const modules = [...tensors.keys()].flatMap(name => /proj\\.weight$/.test(name) ? [name.slice(0, -7)] : [])
    const found = []
    for (const [layout, amax] of [['modelopt'], ['modelopt', 60], ['compressed-tensors', 60], ['modelopt', 1]]) {
      const at = [folder, layout, amax].join('-')
      const inputAmax = amax && Object.fromEntries(modules.map(name => [name, amax]))
      await writeCheckpoint(at, tensors, { layout, config, inputAmax })
      for (const file of ['tokenizer.json', 'tokenizer_config.json']) copyFileSync(from + '/' + file, at + '/' + file)
      const model = await TextModel.load(at, { activations: 'nvfp4', backend: 'cpu' })
      found.push(await model.perplexity(ids))
      model.dispose()
    }
    console.log(JSON.stringify(found))`,
    )) as [own: number, modelOpt: number, compressed: number, clipped: number]
    const [own, modelOpt, compressed, clipped] = found
    t.comment(
      `perplexity ${found.map(value => value.toFixed(4)).join(', ')}: rows' own scales, two layouts, clipped at 1`,
    )
    t.ok(
      Math.abs(modelOpt / own - 1) < 1e-6,
      `${modelOpt} with scales of the file, ${own} with those of rows`,
    )
    t.ok(Math.abs(compressed / modelOpt - 1) < 1e-6, `${compressed} with reciprocal scales`)
    t.ok(clipped > 1.02 * own, `${clipped} where all above 1 is clipped`)
  },
)

t.test('a model without weights of NVFP4', { skip: noLanguageData }, async t => {
  await t.rejects(perplexities('fp32', ['nvfp4'], [512]), /no weight of the model is: add precision 'nvfp4'/)
})
