// quantized.ts: what stands between DequantizeLinear and QuantizeLinear, on bytes: functions of one number become tables,
// moves of elements move bytes, and layers become those of quantized operands.
import type { Size } from '../../../core/size.js'
import { floatOf, int, intOf } from '../../attributes.js'
import { Constant } from '../../constant.js'
import { type Attributes, makeNode, type Node, sparkDomain } from '../../graph.js'
import { type Fusion, type GraphView, sameShape } from './pattern.js'

/** Operators that move elements, or only see them in another shape, and read them as their first input. */
const moves = ['Reshape', 'Transpose', 'Flatten', 'Squeeze', 'Unsqueeze']

/** Functions of single elements; further inputs are parameters of one element. */
const functions = [
  'Relu',
  'LeakyRelu',
  'PRelu',
  'Elu',
  'Selu',
  'Celu',
  'Sigmoid',
  'HardSigmoid',
  'HardSwish',
  'Swish',
  'Gelu',
  'Tanh',
  'Softplus',
  'Softsign',
  'Mish',
  'Exp',
  'Log',
  'Sqrt',
  'Erf',
  'Abs',
  'Neg',
  'Clip',
]

/** The type of the bytes of a cast with one constant scale and zero point; undefined for other casts. */
function byteType(node: Node | undefined, view: GraphView): 'u8' | 'i8' | undefined {
  const [, scale = '', zero = ''] = node?.inputs ?? []
  const dtype = view.initializers.get(zero)?.dtype
  const single = [scale, zero].every(
    name => view.isConstant(name) && view.initializers.get(name)?.count === 1,
  )
  return single && (dtype === 'u8' || dtype === 'i8') && intOf(node!, 'block_size') === 0 ? dtype : undefined
}

/** DequantizeLinear of bytes with one scale. */
function dequantizeOf(name: string | undefined, view: GraphView): Node | undefined {
  const node = view.producer(name, 'DequantizeLinear')
  return byteType(node, view) ? node : undefined
}

/** Whether two constants hold the same bytes. */
function sameConstant(a: string | undefined, b: string | undefined, view: GraphView): boolean {
  const [left, right] = [view.initializers.get(a ?? ''), view.initializers.get(b ?? '')]
  if (!left || !right || left.dtype !== right.dtype || left.count !== right.count) return false
  return left === right || left.bytes.every((byte, i) => byte === right.bytes[i])
}

/** Dequantized bytes and the functions that are applied to them, the last one first. */
interface Source {
  readonly dequantize: Node
  readonly functions: readonly Node[]
}

function sourceOf(name: string, view: GraphView): Source | undefined {
  const found: Node[] = []
  for (let value = name; ; value = found.at(-1)!.inputs[0]!) {
    const dequantize = dequantizeOf(value, view)
    if (dequantize) return { dequantize, functions: found }
    const next = view.producer(value, ...functions)
    const single = next?.inputs
      .slice(1)
      .every(name => name === '' || view.initializers.get(name)?.count === 1)
    if (!next || !single) return undefined
    found.push(next)
  }
}

/** Adds nodes that make the bytes of a source after a cast; gives their name. */
function bytesOf({ dequantize, functions }: Source, cast: Node, view: GraphView, nodes: Node[]): string {
  const [x = '', ...from] = dequantize.inputs
  const to = cast.inputs.slice(1)
  if (functions.length === 0 && [0, 1].every(i => sameConstant(from[i], to[i], view))) return x
  const signed = byteType(dequantize, view) === 'i8'
  const codes = Uint8Array.from({ length: 256 }, (_, i) => i)
  let value = view.fresh(`${cast.outputs[0]}/codes`)
  view.define(
    value,
    signed ? Constant.from('i8', [256], new Int8Array(codes.buffer)) : Constant.from('u8', [256], codes),
  )
  for (const { op, inputs, attributes } of [dequantize, ...[...functions].reverse(), cast]) {
    const next = view.fresh(`${cast.outputs[0]}/${op}`)
    nodes.push(makeNode(op, [value, ...inputs.slice(1)], [next], { attributes }))
    value = next
  }
  const bytes = view.fresh(`${cast.outputs[0]}/bytes`)
  nodes.push(makeNode('Lookup', [x, value], [bytes], { domain: sparkDomain, name: cast.name }))
  return bytes
}

