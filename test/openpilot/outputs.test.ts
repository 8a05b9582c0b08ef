// What raw numbers of openpilot's models mean: real ones, and ones whose meaning is known.
import { drivingConstants, type OutputSlices, parseOutputs, Tensor } from 'dgx-spark'
import t from 'tap'
import { parseNpy } from '../../dist/io/npy.js'
import { decodedMetadata, goldenOutputs, slicesOf } from '../fixtures/openpilot/shared-data.js'
import { noGolden } from '../fixtures/values/golden-bytes.js'

const sigmoid = (x: number): number => 1 / (1 + Math.exp(-x))
const near = (
  t: { ok(value: unknown, name: string): boolean },
  actual: number | undefined,
  expected: number,
  name: string,
  limit = 1e-5,
): void => {
  const error = Math.abs((actual ?? Number.NaN) - expected)
  t.ok(error <= limit * Math.max(1, Math.abs(expected)), `${name}: ${actual}, not ${expected}`)
}
const ramp = (count: number, f: (i: number) => number = i => Math.sin(i)): Float32Array =>
  Float32Array.from({ length: count }, (_, i) => f(i))
/** Slices of outputs one behind another. */
const inOrder = (sizes: Readonly<Record<string, number>>): OutputSlices => {
  let end = 0
  const entries = Object.entries(sizes).map(([name, size]) => {
    end += size
    return [name, { start: end - size, end }]
  })
  return Object.fromEntries(entries)
}

t.test('points in time and space', async t => {
  const { times, distances } = drivingConstants
  t.equal(times.length, 33)
  near(t, times[1], 0.009765625, 'second time', 0)
  t.equal(times[32], 10)
  near(t, distances[1], 0.1875, 'second distance', 0)
  t.equal(distances[32], 192)
})

t.test('real outputs of 2024: the formulas', { skip: noGolden }, async t => {
  const slices = await slicesOf('supercombo_metadata.c61356a9')
  const raw = parseNpy(goldenOutputs('ixcess_golden_outputs')).toFloat32()
  const outputs = await parseOutputs(raw, slices)
  const lanes = outputs.laneLines!.map(({ y }) => Number(y.mean[0]!.toFixed(2)))
  t.strictSame(lanes, [-4.08, -1.51, 1.68, 4.35], 'metres to the right')
  for (const [i, { y, z, prob }] of outputs.laneLines!.entries()) {
    for (const point of [0, 17, 32]) {
      const at = 4955 + i * 66 + 2 * point
      t.equal(y.mean[point], raw[at])
      t.equal(z.mean[point], raw[at + 1])
      near(t, y.std[point], Math.exp(raw[at + 264]!), 'std of y')
      near(t, z.std[point], Math.exp(raw[at + 265]!), 'std of z')
    }
    near(t, prob!, sigmoid(raw[5483 + 2 * i + 1]!), 'probability')
  }
  t.equal(outputs.roadEdges![1]!.y.mean[3], raw[5491 + 66 + 6])
  t.ok(outputs.roadEdges![0]!.y.mean[0]! < lanes[0]! && outputs.roadEdges![1]!.y.mean[0]! > 4)
  near(t, outputs.roadTransform!.translation.mean[2], 1.22, 'height of the camera in metres', 1e-2)

  const { plan } = outputs
  const starts = [0, 1, 2, 3, 4].map(i => 991 * i)
  const logits = starts.map(start => raw[start + 990]!)
  const best = starts[logits.indexOf(Math.max(...logits))]!
  t.equal(plan!.hypotheses.length, 5)
  const weights = plan!.hypotheses.map(({ weight }) => weight)
  t.strictSame(
    weights,
    [...weights].sort((a, b) => b - a),
    'the most probable first',
  )
  near(
    t,
    weights.reduce((a, b) => a + b, 0),
    1,
    'sum of weights',
  )
  const series = ['position', 'velocity', 'acceleration', 'orientation', 'orientationRate'] as const
  for (const [k, name] of series.entries()) {
    t.equal(plan![name].mean.length, 33)
    t.strictSame([...plan![name].mean[32]!], [...raw.slice(best + 480 + 3 * k, best + 483 + 3 * k)], name)
    near(t, plan![name].std[5]![1], Math.exp(raw[best + 495 + 75 + 3 * k + 1]!), `std of ${name}`)
    t.strictSame(plan!.hypotheses[0]![name], plan![name])
  }
  for (const [k, { x, v, a, prob }] of outputs.leads!.entries()) {
    const first = raw[5755 + 48 + k]! > raw[5755 + 51 + 48 + k]! ? 5755 : 5755 + 51
    t.strictSame([x.mean[0], x.mean[5]], [raw[first], raw[first + 20]], 'x of a lead')
    t.strictSame([v.mean[1], a.mean[1]], [raw[first + 6], raw[first + 7]], 'v and a')
    near(t, x.std[2], Math.exp(raw[first + 24 + 8]!), 'std of x')
    near(t, prob!, sigmoid(raw[5857 + k]!), 'probability of a lead')
  }
  near(t, outputs.desiredCurvature!.mean, raw[5990]!, 'curvature', 0)
  t.strictSame(outputs.hiddenState, raw.slice(5992))
  t.equal(outputs.meta!.brakePress, null)
  near(t, outputs.meta!.rightBlinker[5], sigmoid(raw[5868 + 47]!), 'right blinker')
  near(t, outputs.meta!.gasPress[4], sigmoid(raw[5868 + 35]!), 'gas')
  t.strictSame(outputs.others, {})
})

