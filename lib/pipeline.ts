// pipeline.ts: the rewrites of inference and of training, in their order, and why each one stands where it does.
import type { ActivationType, RoundedRows } from './core/activation-types.js'
import type { Precision } from './core/config.js'
import { Pacer } from './core/paced.js'
import { differentiate } from './graph/gradients/differentiate.js'
import type { Graph } from './graph/graph.js'
import { type AccumulateOptions, accumulate } from './graph/rewrites/accumulate.js'
import { fitBatchSize, setBatchSizePaced } from './graph/rewrites/batch-size.js'
import { canonicalisePaced } from './graph/rewrites/canonicalise.js'
import { addClip } from './graph/rewrites/clip.js'
import { dequantizeLayers } from './graph/rewrites/dequantize-layers.js'
import { addDropout } from './graph/rewrites/dropout.js'
import { roundProducts } from './graph/rewrites/half-precision.js'
import { inlineBranches, inlineBranchesPaced } from './graph/rewrites/inline-branches.js'
import type { DropoutSites } from './graph/rewrites/insert-lora.js'
import { addLossScale, skipUnlessFinite, unscaleGradients } from './graph/rewrites/loss-scale.js'
import { addLoss, type Loss, type WithLoss } from './graph/rewrites/losses.js'
import { optimizePaced } from './graph/rewrites/optimize.js'
import { readCodesPaced } from './graph/rewrites/read-codes.js'
import { recompute } from './graph/rewrites/recompute.js'
import { expectNvfp4Weights, roundRows } from './graph/rewrites/round-rows.js'
import { type RoundingOptions, roundWeightsPaced } from './graph/rewrites/round-weights.js'
import { selectBranches } from './graph/rewrites/select-branches.js'
import { straightThrough } from './graph/rewrites/straight-through.js'
import { addTeacher } from './graph/rewrites/teacher.js'
import { unroll } from './graph/rewrites/unroll.js'
import { widenHalves } from './graph/rewrites/widen.js'
import { modeCompute } from './kernels/precision-policy.js'
import { foldWeights } from './plan/fold-weights.js'

/** What the rewrites of each phase of inference are told. */
export interface InferencePhases {
  /** Once per file. */
  readonly load: { readonly batchSize?: number | undefined }
  /** Once per precision mode. */
  readonly round: RoundingOptions
  /** Once per engine that runs plans of ours. */
  readonly open: { readonly activations?: ActivationType | undefined }
  /** Whenever the values of inputs that decide about branches are new. */
  readonly specialise: object
  /** Once per segment of the graph and set of input shapes. */
  readonly compile: { onFusions?(counts: ReadonlyMap<string, number>): void }
}

/** A rewrite of inference; without `when` it is always made. */
export interface InferenceRewrite<Phase extends keyof InferencePhases> {
  readonly name: string
  readonly phase: Phase
  readonly reason: string
  when?(options: InferencePhases[Phase]): boolean
  apply(graph: Graph, options: InferencePhases[Phase], pacer: Pacer): Promise<Graph>
}

type AnyInferenceRewrite = {
  [Phase in keyof InferencePhases]: InferenceRewrite<Phase>
}[keyof InferencePhases]

const rounds = ({ mode }: RoundingOptions): boolean => mode !== 'fp32'

/** The rewrites of a model that runs. */
export const inference: readonly AnyInferenceRewrite[] = [
  {
    name: 'canonicalise',
    phase: 'load',
    reason: 'all others know the operators of one opset only',
    apply: (graph, _, pacer) => pacer.do(canonicalisePaced(graph)),
  },
  {
    name: 'set batch size',
    phase: 'load',
    reason: 'sizes in Reshapes are constants of canonical nodes',
    when: ({ batchSize }) => batchSize !== undefined,
    apply: (graph, { batchSize }, pacer) => pacer.do(setBatchSizePaced(graph, batchSize!)),
  },
  {
    name: 'fold weights',
    phase: 'round',
    reason: 'only a weight that is an initializer can be rounded',
    when: rounds,
    apply: (graph, _, pacer) => foldWeights(graph, pacer),
  },
  {
    name: 'round weights',
    phase: 'round',
    reason: 'batch normalizations are in the weights by now, so that nothing is scaled after rounding',
    when: rounds,
    apply: (graph, options, pacer) => pacer.do(roundWeightsPaced(graph, options)),
  },
  {
    name: 'read codes',
    phase: 'open',
    reason: 'for plans of ours only: a model that is saved keeps its DequantizeLinear nodes',
    apply: (graph, _, pacer) => pacer.do(readCodesPaced(graph)),
  },
  {
    name: 'round rows',
    phase: 'open',
    reason: 'weights are in their formats by now, those of the file among them',
    when: ({ activations = 'f32' }) => activations !== 'f32',
    apply: async (graph, { activations }) => {
      expectNvfp4Weights(graph, activations as RoundedRows)
      return roundRows(graph, activations as RoundedRows)
    },
  },
  {
    name: 'inline branches',
    phase: 'specialise',
    reason: 'a branch that is certain to run belongs to the segment around it',
    apply: (graph, _, pacer) => pacer.do(inlineBranchesPaced(graph)),
  },
  {
    name: 'optimize',
    phase: 'compile',
    reason:
      'fusions compare sizes, which are known for a segment; its own rewrites are listed in optimize.ts',
    apply: async (graph, { onFusions }, pacer) => {
      const optimized = await pacer.do(optimizePaced(graph))
      onFusions?.(optimized.fusions)
      return optimized.graph
    },
  },
]

