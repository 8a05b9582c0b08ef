// What a step of generation costs on a GPU, counted: launches and blocks on the fake driver, bytes by the operands of the plan.
import t from 'tap'
import { launchesPerLayer, otherLaunches } from '../../bench/gpu-model/work.js'
import { stepLaunches } from '../../bench/gpu-static/launches.js'
import { gpus } from '../../bench/gpu-static/occupancy.js'
import { decodeTraffic, prefillTraffic } from '../../bench/gpu-static/plans.js'
import { matrixElements } from '../../bench/random-llama.js'
import { FakeDriver, noCudaCalls } from '../fixtures/fake-driver/fake-driver.js'
import { generateTokens } from '../fixtures/text/step-launches.js'

const sizes = { hidden: 256, inner: 512, layers: 1, heads: 4, kvHeads: 2, headSize: 64, vocabulary: 320 }
/** Bytes of an element of a matrix. */
const formats = { BF16: 2, FP8: 1, NVFP4: 36 / 64, Q4_K: 144 / 256, Q4_0: 18 / 32 } as const
const names = Object.keys(formats) as (keyof typeof formats)[]

t.test('a step reads weights, keys and values once, and little else', async t => {
  const large = { ...sizes, hidden: 1024, inner: 2048, heads: 16, kvHeads: 4 }
  const contexts = [0, 1000]
  const embedding = large.vocabulary * large.hidden
  for (const format of names) {
    const norms = 4 * 3 * large.hidden
    for (const [i, { moved, minimum }] of (await decodeTraffic(format, large, contexts)).entries()) {
      const cache = 2 * 2 * (contexts[i]! + 1) * large.kvHeads * large.headSize
      const layers = formats[format] * (matrixElements(large) - embedding)
      const read = layers + (format === 'FP8' ? 2 : formats[format]) * embedding + norms + cache
      t.ok(Math.abs(minimum / read - 1) < 0.01, `${format}: ${minimum} bytes, ${read} by its sizes`)
      t.ok(moved <= 1.1 * minimum, `${format} behind ${contexts[i]}: ${moved} of at least ${minimum} bytes`)
    }
  }
})

t.test('a prompt moves activations in 16 bits where products alone read them', async t => {
  const { hidden, inner, heads, kvHeads, headSize } = sizes
  const prompts = [300, 600]
  const [one, two] = [
    await prefillTraffic('Q4_0', { ...sizes, layers: 1 }, prompts),
    await prefillTraffic('Q4_0', { ...sizes, layers: 2 }, prompts),
  ]
  const [queries, keys] = [heads * headSize, kvHeads * headSize]
  const norms = 2 * (4 + 2) * hidden
  const attention = 3 * 2 * hidden + (4 + 4) * (queries + 2 * keys) + 4 * headSize + 2 * queries
  const output = 2 * queries + (4 + 4) * hidden
  const gated = 2 * 2 * hidden + (4 + 4 + 2) * inner + 2 * inner + (4 + 4) * hidden
  for (const [i, tokens] of prompts.entries()) {
    const bytes = two[i]!.bytes - one[i]!.bytes
    const expected = tokens * (norms + attention + output + gated)
    t.ok(Math.abs(bytes / expected - 1) < 0.01, `${tokens} tokens: ${bytes} bytes, ${expected} by the sizes`)
    const launches = two[i]!.launches - one[i]!.launches
    t.equal(launches, launchesPerLayer - 1, `${tokens} tokens: no chunks are merged, no rows packed`)
  }
})

