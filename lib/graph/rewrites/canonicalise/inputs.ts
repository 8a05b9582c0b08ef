// inputs.ts: attributes that became inputs, or changed their name or type.
import { float, givenFloat, givenInt, int, intsOf, string } from '../../attributes.js'
import { Constant } from '../../constant.js'
import { onnxNumbers } from '../../element-types.js'
import { makeNode, type Node } from '../../graph.js'
import { type Upgrade, type UpgradeContext, type UpgradeTable, without } from './context.js'

const firstOutput = (node: Node): string => node.outputs.find(name => name !== '') ?? node.op

/** `axes` of reductions, Squeeze and Unsqueeze. */
const axesToInput: Upgrade = (node, context) => {
  const axes = intsOf(node, 'axes')
  if (!axes) return [node]
  const inputs =
    axes.length === 0 ? node.inputs : [node.inputs[0]!, context.integers(`${firstOutput(node)}_axes`, axes)]
  return [{ ...node, inputs, attributes: without(node.attributes, 'axes') }]
}

const split: Upgrade = (node, context) => {
  const sizes = intsOf(node, 'split')
  const attributes = without(node.attributes, 'split')
  if (sizes)
    return [
      {
        ...node,
        inputs: [node.inputs[0]!, context.integers(`${firstOutput(node)}_split`, sizes)],
        attributes,
      },
    ]
  if ((node.inputs[1] ?? '') !== '') return [node]
  return [{ ...node, attributes: { ...attributes, num_outputs: int(node.outputs.length) } }]
}

const clip: Upgrade = (node, context) => {
  const x = node.inputs[0]!
  const bound = (name: string): string => {
    const value = givenFloat(node, name)
    return value === undefined ? '' : context.scalar(`${firstOutput(node)}_${name}`, value, x)
  }
  return [makeNode('Clip', [x, bound('min'), bound('max')], node.outputs, { name: node.name })]
}

const pad: Upgrade = (node, context) => {
  const x = node.inputs[0]!
  const pads = intsOf(node, 'pads') ?? intsOf(node, 'paddings')
  if (!pads) throw context.unsupported(node, 'it lacks pads')
  const inputs = [
    x,
    context.integers(`${firstOutput(node)}_pads`, pads),
    context.scalar(`${firstOutput(node)}_value`, context.float(node, 'value'), x),
  ]
  return [{ ...node, inputs, attributes: without(node.attributes, 'pads', 'paddings', 'value') }]
}

const slice: Upgrade = (node, context) => {
  const lists = ['starts', 'ends', 'axes'].map(name => {
    const values = intsOf(node, name)
    return values ? context.integers(`${firstOutput(node)}_${name}`, clampToInt64(values)) : ''
  })
  return [makeNode('Slice', [node.inputs[0]!, ...lists], node.outputs, { name: node.name })]
}

/** The ends of the 64-bit range, which a number rounds beyond it. */
function clampToInt64(values: readonly number[]): number[] {
  return values.map(value => Math.max(-(2 ** 62), Math.min(2 ** 62, value)))
}

const dropout: Upgrade = (node, context) => {
  const ratio = context.constant(`${firstOutput(node)}_ratio`, Constant.f32(context.float(node, 'ratio')))
  return [makeNode('Dropout', [node.inputs[0]!, ratio], node.outputs, { name: node.name })]
}

const topK: Upgrade = (node, context) => {
  const k = givenInt(node, 'k')
  if (k === undefined) return [node]
  const inputs = [node.inputs[0]!, context.integers(`${firstOutput(node)}_k`, [k])]
  return [{ ...node, inputs, attributes: without(node.attributes, 'k') }]
}

const reshape: Upgrade = (node, context) => {
  const shape = context.integers(`${firstOutput(node)}_shape`, intsOf(node, 'shape') ?? [])
  return [makeNode('Reshape', [node.inputs[0]!, shape], node.outputs, { name: node.name })]
}

/** Once Tile repeated along one axis, given as an input. */
const tile: Upgrade = (node, context) => {
  const [x = '', tiles = '', axis = ''] = node.inputs
  const [times, at] = [context.known(tiles)?.elements[0], context.known(axis)?.elements[0]]
  if (typeof times !== 'number' || typeof at !== 'number')
    throw context.unsupported(node, 'tiles and axis must be constant')
  const repeats = Array<number>(context.rank(node, x)).fill(1)
  repeats[at] = times
  return [
    makeNode('Tile', [x, context.integers(`${firstOutput(node)}_repeats`, repeats)], node.outputs, {
      name: node.name,
    }),
  ]
}

/** Names of types in the string attribute of the first Cast. */
const castNames: Readonly<Record<string, number>> = {
  FLOAT: onnxNumbers.f32,
  UINT8: onnxNumbers.u8,
  INT8: onnxNumbers.i8,
  UINT16: onnxNumbers.u16,
  INT16: onnxNumbers.i16,
  INT32: onnxNumbers.i32,
  INT64: onnxNumbers.i64,
  BOOL: onnxNumbers.bool,
  FLOAT16: onnxNumbers.f16,
  DOUBLE: onnxNumbers.f64,
  UINT32: onnxNumbers.u32,
  UINT64: onnxNumbers.u64,
}

