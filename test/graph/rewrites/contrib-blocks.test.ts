// Contributed operators on weights in blocks: the results of ONNX Runtime, from weights that stay in blocks.
import { Model, Tensor } from 'dgx-spark'
import t from 'tap'
import { numel } from '#lib/core/shape.js'
import { int } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { type Attributes, type Graph, makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { canonicalise } from '#lib/graph/rewrites/canonicalise.js'
import { readCodes } from '#lib/graph/rewrites/read-codes.js'
import { decode, encode } from '#lib/precision/casts.js'
import { backends } from '../../fixtures/backends.js'
import { close } from '../../fixtures/close.js'
import { contributes } from '../../fixtures/contributed.js'
import { randomGenerator, uniform } from '../../fixtures/values/random.js'

const random = randomGenerator(23)
const floats = (...shape: number[]): Constant => Constant.from('f32', shape, uniform(random, numel(shape)))
const scalesOf = (...shape: number[]): Constant =>
  Constant.from(
    'f32',
    shape,
    uniform(random, numel(shape)).map(value => 0.02 + value / 100),
  )
const bytes = (...shape: number[]): Constant =>
  Constant.from(
    'u8',
    shape,
    Uint8Array.from({ length: numel(shape) }, () => random() * 256),
  )
const none = undefined

type Operands = Readonly<Record<string, Constant | undefined>>

/** One node, whose operands that start with w are initializers. */
function graphOf(op: string, operands: Operands, attributes: Attributes, domain = 'com.microsoft'): Graph {
  const given = Object.entries(operands).filter(
    (entry): entry is [string, Constant] => entry[1] !== undefined,
  )
  return makeGraph({
    inputs: given
      .filter(([name]) => !name.startsWith('w'))
      .map(([name, { dtype, shape }]) => ({ name, type: tensorType(dtype, shape) })),
    outputs: [{ name: 'y' }],
    nodes: [
      makeNode(
        op,
        Object.entries(operands).map(([name, value]) => (value ? name : '')),
        ['y'],
        { domain, attributes },
      ),
    ],
    initializers: new Map(given.filter(([name]) => name.startsWith('w'))),
    opsets: new Map([
      ['', 21],
      ['com.microsoft', 1],
    ]),
  })
}

/** Formats of the weights that products read, in order. */
const formatsOf = (graph: Graph): string[] =>
  [...readCodes(canonicalise(graph)).initializers.values()].flatMap(({ weight }) =>
    weight ? [weight.shared.format] : [],
  )

async function outputOf(graph: Graph, operands: Operands, backend: 'cpu' | 'js'): Promise<Tensor> {
  using model = await Model.fromGraph(graph, { backend, precision: 'fp32' })
  const feeds = graph.inputs.map(({ name }) => {
    const { data, shape, dtype } = operands[name]!
    return [name, Tensor.of(data as never, shape, dtype as never)]
  })
  const { y } = await model.run<Tensor>(Object.fromEntries(feeds))
  return y!
}

/** Operands of MatMulNBits, their codes and zero points in bytes. */
function nBits(
  n: number,
  k: number,
  bits: number,
  block: number,
): { x: Constant; w: Constant; ws: Constant } {
  const blocks = Math.ceil(k / block)
  return { x: floats(3, k), w: bytes(n, blocks, (block * bits) / 8), ws: scalesOf(n, blocks) }
}
const sizesOf = (n: number, k: number, bits: number, block: number): Attributes => ({
  N: int(n),
  K: int(k),
  bits: int(bits),
  block_size: int(block),
})

t.test('MatMulNBits stays in blocks', async t => {
  for (const [bits, block, k, format] of [
    [4, 32, 96, 'u4_32'],
    [4, 64, 192, 'u4_32'],
    [4, 128, 256, 'u4_128'],
    [4, 256, 512, 'u4_128'],
    [8, 32, 64, 'u8_32'],
    [8, 128, 128, 'u8_128'],
    [2, 32, 64, 'u4_32'],
    [4, 16, 48, 'u4_16'],
    [8, 16, 64, 'u8_16'],
    [4, 32, 80, none],
    [8, 16, 40, none],
  ] as const) {
    const n = 35
    const operands = nBits(n, k, bits, block)
    const blocks = Math.ceil(k / block)
    const wz = bytes(n, Math.ceil((blocks * bits) / 8))
    const wb = floats(n)
    for (const [is, all] of Object.entries({
      'no zero points': operands,
      'zero points': { ...operands, wz },
      'a bias': { ...operands, wz, none, wb },
    })) {
      const attributes = sizesOf(n, k, bits, block)
      t.strictSame(
        formatsOf(graphOf('MatMulNBits', all, attributes)),
        format ? [format] : [],
        `${bits} ${block} ${is}`,
      )
      await contributes(t, 'MatMulNBits', all, attributes)
    }
  }
})

t.test('floats as zero points, and features in blocks of any order', async t => {
  const [n, k, block] = [6, 64, 32]
  const operands = nBits(n, k, 4, block)
  const attributes = sizesOf(n, k, 4, block)
  const whole = Constant.from(
    'f32',
    [n, 2],
    Float32Array.from({ length: n * 2 }, (_, i) => (3 * i) % 16),
  )
  t.strictSame(formatsOf(graphOf('MatMulNBits', { ...operands, wz: whole }, attributes)), ['u4_32'])
  await contributes(t, 'MatMulNBits', { ...operands, wz: whole }, attributes)
  const broken = Constant.from(
    'f32',
    [n, 2],
    uniform(random, n * 2).map(value => 8 + value),
  )
  t.strictSame(formatsOf(graphOf('MatMulNBits', { ...operands, wz: broken }, attributes)), ['u4_32f'])
  await contributes(t, 'MatMulNBits', { ...operands, wz: broken }, attributes)
  const inOrder = Constant.from(
    'i32',
    [k],
    Int32Array.from({ length: k }, (_, i) => Math.floor(i / block)),
  )
  const ordered = graphOf('MatMulNBits', { ...operands, none, wg: inOrder }, attributes)
  t.strictSame(formatsOf(ordered), ['u4_32'], 'blocks of neighbours after all')
  const mixed = Constant.from(
    'i32',
    [k],
    Int32Array.from({ length: k }, (_, i) => (i * 7) % 2),
  )
  const graph = graphOf('MatMulNBits', { ...operands, none, wg: mixed }, attributes)
  t.strictSame(formatsOf(graph), ['u4_32'], 'columns in an order of their own')
  const { x, w, ws } = operands
  const scale = ws.data as Float32Array
  const expected = Float32Array.from({ length: 3 * n }, (_, at) => {
    const [row, feature] = [Math.floor(at / n), at % n]
    let sum = 0
    for (let i = 0; i < k; i++) {
      const code = (w.bytes[(feature * k + i) >> 1]! >> (4 * (i & 1))) & 15
      sum += (x.data as Float32Array)[row * k + i]! * (code - 8) * scale[feature * 2 + ((i * 7) % 2)]!
    }
    return sum
  })
  for (const backend of backends)
    close(
      t,
      (await outputOf(graph, operands, backend)).data as Float32Array,
      expected,
      1e-5,
      `g_idx on ${backend}`,
    )
})

t.test('floats as zero points: sizes', async t => {
  const n = 5
  for (const [bits, block, k, format] of [
    [4, 16, 48, 'u4_16f'],
    [4, 128, 128, 'u4_32f'],
    [8, 16, 48, 'u8_16f'],
    [8, 64, 64, 'u8_32f'],
    [4, 32, 80, 'f32'],
    [4, 16, 45, 'f32'],
  ] as const) {
    const blocks = Math.ceil(k / block)
    const wz = Constant.from(
      'f32',
      [n, blocks],
      uniform(random, n * blocks).map(value => 8 + value),
    )
    const operands = { ...nBits(n, k, bits, block), wz }
    const attributes = sizesOf(n, k, bits, block)
    const graph = graphOf('MatMulNBits', operands, attributes)
    t.strictSame(formatsOf(graph), [format], `${bits} ${block} ${k}`)
    if (bits === 4) {
      await contributes(t, 'MatMulNBits', operands, attributes)
      continue
    }
    // ONNX Runtime knows none for 8 bits.
    const [scales, zeros] = [operands.ws.data as Float32Array, wz.data as Float32Array]
    const values = Float32Array.from({ length: n * k }, (_, i) => {
      const at = Math.floor(i / k) * blocks + Math.floor((i % k) / block)
      return Math.fround(operands.w.bytes[i]! - zeros[at]!) * scales[at]!
    })
    const expected = productOf(operands.x, values, n)
    for (const backend of backends) {
      const y = await outputOf(graph, operands, backend)
      close(t, y.data as Float32Array, expected, 1e-4, `${bits} ${block} on ${backend}`)
    }
  }
})

t.test('features in blocks of any order that are not whole ones', async t => {
  const [n, k, block] = [3, 64, 32]
  const operands = nBits(n, k, 4, block)
  // 33 features of the first block.
  const wg = Constant.from(
    'i32',
    [k],
    Int32Array.from({ length: k }, (_, i) => (i === 1 ? 0 : i % 2)),
  )
  t.strictSame(formatsOf(graphOf('MatMulNBits', { ...operands, none, wg }, sizesOf(n, k, 4, block))), ['f32'])
})

t.test('MatMulNBits of f16', async t => {
  const [n, k, block] = [5, 128, 64]
  const plain = { ...nBits(n, k, 4, block), none, none2: none, wb: floats(n) }
  const half = (value: Constant): Constant =>
    Constant.from('f16', value.shape, encode(value.data as Float32Array, 'f16'))
  const halves = { ...plain, x: half(plain.x), ws: half(plain.ws), wb: half(plain.wb) }
  const wide = (value: Constant): Constant =>
    Constant.from('f32', value.shape, decode(value.data as Uint16Array, 'f16'))
  const floats32 = { ...plain, x: wide(halves.x), ws: wide(halves.ws), wb: wide(halves.wb) }
  const attributes = sizesOf(n, k, 4, block)
  t.strictSame(formatsOf(graphOf('MatMulNBits', halves, attributes)), ['q4_0'])
  for (const backend of backends) {
    const y = await outputOf(graphOf('MatMulNBits', halves, attributes), halves, backend)
    const expected = await outputOf(graphOf('MatMulNBits', floats32, attributes), floats32, backend)
    t.equal(y.dtype, 'f16')
    close(t, y.toFloat32(), expected.data as Float32Array, 1e-3, `sums of f32 on ${backend}`)
  }
})

t.test('GatherBlockQuantized reads rows of blocks', async t => {
  const ids = Constant.from('i64', [2, 3], BigInt64Array.of(0n, 6n, 2n, 2n, 1n, 5n))
  const attributes = (bits: number, block: number): Attributes => ({
    bits: int(bits),
    block_size: int(block),
    gather_axis: int(0),
    quantize_axis: int(1),
  })
  for (const [bits, block, width, format] of [
    [4, 32, 64, 'u4_32'],
    [4, 128, 128, 'u4_128'],
    [8, 32, 96, 'u8_32'],
    [4, 16, 48, 'u4_16'],
  ] as const) {
    const blocks = width / block
    const plain = { w: bytes(7, (width * bits) / 8), ids, ws: scalesOf(7, blocks) }
    const zeros = { ...plain, wz: bytes(7, Math.ceil((blocks * bits) / 8)) }
    for (const operands of [plain, zeros]) {
      const graph = graphOf('GatherBlockQuantized', operands, attributes(bits, block))
      t.strictSame(formatsOf(graph), format ? [format] : [], `${bits} ${block}`)
      await contributes(t, 'GatherBlockQuantized', operands, attributes(bits, block))
    }
  }
  const codes = Constant.from('i4', [7, 64], bytes(7, 32).data as Uint8Array)
  const signed = { w: codes, ids, ws: scalesOf(7, 2) }
  t.strictSame(formatsOf(graphOf('GatherBlockQuantized', signed, attributes(4, 32))), ['u4_32'])
  await contributes(t, 'GatherBlockQuantized', signed, attributes(4, 32))
})

/** x · Wᵀ for W[n, k]. */
function productOf(x: Constant, w: Float32Array, n: number): Float32Array {
  const k = w.length / n
  const rows = decode(x.data as Uint16Array, x.dtype as 'f16')
  return Float32Array.from({ length: (rows.length / k) * n }, (_, at) => {
    const [row, feature] = [Math.floor(at / n) * k, (at % n) * k]
    let sum = 0
    for (let i = 0; i < k; i++) sum += rows[row + i]! * w[feature + i]!
    return sum
  })
}

const halves = (...shape: number[]): Constant =>
  Constant.from('f16', shape, encode(uniform(random, numel(shape)), 'f16'))
/** Codes of E4M3 that are numbers of at most `most`. */
const codesOfE4M3 = (shape: readonly number[], most: number): Constant =>
  Constant.from(
    'f8_e4m3',
    shape,
    encode(
      uniform(random, numel(shape)).map(value => most * value),
      'f8_e4m3',
    ),
  )

t.test('MatMulBlockQuantizedFp8Weight', async t => {
  const n = 34
  for (const [k, block, format] of [
    [128, 32, 'f8_32'],
    [256, 128, 'f8_128'],
    [72, 32, none],
  ] as const) {
    const blocks = Math.ceil(k / block)
    const operands = { x: halves(2, 2, k), w: codesOfE4M3([n, k], 300), ws: scalesOf(n, blocks) }
    const attributes = { block_size: int(block) }
    const [codes, scales] = [decode(operands.w.bytes, 'f8_e4m3'), operands.ws.data as Float32Array]
    const weight = codes.map(
      (code, i) => code * scales[Math.floor(i / k) * blocks + Math.floor((i % k) / block)]!,
    )
    const expected = productOf(operands.x, weight, n)
    const biased = { ...operands, none, wb: halves(n) }
    const bias = decode(biased.wb.data as Uint16Array, 'f16')
    const rounded = { ...operands, wx: Constant.f32([0.004], [1]) }
    const x8 = decode(operands.x.data as Uint16Array, 'f16').map(value => value / Math.fround(0.004))
    const steps = decode(encode(x8, 'f8_e4m3'), 'f8_e4m3').map(value => value * Math.fround(0.004))
    const ofSteps = productOf(Constant.from('f32', operands.x.shape, steps), weight, n)
    t.strictSame(
      formatsOf(graphOf('MatMulBlockQuantizedFp8Weight', operands, attributes)),
      format ? [format] : [],
    )
    for (const backend of backends)
      for (const [is, all, wanted] of [
        ['plain', operands, expected],
        ['a bias', biased, expected.map((value, i) => value + bias[i % n]!)],
        ['a scale of x', rounded, ofSteps],
      ] as const) {
        const y = await outputOf(graphOf('MatMulBlockQuantizedFp8Weight', all, attributes), all, backend)
        t.strictSame([y.dtype, y.shape], ['f16', [2, 2, n]])
        close(t, y.toFloat32(), wanted, 2e-3, `${is}, ${block} of ${k} on ${backend}`)
      }
  }
})

t.test('MatMulBlockQuantizedFp4Weight', async t => {
  const n = 34
  const sizes = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
  for (const [k, block, format] of [
    [48, 16, 'nvfp4'],
    [64, 32, none],
  ] as const) {
    const [blocks, factor] = [k / block, Math.fround(0.013)]
    const ws = Constant.from('u8', [n, blocks], codesOfE4M3([n, blocks], 8).bytes)
    const operands = { x: halves(3, k), w: bytes(n, k / 2), ws, wg: Constant.f32(factor) }
    const scales = decode(ws.bytes, 'f8_e4m3')
    const weight = Float32Array.from({ length: n * k }, (_, i) => {
      const code = (operands.w.bytes[i >> 1]! >> (4 * (i & 1))) & 15
      const number = (code & 8 ? -1 : 1) * sizes[code & 7]!
      return number * factor * scales[Math.floor(i / k) * blocks + Math.floor((i % k) / block)]!
    })
    const all = { ...operands, none, wb: halves(n) }
    const bias = decode(all.wb.data as Uint16Array, 'f16')
    const expected = productOf(operands.x, weight, n).map((value, i) => value + bias[i % n]!)
    const graph = graphOf('MatMulBlockQuantizedFp4Weight', all, { block_size: int(block) })
    t.strictSame(formatsOf(graph), format ? [format] : [])
    for (const backend of backends)
      close(t, (await outputOf(graph, all, backend)).toFloat32(), expected, 2e-3, `${block} on ${backend}`)
  }
})

t.test('weights that fit no operator are refused by name', async t => {
  const refused = (op: string, operands: Operands, attributes: Attributes, message: RegExp): void => {
    t.throws(() => canonicalise(graphOf(op, operands, attributes)), { code: 'ERR_UNSUPPORTED', message })
  }
  const operands = nBits(4, 64, 4, 32)
  const sizes = sizesOf(4, 64, 4, 32)
  refused('MatMulNBits', operands, { ...sizes, bits: int(3) }, /weights of 3 bits are not supported/)
  refused('MatMulNBits', operands, { ...sizes, weight_prepacked: int(1) }, /weight_prepacked/)
  refused('MatMulNBits', operands, sizesOf(5, 64, 4, 32), /codes need 160 bytes; there are 128/)
  refused('MatMulNBits', { ...operands, wz: bytes(4, 2) }, sizes, /zero points need 4 bytes; there are 8/)
  refused('MatMulNBits', { ...operands, ws: floats(4, 3) }, sizes, /8 scales are needed; there are 12/)
  refused('MatMulNBits', { ...operands, none, g: bytes(4) }, sizes, /g_idx must be constant/)
  const beyond = Constant.from('i32', [64], new Int32Array(64).fill(2))
  refused('MatMulNBits', { ...operands, none, wg: beyond }, sizes, /g_idx has blocks beyond 2/)
  const fp8 = { x: halves(3, 64), w: codesOfE4M3([4, 64], 9), ws: floats(4, 2) }
  refused('MatMulBlockQuantizedFp8Weight', fp8, {}, /4 scales are needed; there are 8/)
  refused('MatMulBlockQuantizedFp8Weight', fp8, { block_size: int(0) }, /block_size is 0/)
  const fp4 = { x: halves(3, 64), w: bytes(4, 32), ws: bytes(4, 2), wg: Constant.f32(1) }
  refused('MatMulBlockQuantizedFp4Weight', fp4, {}, /scales need 16 bytes; there are 8/)
})
