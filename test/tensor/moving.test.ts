// Slices, joins and searches of tensors.
import { Tensor } from 'dgx-spark'
import t from 'tap'
import { backends } from '../fixtures/backends.js'

const x = Tensor.from([
  [1, 2, 3],
  [4, 5, 6],
])

t.test('slice', async t => {
  t.same(x.slice(1).toArray(), [[4, 5, 6]])
  t.same(x.slice(0, 1).toArray(), [[1, 2, 3]])
  t.same(x.slice([0, 1], [2, 3]).toArray(), [
    [2, 3],
    [5, 6],
  ])
  t.same(x.slice(-1, undefined, { axes: [1] }).toArray(), [[3], [6]])
  t.same(x.slice(0, Infinity, { axes: [-1], steps: [2] }).toArray(), [
    [1, 3],
    [4, 6],
  ])
  t.same(
    x.slice(-1, undefined, { axes: [1], steps: [-1] }).toArray(),
    [
      [3, 2, 1],
      [6, 5, 4],
    ],
    'backwards',
  )
  t.same(x.slice(5).shape, [0, 3])
  t.same(x.slice(2, 1).shape, [0, 3])
  const copy = x.slice(0)
  copy.data[0] = 9
  t.equal(x.data[0], 1, 'memory of its own')
  t.same(Tensor.from(['a', 'b', 'c']).slice(1).data, ['b', 'c'])
  t.equal(Tensor.from([1], { backend: 'js' }).slice(0).backend, 'js')
  t.throws(() => x.slice('0' as never), { code: 'ERR_ARGUMENT', message: /starts must be an integer/ })
  t.throws(() => x.slice([0, 0, 0]), { code: 'ERR_SHAPE', message: /3 entries/ })
  t.throws(() => x.slice([0, 0], [1]), { code: 'ERR_ARGUMENT', message: /ends/ })
  t.throws(() => x.slice(0, 1, { axes: [2] }), { code: 'ERR_ARGUMENT', message: /axes\[0\]/ })
  t.throws(() => x.slice(0, 1, { steps: [0] }), { code: 'ERR_ARGUMENT', message: /steps\[0\]/ })
  t.throws(() => Tensor.from(1).slice(0), { code: 'ERR_SHAPE' })
})

t.test('concat and stack', async t => {
  const y = Tensor.from([[7, 8, 9]])
  t.same(x.concat(y).toArray(), [
    [1, 2, 3],
    [4, 5, 6],
    [7, 8, 9],
  ])
  t.same(Tensor.concat([x, x], 1).shape, [2, 6])
  t.same(x.concat([x, x], -1).shape, [2, 9])
  t.same(Tensor.stack([x, x]).shape, [2, 2, 3])
  t.same(x.stack(x, -1).toArray(), [
    [
      [1, 1],
      [2, 2],
      [3, 3],
    ],
    [
      [4, 4],
      [5, 5],
      [6, 6],
    ],
  ])
  t.same(Tensor.stack([Tensor.from(1), Tensor.from(2)]).toArray(), [1, 2])
  t.throws(() => x.concat(y, 1), { code: 'ERR_SHAPE', message: /cannot be joined along axis 1/ })
  t.throws(() => x.concat(y.to('f16') as never), { code: 'ERR_DTYPE', message: /f32 and f16/ })
  t.throws(() => x.concat([1] as never), { code: 'ERR_ARGUMENT' })
  t.throws(() => x.concat(y, 2), { code: 'ERR_ARGUMENT', message: /axis/ })
  t.throws(() => Tensor.concat([]), { code: 'ERR_ARGUMENT', message: /tensors/ })
  t.throws(() => Tensor.stack(x as never), { code: 'ERR_ARGUMENT' })
})

for (const backend of backends) {
  t.test(`argMax, argMin and topK on ${backend}`, async t => {
    const z = Tensor.from(
      [
        [3, 9, 1],
        [7, 2, 7],
      ],
      { backend },
    )
    t.equal((await z.argMax()).toArray(), 1, 'of all elements')
    t.same((await z.argMax(1)).toArray(), [1, 0], 'the first of several')
    t.same((await z.argMax(-2)).toArray(), [1, 0, 1])
    t.same((await z.argMax(1, { keepDims: true })).toArray(), [[1], [0]])
    t.same((await z.argMax(undefined, { keepDims: true })).toArray(), [[1]])
    t.same((await z.argMin(1)).toArray(), [2, 1])
    const best = await z.topK(2)
    t.same(
      [best.values.toArray(), best.indices.toArray()],
      [
        [
          [9, 3],
          [7, 7],
        ],
        [
          [1, 0],
          [0, 2],
        ],
      ],
    )
    t.equal(best.indices.dtype, 'i64')
    t.same((await z.topK(1, 0, { largest: false })).values.toArray(), [[3, 2, 1]])
    await t.rejects(z.topK(4), { code: 'ERR_ARGUMENT', message: /k must be an integer in \[0, 3\]/ })
    await t.rejects(z.argMax(2), { code: 'ERR_ARGUMENT' })
  })
}
