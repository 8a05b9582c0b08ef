// inspect-route: its table and JSON document, and the page of a drive.
import { spawnSync } from 'node:child_process'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { readDrive } from '#lib/cli/route-page/drive.js'
import { readOverlays } from '#lib/cli/route-page/overlay.js'
import { Samples } from '#lib/cli/route-page/samples.js'
import { roadCameras } from '#lib/openpilot/cameras.js'
import { demoSegment } from '../fixtures/route/demo-route.js'
import {
  car,
  filmSegment,
  hostile,
  hostileName,
  lane,
  straight,
  twoSeconds,
  writeSegment,
} from '../fixtures/route/film-segment.js'
import { drivingModelData, modelV2 } from '../fixtures/route/model-events.js'
import { can, drive } from '../fixtures/route/write-log.js'
import { noFfmpeg } from '../fixtures/video/encode.js'

const main = path.resolve(import.meta.dirname, '../../dist/cli/main.js')
const noData = process.env.DGX_SPARK_TEST_DATA ? false : 'DGX_SPARK_TEST_DATA is not set'
const root = t.testdir({})
const ms = (n: number): bigint => BigInt(n) * 1_000_000n

function run(...args: string[]): { status: number | null; stdout: string; stderr: string } {
  return spawnSync(process.execPath, ['--no-warnings', main, 'inspect-route', ...args], { encoding: 'utf8' })
}

interface Frame {
  readonly time: number
  readonly src: string
  readonly overlay: {
    readonly age: number
    readonly lines: readonly {
      readonly kind: string
      readonly probability: number
      readonly points: string
    }[]
    readonly leads: readonly { readonly x: number; readonly y: number; readonly distance: number }[]
  } | null
}

interface PageData {
  readonly times: readonly number[]
  readonly speed: readonly (number | null)[]
  readonly angle: readonly (number | null)[]
  readonly engaged: readonly (readonly number[])[]
  readonly pressed: readonly (readonly number[])[]
  readonly frames: readonly Frame[]
}

/** What the script of a page is given. */
const dataOf = (page: string): PageData =>
  JSON.parse(/<script type="application\/json" id="data">(.*?)<\/script>/s.exec(page)![1]!)

t.test('the table and the JSON document', async t => {
  const folder = writeSegment(root, '00000001--0123456789--3', ...twoSeconds)
  const table = run(folder)
  t.equal(table.status, 0, table.stderr)
  t.match(table.stdout, /route +00000001--0123456789\n/)
  t.match(table.stdout, /segment +3 \(there: 3\)/)
  t.match(table.stdout, /speed +10\.0 to 19\.8 m\/s, on average 14\.9 m\/s\n +36 to 71 km\/h/)
  t.match(table.stdout, /steering +-20\.0 to 19\.0 °/)
  t.match(table.stdout, /turns the wheel 25\.0 % of the time/)
  t.match(table.stdout, /engaged +50\.0 % of the time \(selfdriveState\)/)
  t.match(table.stdout, /calibrated: roll, pitch, yaw 0\.00°, 1\.15°, -0\.57°/)
  t.match(table.stdout, /carState +│ +40 │/)
  const report = JSON.parse(run(folder, '--json').stdout)
  t.match(report, {
    route: '00000001--0123456789',
    segment: 3,
    segments: [3],
    files: ['qlog'],
    events: twoSeconds.length,
    damaged: 0,
    counts: { carState: 40, qRoadEncodeIdx: 40, modelV2: 4, selfdriveState: 4, liveCalibration: 1 },
    speed: { min: 10, max: 19.75, mean: 14.875 },
    steeringPressed: 0.25,
    engaged: 0.5,
    calibration: { status: 'calibrated', height: null },
  })
})

t.test('segments of a route', async t => {
  const route = path.join(root, 'route')
  for (const number of [0, 1, 2, 5])
    writeSegment(root, `route/00000002--0123456789--${number}`, drive(number + 1))
  const first = JSON.parse(run(route, '--json').stdout)
  t.match(first, { segment: 0, segments: [0, 1, 2, 5], missing: [3, 4], counts: { carState: 10 } })
  t.match(JSON.parse(run(route, '--segment', '2', '--json').stdout), { segment: 2, counts: { can: 30 } })
  const { status, stderr } = run(route, '--segment', '3')
  t.equal(status, 1)
  t.match(stderr, /--segment 3: route 00000002--0123456789 has no such segment, but 0–2, 5/)
})

