// Sampler: steps with the results of transformers' logits processors, draws by seed, log probabilities, what is refused.
import t from 'tap'
import { Sampler } from '#lib/text/sampler.js'
import { draw } from '#lib/text/sampling-filters.js'
import type { SamplingOptions } from '#lib/text/sampling-options.js'
import { noLanguageData } from '../fixtures/text/golden-data.js'
import { goldenJson, goldenTensors } from '../fixtures/values/golden-bytes.js'

interface Case {
  readonly name: string
  readonly processor: string
  readonly params: Record<string, number>
  readonly kept: number[]
}

/** Options by transformers' names. */
const names: Record<string, keyof SamplingOptions> = {
  temperature: 'temperature',
  top_k: 'topK',
  top_p: 'topP',
  min_p: 'minP',
  typical_p: 'typicalP',
  repetition_penalty: 'repetitionPenalty',
  frequency_penalty: 'frequencyPenalty',
  presence_penalty: 'presencePenalty',
}

/** Rows without equal logits; which of several equal ones stays is up to the sort of torch. */
const isUnique = (row: number): boolean => row === 0 || row === 2
const { NEGATIVE_INFINITY: excluded } = Number

t.test('golden steps', { skip: noLanguageData }, async t => {
  const { cases } = goldenJson<{ cases: Case[] }>('lm-golden/sampling/golden.json')
  const tensor = goldenTensors('lm-golden/sampling/golden.safetensors')
  const rows = <T extends { subarray(begin: number, end: number): T }>(
    values: T,
    row: number,
    size: number,
  ): T => values.subarray(row * size, (row + 1) * size)
  const [logits, inputs] = [tensor('logits').data as Float32Array, tensor('input_ids').data as Int32Array]
  const isOurs = ({ params }: Case): boolean =>
    Object.keys(params).every(name => name in names || name === 'prompt_length')
  const ours = cases.filter(isOurs)
  t.equal(ours.length, 26)
  for (const { name, params, kept } of ours) {
    const wanted = tensor(`out.${name}`).data as Float32Array
    const { prompt_length: promptLength = 0, ...rest } = params
    const options = Object.fromEntries(Object.entries(rest).map(([key, value]) => [names[key], value]))
    for (let row = 0; row < 4; row++) {
      const ids = [...rows(inputs, row, 14)]
      const sampler = new Sampler({ ...options, prompt: ids.slice(0, promptLength) })
      for (const id of ids.slice(promptLength)) sampler.accept(id)
      const found = sampler.process(rows(logits, row, 128))
      const expected = rows(wanted, row, 128)
      const isKept = (value: number): boolean => value !== excluded
      const tolerance = (value: number): number => 2e-6 + 1e-6 * Math.abs(value)
      const near = (value: number, id: number): boolean =>
        !isKept(value) || !isKept(expected[id]!) || Math.abs(value - expected[id]!) <= tolerance(value)
      t.ok(found.every(near), `${name}, row ${row}: values`)
      const count = found.filter(isKept).length
      if (isUnique(row)) {
        t.equal(count, kept[row], `${name}, row ${row}: count`)
        t.ok(
          found.every((value, id) => isKept(value) === isKept(expected[id]!)),
          'the same tokens',
        )
      } else {
        const highest = (values: Iterable<number>): number[] =>
          [...values].filter(isKept).sort((a, b) => b - a)
        const [some, all] = [highest(found), highest(expected)]
        const same = some.every(
          (value, i) => i >= all.length || Math.abs(value - all[i]!) <= tolerance(value),
        )
        t.ok(
          same && Math.abs(some.length - all.length) <= 4,
          `${name}, row ${row}: ${some.length}, ${all.length}`,
        )
      }
    }
  }
})

t.test('golden log probabilities and greedy choice', { skip: noLanguageData }, async t => {
  const tensor = goldenTensors('lm-golden/sampling/golden.safetensors')
  const [logits, wanted] = [
    tensor('logits').data as Float32Array,
    tensor('log_softmax_f64').data as Float64Array,
  ]
  for (let row = 0; row < 4; row++) {
    const [given, expected] = [logits, wanted].map(values => values.subarray(row * 128, (row + 1) * 128))
    const sampler = new Sampler({ temperature: 0, logprobs: 128, repetitionPenalty: 1.5, prompt: [1, 2] })
    const { id, logprob, top } = sampler.sample(given as Float32Array)
    t.ok(Math.abs(logprob! - expected![id]!) < 1e-12, 'of the logits as the model gave them')
    t.equal(top!.length, 128)
    t.ok(top!.every(({ id: token, logprob: value }) => Math.abs(value - expected![token]!) < 1e-12))
    t.ok(top!.every(({ logprob: value }, i) => i === 0 || value <= top![i - 1]!.logprob))
  }
  const few = new Sampler({ temperature: 0, logprobs: 3 }).sample(Float32Array.of(1, 5, 5, 5, 5, 2))
  t.same(few.id, 1, 'the first of equal ones')
  t.same(
    few.top!.map(({ id }) => id),
    [1, 2, 3],
  )
  t.same(new Sampler({ temperature: 0 }).sample(Float32Array.of(1, 2)), { id: 1 })
  const one = new Sampler({ temperature: 0, logprobs: 0 }).sample(Float32Array.of(0, 0))
  t.same([one.logprob, one.top], [-Math.log(2), []])
})

