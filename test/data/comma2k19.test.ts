// comma2k19: poses, CAN frames and measurements of a minute, aligned by time.
import { readdirSync } from 'node:fs'
import path from 'node:path'
import { countsBefore, interpolate, readComma2k19, Tensor } from 'dgx-spark'
import t from 'tap'
import { serializeNpy } from '#lib/io/npy.js'
import { noGolden } from '../fixtures/values/golden-bytes.js'

t.test('the example of the data set', { skip: noGolden }, async t => {
  const example = path.join(process.env.DGX_SPARK_TEST_DATA!, 'comma2k19', 'Example_1')
  const folder = path.join(example, readdirSync(example)[0]!, '40')
  const { name, poses, can, measurements } = await readComma2k19(folder)
  t.equal(name, 'b0c9d2329ad1606b|2018-08-02--08-34-47--40')
  t.strictSame([poses.times.length, poses.positions.length, poses.orientations.length], [1200, 3600, 4800])
  t.strictSame([can.times.length, can.data.length], [135_468, 8 * 135_468])
  t.strictSame(
    [...new Set(can.buses)].sort((a, b) => a - b),
    [0, 1, 128, 129],
  )
  t.equal(Math.max(...new Set(can.addresses)), 1779)
  t.equal(measurements.get('CAN/radar')?.width, 7)
  t.equal(measurements.get('IMU/gyro')?.times.length, 6256)

  // The speed that the car reports is that of the camera: one clock, and arrays in the right order.
  const speed = measurements.get('CAN/speed')!
  const reported = interpolate(speed.times, speed.values, poses.times)
  const errors = Array.from(poses.times, (_, i) => {
    const [x = 0, y = 0, z = 0] = poses.velocities.subarray(3 * i, 3 * i + 3)
    return Math.abs(Math.hypot(x, y, z) - reported[i]!)
  })
  const mean = errors.reduce((sum, error) => sum + error) / errors.length
  t.ok(mean < 0.2, `mean difference ${mean} m/s`)
  // Acceleration of column-major arrays: gravity.
  const { values } = measurements.get('IMU/accelerometer')!
  const gravity = Math.hypot(values[0]!, values[1]!, values[2]!)
  t.ok(Math.abs(gravity - 9.8) < 1, `${gravity} m/s^2`)

  const counts = countsBefore(can.times, poses.times)
  t.equal(counts[0], 0, 'the first frame is before the first CAN frame')
  t.ok(counts.every((count, i) => count === 0 || can.times[count - 1]! <= poses.times[i]!))
  t.ok(counts.every((count, i) => count === can.times.length || can.times[count]! > poses.times[i]!))
})

t.test('alignment', async t => {
  t.same(countsBefore([1, 2, 2, 5], [0, 1, 2, 3, 9]), [0, 1, 3, 3, 4])
  t.same(countsBefore([10n, 20n], [15n, 20n]), [1, 2], 'nanoseconds')
  t.same(countsBefore([], [1]), [0])
  t.throws(() => countsBefore([2, 1], [3]), { message: 'times must ascend, but times[1] is 1 after 2' })
  t.throws(() => countsBefore([1], [3, 2]), { message: 'wanted must ascend, but wanted[1] is 2 after 3' })
  const [times, values] = [Float64Array.of(0, 2), Float64Array.of(0, 10, 4, 30)]
  t.same(interpolate(times, values, [-1, 0, 0.5, 2, 3]), [0, 10, 0, 10, 1, 15, 4, 30, 4, 30])
  t.throws(() => interpolate(new Float64Array(0), new Float64Array(0), [1]), { code: 'ERR_ARGUMENT' })
})

t.test('what does not fit', async t => {
  const npy = (values: readonly number[], shape: readonly number[]): Buffer =>
    Buffer.concat(serializeNpy(Tensor.of(Float64Array.from(values), shape, 'f64')))
  const pose = { frame_positions: npy([1, 2, 3], [1, 3]), frame_orientations: npy([1, 0, 0, 0], [1, 4]) }
  const folder = (times: number[], velocities: Buffer): string =>
    t.testdir({
      global_pose: { ...pose, frame_times: npy(times, [times.length]), frame_velocities: velocities },
    })
  await t.rejects(readComma2k19(folder([1, 2], npy([1, 2, 3], [1, 3]))), {
    code: 'ERR_FORMAT',
    message: /frame_positions has 1 rows, but there are 2 times/,
  })
  await t.rejects(readComma2k19(folder([1], npy([1, 2], [1, 2]))), { message: /expected f64 \[n, 3\]/ })
  await t.rejects(readComma2k19(t.testdir({})), { code: 'ERR_IO' })
})