/** Makes the rewrites of one phase of {@link inference}. */
export async function rewriteForInference<Phase extends keyof InferencePhases>(
  phase: Phase,
  graph: Graph,
  options: InferencePhases[Phase],
  pacer = new Pacer(),
): Promise<Graph> {
  let rewritten = graph
  for (const rewrite of inference) {
    if (rewrite.phase !== phase) continue
    const { when, apply } = rewrite as unknown as InferenceRewrite<Phase>
    if (!when || when(options)) rewritten = await apply(rewritten, options, pacer)
  }
  return rewritten
}

/** Sizes of inputs by name. */
export type Shapes = Readonly<Record<string, readonly number[]>>

/** Modes that products are trained in. */
type TrainedPrecision = Exclude<Precision, 'fp8' | 'nvfp4'>

/** A graph on its way to a step of training. What later rewrites find out is empty before. */
export interface TrainingGraph extends WithLoss {
  /** The value that is differentiated: the loss, scaled in fp16. */
  readonly objective: string
  /** Nodes of the forward pass, which come first. */
  readonly forwardNodes: number
  /** Names of gradients by those of the parameters. */
  readonly gradients: ReadonlyMap<string, string>
  /** Name of the norm of all gradients together. */
  readonly norm: string
}

/** What the rewrites of each phase of training are told. */
export interface TrainingPhases {
  /** Once per adapter. */
  readonly adapt: { readonly dropout: number; readonly dropoutSites?: DropoutSites | undefined }
  /** Once per set of input shapes, for the student and for its teacher. */
  readonly specialise: {
    readonly shapes: Shapes
    readonly parameters: readonly string[]
    readonly precision: TrainedPrecision
  }
  /** After it. */
  readonly loss: { readonly teacher: Graph | undefined; readonly loss: Loss | Graph }
  /** After it. */
  readonly differentiate: { readonly parameters: readonly string[]; readonly precision: TrainedPrecision }
  /** Once per set of batch sizes. */
  readonly step: {
    /** Parts of the batch that gradients are summed over, and their weights. */
    readonly inputs: readonly string[]
    readonly weights: readonly number[]
    /** Parts of the forward pass of which only the ends are kept; 1: all is kept. */
    readonly segments: number
    readonly maxNorm: number
    readonly precision: TrainedPrecision
    appendUpdate(graph: Graph, gradients: ReadonlyMap<string, string>): Graph
  }
}

/** A rewrite of training; without `when` it is always made. */
export interface TrainingRewrite<Phase extends keyof TrainingPhases> {
  readonly name: string
  readonly phase: Phase
  readonly reason: string
  when?(options: TrainingPhases[Phase]): boolean
  apply(training: TrainingGraph, options: TrainingPhases[Phase]): Partial<TrainingGraph>
}

type AnyTrainingRewrite = { [Phase in keyof TrainingPhases]: TrainingRewrite<Phase> }[keyof TrainingPhases]

const scales = ({ precision }: { readonly precision: TrainedPrecision }): boolean => precision === 'fp16'

