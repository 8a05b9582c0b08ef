// dgx-spark data: lists and reads synthetic and real drives; downloads from a server of this machine.
import { spawn } from 'node:child_process'
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import t, { type Test } from 'tap'
import { type Answer, type FileServer, sendFile, serve } from '../fixtures/hub/server.js'
import { demoSegment } from '../fixtures/route/demo-route.js'
import { carState, drive } from '../fixtures/route/write-log.js'
import { noGolden } from '../fixtures/values/golden-bytes.js'

const main = path.resolve(import.meta.dirname, '../../dist/cli/main.js')
const [dongle, log] = ['a2a0ccea32023010', '2023-07-27--13-01-19']

interface Ended {
  readonly status: number | null
  readonly stdout: string
  readonly stderr: string
}

/** Runs `dgx-spark data` without blocking this process, which may be the server. */
function data(
  args: readonly string[],
  stopAt?: (child: { kill(signal: 'SIGINT'): boolean }) => void,
): Promise<Ended> {
  const env = { PATH: process.env.PATH!, HOME: process.env.HOME ?? '' }
  const child = spawn(process.execPath, ['--no-warnings', main, 'data', ...args], { env, timeout: 120_000 })
  stopAt?.(child)
  const texts = { stdout: '', stderr: '' }
  for (const name of ['stdout', 'stderr'] as const)
    child[name].setEncoding('utf8').on('data', (text: string) => {
      texts[name] += text
    })
  return new Promise(resolve => child.on('close', status => resolve({ status, ...texts })))
}

const lines = ({ stdout }: Ended): string[] => stdout.trimEnd().split('\n')

/** A route with a gap; its second segment is damaged. */
function drives(t: Test): string {
  const folder = t.testdir({})
  for (const number of [0, 2]) {
    const segment = path.join(folder, `${dongle}_${log}--${number}`)
    mkdirSync(segment)
    const rest = number === 2 ? 'rest' : ''
    writeFileSync(path.join(segment, 'rlog'), Buffer.concat([drive(1), Buffer.from(rest)]))
  }
  writeFileSync(path.join(folder, `${dongle}_${log}--0`, 'qcamera.ts'), '')
  return folder
}

t.test('list', async t => {
  const folder = drives(t)
  const listed = await data(['list', folder])
  t.equal(listed.status, 0)
  t.match(
    listed.stdout,
    /a2a0ccea32023010\|2023-07-27--13-01-19 │ +2 │ 1 +│ qcamera.ts \(1\), rlog │ qcamera/,
  )
  const counted = await data(['list', folder, '--events', '--json'])
  t.match(JSON.parse(counted.stdout), [
    {
      kind: 'openpilot',
      minutes: 2,
      missing: [1],
      events: { carState: 20, can: 20 },
      damaged: 1,
      videos: ['qcamera'],
    },
  ])
  t.match(counted.stderr, /^dgx-spark: 1 damaged part was left out: 4 bytes at byte \d+ of .*\n$/)
  t.match((await data(['list', folder, '--events'])).stdout, /events of a2a0.*carState +│ +20/s)
  t.match(await data(['list', t.testdir({})]), { status: 1, stderr: /no segments of a route/ })
})

t.test('read signals', async t => {
  const folder = drives(t)
  const segment = path.join(folder, `${dongle}_${log}--0`)
  const signals = ['--signals', 'carState.vEgo,carState.gearShifter']
  const table = await data(['read', segment, ...signals, '--to', '0.15'])
  t.strictSame(
    lines(table).map(line => line.trim().split(/ +/)),
    [
      ['time', 'carState.vEgo', 'carState.gearShifter'],
      ['0', '20', 'unknown'],
      ['0.1', '20.1', 'unknown'],
    ],
  )
  const jsonl = await data([
    'read',
    segment,
    ...signals,
    '--rate',
    '5',
    '--from',
    '0.2',
    '--to',
    '0.5',
    '--format',
    'jsonl',
  ])
  t.strictSame(
    lines(jsonl).map(line => JSON.parse(line).time),
    [0.2, 0.4],
  )
  const output = path.join(folder, 'out', 'drive.csv')
  const written = await data(['read', folder, ...signals, '--format', 'csv', '--output', output])
  t.match(written, { status: 0, stdout: '', stderr: /1 damaged part was left out/ })
  const csv = readFileSync(output, 'utf8').trimEnd().split('\n')
  t.equal(csv[0], 'time,carState.vEgo,carState.gearShifter')
  t.equal(csv.length, 21)
  t.strictSame(readdirSync(path.dirname(output)), ['drive.csv'], 'nothing is left beside it')
})