/**
 * DequantizeLinear → functions → Concat → moves → QuantizeLinear becomes table → Concat → moves on bytes. A part of a
 * concatenation that was no bytes is quantized before it.
 */
export function fuseLookup(node: Node, view: GraphView): Fusion | undefined {
  if (node.domain !== '' || node.op !== 'QuantizeLinear' || !byteType(node, view)) return undefined
  const chain: Node[] = []
  let value = node.inputs[0]!
  for (let move = view.producer(value, ...moves); move; move = view.producer(value, ...moves)) {
    chain.unshift(move)
    value = move.inputs[0]!
  }
  const concat = view.producer(value, 'Concat')
  const parts = concat ? concat.inputs : [value]
  const sources = parts.map(part => sourceOf(part, view))
  if (!sources.some(source => source !== undefined)) return undefined
  const nodes: Node[] = []
  const inputs = parts.map((part, i) => {
    const source = sources[i]
    if (source) return bytesOf(source, node, view, nodes)
    const name = view.fresh(`${part}/bytes`)
    nodes.push(
      makeNode('QuantizeLinear', [part, ...node.inputs.slice(1)], [name], { attributes: node.attributes }),
    )
    return name
  })
  let last = inputs[0]!
  for (const { op, inputs: given, attributes, name } of concat ? [concat, ...chain] : chain) {
    const next = view.fresh(`${node.outputs[0]}/${op}`)
    const operands = op === 'Concat' ? inputs : [last, ...given.slice(1)]
    nodes.push(makeNode(op, operands, [next], { name, attributes }))
    last = next
  }
  nodes.push(makeNode('Identity', [last], node.outputs))
  return { nodes, absorbed: concat ? [concat, ...chain] : chain }
}

/** The only element of a constant as a number. */
const elementOf = (view: GraphView, name: string | undefined): number =>
  Number(view.initializers.get(name ?? '')?.data[0])

/** Whether an activation changes nothing that a cast to bytes does not cut off anyway. */
function isCutOff(activation: Node, cast: Node, view: GraphView): boolean {
  const [scale, zero] = [elementOf(view, cast.inputs[1]), elementOf(view, cast.inputs[2])]
  const [lowest, highest] = byteType(cast, view) === 'i8' ? [-128, 127] : [0, 255]
  const bound = (i: number, otherwise: number): number =>
    (activation.inputs[i] ?? '') === '' ? otherwise : elementOf(view, activation.inputs[i])
  const [min, max] =
    activation.op === 'Relu'
      ? [0, Number.POSITIVE_INFINITY]
      : [bound(1, Number.NEGATIVE_INFINITY), bound(2, Number.POSITIVE_INFINITY)]
  return (lowest - zero) * scale >= min && (highest - zero) * scale <= max
}

/** What a cast to bytes quantizes: the value behind an activation that the cast makes superfluous, and that one. */
function quantizedValue(cast: Node, view: GraphView): { value: string; absorbed: Node[] } {
  const activation = view.producer(cast.inputs[0], 'Relu', 'Clip')
  return activation && isCutOff(activation, cast, view)
    ? { value: activation.inputs[0]!, absorbed: [activation] }
    : { value: cast.inputs[0]!, absorbed: [] }
}

