// Driving models frame by frame: what they are shown again, against a plain account of all frames.
import { createDrivingRunner, type DrivingModel, GraphBuilder, Model, openModel, Tensor } from 'dgx-spark'
import t from 'tap'
import { openSmall, weightsOf } from '../fixtures/openpilot/small-models.js'
import { randomGenerator } from '../fixtures/values/random.js'

const [height, width] = [2, 4]
const frameBytes = 6 * height * width
const random = randomGenerator(3)
/** Frames of a drive: images, and what the driver wants. */
const frames = Array.from({ length: 30 }, (_, n) => ({
  img: Uint8Array.from({ length: frameBytes }, () => Math.floor(256 * random())),
  bigImg: Uint8Array.from({ length: frameBytes }, () => Math.floor(256 * random())),
  desire: Float32Array.from({ length: 8 }, (_, i) => (i === (n % 11 < 4 ? 3 : 0) ? 1 : 0)),
}))

/** tanh(Σ input · weights) as the small models compute it. */
function small(inputs: Readonly<Record<string, ArrayLike<number>>>, outputs: number): Float32Array {
  const sums = new Float64Array(outputs)
  for (const [name, values] of Object.entries(inputs)) {
    const weights = weightsOf(name, values.length, outputs)
    for (let i = 0; i < values.length; i++)
      for (let j = 0; j < outputs; j++) sums[j]! += values[i]! * weights[i * outputs + j]!
  }
  return Float32Array.from(sums, Math.tanh)
}

/** Rows of the frames with some ages; zeros before the first frame. */
const rows = (
  all: readonly ArrayLike<number>[],
  at: number,
  ages: readonly number[],
  size: number,
): number[] => ages.flatMap(age => Array.from(all[at - age] ?? new Float32Array(size)))

/** Rising edges of desires but the first. */
const pulses = frames.map(({ desire }, n) =>
  desire.map((value, i) => (i > 0 && value - (frames[n - 1]?.desire[i] ?? 0) > 0.99 ? value : 0)),
)

/** The largest of each group of four pulses. */
const pooled = (at: number, groups: number): number[] =>
  Array.from({ length: groups }, (_, g) =>
    Array.from({ length: 8 }, (_, i) =>
      Math.max(...[0, 1, 2, 3].map(k => pulses[at - 4 * (groups - 1 - g) - k]?.[i] ?? 0)),
    ),
  ).flat()

const near = (a: ArrayLike<number>, b: ArrayLike<number>): boolean =>
  a.length === b.length && Array.from(a).every((x, i) => Math.abs(x - b[i]!) < 2e-6)

t.test('vision and policy of 2025', async t => {
  const image = { shape: [1, 12, height, width], dtype: 'u8' } as const
  using vision = await openSmall({
    inputs: { img: image, big_img: image },
    outputs: { pose: 12, hidden_state: 5 },
  })
  using policy = await openSmall({
    inputs: {
      desire_pulse: { shape: [1, 3, 8] },
      traffic_convention: { shape: [1, 2] },
      features_buffer: { shape: [1, 3, 5] },
    },
    outputs: { plan: 990, desire_state: 8 },
  })
  t.equal(vision.kind, 'vision')
  t.equal(policy.kind, 'policy')
  using runner = await createDrivingRunner({ vision, policy })
  for (const again of [false, true]) {
    const features: Float32Array[] = []
    for (const [n, frame] of frames.entries()) {
      const outputs = await runner.step({ ...frame, trafficConvention: [1, 0] })
      const images = (key: 'img' | 'bigImg') =>
        rows(
          frames.map(frame => frame[key]),
          n,
          [4, 0],
          frameBytes,
        )
      features.push(small({ img: images('img'), big_img: images('bigImg') }, 17).subarray(12))
      t.ok(near(outputs.hiddenState!, features[n]!), `features of frame ${n}`)
      const driven = small(
        {
          desire_pulse: pooled(n, 3),
          traffic_convention: [1, 0],
          features_buffer: rows(features, n, [8, 4, 0], 5),
        },
        998,
      )
      const mean = outputs.plan!.position.mean
      const expected = Array.from({ length: 33 }, (_, i) => [...driven.subarray(15 * i, 15 * i + 3)]).flat()
      t.ok(
        near(
          mean.flatMap(point => [...point]),
          expected,
        ),
        `plan of frame ${n}${again ? ', after a reset' : ''}`,
      )
    }
    await runner.reset()
  }
})

