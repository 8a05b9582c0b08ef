// Teacher and student: rows that are kept, what they depend on, the loss against its formulas, and a training.
import { createHash } from 'node:crypto'
import { readdirSync, readFileSync, truncateSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import {
  createAdapter,
  type DistillationOptions,
  type DrivingModel,
  drivingLoss,
  findRoutes,
  Model,
  prepareDistillation,
  type Segment,
  Tensor,
  Trainer,
} from 'dgx-spark'
import t from 'tap'
import { RowCache } from '#lib/openpilot/distillation/row-cache.js'
import { openSmall, type SmallModel } from '../fixtures/openpilot/small-models.js'
import { randomGenerator } from '../fixtures/values/random.js'
import { noFfmpeg } from '../fixtures/video/encode.js'
import { writeSegment } from '../fixtures/video/segment.js'

const count = 26
const image = { shape: [1, 12, 128, 256], dtype: 'u8' } as const

async function segmentOf(number: number): Promise<Segment> {
  const [route] = await findRoutes(writeSegment(t.testdirName, number, count))
  return route!.segments[0]!
}

const policyModel: SmallModel = {
  inputs: { features_buffer: { shape: [1, 2, 3] }, traffic_convention: { shape: [1, 2] } },
  outputs: { plan: 990, desire_state: 8, pad: 2 },
}

async function rowsOf(
  segment: Segment,
  models: { student: DrivingModel; vision: DrivingModel; teacher?: DrivingModel },
  options: DistillationOptions,
): Promise<Record<string, Float32Array>> {
  const data = await prepareDistillation([segment], models, options)
  const all = await data.read(Array.from({ length: data.size }, (_, i) => i))
  await data.close()
  return Object.fromEntries(Object.entries(all).map(([name, { data }]) => [name, data as Float32Array]))
}

/** Deep comparison of arrays this long takes minutes. */
const digests = (rows: Record<string, Float32Array>): Record<string, string> =>
  Object.fromEntries(Object.entries(rows).map(([name, data]) => [name, digest(data)]))
const digest = (data: Float32Array): string =>
  createHash('sha256')
    .update(new Uint8Array(data.buffer, data.byteOffset, data.byteLength))
    .digest('hex')

t.test('rows of a policy', { skip: noFfmpeg }, async t => {
  const segment = await segmentOf(0)
  using vision = await openSmall({ inputs: { img: image }, outputs: { hidden_state: 3 } })
  using student = await openSmall(policyModel)
  const models = { student, vision }
  const whole = await rowsOf(segment, models, { batch: 5, backend: 'cpu' })
  t.equal(whole.target!.length, count * 1000)
  t.equal(whole.features_buffer!.length, count * 6)
  t.strictSame([...whole.traffic_convention!.subarray(0, 2)], [1, 0])
  t.ok(
    whole.target!.subarray(998, 1000).every(value => value === 0),
    'padding is not learned',
  )
  // Features of four frames ago are seen first.
  t.strictSame(
    [...whole.features_buffer!.subarray(6 * 9, 6 * 9 + 3)],
    [...whole.features_buffer!.subarray(6 * 5 + 3, 6 * 6)],
  )

  await t.test('are kept, and continued after an end at any time', async t => {
    const cache = t.testdir({})
    for (const stop of [1, 9, 17]) {
      const controller = new AbortController()
      const onProgress = ({ rows }: { rows: number }) => rows >= stop && controller.abort()
      const options = { cache, batch: 4, backend: 'cpu', signal: controller.signal, onProgress } as const
      await t.rejects(prepareDistillation([segment], models, options), { name: 'AbortError' })
    }
    const seen: number[] = []
    const options = {
      cache,
      batch: 4,
      backend: 'cpu',
      onProgress: ({ rows }: { rows: number }) => seen.push(rows),
    } as const
    t.strictSame(digests(await rowsOf(segment, models, options)), digests(whole), 'the same rows')
    t.ok(seen[0]! >= 17, `it began with ${seen[0]} rows`)
    seen.length = 0
    t.strictSame(digests(await rowsOf(segment, models, options)), digests(whole))
    t.strictSame(seen, [count], 'nothing is computed again')

    const every = await rowsOf(segment, models, { cache, every: 7, backend: 'cpu' })
    const chosen = [0, 7, 14, 21].flatMap(i => [...whole.target!.subarray(i * 1000, (i + 1) * 1000)])
    t.equal(digest(every.target!), digest(Float32Array.from(chosen)))
    using teacher = await openSmall({ ...policyModel, outputs: { desire_state: 8, plan: 990 } })
    const taught = await rowsOf(segment, { ...models, teacher }, { cache, backend: 'cpu' })
    t.not(digest(taught.target!), digest(whole.target!), 'another teacher has rows of its own')
    t.equal(readdirSync(cache).filter(name => name !== 'hashes').length, 3)
  })

  await t.test('are refused', async t => {
    using other = await openSmall({ ...policyModel, outputs: { plan: 990 } })
    await t.rejects(prepareDistillation([segment], { ...models, teacher: other }), {
      code: 'ERR_ARGUMENT',
      message: /'desire_state' has 8 numbers, the teacher has none/,
    })
    await t.rejects(prepareDistillation([segment], { student }), {
      code: 'ERR_ARGUMENT',
      message: /vision must be/,
    })
    await t.rejects(prepareDistillation([], models), { code: 'ERR_ARGUMENT', message: /segments/ })
    await t.rejects(prepareDistillation([segment], models, { evry: 2 } as never), {
      message: /did you mean 'every'/,
    })
  })
})

t.test('a cache that is damaged is refused, and rows that were not finished are not there', async t => {
  const fields = [{ name: 'x', dtype: 'f32', shape: [2] }] as const
  const folder = path.join(t.testdir({}), 'cache')
  const first = await RowCache.open(folder, fields)
  await first.append(2, { x: Float32Array.of(1, 2, 3, 4) })
  await t.rejects(RowCache.open(folder, fields), { code: 'ERR_BUSY' })
  await first.close()
  const file = path.join(folder, 'x.rows')
  writeFileSync(file, Buffer.concat([readFileSync(file), Buffer.alloc(5)]))
  const second = await RowCache.open(folder, fields)
  t.equal(second.rows, 2)
  await second.append(1, { x: Float32Array.of(5, 6) })
  t.strictSame([...(await second.read('x', [2, 0]))], [5, 6, 1, 2])
  await second.close()
  await t.rejects(RowCache.open(folder, [{ ...fields[0], shape: [3] }]), {
    code: 'ERR_FORMAT',
    message: /something else/,
  })
  truncateSync(file, 20)
  await t.rejects(RowCache.open(folder, fields), { code: 'ERR_FORMAT', message: /lacks rows/ })
  writeFileSync(path.join(folder, 'rows.json'), '{')
  await t.rejects(RowCache.open(folder, fields), { code: 'ERR_FORMAT', message: /damaged/ })
})

/** The loss by its formulas, in double precision. */
function plainLoss(student: Float32Array, teacher: Float32Array, rows: number, isMean: boolean): number {
  const width = student.length / rows
  let total = 0
  const exp = Math.exp
  const softmax = (values: number[]) => {
    const top = Math.max(...values)
    const sum = values.reduce((sum, x) => sum + exp(x - top), 0)
    return values.map(x => exp(x - top) / sum)
  }
  const kl = (s: number[], q: number[]) => {
    const [ours, theirs] = [softmax(s), softmax(q)]
    return theirs.reduce((sum, p, i) => sum + p * Math.log(p / ours[i]!), 0)
  }
  const laplace = (m: number, ls: number, m2: number, ls2: number) => {
    const [d, b, b2] = [Math.abs(m - m2), exp(Math.min(ls, 11)), exp(Math.min(ls2, 11))]
    return isMean ? d / b + Math.log(2 * b) : Math.log(b / b2) + (d + b2 * exp(-d / b2)) / b - 1
  }
  for (let row = 0; row < rows; row++) {
    const s = Array.from(student.subarray(row * width, (row + 1) * width))
    const q = Array.from(teacher.subarray(row * width, (row + 1) * width))
    // plan: five hypotheses of 495 means, 495 scales and a score
    const scores = (x: number[]) => [0, 1, 2, 3, 4].map(h => x[h * 991 + 990]!)
    total += 0.1 * kl(scores(s), scores(q))
    const certainty = softmax(scores(q))
    for (let h = 0; h < 5; h++) {
      let sum = 0
      for (let i = h * 991; i < h * 991 + 495; i++) sum += laplace(s[i]!, s[i + 495]!, q[i]!, q[i + 495]!)
      total += certainty[h]! * sum
    }
    // lane lines: 264 means, 264 scales
    for (let i = 4955; i < 4955 + 264; i++) {
      total += (0.5 / 264) * laplace(s[i]!, s[i + 264]!, q[i]!, q[i + 264]!)
      total += (0.5 / 264) * Math.abs(s[i]! - q[i]!)
    }
    for (let i = 5483; i < 5491; i++) {
      const p = 1 / (1 + exp(-q[i]!))
      const cost = (x: number) => Math.log1p(exp(x)) - p * x
      total += (0.1 / 8) * (cost(s[i]!) - cost(q[i]!))
    }
    total += 0.1 * kl(s.slice(5491, 5499), q.slice(5491, 5499))
    const soft = (x: number[]) => x.slice(5499, 5504).map(value => value / 4)
    total += 0.1 * 16 * kl(soft(s), soft(q))
  }
  return total / rows
}

t.test('the loss is what its formulas say', async t => {
  using student = await openSmall({
    inputs: { img: { shape: [1, 12, 2, 4], dtype: 'u8' }, features_buffer: { shape: [1, 2, 5] } },
    outputs: { plan: 4955, lane_lines: 528, lane_lines_prob: 8, desire_state: 8, hidden_state: 5, pad: 2 },
  })
  const random = randomGenerator(8)
  const [rows, width] = [3, 5506]
  const [ours, theirs] = [0, 1].map(() =>
    Float32Array.from({ length: rows * width }, () => 3 * random() - 1.5),
  )
  for (const target of ['distribution', 'mean'] as const) {
    using loss = await Model.fromGraph(await drivingLoss(student, { target }), { backend: 'cpu' })
    const run = async (outputs: Float32Array, target: Float32Array) => {
      const shape = [rows, width]
      const results = await loss.run({
        outputs: Tensor.of(outputs, shape, 'f32'),
        target: Tensor.of(target, shape, 'f32'),
      })
      return (results.loss as Tensor<'f32'>).data[0]!
    }
    const expected = plainLoss(ours!, theirs!, rows, target === 'mean')
    const found = await run(ours!, theirs!)
    t.ok(Math.abs(found - expected) < 1e-5 * Math.abs(expected), `${target}: ${found} is ${expected}`)
    if (target === 'distribution')
      t.ok(Math.abs(await run(ours!, ours!)) < 1e-4, 'equal outputs cost nothing')
  }
  const silent = { path: 0, prob: 0, lane: 0, edge: 0, other: 0, feature: 0 }
  await t.rejects(drivingLoss(student, silent), { code: 'ERR_UNSUPPORTED' })
  await t.rejects(drivingLoss(student, { path: -1 }), { code: 'ERR_ARGUMENT', message: /options\.path/ })
  await t.rejects(drivingLoss(student, { target: 'x' as never }), {
    code: 'ERR_ARGUMENT',
    message: /options\.target/,
  })
})

t.test('a student learns from its teacher', { skip: noFfmpeg }, async t => {
  const segment = await segmentOf(1)
  using vision = await openSmall({ inputs: { img: image }, outputs: { hidden_state: 3 } })
  using student = await openSmall({ ...policyModel, outputs: { plan: 990, desire_state: 8 } })
  using teacher = await openSmall({ ...policyModel, outputs: { desire_state: 8, plan: 990 } })
  const data = await prepareDistillation(
    [segment, segment],
    { student, vision, teacher },
    { backend: 'cpu' },
  ).catch(async () => prepareDistillation([segment], { student, vision, teacher }, { backend: 'cpu' }))
  const [training, validation] = data.split(0.25)
  t.equal(training.size + validation.size, data.size)
  const adapter = await createAdapter(student.model, { rank: 4, targetModules: '.*' })
  const loss = await drivingLoss(student)
  const trainer = new Trainer(student.model, adapter, {
    loss,
    epochs: 30,
    batchSize: 8,
    optimizer: { type: 'adamw', learningRate: 0.02 },
    backend: 'cpu',
  })
  const before = (await trainer.evaluate(validation)).loss
  await trainer.fit(training)
  const after = (await trainer.evaluate(validation)).loss
  t.ok(after < before / 3, `${before} became ${after}`)
  await data.close()
  t.throws(() => data.split(0), { code: 'ERR_ARGUMENT', message: /share must leave frames/ })
})
