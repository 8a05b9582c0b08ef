// Native sampling of rows: the tokens, log probabilities and errors of Sampler for any logits, seeds and settings.
import t, { type Test } from 'tap'
import { SparkError } from '#lib/core/errors.js'
import { loadAddon } from '#lib/native.js'
import { sampleRows } from '#lib/text/native-sampler.js'
import { type SampledToken, Sampler } from '#lib/text/sampler.js'
import type { SamplingOptions } from '#lib/text/sampling-options.js'
import { noLanguageData } from '../fixtures/text/golden-data.js'
import { goldenTensors } from '../fixtures/values/golden-bytes.js'
import { randomGenerator } from '../fixtures/values/random.js'

const random = randomGenerator(21)
const below = (limit: number): number => Math.floor(random() * limit)
const pick = <T>(...choices: readonly T[]): T => choices[below(choices.length)]!
const { NEGATIVE_INFINITY: excluded } = Number

/** Logits of some spread, with equal ones among them and excluded ones. */
function logitsOf(vocabulary: number): Float32Array {
  const spread = pick(0.1, 3, 12, 60)
  const isCoarse = random() < 0.3
  return Float32Array.from({ length: vocabulary }, (_, id) => {
    if (id > 0 && random() < 0.05) return excluded
    const logit = spread * (random() + random() + random() - 1.5)
    return isCoarse ? Math.round(logit) : logit
  })
}

function settingsOf(vocabulary: number): SamplingOptions {
  return {
    temperature: pick(0, 1, 0.7, 1.3, 1e-5, 100),
    topK: pick(0, 0, 1, 3, 40, 1000),
    topP: pick(1, 1, 0, 0.5, 0.95, 0.9999999),
    minP: pick(0, 0, 0.05, 1),
    typicalP: pick(1, 1, 0, 0.3, 0.95),
    repetitionPenalty: pick(1, 1.3, 0.8),
    presencePenalty: pick(0, 0.6),
    frequencyPenalty: pick(0, -0.4),
    logitBias: pick({}, { [below(vocabulary + 2)]: pick(5, -5, excluded) }),
    seed: below(2 ** 40),
    logprobs: pick(undefined, 0, 5, 2 * vocabulary > 1000 ? 17 : 2 * vocabulary),
    prompt: Array.from({ length: below(6) }, () => below(vocabulary + 2)),
  } as SamplingOptions
}

/** What the reference does with a row. */
function reference(sampler: Sampler, logits: Float32Array): SampledToken | SparkError {
  try {
    return sampler.sample(logits)
  } catch (error) {
    return error as SparkError
  }
}

/** Asserts that tokens are the same; exponentials may differ in their last bits. */
function same(
  t: Test,
  found: SampledToken | SparkError,
  wanted: SampledToken | SparkError,
  name: string,
): void {
  if (wanted instanceof SparkError || found instanceof SparkError) {
    t.ok(wanted instanceof SparkError && found instanceof SparkError, `${name}: both refuse`)
    t.equal((found as SparkError).message, (wanted as SparkError).message, name)
    return
  }
  const near = (a: number, b: number): boolean => a === b || Math.abs(a - b) <= 1e-12 * (1 + Math.abs(b))
  const top = wanted.top?.map(({ id }) => id)
  t.equal(found.id, wanted.id, name)
  t.same(
    found.top?.map(({ id }) => id),
    top,
    `${name}: the likeliest`,
  )
  t.equal(found.logprob === undefined, wanted.logprob === undefined)
  const isNear = near(found.logprob ?? 0, wanted.logprob ?? 0)
  t.ok(
    isNear && (found.top ?? []).every(({ logprob }, i) => near(logprob, wanted.top![i]!.logprob)),
    `${name}: log`,
  )
}

t.test('any rows', { skip: loadAddon().addon ? false : 'no addon' }, async t => {
  for (const vocabulary of [1, 2, 7, 128, 1500]) {
    for (let round = 0; round < 8; round++) {
      const options = Array.from({ length: 1 + below(5) }, () => settingsOf(vocabulary))
      const samplers = options.map(settings => new Sampler(settings))
      for (let step = 0; step < 4; step++) {
        const rows = samplers.map(() => logitsOf(vocabulary))
        if (random() < 0.2) rows[0]![below(vocabulary)] = pick(Number.NaN, Number.POSITIVE_INFINITY)
        if (random() < 0.1) rows.at(-1)!.fill(excluded)
        const logits = new Float32Array(vocabulary * rows.length)
        for (const [i, row] of rows.entries()) logits.set(row, i * vocabulary)
        const found = await sampleRows(samplers, logits)
        for (const [i, sampler] of samplers.entries()) {
          const wanted = reference(sampler, rows[i]!)
          same(t, found[i]!, wanted, `${vocabulary} tokens, ${JSON.stringify(options[i])}, step ${step}`)
          sampler.accept(wanted instanceof SparkError ? below(vocabulary) : wanted.id)
        }
      }
    }
  }
})

t.test('golden logits', { skip: noLanguageData }, async t => {
  const logits = goldenTensors('lm-golden/sampling/golden.safetensors')('logits').data as Float32Array
  for (const options of [
    { topK: 5 },
    { topP: 0.8, temperature: 0.7 },
    { minP: 0.1 },
    { typicalP: 0.6, logprobs: 3 },
    { temperature: 0, repetitionPenalty: 2, prompt: [1, 2, 3] },
  ])
    for (let seed = 0; seed < 20; seed++) {
      const samplers = [0, 1, 2, 3].map(row => new Sampler({ ...options, seed: 4 * seed + row }))
      const found = await sampleRows(samplers, logits)
      for (const [row, sampler] of samplers.entries())
        same(
          t,
          found[row]!,
          sampler.sample(logits.subarray(row * 128, (row + 1) * 128)),
          JSON.stringify(options),
        )
    }
})

t.test('logits that numbers cannot hold are no danger', async t => {
  const logits = Float32Array.of(3e38, 1, -3e38, 3e38)
  const huge = { 0: 1e308, 1: 1e308, 2: -1e308 }
  for (const filter of [{}, { topP: 0.5 }, { typicalP: 0.5 }, { minP: 0.5 }, { topK: 2 }]) {
    const sampler = new Sampler({ ...filter, logitBias: huge, temperature: 1e-5, seed: 1 })
    const [token] = await sampleRows([sampler], logits)
    t.ok(!(token instanceof SparkError) && [0, 1].includes(token!.id), JSON.stringify(filter))
  }
})

t.test('what is refused', async t => {
  t.same(await sampleRows([], new Float32Array()), [])
  const two = [new Sampler(), new Sampler()]
  await t.rejects(sampleRows(two, new Float32Array(5)), { code: 'ERR_SHAPE', message: /5 elements.*2 rows/ })
  await t.rejects(sampleRows([], new Float32Array(5)), { code: 'ERR_SHAPE' })
  await t.rejects(sampleRows(two, [1, 2] as never), { code: 'ERR_ARGUMENT', message: /Float32Array/ })
  const [empty] = await sampleRows([two[0]!], new Float32Array())
  t.match(empty, { code: 'ERR_SHAPE' })
})