t.test('read events and CAN frames', async t => {
  const segment = path.join(drives(t), `${dongle}_${log}--0`)
  const events = lines(await data(['read', segment, '--events', '--signals', 'carState', '--to', '0.3']))
  t.match(
    events.map(line => JSON.parse(line)),
    [
      { time: 0, which: 'carState', logMonoTime: '1000000000', value: { vEgo: 20 } },
      { time: 0.1 },
      { time: 0.2 },
    ],
  )
  t.match(JSON.parse(lines(await data(['read', segment, '--events']))[1]!), {
    value: [{ dat: [0, 1, 2, 3] }],
  })
  const frames = await data(['read', segment, '--signals', 'can', '--format', 'csv', '--to', '0.2'])
  t.strictSame(lines(frames), [
    'time,address,src,data',
    '1e-9,0x200,0,00010203',
    '0.100000001,0x201,1,01010203',
  ])
})

t.test('wrong usage', async t => {
  const folder = drives(t)
  const other = path.join(folder, 'other')
  writeFileSync(other, carState(1n, 1, 1))
  for (const [args, status, stderr] of [
    [['read', folder], 2, /give --signals, or --events/],
    [['read', folder, '--signals', 'carState.vEgo,'], 2, /expected names.*\nexample: dgx-spark data read/],
    [['read', folder, '--signals', 'can,carState.vEgo'], 2, /CAN frames are printed on their own/],
    [['read', folder, '--signals', 'can', '--rate', '3'], 2, /--rate is for signals, not for can/],
    [['read', folder, '--events', '--format', 'csv'], 2, /not --format csv/],
    [['read', folder, '--signals', 'carState.vEgo', '--from', '3', '--to', '2'], 2, /--to 2 must be more/],
    [['read', folder, '--signals', 'carState.vego2'], 1, /did you mean 'vEgo'\?/],
    [['read', folder, other, '--signals', 'carState.vEgo'], 1, /has 2 drives, name one: /],
    [['download', 'cii', '-o', folder], 2, /did you mean 'ci'\?/],
    [['download', 'ci', '-o', folder], 2, /needs --list/],
    [['download', 'comma_car_segments', '-o', folder], 2, /needs --platform/],
    [['download', `${dongle}|${log}`, '-o', folder], 2, /needs --base-url/],
    [['download', 'ci', '--platform', 'X', '-o', folder], 2, /--platform is not for ci/],
    [['download', 'ci', '--files', '../x', '-o', folder], 2, /expected names of files/],
    [['download', 'ci', '--base-url', 'ftp://x', '-o', folder], 2, /expected an http: or https: URL/],
    [['download', 'https://example.com/', '-o', folder], 1, /must end with the name of a file/],
  ] as const) {
    const ended = await data(args)
    t.match(ended.stderr, stderr, args.join(' '))
    t.equal(ended.status, status, args.join(' '))
  }
})

const rlog = drive(1)

/** A server of the files of segments: old logs are .bz2 there, as the paths say. */
async function server(
  t: Test,
  files: Readonly<Record<string, Buffer>>,
  answer?: Answer,
): Promise<FileServer> {
  const started = await serve((request, response, attempt) => {
    const file = files[decodeURIComponent(request.url!.split('?')[0]!)]
    if (answer) answer(request, response, attempt)
    else if (file) sendFile(request, response, file)
    else response.writeHead(404).end()
  })
  t.teardown(() => started.close())
  return started
}

