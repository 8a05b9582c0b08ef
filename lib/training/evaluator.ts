// evaluator.ts: loss and metrics of a model over data, without dropout and without an update.
import { expectAttached } from '../core/checks.js'
import { didYouMean } from '../core/did-you-mean.js'
import { type ElementArray, type ElementType, isHalf } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import type { TrainableAdapter } from '../dora/model/trainable-adapter.js'
import { valueNames } from '../graph/edit.js'
import type { Graph } from '../graph/graph.js'
import { isGraph } from '../graph/rewrites/losses/graph-loss.js'
import type { Loss, LossTerm } from '../graph/rewrites/losses.js'
import type { Kernels } from '../kernels/kernels.js'
import { Tensor } from '../memory/tensor.js'
import type { TrainingGraph } from '../pipeline.js'
import { Plan } from '../plan/plan.js'
import { decode } from '../precision/casts.js'
import { describeNotFinite } from './data-check.js'
import { type Batch, batchSizeOf } from './dataset.js'
import { converted } from './feeds.js'
import { Measure, type MetricTerm, type MetricValue, type NamedMetric } from './metrics.js'
import { dependsOnSizes, expectTargets, forwardOf, type PassOptions } from './passes.js'
import type { State } from './step.js'

/** The result of an evaluation. */
export interface Evaluation {
  /** Mean loss of all samples. */
  readonly loss: number
  /** Metrics by name. */
  readonly metrics: Readonly<Record<string, number>>
  /** Number of samples. */
  readonly samples: number
}

/** The forward pass for batches of one set of shapes. */
interface Variant {
  readonly plan: Plan
  readonly forward: TrainingGraph
  /** The parameters that the plan has. */
  state?: State
}

/** Evaluates parameters. Each combination of shapes has a plan of its own. */
export class Evaluator implements Disposable {
  readonly #options: PassOptions
  readonly #metrics: readonly NamedMetric[]
  readonly #kernels: Kernels
  readonly #dependsOnSizes: boolean
  readonly #inputs: readonly string[]
  readonly #types: ReadonlyMap<string, ElementType>
  readonly #variants = new Map<string, Variant>()

  constructor(options: PassOptions, metrics: readonly NamedMetric[], kernels: Kernels) {
    const { adapter, teacher } = options
    this.#options = { ...options, adapter: withoutDropout(adapter) }
    this.#metrics = metrics
    this.#kernels = kernels
    this.#dependsOnSizes = [adapter.graph, ...(teacher ? [teacher] : [])].some(dependsOnSizes)
    const { graph } = forwardOf(this.#options)
    const inputs = graph.inputs.filter(({ name }) => !graph.initializers.has(name))
    this.#inputs = inputs.map(({ name }) => name)
    this.#types = new Map(
      inputs.flatMap(({ name, type }) => (type?.kind === 'tensor' ? [[name, type.dtype] as const] : [])),
    )
  }

  /**
   * Loss and metrics over all batches.
   * @param state - values of the parameters by name
   * @throws SparkError ERR_ARGUMENT for a field or value that is missing, ERR_SHAPE, ERR_NOT_FINITE naming the field when
   * the data have NaN or infinities
   */
  async run(batches: AsyncIterable<Batch>, state: State): Promise<Evaluation> {
    const measures = this.#metrics.map(metric => [metric, new Measure(metric)] as const)
    let [lossSum, samples] = [0, 0]
    for await (const batch of batches) {
      const { loss, values } = await this.#forward(batch, state)
      if (!Number.isFinite(loss)) this.#expectFinite(batch)
      const outputs = this.#outputsOf(values)
      for (const [{ name, metric }, measure] of measures) {
        const read = () => this.#valuesOf(name, metric as MetricTerm, values, batch)
        await measure.add(read, outputs, batch)
      }
      const count = batchSizeOf(batch)
      lossSum += loss * count
      samples += count
    }
    const metrics = measures.map(([{ name }, measure]) => [name, measure.value] as const)
    return { loss: lossSum / samples, metrics: Object.fromEntries(metrics), samples }
  }

  /** Frees the plans. */
  dispose(): void {
    for (const { plan } of this.#variants.values()) plan.dispose()
    this.#variants.clear()
  }

  /** As {@link Evaluator.dispose}. */
  [Symbol.dispose](): void {
    this.dispose()
  }

  async #forward(batch: Batch, state: State): Promise<{ loss: number; values: ReadonlyMap<string, Tensor> }> {
    const variant = await this.#variantFor(batch)
    const { plan, forward } = variant
    if (variant.state !== state) {
      for (const name of this.#options.adapter.parameters) {
        ;(plan.state(name) as Float32Array).set(state.get(name)!)
      }
      await plan.storeState()
      variant.state = state
    }
    const feeds: Record<string, ElementArray> = {}
    for (const { name, dtype } of plan.inputs) {
      const { data } = batch[name]!
      expectAttached(`batch['${name}']`, data)
      feeds[name] = converted(data, dtype)
    }
    const results = await plan.run(feeds)
    const values = plan.outputs.map(({ name, shape, dtype }) => {
      return [name, Tensor.of(results[name]!.slice() as Float32Array, shape, dtype as 'f32')] as const
    })
    return { loss: Number(results[forward.loss]![0]), values: new Map(values) }
  }

