// What the bench makes of its rows: quantiles, comparison with an older run, a page; and the peers' syntax.
import { spawnSync } from 'node:child_process'
import { readdirSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { jsKernels } from '#lib/kernels/js/js.js'
import { format, measure, quantile, type Row, sample } from '../../bench/harness.js'
import { Operands } from '../../bench/operands.js'
import { compare, formatChange, html } from '../../bench/report.js'
import { has } from '../fixtures/checkout.js'

const row = (name: string, [p10Ms, medianMs, p90Ms]: [number, number, number]): Row => ({
  name,
  shape: '3x5',
  dtype: 'f32',
  device: 'cpu',
  medianMs,
  p10Ms,
  p90Ms,
  rate: 7,
  unit: 'GB/s',
  percentOfLimit: 50,
  spread: 0.5,
  noisy: false,
})
const limits = { copyGBs: 10, gemmGFLOPs: 100 }

t.test('samples are sorted, batched ones are times of one call', async t => {
  let calls = 0
  const single = await sample(() => new Promise(next => setTimeout(next, 2, ++calls)))
  t.equal(single.length + 2, calls, 'two calls warm up')
  t.ok(single.length >= 7)
  t.strictSame(
    single,
    [...single].sort((a, b) => a - b),
  )
  calls = 0
  let [flying, most] = [0, 0]
  const batched = await sample(async () => {
    ++calls
    most = Math.max(most, ++flying)
    await new Promise(next => setTimeout(next, 1))
    --flying
  }, true)
  t.ok(most > 1, 'calls overlap')
  t.equal((calls - 2) % batched.length, 0, 'all batches have one size')
  t.equal(quantile([1, 2, 3, 4, 5], 0.5), 3)
  t.equal(quantile([1, 2], 1), 2)
})

t.test('a row that is wrong is not timed', async t => {
  let calls = 0
  const bench = {
    name: 'cast',
    shape: '3',
    dtype: 'f32',
    bytes: 12,
    run: () => ++calls,
    check: () => {
      throw new Error('element 2 is 0')
    },
  }
  await t.rejects(measure(bench, limits), { message: 'element 2 is 0' })
  t.equal(calls, 1)
  const right = await measure({ ...bench, check: () => {}, sizes: { rows: 1, cols: 3 } }, limits)
  t.match(right, { name: 'cast', device: 'cpu', unit: 'GB/s', sizes: { rows: 1, cols: 3 } })
})

t.test('a noisy row says so', t => {
  t.match(
    format({ ...row('cast', [1, 2, 3]), noisy: true }),
    /cast +3x5 +f32 +cpu +2\.0 ms.*noisy: spread 50 %$/,
  )
  t.notMatch(format(row('cast', [1, 2, 3])), /noisy/)
  t.end()
})

t.test('comparison', t => {
  const rows = [row('amax', [0.9, 1, 1.1]), row('cast', [0.9, 1, 1.1]), row('new', [1, 1, 1])]
  const changes = compare(rows, [
    row('amax', [1.9, 2, 2.1]),
    row('cast', [1, 1.2, 1.3]),
    row('gone', [1, 1, 1]),
  ])
  t.match(changes, [
    { row: { name: 'amax' }, oldMs: 2, ratio: 2, certain: true },
    { row: { name: 'cast' }, oldMs: 1.2, certain: false },
  ])
  t.equal(changes.length, 2)
  t.match(formatChange(changes[0]!), /^amax +3x5 +f32 +2\.0 > 1\.0 ms +2\.00x$/)
  t.match(formatChange(changes[1]!), /1\.20x {2}within the spread$/)
  t.end()
})

t.test('the page needs no other file and escapes what it shows', t => {
  const peer = { ...row('linear', [1, 2, 3]), peer: 'PyTorch', ratio: 1.5 }
  const failed = { ...peer, error: '<b>out of memory</b>' }
  const report = {
    date: '2026-01-02T03:04:05.000Z',
    machine: { gpu: 'A & B', driver: null },
    limits,
    rows: [row('f32>bf16', [1, 2, 3])],
    peers: [peer, failed],
  }
  const page = html(report, compare(report.rows, report.rows))
  t.match(page, /f32&#62;bf16/)
  t.match(page, /A &#38; B/)
  t.match(page, /&#60;b&#62;out of memory/)
  t.match(page, /1\.50x/)
  t.match(page, /old over new/)
  t.notMatch(page, /(src|href)=/)
  t.notMatch(html({ ...report, peers: [] }, []), /old over new|peer over ours/)
  t.end()
})

t.test('weights rotate only where a cache is to be left', async t => {
  const weight = { format: 'f32' as const, rows: 1, cols: 3, data: new Float32Array(3) }
  const here = new Operands(jsKernels)
  const next = await here.rotate(weight)
  t.equal(next().data, weight.data)
  t.equal(next().data, weight.data)
  let live = 0
  const copying = {
    ...jsKernels,
    backend: 'cuda' as const,
    hold: async <A>(array: A) => {
      ++live
      return { array: structuredClone(array), dispose: () => --live }
    },
  }
  const there = new Operands(copying as never)
  const large = { ...weight, rows: 8192, cols: 2048, data: new Float32Array(8192 * 2048) }
  const turn = await there.rotate(large)
  const seen = Array.from({ length: 4 }, () => turn().data)
  t.equal(new Set(seen).size, 3, '192 MiB are 3 copies of 64 MiB')
  t.equal(seen[3], seen[0])
  there.dispose()
  t.equal(live, 0)
})

const noPython = has('python3') ? false : 'python3 is not installed'
t.test('the peers compile', { skip: noPython }, t => {
  const folder = path.resolve('bench/peers')
  const files = readdirSync(folder).filter(name => name.endsWith('.py'))
  t.ok(files.length >= 3)
  for (const file of files) {
    const script = `compile(open(${JSON.stringify(path.join(folder, file))}).read(), ${JSON.stringify(file)}, 'exec')`
    const { status, stderr } = spawnSync('python3', ['-c', script], { encoding: 'utf8' })
    t.equal(status, 0, `${file}: ${stderr}`)
  }
  t.end()
})
