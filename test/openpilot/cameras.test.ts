// Projections from the frames of driving models to those of cameras.
import t, { type Test } from 'tap'
import { project, roadCameras, rotation, scaleMatrix, warpMatrix } from '#lib/openpilot/cameras.js'

const { narrow, wide } = roadCameras('ox03c10', 'tici')

/** The point of a camera's frame that a projection takes a point to. */
function apply(m: readonly number[], x: number, y: number): [number, number] {
  const w = m[6]! * x + m[7]! * y + m[8]!
  return [(m[0]! * x + m[1]! * y + m[2]!) / w, (m[3]! * x + m[4]! * y + m[5]!) / w]
}

const close = (t: Test, found: readonly number[], wanted: readonly number[], name: string): void => {
  for (const [i, value] of wanted.entries())
    t.ok(Math.abs(found[i]! - value) < 1e-6, `${name}: ${found} is ${wanted}`)
}

t.test('devices and sensors', async t => {
  t.strictSame(narrow, { width: 1928, height: 1208, focalLength: 2648 })
  t.equal(wide?.focalLength, 567)
  t.equal(roadCameras('os04c10', 'mici').narrow.width, 1344)
  t.strictSame(roadCameras('unknown', 'neo'), { narrow: { width: 1164, height: 874, focalLength: 910 } })
  t.equal(roadCameras('unknown', 'tici').narrow, narrow)
})

t.test('without calibration the horizon of the model is the middle of the camera', async t => {
  const m = warpMatrix('medmodel', narrow, narrow, [0, 0, 0])
  close(t, apply(m, 256, 47.6), [964, 604], 'straight ahead')
  // One focal length of the model to the right is one of the camera to the right.
  close(t, apply(m, 256 + 910, 47.6), [964 + 2648, 604], '45 degrees')
  const big = warpMatrix('sbigmodel', wide!, wide!, [0, 0, 0])
  close(t, apply(big, 256, 151.8), [964, 604], 'straight ahead, wide')
  close(t, apply(big, 256 + 455, 151.8), [964 + 567, 604], '45 degrees, wide')
})

t.test('a camera that is mounted askew', async t => {
  const angle = 0.02
  const pitched = apply(warpMatrix('medmodel', narrow, narrow, [0, angle, 0]), 256, 47.6)
  close(t, pitched, [964, 604 - 2648 * Math.tan(angle)], 'pitch')
  const yawed = apply(warpMatrix('medmodel', narrow, narrow, [0, 0, angle]), 256, 47.6)
  close(t, yawed, [964 + 2648 * Math.tan(angle), 604], 'yaw')
  // Roll turns around the axis of view.
  const rolled = apply(warpMatrix('medmodel', narrow, narrow, [Math.PI / 2, 0, 0]), 256 + 910, 47.6)
  close(t, rolled, [964, 604 + 2648], 'roll')
})

t.test('smaller frames of the same camera', async t => {
  const small = { width: 526, height: 330 }
  const [whole, part] = [narrow, small].map(stored =>
    warpMatrix('medmodel', narrow, stored, [0.01, 0.02, 0.03]),
  )
  for (const [x, y] of [
    [0, 0],
    [511, 3],
    [100, 255],
  ] as const) {
    const [a, b] = apply(whole!, x, y)
    close(t, apply(part!, x, y), [(a * 526) / 1928, (b * 330) / 1208], 'scaled')
  }
})

t.test('rotations, and points of the road', async t => {
  const r = rotation([0.1, -0.2, 0.3])
  for (const i of [0, 1, 2])
    for (const j of [0, 1, 2]) {
      const dot = [0, 1, 2].reduce((sum, k) => sum + r[3 * k + i]! * r[3 * k + j]!, 0)
      t.ok(Math.abs(dot - (i === j ? 1 : 0)) < 1e-12)
    }
  // 30 m ahead, 1.22 m below the camera: under the middle.
  const point = project(narrow, narrow, [0, 0, 0], [30, 0, 1.22])!
  close(t, [point.x, point.y], [964, 604 + (2648 * 1.22) / 30], 'road')
  t.equal(project(narrow, narrow, [0, 0, 0], [-1, 0, 0]), null)
})

t.test('whole frames in another size', async t => {
  const m = scaleMatrix({ width: 526, height: 330 }, { width: 320, height: 640 })
  close(t, apply(m, 0, 0), [(526 / 320 - 1) / 2, (330 / 640 - 1) / 2], 'first')
  close(t, apply(m, 319, 639), [525 - (526 / 320 - 1) / 2, 329 - (330 / 640 - 1) / 2], 'last')
  t.throws(() => scaleMatrix(narrow, { width: 0, height: 3 }), { code: 'ERR_ARGUMENT', message: /0 x 3/ })
})
