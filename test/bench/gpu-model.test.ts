// Estimates of a roofline by hand, work that is counted, and the page that is made of both.
import { readFileSync } from 'node:fs'
import path from 'node:path'
import { GraphBuilder, Tensor } from 'dgx-spark'
import t from 'tap'
import { calibrate, gpuModelPage, warning } from '../../bench/gpu-model/page.js'
import { published } from '../../bench/gpu-model/published.js'
import { errorOf, estimate, fit, roofs } from '../../bench/gpu-model/roofline.js'
import { timesOf } from '../../bench/gpu-model/winograd.js'
import { decodeWork, graphWork, languageCosts, prefillWork } from '../../bench/gpu-model/work.js'
import { root } from '../fixtures/docs/pages.js'

const machine = { name: 'toy', bandwidth: 100, flops: { f32: 10, bf16: 40 }, source: '' }
const work = { bytes: 200, flops: { bf16: 40, f32: 5 }, launches: 3 }

t.test('the highest roof is the estimate', async t => {
  const efficiency = { memory: 0.5, arithmetic: 0.25, launchSeconds: 2 }
  t.same(roofs(work, machine, efficiency), { memory: 4, arithmetic: 6, launches: 6 })
  t.equal(estimate(work, machine, { ...efficiency, memory: 0.25 }), 8)
  t.equal(estimate(work, machine, { ...efficiency, arithmetic: 0.1 }), 15)
  t.equal(estimate({ ...work, launches: 9 }, machine, efficiency), 18)
  t.equal(
    estimate({ bytes: 0, flops: { f16: 80 }, launches: 0 }, machine, { ...efficiency, arithmetic: 1 }),
    2,
    'f16 at the rate of bf16',
  )
  t.equal(errorOf({ work, machine, seconds: 4 }, efficiency), 0.5)
})

t.test('a fit is the geometric mean of the efficiencies of each roof', async t => {
  const of = (seconds: number) => ({ work, machine, seconds })
  // Floors are 2 s of memory and 1.5 s of arithmetic.
  const { memory, arithmetic, launchSeconds } = fit({
    memory: [of(2), of(8)],
    arithmetic: [of(6)],
    launches: [of(3), of(12)],
  })
  for (const [found, expected] of [
    [memory, 0.5],
    [arithmetic, 0.25],
    [launchSeconds, 2],
  ] as const)
    t.ok(Math.abs(found - expected) < 1e-12, `${found} for ${expected}`)
})

t.test('work of a language model', async t => {
  const sizes = { hidden: 64, inner: 128, layers: 2, heads: 4, kvHeads: 2, headSize: 16, vocabulary: 320 }
  // q and o of 64 x 64, k and v of 32 x 64, three matrices of 128 x 64.
  const [layers, head] = [2 * (2 * 4096 + 2 * 2048 + 3 * 8192), 320 * 64]
  const costs = languageCosts(sizes, 'BF16', true)
  const step = decodeWork(costs, 100, 3)
  // A token has 32 keys and 32 values of 2 bytes in each layer.
  t.equal(step.bytes, 2 * (layers + head) + 3 * 100 * 2 * 64 * 2)
  t.equal(step.flops.bf16, 3 * 2 * (layers + head))
  t.equal(step.flops.f16, 3 * 100 * 2 * 4 * 4 * 16)
  t.equal(step.launches, 2 * 12 + 10)
  const prompt = prefillWork(costs, 10)
  t.equal(prompt.flops.bf16, 2 * (10 * layers + head), 'the head for the last token')
  t.equal(prompt.flops.f16, 55 * 2 * 4 * 4 * 16, 'token i attends to i tokens')

  const untied = languageCosts(sizes, 'Q4_0', false)
  t.equal(decodeWork(untied, 0).bytes, ((layers + head) / 32) * 18)
  t.equal(decodeWork(languageCosts(sizes, 'F8_E4M3', true), 0).flops.f8_e4m3, 2 * (layers + head))
})