t.test('other real outputs', { skip: noGolden }, async t => {
  const slices = await slicesOf('supercombo_metadata.c61356a9')
  for (const name of ['ixcess_runtime_outputs', 'tinygrad_b1ab7897_outputs']) {
    const { desireState, desirePred, plan } = await parseOutputs(parseNpy(goldenOutputs(name)), slices)
    for (const probs of [desireState!, ...desirePred!])
      near(
        t,
        probs.reduce((a, b) => a + b, 0),
        1,
        `${name}: sum of desires`,
      )
    t.ok(
      plan!.position.std.every(row => row.every(std => std <= Math.fround(Math.exp(11)))),
      'clipped',
    )
  }
})

t.test('raw numbers of every model of the shared data', { skip: noGolden }, async t => {
  for (const [name, { output_shapes }] of Object.entries(decodedMetadata())) {
    const width = output_shapes.outputs![1]!
    const outputs = await parseOutputs(ramp(width), await slicesOf(name))
    const isKnown = Object.keys(outputs.others).length === 0
    t.ok(isKnown, `${name}: ${Object.keys(outputs.others)}`)
    if (!name.startsWith('dmonitoring')) t.ok(outputs.plan ?? outputs.pose, name)
    else
      t.strictSame([outputs.features?.length, outputs.leftHandDrive?.faceOrientation.mean.length], [512, 3])
  }
})

t.test('a plan of one hypothesis, and leads of one each', async t => {
  const slices = inOrder({ plan: 990, lead: 144, lead_prob: 3 })
  const raw = ramp(990 + 144 + 3)
  const { plan, leads } = await parseOutputs(raw, slices)
  t.strictSame(
    plan!.hypotheses.map(({ weight }) => weight),
    [1],
  )
  t.equal(plan!.acceleration.mean[2]![1], raw[2 * 15 + 7])
  near(t, plan!.acceleration.std[2]![1], Math.exp(raw[495 + 2 * 15 + 7]!), 'std')
  t.equal(leads![2]!.v.mean[3], raw[990 + 48 + 12 + 2])
  near(t, leads![2]!.v.std[3], Math.exp(raw[990 + 72 + 48 + 12 + 2]!), 'std of a lead')
})

