// decomposed.ts: operators that become several others.
import { isHalf } from '../../../core/dtype.js'
import { graph, graphOf, int, ints, intsOf } from '../../attributes.js'
import { onnxNumbers } from '../../element-types.js'
import { makeNode, type Node, type Subgraph, type ValueInfo } from '../../graph.js'
import { NodeBuilder } from '../../node-builder.js'
import { type Upgrade, type UpgradeContext, type UpgradeTable, without } from './context.js'

/** Axes of MeanVarianceNormalization; before opset 9 all but the channels, or these, too. */
function normalizedAxes(node: Node, context: UpgradeContext): readonly number[] {
  if (context.opset >= 9) return intsOf(node, 'axes') ?? [0, 2, 3]
  const rank = context.shape(node.inputs[0]!)?.length ?? 4
  const axes = Array.from({ length: rank }, (_, axis) => axis)
  return context.int(node, 'across_channels') === 1 ? axes : axes.filter(axis => axis !== 1)
}

/** (x − mean) / (deviation + 1e-9), in f32 for types of 16 bits, in which 1e-9 is 0. */
const meanVarianceNormalization: Upgrade = (node, context) => {
  const at = new NodeBuilder(context.scopeOf(node))
  const [x = ''] = node.inputs
  const dtype = context.dtype(x) ?? 'f32'
  const wide = isHalf(dtype) ? at.add('Cast', [x], { to: int(onnxNumbers.f32) }) : x
  const axes = at.constant(normalizedAxes(node, context))
  let result = at.add('Sub', [wide, at.add('ReduceMean', [wide, axes])])
  if (context.opset >= 9 || context.int(node, 'normalize_variance') !== 0) {
    const deviation = at.add('Sqrt', [at.add('ReduceMean', [at.add('Mul', [result, result]), axes])])
    const epsilon = dtype === 'f64' ? context.scalar(`${x}_epsilon`, 1e-9, x) : at.constant(1e-9)
    result = at.add('Div', [result, at.add('Add', [deviation, epsilon])])
  }
  const attributes = isHalf(dtype) ? { to: int(onnxNumbers[dtype]) } : {}
  const last = makeNode(isHalf(dtype) ? 'Cast' : 'Identity', [result], node.outputs, { attributes })
  return [...at.nodes, { ...last, name: node.name }]
}

/** Indices of storage_order 1 count the first spatial axis fastest within a plane. */
const maxPool: Upgrade = (node, context) => {
  if (context.int(node, 'storage_order') === 0) return [node]
  const rowMajor = { ...node, attributes: without(node.attributes, 'storage_order') }
  const [y = '', indices = ''] = node.outputs
  const rank = intsOf(node, 'kernel_shape')?.length ?? 0
  if (indices === '' || rank < 2) return [rowMajor]
  const at = new NodeBuilder(context.scopeOf(node))
  const flat = at.fresh(`${indices}_rows`)
  at.append({ ...rowMajor, outputs: [y, flat] })
  const sizes = Array.from({ length: rank }, (_, axis) =>
    at.add('Shape', [node.inputs[0]!], { start: int(2 + axis), end: int(3 + axis) }),
  )
  const product = (factors: readonly string[]): string => factors.reduce((a, b) => at.add('Mul', [a, b]))
  let rest = at.add('Mod', [flat, product(sizes)])
  let result = at.add('Sub', [flat, rest])
  for (let axis = rank - 1; axis >= 0; axis--) {
    const coordinate = axis > 0 ? at.add('Mod', [rest, sizes[axis]!]) : rest
    if (axis > 0) rest = at.add('Div', [rest, sizes[axis]!])
    const part = axis > 0 ? at.add('Mul', [coordinate, product(sizes.slice(0, axis))]) : coordinate
    result = at.add('Add', [result, part])
  }
  at.append(makeNode('Identity', [result], [indices]))
  return at.nodes
}

/** A value of the body of Scan with one more dimension in front. */
function stacked({ name, type }: ValueInfo): ValueInfo {
  if (type?.kind !== 'tensor') return { name }
  return { name, type: type.shape ? { ...type, shape: [null, ...type.shape] } : type }
}

/**
 * Scan of opset 8 runs over the sequences of a batch, which may end early: here, a Scan over the batch around one over a
 * sequence. What is behind the end of a sequence is 0.
 */
const scan: Upgrade = (node, context) => {
  const body = graphOf(node, 'body')
  if (!body) throw context.unsupported(node, "it lacks its graph 'body'")
  const at = new NodeBuilder(context.scopeOf(node))
  const [lengths = '', ...values] = node.inputs
  const scans = context.int(node, 'num_scan_inputs')
  const states = values.length - scans
  const rows = values.map(name => at.fresh(`${name}_row`))
  const length = lengths === '' ? undefined : at.fresh(`${lengths}_row`)
  const end = length === undefined ? undefined : at.add('Reshape', [length, at.constant([1])])
  const start = at.constant([0])
  const limited = (name: string): string => (end ? at.add('Slice', [name, start, end, start]) : name)
  const outputs = body.outputs.map(({ name }) => at.fresh(`${name}_row`))
  const sequences = rows.slice(states)
  const inner = makeNode('Scan', [...rows.slice(0, states), ...sequences.map(limited)], outputs, {
    attributes: {
      body: graph(body),
      num_scan_inputs: int(scans),
      scan_input_directions: ints(intsOf(node, 'directions') ?? sequences.map(() => 0)),
    },
  })
  at.append(inner)
  const padded = (name: string): string => {
    if (!end) return name
    const total = at.add('Shape', [sequences[0]!], { start: int(0), end: int(1) })
    const pads = at.add('Concat', [start, at.add('Sub', [total, end])], { axis: int(0) })
    return at.add('Pad', [name, pads, '', start])
  }
  const results = outputs.map((name, i) => (i < states ? name : padded(name)))
  const overBatch: Subgraph = {
    name: `${body.name}_batch`,
    inputs: [...(length === undefined ? [] : [length]), ...rows].map(name => ({ name })),
    outputs: results.map((name, i) => {
      const info = { ...body.outputs[i]!, name }
      return i < states ? info : stacked(info)
    }),
    nodes: at.nodes,
    initializers: new Map(),
    values: new Map(),
    metadata: new Map(),
  }
  const inputs = length === undefined ? values : [lengths, ...values]
  const attributes = { body: graph(overBatch), num_scan_inputs: int(inputs.length) }
  return [makeNode('Scan', inputs, node.outputs, { name: node.name, attributes })]
}

/** Upgrades by operator. */
export const decompositions: UpgradeTable = {
  MaxPool: { before: 99, upgrade: maxPool },
  MeanVarianceNormalization: { before: 99, upgrade: meanVarianceNormalization },
  Scan: { before: 9, upgrade: scan },
}
