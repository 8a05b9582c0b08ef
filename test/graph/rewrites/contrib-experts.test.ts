// Mixtures of experts of com.microsoft, against ONNX Runtime's own where it has them, else against another form of them.
import { Model, Tensor } from 'dgx-spark'
import t from 'tap'
import { numel } from '#lib/core/shape.js'
import { float, int, string } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { type Attributes, type Graph, makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { canonicalise } from '#lib/graph/rewrites/canonicalise.js'
import { readCodes } from '#lib/graph/rewrites/read-codes.js'
import { decode, encode } from '#lib/precision/casts.js'
import { backends } from '../../fixtures/backends.js'
import { close } from '../../fixtures/close.js'
import { contributes } from '../../fixtures/contributed.js'
import { randomGenerator, uniform } from '../../fixtures/values/random.js'

const random = randomGenerator(17)
const floats = (...shape: number[]): Constant => Constant.from('f32', shape, uniform(random, numel(shape)))
const [tokens, experts, hidden, inner] = [7, 5, 12, 20]

/** Operands of a mixture, whose first layers are `wide` times as wide as the second ones. */
const operandsOf = (wide = 1): Record<string, Constant> => ({
  x: floats(tokens, hidden),
  router: floats(tokens, experts),
  w1: floats(experts, wide * inner, hidden),
  wb1: floats(experts, wide * inner),
  w2: floats(experts, hidden, inner),
  wb2: floats(experts, hidden),
})
const swiglu = { activation_type: string('swiglu'), k: int(2), normalize_routing_weights: int(1) }
const clamped = { swiglu_limit: float(0.9), activation_alpha: float(1.702), activation_beta: float(1) }

t.test("as ONNX Runtime's", async t => {
  for (const type of ['relu', 'silu', 'gelu', 'identity'])
    for (const [k, normalized] of [
      [1, 0],
      [3, 0],
      [2, 1],
    ] as const) {
      const attributes = {
        activation_type: string(type),
        k: int(k),
        normalize_routing_weights: int(normalized),
      }
      await contributes(t, 'MoE', operandsOf(), attributes)
    }
  await contributes(t, 'MoE', operandsOf(2), { ...swiglu, ...clamped, swiglu_fusion: int(1) })
  await contributes(t, 'MoE', operandsOf(2), { ...swiglu, swiglu_fusion: int(1) })
  const { router, w1, w2 } = operandsOf()
  const plain = { x: floats(1, tokens, hidden), router, w1, none: undefined, w2 }
  await contributes(t, 'MoE', plain, { activation_type: string('relu'), k: int(2) })
})

type Operands = Readonly<Record<string, Constant | undefined>>

/** A mixture whose operands but x and logits are initializers. */
function mixtureGraph(op: string, operands: Operands, attributes: Attributes): Graph {
  const { x, router, ...weights } = operands
  const names = Object.entries(operands).map(([name, value]) => (value ? name : ''))
  return makeGraph({
    inputs: [
      { name: 'x', type: tensorType(x!.dtype, x!.shape) },
      { name: 'router', type: tensorType(router!.dtype, router!.shape) },
    ],
    outputs: [{ name: 'y' }],
    nodes: [makeNode(op, names, ['y'], { domain: 'com.microsoft', attributes })],
    initializers: new Map(Object.entries(weights).filter((entry): entry is [string, Constant] => !!entry[1])),
    opsets: new Map([
      ['', 21],
      ['com.microsoft', 1],
    ]),
  })
}

/** What a mixture gives. */
async function outputOf(
  operands: Operands,
  attributes: Attributes,
  op = 'MoE',
  backend: 'js' | 'cpu' = 'js',
): Promise<Float32Array> {
  const graph = mixtureGraph(op, operands, attributes)
  using model = await Model.fromGraph(graph, { backend, precision: 'fp32' })
  const tensor = ({ data, shape, dtype }: Constant): Tensor => Tensor.of(data as never, shape, dtype as never)
  const { y } = await model.run<Tensor>({ x: tensor(operands.x!), router: tensor(operands.router!) })
  return y!.toFloat32()
}

/** Rows of each expert in another order. */
function rowsBy(weight: Constant, rowAt: (row: number) => number, count: number): Constant {
  const [all = 0, rows = 0, cols = 1] = weight.shape
  const data = weight.data as Float32Array
  const result = Float32Array.from({ length: all * count * cols }, (_, at) => {
    const [expert, row, col] = [Math.floor(at / cols / count), Math.floor(at / cols) % count, at % cols]
    return data[(expert * rows + rowAt(row)) * cols + col]!
  })
  return Constant.from('f32', weight.shape.length === 3 ? [all, count, cols] : [all, count], result)
}

t.test('gates and values one behind the other, and in matrices of their own', async t => {
  const operands = operandsOf(2)
  const expected = await outputOf(operands, { ...swiglu, ...clamped, swiglu_fusion: int(1) })
  const part = (name: string, rowAt: (row: number) => number, count: number): Constant =>
    rowsBy(operands[name]!, rowAt, count)
  const behind = (row: number): number => (row < inner ? 2 * row : 2 * (row - inner) + 1)
  const block = { ...operands, w1: part('w1', behind, 2 * inner), wb1: part('wb1', behind, 2 * inner) }
  close(t, await outputOf(block, { ...swiglu, ...clamped, swiglu_fusion: int(2) }), expected, 1e-6, 'blocks')
  const [gate, value] = [0, 1].map(
    first =>
      (row: number): number =>
        2 * row + first,
  ) as [(row: number) => number, (row: number) => number]
  const apart = {
    ...operands,
    w1: part('w1', gate, inner),
    wb1: part('wb1', gate, inner),
    w3: part('w1', value, inner),
    wb3: part('wb1', value, inner),
  }
  close(t, await outputOf(apart, { ...swiglu, ...clamped }), expected, 1e-6, 'a third layer')
  const silu = { activation_type: string('silu'), k: int(2), normalize_routing_weights: int(1) }
  const plain = await outputOf(operands, { ...swiglu, swiglu_fusion: int(1) })
  close(t, await outputOf(apart, silu), plain, 1e-6, 'silu with a third layer')
})

/** A layer of integers: codes, scales and zero points for QMoE, and the f32 weight that they stand for. */
function integerLayer(out: number, cols: number, { bits, block, hasZeros }: IntegerForm) {
  const [blocks, middle] = [block === 0 ? 1 : cols / block, 2 ** (bits - 1)]
  const list = (count: number): Uint8Array => Uint8Array.from({ length: count }, () => random() * 2 ** bits)
  /** Rows of whole bytes. */
  const pack = (codes: Uint8Array, row: number): Uint8Array => {
    const rowBytes = Math.ceil((row * bits) / 8)
    const packed = new Uint8Array((codes.length / row) * rowBytes)
    for (const [i, code] of codes.entries())
      packed[Math.floor(i / row) * rowBytes + (((i % row) * bits) >> 3)]! |= code << (((i % row) * bits) & 7)
    return packed
  }
  const codes = list(experts * out * cols)
  const zeros = hasZeros ? list(experts * out * blocks) : new Uint8Array(experts * out * blocks).fill(middle)
  const scales = uniform(random, zeros.length).map(value => (1 + value / 3) / 2 ** bits)
  const values = Float32Array.from(codes, (code, i) => {
    const at = Math.floor(i / (cols / blocks))
    return (code - zeros[at]!) * scales[at]!
  })
  const perBlock = block === 0 ? [experts, out] : [experts, out, blocks]
  const packedZeros = [...perBlock.slice(0, -1), Math.ceil((perBlock.at(-1)! * bits) / 8)]
  return {
    codes: Constant.from('u8', [experts, out, (cols * bits) / 8], pack(codes, cols)),
    scales: Constant.from('f32', perBlock, scales),
    zeros: hasZeros ? Constant.from('u8', packedZeros, pack(zeros, perBlock.at(-1)!)) : undefined,
    plain: Constant.from('f32', [experts, out, cols], values),
  }
}

interface IntegerForm {
  readonly bits: number
  /** 0: an out feature has one scale. */
  readonly block: number
  readonly hasZeros: boolean
}

/** Operands of a mixture of integers, and those of the same one of f32. */
function integerOperands(form: IntegerForm, hidden: number, inner: number, wide: 1 | 2, third = false) {
  const [first, second, last] = [
    integerLayer(wide * inner, hidden, form),
    integerLayer(hidden, inner, form),
    third ? integerLayer(inner, hidden, form) : undefined,
  ]
  const inputs = { x: floats(tokens, hidden), router: floats(tokens, experts) }
  const [b1, b2] = [floats(experts, wide * inner), floats(experts, hidden)]
  const b3 = third ? floats(experts, inner) : undefined
  const quantized = {
    ...inputs,
    ...{ w1: first.codes, ws1: first.scales, wb1: b1, w2: second.codes, ws2: second.scales, wb2: b2 },
    ...{ w3: last?.codes, ws3: last?.scales, wb3: b3 },
    ...{ wz1: first.zeros, wz2: second.zeros, wz3: last?.zeros },
  }
  const plain = { ...inputs, w1: first.plain, wb1: b1, w2: second.plain, wb2: b2, w3: last?.plain, wb3: b3 }
  return { quantized, plain }
}

/** Attributes of such weights. */
const quantization = ({ bits, block }: IntegerForm): Attributes => ({
  expert_weight_bits: int(bits),
  ...(block > 0 && { block_size: int(block) }),
})

t.test('QMoE is the mixture of what its integers stand for, and keeps them', async t => {
  for (const [bits, block, hidden, inner, format] of [
    [4, 32, 64, 96, 'u4_32'],
    [4, 128, 128, 256, 'u4_128'],
    [4, 0, 128, 128, 'u4_128'],
    [8, 64, 128, 64, 'u8_32'],
    [8, 0, 64, 96, 'u8_32'],
    [2, 32, 128, 128, 'u4_32'],
    [4, 16, 32, 48, 'u4_16'],
  ] as const)
    for (const hasZeros of [false, true]) {
      const form = { bits, block, hasZeros }
      for (const [is, wide, third, attributes] of [
        ['silu', 1, false, { activation_type: string('silu'), k: int(2) }],
        ['swiglu by turns', 2, false, { ...swiglu, ...clamped, swiglu_fusion: int(1) }],
        ['swiglu in halves', 2, false, { ...swiglu, swiglu_fusion: int(2) }],
        ['swiglu of two layers', 1, true, { ...swiglu, ...clamped }],
      ] as const) {
        const { quantized, plain } = integerOperands(form, hidden, inner, wide, third)
        const expected = await outputOf(plain, attributes)
        const all = { ...attributes, ...quantization(form) }
        const label = `${bits} bits, ${block}, ${hasZeros ? 'zero points' : 'no zero points'}, ${is}`
        for (const backend of backends)
          close(t, await outputOf(quantized, all, 'QMoE', backend), expected, 2e-6, `${label} on ${backend}`)
        const formats = [
          ...readCodes(canonicalise(mixtureGraph('QMoE', quantized, all))).initializers.values(),
        ]
          .map(({ weight }) => weight?.shared.format)
          .filter(Boolean)
        t.strictSame(formats, Array(format ? (third ? 3 : 2) : 0).fill(format), label)
      }
    }
})

t.test("QMoE as ONNX Runtime's, whose CPU always normalizes the softmax of logits", async t => {
  const scores = Constant.from('f32', [tokens, experts], uniform(random, tokens * experts).map(Math.abs))
  for (const [bits, block] of [
    [4, 32],
    [4, 0],
    [8, 0],
  ] as const)
    for (const hasZeros of [false, true]) {
      const form = { bits, block, hasZeros }
      const attributes = { ...swiglu, ...clamped, swiglu_fusion: int(1), ...quantization(form) }
      const { quantized } = integerOperands(form, 64, 64, 2)
      await contributes(t, 'QMoE', quantized, attributes)
      for (const normalized of [0, 1])
        await contributes(
          t,
          'QMoE',
          { ...quantized, scores },
          { ...attributes, normalize_routing_weights: int(normalized) },
        )
    }
})

t.test('QMoE of f16', async t => {
  const form = { bits: 4, block: 32, hasZeros: false }
  const { quantized } = integerOperands(form, 32, 64, 2)
  const attributes = { ...swiglu, swiglu_fusion: int(1), ...quantization(form) }
  const half = (value: Constant | undefined): Constant | undefined =>
    value?.dtype === 'f32'
      ? Constant.from('f16', value.shape, encode(value.data as Float32Array, 'f16'))
      : value
  const halves = Object.fromEntries(Object.entries(quantized).map(([name, value]) => [name, half(value)]))
  const wide = Object.fromEntries(
    Object.entries(halves).map(([name, value]) => [
      name,
      value?.dtype === 'f16'
        ? Constant.from('f32', value.shape, decode(value.data as Uint16Array, 'f16'))
        : value,
    ]),
  )
  const expected = await outputOf(wide, attributes, 'QMoE')
  close(t, await outputOf(halves, attributes, 'QMoE'), expected, 2e-3, 'f16')
})

t.test('what is refused', async t => {
  const refused = (attributes: Attributes, message: RegExp): void => {
    const graph = makeGraph({
      inputs: ['x', 'router', 'w1', 'b1', 'w2'].map(name => ({ name, type: tensorType('f32', [2, 3, 4]) })),
      outputs: [{ name: 'y' }],
      nodes: [
        makeNode('MoE', ['x', 'router', 'w1', 'b1', 'w2'], ['y'], { domain: 'com.microsoft', attributes }),
      ],
      opsets: new Map([
        ['', 21],
        ['com.microsoft', 1],
      ]),
    })
    t.throws(() => canonicalise(graph), { code: 'ERR_UNSUPPORTED', message })
  }
  refused({ use_sparse_mixer: int(1) }, /use_sparse_mixer is not supported/)
  const { quantized } = integerOperands({ bits: 4, block: 32, hasZeros: false }, 64, 64, 1)
  const refusedIntegers = (operands: Operands, attributes: Attributes, message: RegExp): void => {
    const all = { block_size: int(32), ...attributes }
    t.throws(() => canonicalise(mixtureGraph('QMoE', { ...quantized, ...operands }, all)), {
      code: 'ERR_UNSUPPORTED',
      message,
    })
  }
  refusedIntegers({}, { quant_type: string('nvfp4') }, /quant_type 'nvfp4' is not supported/)
  refusedIntegers({}, { expert_weight_bits: int(3) }, /weights of 3 bits are not supported/)
  refusedIntegers({}, { weights_prepacked: int(1) }, /weights_prepacked/)
  refusedIntegers({}, { block_size: int(8) }, /block_size is 8/)
  refusedIntegers({}, { block_size: int(48) }, /no blocks of 48/)
  refusedIntegers({}, { use_sparse_mixer: int(1) }, /use_sparse_mixer is not supported/)
  refusedIntegers({ ws1: quantized.wb1 }, {}, /640 scales are needed; there are 320/)
  refusedIntegers({ w2: quantized.wb2 }, {}, /'w2' must be constant, of 3 dimensions/)
  refusedIntegers({ wz1: quantized.w1 }, {}, /zero points need 320 bytes/)
  refused({ num_shared_experts: int(1) }, /num_shared_experts is not supported/)
  refused({ activation_type: string('tanh') }, /the activation 'tanh' is not known/)
})
