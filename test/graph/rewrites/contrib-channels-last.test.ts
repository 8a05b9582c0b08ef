// Contributed operators whose channels come last, and what optimizers of diffusion models write. ONNX Runtime has some of
// them on GPUs only: those are compared with what their definition says.
import { Model, Tensor } from 'dgx-spark'
import t, { type Test } from 'tap'
import { numel } from '#lib/core/shape.js'
import { float, int, ints } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { type Attributes, makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { backends } from '../../fixtures/backends.js'
import { close } from '../../fixtures/close.js'
import { contributes } from '../../fixtures/contributed.js'
import { randomBytes } from '../../fixtures/values/bytes.js'
import { randomGenerator, uniform } from '../../fixtures/values/random.js'

const random = randomGenerator(17)
const floats = (...shape: number[]): Constant => Constant.from('f32', shape, uniform(random, numel(shape)))
const bytes = (kind: 'u8' | 'i8', ...shape: number[]): Constant => randomBytes(random, kind, shape)
const scale = (value: number): Constant => Constant.f32(value)
const zero = (value: number): Constant => Constant.from('u8', [], Uint8Array.of(value))

t.test('quantized operators', async t => {
  const last = { channels_last: int(1) }
  const x = { x: bytes('u8', 2, 5, 7, 3), s: scale(0.02), z: zero(120) }
  const y = { ys: scale(0.03), yz: zero(128) }
  const w = { w: bytes('i8', 4, 3, 3, 3), ws: scale(0.01), wz: Constant.from('i8', [], Int8Array.of(0)) }
  const pads = { pads: ints([1, 1, 1, 1]), strides: ints([2, 1]) }
  const wb = Constant.from('i32', [4], Int32Array.of(100, -200, 300, 5))
  await contributes(t, 'QLinearConv', { ...x, ...w, ...y, wb }, { ...pads, ...last }, ['y'], 1 / 128)
  const kernel = { kernel_shape: ints([2, 3]), strides: ints([1, 2]) }
  await contributes(t, 'QLinearAveragePool', { ...x, ...y }, { ...kernel, ...last }, ['y'], 1 / 128)
  await contributes(t, 'QLinearGlobalAveragePool', { ...x, ...y }, last, ['y'], 1 / 128)
  await contributes(t, 'NhwcMaxPool', { x: x.x }, kernel, ['y'], 0)
})

/** Runs a node on all engines and compares its outputs with what it should give. */
async function gives(
  t: Test,
  op: string,
  operands: Readonly<Record<string, Constant>>,
  attributes: Attributes,
  expected: Readonly<Record<string, { shape: readonly number[]; data: Float32Array }>>,
): Promise<void> {
  const graph = makeGraph({
    inputs: Object.entries(operands).map(([name, { shape }]) => ({ name, type: tensorType('f32', shape) })),
    outputs: Object.keys(expected).map(name => ({ name })),
    nodes: [
      makeNode(op, Object.keys(operands), Object.keys(expected), { domain: 'com.microsoft', attributes }),
    ],
    opsets: new Map([
      ['', 17],
      ['com.microsoft', 1],
    ]),
  })
  for (const backend of backends) {
    using model = await Model.fromGraph(graph, { backend, precision: 'fp32' })
    const feeds = Object.entries(operands).map(([name, { data, shape }]) => [
      name,
      Tensor.of(data as Float32Array, shape, 'f32'),
    ])
    const outputs = await model.run<Tensor>(Object.fromEntries(feeds))
    for (const [name, { shape, data }] of Object.entries(expected)) {
      t.same(outputs[name]!.shape, shape, `${op} ${name} on ${backend}`)
      close(t, outputs[name]!.data as Float32Array, data, 1e-5, `${op} ${name} on ${backend}`)
    }
  }
}

/** An array of a shape, from its indices. */
function filled(shape: readonly number[], value: (...at: number[]) => number): Float32Array {
  return Float32Array.from({ length: numel(shape) }, (_, flat) => {
    let rest = flat
    const at = shape.map((_, axis) => {
      const inner = numel(shape.slice(axis + 1))
      const index = Math.floor(rest / inner)
      rest %= inner
      return index
    })
    return value(...at)
  })
}

const reading =
  ({ shape, data }: Constant) =>
  (...at: number[]): number =>
    (data as Float32Array)[at.reduce((flat, index, axis) => flat * shape[axis]! + index, 0)]!

t.test('NhwcConv', async t => {
  const [x, w, b] = [floats(2, 5, 4, 4), floats(6, 3, 2, 2), floats(6)]
  const [image, filter, bias] = [reading(x), reading(w), reading(b)]
  const shape = [2, 3, 3, 6]
  const data = filled(shape, (n, row, column, m) => {
    const first = m < 3 ? 0 : 2
    let sum = bias(m)
    for (let i = 0; i < 3; i++)
      for (let j = 0; j < 2; j++)
        for (let c = 0; c < 2; c++) sum += image(n, row + i, column + j, first + c) * filter(m, i, j, c)
    return sum
  })
  await gives(t, 'NhwcConv', { x, w, b }, { group: int(2) }, { y: { shape, data } })
})

t.test('GroupNorm and SkipGroupNorm', async t => {
  const [n, h, w, c, groups, epsilon] = [2, 3, 5, 6, 2, 1e-3]
  const shape = [n, h, w, c]
  const [x, gamma, beta, bias] = [floats(n, h, w, c), floats(c), floats(c), floats(c)]
  const normalized = (sum: Float32Array, activation: boolean, first = false): Float32Array => {
    const width = c / groups
    // Where an element of sample i, position p and channel k stands.
    const place = (i: number, p: number, k: number): number =>
      first ? (i * c + k) * h * w + p : (i * h * w + p) * c + k
    const result = new Float32Array(sum.length)
    for (let i = 0; i < n; i++) {
      for (let group = 0; group < groups; group++) {
        const places = Array.from({ length: h * w * width }, (_, j) => [
          Math.floor(j / width),
          group * width + (j % width),
        ])
        const values = places.map(([p, k]) => sum[place(i, p!, k!)]!)
        const mean = values.reduce((total, value) => total + value) / values.length
        const variance = values.reduce((total, value) => total + (value - mean) ** 2, 0) / values.length
        for (const [p, k] of places) {
          const [g, b] = [reading(gamma)(k!), reading(beta)(k!)]
          const value = ((sum[place(i, p!, k!)]! - mean) / Math.sqrt(variance + epsilon)) * g + b
          result[place(i, p!, k!)] = activation ? value / (1 + Math.exp(-value)) : value
        }
      }
    }
    return result
  }
  const data = x.data as Float32Array
  const settings = { groups: int(groups), epsilon: float(epsilon) }
  for (const activation of [0, 1]) {
    const attributes = { ...settings, activation: int(activation) }
    const y = { shape, data: normalized(data, activation === 1) }
    await gives(t, 'GroupNorm', { x, gamma, beta }, attributes, { y })
    const skips = { full: floats(n, h, w, c), rows: floats(n, c), wide: floats(n, 1, 1, c) }
    for (const [kind, skip] of Object.entries(skips)) {
      const of = reading(skip)
      const added = (i: number, row: number, column: number, k: number): number =>
        kind === 'full' ? of(i, row, column, k) : kind === 'rows' ? of(i, k) : of(i, 0, 0, k)
      const sum = filled(shape, (i, row, column, k) => {
        const own = reading(x)(i, row, column, k)
        return own + reading(bias)(k) + added(i, row, column, k)
      })
      const outputs = { y: { shape, data: normalized(sum, activation === 1) }, s: { shape, data: sum } }
      await gives(t, 'SkipGroupNorm', { x, gamma, beta, skip, bias }, attributes, outputs)
    }
  }
  const front = Constant.from('f32', [n, c, h, w], data)
  const y = { shape: front.shape, data: normalized(data, false, true) }
  await gives(t, 'GroupNorm', { x: front, gamma, beta }, { ...settings, channels_last: int(0) }, { y })
})

t.test('BiasAdd and BiasSplitGelu', async t => {
  const [x, bias, skip] = [floats(2, 3, 10), floats(10), floats(2, 3, 10)]
  const shape = [2, 3, 10]
  const sum = filled(shape, (i, j, k) => reading(x)(i, j, k) + reading(bias)(k))
  const added = sum.map((value, i) => value + (skip.data as Float32Array)[i]!)
  await gives(t, 'BiasAdd', { x, bias, skip }, {}, { y: { shape, data: added } })
  const halves = [2, 3, 5]
  // gelu(v) = v Φ(v); Φ by Simpson's rule.
  const phi = (v: number): number => {
    const steps = 400
    const density = (u: number): number => Math.exp((-u * u) / 2) / Math.sqrt(2 * Math.PI)
    const at = (i: number): number => density((v * i) / steps) * (i === 0 || i === steps ? 1 : i % 2 ? 4 : 2)
    let total = 0
    for (let i = 0; i <= steps; i++) total += at(i)
    return 0.5 + (total * v) / steps / 3
  }
  const data = filled(halves, (i, j, k) => {
    const [left, right] = [sum[(i * 3 + j) * 10 + k]!, sum[(i * 3 + j) * 10 + 5 + k]!]
    return left * right * phi(right)
  })
  await gives(t, 'BiasSplitGelu', { x, bias }, {}, { y: { shape: halves, data } })
})