t.test('no route, several routes, wrong usage', async t => {
  const empty = path.join(root, 'empty')
  mkdirSync(empty)
  t.match(run(empty), { status: 1, stderr: /no segments of a route are there/ })
  t.match(run(path.join(root, 'missing')), { status: 1, stderr: /missing/ })
  const two = path.join(root, 'two')
  for (const name of ['00000003--0123456789--0', '00000004--0123456789--0'])
    writeSegment(root, `two/${name}`, drive(1))
  t.match(run(two), { status: 1, stderr: /holds 2 routes \(00000003--0123456789, 00000004--0123456789\)/ })
  const videoOnly = path.join(root, '00000005--0123456789--0')
  mkdirSync(videoOnly)
  writeFileSync(path.join(videoOnly, 'qcamera.ts'), '')
  t.match(run(videoOnly), { status: 1, stderr: /has no log \(rlog, qlog\), but qcamera/ })
  t.match(run(two, '--every', '0'), { status: 2, stderr: /expected a number above 0/ })
  t.match(run(two, '--segment', '-1'), { status: 2, stderr: /expected an integer/ })
})

t.test('a log of CAN frames only', async t => {
  const frames = Array.from({ length: 5 }, (_, i) => can(ms(1000 + i), 0x200, [i], 0))
  const folder = writeSegment(root, '00000006--0123456789--0', ...frames)
  const page = path.join(root, 'can.html')
  const { status, stdout, stderr } = run(folder, '--html', page)
  t.equal(status, 0, stderr)
  t.match(stdout, /speed +not in the log/)
  t.match(stdout, /engaged +not in the log/)
  t.match(stdout, /no frames: the segment has no qcamera\.ts or fcamera\.hevc/)
  const html = readFileSync(page, 'utf8')
  t.match(html, 'No plots: the log has no carState.')
  t.match(html, 'No frames: the segment has no qcamera.ts or fcamera.hevc.')
  t.notMatch(html, 'id="play"')
  const log = path.join(folder, 'qlog')
  t.match(JSON.parse(run(log, '--html', page, '--json').stdout), { page: { frames: 0, video: null } })
})

