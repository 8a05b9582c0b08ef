// docs/compatibility.md is what its script makes of the reports beside it.
import { spawnSync } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { readReport } from '#lib/diagnostics/report/read.js'
import { type HardwareReport, reportText } from '#lib/diagnostics/report/report.js'
import { compatibilityPage, reportName } from '../fixtures/docs/compatibility-page.js'
import { root } from '../fixtures/docs/pages.js'

const folder = path.join(root, 'docs/compatibility')
const reports = readdirSync(folder).map(name => {
  const text = readFileSync(path.join(folder, name), 'utf8')
  return { name, text, report: readReport(name, text) }
})

t.test('the page shows the reports', async t => {
  t.ok(reports.length > 0)
  const text = readFileSync(path.join(root, 'docs/compatibility.md'), 'utf8')
  t.equal(compatibilityPage(reports), text, 'else run npm run docs:compatibility')
  for (const { name, text, report } of reports) {
    t.equal(reportName(report), name)
    t.equal(reportText(report), text, `${name} is as it was written`)
  }
})

t.test('reports of several machines', async t => {
  const [{ report }] = reports as [(typeof reports)[number]]
  const gpu = {
    index: 0,
    name: 'NVIDIA GB10',
    computeCapability: '12.1',
    driver: '580.95.05',
    cuda: '13.0',
    memoryGiB: 119.7,
    sharesMemory: true,
    problem: null,
  }
  const row = { section: 'kernels', device: 'gpu 0', reason: 'x', measured: null } as const
  const failing: HardwareReport = {
    ...report,
    gpus: [gpu],
    machine: { ...report.machine, os: 'Ubuntu | 24.04', arch: 'arm64', cpu: null },
    counts: { passed: 1, failed: 7, skipped: 0 },
    rows: Array.from({ length: 7 }, (_, i) => ({ ...row, name: `case ${i}`, status: 'failed' as const })),
  }
  t.equal(reportName(failing), 'nvidia-gb10-580.95.05-ubuntu-24.04-arm64.json')
  const none = { name: 'none.json', report: { ...report, gpus: [] } }
  const lines = compatibilityPage([none, { name: 'a.json', report: failing }])
    .trim()
    .split('\n')
    .slice(-2)
  t.match(
    lines[0],
    /^\| NVIDIA GB10 \(12\.1\) \| 580\.95\.05, CUDA 13\.0 \| Ubuntu \\\| 24\.04, .*1 passed, 7 failed/,
  )
  t.match(lines[0], /gpu 0: case 4 and 2 more .*\[report\]\(compatibility\/a\.json\) \|$/)
  t.match(lines[1], /^\| no GPU \| – \| /, 'last')
})

t.test('what is no report is not added', async t => {
  const script = path.join(root, 'test/fixtures/docs/compatibility.js')
  const { status, stderr } = spawnSync(process.execPath, [script, path.join(root, 'package.json')], {
    encoding: 'utf8',
  })
  t.equal(status, 1)
  t.match(stderr, /package\.json is no hardware report/)
})
