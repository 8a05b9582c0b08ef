// contrib-fused.ts: contributed operators that are a few standard ones in one.

import {
  float,
  floatOf,
  floatsOf,
  givenFloat,
  int,
  intOf,
  ints,
  string,
  stringOf,
  tensor,
} from '../../attributes.js'
import { Constant } from '../../constant.js'
import { type Attributes, makeNode, type Node } from '../../graph.js'
import { NodeBuilder } from '../../node-builder.js'
import { type Upgrade, type UpgradeContext, without } from './context.js'

/** Nodes one after another, each reading what the one before made; the last makes the outputs of `node`. */
function chain(
  node: Node,
  context: UpgradeContext,
  steps: readonly { op: string; inputs?: readonly string[]; attributes?: Attributes }[],
): Node[] {
  let value = node.inputs[0] ?? ''
  return steps.map(({ op, inputs = [], attributes = {} }, i) => {
    const last = i === steps.length - 1
    const outputs = last ? node.outputs : [context.fresh(`${node.outputs[0]}_${op}`)]
    const made = makeNode(op, [value, ...inputs], outputs, { attributes, ...(last && { name: node.name }) })
    value = outputs[0]!
    return made
  })
}

const gelu =
  (approximate: string): Upgrade =>
  (node, context) => {
    const bias = node.inputs[1] ?? ''
    const step = { op: 'Gelu', attributes: { approximate: string(approximate) } }
    return chain(node, context, bias === '' ? [step] : [{ op: 'Add', inputs: [bias] }, step])
  }

/** An activation named by an attribute, with up to two parameters. */
function activationStep(
  node: Node,
  context: UpgradeContext,
): { op: string; inputs?: readonly string[]; attributes?: Attributes }[] {
  const op = stringOf(node, 'activation')
  const given = floatsOf(node, 'activation_params') ?? []
  const alpha = given[0] ?? givenFloat(node, 'activation_alpha')
  const beta = given[1] ?? givenFloat(node, 'activation_beta')
  if (op === '') return []
  if (op === 'Clip') {
    const bound = (name: string, value: number | undefined): string =>
      value === undefined ? '' : context.scalar(`${node.outputs[0]}_${name}`, value, node.inputs[0]!)
    return [{ op, inputs: [bound('min', alpha), bound('max', beta)] }]
  }
  if (!['Relu', 'Tanh', 'Sigmoid', 'LeakyRelu', 'HardSigmoid'].includes(op)) {
    throw context.unsupported(node, `the activation '${op}' is not known`)
  }
  return [
    {
      op,
      attributes: {
        ...(alpha !== undefined && { alpha: float(alpha) }),
        ...(beta !== undefined && op === 'HardSigmoid' && { beta: float(beta) }),
      },
    },
  ]
}

const fusedGemm: Upgrade = (node, context) => {
  const own = without(
    node.attributes,
    ...Object.keys(node.attributes).filter(name => name.startsWith('activation')),
  )
  return chain(node, context, [
    { op: 'Gemm', inputs: node.inputs.slice(1), attributes: own },
    ...activationStep(node, context),
  ])
}

const fusedConv: Upgrade = (node, context) => {
  const own = without(node.attributes, 'activation', 'activation_params')
  const sum = node.inputs[3] ?? ''
  return chain(node, context, [
    { op: 'Conv', inputs: node.inputs.slice(1, 3), attributes: own },
    ...(sum === '' ? [] : [{ op: 'Add', inputs: [sum] }]),
    ...activationStep(node, context),
  ])
}

/** A product of which either operand may be transposed, also with its rows in front of the batch, times a number. */
const fusedMatMul: Upgrade = (node, context) => {
  const nodes: Node[] = []
  const operand = (name: string, which: 'A' | 'B'): string => {
    const [swapped, batched] = [`trans${which}`, `transBatch${which}`].map(attribute =>
      intOf(node, attribute),
    )
    if (!swapped && !batched) return name
    const rank = context.rank(node, name)
    if (rank < 2) return name
    const axes = Array.from({ length: rank - 1 }, (_, i) => i)
    const [rows = 0, ...batch] = batched ? axes : [axes.at(-1)!, ...axes.slice(0, -1)]
    const perm = swapped ? [...batch, rank - 1, rows] : [...batch, rows, rank - 1]
    const transposed = context.fresh(`${name}_transposed`)
    nodes.push(makeNode('Transpose', [name], [transposed], { attributes: { perm: ints(perm) } }))
    return transposed
  }
  const [a, b] = [operand(node.inputs[0]!, 'A'), operand(node.inputs[1]!, 'B')]
  const alpha = floatOf(node, 'alpha')
  const product = alpha === 1 ? node.outputs[0]! : context.fresh(`${node.outputs[0]}_product`)
  nodes.push(makeNode('MatMul', [a, b], [product], { name: node.name }))
  if (alpha !== 1) {
    nodes.push(
      makeNode('Mul', [product, context.scalar(`${product}_alpha`, alpha, node.inputs[0]!)], node.outputs),
    )
  }
  return nodes
}

