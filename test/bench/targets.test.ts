// What rows should reach: goals, the rows that count, the page, and that the rows measure what the targets name.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import t from 'tap'
import { jsKernels } from '#lib/kernels/js/js.js'
import { bandwidth } from '../../bench/bandwidth.js'
import { near, nearProduct } from '../../bench/checks.js'
import { coldWeight } from '../../bench/cold.js'
import { counts, formatOutcome, judge, parseGoal, type Target } from '../../bench/goals.js'
import { instructionSets, measure, type Row } from '../../bench/harness.js'
import { targets } from '../../bench/targets.js'
import { targetsPage } from '../../bench/targets-page.js'
import { runScript } from '../fixtures/child.js'

const row = (changes: Partial<Row> = {}): Row => ({
  name: 'cast',
  shape: '3x5',
  dtype: 'f32',
  device: 'cpu',
  medianMs: 2,
  p10Ms: 1,
  p90Ms: 3,
  rate: 7,
  unit: 'GB/s',
  percentOfLimit: 50,
  spread: 0.1,
  noisy: false,
  ...changes,
})
const target = (goal: string, changes: Partial<Target> = {}): Target => ({
  name: 'a target',
  device: 'cpu',
  goal,
  rows: { name: 'cast' },
  ...changes,
})
const limits = { copyGBs: 10, gemmGFLOPs: 100 }

t.test('goals', t => {
  t.match(parseGoal('<= 1.10 x'), { most: true, number: 1.1, unit: 'x' })
  t.match(parseGoal('>= 80 %'), { most: false, number: 80, unit: '%' })
  t.match(parseGoal('<= 16 MB'), { number: 16, unit: 'MB' }, 'of a detail')
  for (const goal of ['1 x', '> 1 x', '>= x', '>= 1 y', '>= 1x'])
    t.throws(() => parseGoal(goal), /is no goal/)
  for (const { name, goal } of targets) t.ok(parseGoal(goal), name)
  t.equal(new Set(targets.map(({ name, device }) => name + device)).size, targets.length, 'names differ')
  t.end()
})

t.test('rows that count', t => {
  t.ok(counts(target('>= 1 x'), row()))
  t.notOk(counts(target('>= 1 x'), row({ device: 'cuda' })))
  t.notOk(counts(target('>= 1 x', { rows: { name: 'amax' } }), row()))
  t.notOk(counts(target('>= 1 x', { rows: { name: 'cast', shape: /^5/ } }), row()))
  t.notOk(counts(target('>= 1 x', { rows: { name: 'cast', dtype: /^bf16$/ } }), row()))
  t.end()
})

t.test('what becomes of a target', t => {
  const state = (goal: string, changes: Partial<Row>, more: Partial<Target> = {}, isas = ['avx512']) =>
    judge(target(goal, more), [row(changes)], isas)
  t.match(state('>= 1.8 x', { peerRatio: 1.8 }), { value: 1.8, state: 'reached' })
  t.match(state('>= 1.8 x', { peerRatio: 1.7 }), { value: 1.7, state: 'missed' })
  t.match(state('<= 1.25 x', { peerRatio: 0.8 }), { value: 1.25, state: 'reached' })
  t.match(state('<= 1.1 x', { peerRatio: 0.8 }), { value: 1.25, state: 'missed' })
  t.match(state('>= 80 %', {}), { value: 50, state: 'missed' })
  t.match(state('<= 3 ms', {}), { value: 2, state: 'reached' })
  t.match(state('<= 1999 µs', {}), { value: 2000, state: 'missed' })
  t.match(state('>= 0.007 TB/s', {}), { value: 0.007, state: 'reached' })
  t.match(state('>= 7 GFLOP/s', { unit: 'GFLOP/s' }), { state: 'reached' })
  t.match(state('>= 7 GFLOP/s', {}), { value: undefined, state: 'not measured' }, 'another unit')
  t.match(state('>= 1 x', {}), { state: 'not measured' }, 'no peer')
  t.match(state('>= 1 x', { peerRatio: 2 }, { needs: 'amx' }), { value: 2, state: 'this machine lacks amx' })
  t.match(state('>= 1 x', { peerRatio: 2 }, { needs: 'avx512' }), { state: 'reached' })
  const details = {
    RSS: { unit: 'MB' as const, ours: 30, peer: 20 },
    import: { unit: 'ms' as const, ours: 2, peer: 1 },
  }
  t.match(state('<= 1.4 x', { details, peerRatio: 1 }, { detail: 'RSS' }), { value: 1.5, state: 'missed' })
  t.match(state('<= 31 MB', { details }, { detail: 'RSS' }), { value: 30, state: 'reached' })
  t.match(state('<= 31 MB', { details }, { detail: 'import' }), { state: 'not measured' }, 'another unit')
  t.match(state('<= 3 ms', { details, medianMs: 9 }, { detail: 'import' }), { value: 2, state: 'reached' })
  t.match(state('<= 3 ms', { details }, { detail: 'none' }), { state: 'not measured' })
  const rows = [row({ peerRatio: 4 }), row({ peerRatio: 1 })]
  t.match(judge(target('>= 1.5 x'), rows, []), { value: 2, state: 'reached' }, 'the geometric mean')
  t.match(judge(target('>= 1.5 x', { of: 'worst' }), rows, []), { value: 1, state: 'missed' })
  t.match(judge(target('<= 0.5 x', { of: 'worst' }), rows, []), { value: 1, state: 'missed' })
  t.match(formatOutcome(judge(target('>= 1.5 x'), rows, [])), /^a target +>= 1\.5 x +2\.00 x {2}reached$/)
  t.match(formatOutcome(judge(target('>= 1.5 x'), [], [])), /– {2}not measured$/)
  t.end()
})

