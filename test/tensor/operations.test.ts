// Arithmetic on tensors: what each operation gives, every engine against js on odd shapes, and what is refused.
import { type BackendName, Tensor } from 'dgx-spark'
import t from 'tap'
import { numel } from '#lib/core/shape.js'
import { backends } from '../fixtures/backends.js'
import { close } from '../fixtures/close.js'
import { randomGenerator, uniform } from '../fixtures/values/random.js'

const random = randomGenerator(11)
const tensor = (shape: readonly number[], low = -1): Tensor<'f32'> =>
  Tensor.from(uniform(random, numel(shape), low, 2), { shape })

t.test('what they give', async t => {
  const x = Tensor.from(
    [
      [1, -2, 3],
      [-4, 5, -6],
    ],
    { backend: 'js' },
  )
  t.equal(x.backend, 'js')
  const same = async (result: Promise<Tensor>, values: unknown): Promise<void> => {
    const { shape, backend, dtype } = await result
    t.same((await result).toArray(), values)
    t.same([shape, backend, dtype], [Tensor.from(values as number[]).shape, 'js', 'f32'])
  }
  await same(x.add([10, 20, 30]), [
    [11, 18, 33],
    [6, 25, 24],
  ])
  await same(x.sub(1), [
    [0, -3, 2],
    [-5, 4, -7],
  ])
  await same(x.mul(Tensor.from([[2], [0.5]])), [
    [2, -4, 6],
    [-2, 2.5, -3],
  ])
  await same(x.div(2), [
    [0.5, -1, 1.5],
    [-2, 2.5, -3],
  ])
  await same(x.pow(2), [
    [1, 4, 9],
    [16, 25, 36],
  ])
  await same(x.matmul([[1], [2], [3]]), [[6], [-12]])
  await same(x.matmul(Float32Array.of(1, 2, 3)), [6, -12])
  await same(x.neg(), [
    [-1, 2, -3],
    [4, -5, 6],
  ])
  await same(x.relu(), [
    [1, 0, 3],
    [0, 5, 0],
  ])
  await same(x.abs(), [
    [1, 2, 3],
    [4, 5, 6],
  ])
  await same(x.transpose(), [
    [1, -4],
    [-2, 5],
    [3, -6],
  ])
  await same(x.sum(), -3)
  await same(x.sum({ axes: [0] }), [-3, 3, -3])
  await same(
    x.mean({ axes: [-1], keepDims: true }),
    [[2 / 3], [-5 / 3]].map(row => row.map(Math.fround)),
  )
  await same(x.max({ axes: [1] }), [3, 5])
  await same(x.min(), -6)
  await same(x.sum({ axes: [] }), x.toArray())
  await same(x.reshape([6]).sub(x.reshape([6])), [0, 0, 0, 0, 0, 0])
  t.same(await (await x.add(0)).read(), x.data)
  t.equal(await x.read(), x.data)
})

t.test('engines on odd shapes', async t => {
  const [a, b, c] = [tensor([3, 1, 7, 5]), tensor([2, 1, 5]), tensor([3, 2, 5, 9])]
  const positive = tensor([3, 1, 7], 0.1)
  const operations: Record<string, (on: BackendName) => Promise<Tensor>> = {
    add: on => a.to(on).add(b),
    sub: on => a.to(on).sub(b),
    mul: on => b.to(on).mul(a),
    div: on => a.to(on).div(tensorOf(positive, [3, 1, 7, 1])),
    pow: on => positive.to(on).pow(1.5),
    matmul: on => a.to(on).matmul(c),
    exp: on => a.to(on).exp(),
    log: on => positive.to(on).log(),
    sqrt: on => positive.to(on).sqrt(),
    tanh: on => a.to(on).tanh(),
    sigmoid: on => a.to(on).sigmoid(),
    softmax: on => a.to(on).softmax(-2),
    mean: on => a.to(on).mean({ axes: [0, -1] }),
    max: on => a.to(on).max({ axes: [2] }),
    transpose: on => a.to(on).transpose([2, 0, 3, 1]),
  }
  for (const [name, run] of Object.entries(operations)) {
    const expected = await run('js')
    for (const backend of backends) {
      const result = await run(backend)
      t.same([result.shape, result.backend], [expected.shape, backend])
      close(t, result.toFloat32(), expected.toFloat32(), 1e-6, `${name} on ${backend}`)
    }
  }
})

const tensorOf = ({ data }: Tensor, shape: number[]): Tensor<'f32'> =>
  Tensor.from(data, { shape }) as Tensor<'f32'>

t.test('other types', async t => {
  const whole = Tensor.from([7, -7, 9], { dtype: 'i32', backend: 'js' })
  t.same((await whole.div(2)).data, Int32Array.of(3, -3, 4))
  const big = Tensor.from([2 ** 40, 3], { dtype: 'i64', backend: 'js' })
  t.same((await big.mul(big.to('i64'))).data, BigInt64Array.of(1n << 80n, 9n))
  const half = Tensor.from([1.5, 2], { dtype: 'f16', backend: 'js' })
  const sum = await half.add(Uint16Array.of(0x3c00, 0x4000))
  t.same([sum.dtype, sum.toArray()], ['f16', [2.5, 4]])
  t.same((await Tensor.from(4, { backend: 'js' }).sqrt()).toArray(), 2)
  t.same((await Tensor.zeros([0, 3]).to('js').add(1)).shape, [0, 3])
})

t.test('calls side by side', async t => {
  const x = tensor([5, 3]).to('js')
  const sums = await Promise.all(Array.from({ length: 20 }, (_, i) => x.reshape([15]).add(i)))
  t.ok(sums.every((sum, i) => sum.data[4] === Math.fround(x.data[4]! + i)))
  const shapes = Array.from({ length: 9 }, (_, rank) => tensor(Array(rank).fill(1)).to('js'))
  // More operations than are kept.
  for (let round = 0; round < 2; round++) {
    for (const one of shapes) {
      const all = [
        one.add(1),
        one.sub(1),
        one.mul(2),
        one.div(2),
        one.exp(),
        one.relu(),
        one.neg(),
        one.abs(),
      ]
      const [first] = await Promise.all(all)
      t.equal(first!.data[0], Math.fround(one.data[0]! + 1))
    }
  }
})

t.test('refusals', async t => {
  const x = tensor([2, 3]).to('js')
  await t.rejects(x.add([1, 2]), { code: 'ERR_SHAPE', message: /broadcast/ })
  await t.rejects(x.matmul(tensor([2, 3])), { code: 'ERR_SHAPE' })
  await t.rejects(x.add(Tensor.from([1, 2, 3], { dtype: 'f16' })), {
    code: 'ERR_DTYPE',
    message: "other is of f16, but the tensor is of f32; convert one: tensor.to('f32')",
  })
  await t.rejects(x.add('1' as never), { code: 'ERR_ARGUMENT' })
  await t.rejects(x.sum({ axes: [2] }), { code: 'ERR_ARGUMENT', message: /options.axes\[0\]/ })
  await t.rejects(x.softmax(1.5), { code: 'ERR_ARGUMENT', message: /axis/ })
  await t.rejects(x.transpose([0, 0]), { code: 'ERR_SHAPE', message: /each dimension of \[2, 3\] once/ })
  await t.rejects(x.transpose([0]), { code: 'ERR_SHAPE' })
  t.throws(() => Tensor.from([1], { backend: 'gpu' as never }), { code: 'ERR_ARGUMENT' })
  t.throws(() => x.to('gpu' as never), { code: 'ERR_ARGUMENT' })
})