t.test('golden draws', { skip: noLanguageData }, async t => {
  const tensor = goldenTensors('lm-golden/sampling/golden.safetensors')
  const [logits, uniforms] = [
    tensor('out.combo_llama3').data as Float32Array,
    tensor('draw.u').data as Float64Array,
  ]
  const tokens = tensor('draw.tokens').data as Int32Array
  for (let row = 0; row < 4; row++) {
    const given = Float64Array.from(logits.subarray(row * 128, (row + 1) * 128))
    t.same(
      Array.from(uniforms, u => draw(given, u)),
      [...tokens.subarray(row * 64, (row + 1) * 64)],
    )
  }
  t.equal(draw(Float64Array.of(0, 0, excluded), 1 - 2 ** -53), 1, 'rounding leaves no token that is excluded')
})

t.test('draws follow the probabilities, and the seed', async t => {
  const logits = Float32Array.from([0.5, 0.3, 0.2], p => Math.log(p))
  const draw = (seed: number, count: number): number[] => {
    const sampler = new Sampler({ seed })
    return Array.from({ length: count }, () => {
      const { id } = sampler.sample(logits)
      t.equal(sampler.sample(logits).id, id, 'the same until it is accepted')
      sampler.accept(id)
      return id
    })
  }
  const drawn = draw(7, 4000)
  for (const [id, p] of [0.5, 0.3, 0.2].entries()) {
    const share = drawn.filter(token => token === id).length / drawn.length
    t.ok(Math.abs(share - p) < 0.03, `token ${id}: ${share}`)
  }
  t.same(draw(7, 20), drawn.slice(0, 20), 'the same seed')
  t.not(String(draw(8, 40)), String(drawn.slice(0, 40)))
  t.not(String(draw(7 + 2 ** 32, 40)), String(drawn.slice(0, 40)), 'all bits of a seed count')
  t.same(drawn.slice(0, 12), [2, 0, 0, 0, 0, 0, 2, 0, 0, 1, 1, 1], 'on every machine')
  const unseeded = new Sampler()
  t.same(new Sampler({ seed: unseeded.seed }).sample(logits), unseeded.sample(logits))
})

t.test('biases and excluded tokens', async t => {
  const logits = Float32Array.of(3, 2, 1, excluded)
  const choose = (options: SamplingOptions): number => new Sampler({ seed: 1, ...options }).sample(logits).id
  t.equal(choose({ temperature: 0, logitBias: { 0: excluded } }), 1)
  t.equal(choose({ temperature: 0, logitBias: new Map([[2, 100]]) }), 2)
  t.equal(choose({ temperature: 0, logitBias: { 9: 100 } }), 0, 'a token beyond the logits')
  t.equal(choose({ topK: 1 }), 0)
  t.equal(choose({ topP: 0 }), 0)
  t.equal(choose({ minP: 1 }), 0)
  t.equal(choose({ temperature: 1e-5 }), 0)
  const sampler = new Sampler({ temperature: 50, seed: 3 })
  for (let i = 0; i < 200; i++) {
    t.not(sampler.sample(logits).id, 3)
    sampler.accept(0)
  }
  const extremes = new Sampler({ seed: 1, typicalP: 0.5, topP: 0.5 }).sample(Float32Array.of(3e38, -3e38, 0))
  t.equal(extremes.id, 0)
})

t.test('logits that no token can be chosen from', async t => {
  const sampler = new Sampler()
  for (const [values, message] of [
    [[0, Number.NaN, Number.NaN], /2 of 3 are NaN or Infinity, the first is NaN of token 1/],
    [[Number.POSITIVE_INFINITY, 1], /1 of 2 are NaN or Infinity, the first is Infinity of token 0/],
    [[excluded, excluded], /every token is excluded by the model/],
  ] as const) {
    const logits = Float32Array.from(values)
    t.throws(() => sampler.sample(logits), { code: 'ERR_NOT_FINITE', message })
    t.throws(() => sampler.process(logits), { code: 'ERR_NOT_FINITE', message })
  }
  const biased = new Sampler({ logitBias: { 0: excluded } })
  t.throws(() => biased.sample(Float32Array.of(1)), { code: 'ERR_NOT_FINITE', message: /by logitBias/ })
  t.throws(() => sampler.sample(new Float32Array()), { code: 'ERR_SHAPE' })
  t.throws(() => sampler.sample([1, 2] as never), { code: 'ERR_ARGUMENT', message: /Float32Array/ })
})

t.test('options that are refused', async t => {
  for (const [options, message] of [
    [{ temperature: -1 }, /temperature/],
    [{ temperature: 1e-30 }, /temperature other than 0/],
    [{ temperature: Number.NaN }, /temperature/],
    [{ topK: 1.5 }, /topK/],
    [{ topP: 1.1 }, /topP/],
    [{ minP: -0.1 }, /minP/],
    [{ typicalP: 2 }, /typicalP/],
    [{ repetitionPenalty: 0 }, /repetitionPenalty/],
    [{ presencePenalty: '1' }, /presencePenalty/],
    [{ frequencyPenalty: Number.POSITIVE_INFINITY }, /frequencyPenalty/],
    [{ logitBias: { a: 1 } }, /token id of logitBias/],
    [{ logitBias: { 3: Number.NaN } }, /logitBias of 3/],
    [{ logitBias: 3 }, /logitBias/],
    [{ seed: -1 }, /seed/],
    [{ logprobs: -1 }, /logprobs/],
    [{ prompt: [0.5] }, /token id of prompt/],
    [{ top_p: 0.9 }, /no option 'top_p' \(did you mean 'topP'\?\)/],
  ] as const)
    t.throws(() => new Sampler(options as never), { code: 'ERR_ARGUMENT', message }, String(message))
  t.throws(() => new Sampler().accept(-1), { code: 'ERR_ARGUMENT' })
})