function refuseOutputs(node: Node, context: UpgradeContext, from: number, to = node.outputs.length): void {
  if (node.outputs.slice(from, to).some(name => name !== '')) {
    throw context.unsupported(node, `its outputs ${from} to ${to - 1} have no standard form`)
  }
}

const rmsNormalization: Upgrade = (node, context) => {
  refuseOutputs(node, context, 1)
  return [
    makeNode('RMSNormalization', node.inputs.slice(0, 2), [node.outputs[0]!], {
      name: node.name,
      attributes: { axis: int(intOf(node, 'axis')), epsilon: float(floatOf(node, 'epsilon')) },
    }),
  ]
}

/** Sum of input, skip and bias, and its normalization; output 3 is the sum. */
const skipNormalization =
  (simplified: boolean): Upgrade =>
  (node, context) => {
    const [x = '', skip = '', gamma = ''] = node.inputs
    const beta = simplified ? '' : (node.inputs[3] ?? '')
    const bias = node.inputs[simplified ? 3 : 4] ?? ''
    const named = node.outputs[3] ?? ''
    const sum = named || context.fresh(`${node.outputs[0]}_sum`)
    const inner = bias === '' ? sum : context.fresh(`${sum}_skip`)
    if (simplified) refuseOutputs(node, context, 1, 3)
    const attributes = { axis: int(-1), epsilon: float(floatOf(node, 'epsilon')) }
    return [
      makeNode('Add', [x, skip], [inner]),
      ...(bias === '' ? [] : [makeNode('Add', [inner, bias], [sum])]),
      simplified
        ? makeNode('RMSNormalization', [sum, gamma], [node.outputs[0]!], { name: node.name, attributes })
        : makeNode(
            'LayerNormalization',
            [sum, gamma, ...(beta === '' ? [] : [beta])],
            node.outputs.slice(0, 3),
            {
              name: node.name,
              attributes,
            },
          ),
    ]
  }

/** Embeddings of words, positions and segments, summed and normalized. */
export const embedNormalization: Upgrade = (node, context) => {
  const [words = '', segments = '', wordTable = '', positionTable = '', segmentTable = ''] = node.inputs
  const [gamma = '', beta = '', mask = '', positions = ''] = node.inputs.slice(5)
  const build = new NodeBuilder(context.scopeOf(node))
  const integer = (value: number | number[]): string => context.integers(`${node.outputs[0]}_integer`, value)
  const counted = (): string => {
    const length = build.add('Gather', [build.add('Shape', [words]), integer(1)])
    return build.add('Range', [integer(0), length, integer(1)])
  }
  const positionIds = positions || counted()
  let sum = build.add('Add', [
    build.add('Gather', [wordTable, words]),
    build.add('Gather', [positionTable, positionIds]),
  ])
  if (segments !== '') sum = build.add('Add', [sum, build.add('Gather', [segmentTable, segments])])
  if (node.outputs[1]) build.nodes.push(...seenWords(node, context, [words, mask]))
  if (node.outputs[2]) build.nodes.push(makeNode('Identity', [sum], [node.outputs[2]]))
  const attributes = { axis: int(-1), epsilon: float(floatOf(node, 'epsilon')) }
  return [
    ...build.nodes,
    makeNode('LayerNormalization', [sum, gamma, beta], [node.outputs[0]!], { name: node.name, attributes }),
  ]
}

/** Output 1 of an embedding: how many words a mask [B, S] of ones and zeros shows; 0 without one. */
function seenWords(node: Node, context: UpgradeContext, [words, mask]: readonly [string, string]): Node[] {
  const counts = node.outputs[1]!
  if (mask !== '') {
    const axes = context.integers(`${counts}_axes`, [1])
    return [makeNode('ReduceSum', [mask, axes], [counts], { attributes: { keepdims: int(0) } })]
  }
  const batch = context.fresh(`${counts}_shape`)
  const value = tensor(Constant.from('i32', [1], new Int32Array(1)))
  return [
    makeNode('Shape', [words], [batch], { attributes: { start: int(0), end: int(1) } }),
    makeNode('ConstantOfShape', [batch], [counts], { attributes: { value } }),
  ]
}