t.test('what the driver is expected to do, 55 numbers', async t => {
  const raw = ramp(55, i => i / 10 - 3)
  const { meta } = await parseOutputs(raw, inOrder({ meta: 55 }))
  const at = (...indices: number[]): Float32Array => Float32Array.from(indices, i => sigmoid(raw[i]!))
  t.equal(meta!.engaged, at(0)[0])
  t.strictSame(meta!.disengage.gas, at(1, 7, 13, 19, 25))
  t.strictSame(meta!.disengage.steer, at(3, 9, 15, 21, 27))
  t.strictSame(meta!.disengage.hardBrake5, at(6, 12, 18, 24, 30))
  t.strictSame(meta!.gasPress, at(31, 35, 39, 43, 47, 51))
  t.strictSame(meta!.brakePress, at(32, 36, 40, 44, 48, 52))
  t.strictSame(meta!.leftBlinker, at(33, 37, 41, 45, 49, 53))
  t.strictSame(meta!.rightBlinker, at(34, 38, 42, 46, 50, 54))
})

t.test('what the driver is expected to do, 48 numbers', async t => {
  const raw = ramp(48, i => i / 10 - 3)
  const { meta } = await parseOutputs(raw, inOrder({ meta: 48 }))
  const at = (...indices: number[]): Float32Array => Float32Array.from(indices, i => sigmoid(raw[i]!))
  t.strictSame(meta!.disengage.brake, at(2, 9, 16, 23, 30))
  t.strictSame(meta!.gasPress, at(7, 14, 21, 28, 35))
  t.equal(meta!.brakePress, null)
  t.strictSame(meta!.leftBlinker, at(36, 38, 40, 42, 44, 46))
  t.strictSame(meta!.rightBlinker, at(37, 39, 41, 43, 45, 47))
})

t.test('what the driver is expected to do, 53 numbers', async t => {
  const raw = ramp(53, i => i / 10 - 3)
  const { meta } = await parseOutputs(raw, inOrder({ meta: 53 }))
  const at = (...indices: number[]): Float32Array => Float32Array.from(indices, i => sigmoid(raw[i]!))
  t.strictSame(meta!.disengage.hardBrake3, at(4, 12, 20, 28, 36))
  t.strictSame(meta!.gasPress, at(7, 15, 23, 31, 39))
  t.strictSame(meta!.brakePress, at(8, 16, 24, 32, 40))
  t.strictSame(meta!.rightBlinker, at(42, 44, 46, 48, 50, 52))
})

t.test('both seats of driver monitoring', async t => {
  const seat = (side: string, extra: Readonly<Record<string, number>> = {}): [string, number][] =>
    Object.entries({ face_descs: 12, face_prob: 1, left_eye_prob: 1, using_phone_prob: 1, ...extra }).map(
      ([name, size]) => [`${name}_${side}`, size],
    )
  const sizes = Object.fromEntries([...seat('lhd', { sleep_prob: 1 }), ...seat('rhd')])
  const raw = ramp(16 + 15 + 1)
  const outputs = await parseOutputs(raw, inOrder({ ...sizes, wheel_on_right: 1 }))
  const { leftHandDrive: left, rightHandDrive: right } = outputs
  t.strictSame(left!.faceOrientation.mean, raw.slice(0, 3))
  t.strictSame(left!.facePosition.mean, raw.slice(3, 5))
  t.equal(left!.faceSize!.mean, raw[5])
  near(t, left!.facePosition.std[1], Math.exp(raw[10]!), 'std of the position')
  near(t, left!.sleepProb, sigmoid(raw[15]!), 'asleep')
  t.notOk('sleepProb' in right!)
  t.strictSame(right!.faceOrientation.mean, raw.slice(16, 19))
  near(t, right!.usingPhoneProb, sigmoid(raw[30]!), 'phone')
  near(t, outputs.wheelOnRightProb, sigmoid(raw[31]!), 'wheel')
})

t.test('the rest', async t => {
  const sizes = { pose: 12, wide_from_device_euler: 6, action: 4, desire_pred: 32, radar: 5 }
  const raw = ramp(12 + 6 + 4 + 32 + 5 + 3)
  const outputs = await parseOutputs(raw, { ...inOrder(sizes), pad: { start: -3, end: null } })
  t.strictSame(outputs.pose!.velocity.mean, raw.slice(0, 3))
  t.strictSame(outputs.pose!.angularVelocity.mean, raw.slice(3, 6))
  near(t, outputs.pose!.angularVelocity.std[2], Math.exp(raw[11]!), 'std of a rate')
  near(t, outputs.wideFromDeviceEuler!.std[0], Math.exp(raw[15]!), 'std of an angle')
  t.strictSame(outputs.action!.mean, raw.slice(18, 20))
  t.strictSame(outputs.others, { radar: raw.slice(54, 59) })
  t.notOk('plan' in outputs)
})

