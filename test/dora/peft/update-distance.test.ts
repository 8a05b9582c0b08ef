// Norms of differences of B·A against products that are formed.
import { Tensor } from 'dgx-spark'
import t from 'tap'
import { randomGenerator } from '#lib/core/random.js'
import { type ScaledModule, updateDistance } from '#lib/dora/peft/update-distance.js'

const random = randomGenerator(7)

function randomModule(a: readonly number[], b: readonly number[], scale: number): ScaledModule {
  const tensor = (shape: readonly number[]): Tensor => {
    const count = shape.reduce((product, size) => product * size, 1)
    return Tensor.from(
      Float32Array.from({ length: count }, () => random() - 0.5),
      { shape },
    )
  }
  return { a: tensor(a), b: tensor(b), scale }
}

/** scale · B·A, where B may be that of a grouped convolution. */
function product({ a, b, scale }: ScaledModule): number[] {
  const [rank, rows, perGroup] = [a.shape[0]!, b.shape[0]!, b.shape[1]!]
  const [left, right] = [b.toFloat32(), a.toFloat32()]
  const cols = right.length / rank
  const groupRows = rows / (rank / perGroup)
  return Array.from({ length: rows * cols }, (_, i) => {
    const [row, col] = [Math.floor(i / cols), i % cols]
    const first = Math.floor(row / groupRows) * perGroup
    let sum = 0
    for (let k = 0; k < perGroup; k++) sum += left[row * perGroup + k]! * right[(first + k) * cols + col]!
    return scale * sum
  })
}

const norm = (values: readonly number[]): number => Math.hypot(...values)

t.test('equals the norm of the difference of the products', async t => {
  for (const [name, first, second] of [
    ['linear, ranks 3 and 5', randomModule([3, 11], [7, 3], 2), randomModule([5, 11], [7, 5], 0.5)],
    ['ranks above the sizes', randomModule([9, 4], [3, 9], 1), randomModule([2, 4], [3, 2], 1)],
    ['conv', randomModule([2, 3, 2, 2], [6, 2, 1, 1], 1), randomModule([3, 3, 2, 2], [6, 3, 1, 1], 1)],
    [
      'grouped conv',
      randomModule([4, 3, 2, 2], [6, 2, 1, 1], 1),
      randomModule([2, 3, 2, 2], [6, 1, 1, 1], 3),
    ],
  ] as const) {
    const [one, two] = [product(first), product(second)]
    const distance = updateDistance(first, second)!
    t.ok(Math.abs(distance.norm / norm(one) - 1) < 1e-12, name)
    const expected = norm(two.map((value, i) => value - one[i]!))
    t.ok(Math.abs(distance.difference / expected - 1) < 1e-12, name)
  }
})

t.test('is 0 to double precision between equal updates', async t => {
  const module = randomModule([4, 30], [20, 4], 1)
  const { difference, norm } = updateDistance(module, module)!
  t.ok(difference < 1e-14 * norm)
  const untrained = { ...module, b: Tensor.zeros([20, 4]) }
  t.strictSame(updateDistance(untrained, untrained), { difference: 0, norm: 0 })
})

t.test('is unknown between weights of different sizes', async t => {
  t.equal(updateDistance(randomModule([2, 3], [4, 2], 1), randomModule([2, 4], [4, 2], 1)), undefined)
})