  async #variantFor(batch: Batch): Promise<Variant> {
    const missing = this.#inputs.find(name => !Object.hasOwn(batch, name))
    if (missing !== undefined) {
      const fields = Object.keys(batch)
      const found = `a batch has the fields ${fields.join(', ') || 'none'}`
      throw new SparkError('ERR_ARGUMENT', `${found}; the evaluation reads ${this.#inputs.join(', ')}`)
    }
    const shapes = Object.fromEntries(this.#inputs.map(name => [name, batch[name]!.shape]))
    const key = JSON.stringify(shapes)
    const known = this.#variants.get(key)
    if (known) return known
    const forward = forwardOf(this.#options, this.#dependsOnSizes ? shapes : {})
    expectTargets(forward, shapes)
    const { parameters } = this.#options.adapter
    const outputs = [
      ...new Set([...forward.graph.outputs.map(({ name }) => name), ...this.#extraOutputs(forward)]),
    ]
    const graph = {
      ...forward.graph,
      outputs: outputs.map(name => ({ name })),
      // Parameters are state, so that one plan serves all their values.
      updates: new Map(parameters.map(name => [name, name])),
    }
    const variant = { plan: await Plan.create(graph, this.#kernels, { shapes }), forward }
    this.#variants.set(key, variant)
    return variant
  }

  /** Values of the model and its teacher that metrics read besides the outputs. */
  #extraOutputs(forward: TrainingGraph): string[] {
    const names = valueNames(forward.graph)
    return this.#metrics.flatMap(({ metric }) => {
      if (typeof metric === 'function') return []
      const { output, target } = this.#namesOf(metric, forward)
      return [output, target].filter(name => names.has(name) && !this.#inputs.includes(name))
    })
  }

  /** The values that a metric compares: by default those of the loss. */
  #namesOf({ output, target }: MetricTerm, forward: TrainingGraph): { output: string; target: string } {
    const { loss, adapter } = this.#options
    const compared = pairsOf(loss)
    const firstOutput = adapter.graph.outputs[0]!.name
    const read = output ?? compared[0]?.output ?? firstOutput
    const wanted = compared.find(pair => (pair.output ?? firstOutput) === read)?.target
    const paired = forward.pairs.find(([value]) => value === read)?.[1]
    return { output: read, target: target ?? paired ?? wanted ?? 'target' }
  }

  #valuesOf(metric: string, term: MetricTerm, values: ReadonlyMap<string, Tensor>, batch: Batch) {
    const [variant] = this.#variants.values()
    const { output, target } = this.#namesOf(term, variant!.forward)
    const read = (name: string): MetricValue => {
      const field = batch[name]
      if (field) return { name, shape: field.shape, data: numbersOf(field.data, this.#types.get(name)) }
      const value = values.get(name)
      if (value) return { name, shape: value.shape, data: numbersOf(value.data, value.dtype) }
      const known = [...Object.keys(batch), ...this.#options.adapter.graph.outputs.map(info => info.name)]
      const what = `which is no field of the batch and no output of the model${didYouMean(name, known)}`
      throw new SparkError(
        'ERR_ARGUMENT',
        `metric '${metric}' reads '${name}', ${what}; known: ${known.join(', ')}`,
      )
    }
    return { output: read(output), target: read(target) }
  }

  /** Outputs of the model by name. */
  #outputsOf(values: ReadonlyMap<string, Tensor>): Record<string, Tensor> {
    const names = this.#options.adapter.graph.outputs.map(({ name }) => name)
    return Object.fromEntries(names.map(name => [name, values.get(name)!]))
  }

  #expectFinite(batch: Batch): void {
    const found = describeNotFinite(batch, this.#types)
    if (found) throw new SparkError('ERR_NOT_FINITE', `${found}: remove or replace such samples`)
  }
}

/** Terms of a loss that compare one output with one target. */
function pairsOf(loss: Loss | Graph): { readonly output?: string; readonly target?: string }[] {
  if (typeof loss === 'string' || isGraph(loss)) return []
  const terms: readonly LossTerm[] = Array.isArray(loss) ? loss : [loss as LossTerm]
  return terms.flatMap(term => ('outputs' in term || 'mean' in term ? [] : [term]))
}

/** 16-bit floats as numbers; all others as they are. */
function numbersOf(
  data: ElementArray | readonly string[],
  dtype: ElementType | undefined,
): ArrayLike<number | bigint> {
  return data instanceof Uint16Array && dtype && isHalf(dtype) ? decode(data, dtype) : (data as Float32Array)
}

/** The adapter as it runs outside of training. */
const withoutDropout = (adapter: TrainableAdapter): TrainableAdapter => ({
  graph: adapter.graph,
  parameters: adapter.parameters,
  read: name => adapter.read(name),
  write: (name, values) => adapter.write(name, values),
})
