// Batches whose samples are counted by another dimension than the first, and fields that all samples have in common.
import t from 'tap'
import { ArrayDataset, batchSizeOf, withSamples } from '#lib/training/dataset.js'

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
    message: /as many samples in each field, at least 1: x: 3, state: 2; .*'axis' says which/,
  })
  t.throws(() => batchSizeOf({ rate: { shape: [], data: numbers(1), axis: null } }), { message: /none/ })
  t.end()
})