t.test('work of a graph after fusion', async t => {
  const g = new GraphBuilder()
  const x = g.input('x', 'f32', [4, 8])
  const w = g.initializer('w', Tensor.random([8, 16], { seed: 1 }))
  g.output(g.add('Relu', [g.add('MatMul', [x, w])]), 'y')
  const graph = g.build()
  t.same(await graphWork(graph, 'f32'), {
    bytes: 4 * 8 * 16 + 2 * 4 * 4 * 16,
    flops: { f32: 2 * 4 * 8 * 16 },
    launches: 1,
  })
  t.equal((await graphWork(graph, 'bf16')).bytes, 2 * 8 * 16 + 2 * 4 * 4 * 16)
})

t.test('half of what was published is not fitted, and large errors are said', async t => {
  const heldOut = published.filter(({ isFitted }) => !isFitted)
  t.ok(published.length >= 6)
  t.ok(2 * heldOut.length >= published.length)
  for (const roof of ['memory', 'arithmetic']) t.ok(heldOut.some(row => row.roof === roof))

  const net = { name: '', shape: 'driving_policy', dtype: '', machine, work, seconds: 3 }
  const efficiency = calibrate(published, [net, { ...net, shape: 'other', seconds: 30 }])
  t.equal(efficiency.launchSeconds, 1)
  const slower = heldOut.map(row => ({ ...row, seconds: row.seconds * 9 }))
  const moved = calibrate([...published.filter(({ isFitted }) => isFitted), ...slower], [net])
  t.same(moved, efficiency, 'rows that are held out change nothing')

  const exact = published.map(row => ({ ...row, seconds: estimate(row.work, row.machine, efficiency) }))
  t.equal(warning(exact, efficiency), undefined)
  const [first, ...others] = exact
  const wrong = { ...first!, name: 'a slow engine', seconds: 2 * first!.seconds }
  t.match(warning([wrong, ...others], efficiency), /more than 30 % in 1 of \d+ .*a slow engine: -50 %/)
})

t.test('times of a convolution by hand', async t => {
  // 100 positions, 10 channels and 30 filters: 540,000 operations.
  const cache = { machine, bytes: 57_000, bandwidth: 1000 }
  const efficiency = { memory: 0.5, arithmetic: 0.25, launchSeconds: 0 }
  const times = (bytes: number, bandwidth = 1000) =>
    timesOf([100, 10, 30, 9], { ...cache, bytes, bandwidth }, efficiency)
  const products = 540_000 / (0.25 * 40)
  // Tiles of 8,000 bytes and sums of 48,000; the image has 2,000 and the result 6,000, a filter 9 or 16 numbers.
  const inCache = 2000 / 50 + products / 2.25 + 6000 / 50 + 4e-6
  // Two blocks of 8 x 16 positions and 64 filters. They copy 2,408 bytes for each channel, a tile of 128 positions and filters 4,608.
  const blocks = (products * (2 * 128 * 64)) / 3000 / 2.25
  t.match(times(57_000), { direct: products, kernels: inCache, kernel: blocks })
  t.equal(times(56_000).kernels, 10_000 / 50 + products / 2.25 + 54_000 / 50 + 4e-6, 'from memory')

  const fast = timesOf([100, 10, 30, 9], cache, { ...efficiency, arithmetic: 1e9 })
  const slow = timesOf([100, 10, 30, 9], { ...cache, bandwidth: 1 }, { ...efficiency, arithmetic: 1e9 })
  t.match(slow, { direct: 10 * 4608, kernel: 2 * 10 * 2408 })
  t.equal(fast.direct, (8000 + 5400) / 50)
  t.equal(fast.kernel, (8000 + 9600) / 50)
})

t.test('docs/gpu-model.md is what the command prints', async t => {
  const text = readFileSync(path.join(root, 'docs/gpu-model.md'), 'utf8')
  t.equal(await gpuModelPage(), text, 'else run node bench/gpu-model/main.js docs/gpu-model.md')
})
