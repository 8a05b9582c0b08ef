// Real logs of openpilot: every event of the demo segment, single events, a stream of a GNSS receiver.
import { readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { gunzipSync } from 'node:zlib'
import { readLog, summarizeLog } from 'dgx-spark'
import t from 'tap'
import { demoSegment, routeFile } from '../fixtures/route/demo-route.js'
import { noGolden } from '../fixtures/values/golden-bytes.js'

/** Decoded with `capnp decode` and the schema of cereal. */
const counts: Record<string, number> = {
  roadEncodeIdx: 1200,
  wideRoadEncodeIdx: 1200,
  driverEncodeIdx: 1200,
  qRoadEncodeIdx: 1200,
  controlsState: 579,
  carState: 579,
  carControl: 579,
  cameraOdometry: 241,
  liveLocationKalman: 241,
  radarState: 232,
  longitudinalPlan: 232,
  liveParameters: 232,
  liveTorqueParameters: 232,
  lateralPlanDEPRECATED: 232,
  onroadEvents: 148,
  deviceState: 123,
  driverStateV2: 121,
  roadCameraState: 61,
  liveCalibration: 61,
  gpsLocationExternal: 43,
  sendcan: 42,
  modelV2: 31,
  can: 6,
  thumbnail: 12,
  carParams: 2,
  sentinel: 2,
  initData: 1,
}

for (const name of ['qlog.zst', 'qlog.bz2']) {
  t.test(`${name} of the demo segment`, { skip: noGolden }, async t => {
    const summary = await summarizeLog(path.join(demoSegment, name))
    t.equal(summary.events, 11_388)
    for (const [which, count] of Object.entries(counts)) t.equal(summary.counts[which], count, which)
    t.equal(
      Object.values(summary.counts).reduce((sum, count) => sum + count),
      11_388,
    )
    t.equal((summary.end! - summary.start!) / 1_000_000n, 61_602n, 'milliseconds')
    t.strictSame(summary.damage, [])
  })
}

t.test('values of the demo segment', { skip: noGolden }, async t => {
  const first = async (which: string): Promise<unknown> => {
    for await (const { value } of readLog(path.join(demoSegment, 'qlog.zst'), { which: [which] }))
      return value
  }
  const close = (expected: number) => (value: number) =>
    Math.abs(value - expected) < 1e-3 * Math.abs(expected)
  const carState = (await first('carState')) as { vEgo: number; gearShifter: string; gasPressed: boolean }
  t.ok(close(22.985)(carState.vEgo), `vEgo ${carState.vEgo}`)
  t.match(carState, { gearShifter: 'drive', gasPressed: true })
  t.match(await first('initData'), {
    dongleId: 'a2a0ccea32023010',
    deviceType: 'tici',
    version: '0.9.4-release',
  })
  t.match(await first('carParams'), { carFingerprint: 'TOYOTA COROLLA TSS2 2019', brand: 'toyota' })
  t.match(await first('sentinel'), { type: 'startOfRoute' })
  t.match(await first('errorLogMessage'), /^{"created"/)
  const model = (await first('modelV2')) as Record<string, { x: Float32Array }> & { laneLines: unknown[] }
  t.equal(model.position?.x.length, 33)
  t.equal(model.laneLines.length, 4)
  t.equal(((await first('liveCalibration')) as { rpyCalib: Float32Array }).rpyCalib.length, 3)
  t.match((await first('roadEncodeIdx')) as object, { type: 'fullHEVC', segmentNum: 0, segmentId: 0 })
  const picture = (await first('thumbnail')) as { thumbnail: Uint8Array }
  t.strictSame([...picture.thumbnail.subarray(0, 3)], [0xff, 0xd8, 0xff], 'a JPEG')
})

t.test('the frames of qcamera.ts are numbered without a gap', { skip: noGolden }, async t => {
  const ids: number[] = []
  for await (const event of readLog(path.join(demoSegment, 'qlog.zst'), { which: ['qRoadEncodeIdx'] }))
    ids.push(event.value!.segmentId)
  t.strictSame(
    ids,
    Array.from({ length: 1200 }, (_, i) => i),
  )
})

t.test('single events, not compressed', { skip: noGolden }, async t => {
  for (const which of ['modelV2', 'cameraOdometry']) {
    const summary = await summarizeLog(routeFile(`fakemodeld/${which}.raw`))
    t.strictSame([summary.counts, summary.damage], [{ [which]: 1 }, []])
  }
})

t.test('the stream of a GNSS receiver', { skip: noGolden }, async t => {
  const tar = gunzipSync(readFileSync(routeFile('ublox/ubloxRaw.tar.gz')))
  const size = Number.parseInt(tar.toString('latin1', 124, 135), 8)
  const file = path.join(t.testdir({}), 'stream')
  writeFileSync(file, tar.subarray(512, 512 + size))
  const { events, counts, damage } = await summarizeLog(file)
  t.ok(events > 1000, `${events} events`)
  t.strictSame([counts, damage], [{ ubloxRaw: events }, []])
})