/** Constant bytes with a scale for all, or one for each of `features` along `axis`: codes, scale and zero point. */
function weightOf(
  name: string | undefined,
  axis: number,
  features: Size,
  view: GraphView,
): readonly [string, string, string] | undefined {
  const node = view.producer(name, 'DequantizeLinear')
  const [codes = '', scale = '', zero = ''] = node?.inputs ?? []
  const constant = view.initializers.get(codes)
  const count = view.initializers.get(scale)?.count
  const fits = count === 1 || (count === features && node !== undefined && intOf(node, 'axis') === axis)
  const bytes = constant?.dtype === 'u8' || constant?.dtype === 'i8'
  if (!node || !fits || !bytes || intOf(node, 'block_size') !== 0) return undefined
  if (![codes, scale].every(name => view.isConstant(name))) return undefined
  if (zero !== '') return view.initializers.has(zero) ? [codes, scale, zero] : undefined
  const none = view.fresh(`${codes}/zero`)
  view.define(none, Constant.from(constant.dtype as 'u8', [], new Uint8Array(1)))
  return [codes, scale, none]
}

/** A bias of i32 in units of both scales: its codes; '' where there is none, undefined for any other. */
function biasOf(
  name: string | undefined,
  scales: readonly [string, string],
  view: GraphView,
): string | undefined {
  if ((name ?? '') === '') return ''
  const node = view.producer(name, 'DequantizeLinear')
  const [codes = '', scale = '', zero = ''] = node?.inputs ?? []
  if (view.initializers.get(codes)?.dtype !== 'i32') return undefined
  if (zero !== '' && !view.initializers.get(zero)?.bytes.every(byte => byte === 0)) return undefined
  const product = view.producer(scale, 'Mul')
  if (product && scales.every(name => product.inputs.includes(name))) return codes
  const given = view.initializers.get(scale)
  const [a, b] = scales.map(name => view.initializers.get(name)?.data as Float32Array | undefined)
  if (!given || !a || !b) return undefined
  const units = given.data as Float32Array
  const isUnit = (i: number): boolean => {
    const unit = a[0]! * b[b.length === 1 ? 0 : i]!
    return Math.abs(units[units.length === 1 ? 0 : i]! - unit) <= 1e-6 * unit
  }
  const count = Math.max(units.length, b.length)
  return Array.from({ length: count }, (_, i) => i).every(isUnit) ? codes : undefined
}

/** x, W and b, dequantized → Conv → Relu or Clip → QuantizeLinear becomes QLinearConv. */
function fuseConv(cast: Node, view: GraphView): Fusion | undefined {
  const { value, absorbed } = quantizedValue(cast, view)
  const conv = view.producer(value, 'Conv')
  const x = dequantizeOf(conv?.inputs[0], view)
  const weight = weightOf(conv?.inputs[1], 0, view.shape(conv?.inputs[1])?.[0] ?? 0, view)
  const bias = x && weight ? biasOf(conv?.inputs[2], [x.inputs[1]!, weight[1]], view) : undefined
  if (!conv || !x || !weight || bias === undefined) return undefined
  const inputs = [...x.inputs, ...weight, ...cast.inputs.slice(1), ...(bias === '' ? [] : [bias])]
  return { nodes: [quantized('QLinearConv', inputs, cast, conv.attributes)], absorbed: [...absorbed, conv] }
}

/** a and a constant matrix, dequantized → MatMul → Relu or Clip → QuantizeLinear becomes QLinearMatMul. */
function fuseMatMul(cast: Node, view: GraphView): Fusion | undefined {
  const { value, absorbed } = quantizedValue(cast, view)
  const product = view.producer(value, 'MatMul')
  const a = dequantizeOf(product?.inputs[0], view)
  const shape = view.shape(product?.inputs[1])
  const weight = shape?.length === 2 ? weightOf(product?.inputs[1], 1, shape[1]!, view) : undefined
  if (!product || !a || !weight) return undefined
  const inputs = [...a.inputs, ...weight, ...cast.inputs.slice(1)]
  return { nodes: [quantized('QLinearMatMul', inputs, cast, {})], absorbed: [...absorbed, product] }
}