t.test('the page', t => {
  const machine = { cpu: 'A CPU', cores: 2, threads: 2, gpu: null, node: 'v20', commit: 'abc' }
  const merge = row({ name: 'dora merge cold', peerRatio: 0.1 })
  const report = { date: '2026-01-02T03:04:05.000Z', machine, limits, isas: ['avx2'], rows: [merge] }
  const page = targetsPage([report])
  t.match(page, /2026-01-02, A CPU, 2 cores, 2 threads, Node.js v20, commit abc; copy 10.0 GB\/s/)
  t.match(page, /\| DoRA merge over one copy of W[^|]*\| <= 2.5 x \| 10.0 x \| missed \|/)
  t.match(page, /- \*\*DoRA merge over one copy of W.*Limit: .*Next: /)
  t.match(page, /\| amax, of the read bandwidth \| >= 80 % \| – \| not measured \|/)
  t.match(page, /## GPU\n\nNot measured yet/)
  const gpu = { ...machine, gpu: 'A GPU', driver: '580' }
  const cuda = {
    ...report,
    machine: gpu,
    rows: [row({ name: 'cast', device: 'cuda', percentOfLimit: 85.4 })],
  }
  t.match(
    targetsPage([report, cuda]),
    /A GPU, driver 580.*\n.*\n[\s\S]*casts, of a device copy \| >= 85 % \| 85.4 % \| reached/,
  )
  t.end()
})

t.test('the page without a run', async t => {
  const folder = mkdtempSync(path.join(tmpdir(), 'dgx-spark-targets-'))
  t.teardown(() => rmSync(folder, { recursive: true }))
  const file = path.join(folder, 'targets.md')
  const script = `process.argv.push('--render', '--targets', ${JSON.stringify(file)}); await import('./bench/main.js')`
  const { code, stdout } = await runScript(script)
  t.equal(code, 0)
  t.equal(stdout.trim().split('\n').length, targets.length)
  t.match(readFileSync(file, 'utf8'), /^# Targets\n/)
})

t.test('sides take turns, and a rate is what the row counts', async t => {
  const order: string[] = []
  const side = (name: string) => ({ name, run: () => void order.push(name) })
  const bench = { name: 'a', shape: '', dtype: '', bytes: 8, elements: 4, check: () => {} }
  const measured = await measure({ ...bench, ...side('ours'), peer: side('peer') }, limits)
  t.match(measured, { unit: 'Gelement/s', peer: 'peer' })
  t.ok(measured.peerRatio! > 0)
  const turns = order.filter((name, i) => name !== order[i - 1])
  t.equal(turns.length, 32, 'the warm-up and fifteen rounds')
  const faster = { ...limits, threadGBs: 20, readGBs: 40 }
  const percent = async (bandwidth: 'copy' | 'read' | 'thread') => {
    const { percentOfLimit, medianMs } = await measure({ ...bench, bandwidth, run: () => {} }, faster)
    return Math.round((100 * 8) / medianMs / 1e6 / percentOfLimit)
  }
  t.strictSame([await percent('copy'), await percent('read'), await percent('thread')], [10, 40, 20])
  const found = [30, 50]
  const limit = async () => found.shift() ?? Number.NaN
  const { percentOfLimit, medianMs } = await measure({ ...bench, limit, run: () => {} }, faster)
  t.equal(Math.round((100 * 8) / medianMs / 1e6 / percentOfLimit), 40, 'measured before and after the row')
})

t.test('bandwidth, instruction sets, checks, cold weights', async t => {
  t.ok((await bandwidth(2, false)) > 0)
  t.ok((await bandwidth(1, true)) > 0)
  t.ok(instructionSets().every(name => ['avx2', 'avx512', 'amx', 'neon'].includes(name)))
  near(2, 2.001, 1e-3)
  t.throws(() => near(2, 2.1, 1e-3), /2 should be 2.1/)
  t.throws(() => near(undefined, 1, 1), /NaN/)
  const weight = { format: 'f32' as const, rows: 2, cols: 2, data: Float32Array.of(1, 2, 3, 4) }
  nearProduct(weight, Float32Array.of(1, 1), Float32Array.of(3, 7))
  t.throws(() => nearProduct(weight, Float32Array.of(1, 1), Float32Array.of(3, 8)), /8 should be 7/)
  const cold = await coldWeight(jsKernels, weight)
  t.strictSame(cold.next(), weight)
  cold.dispose()
})