const cast: Upgrade = (node, context) => {
  const name = context.text(node, 'to').toUpperCase()
  if (!Object.hasOwn(castNames, name)) throw context.unsupported(node, `the type '${name}' is not known`)
  return [{ ...node, attributes: { to: int(castNames[name]!) } }]
}

const concat: Upgrade = (node, context) => [{ ...node, attributes: { axis: int(context.int(node, 'axis')) } }]

/** Powers of Lp pooling were floats. */
const integerPower: Upgrade = node => {
  const p = node.attributes.p
  return [
    p?.type === 'float' ? { ...node, attributes: { ...node.attributes, p: int(Math.round(p.value)) } } : node,
  ]
}

/** Once recurrent layers had an attribute for what optional outputs say. */
const recurrent: Upgrade = node => [{ ...node, attributes: without(node.attributes, 'output_sequence') }]

const gridSample: Upgrade = (node, context) => {
  const mode = context.text(node, 'mode').replace('bilinear', 'linear').replace('bicubic', 'cubic')
  return [{ ...node, attributes: { ...node.attributes, mode: string(mode) } }]
}

const dft: Upgrade = (node, context) => {
  const axis = context.integers(`${firstOutput(node)}_axis`, context.int(node, 'axis'))
  const inputs = [node.inputs[0]!, node.inputs[1] ?? '', axis]
  return [{ ...node, inputs, attributes: without(node.attributes, 'axis') }]
}

const roiAlign: Upgrade = (node, context) => {
  const mode = string(context.text(node, 'coordinate_transformation_mode'))
  return [{ ...node, attributes: { coordinate_transformation_mode: mode, ...node.attributes } }]
}

/** The first Selu rounded its constants. */
const selu: Upgrade = (node, context) => [
  {
    ...node,
    attributes: {
      alpha: float(context.float(node, 'alpha')),
      gamma: float(context.float(node, 'gamma')),
      ...without(node.attributes, 'consumed_inputs'),
    },
  },
]

/** Before opset 6, operators could name inputs to overwrite. */
const dropConsumed: Upgrade = node => [{ ...node, attributes: without(node.attributes, 'consumed_inputs') }]

const overwriting =
  'Abs Ceil Elu Exp Floor HardSigmoid InstanceNormalization LeakyRelu Log Max Mean Min Neg Reciprocal Relu Sigmoid ' +
  'Sqrt Sum Tanh'

const reductions = 'L1 L2 LogSum LogSumExp Max Mean Min Prod SumSquare'

/** A Constant has many attributes that can hold its value; all of them become a tensor. */
export function constantValue(node: Node, context: UpgradeContext): Constant | undefined {
  const { value_float, value_floats, value_int, value_ints, value_string, value_strings, value } =
    node.attributes
  if (value?.type === 'tensor') return value.value
  if (value_float?.type === 'float') return Constant.f32(value_float.value)
  if (value_floats?.type === 'floats') return Constant.f32(value_floats.value)
  if (value_string?.type === 'string') return Constant.strings([], [value_string.value])
  if (value_strings?.type === 'strings')
    return Constant.strings([value_strings.value.length], value_strings.value)
  const integers =
    value_int?.type === 'int' ? [value_int.value] : value_ints?.type === 'ints' ? value_ints.value : undefined
  if (!integers) throw context.unsupported(node, 'it has no value')
  const shape = value_int?.type === 'int' ? [] : [integers.length]
  return Constant.from('i64', shape, BigInt64Array.from(integers, BigInt))
}

/** Upgrades by operator. */
export const inputUpgrades: UpgradeTable = {
  ...Object.fromEntries(overwriting.split(' ').map(op => [op, { before: 6, upgrade: dropConsumed }])),
  ...Object.fromEntries(
    reductions.split(' ').map(op => [`Reduce${op}`, { before: 18, upgrade: axesToInput }]),
  ),
  ReduceSum: { before: 13, upgrade: axesToInput },
  Squeeze: { before: 13, upgrade: axesToInput },
  Unsqueeze: { before: 13, upgrade: axesToInput },
  Split: { before: 18, upgrade: split },
  Clip: { before: 11, upgrade: clip },
  Pad: { before: 11, upgrade: pad },
  Slice: { before: 10, upgrade: slice },
  Dropout: { before: 12, upgrade: dropout },
  TopK: { before: 10, upgrade: topK },
  Reshape: { before: 5, upgrade: reshape },
  Tile: { before: 6, upgrade: tile },
  Cast: { before: 6, upgrade: cast },
  Concat: { before: 4, upgrade: concat },
  LpPool: { before: 2, upgrade: integerPower },
  GlobalLpPool: { before: 2, upgrade: integerPower },
  RNN: { before: 7, upgrade: recurrent },
  GRU: { before: 7, upgrade: recurrent },
  LSTM: { before: 7, upgrade: recurrent },
  GridSample: { before: 20, upgrade: gridSample },
  DFT: { before: 20, upgrade: dft },
  RoiAlign: { before: 16, upgrade: roiAlign },
  Selu: { before: 6, upgrade: selu },
  Scatter: { before: 99, upgrade: node => [{ ...node, op: 'ScatterElements' }] },
}