t.test('the page of a filmed segment', { skip: noFfmpeg }, async t => {
  const folder = filmSegment(root, '00000007--0123456789--0')
  const page = path.join(root, 'drive.html')
  const result = run(folder, '--html', page, '--every', '0.5', '--json')
  t.equal(result.status, 0, result.stderr)
  t.match(JSON.parse(result.stdout), { page: { frames: 4, models: 4, video: 'qcamera', why: null } })
  const html = readFileSync(page, 'utf8')
  t.notMatch(html, /(src|href)="?(https?:)?\/\//)
  t.match(html, 'Copyright (c)', 'the licence of the plots')
  const data = dataOf(html)
  t.strictSame(
    data.frames.map(({ time }) => time),
    [0.35, 0.85, 1.35, 1.85],
    'the frames that plans are of',
  )
  t.ok(data.frames.every(({ src }) => src.startsWith('data:image/jpeg;base64,/9j/')))
  t.equal(new Set(data.frames.map(({ src }) => src)).size, 4)
  t.strictSame(
    data.frames.map(({ overlay }) => overlay!.leads.length),
    [1, 0, 1, 1],
  )
  const { age, lines } = data.frames[0]!.overlay!
  t.ok(Math.abs(age) < 1e-6)
  t.strictSame(
    lines.map(({ kind, probability }) => [kind, probability]),
    [
      ['plan', 1],
      ['lane', 0.25],
      ['lane', 1],
    ],
  )
  t.strictSame([data.times.length, data.speed[4], data.angle[0]], [40, 11, -20])
  t.strictSame(data.pressed, [[0.5, 1]])
  t.strictSame(data.engaged, [[1, 1.5]])
})

t.test('videos that cannot be shown', { skip: noFfmpeg }, async t => {
  const page = path.join(root, 'damaged.html')
  const damaged = writeSegment(root, '00000008--0123456789--0', ...twoSeconds)
  writeFileSync(path.join(damaged, 'qcamera.ts'), 'no video')
  const result = run(damaged, '--html', page)
  t.equal(result.status, 0, result.stderr)
  t.match(result.stdout, /no frames: .*could not be decoded/)
  t.match(readFileSync(page, 'utf8'), /No frames: .*could not be decoded/)
  const unknown = filmSegment(root, '00000009--0123456789--0', car)
  t.match(run(unknown, '--html', page).stdout, /no frames: .*has no encode indices of qcamera/)
  const without = spawnSync(
    process.execPath,
    ['--no-warnings', main, 'inspect-route', filmSegment(root, '0000000a--0123456789--0'), '--html', page],
    { encoding: 'utf8', env: { ...process.env, DGX_SPARK_FFMPEG: path.join(root, 'no-ffmpeg') } },
  )
  t.equal(without.status, 0, without.stderr)
  t.match(without.stdout, /no frames: .*no-ffmpeg was not found/)
})

t.test('hostile logs', { skip: noFfmpeg }, async t => {
  const folder = filmSegment(root, hostileName, hostile)
  const page = path.join(root, 'hostile.html')
  const { status, stderr } = run(folder, '--html', page, '--every', '1e-9')
  t.equal(status, 0, stderr)
  const html = readFileSync(page, 'utf8')
  t.notMatch(html, '<img src=x')
  t.notMatch(html, '\u202e')
  t.match(html, 'ordinal5000')
  const data = dataOf(html)
  t.equal(data.frames.length, 5)
  t.ok(data.speed.includes(null))
  t.notMatch(JSON.stringify(data), 'NaN')
  const nothing = writeSegment(root, '0000000b--0123456789--0')
  t.match(run(nothing), { status: 0, stdout: /duration +no events/ })
  t.equal(run(nothing, '--html', page).status, 0)
  t.match(readFileSync(page, 'utf8'), 'None.')
})

t.test('measurements are thinned out, ranges are of all', async t => {
  const samples = new Samples('speed')
  for (let i = 0; i < 100_000; i++) samples.add(i, { speed: i === 77_777 ? 1000 : i % 10 })
  t.ok(samples.times.length < 12_000)
  t.ok(samples.times.length > 5000)
  t.equal(samples.range('speed')!.max, 1000)
  t.ok(samples.times.at(-1)! > 99_900)
  const pressed = new Samples('on')
  for (const [time, on] of [
    [3, 1],
    [1, 1],
    [2, 0],
    [4, 0],
    [5, 1],
  ] as const)
    pressed.add(time, { on })
  t.strictSame(pressed.spans('on'), [
    [1, 2],
    [3, 4],
    [5, 5],
  ])
  t.equal(new Samples('x').range('x'), null)
})

t.test('models are drawn where they are seen', async t => {
  const log = path.join(root, 'overlay')
  const near = modelV2(ms(2000), { plan: straight, lanes: [lane(2)], laneProbs: [0.5] })
  writeFileSync(log, Buffer.concat([near, drivingModelData(ms(3000), 10, 1.8)]))
  const { narrow: camera } = roadCameras('unknown', 'unknown')
  const size = { width: 526, height: 330 }
  const view = { camera, size, rpy: new Float32Array(3), height: 1.3 }
  const [full, late, small, none] = await readOverlays(log, [2, 2.6, 2.95, 9], () => view)
  const focal = (2648 * 526) / 1928
  const [, second] = full!.lines[1]!.points.split(' ').map(point => point.split(',').map(Number))
  t.ok(Math.abs(second![0]! - (263 + (focal * 2) / 10)) < 0.06, 'to the right')
  t.ok(Math.abs(second![1]! - (165 + (2648 * (330 / 1208) * 1.3) / 10)) < 0.06, 'on the road')
  t.equal(full!.lines[0]!.points.split(' ').length, 10, 'both sides, without the point at the camera')
  t.ok(Math.abs(late!.age + 0.4) < 1e-6, 'the nearest is of either type')
  t.ok(Math.abs(small!.age + 0.05) < 1e-6)
  t.strictSame(
    small!.lines.map(({ kind, probability }) => [kind, probability]),
    [
      ['plan', 1],
      ['lane', 0.5],
      ['lane', 0.9],
    ],
  )
  t.equal(none, null)
})

t.test('the demo segment', { skip: noData || noFfmpeg }, async t => {
  const page = path.join(root, 'demo.html')
  const { status, stdout, stderr } = run(demoSegment, '--html', page, '--json')
  t.equal(status, 0, stderr)
  const report = JSON.parse(stdout)
  t.match(report, {
    events: 11_388,
    counts: { carState: 579, modelV2: 31 },
    page: { frames: 30, models: 30 },
  })
  t.ok(report.page.bytes < 8e6, `${report.page.bytes} bytes`)
  t.ok(report.engaged > 0.5 && report.engaged < 0.6)
  t.ok(Math.abs(report.calibration.height - 1.15) < 0.01)
  const { frames } = dataOf(readFileSync(page, 'utf8'))
  t.ok(
    frames.every(({ overlay }) => Math.abs(overlay!.age) < 0.01),
    'each frame has its own plan',
  )
  const { planTimes } = await readDrive(path.join(demoSegment, 'qlog.zst'))
  t.equal(planTimes.length, 31)
})
