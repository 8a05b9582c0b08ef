// Frames of drives as models read them: aligned with the log, through its calibration, equal to a plain reference.
import { mkdirSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import {
  desires,
  findRoutes,
  type ModelFrameBatch,
  readModelFrames,
  readScaledFrames,
  type Segment,
} from 'dgx-spark'
import t from 'tap'
import { requireAddon } from '#lib/native.js'
import { roadCameras, warpMatrix } from '#lib/openpilot/cameras.js'
import { readTimeline } from '#lib/openpilot/timeline.js'
import { demoSegment } from '../fixtures/route/demo-route.js'
import { calibration, encodeIndex, event, structPointer } from '../fixtures/route/write-log.js'
import { drawFrames, encodeVideo, noFfmpeg } from '../fixtures/video/encode.js'

t.teardown(() => requireAddon().setThreads(0))
const noData = process.env.DGX_SPARK_TEST_DATA ? false : 'DGX_SPARK_TEST_DATA is not set'
const [height, width, count] = [60, 96, 10]
const frames = drawFrames(count, height, width)
const frameBytes = (height * width * 3) / 2
const ms = (n: number): bigint => BigInt(n) * 1_000_000n

/** A segment with a video of ten frames; `log` are its events. */
async function segmentOf(name: string, log: readonly Buffer[], videos: readonly string[]): Promise<Segment> {
  const folder = path.join(t.testdirName, `2024-01-02--03-04-05--${name}`)
  mkdirSync(folder, { recursive: true })
  writeFileSync(path.join(folder, 'qlog'), Buffer.concat(log))
  for (const video of videos) encodeVideo(path.join(folder, video), frames, height, width)
  const [route] = await findRoutes(folder)
  return route!.segments[0]!
}

async function collect(segment: Segment, options = {}): Promise<ModelFrameBatch[]> {
  const all: ModelFrameBatch[] = []
  for await (const batch of readModelFrames(segment, options)) all.push(batch)
  return all
}

/** Frame n through a matrix, by the definition. */
function packed(n: number, matrix: readonly number[]): Uint8Array {
  const frame = frames.subarray(n * frameBytes, (n + 1) * frameBytes)
  const near = (at: number, size: number): number => {
    const floor = Math.floor(at)
    const up = at - floor > 0.5 || (at - floor === 0.5 && floor % 2 === 1)
    return Math.min(Math.max(up ? floor + 1 : floor, 0), size - 1)
  }
  const out = new Uint8Array(6 * 128 * 256)
  for (let i = 0; i < out.length; i++) {
    const [channel, r, q] = [Math.floor(i / 32768), Math.floor(i / 256) % 128, i % 256]
    const isLuma = channel < 4
    // Chroma has half the resolution on both sides.
    const [x, y] = isLuma ? [2 * q + Math.floor(channel / 2), 2 * r + (channel % 2)] : [2 * q, 2 * r]
    const w = matrix[6]! * x + matrix[7]! * y + matrix[8]!
    const scale = isLuma ? 1 : 0.5
    const [u, v] = [0, 3].map(k => ((matrix[k]! * x + matrix[k + 1]! * y + matrix[k + 2]!) / w) * scale) as [
      number,
      number,
    ]
    const [h, b] = [height * scale, width * scale]
    const plane = isLuma ? 0 : height * width * (channel === 4 ? 1 : 1.25)
    out[i] = frame[plane + near(v, h) * b + near(u, b)]!
  }
  return out
}

/** Indices of all frames, with a gap in the numbers of the camera, shuffled and one twice. */
const indices = (ordinal: number): Buffer[] =>
  [3, 0, 1, 2, 4, 5, 6, 7, 8, 9, 3].map(i => encodeIndex(ordinal, ms(1000 + 50 * i), i, 100 + 2 * i))

t.test('frames of a qcamera', { skip: noFfmpeg }, async t => {
  const first = [0.01, 0.02, -0.01]
  const second = [0, -0.03, 0.02]
  const log = [
    ...indices(90),
    calibration(ms(900), [3, 3, 3], false),
    calibration(ms(1100), first),
    calibration(ms(1220), second),
    calibration(ms(1300), [9, 9, 9]),
  ]
  const segment = await segmentOf('0', log, ['qcamera.ts'])
  const [batch, ...rest] = await collect(segment)
  t.equal(rest.length, 0)
  t.equal(batch!.count, count)
  t.strictSame([...batch!.indices], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
  t.strictSame([...batch!.frameIds], [100, 102, 104, 106, 108, 110, 112, 114, 116, 118])
  t.equal(batch!.times[4], 1.2)
  const { narrow } = roadCameras('unknown', 'unknown')
  for (let n = 0; n < count; n++) {
    // Frame 5 was taken at 1250 ms.
    const rpy = Float32Array.from(n < 5 ? first : second)
    for (const [name, view] of [
      ['img', 'medmodel'],
      ['bigImg', 'sbigmodel'],
    ] as const) {
      const expected = packed(n, warpMatrix(view, narrow, { height, width }, rpy))
      const found = batch![name].subarray(n * expected.length, (n + 1) * expected.length)
      const wrong = expected.findIndex((value, i) => value !== found[i])
      t.equal(wrong, -1, `${name} of frame ${n}`)
    }
  }
  const parts = await collect(segment, { batch: 3, from: 2, to: 9, backend: 'js' })
  t.strictSame(
    parts.map(each => each.count),
    [3, 3, 1],
  )
  t.strictSame(
    parts.flatMap(each => [...each.indices]),
    [2, 3, 4, 5, 6, 7, 8],
  )
  t.strictSame(
    Buffer.concat(parts.map(each => each.img)),
    Buffer.from(batch!.img.subarray(2 * 6 * 128 * 256, 9 * 6 * 128 * 256)),
    'in parts, in TypeScript',
  )
})

t.test('the wide camera, a frame later', { skip: noFfmpeg }, async t => {
  const wide = Array.from({ length: count }, (_, i) => encodeIndex(77, ms(952 + 50 * i), i, i))
  const log = [...indices(15), ...wide, calibration(ms(900), [0, 0, 0])]
  const segment = await segmentOf('1', log, ['fcamera.hevc', 'ecamera.hevc'])
  const [batch] = await collect(segment)
  const camera = roadCameras('unknown', 'unknown').wide!
  const matrix = warpMatrix('sbigmodel', camera, { height, width }, [0, 0, 0])
  const at = (n: number) => batch!.bigImg.subarray(n * 6 * 128 * 256, (n + 1) * 6 * 128 * 256)
  t.strictSame(Buffer.from(at(0)), Buffer.from(packed(1, matrix)), 'frame 1 of the other camera is nearer')
  t.strictSame(Buffer.from(at(8)), Buffer.from(packed(9, matrix)))
})

t.test('a video that ends early, a log without indices, no video', { skip: noFfmpeg }, async t => {
  const more = [...indices(90), encodeIndex(90, ms(1500), 10, 120), encodeIndex(90, ms(1550), 11, 122)]
  const reader = readModelFrames(await segmentOf('2', more, ['qcamera.ts']))
  let found = 0
  for await (const { count } of reader) found += count
  t.equal(found, count)
  t.equal(reader.missing, 2)
  const without = await segmentOf('3', [calibration(ms(900), [0, 0, 0])], ['qcamera.ts'])
  await t.rejects(collect(without), {
    code: 'ERR_FORMAT',
    message: /no encode indices of qcamera, but none of any video/,
  })
  const logOnly = await segmentOf('4', indices(90), [])
  await t.rejects(collect(logOnly), { code: 'ERR_FORMAT', message: /has no qcamera: it has logs only/ })
})

t.test('whole frames in another size', { skip: noFfmpeg }, async t => {
  const file = path.join(t.testdir({}), 'a.ts')
  encodeVideo(file, frames, height, width)
  const found: Uint8Array[] = []
  for await (const { first, count, data } of readScaledFrames(file, { width, height, batch: 4 })) {
    t.equal(first, 4 * found.length)
    t.equal(data.length, count * frameBytes)
    found.push(data)
  }
  // In the same size the channels are the frame itself, at even and odd rows and columns.
  const plane = frames.subarray(0, height * width)
  const expected = [0, 1, 2, 3].flatMap(channel =>
    Array.from({ length: plane.length / 4 }, (_, i) => {
      const [r, q] = [Math.floor(i / (width / 2)), i % (width / 2)]
      return plane[(2 * r + (channel % 2)) * width + 2 * q + Math.floor(channel / 2)]!
    }),
  )
  t.ok(Buffer.from(found[0]!.subarray(0, plane.length)).equals(Buffer.from(expected)))
  t.ok(
    Buffer.from(found[0]!.subarray(plane.length, frameBytes)).equals(
      Buffer.from(frames.subarray(plane.length, frameBytes)),
    ),
  )
  for (const [options, message] of [
    [{ width: 3, height: 4 }, /options\.width must be an even number/],
    [{ width: 4, height: 0 }, /options\.height/],
    [{ width: 4, height: 4, backend: 'x' }, /options\.backend/],
  ] as const)
    t.throws(() => readScaledFrames(file, options as never), { code: 'ERR_ARGUMENT', message })
})

t.test('arguments', async t => {
  const segment = await segmentOf('5', indices(90), [])
  for (const [options, message] of [
    [{ video: 'dcamera' }, /options\.video must be one of/],
    [{ from: 5, to: 5 }, /options\.to/],
    [{ batch: 0 }, /options\.batch/],
    [{ form: 1 }, /form.*did you mean 'from'/],
  ] as const)
    t.throws(() => readModelFrames(segment, options as never), { code: 'ERR_ARGUMENT', message })
})

t.test('desires and the side of the driver', async t => {
  const plan = (time: bigint, desire: number): Buffer => {
    const words = Array(20).fill(0)
    words[5] = desire << 16
    return event(64, time, structPointer(0, 10, 0), words)
  }
  const folder = t.testdir({})
  const log = path.join(folder, 'qlog')
  writeFileSync(
    log,
    Buffer.concat([
      plan(ms(10), 0),
      plan(ms(30), 3),
      plan(ms(20), 1),
      event(151, ms(1), structPointer(0, 2, 0), [8, 0, 0, 0]),
    ]),
  )
  const timeline = await readTimeline(log)
  t.strictSame(
    [0, 0.01, 0.02, 0.029, 0.03, 9].map(time => desires[timeline.desireAt(time)]),
    ['none', 'none', 'turnLeft', 'turnLeft', 'laneChangeLeft', 'laneChangeLeft'],
  )
  t.equal(timeline.isRightHandDrive, true)
  t.equal(timeline.isCalibrated, false)
  t.strictSame([...timeline.calibrationAt(5)], [0, 0, 0])
})

t.test('the demo segment', { skip: noData || noFfmpeg }, async t => {
  const [route] = await findRoutes(demoSegment)
  const reader = readModelFrames(route!.segments[0]!)
  let frames = 0
  for await (const { count, frameIds, times } of reader) {
    if (frames === 0) t.equal(frameIds[0], 2)
    t.ok(times.every((time, i) => i === 0 || Math.abs(time - times[i - 1]! - 0.05) < 0.01))
    frames += count
  }
  t.equal(frames, 1200)
  t.equal(reader.missing, 0)
  const { isCalibrated, isRightHandDrive, cameras } = await reader.timeline()
  t.match(
    { isCalibrated, isRightHandDrive, focal: cameras.narrow.focalLength },
    { isCalibrated: true, isRightHandDrive: false, focal: 2648 },
  )
})
