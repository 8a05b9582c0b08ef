// verify --report: the rows of the checklist, what is private, the page as a browser shows it.
import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { homedir, hostname, networkInterfaces, tmpdir, userInfo } from 'node:os'
import path from 'node:path'
import t, { type Test } from 'tap'
import { reportPage } from '#lib/cli/report-page/page.js'
import { kernelVersion } from '#lib/diagnostics/report/machine.js'
import { readReport } from '#lib/diagnostics/report/read.js'
import { redact } from '#lib/diagnostics/report/redact.js'
import { type HardwareReport, reportText } from '#lib/diagnostics/report/report.js'
import { row } from '#lib/diagnostics/report/row.js'
import { loadAddon } from '#lib/native.js'
import { Browser, noBrowser } from '../fixtures/browser.js'
import { FakeDriver, noCudaCalls } from '../fixtures/fake-driver/fake-driver.js'
import { FakeRoot, gb10Pci, profile } from '../fixtures/machine.js'

const root = path.resolve(import.meta.dirname, '../..')
const main = path.join(root, 'dist/cli/main.js')
const noAddon = loadAddon().addon ? false : 'the addon is not built'

const folder = mkdtempSync(path.join(tmpdir(), 'verify-report-'))
const home = path.join(folder, 'home-of-somebody')
const project = path.join(folder, 'secret project')
for (const each of [home, project]) mkdirSync(each)
t.teardown(() => rmSync(folder, { recursive: true, force: true }))

/** `verify --report` for a JSON file and a page; its texts and its report. */
function verify(env: Record<string, string> = {}) {
  const args = ['--no-warnings', main, 'verify', '--report', 'out.json', '--report', 'out.html']
  const { status, stderr, stdout } = spawnSync(process.execPath, args, {
    cwd: project,
    encoding: 'utf8',
    timeout: 300_000,
    env: { PATH: process.env.PATH!, HOME: home, ...env },
  })
  const texts = ['out.json', 'out.html'].map(name => readFileSync(path.join(project, name), 'utf8'))
  const report: HardwareReport = JSON.parse(texts[0]!)
  const rows = (section: string, device = '') =>
    report.rows.filter(each => each.section === section && (device === '' || each.device === device))
  return { status, stderr, stdout, texts, report, rows }
}

/** What must not be in a report: as whole words, and anywhere. */
const words = [hostname(), hostname().split('.')[0]!, userInfo().username]
const parts = [folder, home, project, 'home-of-somebody', 'secret project', root, homedir(), 'SECRET-SERIAL']
const addresses = Object.values(networkInterfaces()).flatMap(list => (list ?? []).map(({ mac }) => mac))

