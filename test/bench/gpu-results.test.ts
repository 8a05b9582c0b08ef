// What is kept of a run on a GPU, and the page that is made of it.
import t from 'tap'
import { gpuResultsPage, mergeReports, resultName } from '../../bench/gpu-results.js'
import type { Row } from '../../bench/harness.js'
import type { Report } from '../../bench/report.js'

const row: Row = {
  name: 'dora norm',
  shape: '4096x4096 r64',
  dtype: 'bf16',
  device: 'cuda',
  medianMs: 0.5,
  p10Ms: 0.4,
  p90Ms: 0.6,
  rate: 67.1,
  unit: 'GB/s',
  percentOfLimit: 42,
  spread: 0.4,
  noisy: true,
  peer: 'LoRA',
  peerRatio: 2,
}
const report = (date: string, gpu: string): Report => ({
  date,
  machine: { gpu, driver: '580.1', commit: 'abc1234' },
  limits: { copyGBs: 160, gemmGFLOPs: 9000 },
  rows: [row],
  peers: [
    { ...row, peer: 'PEFT, eager', medianMs: 1, ratio: 2, rate: 33.6 },
    {
      ...row,
      ...{ peer: 'PEFT, compiled', medianMs: Number.NaN, ratio: undefined, rate: undefined },
      error: 'out of time',
    },
  ] as unknown as NonNullable<Report['peers']>,
})

t.test('a section for each run, the newest first', async t => {
  const [older, newer] = [
    report('2031-02-03T10:00:00Z', 'A GPU'),
    report('2031-04-05T10:00:00Z', 'Other (TM) GPU'),
  ]
  t.equal(resultName(older), '2031-02-03-a-gpu.json')
  t.equal(resultName(newer), '2031-04-05-other-tm-gpu.json')
  const page = gpuResultsPage([older, newer])
  t.ok(page.indexOf('2031-04-05, Other (TM) GPU') < page.indexOf('2031-02-03, A GPU'))
  t.match(page, /Driver 580.1, commit abc1234; copy 160 GB\/s, fastest GEMM 9000 GFLOP\/s\./)
  t.match(
    page,
    /\| dora norm \| 4096x4096 r64 \| bf16 \| 0\.5\d* ms \| 67\.1 GB\/s \| 42 % \| 2\.00x LoRA \| .*spread/,
  )
  t.match(page, /\| dora norm .* \| 33\.6 GB\/s \| {2}\| 2\.00x PEFT, eager \| {2}\|/)
  t.match(page, /\| out of time \| {2}\| {2}\| PEFT, compiled \|/)
})

t.test('runs of one day on one GPU are kept together', async t => {
  const merged = mergeReports([
    report('2031-02-03T10:00:00Z', 'A GPU'),
    report('2031-02-03T11:00:00Z', 'A GPU'),
  ])
  t.same([...merged.keys()], ['2031-02-03-a-gpu.json'])
  const [kept] = merged.values()
  t.match(kept, { date: '2031-02-03T10:00:00Z' })
  t.equal(kept!.rows.length, 2)
  t.equal(kept!.peers!.length, 4)
})