t.test('download ci: a list, the older ending, what is there, what is missing', async t => {
  const { base, seen } = await server(t, {
    [`/ci/${dongle}/${log}/0/rlog.zst`]: rlog,
    [`/ci/${dongle}/${log}/1/rlog.bz2`]: rlog,
    [`/ci/${dongle}/${log}/0/qcamera.ts`]: Buffer.from('video'),
    '/list.txt': Buffer.from(`${dongle}|${log}--0\n`),
  })
  const folder = t.testdir({})
  const [list, output] = [path.join(folder, 'list.txt'), path.join(folder, 'drives')]
  writeFileSync(list, `# two segments\n${dongle}|${log}--0\n\n${dongle}/${log}/1\r\n`)
  const args = ['download', 'ci', '--base-url', `${base}/ci?key=1`, '--output', output, '--list']
  const first = await data([...args, list, '--json'])
  t.equal(first.status, 1)
  const failed = [{ file: `${dongle}/${log}/1/qcamera.ts`, reason: /answered 404/ }]
  t.match(JSON.parse(first.stdout), { downloaded: 3, skipped: 0, bytes: 2 * rlog.length + 5, failed })
  t.ok(
    seen.every(({ url }) => url.endsWith('?key=1')),
    'the query of the base stays',
  )
  t.match(first.stderr, /rlog\.zst {2}\d/)
  const count = seen.length
  const again = await data([...args, list, '--files', 'rlog.zst'])
  t.match(again, {
    status: 0,
    stdout: /downloaded +0 files, 0 B\n +there before +2 files\n +failed +0 files/,
  })
  t.equal(seen.length, count, 'nothing is asked for again')
  t.match(await data([...args, `${base}/list.txt`]), { status: 0, stdout: /there before +2 files/ })
  const listed = await data(['list', output, '--json'])
  t.match(JSON.parse(listed.stdout), [{ name: `${dongle}|${log}`, minutes: 2, files: { 'rlog.bz2': 1 } }])
  writeFileSync(list, `${log}--0\n`)
  t.match(await data([...args, list]), { status: 1, stderr: /line 1 of .* must be dongle\|log--segment/ })
  writeFileSync(list, '#\n')
  t.match(await data([...args, list]), { status: 1, stderr: /has no segments/ })
})

t.test('download a route: segments until one has none', async t => {
  const { base } = await server(t, {
    [`/${dongle}/${log}/0/qlog.zst`]: rlog,
    [`/${dongle}/${log}/1/qlog.zst`]: rlog,
  })
  const output = t.testdir({})
  const args = ['--base-url', base, '--output', output, '--files', 'qlog.zst', '--json']
  const { status, stdout } = await data(['download', `${dongle}|${log}`, ...args])
  t.match([status, JSON.parse(stdout)], [0, { downloaded: 2, failed: [] }])
  const none = await data(['download', `${dongle}|${log.replace('2023', '2022')}`, ...args])
  t.match([none.status, JSON.parse(none.stdout)], [1, { downloaded: 0, failed: [{ reason: /404/ }] }])
})

t.test('download comma_car_segments', async t => {
  const platform = 'TOYOTA_COROLLA_TSS2'
  const entries = [`${dongle}/${log}/7/s`, `${dongle}/${log}/9/s`]
  const { base } = await server(t, {
    '/database.json': Buffer.from(JSON.stringify({ [platform]: entries, BAD: ['x'], WORSE: 3 })),
    [`/segments/${dongle}/${log}/7/rlog.zst`]: rlog,
    [`/segments/${dongle}/${log}/9/rlog.bz2`]: rlog,
  })
  const output = t.testdir({})
  const args = (name: string) => [
    'download',
    'comma_car_segments',
    '--base-url',
    base,
    '-o',
    output,
    '--platform',
    name,
    '--json',
  ]
  t.match(
    JSON.parse((await data(args(platform))).stdout),
    { downloaded: 2, failed: [] },
    'one segment, database',
  )
  const rest = JSON.parse((await data([...args(platform), '--count', '5'])).stdout)
  t.match(rest, { downloaded: 1, skipped: 2, failed: [] })
  t.match(await data(['list', output]), { stdout: / 2 │ 8 +│ rlog.*none: logs only/ })
  const read = await data(['read', output, '--signals', 'can', '--format', 'csv'])
  t.equal(lines(read).length, 21, 'the logs are read, for their CAN frames')
  for (const [name, message] of Object.entries({
    TOYOTA_COROLA_TSS2: /did you mean 'TOYOTA_COROLLA_TSS2'\?/,
    BAD: /segment 0 of BAD/,
    WORSE: /WORSE must have a list/,
    constructor: /there is none/,
  }))
    t.match(await data(args(name)), { status: 1, stderr: message }, name)
  writeFileSync(path.join(output, 'database.json'), '{')
  t.match(await data(args(platform)), { status: 1, stderr: /is no JSON: remove it/ })
})

