// contrib-quantized-experts.ts: mixtures of experts of integers, which stay as they are where kernels read such blocks.
import { intOf, stringOf } from '../../attributes.js'
import type { Constant } from '../../constant.js'
import type { Node } from '../../graph.js'
import { NodeBuilder } from '../../node-builder.js'
import { constantCodes, expectBytes, reinterpret, unpadded } from './block-codes.js'
import type { Upgrade, UpgradeContext } from './context.js'
import { dequantize } from './contrib-blocks.js'
import { expertLayer, type Layer, mixed } from './contrib-experts.js'
import { floatConstant, widened } from './wide.js'

/** Where the parts of a layer stand among the inputs. */
interface Parts {
  readonly weight: number
  readonly scales: number
  readonly bias: number
  readonly zeros: number
}

const parts = {
  first: { weight: 2, scales: 3, bias: 4, zeros: 11 },
  second: { weight: 5, scales: 6, bias: 7, zeros: 12 },
  third: { weight: 8, scales: 9, bias: 10, zeros: 13 },
} as const satisfies Record<string, Parts>

/** Bits of codes, and in features that share a scale; 0: all of an expert's out feature. */
interface Quantized {
  readonly bits: number
  readonly block: number
}

function quantizationOf(node: Node, context: UpgradeContext): Quantized {
  const [bits, block] = [intOf(node, 'expert_weight_bits'), intOf(node, 'block_size')]
  const type = stringOf(node, 'quant_type')
  if (type !== 'int') throw context.unsupported(node, `quant_type '${type}' is not supported: 'int'`)
  if (bits !== 2 && bits !== 4 && bits !== 8)
    throw context.unsupported(node, `weights of ${bits} bits are not supported: 2, 4 or 8`)
  if (block !== 0 && block < 16)
    throw context.unsupported(node, `block_size is ${block}; it must be at least 16`)
  if (intOf(node, 'weights_prepacked') === 1)
    throw context.unsupported(node, 'weights_prepacked is a layout of one processor: export it with 0')
  return { bits, block }
}

/** Sizes of the weights of a layer: experts, out features, in features. */
type Sizes = readonly [experts: number, out: number, cols: number]

function sizesOf(node: Node, context: UpgradeContext, name: string, { bits, block }: Quantized): Sizes {
  const shape = context.constantOf(name)?.shape
  if (shape?.length !== 3)
    throw context.unsupported(node, `its weight '${name}' must be constant, of 3 dimensions`)
  const [experts, out, bytes] = shape as [number, number, number]
  const cols = (bytes * 8) / bits
  if (Math.min(experts, out, cols) < 1 || (block > 0 && cols % block !== 0))
    throw context.unsupported(node, `'${name}' is [${shape.join(', ')}], which are no blocks of ${block}`)
  return [experts, out, cols]
}

/** Zero points as codes [experts, out features, blocks]; the middle where there are none. */
function zerosOf(
  node: Node,
  context: UpgradeContext,
  name: string,
  bits: number,
  shape: readonly [number, number, number],
): Constant {
  if (name === '') return constantCodes(bits, 2 ** (bits - 1), shape)
  const [experts, out, blocks] = shape
  // Where an out feature has one zero point, those of an expert are packed, else those of an out feature.
  const packedRow = context.constantOf(name)?.shape.length === 2 ? [experts, out] : [experts * out, blocks]
  const [rows, count] = packedRow as [number, number]
  const packed = expectBytes(node, context, name, 'zero points', rows * Math.ceil((count * bits) / 8))
  const codes = unpadded(packed, bits, packedRow)
  return reinterpret(codes, codes.dtype as 'u4', shape)
}

function layerOf(
  build: NodeBuilder,
  node: Node,
  context: UpgradeContext,
  at: Parts,
  quantized: Quantized,
): Layer {
  const input = (i: number): string => node.inputs[i] ?? ''
  const weight = input(at.weight)
  const sizes = sizesOf(node, context, weight, quantized)
  const [experts, out, cols] = sizes
  const { bits, block: given } = quantized
  const block = given === 0 ? cols : given
  const perBlock = [experts, out, cols / block] as const
  const codes = unpadded(context.constantOf(weight)!, bits, sizes)
  const scale = floatConstant(node, context, input(at.scales), perBlock, 'scales')
  const zeros = zerosOf(node, context, input(at.zeros), bits, perBlock)
  const names = [
    build.constant(codes, `${weight}_codes`),
    build.constant(scale, `${input(at.scales)}_blocks`),
    build.constant(zeros, `${weight}_zeros`),
  ] as const
  const values = dequantize(build, `${weight}_rows`, names, { axis: 2, block })
  return expertLayer(build, values, widened(build, context, input(at.bias)))
}

/** QMoE, a mixture of experts whose weights are integers in bytes. */
const quantizedMixture: Upgrade = (node, context) => {
  const [, logits = ''] = node.inputs
  const quantized = quantizationOf(node, context)
  const build = new NodeBuilder(context.scopeOf(node))
  const layer = (at: Parts): Layer => layerOf(build, node, context, at, quantized)
  const [, , width] = sizesOf(node, context, node.inputs[parts.first.weight] ?? '', quantized)
  return mixed(build, node, context, {
    ...{ router: { logits, scores: node.inputs[14] ?? '' }, width },
    first: layer(parts.first),
    second: layer(parts.second),
    third: (node.inputs[parts.third.weight] ?? '') === '' ? undefined : layer(parts.third),
  })
}

/** Upgrades by operator. */
export const contribQuantizedExperts: Readonly<Record<string, Upgrade>> = { QMoE: quantizedMixture }