t.test('a prompt in NVFP4 rounds the rows of a normalization once', async t => {
  const { hidden, inner, heads, kvHeads, headSize } = sizes
  const tokens = 300
  const [one, two] = [
    await prefillTraffic('NVFP4', { ...sizes, layers: 1 }, [tokens], 'nvfp4'),
    await prefillTraffic('NVFP4', { ...sizes, layers: 2 }, [tokens], 'nvfp4'),
  ]
  // The rows of attention and of the gated product have a launch of their own each.
  t.equal(two[0]!.launches - one[0]!.launches, launchesPerLayer + 1)
  const [queries, keys, codes] = [heads * headSize, kvHeads * headSize, 9 / 16]
  const norms = 2 * (4 + codes) * hidden
  const attention = 3 * codes * hidden + (4 + 4) * (queries + 2 * keys) + 4 * headSize + 4 * queries
  const output = (4 + 2 * codes) * queries + (4 + 4) * hidden
  const gated = 2 * codes * hidden + (4 + 4 + 4) * inner + (4 + 2 * codes) * inner + (4 + 4) * hidden
  const expected = tokens * (norms + attention + output + gated)
  const bytes = two[0]!.bytes - one[0]!.bytes
  t.ok(Math.abs(bytes / expected - 1) < 0.01, `${bytes} bytes, ${expected} by the sizes`)

  const scaled = { ...sizes, inputScale: 1 }
  const [first, second] = [
    await prefillTraffic('NVFP4', { ...scaled, layers: 1 }, [tokens, 1, 64], 'nvfp4'),
    await prefillTraffic('NVFP4', { ...scaled, layers: 2 }, [tokens, 1, 64], 'nvfp4'),
  ]
  const rounded = 'attention and the gated product round their results'
  t.equal(second[0]!.launches - first[0]!.launches, launchesPerLayer - 1, rounded)
  const saved = tokens * (inner + queries) * (4 + 4)
  t.equal(bytes - (second[0]!.bytes - first[0]!.bytes), saved, 'f32 that nobody writes and reads any more')
  for (const i of [1, 2])
    t.equal(second[i]!.launches - first[i]!.launches, launchesPerLayer, 'as many where chunks are merged')
})

t.test('launches of a step, printed', { skip: noCudaCalls }, async t => {
  const launches = stepLaunches('Q4_0', { ...sizes, prompt: 4 }) ?? []
  t.equal(launches.length, launchesPerLayer + otherLaunches)
  t.match(launches.at(-1), { kernel: /^linear_mma_8_q4_0$/, blocks: sizes.vocabulary / 16 })
})

t.test('launches', { skip: noCudaCalls }, async t => {
  const fakeDriver = new FakeDriver(['cuda', 'nvml'])
  t.teardown(() => fakeDriver.dispose())
  const step = (format: keyof typeof formats, changes: object) =>
    generateTokens(fakeDriver, format, { ...sizes, ...changes })
  const [one, two] = [1, 2].map(layers => step('BF16', { layers, prompt: 4 }).kernels) as [number, number]
  t.equal(two - one, launchesPerLayer, 'launches of a layer')
  t.equal(2 * one - two, otherLaunches, 'launches around the layers')
  for (const format of names.slice(1)) t.equal(step(format, { prompt: 4 }).kernels, one, format)
  /** Blocks of attention behind a prompt, with and without keys. */
  const blocks = (prompt: number) => {
    const { all, kernels } = step('Q4_0', { heads: 32, kvHeads: 8, headSize: 128, prompt })
    return all.slice(-kernels).find(({ kernel }) => kernel.startsWith('paged_attention_'))?.blocks ?? 0
  }
  const prompt = step('BF16', { layers: 2, prompt: 300 }).all
  t.equal(prompt.filter(({ kernel }) => kernel === 'linear_mma_bf16').length, 14, 'products of a prompt')
  t.strictSame(
    prompt.filter(({ kernel }) => kernel.startsWith('pack_')),
    [],
    'no rows are packed',
  )
  const filled = 0.9 * gpus['121f'].multiprocessors
  t.ok(blocks(4096) >= filled, 'attention behind 4,096 tokens fills a GB10')
  // A table of 512 tokens is the shortest: blocks are two chunks of 256 for each of 32 heads.
  t.equal(blocks(4), 64, 'attention behind few tokens has a block for each head')
})