t.test('download a URL: its hash; a server that refuses', async t => {
  const { base } = await server(t, { '/a/model.bin': rlog })
  const output = t.testdir({})
  const url = `${base}/a/model.bin?token=secret`
  const wrong = await data(['download', url, '-o', output, '--sha256', '0'.repeat(64), '--json'])
  t.match([wrong.status, JSON.parse(wrong.stdout)], [1, { failed: [{ reason: /has SHA-256/ }] }])
  t.match(await data(['download', url, '-o', output]), { status: 0, stdout: /downloaded +1 files/ })
  t.ok(readFileSync(path.join(output, 'model.bin')).equals(rlog))
  const refusing = await server(t, {}, (_, response) => response.writeHead(403).end())
  const list = path.join(output, 'list.txt')
  writeFileSync(list, [0, 1, 2, 3, 4].map(i => `${dongle}|${log}--${i}`).join('\n'))
  const refused = await data(['download', 'ci', '--list', list, '--base-url', refusing.base, '-o', output])
  t.match(refused, { status: 1, stdout: /failed +3 files/, stderr: /stopped after 3 failures/ })
  t.match(refused.stdout, /DGX_SPARK_TOKENS=127\.0\.0\.1/)
  t.notMatch(refused.stdout + wrong.stdout, 'secret')
})

t.test('Ctrl-C leaves what has arrived, and the next call goes on', async t => {
  const file = Buffer.alloc(200_000, 7)
  let isSlow = true
  let stop = (): void => {}
  const { base, seen } = await server(t, {}, (request, response) => {
    if (!isSlow) return sendFile(request, response, file)
    response.writeHead(200, { etag: '"1"', 'content-length': file.length })
    response.write(file.subarray(0, 100_000), () => setTimeout(stop, 200))
  })
  const output = t.testdir({})
  const args = ['download', `${base}/file.bin`, '-o', output]
  const ended = await data(args, child => {
    stop = () => child.kill('SIGINT')
  })
  t.match(ended, { status: 130, stderr: /interrupted: what has arrived stays; the same command goes on/ })
  t.ok(existsSync(path.join(output, 'file.bin.part')))
  isSlow = false
  t.equal((await data(args)).status, 0)
  t.match(seen.at(-1)?.range, /^bytes=\d+-$/)
  t.ok(readFileSync(path.join(output, 'file.bin')).equals(file))
})

t.test('real drives', { skip: noGolden }, async t => {
  const listed = await data(['list', demoSegment, path.join(process.env.DGX_SPARK_TEST_DATA!, 'comma2k19')])
  t.match(listed.stdout, /qcamera\.ts, qlog\.(zst|bz2).*b0c9d2329ad1606b\|2018-08-02--08-34-47 /s)
  const comma = path.join(process.env.DGX_SPARK_TEST_DATA!, 'comma2k19')
  const counted = await data(['list', comma, '--events', '--json'])
  t.match(JSON.parse(counted.stdout), [{ kind: 'comma2k19', events: { poses: 1200, can: 135_468 } }])
  const speeds = await data([
    'read',
    comma,
    '--signals',
    'speed,steering_angle',
    '--rate',
    '20',
    '--format',
    'csv',
  ])
  t.equal(speeds.status, 0)
  t.ok(Math.abs(lines(speeds).length - 1200) < 10)
  const frames = lines(await data(['read', comma, '--signals', 'can', '--to', '0.05']))
  t.match(frames[1], /0x260 +0 +08fffb0000001884/)
  t.match(await data(['read', comma, '--events']), { status: 2, stderr: /comma2k19 has no events/ })
  const rows = await data(['read', demoSegment, '--signals', 'carState.vEgo,carState.gearShifter'])
  t.match(lines(rows)[1], /3\.702953 +22\.985416 +drive/)
})
