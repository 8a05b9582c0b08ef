// Batches with a batch dimension other than the first, and fields that all samples share.
import t from 'tap'
import {
  ArrayDataset,
  BatchReader,
  batchSizeOf,
  type Dataset,
  type TrainingData,
  withSamples,
} from '#lib/training/dataset.js'
import { splitDataset } from '#lib/training/split.js'
import { smallData } from '../fixtures/models/trainable.js'
import { transfer } from '../fixtures/values/odd-values.js'

const numbers = (count: number): Float32Array => Float32Array.from({ length: count }, (_, i) => i)

t.test('samples are taken from the dimension that counts them', t => {
  const data = new ArrayDataset({
    state: { shape: [2, 3, 2], data: numbers(12), axis: 1 },
    x: { shape: [3, 1], data: numbers(3) },
    rate: { shape: [], data: Int32Array.of(16000), axis: null },
  })
  t.equal(data.size, 3)
  const batch = data.read([2, 0])
  t.same(batch.state!.shape, [2, 2, 2])
  t.same([...batch.state!.data], [4, 5, 0, 1, 10, 11, 6, 7])
  t.same([...batch.x!.data], [2, 0])
  t.same(batch.rate, { shape: [], data: Int32Array.of(16000), axis: null })
  t.equal(batchSizeOf(batch), 2)
  t.same(withSamples(batch.state!, 1).shape, [2, 1, 2])
  t.equal(withSamples(batch.rate!, 1), batch.rate)
  t.end()
})

t.test('fields that do not fit together', t => {
  const x = { shape: [3, 1], data: numbers(3) }
  const state = { shape: [2, 3], data: numbers(6) }
  t.throws(() => new ArrayDataset({ x, state }), {
    code: 'ERR_SHAPE',
    message: /field 'state' has 2 samples, but 'x' has 3/,
  })
  t.equal(new ArrayDataset({ x, state: { ...state, axis: 1 } }).size, 3)
  t.throws(() => batchSizeOf({ x, state }), {
    code: 'ERR_SHAPE',
    message: /same number of samples, at least 1: x: 3, state: 2; set 'axis'/,
  })
  t.throws(() => batchSizeOf({ rate: { shape: [], data: numbers(1), axis: null } }), { message: /none/ })
  t.end()
})

t.test('streams that are none', async t => {
  const read = async (data: unknown): Promise<number> => {
    const options = { batchSize: 2, seed: 0, shuffle: false }
    let count = 0
    for await (const _ of new BatchReader(data as TrainingData, options).epoch(0)) count++
    return count
  }
  const batch = { x: { shape: [2], data: numbers(2) } }
  t.equal(await read([batch, batch]), 2)
  t.equal(await read(() => [batch]), 1)
  const refused = (data: unknown, message: RegExp) =>
    t.rejects(read(data), { code: 'ERR_ARGUMENT', message }, String(message))
  await refused(() => undefined, /the data of epoch 1 must be an iterable of batches, got undefined/)
  await refused(() => Promise.resolve([batch]), /the data of epoch 1 must be an iterable/)
  await refused([batch, 5], /batch 1 must be an object of tensors by name, got 5/)
  await refused([null], /batch 0 must be an object/)
  await refused([{ x: null }], /batch 0: 'x' must be \{ shape, data \}/)
  await refused([{ x: { shape: [2], data: [1, 2] } }], /batch 0: 'x' must be .* with a typed array/)
  await refused([], /the data of epoch 1 are empty/)
})

t.test('samples whose memory has gone', t => {
  const data = numbers(6)
  const dataset = new ArrayDataset({ x: { shape: [3, 2], data } })
  transfer(data)
  t.throws(() => dataset.read([1]), { code: 'ERR_DISPOSED', message: /fields\['x'\] lies in memory/ })
  t.end()
})

t.test('a split', async t => {
  const data = smallData(41)
  const [training, validation] = splitDataset(data, 0.25, { seed: 3 })
  t.same([training.size, validation.size], [31, 10])
  const rows = async (part: Dataset) => {
    const { x } = await part.read(Array.from({ length: part.size }, (_, i) => i))
    return Array.from({ length: part.size }, (_, i) =>
      [...(x!.data as Float32Array).subarray(7 * i, 7 * i + 7)].join(),
    )
  }
  const all = [...(await rows(training)), ...(await rows(validation))]
  t.same(all.toSorted(), (await rows(data)).toSorted(), 'each sample is in one part')
  t.same(await rows(splitDataset(data, 0.25, { seed: 3 })[1]), await rows(validation))
  t.same(
    splitDataset(data, 0.9).map(({ size }) => size),
    [4, 37],
  )
  t.throws(() => splitDataset(data, 1), { code: 'ERR_ARGUMENT', message: /fraction must be/ })
  t.throws(() => splitDataset(smallData(1), 0.5), {
    message: /data has 1 samples: two parts need at least 2/,
  })
})