function claimNothingPrivate(t: Test, texts: readonly string[], others: readonly string[] = []): void {
  for (const text of texts) {
    const found = new Set(text.toLowerCase().match(/[\p{L}\p{N}_-]+(?:\.[\p{L}\p{N}_-]+)*/gu))
    for (const each of words) t.notOk(found.has(each.toLowerCase()), `a name: ${each}`)
    for (const each of [...parts, ...others, ...addresses.filter(mac => !/^(00:)+00$/.test(mac))])
      t.notOk(text.includes(each), each)
    t.notMatch(text, /[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/i)
    t.notMatch(text, /\b[0-9a-f]{2}([:-][0-9a-f]{2}){5}\b/i)
  }
}

t.test('this machine', { skip: noAddon }, async t => {
  const { status, stderr, stdout, texts, report, rows } = verify()
  t.equal(status, 0, stderr)
  t.match(stdout, /cpu: \d+ passed/)
  t.match(stderr, /out\.json: \d+ checks passed, 0 failed, \d+ skipped\n.*out\.html: /)
  claimNothingPrivate(t, texts)
  t.same(readReport('out.json', texts[0]!), report, 'it can be read')
  t.same(Object.keys(report), [
    'format',
    'version',
    'library',
    'node',
    'date',
    'machine',
    'gpus',
    'counts',
    'rows',
  ])
  t.same(Object.keys(report.machine), [
    'os',
    'platform',
    'arch',
    'kernel',
    'isDgxSpark',
    'product',
    'cpu',
    'cores',
    'cpuIsa',
    'memoryGiB',
  ])
  for (const each of report.rows) {
    t.same(Object.keys(each), ['section', 'device', 'name', 'status', 'reason', 'measured'])
    if (each.status !== 'passed') t.type(each.reason, 'string', `${each.name} says why it was ${each.status}`)
  }
  const count = (status: string) => report.rows.filter(each => each.status === status).length
  t.same(report.counts, { passed: count('passed'), failed: 0, skipped: count('skipped') })
  t.match(rows('detection').find(({ name }) => name === 'native addon')?.reason, /^dgx_spark.node|\.node$/)
  const bandwidths = rows('memory', 'cpu').filter(({ measured }) => measured)
  for (const { measured } of bandwidths) t.match(measured, { unit: 'GB/s', allowed: null })
  t.ok(bandwidths.length >= 2 && bandwidths.every(({ measured }) => measured!.value > 0.01))
  t.ok(rows('kernels', 'cpu').length > 200)
  for (const precision of ['bf16', 'f16', 'fp8', 'nvfp4'])
    t.ok(
      rows('kernels').some(({ name }) => name.includes(precision)),
      precision,
    )
  if (report.gpus.length === 0) {
    t.match(rows('graph capture'), [{ status: 'skipped', reason: 'there is no GPU that kernels run on' }])
    t.match(rows('monitor fields', 'machine'), [{ status: 'skipped', reason: 'there is no NVIDIA GPU' }])
  }
})

t.test('a GB10 played by fake drivers', { skip: noCudaCalls }, async t => {
  const fakeDriver = new FakeDriver()
  const spark = new FakeRoot({
    dmi: { vendor: 'NVIDIA', product: 'NVIDIA_DGX_Spark', family: 'DGX Spark' },
    pci: [gb10Pci],
    files: {
      'proc/meminfo': 'MemTotal: 127535932 kB\nMemAvailable: 101234567 kB\n',
      'etc/os-release': 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 24.04.3 LTS"\n',
      'etc/dgx-release': 'DGX_NAME="DGX Spark"\nDGX_SERIAL_NUMBER="SECRET-SERIAL"\n',
      'proc/4242/comm': 'secret-process\n',
    },
  })
  t.teardown(() => {
    fakeDriver.dispose()
    spark.dispose()
  })
  const machine = profile('gb10')
  const { status, texts, report, rows } = verify({
    ...fakeDriver.env(machine),
    DGX_SPARK_SYSFS_ROOT: spark.path,
  })
  t.equal(status, 1, 'the kernels of a fake driver compute nothing')
  claimNothingPrivate(t, texts, [String(machine.gpus[0]!.uuid), 'secret-process', '4242', spark.path])
  t.match(report.machine, { os: 'Ubuntu 24.04.3 LTS', isDgxSpark: true, product: /DGX Spark/ })
  t.match(report.gpus, [
    { name: 'NVIDIA GB10', computeCapability: '12.1', driver: '580.95.05', cuda: '13.0', sharesMemory: true },
  ])
  t.match(rows('memory', 'gpu 0')[0], {
    name: 'kinds of memory',
    status: 'passed',
    reason: /^weights and arena: /,
  })
  const speeds = rows('memory', 'gpu 0').filter(({ name }) => /^(device|pinned|managed): /.test(name))
  t.equal(speeds.length, 6)
  t.match(rows('memory', 'gpu 0').at(-1), { name: 'copy by a kernel', status: 'failed', reason: /differs/ })
  t.match(rows('graph capture'), [
    { device: 'gpu 0', status: 'failed', reason: /run 1 differs from the CPU/ },
  ])
  t.ok(rows('kernels', 'gpu 0').some(({ status }) => status === 'failed'))
  const field = (name: string) => rows('monitor fields', 'gpu 0').find(each => each.name === name)
  for (const name of ['utilization', 'temperature', 'power', 'SM clock', 'processes'])
    t.equal(field(name)?.status, 'passed', name)
  t.match(field('memory'), {
    status: 'skipped',
    reason: 'not supported: NVML says Not Supported; the memory of the machine is shown',
  })
  t.match(field('memory clock'), { status: 'skipped', reason: /Not Supported/ })
  const off = verify({
    ...fakeDriver.env(machine),
    DGX_SPARK_SYSFS_ROOT: spark.path,
    DGX_SPARK_CUDA_GRAPHS: '0',
  })
  t.match(off.rows('graph capture'), [{ status: 'skipped', reason: /DGX_SPARK_CUDA_GRAPHS=0/ }])
})

t.test('wrong usage', async t => {
  const { status, stderr } = spawnSync(process.execPath, [main, 'verify', '--report', 'out.txt'], {
    encoding: 'utf8',
  })
  t.equal(status, 2)
  t.match(stderr, /ends in \.json or \.html/)
})

t.test('what is private is taken out', async t => {
  const own = {
    names: ['spark-7f3a', 'spark-7f3a.lab.example', 'alice'],
    folders: ['/srv/our work/x', '/home/alice', '/tmp'],
  }
  const cases = [
    ['/srv/our work/x/build/Release/dgx_spark.node', 'dgx_spark.node'],
    ['cannot open /home/alice/.cache/dgx-spark/fp4.json: no', 'cannot open fp4.json: no'],
    ['rm /usr/lib/x86_64/libcuda.so.1, then', 'rm libcuda.so.1, then'],
    ['/dev/nvidia0, /dev/nvidiactl can be opened', 'nvidia0, nvidiactl can be opened'],
    ['in /tmp', 'in …'],
    ['C:\\Users\\Alice\\x.node is missing', 'x.node is missing'],
    ['GPU-6f1a2b3c-4d5e-6f70-8192-a3b4c5d6e7f8 is lost', '<uuid> is lost'],
    ['at 3c:6D:66:01:02:03, 0000000F:01:00.0', 'at <address>, 0000000F:01:00.0'],
    ['Alice@spark-7f3a.lab.example. malice alice-2', '<name>@<name>. malice alice-2'],
    ['12.5 GB/s and/or 1/2 (https://example.org/a/b)', '12.5 GB/s and/or 1/2 (https://example.org/a/b)'],
    ['DGX Spark, NVIDIA GB10', 'DGX Spark, NVIDIA GB10'],
  ] as const
  for (const [text, expected] of cases) t.equal(redact(text, own), expected)
  t.equal(kernelVersion('6.17.0-1008-nvidia'), '6.17.0-1008-nvidia')
  t.equal(kernelVersion('6.1.0-13-cloud-amd64'), '6.1.0-13-cloud-amd64')
  t.equal(kernelVersion('6.8.4-alice+'), '6.8.4')
  t.equal(kernelVersion('x'), 'unknown')
})

/** A report with something hostile in every text. */
const hostile = '</table><img src=x onerror="document.title=1">\u202e&'
const sample: HardwareReport = {
  format: 'dgx-spark hardware report',
  version: 1,
  library: '0.1.0',
  node: 'v20.0.0',
  date: '2026-01-31',
  machine: {
    os: hostile,
    platform: 'linux',
    arch: 'arm64',
    kernel: '6.17.0',
    isDgxSpark: true,
    product: 'NVIDIA DGX Spark',
    cpu: '10 × Cortex-X925, 10 × Cortex-A725',
    cores: 20,
    cpuIsa: 'neon',
    memoryGiB: 121.6,
  },
  gpus: [
    {
      index: 0,
      name: hostile,
      computeCapability: '12.1',
      driver: '580.95.05',
      cuda: '13.0',
      memoryGiB: 119.7,
      sharesMemory: true,
      problem: null,
    },
  ],
  counts: { passed: 4, failed: 1, skipped: 1 },
  rows: [
    row('detection', 'machine', 'native addon', 'passed', hostile),
    row('memory', 'cpu', 'copy by 20 threads', 'passed', null, { value: 98.5, unit: 'GB/s', allowed: null }),
    row('kernels', 'gpu 0', 'linear f32 3x5', 'passed', null, {
      value: 1e-7,
      unit: 'relative error',
      allowed: 1e-6,
    }),
    row('kernels', 'gpu 0', 'linear bf16 3x5', 'passed', null, {
      value: 2e-7,
      unit: 'relative error',
      allowed: 1e-6,
    }),
    row(
      'kernels',
      'gpu 0',
      'linear nvfp4 with-a-very-long-name-of-a-case-that-no-phone-has-room-for-in-one-line',
      'failed',
      'differs',
      {
        value: Number.NaN,
        unit: 'relative error',
        allowed: 1e-6,
      },
    ),
    row('monitor fields', 'gpu 0', 'memory', 'skipped', 'not supported'),
  ],
}

t.test('reports are read with care', async t => {
  const text = reportText(sample)
  t.same(readReport('r.json', text), sample)
  t.match(sample.rows[4], { measured: null, reason: 'differs; relative error: NaN' })
  t.equal(text.split('\n').filter(line => line.startsWith('    {"section"')).length, 6, 'a line for each row')
  // biome-ignore lint/suspicious/noExplicitAny: the changes are of wrong types on purpose
  const refused = (change: (report: any) => unknown, message: RegExp) => {
    const report = structuredClone(sample)
    change(report)
    t.throws(() => readReport('r.json', JSON.stringify(report)), { code: 'ERR_FORMAT', message })
  }
  refused(report => (report.format = 'other'), /r\.json is no hardware report/)
  refused(report => (report.version = 2), /version is 2, not 1/)
  refused(report => delete report.machine.os, /machine\.os is missing/)
  refused(report => (report.gpus = {}), /gpus is no list/)
  refused(report => (report.gpus[0].driver = 580), /gpus\[0\]\.driver/)
  refused(report => (report.rows[2].status = 'fine'), /rows\[2\]\.status is 'fine'/)
  refused(report => (report.rows[1].section = 'x'), /rows\[1\]\.section is 'x'/)
  refused(report => (report.rows[1].measured.unit = null), /rows\[1\]\.measured\.unit/)
  refused(report => (report.rows = [null]), /rows\[0\]/)
  for (const broken of ['', '[]', 'null', '{'])
    t.throws(() => readReport('r.json', broken), { code: 'ERR_FORMAT' }, broken)
})

t.test('the page', async t => {
  const page = reportPage(sample)
  t.notMatch(page, '<img')
  t.notMatch(page, '\u202e')
  t.notMatch(page, /<(script|link|iframe)|url\(|@import/)
  t.match(page, /<th scope="row">linear<\/th><td>gpu 0<\/td>.*2\.0e-7 \(allowed 1\.0e-6\).*2 cases/)
})

t.test('in a browser', { skip: noBrowser }, async t => {
  const file = path.join(folder, 'page.html')
  writeFileSync(file, reportPage(sample))
  const browser = new Browser()
  t.teardown(() => browser.close())
  await browser.prefer('light')
  await browser.open(file)
  const headings = "[...document.querySelectorAll('h2')].map(each => each.textContent)"
  t.same(await browser.evaluate(headings), ['Detection', 'Memory', 'Kernels', 'Fields of the monitor'])
  const first = "document.querySelectorAll('table')[2].querySelector('tbody tr').textContent"
  t.match(await browser.evaluate(first), /failed/, 'what failed stands first')
  for (const width of [320, 400, 1000]) {
    const wide = await browser.evaluate<number>(`new Promise(resolve => {
      const frame = document.createElement('iframe')
      frame.style.width = '${width}px'
      frame.srcdoc = '<!doctype html>' + document.documentElement.outerHTML
      frame.onload = () => { resolve(frame.contentDocument.documentElement.scrollWidth); frame.remove() }
      document.body.append(frame)
    })`)
    t.ok(wide <= width, `${wide} of ${width} pixels`)
  }
  const width = await browser.evaluate<number>("document.querySelector('tbody th').offsetWidth")
  t.ok(width > 200, `names have ${width} pixels`)
  const look = 'getComputedStyle(document.body).backgroundColor'
  const white = await browser.evaluate(look)
  await browser.prefer('dark')
  t.not(await browser.evaluate(look), white)
  const forPrint = "[...document.styleSheets[0].cssRules].some(rule => rule.media?.mediaText === 'print')"
  t.ok(await browser.evaluate(forPrint))
  t.same(browser.complaints, [])
})
