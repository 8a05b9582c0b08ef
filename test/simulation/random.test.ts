// Noise: it belongs to seed, stream and step only, and has the moments that it should have.
import t from 'tap'
import { normalNoise, uniformNoise } from '#lib/simulation/noise.js'

const momentsOf = (values: Float32Array) => {
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length
  const central = (power: number): number =>
    values.reduce((sum, value) => sum + (value - mean) ** power, 0) / values.length
  return { mean, variance: central(2), third: central(3), fourth: central(4) }
}

t.test('a number belongs to its seed, stream and step', t => {
  const long = normalNoise(5, 2, 1000, 1)
  t.same(normalNoise(5, 2, 1000, 1), long, 'again')
  t.same(normalNoise(5, 2, 10, 1), long.subarray(0, 10), 'of a shorter one')
  const others = [
    normalNoise(6, 2, 1000, 1),
    normalNoise(5, 3, 1000, 1),
    normalNoise(5 + 2 ** 32, 2, 1000, 1),
  ]
  for (const other of others) t.ok(other.filter((value, i) => value === long[i]).length < 5)
  const doubled = normalNoise(5, 2, 1000, 2)
  t.same(
    doubled,
    long.map(value => 2 * value),
    'the deviation is a factor',
  )
  t.same(normalNoise(5, 2, 4, 0), new Float32Array(4))
  t.same(uniformNoise(5, 2, 10), uniformNoise(5, 2, 1000).subarray(0, 10))
  t.end()
})

const count = 1e5

t.test('moments of normal noise', t => {
  for (const seed of [0, 1, 2 ** 40]) {
    const values = normalNoise(seed, 0, count, 1)
    // Four standard errors: of the mean 1/√n, of the variance √(2/n), then √(6/n) and √(96/n).
    const { mean, variance, third, fourth } = momentsOf(values)
    t.ok(Math.abs(mean) < 4 / Math.sqrt(count), `mean ${mean}`)
    t.ok(Math.abs(variance - 1) < 4 * Math.sqrt(2 / count), `variance ${variance}`)
    t.ok(Math.abs(third) < 4 * Math.sqrt(15 / count), `third ${third}`)
    t.ok(Math.abs(fourth - 3) < 4 * Math.sqrt(96 / count), `fourth ${fourth}`)
    const beyond = values.filter(value => Math.abs(value) > 1.959964).length / count
    t.ok(Math.abs(beyond - 0.05) < 4 * Math.sqrt((0.05 * 0.95) / count), `beyond 1.96: ${beyond}`)
    t.ok(values.every(Number.isFinite))
  }
  t.end()
})

t.test('moments of uniform noise', t => {
  const values = uniformNoise(7, 1, count)
  const { mean, variance } = momentsOf(values)
  t.ok(Math.abs(mean - 0.5) < 4 * Math.sqrt(1 / 12 / count), `mean ${mean}`)
  t.ok(Math.abs(variance - 1 / 12) < 4 * Math.sqrt(1 / 180 / count), `variance ${variance}`)
  t.ok(values.every(value => value >= 0 && value < 1))
  const tenths = new Array(10).fill(0)
  for (const value of values) tenths[Math.floor(value * 10)]++
  const square = tenths.reduce((sum, each) => sum + (each - count / 10) ** 2 / (count / 10), 0)
  t.ok(square < 27.88, `chi square of 9 degrees, 99.9 %: ${square}`)
  t.end()
})

t.test('steps and streams are not correlated', t => {
  const [a, b] = [normalNoise(3, 0, count, 1), normalNoise(3, 1, count, 1)]
  const product = (x: Float32Array, y: Float32Array): number =>
    y.reduce((sum, value, i) => sum + value * x[i]!, 0) / y.length
  t.ok(Math.abs(product(a, b)) < 4 / Math.sqrt(count), 'streams')
  t.ok(Math.abs(product(a, a.subarray(1))) < 4 / Math.sqrt(count), 'neighbours')
  t.ok(Math.abs(product(a, normalNoise(4, 0, count, 1))) < 4 / Math.sqrt(count), 'seeds')
  t.end()
})