/** The rewrites of a canonical graph that is trained. */
export const training: readonly AnyTrainingRewrite[] = [
  {
    name: 'dequantize layers',
    phase: 'adapt',
    reason: 'integer kernels have no gradient; the same layer in floats has one',
    apply: ({ graph }) => ({ graph: dequantizeLayers(graph) }),
  },
  {
    name: 'straight-through',
    phase: 'adapt',
    reason: 'what is left of rounding to codes has the gradient 0 without it',
    apply: ({ graph }) => ({ graph: straightThrough(graph) }),
  },
  {
    name: 'add dropout',
    phase: 'adapt',
    reason: 'its gradient is differentiated like all others',
    when: ({ dropout }) => dropout > 0,
    apply: ({ graph }, { dropout, dropoutSites }) => ({ graph: addDropout(graph, dropout, dropoutSites) }),
  },
  {
    name: 'fit batch size',
    phase: 'specialise',
    reason: 'exporters write a batch of one into shapes; all that follows looks at sizes',
    apply: ({ graph }, { shapes }) => ({ graph: fitBatchSize(graph, shapes) }),
  },
  {
    name: 'inline branches',
    phase: 'specialise',
    reason: 'control flow has no gradient; a condition that follows from shapes goes first',
    apply: ({ graph }, { shapes }) => ({ graph: inlineBranches(graph, { shapes }) }),
  },
  {
    name: 'select branches',
    phase: 'specialise',
    reason: 'conditions that are left are on data: both branches run, and one result is selected',
    apply: ({ graph }, options) => ({ graph: selectBranches(graph, options) }),
  },
  {
    name: 'unroll',
    phase: 'specialise',
    reason: 'recurrent operators have no gradient; branches inside of which they lay are gone',
    apply: ({ graph }, { shapes }) => ({ graph: unroll(graph, { shapes }) }),
  },
  {
    name: 'widen halves',
    phase: 'specialise',
    reason: 'parameters, sums and gradients are f32, also where the model is in 16 bits',
    apply: ({ graph }) => ({ graph: widenHalves(graph) }),
  },
  {
    name: 'round products',
    phase: 'specialise',
    reason: 'before differentiation, so that gradients are rounded, too; products of all kinds are in place',
    when: ({ precision }) => precision !== 'fp32',
    apply: ({ graph }, { precision }) => ({
      graph: roundProducts(graph, modeCompute[precision as 'fp16' | 'bf16']),
    }),
  },
  {
    name: 'add teacher and loss',
    phase: 'loss',
    reason: 'the values that they compare have their final names and sizes',
    apply: ({ graph }, { teacher, loss }) => {
      if (!teacher) return withObjective(addLoss(graph, loss))
      const both = addTeacher(graph, teacher)
      return withObjective(addLoss(both.graph, loss, both.values))
    },
  },
  {
    name: 'scale loss',
    phase: 'differentiate',
    reason: 'small gradients vanish in f16 unless the value that is differentiated is scaled',
    when: scales,
    apply: ({ graph, loss }) => {
      const scaled = addLossScale(graph, loss)
      return { graph: scaled.graph, objective: scaled.loss }
    },
  },
  {
    name: 'differentiate',
    phase: 'differentiate',
    reason: 'the forward pass is complete',
    apply: ({ graph, objective }, { parameters }) => {
      const forwardNodes = graph.nodes.length
      return { ...differentiate(graph, { loss: objective, wrt: [...parameters] }), forwardNodes }
    },
  },
  {
    name: 'recompute',
    phase: 'step',
    reason: 'both passes of one part are there, and it is easier to cut before they are repeated',
    when: ({ segments }) => segments > 1,
    apply: ({ graph, forwardNodes }, { segments }) => {
      return { graph: recompute(graph, { forward: forwardNodes, segments }) }
    },
  },
  {
    name: 'accumulate',
    phase: 'step',
    reason: 'losses and gradients of the parts are summed before anything is made of them',
    when: ({ weights }) => weights.length > 1,
    apply: ({ graph, loss, gradients }, { inputs, weights }) => {
      const options: AccumulateOptions = { inputs, values: [loss, ...gradients.values()], weights }
      return { graph: accumulate(graph, options) }
    },
  },
  {
    name: 'unscale gradients',
    phase: 'step',
    reason: 'norm and update are those of the gradients themselves',
    when: scales,
    apply: ({ graph, gradients }) => unscaleGradients(graph, gradients),
  },
  {
    name: 'clip',
    phase: 'step',
    reason: 'the norm is that of the sum over all parts',
    apply: ({ graph, gradients }, { maxNorm }) => addClip(graph, gradients, maxNorm),
  },
  {
    name: 'append update',
    phase: 'step',
    reason: 'the optimizer sees clipped gradients',
    apply: ({ graph, gradients }, { appendUpdate }) => ({ graph: appendUpdate(graph, gradients) }),
  },
  {
    name: 'skip unless finite',
    phase: 'step',
    reason: 'an update with gradients that overflowed in f16 is undone as a whole',
    when: scales,
    apply: ({ graph, norm }) => ({ graph: skipUnlessFinite(graph, norm) }),
  },
]

const withObjective = (withLoss: WithLoss): Partial<TrainingGraph> => ({
  ...withLoss,
  objective: withLoss.loss,
})

/** A graph at the beginning of {@link training}. */
export function trainingGraph(graph: Graph): TrainingGraph {
  return { graph, loss: '', objective: '', pairs: [], forwardNodes: 0, gradients: new Map(), norm: '' }
}

/** Makes the rewrites of one phase of {@link training}. */
export function rewriteForTraining<Phase extends keyof TrainingPhases>(
  phase: Phase,
  start: TrainingGraph,
  options: TrainingPhases[Phase],
): TrainingGraph {
  let rewritten = start
  for (const rewrite of training) {
    if (rewrite.phase !== phase) continue
    const { when, apply } = rewrite as unknown as TrainingRewrite<Phase>
    if (!when || when(options)) rewritten = { ...rewritten, ...apply(rewritten, options) }
  }
  return rewritten
}