/** a, a constant matrix and b, dequantized → Gemm → Relu or Clip → QuantizeLinear becomes QLinearGemm. */
function fuseGemm(cast: Node, view: GraphView): Fusion | undefined {
  const { value, absorbed } = quantizedValue(cast, view)
  const gemm = view.producer(value, 'Gemm')
  const plain =
    gemm && ['alpha', 'beta'].every(name => floatOf(gemm, name) === 1) && intOf(gemm, 'transA') === 0
  if (!plain) return undefined
  const a = dequantizeOf(gemm.inputs[0], view)
  const transposed = intOf(gemm, 'transB') !== 0
  const features = view.shape(gemm.inputs[1])?.[transposed ? 0 : 1] ?? 0
  const weight = weightOf(gemm.inputs[1], transposed ? 0 : 1, features, view)
  const bias = a && weight ? biasOf(gemm.inputs[2], [a.inputs[1]!, weight[1]], view) : undefined
  if (!a || !weight || bias === undefined) return undefined
  if (bias !== '' && view.initializers.get(bias)?.count !== features) return undefined
  const inputs = [...a.inputs, ...weight, ...cast.inputs.slice(1), ...(bias === '' ? [] : [bias])]
  const attributes = { transB: int(Number(transposed)) }
  return { nodes: [own('QLinearGemm', inputs, cast, attributes)], absorbed: [...absorbed, gemm] }
}

/** a and b of one shape, dequantized → Add or Mul → Relu or Clip → QuantizeLinear becomes QLinearAdd or QLinearMul. */
function fuseBinary(cast: Node, view: GraphView): Fusion | undefined {
  const { value, absorbed } = quantizedValue(cast, view)
  const node = view.producer(value, 'Add', 'Mul')
  const [a, b] = [dequantizeOf(node?.inputs[0], view), dequantizeOf(node?.inputs[1], view)]
  if (!node || !a || !b || !sameShape(view.shape(node.inputs[0]), view.shape(node.inputs[1])))
    return undefined
  const inputs = [...a.inputs, ...b.inputs, ...cast.inputs.slice(1)]
  return { nodes: [own(`QLinear${node.op}`, inputs, cast, {})], absorbed: [...absorbed, node] }
}

/** x, dequantized → mean over its last axes → QuantizeLinear becomes QLinearMean. */
function fuseMean(cast: Node, view: GraphView): Fusion | undefined {
  const node = view.producer(cast.inputs[0], 'GlobalAveragePool', 'ReduceMean')
  const x = dequantizeOf(node?.inputs[0], view)
  const rank = view.shape(node?.inputs[0])?.length
  if (!node || !x || rank === undefined) return undefined
  const given = node.op === 'ReduceMean' ? view.integers(node.inputs[1]) : undefined
  const axes = (given ?? []).map(axis => (axis < 0 ? axis + rank : axis)).sort((a, b) => a - b)
  const axis = node.op === 'ReduceMean' ? (axes[0] ?? rank) : 2
  const last = node.op !== 'ReduceMean' || axes.every((entry, i) => entry === axis + i)
  if (!last || axis >= rank || (node.op === 'ReduceMean' && axes.length !== rank - axis)) return undefined
  const attributes = { axis: int(axis), keepdims: int(intOf(node, 'keepdims')) }
  return {
    nodes: [own('QLinearMean', [...x.inputs, ...cast.inputs.slice(1)], cast, attributes)],
    absorbed: [node],
  }
}

const own = (op: string, inputs: readonly string[], cast: Node, attributes: Attributes): Node =>
  makeNode(op, inputs, cast.outputs, { domain: sparkDomain, name: cast.name, attributes })

const quantized = (op: string, inputs: readonly string[], cast: Node, attributes: Attributes): Node =>
  makeNode(op, inputs, cast.outputs, { name: cast.name, attributes })

/** Layers of dequantized operands whose result is quantized again. */
export function fuseQuantizedLayer(node: Node, view: GraphView): Fusion | undefined {
  if (node.domain !== '' || node.op !== 'QuantizeLinear' || !byteType(node, view)) return undefined
  const matches = [fuseConv, fuseMatMul, fuseGemm, fuseBinary, fuseMean]
  for (const match of matches) {
    const fusion = match(node, view)
    if (fusion) return fusion
  }
  return undefined
}
