// passes.ts: the graph of forward and backward pass: dropout, rounding, teacher, loss, gradients.
import { SparkError } from '../core/errors.js'
import type { TrainableAdapter } from '../dora/model/trainable-adapter.js'
import type { Graph } from '../graph/graph.js'
import { isRecurrent } from '../graph/recurrent.js'
import { writesBatchSize } from '../graph/rewrites/batch-size.js'
import { isIf } from '../graph/rewrites/inline-branches.js'
import type { Loss } from '../graph/rewrites/losses.js'
import { inferFacts } from '../graph/shape-inference.js'
import { rewriteForTraining, type Shapes, type TrainingGraph, trainingGraph } from '../pipeline.js'
import type { TrainingPrecision } from './options.js'

/** What is computed in both passes. */
export interface PassOptions {
  readonly adapter: TrainableAdapter
  readonly loss: Loss | Graph
  /** A model whose outputs are targets. */
  readonly teacher?: Graph | undefined
  /** What products round to; gradients of fp16 are scaled. */
  readonly precision: TrainingPrecision
}

/**
 * The forward pass and its loss, with the branches and recurrent steps that run for inputs of these sizes; without sizes
 * control flow stays, and nothing is rounded.
 */
export function forwardOf(
  { adapter, loss, teacher, precision }: PassOptions,
  shapes?: Shapes,
): TrainingGraph {
  const { dropout = 0, dropoutSites, parameters } = adapter
  const adapted = rewriteForTraining('adapt', trainingGraph(adapter.graph), { dropout, dropoutSites })
  const student = specialised(adapted, shapes, { parameters, precision })
  const untrained = { parameters: [], precision: 'fp32' } as const
  const target = teacher && specialised(trainingGraph(teacher), shapes, untrained).graph
  return rewriteForTraining('loss', student, { teacher: target, loss })
}

function specialised(
  training: TrainingGraph,
  shapes: Shapes | undefined,
  options: { readonly parameters: readonly string[]; readonly precision: TrainingPrecision },
): TrainingGraph {
  if (!shapes) return training
  const own = training.graph.inputs.filter(({ name }) => Object.hasOwn(shapes, name))
  const sizes = Object.fromEntries(own.map(({ name }) => [name, shapes[name]!]))
  return rewriteForTraining('specialise', training, { ...options, shapes: sizes })
}

/** Whether the nodes that run depend on the sizes of the inputs. */
export const dependsOnSizes = (graph: Graph): boolean =>
  graph.nodes.some(node => isRecurrent(node) || isIf(node)) || writesBatchSize(graph)

/** Forward and backward pass for inputs of these sizes. */
export function passesOf(options: PassOptions, shapes: Shapes): TrainingGraph {
  const { adapter, precision } = options
  const { parameters } = adapter
  return rewriteForTraining('differentiate', forwardOf(options, shapes), { parameters, precision })
}

/**
 * Checks that targets have the shapes of the outputs that they are compared with: where they broadcast, the loss would be
 * that of every sample against every other one.
 * @throws SparkError ERR_SHAPE
 */
export function expectTargets({ graph, pairs }: TrainingGraph, shapes: Shapes): void {
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