/** Positions are a list for each row, or one offset for all. */
const rotaryEmbedding: Upgrade = (node, context) => {
  const [x = '', positions = '', cos = '', sin = ''] = node.inputs
  const [shape, half] = [context.shape(x), context.shape(cos)?.at(-1)]
  const rotated = intOf(node, 'rotary_embedding_dim')
  const width = shape?.length === 3 ? shape[2] : undefined
  const heads =
    intOf(node, 'num_heads') || (typeof width === 'number' && typeof half === 'number' ? width / half / 2 : 0)
  if (!shape || (shape.length === 3 && heads === 0))
    throw context.unsupported(node, 'the sizes of its input and of its cos_cache must be known')
  const nodes: Node[] = []
  const attributes = {
    interleaved: int(intOf(node, 'interleaved')),
    num_heads: int(heads),
    rotary_embedding_dim: int(rotated),
  }
  const indices = context.shape(positions)?.length === 2 ? positions : positionIdsFrom(node, context, nodes)
  return [
    ...nodes,
    makeNode('RotaryEmbedding', [x, cos, sin, indices], node.outputs, { name: node.name, attributes }),
  ]
}

/** Position ids [B, S] that count from the offset that is input 1 of a RotaryEmbedding. */
function positionIdsFrom(node: Node, context: UpgradeContext, nodes: Node[]): string {
  const [x = '', offset = ''] = node.inputs
  const build = new NodeBuilder(context.scopeOf(node), nodes)
  const integer = (value: number | number[]): string => context.integers(`${node.outputs[0]}_integer`, value)
  const sizes = build.add('Shape', [x])
  const [batch, length] = [0, context.shape(x)?.length === 4 ? 2 : 1].map(axis =>
    build.add('Gather', [sizes, integer([axis])]),
  ) as [string, string]
  const end = build.add('Reshape', [length, integer([])])
  const counted = build.add('Range', [integer(0), end, integer(1)])
  const positions = build.add('Add', [counted, build.add('Reshape', [offset, integer([1])])])
  return build.add('Expand', [positions, build.add('Concat', [batch, length], { axis: int(0) })])
}

/** The left half times the Gelu of the right one. */
const splitGelu: Upgrade = (node, context) => {
  const [sum, left, right, gate] = ['sum', 'left', 'right', 'gate'].map(part =>
    context.fresh(`${node.outputs[0]}_${part}`),
  ) as [string, string, string, string]
  return [
    makeNode('Add', node.inputs, [sum]),
    makeNode('Split', [sum], [left, right], { attributes: { axis: int(-1), num_outputs: int(2) } }),
    makeNode('Gelu', [right], [gate]),
    makeNode('Mul', [left, gate], node.outputs, { name: node.name }),
  ]
}

/** Operators that the standard has under the same name, with the same meaning. */
const adopted: Upgrade = node => [{ ...node, domain: '' }]

/** Upgrades by operator. */
export const contribFused: Readonly<Record<string, Upgrade>> = {
  Gelu: gelu('none'),
  BiasGelu: gelu('none'),
  FastGelu: gelu('tanh'),
  QuickGelu: node => [
    makeNode('Swish', node.inputs, node.outputs, {
      name: node.name,
      attributes: { alpha: float(floatOf(node, 'alpha')) },
    }),
  ],
  BiasAdd: (node, context) =>
    chain(node, context, [
      { op: 'Add', inputs: node.inputs.slice(1, 2) },
      { op: 'Add', inputs: node.inputs.slice(2) },
    ]),
  BiasSplitGelu: splitGelu,
  FusedMatMul: fusedMatMul,
  TransposeMatMul: fusedMatMul,
  FusedGemm: fusedGemm,
  FusedConv: fusedConv,
  LayerNormalization: adopted,
  SimplifiedLayerNormalization: rmsNormalization,
  SkipLayerNormalization: skipNormalization(false),
  SkipSimplifiedLayerNormalization: skipNormalization(true),
  EmbedLayerNormalization: embedNormalization,
  RotaryEmbedding: rotaryEmbedding,
  Pad: adopted,
  Trilu: adopted,
  GatherND: adopted,
  ExpandDims: (node, context) => {
    const axis = context.known(node.inputs[1] ?? '')?.elements[0]
    if (typeof axis !== 'number') throw context.unsupported(node, 'the axis must be constant')
    const axes = context.constant(`${node.outputs[0]}_axes`, Constant.i64([axis]))
    return [makeNode('Unsqueeze', [node.inputs[0]!, axes], node.outputs, { name: node.name })]
  },
}