t.test('rows of a batch, and other element types', async t => {
  const slices = inOrder({ desired_curvature: 2, hidden_state: 2 })
  const rows = Float32Array.of(0.5, 0, 1, 2, 0.25, 20, 3, 4)
  const second = { mean: 0.25, std: Math.fround(Math.exp(11)) }
  t.strictSame((await parseOutputs(rows, slices, { batch: 2, row: 1 })).desiredCurvature, second)
  const tensor = Tensor.from(rows, { shape: [2, 4] })
  t.strictSame((await parseOutputs(tensor.to('f16'), slices, { row: 1 })).hiddenState, rows.slice(6))
  await t.rejects(parseOutputs(tensor, slices), { code: 'ERR_ARGUMENT', message: /options\.row/ })
  await t.rejects(parseOutputs(rows, slices, { batch: 3 }), { code: 'ERR_SHAPE', message: /not 3 rows/ })
  await t.rejects(parseOutputs(rows, slices, { batch: 2, row: 2 }), { code: 'ERR_ARGUMENT' })
})

t.test('no padding is exported as the whole row', async t => {
  const raw = Float32Array.of(1, 2)
  const slices = { hidden_state: { start: 0, end: 2 }, pad: { start: 0, end: null } }
  t.strictSame((await parseOutputs(raw, slices)).hiddenState, raw)
  const whole = await parseOutputs(raw, { hidden_state: { start: null, end: null } })
  t.strictSame(whole.hiddenState, raw)
})

t.test('what cannot be parsed', async t => {
  const shape = (message: RegExp) => ({ name: 'SparkError', code: 'ERR_SHAPE', message })
  const parse = (slices: OutputSlices, raw = ramp(20)) => parseOutputs(raw, slices)
  for (const [name, size] of Object.entries({
    plan: 989,
    meta: 54,
    lead: 143,
    lead_prob: 4,
    lane_lines: 526,
    lane_lines_prob: 7,
    pose: 11,
    desire_state: 7,
    desire_pred: 31,
    wheel_on_right: 2,
    face_descs_lhd: 11,
  })) {
    const needed = name === 'lane_lines_prob' ? { lane_lines: 528 } : {}
    const sizes = { ...needed, [name]: size }
    const width = Object.values(sizes).reduce((a, b) => a + b)
    await t.rejects(parse(inOrder(sizes), ramp(width)), shape(new RegExp(name.slice(0, 10))), name)
  }
  await t.rejects(parse(inOrder({ plan: 990 })), shape(/slices\.plan is \[0:990\], but a row has 20 numbers/))
  await t.rejects(parse({ plan: { start: -21, end: null } }), shape(/\[-21:\]/))
  await t.rejects(parse({ plan: { start: 3, end: 2 } }), shape(/\[3:2\]/))
  const wrong = { plan: { start: 0.5, end: 2 } }
  await t.rejects(parse(wrong), { code: 'ERR_ARGUMENT', message: /slices\.plan must be a slice/ })
  await t.rejects(parse({ plan: 3 } as unknown as OutputSlices), { code: 'ERR_ARGUMENT' })
  await t.rejects(parse(null as unknown as OutputSlices), { code: 'ERR_ARGUMENT' })
  await t.rejects(parse({}, [1] as unknown as Float32Array), { code: 'ERR_ARGUMENT' })
  await t.rejects(parse({}, new Float32Array(0)), { code: 'ERR_SHAPE' })
  for (const value of [Number.NaN, Number.POSITIVE_INFINITY]) {
    const raw = ramp(990)
    raw[700] = value
    await t.rejects(parse(inOrder({ plan: 990 }), raw), {
      code: 'ERR_NOT_FINITE',
      message: new RegExp(`element 700 of the output 'plan' is ${value}`),
    })
  }
})