t.test('a model that sees and drives, and remembers each frame', async t => {
  const image = { shape: [1, 12, height, width], dtype: 'u8' } as const
  using supercombo = await openSmall({
    inputs: {
      input_imgs: image,
      big_input_imgs: image,
      desire: { shape: [1, 100, 8] },
      traffic_convention: { shape: [1, 2] },
      features_buffer: { shape: [1, 99, 4] },
    },
    outputs: { plan: 990, desire_state: 8, hidden_state: 4 },
  })
  using runner = await createDrivingRunner({ supercombo })
  const features: Float32Array[] = []
  for (const [n, frame] of frames.entries()) {
    const outputs = await runner.step({ ...frame, trafficConvention: [0, 1] })
    const images = (key: 'img' | 'bigImg') =>
      rows(
        frames.map(frame => frame[key]),
        n,
        [1, 0],
        frameBytes,
      )
    const ages = (count: number, newest: number) =>
      Array.from({ length: count }, (_, i) => newest + count - 1 - i)
    const all = small(
      {
        input_imgs: images('img'),
        big_input_imgs: images('bigImg'),
        desire: rows(pulses, n, ages(100, 0), 8),
        traffic_convention: [0, 1],
        features_buffer: rows(features, n, ages(99, 1), 4),
      },
      1002,
    )
    features.push(all.subarray(998))
    t.ok(near(outputs.hiddenState!, features[n]!), `frame ${n}`)
  }
})

t.test('a frame that is refused changes nothing', async t => {
  const image = { shape: [1, 12, height, width], dtype: 'u8' } as const
  using vision = await openSmall({ inputs: { img: image }, outputs: { hidden_state: 3 } })
  const inputs = { features_buffer: { shape: [1, 2, 3] }, traffic_convention: { shape: [1, 2] } }
  using policy = await openSmall({ inputs, outputs: { plan: 990 } })
  using one = await createDrivingRunner({ vision, policy })
  using two = await createDrivingRunner({ vision, policy })
  const [first, second, third] = frames.map(({ img }) => ({ img, trafficConvention: [1, 0] }))
  await one.step(first!)
  await two.step(first!)
  await t.rejects(one.step({ img: second!.img }), {
    code: 'ERR_ARGUMENT',
    message: /frame\.trafficConvention/,
  })
  await t.rejects(one.step({ ...second!, img: new Uint8Array(3) }), {
    code: 'ERR_SHAPE',
    message: /frame\.img/,
  })
  await t.rejects(one.step({ ...second!, image: 1 } as never), { code: 'ERR_ARGUMENT', message: /image/ })
  t.strictSame((await one.step(third!)).plan, (await two.step(third!)).plan)
  await t.rejects(createDrivingRunner({ vision: policy, policy }), {
    code: 'ERR_ARGUMENT',
    message: /models\.vision/,
  })
  using other = await openSmall({ inputs: { img: image }, outputs: { hidden_state: 4 } })
  await t.rejects(createDrivingRunner({ vision: other, policy }), {
    code: 'ERR_SHAPE',
    message: /wants 3 features of a frame, but the model that sees makes 4/,
  })
})

t.test('what is no model of openpilot', async t => {
  const g = new GraphBuilder()
  g.output(g.add('Relu', [g.input('x', 'f32', [1, 4])]), 'y')
  const model = await Model.fromGraph(g.build(), { backend: 'js' })
  await t.rejects(openModel(model), {
    code: 'ERR_FORMAT',
    message: /no model of openpilot.*'x' \[1, 4\].*run it with Model/,
  })
  const plain: Promise<DrivingModel> = openSmall({
    inputs: { img: { shape: [1, 12, 2, 4], dtype: 'u8' } },
    outputs: { hidden_state: 3 },
    isPlain: true,
  })
  await t.rejects(plain, { code: 'ERR_FORMAT', message: /options\.outputSlices/ })
})

t.test('values of other types, and one run', async t => {
  using vision = await openSmall({
    inputs: { img: { shape: [1, 12, height, width], dtype: 'u8' } },
    outputs: { pose: 12, hidden_state: 3 },
    dtype: 'f16',
  })
  t.equal(vision.checkpoint, 'small/1')
  const img = Uint8Array.from([...frames[0]!.img, ...frames[1]!.img])
  const [bytes, numbers] = await Promise.all([
    vision.run({ img }),
    vision.run({ img: Float32Array.from(img) }),
  ])
  t.strictSame(bytes, numbers)
  t.equal(bytes.hiddenState!.length, 3)
  await t.rejects(vision.run({ img: Float32Array.from(img, x => x + 0.5) }), {
    code: 'ERR_RANGE',
    message: /inputs\.img\[0\]/,
  })
  t.throws(() => vision.parse(new Float32Array(7)), {
    code: 'ERR_SHAPE',
    message: /rows of 7 numbers, the model of 15/,
  })
  const raw = Tensor.from(new Float32Array(30).fill(1), { shape: [2, 15] })
  t.equal(vision.parse(raw, { row: 1 }).hiddenState!.length, 3)
})
