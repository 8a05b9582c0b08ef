// passes.ts: the graph of forward and backward pass: dropout, rounding, teacher, loss, gradients.
import { SparkError } from '../core/errors.js'
import type { TrainableAdapter } from '../dora/model/trainable-adapter.js'
import { differentiate } from '../graph/gradients/differentiate.js'
import type { Graph } from '../graph/graph.js'
import { isRecurrent } from '../graph/recurrent.js'
import { dequantizeLayers } from '../graph/rewrites/dequantize-layers.js'
import { addDropout } from '../graph/rewrites/dropout.js'
import { roundProducts } from '../graph/rewrites/half-precision.js'
import { inlineBranches, isIf } from '../graph/rewrites/inline-branches.js'
import { addLossScale } from '../graph/rewrites/loss-scale.js'
import { addLoss, type Loss, type WithLoss } from '../graph/rewrites/losses.js'
import { selectBranches } from '../graph/rewrites/select-branches.js'
import { straightThrough } from '../graph/rewrites/straight-through.js'
import { addTeacher } from '../graph/rewrites/teacher.js'
import { unroll } from '../graph/rewrites/unroll.js'
import { widenHalves } from '../graph/rewrites/widen.js'
import { inferFacts } from '../graph/shape-inference.js'
import type { TrainingPrecision } from './options.js'

/** What is computed in both passes. */
export interface PassOptions {
  readonly adapter: TrainableAdapter
  readonly loss: Loss
  /** A model whose outputs are targets. */
  readonly teacher?: Graph | undefined
  /** What products round to; gradients of fp16 are scaled. */
  readonly precision: TrainingPrecision
}

/** Sizes of inputs by name. */
export type Shapes = Readonly<Record<string, readonly number[]>>

/** A graph with its forward and backward pass. */
export interface Passes extends WithLoss {
  /** Nodes of the forward pass. */
  readonly forward: number
  readonly gradients: ReadonlyMap<string, string>
}

/**
 * Dropout, rounding, teacher and loss, with the branches and recurrent steps that run for inputs of these sizes and values
 * of f32; without sizes nothing of a model is replaced.
 */
export function forwardOf({ adapter, loss, teacher, precision }: PassOptions, shapes?: Shapes): WithLoss {
  const { dropout = 0 } = adapter
  const adapted = straightThrough(dequantizeLayers(adapter.graph))
  const dropped = dropout > 0 ? addDropout(adapted, dropout) : adapted
  const student = sized(dropped, shapes, adapter.parameters)
  const rounded = precision === 'fp32' || !shapes ? student : roundProducts(student, halves[precision])
  if (!teacher) return addLoss(rounded, loss)
  const { graph, values } = addTeacher(rounded, sized(teacher, shapes))
  return addLoss(graph, loss, values)
}

const halves = { fp16: 'f16', bf16: 'bf16' } as const

function sized(graph: Graph, shapes: Shapes | undefined, parameters: readonly string[] = []): Graph {
  if (!shapes) return graph
  const own = graph.inputs.filter(({ name }) => Object.hasOwn(shapes, name))
  const options = { shapes: Object.fromEntries(own.map(({ name }) => [name, shapes[name]!])) }
  const straight = selectBranches(inlineBranches(graph, options), { ...options, parameters })
  return widenHalves(unroll(straight, options))
}

/** Whether the nodes that run depend on the sizes of the inputs. */
export const dependsOnSizes = ({ nodes }: Graph): boolean =>
  nodes.some(node => isRecurrent(node) || isIf(node))

/** Forward and backward pass for inputs of these sizes. */
export function passesOf(options: PassOptions, shapes: Shapes): Passes {
  const { graph, loss, pairs } = forwardOf(options, shapes)
  const scaled = options.precision === 'fp16' ? addLossScale(graph, loss) : { graph, loss }
  const wrt = [...options.adapter.parameters]
  return {
    ...differentiate(scaled.graph, { loss: scaled.loss, wrt }),
    forward: scaled.graph.nodes.length,
    loss,
    pairs,
  }
}

/**
 * Checks that targets have the shapes of the outputs that they are compared with: where they broadcast, the loss would be
 * that of every sample against every other one.
 * @throws SparkError ERR_SHAPE
 */
export function expectTargets({ graph, pairs }: Passes, shapes: Shapes): void {
  if (pairs.length === 0) return
  const facts = inferFacts(graph, { shapes })
  const shapeOf = (name: string): string | undefined => {
    const type = facts.get(name)?.type
    const sizes = type?.kind === 'tensor' ? type.shape : undefined
    return sizes?.every(size => typeof size === 'number') ? `[${sizes.join(', ')}]` : undefined
  }
  for (const [output, target] of pairs) {
    const [ours, wanted] = [shapeOf(output), shapeOf(target)]
    if (ours === undefined || wanted === undefined || ours === wanted) continue
    const remedy = `give targets of the shape of '${output}'`
    throw new SparkError(
      'ERR_SHAPE',
      `'${output}' is ${ours}, but its target '${target}' ${wanted}: ${remedy}`,
    )
  }
}

/** Whether two graphs have the same nodes. */
export const sameNodes = (a: Graph, b: Graph): boolean =>
  a.nodes.length === b.nodes.length &&
  a.nodes.every(({ op, inputs }, i) => op === b.nodes[i]!.op && inputs.join() === b.nodes[i]!.inputs.join())
