// Signals of drives as columns: of logs, of comma2k19; what cannot be read; segments without video.
import { mkdirSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { expectVideo, findComma2k19, findRoutes, readComma2k19, readSignals, summarizeLog } from 'dgx-spark'
import t from 'tap'
import { demoSegment } from '../fixtures/route/demo-route.js'
import { calibration, can, carState, drive, event, structPointer } from '../fixtures/route/write-log.js'
import { noGolden } from '../fixtures/values/golden-bytes.js'

const second = 1_000_000_000n
let logs = 0
const folder = t.testdir({})

function logOf(...events: readonly Uint8Array[]): string {
  const file = path.join(folder, `rlog${logs++}`)
  writeFileSync(file, Buffer.concat(events))
  return file
}

t.test('rows of the first signal, latest values of the others', async t => {
  const file = logOf(
    event(1, 0n, structPointer(0, 0, 0), []),
    carState(10n * second, 20, 1),
    calibration(11n * second, [0.125, 0.25, 0.5]),
    // Written by two processes: not in the order of their times.
    carState(13n * second, 23, 4),
    carState(12n * second, 22, 3),
    calibration(20n * second, [1, 2, 3], false),
  )
  const names = [
    'carState.vEgo',
    'liveCalibration.rpyCalib',
    'liveCalibration.calStatus',
    'carState.gasPressed',
  ]
  const { times, columns, start, damaged } = await readSignals(file, names)
  t.equal(start, 10n * second, 'initData does not count')
  t.equal(damaged, 0)
  t.strictSame(times, Float64Array.of(0, 2, 3))
  t.strictSame(columns, [
    { name: 'carState.vEgo', values: Float64Array.of(20, 22, 23), texts: null },
    { name: 'liveCalibration.rpyCalib.0', values: Float64Array.of(Number.NaN, 0.125, 0.125), texts: null },
    { name: 'liveCalibration.rpyCalib.1', values: Float64Array.of(Number.NaN, 0.25, 0.25), texts: null },
    { name: 'liveCalibration.rpyCalib.2', values: Float64Array.of(Number.NaN, 0.5, 0.5), texts: null },
    {
      name: 'liveCalibration.calStatus',
      values: Float64Array.of(Number.NaN, 0, 0),
      texts: ['calibrated', 'uncalibrated'],
    },
    { name: 'carState.gasPressed', values: Float64Array.of(0, 0, 0), texts: null },
  ])
  const part = await readSignals(file, ['carState.vEgo'], { from: 2, to: 3 })
  t.strictSame([part.times, part.columns[0]?.values], [Float64Array.of(2), Float64Array.of(22)])
  const [one] = (await readSignals(file, ['extrinsicsCalibration.rpyCalib.1'])).columns
  t.strictSame([one?.name, one?.values], ['extrinsicsCalibration.rpyCalib.1', Float64Array.of(0.25, 2)])
})

t.test('rows at a rate', async t => {
  const file = logOf(carState(0n, 0, 0), carState(second, 10, 0), calibration(0n, [0, 0, 0]))
  const names = ['carState.vEgo', 'carState.gasPressed', 'liveCalibration.calStatus']
  const held = await readSignals(file, names, { rate: 4 })
  t.strictSame(held.times, Float64Array.of(0, 0.25, 0.5, 0.75, 1))
  t.strictSame(held.columns[0]?.values, Float64Array.of(0, 0, 0, 0, 10))
  const between = await readSignals(file, names, { rate: 4, interpolate: true, from: 0.5, to: 1 })
  t.strictSame(between.times, Float64Array.of(0.5, 0.75))
  t.strictSame(between.columns[0]?.values, Float64Array.of(5, 7.5), 'the sample after the last row counts')
  t.strictSame(between.columns[1]?.values, Float64Array.of(0, 0), 'true and false are not interpolated')
  const late = logOf(carState(0n, 0, 0), carState(2n ** 63n, 1, 0))
  await t.rejects(readSignals(late, ['carState.vEgo'], { rate: 100 }), {
    code: 'ERR_ARGUMENT',
    message: /options.rate 100 makes \d+ rows, 10000000 at most/,
  })
})

t.test('names that lead nowhere', async t => {
  const file = logOf(carState(second, 20, 1), can(second, 1, [1], 0), calibration(second, [0, 0, 0]))
  const messages: Record<string, RegExp> = {
    'carSate.vEgo': /no events named 'carSate' \(did you mean 'carState'\?\)/,
    'carState.vEgoo': /carState has no 'vEgoo' \(did you mean 'vEgo'\?\); it has vEgo, .*in all/,
    'carState.__proto__': /carState has no '__proto__'/,
    carState: /not one value: name a field of it: vEgo/,
    'carState.vEgo.x': /carState.vEgo is a number without fields/,
    can: /is a list: name one of it and a field: can\.0\.address/,
    'can.address': /can is a list: name one of it by its number, such as can\.0/,
    'boot.x': /fields of boot are not read/,
    'modelV2.frameId': /no events of modelV2; there are can, carState, liveCalibration/,
  }
  for (const [name, message] of Object.entries(messages))
    await t.rejects(readSignals(file, [name]), { name: 'SparkError', message }, name)
  const { columns } = await readSignals(file, ['carState.wheelSpeeds.fl', 'liveCalibration.rpyCalib.9'])
  for (const { values } of columns) t.strictSame(values, Float64Array.of(Number.NaN), 'nothing there')
  const [frame] = (await readSignals(file, ['can.0.dat'])).columns
  t.strictSame([frame?.name, frame?.values], ['can.0.dat.0', Float64Array.of(1)])
  for (const [signals, options] of [
    [[], {}],
    [[''], {}],
    [['carState.vEgo'], { rate: 0 }],
    [['carState.vEgo'], { from: 3, to: 2 }],
    [['carState.vEgo'], { hertz: 2 }],
    [['carState.vEgo'], { from: Number.NaN }],
  ] as const)
    await t.rejects(readSignals(file, signals, options as object), { code: 'ERR_ARGUMENT' })
  for (const source of [[], 3, null, {}])
    await t.rejects(readSignals(source as string, ['carState.vEgo']), { code: 'ERR_ARGUMENT' })
  const empty = logOf()
  await t.rejects(readSignals(empty, ['carState.vEgo']), { code: 'ERR_FORMAT', message: /no events at all/ })
  const long = logOf(can(second, 1, new Array<number>(1001).fill(0), 0))
  await t.rejects(readSignals(long, ['can.0.dat']), { message: /has 1001 values, 1000 at most/ })
})

t.test('a route, with damage', async t => {
  for (const i of [0, 1]) {
    const segment = path.join(folder, 'route', `2024-01-01--00-00-00--${i}`)
    mkdirSync(segment, { recursive: true })
    const rest = i === 1 ? [Buffer.from('rest')] : []
    writeFileSync(path.join(segment, 'rlog'), Buffer.concat([drive(i + 1), ...rest]))
  }
  const [route] = await findRoutes(path.join(folder, 'route'))
  const { times, damaged, damage } = await readSignals(route!, ['carState.vEgo'])
  t.equal(times.length, 30)
  t.match([damaged, damage], [1, [{ kind: 'truncated' }]])
  t.equal((await readSignals(route!.segments[0]!, ['carState.vEgo'])).times.length, 10)
  t.throws(() => expectVideo(route!), {
    code: 'ERR_FORMAT',
    message:
      /no video of the road: it has logs only, as those of comma_car_segments, .*need a route with video/,
  })
  const [first] = route!.segments
  const files = { ...first!.files, dcamera: 'dcamera.hevc' }
  t.throws(() => expectVideo([{ ...first!, files }]), { message: /no video of the road: it has dcamera/ })
  t.doesNotThrow(() => expectVideo([{ ...first!, files: { ...files, qcamera: 'qcamera.ts' } }]))
})

t.test("comma's demo segment", { skip: noGolden }, async t => {
  const [route] = await findRoutes(demoSegment)
  t.doesNotThrow(() => expectVideo(route!))
  const { times, columns, start } = await readSignals(route!, ['carState.vEgo', 'modelV2.position.x'])
  t.equal(start, (await summarizeLog(route!.segments[0]!.files.qlog!)).start)
  t.equal(times.length, 579)
  t.equal(columns.length, 34)
  t.ok(Math.abs(columns[0]!.values[0]! - 22.985) < 1e-3)
})

t.test('the example of comma2k19', { skip: noGolden }, async t => {
  const root = path.join(process.env.DGX_SPARK_TEST_DATA!, 'comma2k19')
  const [found, ...others] = await findComma2k19(root)
  t.strictSame([others.length, await findComma2k19(found!)], [0, [found]])
  const segment = await readComma2k19(found!)
  const { times, columns, start } = await readSignals(segment, ['speed', 'velocities', 'CAN/wheel_speed.2'])
  t.strictSame(
    columns.map(({ name }) => name),
    ['speed', 'velocities.0', 'velocities.1', 'velocities.2', 'CAN/wheel_speed.2'],
  )
  t.equal(times.length, 4974)
  t.ok(times[0]! >= 0 && times[0]! < 1 && times.at(-1)! < 61)
  t.ok(start > 0n)
  const at = 2000
  const [speed = 0, x = 0, y = 0, z = 0, wheel = 0] = columns.map(({ values }) => values[at])
  t.ok(Math.abs(Math.hypot(x, y, z) - speed) < 1, 'the camera is as fast as the car')
  t.ok(Math.abs(wheel - speed) < 1, 'and so is a wheel')
  t.equal((await readSignals([segment, segment], ['speed'])).times.length, 2 * 4974)
  const messages = { sped: /did you mean 'speed'\?\); it has CAN\/radar/, 'speed.1': /values 0 to 0/ }
  for (const [name, message] of Object.entries(messages))
    await t.rejects(readSignals(segment, [name]), { code: 'ERR_ARGUMENT', message })
})
